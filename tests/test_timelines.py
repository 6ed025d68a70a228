import polars as pl
import pytest

import sweep
from sweep.report.charts import timeline
from sweep.report.charts.timeline import middle
from sweep.report.figures import timelines
from sweep.results import Store
from sweep.study import parse_study

STUDY = {
    "title": "small",
    "seed": 3,
    "replicates": 41,
    "workload": {"requests": 30, "output": {"distribution": "geometric", "mean": 15}},
    "server": {"slots": 3},
    "grid": {"server.slots": [3, 6]},
    "claims": [{"text": "x", "metric": "multiple", "at_least": 1, "where": {"slots": 6}}],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return sweep.run(parse_study(STUDY, "small.toml"), tmp_path_factory.mktemp("timelines"))


def test_the_worst_and_the_median_workload_of_the_main_cell_are_kept_with_the_steps_of_their_rows(results):
    kept = pl.read_parquet(results.folder / "timelines.parquet")
    rows = results.replicates.filter(pl.col("cell") == 1).sort("multiple", "replicate").collect()
    assert kept.select("cell", "slots").unique().row(0) == (1, 6)
    for role, place in (("worst", 0), ("median", 20)):
        row = rows.row(place, named=True)
        mine = kept.filter(role=role)
        assert mine["replicate"].unique().to_list() == [row["replicate"]]
        for scheduler in ("static", "continuous"):
            bars = mine.filter(scheduler=scheduler)
            assert bars["last_step"].max() == row[f"{scheduler}_steps"]
            assert (bars["last_step"] - bars["first_step"] + 1).sum() == row["output_tokens"]


def test_a_report_made_again_draws_them_from_the_folder_alone(results):
    page = (results.folder / "report.html").read_bytes()
    (results.folder / "report.html").unlink()
    assert sweep.read(results.folder).report().read_bytes() == page
    for name in ("timeline.svg", "timeline.png", "timeline-2.svg", "timeline-2.png"):
        assert (results.folder / "charts" / name).exists()
    assert b"sweep replay DIR --cell 1 --replicate" in page


def test_a_timeline_hatches_exactly_the_time_in_which_a_slot_idles():
    bars = pl.DataFrame(
        [("static", 0, 0, 1, 40), ("static", 1, 1, 1, 10), ("continuous", 0, 0, 1, 40), ("continuous", 1, 1, 1, 10)],
        schema=["scheduler", "request", "slot", "first_step", "last_step"],
        orient="row",
    )
    spec = timeline(bars, 2, "title").to_dict()
    (rows,) = spec["datasets"].values()
    points = [(row["x"], row["y"]) for row in rows if row["kind"] == "idle"]
    assert points
    strokes = list(zip(points[::3], points[1::3], points[2::3], strict=True))  # two ends and a gap
    assert all(10 <= x < x2 <= 40 and 1 < y2 < y < 2 for (x, y), (x2, y2), _ in strokes)
    assert {gap for _, _, gap in strokes} == {(None, None)}
    assert [row["x"] for row in rows if row["kind"] == "bar"] == [0, 0, 0, 0]
    assert {row["panel"] for row in rows} == {"static batching: 40 steps", "continuous batching: 40 steps"}


def test_a_workload_too_large_to_look_at_has_no_timeline(tmp_path):
    large = {**STUDY, "replicates": 2, "workload": {**STUDY["workload"], "requests": 5001}}
    results = sweep.run(parse_study(large, "large.toml"), tmp_path, report=False)
    assert not (results.folder / "timelines.parquet").exists()


def test_results_show_themselves_in_a_notebook(results):
    assert "small" in results._repr_html_()
    assert "<table" in results._repr_html_()
    assert {"distribution", "lines"} <= set(results.charts)


@pytest.fixture(scope="module")
def arriving(tmp_path_factory):
    """Requests that come over time, at a load that static batching can serve and at one that it cannot."""
    changes = {
        "replicates": 5,
        "workload": {**STUDY["workload"], "requests": 300, "arrivals": {"process": "poisson", "load": 0.2}},
        "server": {"slots": 3, "step_ms": 20},
        "grid": {"workload.arrivals.load": [0.2, 0.9]},
    }
    results = []
    for load in (0.2, 0.9):
        claims = [{"text": "x", "metric": "multiple", "at_least": 1, "where": {"arrivals_load": load}}]
        study = parse_study({**STUDY, **changes, "claims": claims}, "small.toml")
        results.append(sweep.run(study, tmp_path_factory.mktemp("arriving")))
    return results


def test_with_a_clock_the_moments_of_both_workloads_are_kept_in_seconds(arriving):
    results = arriving[0]
    kept = pl.read_parquet(results.folder / "timelines.parquet")
    moments = ["arrival_s", "start_s", "finish_s"]
    assert kept.columns == ["cell", "slots", "replicate", "role", "scheduler", "request", "slot", *moments]
    for role in ("worst", "median"):
        mine = kept.filter(role=role)
        row = results.replicates.filter(cell=0, replicate=mine["replicate"][0]).collect().row(0, named=True)
        for scheduler in ("static", "continuous"):
            spans = mine.filter(scheduler=scheduler)
            assert spans["request"].sort().to_list() == list(range(300))
            assert (spans["finish_s"] - spans["start_s"]).sum() == pytest.approx(row["output_tokens"] * 0.02)
            held = (spans["finish_s"] - spans["start_s"]).sum() / (3 * spans["finish_s"].max())
            assert held == pytest.approx(row[f"{scheduler}_utilisation"])


def test_the_picture_of_many_requests_that_arrive_is_a_stretch_of_time_and_the_caption_tells_of_all(arriving):
    for results, title in zip(arriving, ("a request takes", "static batching falls behind"), strict=True):
        first, _ = timelines(Store.open(results.folder))
        spec = first.chart.to_dict()
        assert " ".join(spec["title"]["text"]).startswith(f"In the worst workload {title}")
        assert any(line.startswith("Shown are ") for line in spec["title"]["subtitle"])
        assert "from arrival to last token on average" in first.caption
        start, end = spec["spec"]["layer"][0]["encoding"]["x"]["scale"]["domain"]
        (rows,) = spec["datasets"].values()
        bars = [row for row in rows if row["kind"] == "bar"]
        assert all(start <= row["x"] < row["x2"] <= end for row in bars)
        came = [row["x"] for row in rows if row["kind"] == "arrival"]
        assert len(came) == 2 * 121
        assert start <= min(came) <= max(came) <= end
        page = (results.folder / "report.html").read_bytes()
        assert sweep.read(results.folder).report().read_bytes() == page


def test_few_requests_that_arrive_are_all_drawn():
    assert middle([0.0, 1.0, 5.0, 9.0], 2) is None
    assert middle([0.0, 1.0, 5.0, 9.0, 12.0], 2) == (5.0, 12.0)
    assert middle([0.0, 5.0, 5.0, 5.0, 5.0], 2) is None

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from folders import claim, from_multiples, write_folder

from sweep.metrics import METRICS, unit_of
from sweep.report import charts
from sweep.report.charts.curves import _apart, _log_ticks
from sweep.report.charts.look import RED, SCHEDULER_COLORS, wrapped
from sweep.report.claims import check
from sweep.report.summary import summarise
from sweep.report.words import metric_name

MULTIPLES = np.random.default_rng(5).normal(4.7, 0.4, 1_000).round(4)
FIVE = claim(at_least=5, of={"share": 0.95}) | {"text": "continuous batching is at least 5x"}


def rows(chart: Any) -> list[dict[str, Any]]:
    """All data that a chart draws."""
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def words(chart: Any) -> str:
    title = chart.to_dict()["title"]
    return " ".join([*title["text"], *title["subtitle"]])


def grid(folder: Path, columns: int, failed: tuple[int, ...] = (), **changes: Any) -> pl.DataFrame:
    """A grid of cv by slots, as many of the one as of the other; the mean multiple is 1 + cv."""
    cvs, slots = [0.5 * (i + 1) for i in range(columns)], [4 * (i + 1) for i in range(columns)]
    steps: list[Any] = [from_multiples([1 + cv - 0.01, 1 + cv + 0.01]) for cv, _ in itertools.product(cvs, slots)]
    for cell in failed:
        steps[cell] = "nothing fits in 64 GiB"
    limits = [2 + cv for cv, _ in itertools.product(cvs, slots)]
    axes = {"output_cv": cvs, "slots": slots}
    return summarise(write_folder(folder, steps, axes=axes, **({"limits": limits} | changes)))


def line(folder: Path, multiples: list[float], **changes: Any) -> pl.DataFrame:
    """One axis of slots with these mean multiples, each within 0.01."""
    return summarise(
        write_folder(folder, [from_multiples([m - 0.0001, m + 0.0001] * 20) for m in multiples], **changes)
    )


def test_the_distribution_states_the_share_that_reaches_the_claim() -> None:
    chart = charts.distribution(MULTIPLES, where="slots = 16", claim=FIVE)
    share = 100 * (MULTIPLES >= 5).mean()
    assert f"{share:.3g} % of workloads reach 5x" in words(chart)
    assert "1,000 workloads at slots = 16" in words(chart)
    assert "continuous batching is at least 5x" in words(chart)


def test_the_bars_hold_every_workload_once_and_none_lies_across_the_bound() -> None:
    bars = [row for row in rows(charts.distribution(MULTIPLES, claim=FIVE)) if "count" in row]
    assert sum(bar["count"] for bar in bars) == 1_000
    assert sum(bar["count"] for bar in bars if bar["meets"]) == (MULTIPLES >= 5).sum()
    assert all(bar["x2"] <= 5 or bar["x"] >= 5 for bar in bars)
    assert len(bars) < 60  # binned before, so that the picture stays small


@pytest.mark.parametrize(
    ("bound", "met"),
    [
        ({"at_most": 4}, MULTIPLES <= 4),
        ({"between": [4, 5]}, (MULTIPLES >= 4) & (MULTIPLES <= 5)),
        ({"at_least": 99}, MULTIPLES > 99),
        (
            {"at_most": float(MULTIPLES[3])},
            np.array([value <= MULTIPLES[3] for value in MULTIPLES]),
        ),  # a workload on the bound itself
    ],
)
def test_the_coloured_bars_are_the_workloads_within_the_bound(bound: dict[str, Any], met: Any) -> None:
    bars = [row for row in rows(charts.distribution(MULTIPLES, claim=claim(**bound))) if "count" in row]
    assert sum(bar["count"] for bar in bars if bar["meets"]) == met.sum()
    assert sum(bar["count"] for bar in bars) == 1_000


@pytest.mark.parametrize(
    "values", [[1.0], [1.0, 1.0, 1.0], [0.0, 0.0], [1.0, 1e6], [float("nan"), 3.0], [-2.5e-9, 1e-9]]
)
def test_any_values_have_a_distribution(values: list[float], tmp_path: Path) -> None:
    charts.save(charts.distribution(np.array(values), claim=FIVE), tmp_path, "any")


def test_a_distribution_of_nothing_says_so() -> None:
    for values in ([], [float("nan")]):
        assert "undefined" in words(charts.distribution(np.array(values, dtype=float)))


def test_equal_workloads_are_one_bar() -> None:
    chart = charts.distribution(np.ones(500))
    assert [row["count"] for row in rows(chart) if "count" in row] == [500]
    assert "is 1 in every workload" in words(chart)


def test_distributions_of_several_cells_stand_on_one_axis_each_with_its_figures(tmp_path: Path) -> None:
    chart = charts.distributions({"4": MULTIPLES - 1, "16": MULTIPLES, "64": np.empty(0)}, "slots", claim=FIVE)
    share = f"{100 * (MULTIPLES >= 5).mean():.3g} %"
    assert f"to {share} at slots = 16 of workloads reach 5x" in words(chart)
    assert sum(row["count"] for row in rows(chart) if "count" in row) == 2_000
    svg = charts.save(chart, tmp_path, "rows")
    assert f">mean 4.70, {share} &gt;= 5</text>" in svg
    assert ">no result</text>" in svg


def test_distributions_without_a_claim_state_the_means() -> None:
    chart = charts.distributions({"4": np.array([1.0, 3.0]), "16": np.array([4.0])}, "slots")
    assert "The multiple runs from 2 at slots = 4 to 4 at slots = 16" in words(chart)
    same = charts.distributions({"4": np.ones(3), "16": np.ones(3)}, "slots")
    assert "The multiple is 1 at every value of slots" in words(same)
    assert "no cell has a result" in words(charts.distributions({"4": np.empty(0)}, "slots"))


def test_the_heat_map_has_the_number_of_each_cell_and_its_theory(tmp_path: Path) -> None:
    chart = charts.heatmap(grid(tmp_path, 3), "slots", "output_cv")
    cells = {(row["x"], row["y"]): row for row in rows(chart)}
    assert len(cells) == 9
    assert cells["8", "1"]["text_simulated"] == "2.00"
    assert cells["8", "1"]["value_limit"] == 3.0
    assert cells["8", "1"]["value_difference"] == pytest.approx(-1.0)
    assert "from 1.5 at cv = 0.5, slots = 4 to 2.5 at cv = 1.5, slots = 12" in words(chart)


def test_the_heat_map_can_show_simulation_limit_and_difference(tmp_path: Path) -> None:
    frame = grid(tmp_path, 2)
    (switch,) = charts.heatmap(frame, "slots", "output_cv").to_dict()["params"]
    assert (switch["value"], switch["bind"]["options"]) == ("simulated", ["simulated", "limit", "difference"])
    assert "params" not in charts.heatmap(frame, "slots", "output_cv", metric="static_utilisation").to_dict()


def test_a_missing_cell_is_drawn_as_missing_with_its_reason(tmp_path: Path) -> None:
    chart = charts.heatmap(grid(tmp_path, 3, failed=(8,)), "slots", "output_cv")
    (missing,) = (row for row in rows(chart) if row["value_simulated"] is None)
    assert (missing["x"], missing["y"], missing["reason"]) == ("12", "1.5", "nothing fits in 64 GiB")
    assert "No result at cv = 1.5, slots = 12: nothing fits in 64 GiB" in words(chart)


def test_failing_cells_are_marked(tmp_path: Path) -> None:
    store = write_folder(tmp_path, [([9, 9], [3, 3]), ([9, 9], [9, 9])], claims=[claim(at_least=2)])
    cells = summarise(store).with_columns(output_cv=pl.lit(1.0))
    verdicts = {verdict.cell: verdict.verdict for verdict in check(store)}
    chart = charts.heatmap(cells, "slots", "output_cv", verdicts=verdicts)
    assert [row["verdict"] for row in rows(chart)] == ["holds", "fails"]
    assert "datum.verdict === 'fails'" in json.dumps(chart.to_dict())


@pytest.mark.parametrize(("columns", "failed"), [(1, ()), (1, (0,)), (3, (4,)), (20, (190,))])
def test_heat_maps_and_lines_of_any_size_are_drawn(tmp_path: Path, columns: int, failed: tuple[int, ...]) -> None:
    frame = grid(tmp_path / "folder", columns, failed)
    svg = charts.save(charts.heatmap(frame, "slots", "output_cv"), tmp_path, "heatmap")
    assert svg.count(">\u2013</text>") == len(failed)
    assert len(svg) < 600 * columns**2 + 20_000
    charts.save(charts.lines(frame, "slots", color="output_cv"), tmp_path, "lines")


def test_lines_say_how_the_metric_moves(tmp_path: Path) -> None:
    for number, (multiples, finding) in enumerate(
        [
            ([2.0, 3.0, 4.0], "rises from 2 at slots = 4 to 4 at slots = 16"),
            ([4.0, 3.0, 2.0], "falls from 4 at slots = 4 to 2 at slots = 16"),
            ([2.0, 4.0, 3.0], "is largest, 4 at slots = 8"),
            ([3.0, 2.0, 4.0], "is smallest, 2 at slots = 8"),
        ]
    ):
        assert finding in words(charts.lines(line(tmp_path / str(number), multiples), "slots"))


def test_many_lines_are_told_apart_by_how_they_run(tmp_path: Path) -> None:
    multiples = [2.0, 3.0, 4.0, 2.0, 4.0, 3.0, 2.0, 4.0, 3.0, 2.0, 4.0, 3.0]
    frame = line(tmp_path, multiples, axes={"output_cv": [0.25, 0.5, 1.0, 2.0], "slots": [4, 8, 16]})
    chart = charts.lines(frame, "slots", color="output_cv")
    assert "Along slots, the multiple rises at cv = 0.25; is largest in between at cv = 0.5 to 2" in words(chart)


def test_a_rise_within_the_noise_is_no_rise(tmp_path: Path) -> None:
    steps = [from_multiples(MULTIPLES), from_multiples(MULTIPLES + 0.001)]
    chart = charts.lines(summarise(write_folder(tmp_path, steps)), "slots")
    assert "is about 4.70 at every value of slots" in words(chart)


def test_lines_have_their_interval_and_the_limit_dashed(tmp_path: Path) -> None:
    frame = line(tmp_path, [2.0, 3.0], limits=[2.5, 4.0])
    chart = charts.lines(frame, "slots")
    points = [row for row in rows(chart) if "theory" in row]
    assert [point["theory"] for point in points] == [2.5, 4.0]
    assert [point["low"] for point in points] == frame["multiple_ci_low"].to_list()
    assert "strokeDash" in json.dumps(chart.to_dict())
    assert "dashed: the limit of a queue that never empties" in words(chart)


def test_there_is_a_line_for_each_value_of_another_axis_named_at_its_end(tmp_path: Path) -> None:
    svg = charts.save(charts.lines(grid(tmp_path / "folder", 3), "slots", color="output_cv"), tmp_path, "lines")
    assert [svg.count(f">cv {value}</text>") for value in ("0.5", "1", "1.5")] == [1, 1, 1]


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [1.0, 1.1, 5.0], [0.0, 9.9, 10.0]])
def test_names_at_the_ends_of_lines_are_kept_apart(values: list[float]) -> None:
    places = _apart(values, 1.0, 10.0)
    assert min(np.diff(places)) >= 1.0
    assert max(places) <= 10.0


def test_an_axis_that_doubles_is_logarithmic_and_one_with_a_zero_is_not(tmp_path: Path) -> None:
    def scale(values: list[float]) -> str:
        frame = summarise(
            write_folder(
                tmp_path / str(len(list(tmp_path.iterdir()))),
                [([9, 9], [3, 3])] * 3,
                axes={"output_parts_1_weight": values},
            )
        )
        return json.dumps(charts.lines(frame, "output_parts_1_weight").to_dict())

    assert '"type": "log"' in scale([1.0, 2.0, 4.0])
    assert '"type": "log"' not in scale([0.0, 0.5, 1.0])
    assert '"type": "log"' not in scale([1.0, 2.0, 3.0])


def test_an_axis_of_names_is_drawn_without_joining_them(tmp_path: Path) -> None:
    steps = [([9, 12], [3, 3])] * 2
    frame = summarise(write_folder(tmp_path, steps, axes={"output": ["lognormal", "two kinds of requests"]}))
    svg = charts.save(charts.lines(frame, "output"), tmp_path, "names")
    assert "mark-line" not in svg
    assert "two kinds of requests" in svg


@pytest.mark.parametrize("name", ["a.b", "a[0].b", 'it\'s "50 %"', "datum['x']", "größe", "</text><script>"])
def test_the_name_of_an_axis_may_be_anything(tmp_path: Path, name: str) -> None:
    steps = [([9, 12], [3, 3])] * 4
    frame = summarise(write_folder(tmp_path / "f", steps, axes={name: [1, 2], "slots": [4, 8]}))
    for chart in (charts.heatmap(frame, "slots", name), charts.lines(frame, name, color="slots")):
        svg = charts.save(chart, tmp_path, "any")
        assert svg.count("3.50") >= 4 or "mark-line" in svg
        assert "<script" not in svg


def test_requests_that_fit_are_drawn_on_logarithmic_axes_and_none_is_no_zero(tmp_path: Path) -> None:
    steps = [([9, 9], [3, 3])] * 3 + ["nothing fits in 64 GiB"]
    frame = summarise(write_folder(tmp_path / "f", steps, axes={"context": [512, 1024, 2048, 4096]}))
    chart = charts.requests_that_fit(frame.with_columns(slots=pl.Series([256, 128, 64, 0])))
    assert json.dumps(chart.to_dict()).count('"type": "log"') >= 2
    assert "256 requests fit at context 512, 64 at 2,048" in words(chart)
    assert ">none fits</text>" in charts.save(chart, tmp_path, "memory")


def test_requests_that_fit_have_a_line_for_each_model_named_at_its_end(tmp_path: Path) -> None:
    steps = [([9, 9], [3, 3])] * 5 + ["weights leave nothing"]
    frame = summarise(write_folder(tmp_path / "f", steps, axes={"model": ["old", "new"], "context": [512, 1024, 2048]}))
    chart = charts.requests_that_fit(frame.with_columns(slots=pl.Series([4, 2, 1, 64, 32, 0])), color="model")
    assert json.dumps(chart.to_dict()).count('"type": "log"') >= 2
    assert "At context 2,048: 0 requests fit with model new, 1 with old" in words(chart)
    assert "weights leave nothing" in words(chart)
    ends = {row["label"]: row["place"] for row in rows(chart) if "place" in row}
    assert ends == {"old: 1": 1, "new: 32": 32}


def test_labels_of_lines_that_end_together_stand_apart_in_the_order_of_the_lines(tmp_path: Path) -> None:
    axes = {"model": ["a", "b", "c"], "context": [512, 1024]}
    frame = summarise(write_folder(tmp_path / "f", [([9, 9], [3, 3])] * 6, axes=axes))
    chart = charts.requests_that_fit(frame.with_columns(slots=pl.Series([200, 101, 210, 100, 9, 1])), color="model")
    ends = {row["label"]: row["place"] for row in rows(chart) if "place" in row}
    assert list(ends) == ["c: 1", "b: 100", "a: 101"]
    assert ends["a: 101"] / ends["b: 100"] > 1.2


def test_a_chart_is_saved_as_svg_and_png_and_refers_to_nothing(tmp_path: Path) -> None:
    svg = charts.save(charts.distribution(MULTIPLES, claim=FIVE), tmp_path, "one")
    assert (tmp_path / "one.svg").read_text(encoding="utf-8") == svg
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert set(re.findall(r"https?://[^\"]*", svg)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_the_same_results_give_the_same_picture(tmp_path: Path) -> None:
    first, second = (charts.save(charts.distribution(MULTIPLES, claim=FIVE), tmp_path, name) for name in "ab")
    assert first == second


def test_words_of_a_claim_stand_at_the_end_of_the_rule_that_the_means_keep_away_from(tmp_path: Path) -> None:
    five = claim(at_least=5)
    low_at_left = charts.lines(line(tmp_path / "a", [2.0, 3.0, 4.9]), "slots", claim=five)
    low_at_right = charts.lines(line(tmp_path / "b", [4.9, 3.0, 2.0]), "slots", claim=five)
    assert [claim_words(chart)["align"] for chart in (low_at_left, low_at_right)] == ["left", "right"]


def test_words_of_a_claim_stand_where_no_cell_has_a_result(tmp_path: Path) -> None:
    steps = [from_multiples([4.9, 4.91]), from_multiples([3.0, 3.1]), "nothing fits in 64 GiB"]
    chart = charts.lines(summarise(write_folder(tmp_path, steps)), "slots", claim=claim(at_least=5))
    assert claim_words(chart)["align"] == "right"


def claim_words(chart: Any) -> dict[str, Any]:
    marks = (layer["mark"] for layer in chart.to_dict()["layer"])
    return next(mark for mark in marks if mark["type"] == "text" and mark.get("color") == RED)


def test_one_workload_is_no_share_of_workloads() -> None:
    assert "The multiple is 5.05 in the one workload" in words(charts.distribution(np.array([5.05]), claim=FIVE))


def test_lines_that_all_peak_say_where_the_highest_is(tmp_path: Path) -> None:
    axes = {"slots": [4, 8, 16], "output_cv": [1.0, 2.0]}
    means = [2.0, 2.1, 4.0, 3.0, 2.0, 2.2]
    steps = [from_multiples([mean - 0.0001, mean + 0.0001] * 20) for mean in means]
    cells = summarise(write_folder(tmp_path, steps, axes=axes))
    chart = charts.lines(cells, "slots", color="output_cv")
    assert "is largest in between along slots at every value of cv, up to 4 at slots = 8, cv = 1" in words(chart)


def both(folder: Path, static: list[Any], continuous: list[Any], axes: dict[str, list[Any]] | None = None) -> Any:
    """Cells with these mean waits in seconds under both schedulers, each within a hundredth; None is undefined."""
    waits = {
        f"{name}_wait_mean_s": [
            np.array([np.nan] * 20 if mean is None else [mean * 0.99, mean * 1.01] * 10) for mean in means
        ]
        for name, means in (("static", static), ("continuous", continuous))
    }
    steps = [from_multiples([2.0] * 20)] * len(static)
    axes = axes or {"arrivals_load": [0.1, 0.3, 0.5, 0.9][: len(static)]}
    return summarise(write_folder(folder, steps, axes=axes, measured=waits))


WAITS = ["static_wait_mean_s", "continuous_wait_mean_s"]


def layer_of(chart: Any, mark: str) -> dict[str, Any]:
    """The first layer with a mark of this kind."""
    return next(layer for layer in chart.to_dict()["layer"] if layer["mark"]["type"] == mark)


def test_both_schedulers_stand_on_one_axis_each_with_its_band_its_name_and_its_colour(tmp_path: Path) -> None:
    chart = charts.lines(both(tmp_path / "f", [9.0, 40.0], [0.1, 2.0]), "arrivals_load", metric=WAITS)
    assert {row["series"] for row in rows(chart) if "value" in row} == {"static", "continuous"}
    points = {(row["series"], row["x"]): row for row in rows(chart) if "low" in row}
    assert points["static", 0.3]["low"] < 40 < points["static", 0.3]["high"]
    assert points["continuous", 0.1]["value"] == pytest.approx(0.1)
    scale = layer_of(chart, "line")["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == SCHEDULER_COLORS
    assert layer_of(chart, "area")["encoding"]["y"]["title"] == "mean wait (s)"
    assert "The mean wait differs most at load = 0.1: 9 s under static batching and 0.1 s under" in words(chart)
    svg = charts.save(chart, tmp_path, "both")
    assert [svg.count(f">{name}</text>") for name in ("static", "continuous")] == [1, 1]


def test_a_scheduler_alone_has_the_colour_that_it_has_beside_the_other(tmp_path: Path) -> None:
    cells = both(tmp_path, [9.0, 40.0], [0.1, 2.0])
    for name in ("static", "continuous"):
        chart = charts.lines(cells, "arrivals_load", metric=f"{name}_wait_mean_s")
        assert layer_of(chart, "line")["encoding"]["color"]["scale"]["range"] == [SCHEDULER_COLORS[name]]


def test_where_another_column_tells_lines_apart_too_the_schedulers_keep_their_colours_and_it_has_dashes(
    tmp_path: Path,
) -> None:
    axes = {"arrivals_load": [0.1, 0.5], "slots": [4, 8]}
    cells = both(tmp_path, [9.0, 8.0, 40.0, 30.0], [0.1, 0.2, 2.0, 1.0], axes)
    chart = charts.lines(cells, "arrivals_load", color="slots", metric=WAITS)
    encoding = layer_of(chart, "line")["encoding"]
    names = ["static, slots 4", "static, slots 8", "continuous, slots 4", "continuous, slots 8"]
    assert encoding["color"]["scale"]["domain"] == encoding["strokeDash"]["scale"]["domain"] == names
    first, second, third, fourth = zip(
        *(encoding[way]["scale"]["range"] for way in ("color", "strokeDash")), strict=True
    )
    assert (first[0], second[0], third[0], fourth[0]) == tuple(SCHEDULER_COLORS[name.split(",")[0]] for name in names)
    assert first[1] == third[1] != second[1] == fourth[1]


@pytest.mark.parametrize("log", [False, True])
def test_a_part_without_values_is_a_gap_in_line_and_band_and_is_said(tmp_path: Path, log: bool) -> None:
    cells = both(tmp_path, [9.0, 40.0, None, None], [0.1, 0.2, 0.3, 2.0])
    chart = charts.lines(cells, "arrivals_load", metric=WAITS, log=log)
    gone = [row for row in rows(chart) if row.get("series") == "static" and row.get("x") in (0.5, 0.9)]
    assert [(row["value"], row["low"], row["high"]) for row in gone] == [(None, None, None)] * 2
    assert "The mean wait under static batching is undefined at load = 0.5, 0.9" in words(chart)
    loaded = cells.with_columns(static_load=pl.Series([0.5, 0.9, 1.9, 6.0]))
    told = words(charts.lines(loaded, "arrivals_load", metric=WAITS, log=log))
    assert "Static batching cannot keep up at load = 0.5, 0.9 (its own load is 1.9 to 6): it has no value there" in told
    assert "undefined" not in told


def test_a_load_of_static_batching_above_1_is_said_where_it_is_drawn(
    tmp_path: Path,
) -> None:
    cells = both(tmp_path, [9.0, 40.0], [0.1, 2.0]).with_columns(static_load=pl.Series([0.5, 3.0]))
    chart = charts.lines(cells, "arrivals_load", metric=WAITS)
    assert "cannot keep up at load = 0.3 (its own load is 3): its queue grows" in words(chart)
    assert "keep up" not in words(charts.lines(cells, "arrivals_load", metric="continuous_wait_mean_s"))


def test_what_holds_of_one_line_at_every_value_of_the_axis_is_not_said_of_all_lines(tmp_path: Path) -> None:
    axes = {"arrivals_load": [0.1, 0.5], "slots": [4, 8]}
    cells = both(tmp_path, [None, 8.0, None, 30.0], [None] * 4, axes)
    told = words(charts.lines(cells, "arrivals_load", color="slots", metric=WAITS))
    assert "The mean wait under static batching is undefined in 2 of 4 cells" in told
    assert "The mean wait under continuous batching is undefined" in told
    assert "continuous batching is undefined in" not in told
    loaded = cells.with_columns(static_load=pl.Series([2.0, 0.4, 10.0, 0.9]))
    told = words(charts.lines(loaded, "arrivals_load", color="slots", metric=WAITS))
    assert "Static batching cannot keep up in 2 of 4 cells (its own load is 2 to 10)" in told


def test_an_interval_that_reaches_below_0_is_cut_at_the_foot_of_a_logarithmic_axis(tmp_path: Path) -> None:
    waits = {"continuous_wait_mean_s": [np.array([0.0, 0.0, 0.3]), np.array([2.0, 2.1, 2.2])]}
    axes = {"arrivals_load": [0.1, 0.3]}
    cells = summarise(write_folder(tmp_path, [([9] * 3, [3] * 3)] * 2, axes=axes, measured=waits))
    assert cells["continuous_wait_mean_s_ci_low"][0] < 0
    chart = charts.lines(cells, "arrivals_load", metric="continuous_wait_mean_s", log=True)
    low = next(row["low"] for row in rows(chart) if row.get("x") == 0.1)
    assert low == layer_of(chart, "area")["encoding"]["y"]["scale"]["domain"][0] == pytest.approx(0.1 / 10 / 1.2)


def test_a_mean_of_0_makes_a_logarithmic_axis_linear_and_the_picture_says_so(tmp_path: Path) -> None:
    chart = charts.lines(both(tmp_path / "y", [9.0, 40.0], [0.0, 2.0]), "arrivals_load", metric=WAITS, log=True)
    assert "type" not in layer_of(chart, "area")["encoding"]["y"]["scale"]
    assert "A mean of 0 has no place on a logarithmic axis, so this one is linear" in words(chart)
    cells = both(tmp_path / "x", [9.0, 40.0], [0.1, 2.0], {"arrivals_load": [0.0, 0.5]})
    chart = charts.lines(cells, "arrivals_load", metric=WAITS, log_x=True)
    assert layer_of(chart, "line")["encoding"]["x"]["scale"]["type"] == "linear"
    assert "The value 0 of arrivals_load has no place on a logarithmic axis, so this one is linear" in words(chart)


def test_the_horizontal_axis_is_logarithmic_where_it_is_asked_for(tmp_path: Path) -> None:
    cells = both(tmp_path, [9.0, 40.0, 50.0], [0.1, 0.2, 2.0], {"arrivals_load": [0.1, 0.2, 0.3]})
    for log_x, kind in ((None, "linear"), (True, "log"), (False, "linear")):
        chart = charts.lines(cells, "arrivals_load", metric=WAITS, log_x=log_x)
        assert layer_of(chart, "line")["encoding"]["x"]["scale"]["type"] == kind


def test_points_of_several_lines_over_names_stand_side_by_side(tmp_path: Path) -> None:
    cells = both(tmp_path / "f", [9.0, 9.0], [9.0, 9.0], {"step": ["one", "other"]})
    chart = charts.lines(cells, "step", metric=WAITS)
    assert layer_of(chart, "point")["encoding"]["xOffset"]["field"] == "series"
    assert "is the same under both schedulers, as far as the intervals tell" in words(chart)
    svg = charts.save(chart, tmp_path, "names")
    places = re.findall(r'aria-label="step = one; (\w+) [^"]*"[^>]*transform="translate\(([\d.]+),', svg)
    assert len({x for _, x in places}) == len(places) == 2


def test_latencies_of_one_scheduler_are_told_apart_by_what_they_are(tmp_path: Path) -> None:
    waits = {
        name: [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
        for name in ("continuous_ttft_p95_s", "continuous_wait_mean_s")
    }
    cells = summarise(write_folder(tmp_path, [([9, 9], [3, 3])] * 2, measured=waits))
    chart = charts.lines(cells, "slots", metric=list(waits))
    assert {row["series"] for row in rows(chart) if "value" in row} == {"ttft p95", "wait mean"}
    assert layer_of(chart, "area")["encoding"]["y"]["title"] == "means under continuous batching (seconds)"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.85, 4.5, [0.9, 1, 2, 3, 4]), (4, 300, [5, 10, 20, 50, 100, 200]), (0.5, 50_000, [1, 10, 100, 1_000, 10_000])],
)
def test_a_logarithmic_axis_has_as_many_ticks_as_there_is_room_for(low: float, high: float, ticks: list[float]) -> None:
    assert _log_ticks(low, high) == pytest.approx(ticks)


def test_the_unit_that_a_name_tells_is_that_of_the_axis() -> None:
    for metric in METRICS:
        unit, title = unit_of(metric), metric_name(metric).title
        if title.endswith(")") and unit:
            assert title.endswith(f"({unit})") or unit == "share", metric
        assert unit or not title.endswith(("(s)", "(tokens)", "(steps)", "(requests/s)")), metric


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    assert wrapped("it differs most at load = 0.15: 27.2 s under one", 37) == [
        "it differs most at load = 0.15:",
        "27.2 s under one",
    ]

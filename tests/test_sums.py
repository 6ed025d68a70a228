"""What a folder says when it keeps sums and histograms in place of rows, beside what the rows say."""

import json
import math
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import STUDY, study
from test_reliability import Counting

import sweep
from sweep.errors import FolderError
from sweep.metrics import ALWAYS
from sweep.report.intervals import mean_interval, percentile_ends
from sweep.shards import shard_bytes
from sweep.study import parse_study
from sweep.sums import KEPT, LINES, bounds_of, places_of, tallies

CLAIMS = [
    {"text": "a share on the grid", "metric": "multiple", "at_least": 2.5, "of": {"share": 0.5}},
    {"text": "a share between two lines", "metric": "multiple", "between": [2.499, 9], "of": {"share": 0.1}},
    {"text": "a mean", "metric": "multiple", "at_least": 2, "of": "mean"},
    {"text": "a mean of counts", "metric": "static_steps", "at_most": 900, "of": "mean"},
    {"text": "a percentile", "metric": "multiple", "at_least": 1.2, "of": {"percentile": 5}},
    {"text": "every", "metric": "multiple", "at_least": 1, "of": "every"},
    {"text": "every, and it fails", "metric": "continuous_steps", "at_most": 600, "of": "every"},
    {"text": "equality", "metric": "multiple", "equals": 1, "of": "every"},
]
NOT_KNOWN = [
    {"text": "a share of counts", "metric": "static_steps", "at_most": 1200, "of": {"share": 0.5}},
    {"text": "a percentile of counts", "metric": "static_steps", "at_most": 1200, "of": {"percentile": 50}},
]
PEAK = """
import json, resource, sys, sweep
from sweep.study import parse_study
given = json.loads(sys.argv[1])
sweep.run(parse_study(given, "small.toml"), sys.argv[2], keep="summary", report=False, jobs=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one block, so that a thousand replicates are several shards and the last is partial."""
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The results of one study with its rows, and with its sums."""
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.runner.CHUNK_NS", 0.0)
        one = study(claims=CLAIMS + NOT_KNOWN, measure=["multiple_s", "longest_output_tokens"])
        return [sweep.run(one, folder / keep, keep=keep, report=False) for keep in ("rows", "summary")]


# ---- the same figures


def test_means_and_intervals_are_those_of_the_rows(both):
    rows, sums = (results.cells for results in both)
    assert rows.schema == sums.schema
    for metric in (*ALWAYS, "multiple_s", "longest_output_tokens"):
        for name in ("mean", "sd", "se", "ci_low", "ci_high"):
            column = f"{metric}_{name}"
            assert sums[column].to_list() == pytest.approx(rows[column].to_list(), rel=1e-12)
    for column in ("static_tokens_per_s", "continuous_requests_per_s", "multiple_of_totals", "replicates"):
        assert sums[column].to_list() == rows[column].to_list()
    for part in ("se", "ci_low", "ci_high"):
        column = f"multiple_of_totals_{part}"
        assert sums[column].to_list() == pytest.approx(rows[column].to_list(), rel=1e-9)


def test_adjusted_means_are_those_of_the_rows(both):
    rows, sums = (results.cells for results in both)
    assert rows["multiple_adjusted"].is_not_null().sum() == 4
    for metric in (*ALWAYS, "multiple_s", "longest_output_tokens"):
        for name in ("adjusted", "adjusted_se", "variance_reduction"):
            column = f"{metric}_{name}"
            assert sums[column].is_null().equals(rows[column].is_null())
            known = [(a, b) for a, b in zip(sums[column], rows[column], strict=True) if a is not None]
            assert [a for a, _ in known] == pytest.approx([b for _, b in known], rel=1e-9)


def test_adjusted_means_of_sums_are_withheld_where_those_of_rows_are(tmp_path):
    for name, changes in (
        ("few", {"replicates": 60}),
        ("equal lengths", {"workload": {"requests": 30, "output": {"distribution": "constant", "value": 40}}}),
        ("one request", {"workload": {"requests": 1, "output": {"distribution": "geometric", "mean": 9}}}),
        ("no expectation", {"workload": {"requests": 30, "output": {"distribution": "lab"}}}),
    ):
        asked = study(grid={}, **{"replicates": 200, **changes})
        rows, sums = (
            sweep.run(asked, tmp_path / name / keep, keep=keep, report=False).cells for keep in ("rows", "summary")
        )
        for metric in ALWAYS:
            column = f"{metric}_adjusted"
            assert sums[column].is_null().equals(rows[column].is_null()), (name, metric)


def test_sums_of_an_earlier_version_are_refused_in_a_line(tmp_path):
    results = sweep.run(study(replicates=100), tmp_path, keep="summary", report=False)
    store = results._store
    (span, *_) = store.spans_of(0)
    shard = pl.read_parquet(store.path_of(span)).drop("multiple_with_static_steps")
    store.path_of(span).write_bytes(shard_bytes(shard, {}))
    with pytest.raises(FolderError, match="holds sums of an earlier version; run the study again with --fresh"):
        tallies(store, 0)


def test_percentiles_of_the_multiple_are_those_of_the_rows_within_a_place_and_others_are_null(both):
    rows, sums = (results.cells for results in both)
    for p in ("p05", "p50", "p95"):
        assert sums[f"multiple_{p}"].to_list() == pytest.approx(rows[f"multiple_{p}"].to_list(), abs=1 / LINES)
        low, high = f"multiple_{p}_ci_low", f"multiple_{p}_ci_high"
        assert (sums[low] <= rows[low]).all()
        assert (sums[high] >= rows[high]).all()
        assert sums[f"static_steps_{p}"].is_null().all()


def test_verdicts_are_those_of_the_rows_or_undecided_with_a_reason(both):
    rows, sums = (results.check() for results in both)
    assert len(rows) == len(sums) == 6 * len(CLAIMS + NOT_KNOWN)
    for one, other in zip(rows, sums, strict=True):
        assert (one.text, one.cell) == (other.text, other.cell)
        if one.text in {claim["text"] for claim in CLAIMS}:
            assert one.verdict == other.verdict, one.text
        else:
            assert other.verdict in (one.verdict, "undecided")
        if other.estimate is None:
            assert other.note
        if one.text == "a share on the grid":
            assert one[:7] == other[:7]
        assert other.worst_replicates == one.worst_replicates


def test_what_sums_cannot_tell_is_undecided_and_says_why(both):
    unknown = [one for one in both[1].check() if one.verdict == "undecided" and one.text == NOT_KNOWN[0]["text"]]
    assert unknown
    assert {one.note for one in unknown} == {"rows were not kept, and sums cannot tell"}


def test_sums_are_exact_and_extremes_name_their_replicates(both):
    rows, sums = (results._store for results in both)
    for point in (0, 1):
        frame = rows.point_rows(point, ALWAYS)
        for cell, tally in tallies(sums, point).items():
            mine = frame.filter(pl.col("cell") == cell)
            for count in ("output_tokens", "static_steps", "continuous_steps"):
                values = mine[count].to_list()
                assert tally.sums[count].total == sum(values)
                assert tally.sums[count].total_squares == sum(value * value for value in values)
            for metric in ALWAYS:
                known = tally.sums[metric]
                assert (known.low, known.high) == (mine[metric].min(), mine[metric].max())
                values = mine.select(metric, "replicate").drop_nulls()
                first = values.sort([metric, "replicate"]).head(KEPT).rows()
                last = values.sort([metric, "replicate"], descending=[True, False]).head(KEPT).rows()
                assert (list(known.lowest), list(known.highest)) == (first, last)
            assert tally.product == sum(a * b for a, b in mine.select("static_steps", "continuous_steps").rows())
            assert sum(tally.places.values()) == mine["multiple"].count()


def test_sums_beyond_64_bits_are_exact(tmp_path):
    huge = {"requests": 100_000, "output": {"distribution": "constant", "value": 2**24}}
    asked = {**STUDY, "workload": huge, "grid": {}, "replicates": 130, "server": {"slots": 50_000}}
    store = sweep.run(parse_study(asked, "huge.toml"), tmp_path, keep="summary", report=False)._store
    (tally,) = tallies(store, 0).values()
    assert tally.sums["output_tokens"].total == 130 * 100_000 * 2**24
    assert tally.sums["output_tokens"].total_squares == 130 * (100_000 * 2**24) ** 2
    assert tally.sums["output_tokens"].sd == 0


# ---- the grid


@settings(deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.floats(0, 1e6), st.integers(0, 10**8).map(lambda line: line / LINES)), min_size=1))
def test_a_place_holds_the_values_on_a_line_or_strictly_between_two(values):
    for value, place in zip(values, places_of(np.array(values)).tolist(), strict=True):
        start, stop = bounds_of(place)
        assert value == start if place % 2 == 0 else start < value < stop


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 999), min_size=2, max_size=60), st.sampled_from([5, 50, 95]))
def test_an_interval_from_places_encloses_that_of_the_values(thousandths, p):
    from sweep.report.tallied import percentile
    from sweep.sums import Tally

    values = np.array(thousandths) / 100
    places, counts = np.unique(places_of(values), return_counts=True)
    ranked = percentile(Tally(len(values), {}, 0, dict(zip(places.tolist(), counts.tolist(), strict=True)), {}), p)
    exact = percentile_ends(np.sort(values), p)
    assert [end is None for end in ranked.ends] == [end is None for end in exact]
    assert ranked.value == pytest.approx(np.percentile(values, p), abs=1 / LINES)
    for wider, end, sign in zip(ranked.ends, exact, (1, -1), strict=True):
        assert end is None or sign * wider <= sign * end


# ---- the folder


def test_a_summary_has_the_same_bytes_for_any_number_of_threads_and_after_a_break(tmp_path):
    def stop():
        raise KeyboardInterrupt

    one = study()
    with pytest.raises(KeyboardInterrupt):
        sweep.run(one, tmp_path / "broken", keep="summary", report=False, watch=Counting(stop))
    for name, jobs in (("broken", 2), ("one", 1), ("five", 5)):
        sweep.run(one, tmp_path / name, keep="summary", report=False, jobs=jobs)
    found = [
        {path.name: path.read_bytes() for path in [*folder.glob("summaries/*"), folder / "cells.parquet"]}
        for folder in sorted(tmp_path.iterdir())
    ]
    assert len(found[0]) == 17
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("before", "after"), [(300, 900), (900, 300), (256, 1000)])
def test_a_summary_of_other_replicates_is_that_of_one_run(tmp_path, before, after):
    sweep.run(study(replicates=before), tmp_path / "twice", keep="summary", report=False)
    again = sweep.run(study(replicates=after), tmp_path / "twice", keep="summary", report=False)
    once = sweep.run(study(replicates=after), tmp_path / "once", keep="summary", report=False)
    assert again.cells.equals(once.cells)
    assert set(again.cells["replicates"]) == {after}


def test_rows_and_sums_do_not_share_a_folder_and_sums_have_no_rows(tmp_path):
    results = sweep.run(study(), tmp_path, keep="summary", report=False)
    with pytest.raises(FolderError, match="was kept as summary; go on with --keep summary"):
        sweep.run(study(), tmp_path, report=False)
    with pytest.raises(FolderError, match="holds sums and no rows"):
        results.replicates.collect()
    assert results.verify(100).equal == 16
    assert results.status()["left"] == 0


def test_a_summary_is_reported_with_its_histogram(tmp_path):
    results = sweep.run(study(claims=CLAIMS, grid={}), tmp_path, keep="summary")
    page = (tmp_path / "report.html").read_text()
    assert (tmp_path / "charts" / "distribution.svg").exists()
    assert "1,000 workloads" in page
    assert results.report() == tmp_path / "report.html"


def test_precision_is_met_from_sums(tmp_path):
    precision = {"metric": "multiple", "half_width": 0.05, "min_replicates": 256, "max_replicates": 100_000}
    asked = {key: value for key, value in STUDY.items() if key != "replicates"} | {"precision": precision}
    rows, sums = (
        sweep.run(parse_study(asked, "small.toml"), tmp_path / keep, keep=keep, report=False).cells
        for keep in ("rows", "summary")
    )
    assert sums["replicates"].to_list() == rows["replicates"].to_list()
    assert ((sums["multiple_ci_high"] - sums["multiple_ci_low"]) / 2 <= 0.05).all()


def test_undefined_multiples_are_in_no_sum(tmp_path):
    empty = {"requests": 5, "output": {"distribution": "constant", "value": 0}}
    results = sweep.run(study(workload=empty, grid={}, replicates=200), tmp_path, keep="summary")
    row = results.cells.row(0, named=True)
    assert (row["static_steps_mean"], row["multiple_mean"], row["multiple_p50"]) == (0, None, None)


def test_a_hundred_times_the_replicates_take_less_than_150_mb_more(tmp_path):
    def peak(replicates):
        asked = json.dumps({**STUDY, "replicates": replicates})
        command = [sys.executable, "-c", PEAK, asked, str(tmp_path / str(replicates))]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024

    assert peak(400_000) - peak(4_000) < 150e6


def test_the_interval_of_a_mean_is_students(both):
    (values,) = (both[0]._store.point_rows(0, ["multiple"]).filter(pl.col("cell") == 0)["multiple"].to_numpy(),)
    tally = tallies(both[1]._store, 0)[0]
    assert tally.sums["multiple"].se == pytest.approx(values.std(ddof=1) / math.sqrt(len(values)), rel=1e-12)
    assert both[1].cells["multiple_ci_low"][0] == pytest.approx(mean_interval(values)[0], rel=1e-12)

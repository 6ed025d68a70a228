import hashlib
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
from folders import from_multiples, write_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.report.intervals import both, mean_interval, percentile_ends, wilson
from sweep.report.stats import estimates, exact_sum
from sweep.report.summary import summarise

MULTIPLES = np.random.default_rng(5).normal(4.7, 0.4, 500).round(4)


def test_the_mean_of_multiples_and_the_multiple_of_totals_are_two_numbers(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [([90, 400], [30, 80])]))
    assert frame["multiple_mean"].item() == pytest.approx(4.00)
    assert round(frame["multiple_of_totals"].item(), 2) == 4.45


def test_a_mean_has_the_t_interval() -> None:
    low, high = mean_interval(MULTIPLES, 0.9)
    expected = scipy.stats.t.interval(0.9, 499, MULTIPLES.mean(), scipy.stats.sem(MULTIPLES))
    assert (low, high) == pytest.approx(expected)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 10), (2_318, 10_000), (1, 1)])
def test_a_share_has_the_wilson_interval(successes: int, n: int) -> None:
    expected = scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert wilson(0, 0) is None


@pytest.mark.parametrize("p", [1, 5, 50, 95, 99.5])
@pytest.mark.parametrize("n", [1, 2, 5, 6, 59, 74, 400, 2_000])
def test_a_percentile_lies_between_the_narrowest_ranks_whose_binomial_tails_are_small_enough(n: int, p: float) -> None:
    found = both(percentile_ends(np.arange(1, n + 1), p))  # value = rank
    count = scipy.stats.binom(n, p / 100)  # of values at or below the percentile
    if found is None:
        assert count.pmf(0) > 0.025 or count.pmf(n) > 0.025
    else:
        low, high = found
        assert count.cdf(low - 1) <= 0.025 < count.cdf(low)
        assert count.sf(high - 1) <= 0.025 < count.sf(high - 2)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.lists(st.integers(-(2**62), 2**62), max_size=40))
def test_totals_are_exact_where_64_bits_would_wrap(values: list[int]) -> None:
    assert exact_sum(np.array(values, np.int64)) == sum(values)


def test_percentiles_interpolate_linearly() -> None:
    found = estimates(np.array([1.0, 2.0, 4.0]))
    assert (found.p05, found.p50, found.p95) == pytest.approx((1.1, 2.0, 3.8))


def test_equal_values_have_no_spread_at_all() -> None:
    found = estimates(np.full(7, 0.1))
    assert (found.mean, found.sd, found.ci_low, found.ci_high) == (0.1, 0.0, 0.1, 0.1)


def test_one_workload_has_a_mean_and_no_interval(tmp_path: Path) -> None:
    row = summarise(write_folder(tmp_path, [([90], [30])])).row(0, named=True)
    assert row["multiple_mean"] == row["multiple_p05"] == row["multiple_p95"] == 3.0
    assert [row[f"multiple_{name}"] for name in ("sd", "se", "ci_low", "ci_high")] == [None] * 4


def test_a_cell_that_cannot_run_keeps_its_row_with_the_reason(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [([90, 400], [30, 80]), "nothing fits"]))
    assert frame["error"].to_list() == [None, "nothing fits"]
    assert frame["replicates"].to_list() == [2, 0]
    failed = frame.row(1, named=True)
    assert all(failed[name] is None for name in frame.columns if name.startswith(("multiple_", "static_")))


def test_undefined_values_are_left_out(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [([0, 90, 150], [0, 30, 30])]))  # 0 / 0 steps: no multiple
    assert frame["multiple_mean"].item() == 4.0
    assert frame["static_steps_mean"].item() == 80.0
    assert frame["replicates"].item() == 3


def test_a_folder_without_rows_is_summarised_as_nulls(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [([], []), "nothing fits"]))
    assert frame["replicates"].to_list() == [0, 0]
    assert frame["multiple_mean"].null_count() == frame["multiple_of_totals"].null_count() == 2


def test_types_do_not_depend_on_what_is_null(tmp_path: Path) -> None:
    ran = summarise(write_folder(tmp_path / "a", [([90, 400], [30, 80])] * 2, step_ms=20.0, limits=[2.0, 3.0]))
    one = summarise(write_folder(tmp_path / "b", [([90], [30]), "nothing fits"], step_ms=20.0))
    assert ran.schema == one.schema
    assert set(ran.schema.values()) == {pl.Int64(), pl.Float64(), pl.String()}


def test_axis_columns_keep_their_type(tmp_path: Path) -> None:
    axes = {"slots": [4, 8], "output_cv": [1, 0.5], "policy": ["in order", "shortest first"]}
    frame = summarise(write_folder(tmp_path, [([90, 400], [30, 80])] * 8, axes=axes))
    assert [frame.schema[name] for name in axes] == [pl.Int64, pl.Float64, pl.String]
    assert frame.columns[:6] == ["cell", "slots", "output_cv", "policy", "replicates", "error"]
    assert frame["output_cv"].to_list() == [1.0, 1.0, 0.5, 0.5] * 2


def test_rates_are_ratios_of_totals(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [([90, 400], [30, 80])], step_ms=20.0))
    assert frame["continuous_tokens_per_s"].item() == pytest.approx(8 * 110 / (110 * 0.020))
    assert frame["static_requests_per_s"].item() == pytest.approx(2 * 200 / (490 * 0.020))


def test_a_study_without_a_step_time_has_no_rates(tmp_path: Path) -> None:
    assert not [name for name in summarise(write_folder(tmp_path, [([9], [3])])).columns if name.endswith("per_s")]


def test_what_the_study_measures_is_summarised_too(tmp_path: Path) -> None:
    measured = {"longest_output_tokens": [np.array([700, 600])]}
    frame = summarise(write_folder(tmp_path, [([90, 400], [30, 80])], measured=measured))
    assert frame["longest_output_tokens_mean"].item() == 650.0


def test_the_summary_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    store = write_folder(tmp_path, [from_multiples(MULTIPLES), from_multiples(MULTIPLES + 0.1)])
    digests = set()
    for name in ("a", "b"):
        summarise(store).write_parquet(tmp_path / name)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_standard_error_is_the_deviation_over_the_root_of_n(tmp_path: Path) -> None:
    frame = summarise(write_folder(tmp_path, [from_multiples(MULTIPLES)]))
    assert frame["multiple_se"].item() == pytest.approx(MULTIPLES.std(ddof=1) / math.sqrt(500))


@pytest.mark.parametrize("most", [1, 2_500, 2**21])
def test_the_summary_is_the_same_however_many_metrics_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    store = write_folder(tmp_path, [from_multiples(MULTIPLES), from_multiples(MULTIPLES + 0.1)])
    expected = summarise(store)
    monkeypatch.setattr("sweep.report.summary.MOST_READ", most)
    assert summarise(store).equals(expected)

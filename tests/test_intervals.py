import numpy as np
import pytest
import scipy.stats

from sweep.report.intervals import (
    both,
    end_needs,
    percentile_ends,
    percentile_needs,
    percentile_ranks,
    ratio_of_means,
)


@pytest.mark.parametrize(("p", "confidence"), [(5, 0.95), (50, 0.95), (95, 0.95), (99, 0.95), (0.1, 0.9), (50, 0.5)])
def test_the_number_needed_is_the_first_with_an_interval(p, confidence):
    needed = percentile_needs(p, confidence)
    assert both(percentile_ends(np.arange(needed), p, confidence)) is not None
    assert both(percentile_ends(np.arange(needed - 1), p, confidence)) is None


def test_the_5th_percentile_needs_72_workloads():
    assert (percentile_needs(5), percentile_needs(50), percentile_needs(95)) == (72, 6, 72)


@pytest.mark.parametrize("p", [0.1, 5, 50, 90, 95])
def test_the_number_that_an_end_needs_is_the_first_with_it(p):
    for end, needed in enumerate(end_needs(p)):
        assert percentile_ends(np.arange(needed), p)[end] is not None
        assert percentile_ends(np.arange(needed - 1), p)[end] is None


@pytest.mark.parametrize("n", [2, 6, 30, 71, 72, 1_000])
@pytest.mark.parametrize("p", [5, 50, 95])
def test_an_end_is_passed_by_its_percentile_in_at_most_the_half_of_what_an_interval_may_miss(n, p):
    low, high = percentile_ranks(n, p)
    below = scipy.stats.binom(n, p / 100)  # how many values lie below the percentile
    if low is not None:
        assert below.cdf(low - 1) <= 0.025  # the value of rank `low` is above it
    if high is not None:
        assert below.sf(high - 1) <= 0.025


@pytest.mark.parametrize("n", [72, 100, 1_000])
def test_ranks_enclose_a_percentile_at_least_as_often_as_promised(n):
    low, high = percentile_ranks(n, 5)
    assert scipy.stats.binom(n, 0.05).cdf(high - 1) - scipy.stats.binom(n, 0.05).cdf(low - 1) >= 0.95


def test_a_ratio_of_means_covers_its_expectation_and_differs_from_the_mean_of_ratios():
    # 1,000 repetitions of 200 pairs; 93 to 97 % is 2.9 standard errors: a false alarm in 250 seeds
    rng, covers = np.random.default_rng(4), 0
    for _ in range(1_000):
        below = rng.gamma(4, 1, 200)
        ratio, se = ratio_of_means(3 * below + rng.normal(0, 1, 200), below)
        covers += abs(ratio - 3) < 1.972 * se
    assert 0.93 <= covers / 1_000 <= 0.97
    assert ratio_of_means(np.array([90, 400]), np.array([30, 80]))[0] == pytest.approx(490 / 110)


def test_a_ratio_to_nothing_is_undefined():
    assert ratio_of_means(np.array([1.0, 2.0]), np.zeros(2)) is None
    assert ratio_of_means(np.array([1.0]), np.array([1.0])) is None

import heapq
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sweep.model.distributions import Distribution
from sweep.model.lengths import integer_lengths, moments
from sweep.model.theory import (
    exact_static_steps,
    graham_bounds,
    limit_multiple,
    mean_continuous_bounds,
    static_steps_distribution,
    static_steps_sd,
)

ADAPTER = TypeAdapter(Distribution)
GOLDEN = json.loads((Path(__file__).parent / "golden" / "monte_carlo.json").read_text(encoding="utf-8"))


def exact(distribution, **parameters):
    return integer_lengths(ADAPTER.validate_python({"distribution": distribution, **parameters}))


@pytest.mark.parametrize("name", GOLDEN)
def test_exact_values_agree_with_the_golden_file(name):
    golden = GOLDEN[name]
    lengths = integer_lengths(ADAPTER.validate_python(golden["output"]))
    requests, slots = golden["requests"], golden["slots"]
    assert moments(lengths).mean == pytest.approx(golden["exact"]["mean_length"], rel=1e-12)
    steps = exact_static_steps(lengths, requests, slots)
    assert steps == pytest.approx(golden["exact"]["mean_static_steps"], rel=1e-12)
    assert limit_multiple(lengths, slots) == pytest.approx(golden["exact"]["limit_multiple"], rel=1e-12)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 7])
def test_static_steps_equal_the_mean_over_every_workload_there_can_be(slots):
    chances = {0: 0.2, 3: 0.5, 11: 0.3}
    expected = 0.0
    for workload in itertools.product(chances, repeat=5):
        steps = sum(max(workload[i : i + slots]) for i in range(0, 5, slots))
        expected += steps * math.prod(chances[tokens] for tokens in workload)
    lengths = exact("empirical", values=list(chances), weights=list(chances.values()))
    assert exact_static_steps(lengths, 5, slots) == pytest.approx(expected, rel=1e-12)


def test_one_slot_takes_every_token_in_turn():
    lengths = exact("lognormal", mean=100, cv=2)
    assert exact_static_steps(lengths, 200, 1) == pytest.approx(200 * moments(lengths).mean, rel=1e-12)
    assert limit_multiple(lengths, 1) == 1


def test_equal_lengths_leave_nothing_to_gain():
    lengths = exact("constant", value=100)
    assert exact_static_steps(lengths, 200, 16) == 1300
    assert limit_multiple(lengths, 16) == 1


def test_the_limit_of_lengths_that_are_all_0_is_undefined():
    assert math.isnan(limit_multiple(exact("constant", value=0), 16))
    assert exact_static_steps(exact("constant", value=0), 200, 16) == 0


@pytest.mark.parametrize("slots", [1, 2, 4, 16, 64, 1024])
def test_uniform_lengths_from_near_0_tend_to_2m_over_m_plus_1(slots):
    assert limit_multiple(exact("uniform", low=0, high=1_000_000), slots) == pytest.approx(
        2 * slots / (slots + 1), rel=2e-6
    )


@pytest.mark.parametrize("slots", [2, 16, 100])
def test_the_longest_of_uniform_lengths_is_a_sum_of_whole_powers(slots):
    longest = 199 - sum(k**slots for k in range(1, 199)) / 199**slots  # in whole numbers until the division
    assert limit_multiple(exact("uniform", low=1, high=199), slots) == pytest.approx(longest / 100, rel=1e-12)


@pytest.mark.parametrize("slots", [1, 2, 4, 16, 64, 1024])
def test_geometric_lengths_of_large_mean_tend_to_the_harmonic_number(slots):
    harmonic = sum(1 / i for i in range(1, slots + 1))
    lengths = exact("geometric", mean=100_000, max_tokens=2**24)
    assert limit_multiple(lengths, slots) == pytest.approx(harmonic, rel=1e-5)


def test_the_longest_geometric_length_agrees_with_inclusion_and_exclusion():
    q = 1 - 1 / 100
    longest = math.fsum((-1) ** (j + 1) * math.comb(16, j) / (1 - q**j) for j in range(1, 17))
    assert limit_multiple(exact("geometric", mean=100, max_tokens=2**24), 16) == pytest.approx(longest / 100, rel=1e-10)


@pytest.mark.parametrize(
    ("distribution", "parameters", "draw"),
    [
        ("uniform", {"low": 0, "high": 10_000}, lambda rng, shape: rng.integers(0, 10_001, shape)),
        ("geometric", {"mean": 500, "max_tokens": 2**24}, lambda rng, shape: rng.geometric(1 / 500, shape)),
    ],
)
def test_drawn_static_steps_agree_with_the_exact_mean(distribution, parameters, draw):
    # 20,000 workloads of 203 requests on 16 slots; 5 standard errors: a false alarm in 2 million seeds.
    drawn = draw(np.random.default_rng(11), (20_000, 203))
    steps = np.sum([drawn[:, i : i + 16].max(axis=1) for i in range(0, 203, 16)], axis=0)
    standard_error = steps.std(ddof=1) / math.sqrt(len(steps))
    assert abs(steps.mean() - exact_static_steps(exact(distribution, **parameters), 203, 16)) < 5 * standard_error


def test_a_million_slots_on_the_widest_support_keep_their_precision():
    lengths = exact("uniform", low=0, high=2**24)
    # E[longest of m] of 0..n is n - sum (k/(n+1))^m, near n + 1/2 - (n + 1)/(m + 1) by the trapezium rule
    expected = 2**24 + 0.5 - (2**24 + 1) / (10**6 + 1)
    assert exact_static_steps(lengths, 2 * 10**6, 10**6) == pytest.approx(2 * expected, rel=1e-8)


def test_more_slots_than_requests_make_one_group():
    lengths = exact("exponential", mean=100)
    assert exact_static_steps(lengths, 16, 1000) == exact_static_steps(lengths, 16, 16)


def continuous_steps(lengths, slots):
    ends = [0] * slots
    for tokens in lengths:
        heapq.heapreplace(ends, ends[0] + tokens)
    return max(ends)


@given(st.lists(st.lists(st.integers(0, 50), min_size=12, max_size=12), min_size=1, max_size=5), st.integers(1, 14))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_continuous_steps_are_within_grahams_bounds(workloads, slots):
    lengths = np.array(workloads)
    low, high = graham_bounds(lengths.sum(axis=1), lengths.max(axis=1), slots)
    steps = np.array([continuous_steps(row, slots) for row in workloads])
    assert (low <= steps).all()
    assert (steps <= high + 1e-9).all()


def test_grahams_bounds_are_reached():
    one_token_each, then_a_long_one = [1] * 12, [4]
    worst = one_token_each + then_a_long_one  # 4 slots: three full steps, then a single slot for four more
    low, high = graham_bounds(np.array([16]), np.array([4]), 4)
    assert (low.tolist(), high.tolist()) == ([4], [7])
    assert continuous_steps(worst, 4) == 7
    assert continuous_steps(worst[::-1], 4) == 4


# ---- the distribution of static steps

CHANCES = {0: 0.2, 3: 0.5, 11: 0.3}


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 7])
def test_the_distribution_of_static_steps_is_that_over_every_workload_there_can_be(slots):
    expected = np.zeros(5 * 11 + 1)
    for workload in itertools.product(CHANCES, repeat=5):
        steps = sum(max(workload[i : i + slots]) for i in range(0, 5, slots))
        expected[steps] += math.prod(CHANCES[tokens] for tokens in workload)
    lengths = exact("empirical", values=list(CHANCES), weights=list(CHANCES.values()))
    found = static_steps_distribution(lengths, 5, slots)
    assert found.first == 0
    assert found.cdf == pytest.approx(np.cumsum(expected)[: len(found.cdf)], abs=1e-14)
    assert found.quantile(0.5) == int(np.searchsorted(np.cumsum(expected), 0.5))
    mean = (np.arange(56) * expected).sum()
    assert static_steps_sd(lengths, 5, slots) == pytest.approx(
        math.sqrt((expected * (np.arange(56) - mean) ** 2).sum())
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_the_distribution_has_the_exact_mean_and_deviation_of_static_steps(name):
    golden = GOLDEN[name]
    lengths, size = integer_lengths(ADAPTER.validate_python(golden["output"])), (golden["requests"], golden["slots"])
    found = static_steps_distribution(lengths, *size)
    if found is None:
        pytest.skip("the support is too wide for a cheap convolution")
    steps = found.first + np.arange(len(found.cdf))
    chances = np.diff(found.cdf, prepend=0.0)
    mean = (steps * chances).sum()
    assert mean == pytest.approx(exact_static_steps(lengths, *size), rel=1e-9)
    assert math.sqrt((chances * (steps - mean) ** 2).sum()) == pytest.approx(static_steps_sd(lengths, *size), rel=1e-6)


def test_equal_lengths_take_one_number_of_steps():
    found = static_steps_distribution(exact("constant", value=100), 203, 16)
    assert (found.first, found.cdf.tolist(), static_steps_sd(exact("constant", value=100), 203, 16)) == (1300, [1.0], 0)


def test_a_distribution_that_is_not_cheap_is_left_out():
    assert static_steps_distribution(exact("uniform", low=0, high=2**24), 200, 16) is None


@pytest.mark.parametrize("slots", [1, 2, 7, 64])
def test_mean_continuous_steps_are_within_the_bounds_of_their_expectation(slots):
    # 4,000 workloads of 50 requests; 5 standard errors where a bound is reached: a false alarm in a million seeds
    drawn = np.random.default_rng(3).integers(1, 101, (4_000, 50))
    low, high = mean_continuous_bounds(exact("uniform", low=1, high=100), 50, slots)
    steps = np.array([continuous_steps(row, slots) for row in drawn.tolist()])
    room = 5 * steps.std() / math.sqrt(len(steps))  # equality at one slot, and where every request has its own
    assert low - room <= steps.mean() <= high + room

"""Arrivals: pure draws, true to their rate and cv, and monotone in the rate."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import drawn_word

from sweep.model.arrival_patterns import AtOnce, Bursts, Gaps, Phases, Times
from sweep.model.arrivals import arrival_s, observed, think_times, unit_gaps
from sweep.model.lengths import look_up_of
from sweep.model.listed import Uniform
from sweep.model.lockstep import ARRIVALS, draw_lengths
from sweep.model.uniforms import BURSTS, uniforms

PATTERNS = [
    Gaps("exponential"),
    Gaps("gamma", 0.5),
    Gaps("gamma", 4.0),
    Gaps("weibull", 0.5),
    Gaps("weibull", 3.0),
    Phases((10.0, 5.0, 20.0), (1.0, 0.0, 3.0)),
    Phases((10.0, 5.0), (0.0, 2.0)),
    Bursts(0.25, 4.0),
]
GIVEN = Times((0.0, 0.5, 0.5, 4.0))
quick = settings(deadline=None, derandomize=True, max_examples=30)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS, ids=str)


def test_uniforms_are_the_words_that_lengths_are_drawn_from() -> None:
    lengths = draw_lengths(look_up_of(Uniform(low=0, high=1023)), 2**40 + 37, 2**33 + 5, 3, 21, ARRIVALS)
    assert (np.floor(uniforms(2**40 + 37, ARRIVALS, 2**33 + 5, 3, 21) * 1024) == lengths).all()


def test_uniforms_are_midpoints_of_the_words_of_a_literal_generator() -> None:
    seed, replicate, start = 2**63 + 37, 2**40 + 5, 6
    words = [[drawn_word(seed, BURSTS, replicate + row, start + place) for place in range(21)] for row in range(3)]
    assert (uniforms(seed, BURSTS, replicate, 3, 21, start) == (np.array(words) + 0.5) / 2**32).all()


def test_uniforms_do_not_depend_on_the_piece_they_are_drawn_in() -> None:
    whole = uniforms(37, ARRIVALS, 10, 6, 23)
    assert (uniforms(37, ARRIVALS, 12, 2, 9, start=7) == whole[2:4, 7:16]).all()
    assert whole.min() > 0
    assert whole.max() < 1


@every_pattern
@quick
@given(st.integers(0, 2**40), st.integers(0, 5), st.integers(1, 40), st.floats(1e-3, 1e3))
def test_an_arrival_depends_on_seed_replicate_and_index_alone(pattern, seed, first, requests, rate) -> None:
    whole = arrival_s(pattern, rate, seed, 0, 7, requests + 9)
    part = arrival_s(pattern, rate, seed, first, 2, requests)
    assert (part == whole[first : first + 2, :requests]).all()
    assert (part[:, 0] == 0).all()
    assert (np.diff(part, axis=1) >= 0).all()


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if isinstance(p, Gaps)], ids=str)
def test_a_higher_rate_moves_no_arrival_back(pattern) -> None:
    slow, fast = (arrival_s(pattern, rate, 37, 0, 4, 200) for rate in (2.0, 2.5))
    assert (fast <= slow).all()
    assert fast == pytest.approx(slow * 0.8)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if not isinstance(p, Gaps)], ids=str)
def test_a_higher_rate_brings_as_many_arrivals_sooner(pattern) -> None:
    """The first arrival is put at 0, which moves with the rate too; the last one still comes sooner."""
    slow, fast = (arrival_s(pattern, rate, 37, 0, 20, 400)[:, -1] for rate in (2.0, 4.0))
    assert (fast < slow).all()


@every_pattern
def test_the_observed_rate_comes_close_to_the_one_asked_for(pattern) -> None:
    """400 workloads of 1,000 requests; 5 standard errors, one false alarm in two million."""
    rates = 999 / arrival_s(pattern, 3.0, 37, 0, 400, 1000)[:, -1]
    spans = 999 / rates
    assert abs(spans.mean() - 999 / 3.0) < 5 * spans.std() / 20 + 12  # the first arrival is in a busy phase, if any


@pytest.mark.parametrize(("kind", "cv"), [("gamma", 0.5), ("gamma", 2), ("gamma", 8), ("weibull", 0.5), ("weibull", 3)])
def test_gaps_have_mean_1_and_the_cv_asked_for(kind, cv) -> None:
    """By midpoints over a million quantiles, which cut the last of a heavy tail."""
    gaps = unit_gaps(Gaps(kind, cv), (np.arange(10**6) + 0.5) / 10**6)
    assert gaps.mean() == pytest.approx(1, rel=2e-3)
    assert gaps.std() == pytest.approx(cv, rel=2e-2)


def test_gamma_and_weibull_gaps_of_cv_1_are_exponential() -> None:
    u = uniforms(1, ARRIVALS, 0, 1, 500)
    assert unit_gaps(Gaps("gamma", 1.0), u) == pytest.approx(-np.log1p(-u))
    assert unit_gaps(Gaps("weibull", 1.0), u) == pytest.approx(-np.log1p(-u))


def test_nobody_arrives_in_a_phase_of_factor_0() -> None:
    times = arrival_s(Phases((10.0, 10.0), (1.0, 0.0)), 2.0, 37, 0, 1, 3000)[0]
    start = next(t for t in np.linspace(0, 20, 2001) if (((times + t) % 20) <= 10 + 1e-6).all())
    assert 0 <= start <= 10  # the first arrival came within the first phase


def test_bursts_have_more_varied_gaps_than_poisson_and_counts_keep_their_variance() -> None:
    bursty = observed(arrival_s(Bursts(0.2, 5.0), 2.0, 37, 0, 50, 2000))[1]
    plain_rate, plain = observed(arrival_s(Gaps("exponential"), 2.0, 37, 0, 50, 2000))
    assert bursty.mean() > 1.5 > plain.mean()
    assert plain_rate.std() == pytest.approx(2 / math.sqrt(2000), rel=0.5)


def test_given_times_are_kept_or_scaled_to_a_rate() -> None:
    assert arrival_s(GIVEN, None, 1, 0, 2, 3).tolist() == [[0, 0.5, 0.5]] * 2
    assert arrival_s(GIVEN, 1.5, 1, 0, 1, 4)[0] == pytest.approx([0, 0.25, 0.25, 2.0])


def test_all_at_once_is_at_0_and_has_no_rate() -> None:
    times = arrival_s(AtOnce(), None, 1, 0, 2, 3)
    assert (times == 0).all()
    assert np.isnan(observed(times)).all()


def test_think_times_have_their_mean() -> None:
    """100,000 exponential times; 5 standard errors."""
    assert think_times(3.0, 37, 0, 10, 10_000).mean() == pytest.approx(3.0, abs=5 * 3 / math.sqrt(1e5))
    assert (think_times(0.0, 37, 0, 1, 5) == 0).all()

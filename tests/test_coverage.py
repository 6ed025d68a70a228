"""Intervals cover what they promise: small studies whose answers are known exactly, over and over.

Each repetition is a study of its own, a block of replicates of one seed. The expectation of static steps and their
distribution are exact (`theory`), so the true mean, share and percentile are known, and for shares and percentiles also
how often the interval covers: a binomial sum. That of the multiple is measured on two million workloads, whose error is
a fiftieth of an interval's half-width. Observed coverage of 1,000 repetitions has a standard error of 0.7 points, so
two points are 2.9 of them: each of these tests would fail for one seed in 200 or so. The seeds are fixed.

`pytest -m slow` repeats this with 1,000 whole runs, one for each of the seeds 0 to 999.
"""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.special import bdtr, bdtrc
from scipy.stats import binom

import sweep
from sweep.api import _Precise, _rounds
from sweep.model.distributions import Distribution
from sweep.model.lengths import integer_lengths, look_up_of
from sweep.model.lockstep import drawn_steps
from sweep.model.theory import exact_static_steps, static_steps_distribution
from sweep.report.adjusted import Control, adjusted
from sweep.report.claims import FAILS, HOLDS
from sweep.report.claims import verdict as verdict_of
from sweep.report.intervals import both, mean_interval, percentile_ends, percentile_ranks, wilson
from sweep.report.stats import Column
from sweep.study import parse_study
from sweep.study.schema import Precision

OUTPUT = {"distribution": "geometric", "mean": 30, "max_tokens": 200}
REQUESTS, SLOTS = 22, 4  # the last group is a small one
REPETITIONS = 1_000

LENGTHS = TypeAdapter(Distribution).validate_python(OUTPUT)
EXACT = integer_lengths(LENGTHS)
MEAN_STEPS = exact_static_steps(EXACT, REQUESTS, SLOTS)
STEPS = static_steps_distribution(EXACT, REQUESTS, SLOTS)


def drawn(seed, replicates):
    """Static steps, multiples and tokens of replicates, (replicates,) each."""
    steps = drawn_steps(look_up_of(LENGTHS), seed, 0, replicates, REQUESTS, [SLOTS])
    return steps.static[0], steps.static[0] / steps.continuous[0], steps.output_tokens


def blocks(seed, size):
    """Static steps of 1,000 studies of this many workloads, (1,000, size)."""
    return drawn(seed, REPETITIONS * size)[0].reshape(REPETITIONS, size)


def chance_at_most(steps):
    """P(static steps <= steps), exact."""
    place = steps - STEPS.first
    return 0.0 if place < 0 else float(STEPS.cdf[min(place, len(STEPS.cdf) - 1)])


def share_covering(intervals, truth):
    return sum(low <= truth <= high for low, high in intervals) / REPETITIONS


def wilson_covers(n, share):
    """How often the Wilson interval of n workloads covers this share, summed over what may be counted."""
    return sum(binom.pmf(met, n, share) for met in range(n + 1) if wilson(met, n)[0] <= share <= wilson(met, n)[1])


def ranks_cover(n, p, steps):
    """How often the order statistics around the p-th percentile enclose it; they have ties, it is one value."""
    low, high = percentile_ranks(n, p)
    too_high = bdtr(low - 1, n, chance_at_most(steps))  # fewer than `low` values at or below it
    too_low = bdtrc(high - 1, n, chance_at_most(steps - 1))  # `high` values and more below it
    return 1 - float(too_high) - float(too_low)


@pytest.mark.parametrize("size", [30, 200])
def test_95_per_cent_intervals_of_a_mean_cover_the_exact_expectation_in_93_to_97_per_cent(size):
    covering = share_covering(map(mean_interval, blocks(1, size)), MEAN_STEPS)
    assert 0.93 <= covering <= 0.97


@pytest.mark.parametrize(("size", "share"), [(50, 0.5), (200, 0.5), (200, 0.05), (200, 0.98), (30, 0.9)])
def test_wilson_intervals_cover_as_often_as_their_binomial_sum_says(size, share):
    bound = STEPS.quantile(share)
    truth = chance_at_most(bound)
    counts = (blocks(2, size) <= bound).sum(axis=1).tolist()
    covering = share_covering((wilson(met, size) for met in counts), truth)
    assert abs(covering - wilson_covers(size, truth)) <= 0.02


@pytest.mark.parametrize(("size", "p"), [(50, 50), (100, 5), (100, 95), (400, 5), (400, 90)])
def test_percentile_intervals_cover_as_often_as_their_binomial_sum_says(size, p):
    truth = STEPS.quantile(p / 100)
    covering = share_covering((both(percentile_ends(np.sort(block), p)) for block in blocks(3, size)), truth)
    assert abs(covering - ranks_cover(size, p, truth)) <= 0.02
    assert ranks_cover(size, p, truth) >= 0.95


@pytest.mark.parametrize(("size", "p"), [(30, 5), (60, 5), (30, 90), (60, 95), (10, 10)])
def test_claims_on_a_percentile_of_few_workloads_are_wrong_as_seldom_as_one_end_of_an_interval(size, p):
    # Bounds next to the true percentile, so that the claim is false, or true, by as little as can be. Of 1,000 verdicts
    # at most 2.5 % are wrong in expectation: 4.5 % is 4 standard errors more.
    truth = STEPS.quantile(p / 100)
    assert None in percentile_ranks(size, p)
    replicates = np.arange(size)
    for claim, wrong in (
        ({"at_least": truth + 1}, HOLDS),
        ({"at_most": truth - 1}, HOLDS),
        ({"at_least": truth}, FAILS),
        ({"at_most": truth}, FAILS),
    ):
        asked = {"text": "", "metric": "static_steps", "of": {"percentile": p}, **claim}
        cell = {"cell": 0, "axes": {}}
        verdicts = [verdict_of(asked, cell, Column(replicates, block)).verdict for block in blocks(8, size)]
        assert verdicts.count(wrong) <= 0.045 * REPETITIONS


@pytest.mark.parametrize(("size", "p", "right"), [(30, 5, FAILS), (30, 95, HOLDS)])
def test_one_end_decides_far_bounds_almost_always(size, p, right):
    middle = {"text": "", "metric": "static_steps", "of": {"percentile": p}, "at_least": STEPS.quantile(0.6)}
    verdicts = [
        verdict_of(middle, {"cell": 0, "axes": {}}, Column(np.arange(size), block)).verdict for block in blocks(9, size)
    ]
    assert verdicts.count(right) >= 0.9 * REPETITIONS


def test_adjusted_intervals_cover_too():
    static, multiple, tokens = (column.reshape(REPETITIONS, 100) for column in drawn(4, REPETITIONS * 100))
    truth = float(drawn(5, 2_000_000)[1].mean())
    covering, shrunk = 0, []
    for s, m, t in zip(static, multiple, tokens, strict=True):
        known = [Control("static_steps", s, MEAN_STEPS), Control("output_tokens", t, REQUESTS * 30.0 * _kept())]
        found = adjusted("multiple", m, known)
        shrunk.append(found.variance_reduction)
        covering += abs(found.adjusted - truth) <= 1.985 * found.adjusted_se
    assert 0.93 <= covering / REPETITIONS <= 0.97
    assert min(shrunk) > 1.05


def test_with_the_stopping_rule_intervals_of_the_multiple_cover_in_at_least_92_per_cent():
    # looks at 512, 1,024, 2,048 ...: about half stop at the second, the others at the third
    study = stopping_study()
    most = 4_096
    multiples = drawn(6, REPETITIONS * most)[1].reshape(REPETITIONS, most)
    truth = float(drawn(7, 2_000_000)[1].mean())
    precise, looks = _Precise(study.precision), []
    intervals = []
    for values in multiples:
        stopped = next(n for n in _rounds(study) if n == most or precise._meets(mean_interval(values[:n])))
        looks.append(stopped)
        intervals.append(mean_interval(values[:stopped]))
    assert len(set(looks)) > 1  # else the rule is not tested
    assert share_covering(intervals, truth) >= 0.92


# ---- the same with whole runs


@pytest.mark.slow
def test_a_thousand_runs_cover_the_exact_mean_share_and_percentile(tmp_path):
    size, p, bound = 200, 90, STEPS.quantile(0.7)
    claims = [
        {"text": "mean", "metric": "static_steps", "at_most": MEAN_STEPS},
        {"text": "share", "metric": "static_steps", "at_most": bound, "of": {"share": 0.7}},
        {"text": "percentile", "metric": "static_steps", "at_most": bound, "of": {"percentile": p}},
    ]
    found: list[list[Any]] = [[], [], []]
    for seed in range(REPETITIONS):
        results = sweep.run(study_of(seed, replicates=size, claims=claims), tmp_path / str(seed), report=False)
        for intervals, verdict in zip(found, results.check(), strict=True):
            intervals.append((verdict.ci_low, verdict.ci_high))
    assert 0.93 <= share_covering(found[0], MEAN_STEPS) <= 0.97
    truth = chance_at_most(bound)
    assert abs(share_covering(found[1], truth) - wilson_covers(size, truth)) <= 0.02
    truth = STEPS.quantile(p / 100)
    assert abs(share_covering(found[2], truth) - ranks_cover(size, p, truth)) <= 0.02


@pytest.mark.slow
def test_a_thousand_runs_with_the_stopping_rule_cover_in_at_least_92_per_cent(tmp_path):
    truth = float(drawn(2**40, 2_000_000)[1].mean())
    intervals, sizes = [], set()
    for seed in range(REPETITIONS):
        results = sweep.run(stopping_study(seed), tmp_path / str(seed), report=False)
        row = results.cells.row(0, named=True)
        intervals.append((row["multiple_ci_low"], row["multiple_ci_high"]))
        sizes.add(row["replicates"])
    assert len(sizes) > 1
    assert share_covering(intervals, truth) >= 0.92


def study_of(seed=0, **changes):
    workload = {"requests": REQUESTS, "output": OUTPUT}
    return parse_study({"seed": seed, "workload": workload, "server": {"slots": SLOTS}, **changes}, "small.toml")


def stopping_study(seed=0):
    precision = Precision(metric="multiple", half_width=0.0132, min_replicates=512, max_replicates=4_096)
    return study_of(seed, precision=precision.model_dump())


def _kept():
    """What the cap leaves of the mean length: the sum of q^k up to the cap is that share of the whole sum."""
    return 1 - math.pow(1 - 1 / 30, 200)

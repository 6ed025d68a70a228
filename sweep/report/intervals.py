"""Intervals for means, shares and percentiles, and how many workloads they need. Leaves out the estimates (`stats`).

An interval that has too few values to keep its promise is withheld: None, and a function here says how many it takes.
Each end of an interval is passed by the truth in half of the cases that it may miss, so an end says something alone.
"""

import math
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, bdtrc, ndtri, stdtrit

Values: TypeAlias = npt.NDArray[np.float64 | np.int64]
Interval: TypeAlias = tuple[float, float]
Ends: TypeAlias = tuple[float | None, float | None]  # of an interval, one of which may be withheld


def mean_interval(values: Values, confidence: float = 0.95) -> Interval | None:
    """Student's t interval for the mean of the defined values; None for fewer than two.

    Values that are all the same give an interval of no width.
    """
    values = defined(values)
    if len(values) < 2:
        return None
    mean, sd = mean_and_sd(values)
    assert sd is not None
    return t_interval(mean, sd / math.sqrt(len(values)), len(values) - 1, confidence)


def t_interval(mean: float, se: float, freedom: float, confidence: float = 0.95) -> Interval:
    """The interval of a mean with this standard error and these degrees of freedom."""
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * se
    return mean - half, mean + half


def ratio_of_means(above: Values, below: Values) -> tuple[float, float] | None:
    """The mean of `above` over the mean of `below`, pair by pair, and its standard error by linearisation.

    Both of the same workloads, without undefined values; None where the ratio or its error has no value.
    """
    n, base = len(above), float(below.mean()) if len(below) else 0.0
    if n < 2 or base == 0:
        return None
    ratio = float(above.mean()) / base
    rest = above - ratio * below  # of mean 0; its spread is what moves the ratio
    return ratio, math.sqrt(float((rest * rest).sum()) / (n - 1) / n) / abs(base)


def mean_and_sd(values: Values) -> tuple[float, float | None]:
    """The mean and, from two values on, the sample deviation; equal values give exactly themselves and 0."""
    if values.min() == values.max():
        return float(values[0]), 0.0 if len(values) > 1 else None
    return float(values.mean()), float(values.std(ddof=1))


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval | None:
    """The score interval for a share of n independent trials (Wilson 1927); None when there were none."""
    if n == 0:
        return None
    z2 = float(ndtri((1 + confidence) / 2)) ** 2
    share = successes / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * share * (1 - share) / n + (z2 / (2 * n)) ** 2) / (1 + z2 / n)
    # At the ends the formula gives exactly 0 and 1; rounding must not take the interval past its estimate.
    return (0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half)


def percentile_ends(ordered: Values, p: float, confidence: float = 0.95) -> Ends:
    """Order statistics that enclose the p-th percentile, in 0..100, whatever the distribution.

    ordered : values that are defined, in ascending order; with few of them one end may be withheld, or both. The
    percentile lies below the one, or above the other, in at most (1 - confidence) / 2 of cases.
    """
    low, high = percentile_ranks(len(ordered), p, confidence)
    return None if low is None else float(ordered[low - 1]), None if high is None else float(ordered[high - 1])


def both(ends: Ends) -> Interval | None:
    """The interval of two ends; None where one is withheld."""
    low, high = ends
    return None if low is None or high is None else (low, high)


@lru_cache(maxsize=1024)  # the cells of a study have the same number of workloads
def percentile_ranks(n: int, p: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the values that enclose the p-th percentile of n; None where no value is far enough out.

    The count of values at or below the percentile is binomial, so the ranks follow from its tails, at most
    (1 - confidence) / 2 each: the interval covers with at least `confidence`.
    """
    share, tail = p / 100, (1 - confidence) / 2
    below = bisect_right(range(n), tail, key=lambda k: float(bdtr(k, n, share)))  # P(count <= below - 1) <= tail
    above = bisect_left(range(n), -tail, key=lambda k: -float(bdtrc(k, n, share)))  # P(count > above) <= tail
    return below or None, above + 1 if above < n else None


def percentile_needs(p: float, confidence: float = 0.95) -> int:
    """The fewest values with which the p-th percentile has an interval: all lie on one side of it rarely enough."""
    return max(end_needs(p, confidence))


def end_needs(p: float, confidence: float = 0.95) -> tuple[int, int]:
    """The fewest values with which it has a lower end, since all lie above it rarely enough, and an upper one."""
    share, tail = p / 100, (1 - confidence) / 2
    low, high = (math.ceil(math.log(tail) / math.log(chance)) for chance in (1 - share, share))
    return low, high


def defined(values: Values) -> Values:
    """The values that are not nan."""
    return values[~np.isnan(values)]

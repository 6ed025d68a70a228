"""Estimates and verdicts where a folder keeps sums and no rows. Where these cannot tell, a verdict says why.

Means, deviations and the multiple of totals follow from the sums; shares and percentiles of the multiple from its
histogram, to within a place of the grid. Of other metrics the sums know the extremes, which settle many claims.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from sweep.report.adjusted import adjusted_of_sums, expectations
from sweep.report.intervals import Ends, Interval, Values, both, percentile_ranks, t_interval, wilson
from sweep.sums import KEPT, Sums, Tally, bounds_of

MOST_DRAWN = 1_000_000  # values that a chart is made from
NO_ROWS = "rows were not kept, and sums cannot tell"
TO_A_PLACE = "rows were not kept; what the sums tell is enough to decide"


class Ranked(NamedTuple):
    """A percentile of the multiple: its value to within a place of the grid, and ends of an interval no narrower."""

    value: float
    ends: Ends


class Met(NamedTuple):
    """At least and at most how many workloads lie within bounds."""

    least: int
    most: int


def columns(tally: Tally, cell: Mapping[str, Any]) -> dict[str, float | int | None]:
    """What cells.parquet says of a cell, but for what rows alone could tell; cell : its entry in the manifest."""
    known = expectations(cell)
    found: dict[str, float | int | None] = {"replicates": tally.replicates}
    for metric, sums in tally.sums.items():
        interval = mean_interval(sums) or (None, None)
        named = {"n": sums.n, "mean": sums.mean if sums.n else None, "sd": sums.sd, "se": sums.se}
        named |= {"ci_low": interval[0], "ci_high": interval[1]}
        named |= adjusted_of_sums(metric, tally, known)._asdict()
        found |= {f"{metric}_{name}": value for name, value in named.items()}
    for p in (5, 50, 95):
        if ranked := percentile(tally, p):
            low, high = both(ranked.ends) or (None, None)
            found |= {f"multiple_p{p:02}": ranked.value}
            found |= {f"multiple_p{p:02}_ci_low": low, f"multiple_p{p:02}_ci_high": high}
    return found | _of_totals(tally)


def totals(tally: Tally) -> dict[str, int | float]:
    """The sums of all metrics over the workloads that have them; those of counts are exact."""
    return {metric: _total(sums) for metric, sums in tally.sums.items()}


def _total(sums: Sums) -> int | float:
    if sums.total is not None:
        return sums.total
    return sums.mean * sums.n if sums.n else 0.0


def mean_interval(sums: Sums, confidence: float = 0.95) -> Interval | None:
    """Student's t interval of the mean; None for fewer than two values."""
    return None if sums.se is None else t_interval(sums.mean, sums.se, sums.n - 1, confidence)


def percentile(tally: Tally, p: float) -> Ranked | None:
    """The p-th percentile of the multiple; None where no workload has one."""
    places = sorted(tally.places)
    counts = list(accumulate(tally.places[place] for place in places))
    if not counts:
        return None
    n, rank = counts[-1], (counts[-1] - 1) * p / 100
    low, high = (_middle(places[bisect_left(counts, math.floor(at) + 1)]) for at in (rank, math.ceil(rank)))
    ranks = percentile_ranks(n, p)
    least, most = (None if at is None else bounds_of(places[bisect_left(counts, at)]) for at in ranks)
    return Ranked(low + (high - low) * (rank % 1), (least and least[0], most and most[1]))


def met(tally: Tally, metric: str, low: float, high: float) -> Met:
    """How many workloads have the metric within bounds, both included, as far as can be told."""
    sums = tally.sums[metric]
    if sums.n == 0 or (low <= sums.low and sums.high <= high):
        return Met(sums.n, sums.n)
    if sums.high < low or high < sums.low:
        return Met(0, 0)
    if metric != "multiple":
        return Met(int(low <= sums.low <= high or low <= sums.high <= high), sums.n - 1)
    least = most = 0
    for place, count in tally.places.items():
        start, stop = bounds_of(place)
        inside = low <= start and stop <= high
        outside = (stop < low or high < start) if start == stop else (stop <= low or high <= start)
        least, most = least + count * inside, most + count * (not outside)
    return Met(least, most)


def share_interval(tally: Tally, within: Met) -> tuple[float | None, Interval | None]:
    """The share of workloads within bounds and its interval; where it is not known exactly, a wider one alone."""
    n = tally.replicates
    lowest, highest = wilson(within.least, n), wilson(within.most, n)
    if lowest is None or highest is None:
        return None, None
    return (within.least / n if within.least == within.most else None), (lowest[0], highest[1])


def worst(tally: Tally, metric: str, low: float, high: float) -> list[int]:
    """The replicates furthest out of the bounds, or nearest to leaving them, the worst first; ties by number.

    Those are among the extremes, of which as many are kept. Undefined workloads are not named.
    """
    sums = tally.sums[metric]
    room = {replicate: min(value - low, high - value) for value, replicate in sums.lowest + sums.highest}
    return sorted(room, key=lambda replicate: (room[replicate], replicate))[:KEPT]


def drawn_values(tally: Tally) -> tuple[Values, int]:
    """Multiples for a histogram, each in the middle of its place, in order; and of how many workloads each is one."""
    places = sorted(tally.places)
    counts = np.cumsum([tally.places[place] for place in places])
    n = int(counts[-1]) if places else 0
    step = max(1, math.ceil(n / MOST_DRAWN))
    chosen = np.searchsorted(counts, np.arange(step // 2, n, step), side="right")
    return np.array([_middle(place) for place in places], np.float64)[chosen], step


def _middle(place: int) -> float:
    start, stop = bounds_of(place)
    return (start + stop) / 2


def _of_totals(tally: Tally) -> dict[str, float | None]:
    """The ratio of the sums, and its standard error by linearisation; all but the last root without rounding."""
    static, continuous, n = tally.sums["static_steps"], tally.sums["continuous_steps"], tally.replicates
    above, below = static.total, continuous.total
    if not above or not below or static.total_squares is None or continuous.total_squares is None:
        return {"multiple_of_totals": None}
    ratio = Fraction(above, below)
    found: dict[str, float | None] = {"multiple_of_totals": above / below}
    if n < 2:
        return found
    rest = static.total_squares - 2 * ratio * tally.product + ratio**2 * continuous.total_squares
    se = math.sqrt(rest / (n - 1) / n) / (below / n)
    low, high = t_interval(above / below, se, n - 1)
    return found | {
        "multiple_of_totals_se": se,
        "multiple_of_totals_ci_low": low,
        "multiple_of_totals_ci_high": high,
    }

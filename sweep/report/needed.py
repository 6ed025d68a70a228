"""How many workloads would decide a claim that is undecided, if what was estimated so far is true.

An estimate that lies on the bound is not decided by any number. The rest is what each interval asks for: its end has
to pass the bound, and it shrinks like one over the root of the number.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtri, stdtrit

from sweep.report.intervals import Values, defined, end_needs, mean_and_sd, percentile_needs

ROUNDS = 8  # of a fixed point that settles within two


def mean_decides(values: Values, low: float, high: float, confidence: float = 0.95) -> int | None:
    """Workloads from which the t interval of the mean would lie inside or outside the bounds; None if never."""
    values = defined(values)
    mean, sd = mean_and_sd(values) if len(values) else (math.nan, None)
    if sd is None:
        return 2

    def passes(edge: float) -> float:
        n = 2.0
        for _ in range(ROUNDS):
            quantile = float(stdtrit(max(n, 2.0) - 1, (1 + confidence) / 2)) if n < 1e6 else _z(confidence)
            n = (quantile * sd / (mean - edge)) ** 2 if mean != edge else math.inf
        return max(n, 2.0)

    return _whole(_needed(mean, low, high, passes))


def share_decides(met: int, n: int, share: float, confidence: float = 0.95) -> int | None:
    """Workloads from which the Wilson interval would lie above or below a share; None if never.

    It leaves out a share exactly when the estimate is z standard errors, taken at that share, away from it.
    """
    if n == 0:
        return 1
    off = met / n - share
    return _whole(_z(confidence) ** 2 * share * (1 - share) / off**2) if off else None


def percentile_decides(values: Values, p: float, low: float, high: float, confidence: float = 0.95) -> int | None:
    """Workloads from which the order statistics around a percentile would lie inside or outside the bounds.

    They pass a bound when the share of workloads below it differs enough from p. None if never.
    """
    values, share = defined(values), p / 100
    if len(values) == 0:
        return percentile_needs(p, confidence)
    below = {edge: float((values < edge).mean() + (values == edge).mean() / 2) for edge in (low, high)}

    def passes(edge: float) -> float:
        off = abs(below[edge] - share)
        # ranks are whole: the count has to be one further off than the normal approximation says
        return _z(confidence) ** 2 * share * (1 - share) / off**2 + 1 / off if off else math.inf

    estimate = float(np.percentile(values, p))
    needed = _whole(_needed(estimate, low, high, passes))
    # A bound below is held from inside by the lower end and missed by the upper one; one above the other way round.
    inside = low <= estimate <= high
    takes_low = math.isfinite(low) if inside else estimate > high
    takes_high = math.isfinite(high) if inside else estimate < low
    lower, upper = end_needs(p, confidence)
    return None if needed is None else max(needed, lower * takes_low, upper * takes_high)


def _needed(estimate: float, low: float, high: float, passes: Callable[[float], float]) -> float:
    """What it takes to pass both bounds from inside them, or the nearer one from outside."""
    edges = [edge for edge in (low, high) if math.isfinite(edge)]
    if low <= estimate <= high:
        return max(map(passes, edges), default=0.0)
    return passes(low if estimate < low else high)


def _whole(needed: float) -> int | None:
    return math.ceil(needed) if needed < 1e15 else None


def _z(confidence: float) -> float:
    return float(ndtri((1 + confidence) / 2))

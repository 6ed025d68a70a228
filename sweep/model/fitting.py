"""Which of the distributions of a study is most like given lengths: by likelihood on the whole numbers, after the cap.

Every family gets the longest length as its cap, so that lengths that a limit cut are worth what the family has above
it. Families with more parameters pay for them (Akaike, 1974). Left out: how such lengths were drawn, and their order.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sweep.errors import InputError
from sweep.model.capped import MIN_CV, Family
from sweep.model.counted import Counted
from sweep.model.distributions import LognormalPart, Mixture
from sweep.model.lengths import integer_lengths
from sweep.model.listed import Constant, Uniform
from sweep.model.tails import Exponential, Gamma, Geometric, Lognormal, Pareto, Weibull

I64: TypeAlias = NDArray[np.int64]
F64: TypeAlias = NDArray[np.float64]

DIGITS = 4  # of fitted parameters, which are rounded before they are judged
SPLITS = (0.5, 0.8, 0.95)  # where a mixture of two starts
SHARES = (*np.arange(1, 100) / 100, 0.995, 0.999)  # at which quantiles are compared
MOST_CV = 100.0
LEAST_CHANCE = 1e-300  # of a length that a family cannot give


class Fit(NamedTuple):
    """A distribution fitted to lengths. `log_likelihood` is of all requests, natural; `quantiles` are pairs of tokens,
    the file's and the family's, at the shares in `SHARES`.
    """

    name: str
    spec: Family | Mixture
    parameters: int
    log_likelihood: float
    quantiles: tuple[tuple[int, int], ...]

    @property
    def aic(self) -> float:
        """Akaike's criterion: the lower the better."""
        return 2 * self.parameters - 2 * self.log_likelihood


def fits(seen: Counted) -> list[Fit]:
    """All families fitted to these lengths, the best first. Raises InputError for lengths of 0."""
    values = seen.values
    if values[0] < 1:
        raise InputError("lengths of 0 cannot be fitted; leave such requests out")
    if len(values) == 1:
        return [_fit("constant", Constant(value=int(values[0])), 1, seen)]
    found = [
        _fit("uniform", Uniform(low=int(values[0]), high=int(values[-1])), 2, seen),
        *(_by_mean(family, seen) for family in (Geometric, Exponential)),
        *(_by_mean_and_cv(family, seen) for family in (Lognormal, Gamma, Weibull, Pareto)),
        _two_lognormals(seen),
    ]
    return sorted(found, key=lambda fit: fit.aic)


def _by_mean(family: type[Geometric] | type[Exponential], seen: Counted) -> Fit:
    cap = int(seen.values[-1])
    mean, _ = _moments(seen)

    def spec(x: F64) -> Family:
        return family(mean=_allowed_mean(x[0], cap), max_tokens=cap)

    best = _minimum(lambda x: -_log_likelihood(_chances(spec(x), seen), seen), [[math.log(mean)]])
    return _fit(family.__name__.lower(), spec(best), 1, seen)


def _by_mean_and_cv(family: Callable[..., Family], seen: Counted) -> Fit:
    cap = int(seen.values[-1])
    mean, cv = _moments(seen)

    def spec(x: F64) -> Family:
        return family(mean=_allowed_mean(x[0], cap), cv=_allowed_cv(x[1]), max_tokens=cap)

    starts = [[math.log(mean), math.log(max(cv * factor, 2 * MIN_CV))] for factor in (1.0, 0.5)]
    best = _minimum(lambda x: -_log_likelihood(_chances(spec(x), seen), seen), starts)
    found = spec(best)
    return _fit(found.__class__.__name__.lower(), found, 2, seen)


def _two_lognormals(seen: Counted) -> Fit:
    cap = int(seen.values[-1])

    def spec(x: F64) -> Mixture:
        share = _rounded(1 / (1 + math.exp(-min(max(x[0], -12.0), 12.0))))
        first = LognormalPart(weight=share, mean=_allowed_mean(x[1], cap), cv=_allowed_cv(x[2]))
        second = LognormalPart(mean=_allowed_mean(x[3], cap), cv=_allowed_cv(x[4]))
        return Mixture(parts=(first, second), max_tokens=cap)

    best = _minimum(lambda x: -_log_likelihood(_mixed(spec(x), seen), seen), [_split(seen, at) for at in SPLITS])
    return _fit("two lognormals", spec(best), 5, seen)


def _split(seen: Counted, share: float) -> list[float]:
    """Where a mixture starts whose first part has this share of the requests, the shortest ones."""
    place = int(np.searchsorted(np.cumsum(seen.counts) / seen.counts.sum(), share)) + 1
    place = min(max(place, 1), len(seen.values) - 1)
    start = [math.log(share / (1 - share))]
    for part in (slice(None, place), slice(place, None)):
        mean, cv = _moments(Counted(seen.values[part], seen.counts[part]))
        start += [math.log(mean), math.log(max(cv, 0.05))]
    return start


def _minimum(function: Callable[[F64], float], starts: Sequence[Sequence[float]]) -> F64:
    """Where the function is lowest of what a simplex finds from each start (Nelder and Mead, 1965)."""
    options: Any = {"xatol": 1e-4, "fatol": 1e-3, "maxiter": 300 * len(starts[0])}
    found = [minimize(function, np.array(start), method="Nelder-Mead", options=options) for start in starts]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x)


def _fit(name: str, spec: Family | Mixture, parameters: int, seen: Counted) -> Fit:
    chances = _mixed(spec, seen) if isinstance(spec, Mixture) else _chances(spec, seen)
    return Fit(name, spec, parameters, _log_likelihood(chances, seen), tuple(_quantiles(spec, seen)))


def _log_likelihood(chances: F64, seen: Counted) -> float:
    return float((seen.counts * np.log(np.maximum(chances, LEAST_CHANCE))).sum())


def _mixed(spec: Mixture, seen: Counted) -> F64:
    """P(L = value) of a mixture whose parts have no caps of their own."""
    parts = [weight * _chances(part, seen) for weight, part in zip(spec.weights, spec.parts, strict=True)]
    return np.asarray(np.sum(parts, axis=0))


def _chances(family: Family, seen: Counted) -> F64:
    """P(L = value): a difference of the CDF, above the middle of the survival; at the cap all that is left."""
    before = seen.values - 1
    some = np.maximum(before, 1)  # the logarithm of 0 is not needed: nothing is that short
    low, high = np.where(before > 0, family.cdf(some), 0.0), family.cdf(seen.values)
    above, beyond = np.where(before > 0, family.survival(some), 1.0), family.survival(seen.values)
    chances = np.where(low < 0.5, high - low, above - beyond)
    chances[-1] = above[-1]
    return np.asarray(chances)


def _quantiles(spec: Family | Mixture, seen: Counted) -> list[tuple[int, int]]:
    own, theirs = np.cumsum(seen.counts) / seen.counts.sum(), integer_lengths(spec)
    pairs = []
    for share in SHARES:
        at = min(int(np.searchsorted(own, share)), len(own) - 1), int(np.searchsorted(theirs.cdf, share))
        pairs.append((int(seen.values[at[0]]), int(theirs.values[at[1]])))
    return pairs


def _moments(seen: Counted) -> tuple[float, float]:
    share = seen.counts / seen.counts.sum()
    mean = float((share * seen.values).sum())
    return mean, math.sqrt(float((share * (seen.values - mean) ** 2).sum())) / mean


def _allowed_mean(log_mean: float, cap: int) -> float:
    """A mean from its logarithm; far above the cap it makes no more difference."""
    return _rounded(min(max(math.exp(min(log_mean, 30.0)), 1.0), 10.0 * cap))


def _allowed_cv(log_cv: float) -> float:
    return _rounded(min(max(math.exp(min(log_cv, 10.0)), 2 * MIN_CV), MOST_CV))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

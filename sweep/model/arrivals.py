"""When requests arrive: seconds since the first one, as pure draws of (seed, stream, replicate, index).

A pattern is drawn at a rate of 1 and stretched, or led through the total rate up to each moment, so a higher rate moves
every arrival of the same workload forward and none back: rates are compared on common random numbers. Left out: clients
that wait for their answers, whose arrivals depend on the server (`think_times` is all that is drawn of them).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincinv, gammaln

from sweep.model.arrival_patterns import AtOnce, Bursts, Gaps, Pattern, Phases, Times
from sweep.model.lockstep import ARRIVALS
from sweep.model.uniforms import BURSTS, uniforms

F64 = NDArray[np.float64]

MOST_IN_CACHE = 2**16  # arrivals drawn at a time: fresh memory costs more than a logarithm
MORE_BURSTS = 64  # drawn at a time until they reach past the last arrival


def arrival_s(pattern: Pattern, rate_per_s: float | None, seed: int, first: int, count: int, requests: int) -> F64:
    """Arrivals of replicates `first` to `first + count`, (count, requests), each row from 0 on and never falling.

    rate_per_s : the long-run rate; None for all at once, and for given times as they are.
    """
    match pattern:
        case AtOnce():
            return np.zeros((count, requests))
        case Times(seconds):
            assert len(seconds) >= requests, "a study with more requests than times is refused"
            times = np.array(seconds[:requests])
            scale = 1.0 if rate_per_s is None else own_rate_per_s(seconds) / rate_per_s
            return np.tile(times * scale, (count, 1))
    assert rate_per_s is not None
    times, most = np.empty((count, requests)), max(1, MOST_IN_CACHE // requests)
    for row in range(0, count, most):
        some = min(most, count - row)
        times[row : row + some] = _drawn_s(pattern, rate_per_s, seed, first + row, some, requests)
    return times


def _drawn_s(
    pattern: Gaps | Phases | Bursts, rate_per_s: float, seed: int, first: int, count: int, requests: int
) -> F64:
    u = uniforms(seed, ARRIVALS, first, count, requests)
    if isinstance(pattern, Gaps):
        gaps = unit_gaps(pattern, u)
        sums = np.cumsum(gaps, axis=1, out=gaps)
        sums /= rate_per_s
    else:
        sums = np.cumsum(_exponential(u), axis=1)
        for row in range(count):
            sums[row] = _through_rate(pattern, rate_per_s, sums[row], seed, first + row)
    sums -= sums[:, :1].copy()
    return sums


def unit_gaps(gaps: Gaps, u: F64) -> F64:
    """Gaps of mean 1 at these quantiles."""
    match gaps.kind:
        case "exponential":
            return _exponential(u)
        case "gamma":
            shape = gaps.cv**-2
            return np.asarray(gammaincinv(shape, u) / shape, np.float64)
        case "weibull":
            inverse = _inverse_weibull_shape(gaps.cv)
            return np.asarray(_exponential(u) ** inverse / math.exp(gammaln(1 + inverse)), np.float64)


def think_times(mean_s: float, seed: int, first: int, count: int, requests: int) -> F64:
    """Exponential times that a client takes after each request before its next one, (count, requests)."""
    return _exponential(uniforms(seed, ARRIVALS, first, count, requests)) * mean_s


def own_rate_per_s(seconds: tuple[float, ...]) -> float:
    """The rate of given times: gaps over the time they take."""
    return (len(seconds) - 1) / (seconds[-1] - seconds[0])


def observed(arrivals: F64) -> tuple[F64, F64]:
    """Rate and cv of the gaps of each row as they came out, (count,); nan where there is no gap, or none above 0."""
    gaps = np.diff(arrivals, axis=1)
    if gaps.shape[1] == 0:
        return np.full(len(arrivals), np.nan), np.full(len(arrivals), np.nan)
    mean = gaps.mean(axis=1)
    mean[mean == 0] = np.nan
    return 1 / mean, gaps.std(axis=1) / mean


def _exponential(u: F64) -> F64:
    """Exponential numbers of mean 1 at these quantiles."""
    numbers = np.negative(u)
    return np.negative(np.log1p(numbers, out=numbers), out=numbers)


def _inverse_weibull_shape(cv: float) -> float:
    """1 / shape at which the gaps have this cv."""

    def excess(inverse: float) -> float:
        return float(gammaln(1 + 2 * inverse) - 2 * gammaln(1 + inverse)) - math.log1p(cv * cv)

    return float(brentq(excess, 1e-6, 100.0, xtol=1e-14))


def _through_rate(pattern: Phases | Bursts, rate_per_s: float, operational: F64, seed: int, replicate: int) -> F64:
    """The moments at which the total rate so far reaches these sums of unit gaps.

    While the rate is 0 the total stands still, and an arrival meets just that total with chance 0.
    """
    if isinstance(pattern, Phases):
        return _through_phases(pattern, rate_per_s, operational)
    times, totals = _burst_line(pattern, rate_per_s, float(operational[-1]), seed, replicate)
    return np.asarray(np.interp(operational, totals, times), np.float64)


def _through_phases(phases: Phases, rate_per_s: float, operational: F64) -> F64:
    seconds, factors = np.array(phases.seconds), np.array(phases.factors)
    level = rate_per_s * seconds.sum() / (seconds * factors).sum()
    times = np.concatenate([[0.0], np.cumsum(seconds)])
    totals = np.concatenate([[0.0], np.cumsum(seconds * factors * level)])
    rounds, rest = np.divmod(operational, totals[-1])
    return np.asarray(rounds * times[-1] + np.interp(rest, totals, times), np.float64)


def _burst_line(bursts: Bursts, rate_per_s: float, total: float, seed: int, replicate: int) -> tuple[F64, F64]:
    """Corners of the total rate over time, from the start of a time on until it is past `total`: times, totals."""
    on_rate = rate_per_s / bursts.on_share
    off_s = bursts.on_s * (1 - bursts.on_share) / bursts.on_share
    drawn = MORE_BURSTS
    while True:
        spells = _exponential(uniforms(seed, BURSTS, replicate, 1, 2 * drawn)).reshape(drawn, 2)
        lengths = (spells * np.array([bursts.on_s, off_s])).ravel()
        totals = np.concatenate([[0.0], np.cumsum(lengths * np.tile([on_rate, 0.0], drawn))])
        if totals[-1] > total:
            return np.concatenate([[0.0], np.cumsum(lengths)]), totals
        drawn *= 2

"""Lengths of requests: from a distribution to its exact integer distribution, moments and look-up table.

L = min(ceil(X), max_tokens), so P(L <= k) = P(X <= k) for whole k below the cap. Drawing is in `lockstep`; what is made
of the exact distributions is in `theory`.
"""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.model.capped import F64, I64, MAX_TOKENS, Capped, Family
from sweep.model.distributions import Distribution, Given, Lab, Mixture, UniformPart
from sweep.model.listed import Empirical

U32: TypeAlias = NDArray[np.uint32]

LAB_LONG_SHARE = 0.10
LAB_SHORT = (8, 40)
LAB_LONG = (400, 700)

# A table may take hundreds of MB (a cap of 2^24), and work goes point by point: few are worth keeping.
KEPT_TABLES = 8


class IntegerLengths(NamedTuple):
    """An exact distribution of whole lengths; the arrays are read-only.

    values : (k,), lengths of probability above 0, ascending.
    cdf    : (k,), P(L <= values); the last is exactly 1.
    at_cap : share of requests that a cap cuts or draws again, P(X > max_tokens); 0 without a cap. In a mixture each
             part counts with the tighter of its own cap and the whole's.
    """

    values: I64
    cdf: F64
    at_cap: float


class Moments(NamedTuple):
    """Mean in tokens and cv of lengths as they are drawn; cv is nan where the mean is 0."""

    mean: float
    cv: float


class LookUp(NamedTuple):
    """The inverse CDF on 32-bit words: word w has length values[first i with w <= last_word[i]].

    values    : (k,), lengths that at least one word gives, ascending.
    last_word : (k,), the last word of each; the last is 2^32 - 1.
    guide     : (65536,), guide[h] = first i with (h << 16) <= last_word[i], where a search for w >> 16 = h starts.
    """

    values: I64
    last_word: U32
    guide: U32


@lru_cache(maxsize=KEPT_TABLES)
def integer_lengths(spec: Distribution) -> IntegerLengths:
    """The exact distribution of lengths, after rounding up and after every cap."""
    if isinstance(spec, Lab):
        return integer_lengths(_lab_mixture())
    if isinstance(spec, Given):
        return integer_lengths(Empirical(values=spec.values))
    values, cdf = _cut(spec, _up_to(spec, MAX_TOKENS if spec.cap is None else spec.cap))
    happens = np.diff(cdf, prepend=0.0) > 0
    values, cdf = values[happens], cdf[happens]
    values.flags.writeable = cdf.flags.writeable = False
    return IntegerLengths(values, cdf, _share_at_cap(spec))


def moments(lengths: IntegerLengths) -> Moments:
    """Exact mean and cv of the lengths; summed by numpy, since the last digit of a dot product depends on the BLAS."""
    share = np.diff(lengths.cdf, prepend=0.0)
    mean = float((share * lengths.values).sum())
    deviation = float(np.sqrt((share * (lengths.values - mean) ** 2).sum()))
    return Moments(mean, deviation / mean if mean > 0 else float("nan"))


@lru_cache(maxsize=KEPT_TABLES)
def look_up_of(spec: Distribution) -> LookUp:
    """The look-up table of a distribution; neither `lab`, whose lengths are from `lab_lengths`, nor `given` has one."""
    assert not isinstance(spec, Lab | Given)
    return look_up(integer_lengths(spec))


def look_up(lengths: IntegerLengths) -> LookUp:
    """The inverse CDF as a table over 32-bit words: a length gets cdf * 2^32 words, rounded, up to its own."""
    words = np.rint(lengths.cdf * 2.0**32).astype(np.int64)
    drawn = np.diff(words, prepend=0) > 0
    last_word = (words[drawn] - 1).astype(np.uint32)
    guide = np.searchsorted(last_word, np.arange(1 << 16, dtype=np.uint32) << 16).astype(np.uint32)
    values = lengths.values[drawn]
    values.flags.writeable = last_word.flags.writeable = guide.flags.writeable = False
    return LookUp(values, last_word, guide)


def lab_lengths(first_seed: int, first: int, count: int, requests: int) -> I64:
    """Lengths of the reference lab, (count, requests): row i is its workload with seed first_seed + first + i."""
    lengths = np.empty((count, requests), dtype=np.int64)
    for row in range(count):
        rng = random.Random(first_seed + first + row)
        lengths[row] = [
            rng.randint(*LAB_LONG) if rng.random() < LAB_LONG_SHARE else rng.randint(*LAB_SHORT)
            for _ in range(requests)
        ]
    return lengths


class _Head(NamedTuple):
    """A distribution up to some length: values ascending, P(L <= values), and P(L > that length)."""

    values: I64
    cdf: F64
    above: float


def _up_to(spec: Family | Mixture, limit: int) -> _Head:
    """Lengths up to `limit` before the cap of `spec` itself."""
    if isinstance(spec, Mixture):
        return _mix(spec.weights, [_part_up_to(part, limit) for part in spec.parts])
    values = spec.possible(limit)
    cdf = np.maximum.accumulate(spec.cdf(values))  # special functions may step back by a last digit
    return _Head(values, cdf, float(spec.survival(np.array([limit]))[0]))


def _part_up_to(part: Family, limit: int) -> _Head:
    """Lengths up to `limit` after the part's own cap."""
    if part.cap is None:
        return _up_to(part, limit)
    values, cdf = _cut(part, _up_to(part, part.cap))
    kept = int(np.searchsorted(values, limit, side="right"))
    return _Head(values[:kept], cdf[:kept], 1.0 - float(cdf[kept - 1] if kept else 0.0))


def _mix(weights: Sequence[float], heads: Sequence[_Head]) -> _Head:
    values = np.unique(np.concatenate([head.values for head in heads]))
    cdf = np.zeros(len(values))
    for weight, head in zip(weights, heads, strict=True):
        steps = np.concatenate([[0.0], head.cdf])
        cdf += weight * steps[np.searchsorted(head.values, values, side="right")]
    above = sum(weight * head.above for weight, head in zip(weights, heads, strict=True))
    return _Head(values, np.minimum(cdf, 1.0), above)


def _cut(spec: Capped, head: _Head) -> tuple[I64, F64]:
    """Lengths and their CDF, which ends at exactly 1, when what is above the cap is clipped or drawn again."""
    values, cdf, above = head
    if spec.cap is None or above == 0:
        return values, np.concatenate([cdf[:-1], [1.0]])
    if spec.beyond == "redraw":
        return values, cdf / cdf[-1]
    below = int(np.searchsorted(values, spec.cap))
    return np.append(values[:below], spec.cap), np.append(cdf[:below], 1.0)


def _share_at_cap(spec: Family | Mixture) -> float:
    if isinstance(spec, Mixture):
        return sum(
            weight * _share_above(part, min((cap for cap in (part.cap, spec.cap) if cap is not None), default=None))
            for weight, part in zip(spec.weights, spec.parts, strict=True)
        )
    return _share_above(spec, spec.cap)


def _share_above(family: Family, cap: int | None) -> float:
    return 0.0 if cap is None else float(family.survival(np.array([cap]))[0])


def _lab_mixture() -> Mixture:
    short = UniformPart(weight=1 - LAB_LONG_SHARE, low=LAB_SHORT[0], high=LAB_SHORT[1])
    return Mixture(parts=(short, UniformPart(weight=LAB_LONG_SHARE, low=LAB_LONG[0], high=LAB_LONG[1])))

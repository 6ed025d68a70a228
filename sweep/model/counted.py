"""Whole numbers that are not negative, each once with how often it occurs: exact sums and percentiles of many of them.

Memory grows with how many different numbers there are, and not with how many there are. Nothing is rounded before the
last step, so a figure is the same however the numbers were cut into parts.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

I64: TypeAlias = NDArray[np.int64]
Whole: TypeAlias = NDArray[np.integer[Any]]

DENSE = 2**22  # numbers below have a place in an array, 32 MB at most; those above are kept sorted


class Counted(NamedTuple):
    """Numbers, each once and ascending, and how many there are of each; (values,)."""

    values: I64
    counts: I64

    @property
    def n(self) -> int:
        """How many numbers were counted."""
        return int(self.counts.sum())

    @property
    def total(self) -> int:
        """Their sum, exact."""
        return product_sum(self.values, self.counts)


class Counter:
    """Counts numbers as they come, a part at a time."""

    def __init__(self) -> None:
        self._dense: I64 = np.zeros(0, np.int64)
        self._above = Counted(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def add(self, numbers: Whole) -> None:
        """Counts these too, (n,)."""
        low = numbers < DENSE
        counts = np.bincount(numbers if low.all() else numbers[low], minlength=len(self._dense))
        counts[: len(self._dense)] += self._dense
        self._dense = counts
        if not low.all():
            self._above = _joined(self._above, counted(numbers[~low]))

    def counted(self) -> Counted:
        """What was counted so far."""
        values = np.flatnonzero(self._dense)
        both = (values, self._above.values), (self._dense[values], self._above.counts)
        return Counted(*map(np.concatenate, both))


def counted(numbers: Whole) -> Counted:
    """Numbers that are all in memory, (n,), as counts."""
    values, counts = np.unique(numbers, return_counts=True)
    return Counted(values.astype(np.int64), counts.astype(np.int64))


def percentiles(numbers: Counted, shares: Sequence[float]) -> list[float]:
    """The percentiles at these shares, in 0..100, by linear interpolation: those of numpy, to the last digit."""
    ranks = np.cumsum(numbers.counts)
    at = (ranks[-1] - 1) * (np.asarray(shares, np.float64) / 100)
    below = np.floor(at)
    low, high = (
        numbers.values[np.searchsorted(ranks, np.minimum(rank, ranks[-1] - 1), side="right")]
        for rank in (below, below + 1)
    )
    part, apart = at - below, high - low
    found: list[float] = np.where(part < 0.5, low + apart * part, high - apart * (1 - part)).tolist()
    return found


def cv(n: int, total: int, squares: int) -> float | None:
    """The population's deviation over the mean of n numbers with these sums; None where their sum is 0."""
    return math.sqrt(n * squares - total * total) / total if total else None


def product_sum(a: Whole, b: Whole) -> int:
    """The sum of a[i] * b[i] of numbers that are not negative, exact where it is beyond 64 bits; both (n,)."""
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    total = 0
    for place_a, x in enumerate(_halves(a)):
        for place_b, y in enumerate(_halves(b)):
            products = x * y  # of 32 bits each, so none wraps; nor does the sum of their halves
            total += ((int((products >> half).sum()) << 32) + int((products & mask).sum())) << 32 * (place_a + place_b)
    return total


def _halves(numbers: Whole) -> list[NDArray[np.uint64]]:
    """The numbers without their upper 32 bits and, where some have any, those."""
    words = numbers.astype(np.uint64)
    upper = words >> np.uint64(32)
    return [words & np.uint64(2**32 - 1), upper] if upper.any() else [words]


def _joined(one: Counted, other: Counted) -> Counted:
    values, places = np.unique(np.concatenate([one.values, other.values]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, places, np.concatenate([one.counts, other.counts]))
    return Counted(values, counts)

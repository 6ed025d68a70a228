"""Sums, extremes and a histogram of a column in as few passes as can be, without a copy of it.

Whole numbers are summed modulo 2^64; whoever asks knows from the extremes whether that is the sum itself. Other numbers
are added in the order of numpy's `sum`: halves of halves down to 128 values, and these in eight lanes (pairwise
summation; Higham, 1993), which keeps the error small and the last digit the same on any machine.
"""

import numpy as np
from numpy.typing import NDArray

from sweep.model.compiled import kernel

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_BLOCK = 128  # values that are added in lanes
_DEPTH = 64  # of the tree of halves, for any length there is


@kernel
def counted(values: I64) -> tuple[int, int, int, int]:
    """Places of the first smallest and the first largest, the sum and the sum of squares modulo 2^64, as int64.

    values : (n,), int64, n > 0.
    """
    low, high, total, squares = 0, 0, 0, 0
    smallest, largest = values[0], values[0]
    for place in range(len(values)):
        value = values[place]
        total += value
        squares += value * value
        if value < smallest:
            smallest, low = value, place
        if value > largest:
            largest, high = value, place
    return low, high, total, squares


@kernel
def product(a: I64, b: I64) -> int:
    """The sum of a[i] * b[i] modulo 2^64, as int64; both (n,), int64."""
    total = 0
    for place in range(len(a)):
        total += a[place] * b[place]
    return total


@kernel
def measured(values: F64) -> tuple[int, int, int, float, float]:
    """How many are known, places of the first smallest and largest of these, their mean and squared deviations.

    values : (n,), float64, nan where not known. The places are -1 and the rest 0 where none is known.
    """
    unknown, low, high = 0, -1, -1
    smallest, largest = np.inf, -np.inf
    for place in range(len(values)):
        value = values[place]
        if not smallest <= value <= largest:  # seldom, so that most values cost one branch
            if value != value:
                unknown += 1
                continue
            if value < smallest or low < 0:
                smallest, low = value, place
            if value > largest or high < 0:
                largest, high = value, place
    known = len(values) - unknown
    if known == 0:
        return 0, -1, -1, 0.0, 0.0
    if known < len(values):
        values = values[~np.isnan(values)]
    mean = _added(values, 0.0, values, 0.0, False) / known
    return known, low, high, mean, _added(values, mean, values, mean, True)


@kernel
def codeviation(a: F64, a_mean: float, b: F64, b_mean: float) -> float:
    """The sum of products of the deviations of a and b from their means; both (n,), float64, n > 0."""
    total: float = _added(a, a_mean, b, b_mean, True)
    return total


@kernel
def histogram(values: F64, lines: float, first: int, counts: I64) -> None:
    """Adds to `counts`, (places,), how many of the known values have the place `first` + i on a grid of 1 / `lines`."""
    for value in values:
        if value == value:
            nearest = np.rint(value * lines)
            line = nearest / lines
            counts[2 * np.int64(nearest) + np.int64(value > line) - np.int64(value < line) - first] += 1


@kernel
def _added(values, mean, others, others_mean, multiplied):
    """The sum of the values, or of products of deviations from the means, over a tree of halves from left to right."""
    lengths, lefts = np.empty(_DEPTH, np.int64), np.empty(_DEPTH, np.float64)
    is_right = np.zeros(_DEPTH, np.bool_)
    terms = np.empty(_BLOCK, np.float64)
    depth, start = 0, 0
    lengths[0] = len(values)
    while True:
        # down: to the leftmost block of this branch
        while lengths[depth] > _BLOCK:
            lengths[depth + 1] = _left(lengths[depth])
            depth += 1
            is_right[depth] = False
        # block: the terms, then their sum in lanes
        length = lengths[depth]
        for place in range(length):
            apart = values[start + place] - mean
            terms[place] = apart * (others[start + place] - others_mean) if multiplied else values[start + place]
        total = _in_lanes(terms, length)
        start += length
        # up: a right half joins its left one, and a left one gives way to its right
        while depth > 0 and is_right[depth]:
            total = lefts[depth] + total
            depth -= 1
        if depth == 0:
            return total
        lefts[depth], is_right[depth] = total, True
        lengths[depth] = lengths[depth - 1] - _left(lengths[depth - 1])


@kernel
def _left(length):
    """Values in the left half: whole lanes."""
    return length // 2 - length // 2 % 8


@kernel
def _in_lanes(terms, length):
    """The sum of the first `length` terms, at most a block."""
    if length < 8:
        total = 0.0
        for place in range(length):
            total += terms[place]
        return total
    r0, r1, r2, r3, r4, r5, r6, r7 = terms[0], terms[1], terms[2], terms[3], terms[4], terms[5], terms[6], terms[7]
    whole = length - length % 8
    for place in range(8, whole, 8):
        r0 += terms[place]
        r1 += terms[place + 1]
        r2 += terms[place + 2]
        r3 += terms[place + 3]
        r4 += terms[place + 4]
        r5 += terms[place + 5]
        r6 += terms[place + 6]
        r7 += terms[place + 7]
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for place in range(whole, length):
        total += terms[place]
    return total

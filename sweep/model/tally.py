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
def counted(values: I64, lows: I64, highs: I64) -> tuple[int, int]:
    """The sum and the sum of squares modulo 2^64, as int64. Writes the places of the smallest and the largest values.

    values : (n,), int64. lows, highs : (kept,), the most extreme first, of equal ones the first; -1 where none is left.
    """
    lows[:] = highs[:] = -1
    total, squares, last = 0, 0, len(lows) - 1
    low_edge, high_edge = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for place in range(len(values)):
        value = values[place]
        total += value
        squares += value * value
        if value < low_edge:
            _rank(values, place, lows, 1)
            low_edge = values[lows[last]] if lows[last] >= 0 else low_edge
        if value > high_edge:
            _rank(values, place, highs, -1)
            high_edge = values[highs[last]] if highs[last] >= 0 else high_edge
    return total, squares


@kernel
def product(a: I64, b: I64) -> int:
    """The sum of a[i] * b[i] modulo 2^64, as int64; both (n,), int64."""
    total = 0
    for place in range(len(a)):
        total += a[place] * b[place]
    return total


@kernel
def measured(values: F64, lows: I64, highs: I64) -> tuple[int, float, float]:
    """How many are known, their mean and squared deviations, 0 where none is. Writes places as `counted` does.

    values : (n,), float64, nan where not known.
    """
    lows[:] = highs[:] = -1
    unknown, last = 0, len(lows) - 1
    low_edge, high_edge = np.inf, -np.inf
    for place in range(len(values)):
        value = values[place]
        if not low_edge <= value <= high_edge:  # seldom, so that most values cost one branch
            if value != value:
                unknown += 1
                continue
            if value < low_edge or lows[last] < 0:
                _rank(values, place, lows, 1)
                low_edge = values[lows[last]] if lows[last] >= 0 else low_edge
            if value > high_edge or highs[last] < 0:
                _rank(values, place, highs, -1)
                high_edge = values[highs[last]] if highs[last] >= 0 else high_edge
    known = len(values) - unknown
    if known == 0:
        return 0, 0.0, 0.0
    if known < len(values):
        values = values[~np.isnan(values)]
    mean = _added(values, 0.0, False) / known
    return known, mean, _added(values, mean, True)


@kernel
def _rank(values, place, places, sign):
    """Puts a place among those of smaller values (larger ones for a sign of -1), and drops the last of them."""
    at = len(places) - 1
    while at > 0 and (places[at - 1] < 0 or sign * values[place] < sign * values[places[at - 1]]):
        places[at] = places[at - 1]
        at -= 1
    places[at] = place


@kernel
def codeviations(values: F64, mean: float, a: I64, a_mean: float, b: I64, b_mean: float) -> tuple[float, float]:
    """Sums of products of the deviations of values and a, and of values and b, from their means.

    values : (n,), float64; a, b : (n,), int64. In four lanes, which take a fifth of the time of a tree of halves.
    """
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
    whole = len(values) - len(values) % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = values[i] - mean, values[i + 1] - mean, values[i + 2] - mean, values[i + 3] - mean
        a0 += x0 * (a[i] - a_mean)
        a1 += x1 * (a[i + 1] - a_mean)
        a2 += x2 * (a[i + 2] - a_mean)
        a3 += x3 * (a[i + 3] - a_mean)
        b0 += x0 * (b[i] - b_mean)
        b1 += x1 * (b[i + 1] - b_mean)
        b2 += x2 * (b[i + 2] - b_mean)
        b3 += x3 * (b[i + 3] - b_mean)
    with_a, with_b = (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3)
    for i in range(whole, len(values)):
        with_a += (values[i] - mean) * (a[i] - a_mean)
        with_b += (values[i] - mean) * (b[i] - b_mean)
    return with_a, with_b


@kernel
def histogram(values: F64, lines: float, first: int, counts: I64) -> None:
    """Adds to `counts`, (places,), how many of the known values have the place `first` + i on a grid of 1 / `lines`."""
    for value in values:
        if value == value:
            nearest = np.rint(value * lines)
            line = nearest / lines
            counts[2 * np.int64(nearest) + np.int64(value > line) - np.int64(value < line) - first] += 1


@kernel
def _added(values, mean, squared):
    """The sum of the values, or of their squared deviations from `mean`, over a tree of halves from left to right."""
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
            terms[place] = apart * apart if squared else values[start + place]
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

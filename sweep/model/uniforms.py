"""Uniform numbers that are a function of (seed, stream, replicate, index) alone, for draws that are not lengths.

The generator is the Philox4x32-10 that `lockstep` draws lengths with: a word has counter (stream, replicate in two
words, index / 4) and the seed as its key. Left out: what the numbers are used for.
"""

import numpy as np
from numpy.typing import NDArray

from sweep.model.compiled import kernel
from sweep.model.lockstep import philox4x32

F64 = NDArray[np.float64]

BURSTS, PREDICTIONS, CLASSES = 4, 5, 6  # streams beside those of `lockstep`, which has 0 to 3

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms(seed: int, stream: int, first: int, count: int, numbers: int, start: int = 0) -> F64:
    """Numbers `start` and on of replicates `first` to `first + count`, (count, numbers), above 0 and below 1.

    They are the midpoints of 2^32 equal parts, so neither 0 nor 1 is among them.
    """
    block, end = start // 4, (start + numbers + 3) // 4
    drawn = np.empty((count, 4 * (end - block)), np.float64)
    key = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    _draw(*key, np.uint64(stream), np.uint64(first), np.uint64(block), drawn)
    return np.ascontiguousarray(drawn[:, start % 4 : start % 4 + numbers])


@kernel
def _draw(key0, key1, stream, first, start, drawn):
    """Fills each row with the numbers of a replicate, four to a block."""
    for row in range(np.uint64(drawn.shape[0])):
        replicate = first + np.uint64(row)
        low, high, numbers = replicate & _LOW, replicate >> _HALF, drawn[row]
        for block in range(np.uintp(drawn.shape[1]) // np.uintp(4)):
            four = philox4x32(stream, low, high, start + np.uint64(block), key0, key1)
            at = block * np.uintp(4)
            numbers[at] = _midpoint(four[0])
            numbers[at + np.uintp(1)] = _midpoint(four[1])
            numbers[at + np.uintp(2)] = _midpoint(four[2])
            numbers[at + np.uintp(3)] = _midpoint(four[3])


@kernel
def _midpoint(word):
    return (np.float64(word) + 0.5) / 4294967296.0

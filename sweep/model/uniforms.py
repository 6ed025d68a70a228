"""Uniform numbers that are a function of (seed, stream, replicate, index) alone, for draws that are not lengths.

The generator is the Philox4x32-10 that `lockstep` draws lengths with (Salmon, Moraes, Dror and Shaw, 2011), here on
whole arrays: a word has counter (stream, replicate in two words, index / 4) and the seed as its key. Left out: what the
numbers are used for.
"""

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]

BURSTS, PREDICTIONS, CLASSES = 4, 5, 6  # streams beside those of `lockstep`, which has 0 to 3

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10


def uniforms(seed: int, stream: int, first: int, count: int, numbers: int, start: int = 0) -> F64:
    """Numbers `start` and on of replicates `first` to `first + count`, (count, numbers), above 0 and below 1.

    They are the midpoints of 2^32 equal parts, so neither 0 nor 1 is among them.
    """
    blocks = np.arange(start // 4, (start + numbers + 3) // 4, dtype=np.uint64)
    replicates = np.arange(first, first + count, dtype=np.uint64)[:, None]
    zeros = np.zeros((count, blocks.size), np.uint64)
    counter = (zeros + np.uint64(stream), zeros + (replicates & _LOW), zeros + (replicates >> _HALF), zeros + blocks)
    words = np.stack(_philox(counter, np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)), axis=2)
    kept = words.reshape(count, -1)[:, start % 4 : start % 4 + numbers]
    return (kept.astype(np.float64) + 0.5) / 2.0**32


def _philox(counter: tuple[U64, U64, U64, U64], key0: np.uint64, key1: np.uint64) -> tuple[U64, U64, U64, U64]:
    """Four words of 32 bits for each counter, in uint64."""
    c0, c1, c2, c3 = counter
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c2 = (product1 >> _HALF) ^ c1 ^ key0, (product0 >> _HALF) ^ c3 ^ key1
        c1, c3 = product1 & _LOW, product0 & _LOW
        key0, key1 = (key0 + _INCREMENTS[0]) & _LOW, (key1 + _INCREMENTS[1]) & _LOW
    return c0, c1, c2, c3

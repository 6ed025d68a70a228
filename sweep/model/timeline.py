"""Which slot serves which request when, under both schedulers: one workload, to be looked at.

For one workload plain Python is quick enough; the kernels of `lockstep` keep no such record.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Bar(NamedTuple):
    """A request in its slot: it emits a token in each of the steps `first_step` to `last_step`, counted from 1."""

    request: int
    slot: int
    first_step: int
    last_step: int


def static_bars(lengths: Sequence[int], slots: int) -> list[Bar]:
    """Bars of static batching, in order of requests: a group starts when the one before has ended."""
    bars, start = [], 0
    for first in range(0, len(lengths), slots):
        group = lengths[first : first + slots]
        bars += [Bar(first + slot, slot, start + 1, start + length) for slot, length in enumerate(group) if length > 0]
        start += max(group)
    return bars


def continuous_bars(lengths: Sequence[int], slots: int) -> list[Bar]:
    """Bars of continuous batching, in order of requests; of several free slots the first in order is taken."""
    free = [(0, slot) for slot in range(min(slots, len(lengths)))]
    bars = []
    for request, length in enumerate(lengths):
        if length > 0:
            end, slot = free[0]
            bars.append(Bar(request, slot, end + 1, end + length))
            heapq.heapreplace(free, (end + length, slot))
    return bars


def steps(bars: Sequence[Bar]) -> int:
    """Steps until the last request ends."""
    return max((bar.last_step for bar in bars), default=0)

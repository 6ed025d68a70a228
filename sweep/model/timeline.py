"""Which slot serves which request when, under both schedulers: one workload, to be looked at.

For one workload plain Python is quick enough; the kernels of `lockstep` keep no such record.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sweep.model.times import AnyTimes


class Bar(NamedTuple):
    """A request in its slot: it emits a token in each of the steps `first_step` to `last_step`, counted from 1."""

    request: int
    slot: int
    first_step: int
    last_step: int


class Span(NamedTuple):
    """A request that came at `arrival` in its slot from `start` to `finish`, in seconds or in steps."""

    request: int
    slot: int
    arrival: float
    start: float
    finish: float


def spans_of(times: AnyTimes, *, in_seconds: bool) -> list[Span]:
    """Spans of the first of the workloads, in order of start: each takes the lowest slot that is free by then.

    A member of a static group that is done leaves its slot empty, since nobody starts before the whole group is done.
    Requests without output take no slot.
    """
    arrival, start, finish = (moments[0] for moments in (times.arrival, times.start, times.finish))
    unit = times.unit_s if in_seconds else 1.0
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # until when each slot is
    found = []
    for request in np.lexsort((np.arange(len(start)), start)).tolist():
        if not finish[request] > start[request]:
            continue
        while busy and busy[0][0] <= start[request]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (float(finish[request]), slot))
        moments = (float(moment[request] * unit) for moment in (arrival, start, finish))
        found.append(Span(request, slot, *moments))
    return found


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

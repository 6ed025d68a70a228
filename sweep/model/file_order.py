"""Steps of one long workload under both schedulers, for several numbers of slots, some requests at a time.

All requests wait from the start and are served in the order given. Between two parts a server needs only the times at
which its slots become free, a binary heap, and of static batching the longest of the group that is not full. So memory
grows with the slots and not with the requests. `lockstep` does the same for many short workloads side by side.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sweep.model.compiled import kernel
from sweep.model.heaps import put_time

I64 = NDArray[np.int64]


class FileOrder:
    """Both schedulers at each number of slots, and how far they are."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._slots = list(slots)
        self._requests = 0
        self._free = [np.zeros(0, np.int64) for _ in slots]
        self._groups = np.zeros((len(self._slots), 2), np.int64)  # the longest of the last group, steps before it

    def add(self, output_tokens: NDArray[np.integer]) -> None:
        """Serves these requests next, (requests,)."""
        lengths = output_tokens.astype(np.int64)
        before, self._requests = self._requests, self._requests + len(lengths)
        for server, places in enumerate(self._slots):
            self._free[server] = _at_least(self._free[server], min(places, self._requests))
            serve(lengths, before, places, self._free[server], self._groups[server])

    def steps(self) -> list[tuple[int, int]]:
        """Static and continuous steps of each server for what it was given so far."""
        return [
            (int(group.sum()), int(free.max(initial=0))) for group, free in zip(self._groups, self._free, strict=True)
        ]


def _at_least(free: I64, size: int) -> I64:
    """The heap with room for so many slots, and for as many again, so that it is seldom copied."""
    if size <= len(free):
        return free
    room = np.zeros(2 * size, np.int64)
    room[: len(free)] = free
    return room


@kernel
def serve(lengths: I64, before: int, slots: int, free: I64, group: I64) -> None:
    """Serves requests after `before` others; a slot is in the heap `free` once it has been taken."""
    for i in range(len(lengths)):
        length, number = lengths[i], before + i
        # static: the first of a group closes the one before
        if number % slots == 0:
            group[1] += group[0]
            group[0] = 0
        group[0] = max(group[0], length)
        # continuous: a slot that was never taken is free from the start
        if number < slots:
            put_time(free, number, length)
            continue
        end = free[0] + length
        place, child = 0, 1
        while child < slots:
            if child + 1 < slots and free[child + 1] < free[child]:
                child += 1
            if free[child] >= end:
                break
            free[place] = free[child]
            place, child = child, 2 * child + 1
        free[place] = end

"""Rows of a trace in order of time, holding no more of them than are out of order.

A row may be earlier than one before it, by no more than is known: what is older than that can go on. Where it is not
known, all rows are held. Rows of one time keep the order of the file.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

TILE = 2**20  # rows that are given at a time, so that nothing made of them is as long as the trace


class Timed(NamedTuple):
    """Rows in order of time: when they came and their outputs, (rows,)."""

    arrival_ns: I64
    output_tokens: I32


class TimeOrder:
    """Takes rows as they stand in a file and gives them in order. `late_ns` : how much too early one was at most."""

    def __init__(self, allowed_ns: int | None) -> None:
        """allowed_ns : by how much a row may be earlier than one before it; None: by anything."""
        self.late_ns = 0
        self._allowed_ns = allowed_ns
        self._newest_ns: int | None = None
        self._until_ns: int | None = None  # up to which rows can go on
        self._times: list[I64] = []
        self._outputs: list[I32] = []
        self._held = self._left = 0  # rows, and how many of these were left the last time

    @property
    def is_lost(self) -> bool:
        """Whether a row was earlier than allowed: no more are given, but `late_ns` is still that of all rows."""
        return self._allowed_ns is not None and self.late_ns > self._allowed_ns

    def add(self, arrival_ns: I64, output_tokens: NDArray[np.integer[Any]]) -> None:
        """Takes these rows next, (rows,)."""
        if not len(arrival_ns):
            return
        newest = np.maximum.accumulate(arrival_ns)
        if self._newest_ns is not None:
            np.maximum(newest, self._newest_ns, out=newest)
        self.late_ns = max(self.late_ns, int((newest - arrival_ns).max()))
        self._newest_ns = int(newest[-1])
        if self.is_lost:
            return
        self._until_ns = None if self._allowed_ns is None else self._newest_ns - self._allowed_ns
        self._times.append(arrival_ns)
        self._outputs.append(output_tokens.astype(np.int32))
        self._held += len(arrival_ns)

    def end(self) -> None:
        """Lets all rows go on: there are no more to come."""
        self._until_ns, self._left = self._newest_ns, 0

    def ready(self) -> Iterator[Timed]:
        """Gives the rows that none can come before any more."""
        if self.is_lost or self._until_ns is None or self._held < 2 * self._left:  # most would be sorted in vain
            return
        if self.late_ns == 0 and self._until_ns == self._newest_ns:  # in order as they stand, and all can go on
            self._held = 0
            while self._times:
                yield Timed(self._times.pop(0), self._outputs.pop(0))
            return
        times, outputs = _sorted(_column(self._times), _column(self._outputs))
        stop = int(np.searchsorted(times, self._until_ns, side="right"))
        for start in range(0, stop, TILE):
            tile = slice(start, min(start + TILE, stop))
            yield Timed(times[tile], outputs[tile])
        self._times, self._outputs = [times[stop:].copy()], [outputs[stop:].copy()]
        self._held = self._left = len(times) - stop


def _sorted(times: I64, outputs: I32) -> Timed:
    """Rows by time, those of one time in the order they have; `times` is used up."""
    if not _rises(times):
        order = np.argsort(times, kind="stable")
        outputs = outputs[order]
        del order  # before the next array as long as the rows
        times.sort()
    return Timed(times, outputs)


def _rises(times: I64) -> bool:
    tiles = (times[start : start + TILE + 1] for start in range(0, len(times), TILE))
    return all(bool((tile[1:] >= tile[:-1]).all()) for tile in tiles)


def _column(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; each is let go as it is copied."""
    stop = sum(map(len, parts))
    column = np.empty(stop, parts[0].dtype)
    while parts:
        part = parts.pop()
        column[stop - len(part) : stop] = part
        stop -= len(part)
    return column

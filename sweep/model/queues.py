"""How long requests that arrive over time wait, first come, first served, where every step takes the same time.

Replicates stand side by side in the lanes of vector registers, as in `lockstep`, and what is kept of each is small
numbers of steps: everything is counted from the last arrival, and a gap longer than all the work there is says no more
than that the server is empty.

- continuous: the times at which the slots become free stay sorted (Kiefer and Wolfowitz, 1955); a request starts at
  the smallest, or when it arrives, and its end is put in place by minima and maxima, four requests in one pass;
- static: a group lasts as long as its longest member, and the next starts when the server is free and there are enough
  requests, or the oldest has waited long enough.

The rest follows from the waits. Left out: other orders, clients, prompts that take time and steps that do not, for all
of which `arriving` goes through a workload by itself.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.model.compiled import kernel

LANES = np.uintp(32)
TILE = np.uintp(32)  # requests that are put into lanes at a time

_ZERO, _ONE, _TWO, _THREE, _FOUR = (np.uintp(number) for number in range(5))

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Array = NDArray[Any]


class Waited(NamedTuple):
    """What became of some workloads, in steps.

    wait : from the arrival of each request to its slot, (workloads, requests), of an unsigned type. steps : that gave a
    token, (workloads,). rest : from the last arrival until all is done, (workloads,).
    """

    wait: Array
    steps: I64
    rest: I64


def continuous_waits(arrival: F64, output: I64, slots: int) -> Waited:
    """What continuous batching makes of requests.

    arrival : (workloads, requests), whole steps from 0 on that never fall along a row; output : the same shape.
    """
    arrival, output = _of_one_kind(arrival, output)
    most = _most(output)
    waited = _room(output, (int(TILE) + 1) * most)
    _continuous(arrival, output, float(most), np.uint64(min(slots, output.shape[1])), *waited)
    return waited


def static_waits(arrival: F64, output: I64, slots: int, max_wait: int) -> Waited:
    """The same of static batching; max_wait : steps that the oldest request waits for its group to be full."""
    arrival, output = _of_one_kind(arrival, output)
    most = _most(output) + max_wait
    waited = _room(output, most)
    _static(arrival, output, float(most), np.uint64(min(slots, output.shape[1] + 1)), float(max_wait), *waited)
    return waited


def held_steps(arrival: F64, wait: Array, output: I64, start: F64, end: F64) -> F64:
    """Steps in which slots are held from `start` to `end`, (workloads,), by requests that wait so long."""
    held = np.zeros(len(output))
    _held(*_of_one_kind(arrival, output), wait, np.ascontiguousarray(start), np.ascontiguousarray(end), held)
    return held


def seconds_to_tokens(wait: Array, output: I64, first: int, unit_s: float, *, last: bool) -> F64:
    """Seconds from arrival to the first or to the last token of requests `first` and on; nan without output."""
    seconds = np.empty((len(output), output.shape[1] - first))
    _seconds_to_tokens(wait, np.require(output, np.int64, ["C", "W"]), np.uint64(first), unit_s, last, seconds)
    return seconds


def _of_one_kind(arrival: F64, output: I64) -> tuple[F64, I64]:
    """Both as the kernels take them, which are then compiled once."""
    return np.require(arrival, np.float64, ["C", "W"]), np.require(output, np.int64, ["C", "W"])


def _most(output: I64) -> int:
    """A step more than all the work of any workload, and so than a slot can be taken for after an arrival."""
    return int(output.sum(axis=1).max(initial=0)) + 1


def _room(output: I64, largest: int) -> Waited:
    """Room for the results, in the narrowest lanes that hold this number."""
    kind = np.uint32 if largest < np.iinfo(np.uint32).max else np.uint64
    return Waited(np.empty(output.shape, kind), *np.zeros((2, len(output)), np.int64))


@kernel
def _continuous(arrivals, outputs, most, slots, waits, steps, rest):
    """Free times are relative to the last arrival of the tile before.

    No slot is taken for as long as `most` after an arrival, so longer gaps are cut there, and within a tile of T
    requests all times are below (T + 1) most. Lanes past the last workload are served too, whatever they hold.
    """
    kind = waits.dtype.type
    workloads, requests = np.uintp(outputs.shape[0]), np.uintp(outputs.shape[1])
    slots = np.uintp(slots)
    comes, lengths, free, late, origin, until, ran = _new_lanes(slots, waits)
    for first in range(_ZERO, workloads, LANES):
        lanes = min(LANES, workloads - first)
        free[: slots * LANES] = kind(0)
        free[slots * LANES :] = ~kind(0)  # rows that make up a multiple of four are slots that are never free
        until[:] = kind(0)
        ran[:] = kind(0)
        for start in range(_ZERO, requests, TILE):
            rows = min(TILE, requests - start)
            _put_arrivals(arrivals, most, first, lanes, start, rows, comes, origin)
            _put_lengths(outputs, first, lanes, start, rows, lengths)
            _serve(comes, lengths, _whole_fours(rows), free, late, until, ran)
            _take(comes, first, lanes, start, rows, waits)
            _rebase(slots, free, until, origin)
        for lane in range(lanes):
            steps[first + lane], rest[first + lane] = np.int64(ran[lane]), np.int64(until[lane])


@kernel
def _new_lanes(slots, lane_type):
    """Arrays for a tile of requests and for what is known of a server, one lane for each workload."""
    kind = lane_type.dtype
    comes, lengths = np.zeros(TILE * LANES, kind), np.zeros(TILE * LANES, kind)
    free, late = np.empty(_whole_fours(slots) * LANES, kind), np.empty(_FOUR * LANES, kind)
    origin, until, ran = np.zeros(LANES, kind), np.empty(LANES, kind), np.empty(LANES, kind)
    return comes, lengths, free, late, origin, until, ran


@kernel
def _whole_fours(number):
    return (number + _THREE) // _FOUR * _FOUR


@kernel
def _put_arrivals(arrivals, most, first, lanes, start, rows, comes, origin):
    """Arrivals since the last one of the tile before, gaps cut at `most`; rows past the last are like it."""
    kind = comes.dtype.type
    for lane in range(lanes):
        arrival = arrivals[first + lane]
        before = arrival[start - _ONE] if start > _ZERO else 0.0
        come = kind(0)
        for row in range(rows):
            here = arrival[start + row]
            come = kind(come + kind(min(here - before, most)))
            comes[row * LANES + lane] = come
            before = here
        for row in range(rows, _whole_fours(rows)):
            comes[row * LANES + lane] = come
        origin[lane] = come


@kernel
def _put_lengths(outputs, first, lanes, start, rows, lengths):
    kind = lengths.dtype.type
    for lane in range(lanes):
        output = outputs[first + lane]
        for row in range(rows):
            lengths[row * LANES + lane] = kind(output[start + row])
        for row in range(rows, _whole_fours(rows)):
            lengths[row * LANES + lane] = kind(0)


@kernel
def _take(lanes_of, first, lanes, start, rows, waits):
    for lane in range(lanes):
        wait = waits[first + lane]
        for row in range(rows):
            wait[start + row] = lanes_of[row * LANES + lane]


@kernel
def _order(one, other):
    return min(one, other), max(one, other)


@kernel
def _four_rows(row):
    """Where four rows of lanes start."""
    at = row * LANES
    return at, at + LANES, at + _TWO * LANES, at + _THREE * LANES


@kernel
def _serve(comes, lengths, rows, free, late, until, ran):
    """Puts waits in the place of arrivals; `free` (slots, lanes) stays sorted in every lane, as in `lockstep`.

    Among the first four slots four requests start one after the other, each passing on the latest time that none of the
    rest of them can need. Those four are sorted, and merged with the other slots.
    """
    slots = np.uintp(free.size) // LANES
    kind = free.dtype.type  # without it sums are of 64 bits, and so are the lanes
    row0, row1, row2, row3 = _four_rows(_ZERO)
    for row in range(_ZERO, rows, _FOUR):
        at0, at1, at2, at3 = _four_rows(row)
        for lane in range(LANES):
            free0, free1, free2, free3 = free[row0 + lane], free[row1 + lane], free[row2 + lane], free[row3 + lane]
            come0, come1, come2, come3 = comes[at0 + lane], comes[at1 + lane], comes[at2 + lane], comes[at3 + lane]
            start0 = max(free0, come0)
            end0 = kind(start0 + lengths[at0 + lane])
            free1, end = _order(free1, end0)
            free2, end = _order(free2, end)
            free3, late0 = _order(free3, end)
            start1 = max(free1, come1)
            end1 = kind(start1 + lengths[at1 + lane])
            free2, end = _order(free2, end1)
            free3, late1 = _order(free3, end)
            start2 = max(free2, come2)
            end2 = kind(start2 + lengths[at2 + lane])
            free3, late2 = _order(free3, end2)
            start3 = max(free3, come3)
            late3 = end3 = kind(start3 + lengths[at3 + lane])

            comes[at0 + lane], comes[at1 + lane] = kind(start0 - come0), kind(start1 - come1)
            comes[at2 + lane], comes[at3 + lane] = kind(start2 - come2), kind(start3 - come3)
            reach0 = max(until[lane], end0)
            reach1, reach2 = max(reach0, end1), max(max(reach0, end1), end2)
            reach3 = max(reach2, end3)
            ran01 = kind(reach0 - max(until[lane], start0)) + kind(reach1 - max(reach0, start1))
            ran23 = kind(reach2 - max(reach1, start2)) + kind(reach3 - max(reach2, start3))
            ran[lane] = kind(ran[lane] + kind(ran01 + ran23))
            until[lane] = reach3

            late0, late1 = _order(late0, late1)
            late2, late3 = _order(late2, late3)
            late0, late2 = _order(late0, late2)
            late1, late3 = _order(late1, late3)
            late1, late2 = _order(late1, late2)
            late[row0 + lane], late[row1 + lane], late[row2 + lane], late[row3 + lane] = late0, late1, late2, late3
        for slot in range(_FOUR, slots, _FOUR):
            _merge(free, slot - _FOUR, late)
        last = (slots - _FOUR) * LANES
        for place in range(_FOUR * LANES):
            free[last + place] = late[place]


@kernel
def _merge(free, slot, late):
    """Puts the first four of `late` and the four slots after `slot` into these, and the last four into `late`.

    Both are sorted, and are merged by the network of Batcher (1968). It stands in `lockstep` too, for more lanes: one
    merge for both, with the number of lanes as an argument, takes up to 5 times as long.
    """
    row0, row1, row2, row3 = _four_rows(_ZERO)
    to0, to1, to2, to3 = _four_rows(slot)
    of0, of1, of2, of3 = _four_rows(slot + _FOUR)
    for lane in range(LANES):
        low0, high0 = _order(late[row0 + lane], free[of0 + lane])
        low1, high1 = _order(late[row1 + lane], free[of1 + lane])
        low2, high2 = _order(late[row2 + lane], free[of2 + lane])
        low3, high3 = _order(late[row3 + lane], free[of3 + lane])
        low2, high0 = _order(low2, high0)
        low3, high1 = _order(low3, high1)
        low1, low2 = _order(low1, low2)
        low3, high0 = _order(low3, high0)
        high1, high2 = _order(high1, high2)
        free[to0 + lane], free[to1 + lane], free[to2 + lane], free[to3 + lane] = low0, low1, low2, low3
        late[row0 + lane], late[row1 + lane], late[row2 + lane], late[row3 + lane] = high0, high1, high2, high3


@kernel
def _rebase(slots, free, until, origin):
    """Counts from the last arrival on: a slot that became free before is as good as one that becomes free then."""
    for lane in range(LANES):
        until[lane] = max(until[lane], origin[lane]) - origin[lane]
    for slot in range(slots):
        row = slot * LANES
        for lane in range(LANES):
            free[row + lane] = max(free[row + lane], origin[lane]) - origin[lane]


@kernel
def _static(arrivals, outputs, most, slots, max_wait, waits, steps, rest):
    """All is relative to the arrival of the request at hand, whose wait is what its group's start is."""
    kind = waits.dtype.type
    workloads, requests = np.uintp(outputs.shape[0]), np.uintp(outputs.shape[1])
    full = kind(slots)
    gaps, lengths, delays, wait, longest, members, ran = _new_groups(waits)
    for first in range(_ZERO, workloads, LANES):
        lanes = min(LANES, workloads - first)
        wait[:] = kind(0)
        longest[:] = kind(0)
        ran[:] = kind(0)
        members[:] = full
        for start in range(_ZERO, requests, TILE):
            rows = min(TILE, requests - start)
            _put_gaps(arrivals, most, first, lanes, start, rows, gaps)
            _put_delays(arrivals, max_wait, np.uintp(slots), first, lanes, start, rows, delays)
            _put_lengths(outputs, first, lanes, start, rows, lengths)
            _group(gaps, lengths, delays, rows, full, wait, longest, members, ran)
            _take(gaps, first, lanes, start, rows, waits)
        for lane in range(lanes):
            steps[first + lane] = np.int64(ran[lane]) + np.int64(longest[lane])
            rest[first + lane] = np.int64(wait[lane]) + np.int64(longest[lane])


@kernel
def _new_groups(lane_type):
    """Arrays for a tile of requests and for the group at hand."""
    kind = lane_type.dtype
    gaps, lengths, delays = np.zeros(TILE * LANES, kind), np.zeros(TILE * LANES, kind), np.zeros(TILE * LANES, kind)
    wait, longest = np.empty(LANES, kind), np.empty(LANES, kind)
    members, ran = np.empty(LANES, kind), np.empty(LANES, kind)
    return gaps, lengths, delays, wait, longest, members, ran


@kernel
def _put_gaps(arrivals, most, first, lanes, start, rows, gaps):
    kind = gaps.dtype.type
    for lane in range(lanes):
        arrival = arrivals[first + lane]
        before = arrival[start - _ONE] if start > _ZERO else 0.0
        for row in range(rows):
            here = arrival[start + row]
            gaps[row * LANES + lane] = kind(min(here - before, most))
            before = here


@kernel
def _put_delays(arrivals, max_wait, slots, first, lanes, start, rows, delays):
    """How long a group waits after its first request if the server is free: for its last one, up to `max_wait`."""
    kind = delays.dtype.type
    if max_wait == 0:
        return
    for lane in range(lanes):
        arrival = arrivals[first + lane]
        for row in range(rows):
            last = start + row + slots - _ONE
            delay = max_wait
            if last < arrival.size:
                delay = min(delay, arrival[last] - arrival[start + row])
            delays[row * LANES + lane] = kind(delay)


@kernel
def _group(gaps, lengths, delays, rows, full, wait, longest, members, ran):
    """Puts waits in the place of gaps."""
    kind = gaps.dtype.type
    for row in range(rows):
        at = row * LANES
        for lane in range(LANES):
            gap, before, lasts, many = gaps[at + lane], wait[lane], longest[lane], members[lane]
            joins = before >= gap and many != full
            end = kind(before + lasts)
            later = max(kind(max(end, gap) - gap), delays[at + lane])
            here = kind(before - gap) if joins else later
            ran[lane] = kind(ran[lane] + (kind(0) if joins else lasts))
            longest[lane] = max(lengths[at + lane], lasts if joins else kind(0))
            members[lane] = kind(many + kind(1)) if joins else kind(1)
            wait[lane] = here
            gaps[at + lane] = here


@kernel
def _held(arrivals, outputs, waits, starts, ends, held):
    """Adds whole numbers as such, since their order is all one and sums of floats would wait for each other."""
    for row in range(outputs.shape[0]):
        arrival, output, wait = arrivals[row], outputs[row], waits[row]
        total, start, end = np.int64(0), starts[row], ends[row]
        for request in range(outputs.shape[1]):
            here = arrival[request] + wait[request]
            total += np.int64(max(0.0, min(here + output[request], end) - max(here, start)))
        held[row] = total


@kernel
def _seconds_to_tokens(waits, outputs, first, unit_s, last, seconds):
    for row in range(seconds.shape[0]):
        wait, output = waits[row, first:], outputs[row, first:]
        for request in range(seconds.shape[1]):
            steps = np.float64(wait[request]) + (np.float64(output[request]) if last else 1.0)
            seconds[row, request] = steps * unit_s if output[request] > 0 else np.nan

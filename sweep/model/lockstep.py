"""Static and continuous batching where slots are the only limit, for many workloads at once.

Replicates stand side by side in the lanes of vector registers, `LANES` at a time, and move in lockstep through the
requests of their workloads. Both schedulers need far less than a loop over steps:

- static: a group lasts as long as its longest member, so a running maximum is enough;
- continuous: with the times at which the slots become free kept sorted, a request starts at the smallest, and its end
  is put in place by one pass of minimum and maximum (the recursion of Kiefer and Wolfowitz, 1955, for G/G/m queues).

Requests are drawn and scheduled a tile at a time, so memory depends on neither requests nor replicates. Left out:
prompts, memory, arrivals and preemption, which need the one-at-a-time kernel of `server`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from sweep.errors import InputError
from sweep.model.lengths import LookUp

OUTPUTS, PROMPTS, ARRIVALS, PREFIXES = 0, 1, 2, 3  # streams of draws, each with counters of its own

LANES = np.uintp(128)
TILES = (64, 32, 16)  # requests drawn at a time; a smaller tile lets longer requests keep to 16 bits
HEAP_SLOTS = 768  # from here on a heap per replicate (50 ns a request) beats sorted lanes (0.05 ns a slot)

_ZERO, _ONE, _TWO, _FOUR = np.uintp(0), np.uintp(1), np.uintp(2), np.uintp(4)
_U16, _U32 = np.uint32(16), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
# Multipliers and key increments of Philox4x32 (Salmon, Moraes, Dror and Shaw, 2011).
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

I64 = NDArray[np.int64]
F = TypeVar("F", bound=Callable[..., Any])


class Steps(NamedTuple):
    """What both schedulers made of some replicates of one point, for each of its servers.

    output_tokens, longest_output_tokens : (replicates,); static, continuous : (servers, replicates), in steps.
    """

    output_tokens: I64
    longest_output_tokens: I64
    static: I64
    continuous: I64


def static_steps(lengths: ArrayLike, slots: int) -> Any:
    """Steps that static batching takes: the sum over groups of `slots` requests of the longest in each.

    lengths : (requests,) or (replicates, requests), integers >= 0, in order of arrival, all waiting at step 0.
    Gives an int for one workload, an int64 array (replicates,) for several. Raises InputError.
    """
    rows = _checked_lengths(lengths, slots)
    steps = given_steps(np.atleast_2d(rows), [slots]).static[0]
    return steps if rows.ndim == 2 else int(steps[0])


def continuous_steps(lengths: ArrayLike, slots: int) -> Any:
    """Steps that continuous batching takes, first come first served, a freed slot refilled in the next step.

    Arguments, result and errors as for `static_steps`.
    """
    rows = _checked_lengths(lengths, slots)
    steps = given_steps(np.atleast_2d(rows), [slots]).continuous[0]
    return steps if rows.ndim == 2 else int(steps[0])


def drawn_steps(look_up: LookUp, seed: int, first: int, count: int, requests: int, slots: Sequence[int]) -> Steps:
    """Steps of replicates `first` to `first + count` of a workload of `requests` independent outputs."""
    lanes, tile = _lane_type(int(look_up.values[-1]), requests, slots)
    key = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    tables = look_up.guide, look_up.last_word, look_up.values.astype(lanes)
    fill = partial(_drawn, *key, np.uint64(first), np.uint64(requests), np.uint64(tile), *tables)
    return _servers(fill, count, requests, slots)


def given_steps(lengths: I64, slots: Sequence[int]) -> Steps:
    """Steps of workloads with known outputs, (replicates, requests) of int64."""
    count, requests = lengths.shape
    lanes, tile = _lane_type(int(lengths.max(initial=0)), requests, slots)
    fill = partial(_given, np.uint64(tile), np.ascontiguousarray(lengths), np.zeros(1, lanes))
    return _servers(fill, count, requests, slots)


def draw_lengths(look_up: LookUp, seed: int, first: int, count: int, requests: int, stream: int = OUTPUTS) -> I64:
    """Lengths of replicates `first` to `first + count`, (count, requests): those that `drawn_steps` schedules."""
    lengths = np.empty((count, requests), np.int64)
    words = np.empty(_FOUR * LANES, np.uint32)
    key = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    tables = look_up.guide, look_up.last_word, look_up.values
    _drawn_lengths(*key, np.uint64(stream), np.uint64(first), *tables, words, lengths)
    return lengths


def _servers(fill: Callable[..., None], count: int, requests: int, slots: Sequence[int]) -> Steps:
    """Runs the kernel for the servers with a queue; one with a slot for each request needs only the longest."""
    queueing = [server for server, places in enumerate(slots) if places < requests]
    some = np.array([slots[server] for server in queueing], np.uint64)
    tokens, longest = np.empty(count, np.int64), np.empty(count, np.int64)
    static, continuous = np.empty((len(some), count), np.int64), np.empty((len(some), count), np.int64)
    fill(some, tokens, longest, static, continuous)
    steps = Steps(tokens, longest, np.tile(longest, (len(slots), 1)), np.tile(longest, (len(slots), 1)))
    steps.static[queueing], steps.continuous[queueing] = static, continuous
    return steps


def _lane_type(longest: int, requests: int, slots: Sequence[int]) -> tuple[type[Any], int]:
    """The narrowest lanes, and the largest tile, in which no time of a tile can overflow.

    Times are kept relative to the first slot to be free when a tile starts. Then no slot is taken for more than
    `longest`, since it was taken no later than that. Within a tile of T requests on m slots the smallest time is at
    most the mean, (m - 1 + T) longest / m, and an end is at most `longest` after it: below (2 + T / m) longest.
    """
    fewest = min([places for places in slots if places < requests], default=1)
    for lanes in (np.uint16, np.uint32):
        for tile in TILES:
            if (2 * fewest + tile) * longest <= np.iinfo(lanes).max * fewest:
                return lanes, tile
    return np.uint64, TILES[0]


def _checked_lengths(lengths: ArrayLike, slots: int) -> I64:
    if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or slots < 1:
        raise InputError(f"slots: must be an integer of at least 1, got {slots!r}")
    array = np.asarray(lengths)
    if array.ndim not in (1, 2):
        raise InputError(f"lengths: must be (requests,) or (replicates, requests), got {array.ndim} dimensions")
    if array.size == 0:
        return np.zeros((*array.shape[:-1], 1), np.int64)  # no requests take no steps, as one of no tokens
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"lengths: must be integers (output tokens of each request), got {array.dtype}")
    if array.min() < 0:
        raise InputError(f"lengths: must be at least 0, got {array.min()}")
    if float(array.sum(axis=-1, dtype=np.float64).max()) >= 2**62:
        raise InputError("lengths: add up to more than 2^62 tokens in a workload")
    return array.astype(np.int64)


def kernel(function: F) -> F:
    """The function as machine code, compiled at its first call and kept on disk; it does not hold the interpreter."""
    return cast(F, njit(cache=True, nogil=True)(function))


@kernel
def _drawn(key0, key1, first, requests, tile, guide, last_word, values, slots, tokens, longest, static, continuous):
    """Draws and schedules all replicates of the outputs; lanes past the last replicate are simulated and dropped."""
    state = _new_state(slots, values)
    lengths = np.empty(tile * LANES, values.dtype)
    words = np.empty(_FOUR * LANES, np.uint32)
    for block in range((np.uintp(tokens.size) + LANES - _ONE) // LANES):
        replicate = np.uint64(first) + np.uint64(block * LANES)
        _reset(state)
        for start in range(np.uintp(0), np.uintp(requests), np.uintp(tile)):
            some = min(np.uintp(tile), np.uintp(requests) - start)
            for row in range(np.uintp(0), some, _FOUR):
                _draw_words(key0, key1, np.uint64(0), np.uint64((start + row) // _FOUR), replicate, words)
                _look_up(words, guide, last_word, values, lengths, row * LANES)
            _schedule(slots, lengths, some, state)
        _finish(slots, state, block * LANES, tokens, longest, static, continuous)


@kernel
def _given(tile, workloads, lane_type, slots, tokens, longest, static, continuous):
    """Schedules workloads that are given; lanes past the last one stay empty."""
    state = _new_state(slots, lane_type)
    lengths = np.zeros(tile * LANES, lane_type.dtype)
    replicates, requests = np.uintp(workloads.shape[0]), np.uintp(workloads.shape[1])
    for block in range((replicates + LANES - _ONE) // LANES):
        first = block * LANES
        _reset(state)
        for start in range(np.uintp(0), requests, np.uintp(tile)):
            some = min(np.uintp(tile), requests - start)
            for lane in range(LANES):
                for row in range(some):
                    here = first + lane < replicates
                    lengths[row * LANES + lane] = workloads[first + lane, start + row] if here else 0
            _schedule(slots, lengths, some, state)
        _finish(slots, state, first, tokens, longest, static, continuous)


@kernel
def _drawn_lengths(key0, key1, stream, first, guide, last_word, values, words, workloads):
    """Writes the lengths of all replicates, one block of lanes after the other."""
    replicates, requests = np.uintp(workloads.shape[0]), np.uintp(workloads.shape[1])
    lengths = np.empty(words.size, values.dtype)
    for block in range((replicates + LANES - _ONE) // LANES):
        replicate = np.uint64(first) + np.uint64(block * LANES)
        for start in range(np.uintp(0), requests, _FOUR):
            _draw_words(key0, key1, stream, np.uint64(start // _FOUR), replicate, words)
            _look_up(words, guide, last_word, values, lengths, _ZERO)
            for row in range(min(_FOUR, requests - start)):
                for lane in range(min(LANES, replicates - block * LANES)):
                    workloads[block * LANES + lane, start + row] = lengths[row * LANES + lane]


@kernel
def philox4x32(counter0, counter1, counter2, counter3, key0, key1):
    """Four 32-bit words of Philox4x32-10 (Salmon et al., 2011), each in a uint64 as are counter and key."""
    for _ in range(10):
        product0, product1 = _M0 * counter0, _M1 * counter2
        counter0, counter2 = (product1 >> _U32) ^ counter1 ^ key0, (product0 >> _U32) ^ counter3 ^ key1
        counter1, counter3 = product1 & _LOW, product0 & _LOW
        key0, key1 = (key0 + _W0) & _LOW, (key1 + _W1) & _LOW
    return counter0, counter1, counter2, counter3


@kernel
def _draw_words(key0, key1, stream, block, first, words):
    """Words of four requests for each lane: counter (stream, replicate in two words, block of four), key the seed."""
    for lane in range(LANES):
        replicate = first + np.uint64(lane)
        four = philox4x32(stream, replicate & _LOW, replicate >> _U32, block, key0, key1)
        words[lane] = four[0]
        words[LANES + lane] = four[1]
        words[_TWO * LANES + lane] = four[2]
        words[_TWO * LANES + LANES + lane] = four[3]


@kernel
def _look_up(words, guide, last_word, values, lengths, at):
    """Lengths of words: the first entry whose last word is not below; the guide knows where to start from 16 bits."""
    for place in range(np.uintp(words.size)):
        word = words[place]
        entry = np.uintp(guide[word >> _U16])
        while word > last_word[entry]:
            entry += _ONE
        lengths[at + place] = values[entry]


@kernel
def _new_state(slots, lane_type):
    """Arrays that the servers of a block of lanes work on; those of the lane type first."""
    servers = np.uintp(slots.size)
    places = np.uintp(0)
    for server in range(servers):
        places += np.uintp(slots[server])
    free = np.empty(places * LANES, lane_type.dtype)  # when each slot becomes free, relative to `origin`
    group = np.empty(servers * LANES, lane_type.dtype)  # longest of the current static group
    longest = np.empty(LANES, lane_type.dtype)
    carry = np.empty(LANES, lane_type.dtype)
    origin = np.empty(servers * LANES, np.int64)
    static = np.empty(servers * LANES, np.int64)
    tokens = np.empty(LANES, np.int64)
    members = np.empty(servers, np.uintp)  # of the current static group
    return free, group, longest, carry, origin, static, tokens, members


@kernel
def _reset(state):
    free, group, longest, _, origin, static, tokens, members = state
    free[:] = 0
    group[:] = 0
    longest[:] = 0
    origin[:] = 0
    static[:] = 0
    tokens[:] = 0
    members[:] = 0


@kernel
def _schedule(slots, lengths, requests, state):
    """Passes a tile of requests through every server; all of them meet the same one."""
    free, group, longest, carry, origin, static, tokens, members = state
    _count(lengths, requests, longest, tokens)
    at = _ZERO
    for server in range(np.uintp(slots.size)):
        places = np.uintp(slots[server])
        lane = server * LANES
        members[server] = _static(
            lengths, requests, places, members[server], group[lane : lane + LANES], static[lane : lane + LANES]
        )
        mine = free[at : at + places * LANES]
        if places < HEAP_SLOTS:
            _continuous(lengths, requests, places, mine, carry)
            _rebase(places, mine, carry, origin[lane : lane + LANES])
        else:
            _continuous_heap(lengths, requests, places, mine)
            _rebase_heap(places, mine, origin[lane : lane + LANES])
        at += places * LANES


@kernel
def _count(lengths, requests, longest, tokens):
    """Adds up the tokens of a tile, and keeps the longest request."""
    for request in range(requests):
        row = np.uintp(request) * LANES
        for lane in range(LANES):
            tokens[lane] += np.int64(lengths[row + lane])
            longest[lane] = max(longest[lane], lengths[row + lane])


@kernel
def _static(lengths, requests, slots, members, group, steps):
    """Keeps the longest of the current group; a full group adds it to the steps. Gives the members of the last one."""
    for request in range(requests):
        row = np.uintp(request) * LANES
        for lane in range(LANES):
            group[lane] = max(group[lane], lengths[row + lane])
        members += _ONE
        if members == slots:
            for lane in range(LANES):
                steps[lane] += np.int64(group[lane])
                group[lane] = 0
            members = _ZERO
    return members


@kernel
def _continuous(lengths, requests, slots, free, carry):
    """Gives each request the slot that is free first; `free` (slots, lanes) stays sorted in every lane."""
    for request in range(requests):
        row = np.uintp(request) * LANES
        for lane in range(LANES):
            carry[lane] = free[lane] + lengths[row + lane]  # the end of this request
        for slot in range(_ONE, slots):
            here, before = slot * LANES, slot * LANES - LANES
            for lane in range(LANES):
                later, end = free[here + lane], carry[lane]
                free[before + lane] = min(later, end)
                carry[lane] = max(later, end)
        last = slots * LANES - LANES
        for lane in range(LANES):
            free[last + lane] = carry[lane]


@kernel
def _rebase(slots, free, carry, origin):
    """Moves the origin of each lane to its first free slot, so that times stay small."""
    for lane in range(LANES):
        carry[lane] = free[lane]
        origin[lane] += np.int64(free[lane])
    for slot in range(slots):
        row = slot * LANES
        for lane in range(LANES):
            free[row + lane] -= carry[lane]


@kernel
def _continuous_heap(lengths, requests, slots, free):
    """The same with a binary heap for each lane, `free` (lanes, slots) with the first free slot at its root."""
    for lane in range(LANES):
        root = lane * slots
        for request in range(requests):
            end = free[root] + lengths[np.uintp(request) * LANES + lane]
            hole, child = _ZERO, _ONE
            while child < slots:
                if child + _ONE < slots and free[root + child + _ONE] < free[root + child]:
                    child += _ONE
                if free[root + child] >= end:
                    break
                free[root + hole] = free[root + child]
                hole, child = child, child + child + _ONE
            free[root + hole] = end


@kernel
def _rebase_heap(slots, free, origin):
    for lane in range(LANES):
        root = lane * slots
        first = free[root]
        origin[lane] += np.int64(first)
        for slot in range(slots):
            free[root + slot] -= first


@kernel
def _finish(slots, state, first, tokens, longest, static, continuous):
    """Writes the steps of a block of lanes: a last, smaller group counts, and the last slot to be free ends the run."""
    free, group, block_longest, _, origin, block_static, block_tokens, _ = state
    lanes = min(LANES, np.uintp(tokens.size) - first)
    for lane in range(lanes):
        tokens[first + lane] = block_tokens[lane]
        longest[first + lane] = np.int64(block_longest[lane])
    at = _ZERO
    for server in range(np.uintp(slots.size)):
        places = np.uintp(slots[server])
        sorted_lanes = places < HEAP_SLOTS
        for lane in range(lanes):
            here = server * LANES + lane
            static[server, first + lane] = block_static[here] + np.int64(group[here])
            end = free[at + lane]
            for slot in range(places):
                end = max(end, free[at + (slot * LANES + lane if sorted_lanes else lane * places + slot)])
            continuous[server, first + lane] = origin[here] + np.int64(end)
        at += places * LANES

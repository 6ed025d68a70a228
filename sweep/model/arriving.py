"""Static and continuous batching of requests that arrive over time: when each waits, starts, speaks and ends.

Slots are the only limit, as in `lockstep`, and a step gives every running request a token. A step may take any time
that `steptime` knows; with a constant one the clock counts whole steps, so that times are exact. Prompts are computed
one at a time, each in a step of its own in which nobody else moves on; a request with a prompt of P tokens reads P + s
tokens of KV cache in its step s.

Who waits is taken by rank, the lowest first, then in order of arrival; nobody who runs is stopped. Requests arrive at
given times, or from clients that send the next one some time after the last answer. Given times, one rank and equal
steps are left to the lanes of `queues`. Left out: blocks, preemption and token budgets, which are the business of
`server`.
"""

import numpy as np
from numpy.typing import NDArray

from sweep.model.compiled import kernel
from sweep.model.heaps import put_request, put_time, take_request, take_time
from sweep.model.queues import Waited, continuous_waits, static_waits
from sweep.model.stepcost import NEVER, step_seconds_at
from sweep.model.steptime import CONSTANT, Constant, StepTime
from sweep.model.times import AnyTimes, Requests, Times, Waits, in_units, packed_in_units, unit_s

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

LANE_SLOTS = 4096  # up to which lanes are quicker: they take 0.04 ns a slot, and a heap 120 to 210 for all of them
MOST_EXACT = 2.0**53  # below it every whole number of steps is a float64


def continuous_times(step_time: StepTime, requests: Requests, slots: int, *, charged: bool = True) -> AnyTimes:
    """What continuous batching does: a free slot is taken at once when somebody waits.

    charged : whether prompts take time; they are read from the KV cache in any case.
    """
    equal = isinstance(step_time, Constant) and not (charged and requests.prompt.any())
    arrival = _in_whole_steps(step_time, requests) if equal and slots <= LANE_SLOTS else None
    if arrival is not None:
        return _waits(arrival, requests, continuous_waits(arrival, requests.output, slots), step_time)
    code, think, times = _prepared(step_time, requests)
    output, prompt, rank = _tokens_and_rank(requests)
    if equal:
        _continuous_equal(requests.clients, think, output, rank, slots, *times[:5])
    else:
        _continuous(code, requests.clients, think, output, prompt, rank, slots, charged, *times[:5])
    return times


def static_times(
    step_time: StepTime,
    requests: Requests,
    slots: int,
    *,
    charged: bool = True,
    max_wait_s: float = 0.0,
    padded: bool = True,
) -> AnyTimes:
    """What static batching does: a group starts when the server is free and `slots` requests wait, or when one of them
    has waited for `max_wait_s`; all of it leaves before the next one starts.

    padded : members that are done go on computing until the longest is done; or they leave the batch. Either way their
    answer is complete, and leaves, with their last token.
    """
    wait = float(in_units(np.array(max_wait_s), step_time))
    equal = isinstance(step_time, Constant) and not (charged and requests.prompt.any())
    arrival = _in_whole_steps(step_time, requests, wait) if equal else None
    if arrival is not None:
        return _waits(arrival, requests, static_waits(arrival, requests.output, slots, int(wait)), step_time)
    code, think, times = _prepared(step_time, requests)
    _static(code, requests.clients, think, *_tokens_and_rank(requests), slots, charged, wait, padded, *times[:5])
    return times


def _in_whole_steps(step_time: StepTime, requests: Requests, max_wait: float = 0.0) -> F64 | None:
    """Arrivals as `queues` takes them; None if it does not apply, or times would be too large to be exact."""
    if not requests.by_arrival:
        return None
    arrival = in_units(requests.arrival_s, step_time)
    if arrival.shape != requests.output.shape:
        arrival = np.broadcast_to(arrival, requests.output.shape).copy()
    last = arrival[:, -1].max(initial=0) + float(requests.output.sum(axis=1).max(initial=0)) + max_wait
    return arrival if last < MOST_EXACT else None


def _waits(arrival: F64, requests: Requests, waited: Waited, step_time: StepTime) -> Waits:
    over = arrival[:, -1] + waited.rest
    return Waits(arrival, waited.wait, requests.output, waited.steps, over, unit_s(step_time))


def _prepared(step_time: StepTime, requests: Requests) -> tuple[F64, F64, Times]:
    """The step time and the thinking on the clock of the kernel, and room for the times."""
    arrival, think = in_units(requests.arrival_s, step_time), in_units(requests.think_s, step_time)
    shape = requests.output.shape
    room = Times(
        np.broadcast_to(arrival, shape).copy(),
        np.empty(shape, np.float64),
        np.full(shape, np.nan),
        np.empty(shape, np.float64),
        np.zeros(shape[0], np.int64),
        unit_s(step_time),
    )
    return packed_in_units(step_time), np.broadcast_to(think, shape).copy(), room


def _tokens_and_rank(requests: Requests) -> tuple[I64, I64, F64]:
    """Outputs, prompts and ranks as arrays of one kind, so that the kernels are compiled once."""
    wide = (np.broadcast_to(array, requests.output.shape) for array in (requests.output, requests.prompt))
    output, prompt = (np.require(array, np.int64, ["C", "W"]) for array in wide)
    rank = np.broadcast_to(requests.rank, requests.output.shape)
    return output, prompt, np.require(rank, np.float64, ["C", "W"])


@kernel
def _continuous_equal(clients, thinks, outputs, ranks, slots, come, starts, firsts, finishes, steps):
    """Where all steps are equal a request ends its length after its start: it is enough to know when slots free up."""
    requests = outputs.shape[1]
    free = np.empty(min(slots, requests), np.float64)  # a heap: when each slot becomes free
    waiting = np.empty(requests, np.int64)
    thinking = np.empty(max(1, clients), np.float64)
    for row in range(outputs.shape[0]):
        arrival, think, output, rank = come[row], thinks[row], outputs[row], ranks[row]
        start, first, finish = starts[row], firsts[row], finishes[row]
        free[:] = 0.0
        thinking[:] = 0.0
        now, busy_until, away, joined, waits = 0.0, 0.0, clients, 0, 0
        for _ in range(requests):
            # wait: for a free slot, and for somebody to come
            now = max(now, free[0])
            coming = next_arrival(arrival, joined, clients, thinking, away)
            if waits == 0:
                now = max(now, coming)
            # join: all who have come by now
            while coming <= now:
                if clients > 0:
                    arrival[joined] = coming
                    away = take_time(thinking, away)
                waits = put_request(waiting, waits, rank, joined)
                joined += 1
                coming = next_arrival(arrival, joined, clients, thinking, away)
            # serve: who goes first has the slot until its end
            request = waiting[0]
            waits = take_request(waiting, waits, rank)
            end = now + output[request]
            start[request], finish[request] = now, end
            if output[request] > 0:
                first[request] = now + 1.0
            put_time(free, take_time(free, free.size), end)
            if clients > 0:
                away = put_time(thinking, away, end + think[request])
            # steps that run: starts never fall, so those before `busy_until` have been counted
            steps[row] += int(max(0.0, end - max(now, busy_until)))
            busy_until = max(busy_until, end)


@kernel
def _continuous(code, clients, thinks, outputs, prompts, ranks, slots, charged, come, starts, firsts, finishes, steps):
    requests = outputs.shape[1]
    most = min(slots, requests)
    ends, texts, who = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    waiting = np.empty(requests, np.int64)
    thinking = np.empty(max(1, clients), np.float64)
    for row in range(outputs.shape[0]):
        arrival, think, output = come[row], thinks[row], outputs[row]
        prompt, rank = prompts[row], ranks[row]
        start, first, finish = starts[row], firsts[row], finishes[row]
        thinking[:] = 0.0
        away = clients
        now, step, kv_tokens, next_end = 0.0, 0, 0, NEVER
        joined, waits, batch, fresh, done = 0, 0, 0, 0, 0  # `fresh`: from this place on members have no token yet
        while done < requests:
            # wait: with nobody here the clock jumps to the next arrival
            coming = next_arrival(arrival, joined, clients, thinking, away)
            if batch == 0 and waits == 0:
                now = max(now, coming)
            # join: all who have come by now
            while coming <= now:
                if clients > 0:
                    arrival[joined] = coming
                    away = take_time(thinking, away)
                waits = put_request(waiting, waits, rank, joined)
                joined += 1
                coming = next_arrival(arrival, joined, clients, thinking, away)
            # admit: who comes first by rank takes a free slot, its prompt in a step of its own; then look again
            if batch < slots and waits > 0:
                request = waiting[0]
                waits = take_request(waiting, waits, rank)
                start[request] = now
                if output[request] == 0:
                    finish[request] = now
                    done += 1
                    if clients > 0:
                        away = put_time(thinking, away, now + think[request])
                    continue
                if charged and prompt[request] > 0:
                    now += step_seconds_at(code, 0, 0, prompt[request])
                who[batch], ends[batch] = request, step + output[request]
                texts[batch] = prompt[request] + output[request]
                kv_tokens += prompt[request]
                next_end = min(next_end, ends[batch])
                batch += 1
                continue
            # step: until the next request is done, or somebody comes to a free slot
            while step < next_end and not (batch < slots and coming <= now and fresh == batch):
                step += 1
                kv_tokens += batch
                now += step_seconds_at(code, batch, kv_tokens, 0)
                for place in range(fresh, batch):
                    first[who[place]] = now
                fresh = batch
            # retire: who is done gives back the slot
            kept = 0
            if step == next_end:
                next_end = NEVER
                for place in range(batch):
                    if ends[place] == step:
                        kv_tokens -= texts[place]
                        finish[who[place]] = now
                        done += 1
                        if clients > 0:
                            away = put_time(thinking, away, now + think[who[place]])
                    else:
                        ends[kept], texts[kept], who[kept] = ends[place], texts[place], who[place]
                        next_end = min(next_end, ends[kept])
                        kept += 1
                batch = fresh = kept
        steps[row] = step


@kernel
def _static(
    code,
    clients,
    thinks,
    outputs,
    prompts,
    ranks,
    slots,
    charged,
    max_wait,
    padded,
    come,
    starts,
    firsts,
    finishes,
    steps,
):
    requests = outputs.shape[1]
    who = np.empty(min(slots, requests), np.int64)
    waiting = np.empty(requests, np.int64)
    thinking = np.empty(max(1, clients), np.float64)
    taken = np.empty(requests, np.bool_)
    for row in range(outputs.shape[0]):
        arrival, think, output = come[row], thinks[row], outputs[row]
        prompt, rank = prompts[row], ranks[row]
        start, first, finish = starts[row], firsts[row], finishes[row]
        thinking[:] = 0.0
        taken[:] = False
        away = clients
        now, joined, waits, oldest, done = 0.0, 0, 0, 0, 0
        while done < requests:
            # wait: until a group is full, or until the oldest who waits has done so long enough; all who come join
            while True:
                while oldest < joined and taken[oldest]:
                    oldest += 1
                coming = next_arrival(arrival, joined, clients, thinking, away)
                until = now
                if waits == 0:
                    until = max(now, coming)
                elif waits < slots:
                    until = max(now, arrival[oldest] + max_wait)
                if coming > until or joined == requests:
                    now = until
                    break
                now = max(now, coming)
                if clients > 0:
                    arrival[joined] = coming
                    away = take_time(thinking, away)
                waits = put_request(waiting, waits, rank, joined)
                joined += 1
            # start: the group, by rank
            members, batch, longest, kv_tokens, next_end = 0, 0, 0, 0, NEVER
            while members < slots and waits > 0:
                request = waiting[0]
                waits = take_request(waiting, waits, rank)
                who[members], start[request], taken[request] = request, now, True
                members += 1
                if output[request] > 0:
                    batch += 1
                    kv_tokens += prompt[request]
                    longest, next_end = max(longest, output[request]), min(next_end, output[request])
                else:
                    finish[request] = now
            if charged:
                for place in range(members):
                    if output[who[place]] > 0 and prompt[who[place]] > 0:
                        now += step_seconds_at(code, 0, 0, prompt[who[place]])
            # step: until the longest is done; equal steps are taken together
            if code[0] == CONSTANT:
                for place in range(members):
                    request = who[place]
                    if output[request] > 0:
                        first[request], finish[request] = now + code[1], now + output[request] * code[1]
                now += longest * code[1]
            for step in range(1, 1 if code[0] == CONSTANT else longest + 1):
                kv_tokens += batch
                now += step_seconds_at(code, batch, kv_tokens, 0)
                if step == 1:
                    for place in range(members):
                        if output[who[place]] > 0:
                            first[who[place]] = now
                # retire: who is done has the answer; the place stays empty, unless the group is padded
                if step == next_end:
                    next_end = NEVER
                    for place in range(members):
                        request = who[place]
                        if output[request] == step:
                            finish[request] = now
                            if not padded:
                                batch -= 1
                                kv_tokens -= prompt[request] + step
                        elif output[request] > step:
                            next_end = min(next_end, output[request])
            steps[row] += longest
            done += members
            if clients > 0:
                for place in range(members):
                    away = put_time(thinking, away, finish[who[place]] + think[who[place]])


@kernel
def next_arrival(arrival, joined, clients, thinking, away):
    """When the next request comes; never if all have, or if no client is away thinking."""
    if joined == arrival.size or (clients > 0 and away == 0):
        return np.inf
    return thinking[0] if clients > 0 else arrival[joined]

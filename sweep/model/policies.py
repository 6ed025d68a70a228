"""What a server sets aside for a request, and where its cache goes: the memory policies, side by side.

    slots     no limit of memory: requests run as long as there are slots
    reserve   a contiguous piece of the cache for each request, from its admission to its end
    paged     blocks as the text fills them

Both schedulers meet the same workloads here, one after the other on one thread: all waiting from the start and steps
counted, or as they arrive and on a clock. Left out: how workloads are drawn, and pieces of free cache that are each too
small: a reservation fits if enough is free in all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.errors import InputError
from sweep.model.rules import NO_LIMIT, Rules
from sweep.model.server import COUNTERS, Policy, can_end, serve_over_time, serve_workloads
from sweep.model.static import group_after_group, static_steps
from sweep.model.steptime import StepTime, computes_prompts
from sweep.model.times import Requests, Times, in_units, packed_in_units, unit_s

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class Workloads(NamedTuple):
    """Requests of several workloads, all waiting at the start."""

    prompts: I64  # (workloads, requests), with the prefix
    outputs: I64  # (workloads, requests)
    groups: I64  # (workloads, requests), or (1, requests) for one group
    prefix_tokens: int  # of each prompt, shared within its group


class Served(NamedTuple):
    """What a server made of each workload, (workloads,) each; requests that are refused count for neither scheduler."""

    prompt_tokens: I64
    output_tokens: I64
    longest_output_tokens: I64
    static_steps: I64
    counters: dict[str, I64]  # of continuous batching


class ServedTimes(NamedTuple):
    """What became of requests that arrive over time on a server with memory.

    Times of requests that are refused are nan, and they count for nothing else. `times.start` is the beginning of the
    first step that runs a request. One without output takes no step under continuous batching: it starts and finishes
    as it arrives; in a static group it has a place, and starts and finishes with the group's start.
    """

    times: Times
    served: Flags  # (workloads, requests): got all tokens, or has none to get
    counters: dict[str, I64]  # (workloads,) each, by names of `COUNTERS`; of static batching the steps alone


class Shares(NamedTuple):
    """Where the cache goes on average over the steps, (workloads,) each: parts of 1, nan where no step ran."""

    used: F64  # by tokens, those that several requests share once
    reserved: F64  # set aside and still empty
    lost: F64  # in the last block of a request, behind its text
    free: F64


def serve_on(work: Workloads, rules: Rules) -> Served:
    """Both schedulers on the same workloads."""
    at_start = np.zeros((1, work.outputs.shape[1]), np.float64)
    rows, ended = serve_workloads(
        work.prompts,
        work.outputs,
        at_start,
        _prefixes(work),
        work.groups,
        _reserved(work.prompts, work.outputs, rules),
        _policy(rules),
    )
    outputs = np.where(ended, work.outputs, 0)
    static = static_steps(
        work.prompts,
        work.outputs,
        ended | (work.outputs == 0),
        slots=rules.static_slots,
        token_budget=rules.token_budget,
        capacity=rules.static_cache_tokens,
        most_output=rules.most_output,
        context=rules.context,
    )
    counters = _named(rows)
    prompt_tokens = np.where(ended, work.prompts, 0).sum(axis=1)
    return Served(prompt_tokens, outputs.sum(axis=1), outputs.max(axis=1), static, counters)


def continuous_on(work: Workloads, requests: Requests, rules: Rules, step_time: StepTime) -> ServedTimes:
    """Continuous batching of requests as they arrive; of `work` the prefixes and their groups are looked at alone."""
    prompt, output = _writable(requests.prompt), _writable(requests.output)
    code, arrival, think = _on_clock(requests, step_time)
    rank = np.require(np.broadcast_to(requests.rank, output.shape), np.float64, ["C", "W"])
    rows, ended, moments = serve_over_time(
        prompt,
        output,
        np.zeros_like(arrival) if requests.clients else arrival,
        _prefixes(work),
        _writable(work.groups),
        _reserved(prompt, output, rules),
        np.zeros((1, 0), np.float64) if requests.by_arrival else rank,
        think,
        requests.clients,
        _policy(rules),
        code,
    )
    come, start, first, finish = moments
    nothing = output == 0
    come = np.where(ended | nothing, come, np.nan)
    start, finish = np.where(nothing, come, start), np.where(nothing, come, finish)
    counters = _named(rows)
    times = Times(come, start, first, finish, counters["engine_steps"], unit_s(step_time))
    return ServedTimes(times, ended | nothing, counters)


def static_on(
    work: Workloads,  # noqa: ARG001 - both schedulers are called alike
    requests: Requests,
    rules: Rules,
    step_time: StepTime,
    *,
    max_wait_s: float = 0.0,
    padded: bool = True,
) -> ServedTimes:
    """Static batching of the requests that continuous batching does not refuse, as they arrive.

    A group starts when the server is free and the group is full, since all places are taken or the next one does not
    fit, or when the oldest who waits has done so for `max_wait_s`. All of it ends before the next one starts.

    padded : members that are done go on computing until the longest is done; or they leave the batch, and only place
        and memory stay taken. Either way their answer is complete with their own last token.
    """
    prompt, output = _writable(requests.prompt), _writable(requests.output)
    served = _can_be_served(prompt, output, rules) | (output == 0)
    code, arrival, think = _on_clock(requests, step_time)
    start, first, finish = (np.full(output.shape, np.nan) for _ in range(3))
    steps = np.zeros(output.shape[0], np.int64)
    group_after_group(
        prompt,
        output,
        served,
        np.require(np.broadcast_to(requests.rank, output.shape), np.float64, ["C", "W"]),
        think,
        requests.clients,
        rules.static_slots,
        rules.token_budget,
        rules.static_cache_tokens,
        rules.most_output,
        rules.context or 0,
        float(in_units(np.array(max_wait_s), step_time)),
        padded,
        code,
        arrival,
        start,
        first,
        finish,
        steps,
    )
    come = np.where(served, arrival, np.nan)
    return ServedTimes(Times(come, start, first, finish, steps, unit_s(step_time)), served, {"steps": steps})


def reservations(prompts: I64, outputs: I64, rules: Rules) -> I64:
    """Tokens of cache set aside for each request, same shape as given.

    A request that would fit by its own text never reserves more than there is; one that does not fit, or is longer than
    the longest that "maximum" knows, gets more than there is and is refused. The last token generated is never stored.
    """
    text = prompts + outputs - 1
    match rules.reserve:
        case "maximum":
            return np.where(text > rules.most_tokens, NO_LIMIT, rules.most_tokens)
        case "power_of_two":
            wanted = prompts + _power_of_two_from(outputs)
        case "asked":
            wanted = prompts + outputs
        case "oracle":
            wanted = text
    return np.where(text > rules.cache_tokens, text, np.minimum(wanted, rules.cache_tokens))


def shares(served: Served | ServedTimes, rules: Rules) -> Shares:
    """Where the cache goes under continuous batching; nan throughout where memory has no limit."""
    steps, filled = served.counters["engine_steps"], served.counters["sum_cached"]
    if rules.kind == "slots":
        return Shares(*(np.full(steps.size, np.nan) for _ in Shares._fields))
    contiguous = rules.kind == "reserve"
    whole = rules.cache_tokens * steps
    taken = served.counters["sum_blocks"] * (1 if contiguous else rules.block_size)
    nothing = np.zeros_like(taken)
    reserved, lost = (taken - filled, nothing) if contiguous else (nothing, taken - filled)
    with np.errstate(invalid="ignore"):
        return Shares(filled / whole, reserved / whole, lost / whole, (whole - taken) / whole)


def _policy(rules: Rules) -> Policy:
    size, blocks = (1, rules.cache_tokens) if rules.kind == "reserve" else (rules.block_size, rules.blocks)
    return Policy(
        rules.slots, size, blocks, rules.token_budget, rules.prefix_caching, rules.chunked_prefill, rules.refill_delay
    )


def _reserved(prompts: I64, outputs: I64, rules: Rules) -> I64:
    return reservations(prompts, outputs, rules) if rules.kind == "reserve" else np.zeros((1, 0), np.int64)


def _can_be_served(prompts: I64, outputs: I64, rules: Rules) -> Flags:
    """Which requests ask for output and are not refused by continuous batching, same shape as given."""
    policy, reserved = _policy(rules), _reserved(prompts, outputs, rules)
    sizes = (policy.block_size, policy.blocks, policy.token_budget, policy.chunked_prefill)
    return can_end(prompts.ravel(), outputs.ravel(), reserved.ravel(), *sizes).reshape(outputs.shape)


def _on_clock(requests: Requests, step_time: StepTime) -> tuple[F64, F64, F64]:
    """The step time, the arrivals and the thinking on the clock of `Times`, for a kernel to have.

    Raises InputError where steps with prompts take nobody knows how long: each request has one.
    """
    if not computes_prompts(step_time):
        raise InputError("step time: has no rows of prompts alone, and this server computes prompts; add some")
    shape = requests.output.shape
    arrival, think = in_units(requests.arrival_s, step_time), in_units(requests.think_s, step_time)
    if requests.clients:
        arrival = np.full(shape, np.nan)  # not known before
    return packed_in_units(step_time), np.broadcast_to(arrival, shape).copy(), np.broadcast_to(think, shape).copy()


def _writable(array: I64) -> I64:
    """The array as kernels are compiled for it."""
    return np.require(array, np.int64, ["C", "W"])


def _prefixes(work: Workloads) -> I64:
    return np.full((1, work.outputs.shape[1]), work.prefix_tokens, np.int64)


def _named(rows: I64) -> dict[str, I64]:
    return dict(zip(COUNTERS, np.ascontiguousarray(rows.T), strict=True))


def _power_of_two_from(tokens: I64) -> I64:
    """The smallest power of two that is not below, 1 for 0."""
    return np.left_shift(1, np.ceil(np.log2(np.maximum(tokens, 1))).astype(np.int64))

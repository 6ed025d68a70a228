"""What a server sets aside for a request, and where its cache goes: the memory policies, side by side.

    slots     no limit of memory: requests run as long as there are slots
    reserve   a contiguous piece of the cache for each request, from its admission to its end
    paged     blocks as the text fills them

Both schedulers meet the same workloads here, one after the other on one thread. Left out: how workloads are drawn, and
pieces of free cache that are each too small: a reservation fits if enough is free in all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.model.rules import NO_LIMIT, Rules
from sweep.model.server import COUNTERS, Policy, serve_workloads
from sweep.model.static import static_steps

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


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


class Shares(NamedTuple):
    """Where the cache goes on average over the steps, (workloads,) each: parts of 1, nan where no step ran."""

    used: F64  # by tokens, those that several requests share once
    reserved: F64  # set aside and still empty
    lost: F64  # in the last block of a request, behind its text
    free: F64


def serve_on(work: Workloads, rules: Rules) -> Served:
    """Both schedulers on the same workloads."""
    requests = work.outputs.shape[1]
    contiguous = rules.kind == "reserve"
    size, blocks = (1, rules.cache_tokens) if contiguous else (rules.block_size, rules.blocks)
    policy = Policy(
        rules.slots, size, blocks, rules.token_budget, rules.prefix_caching, rules.chunked_prefill, rules.refill_delay
    )
    reserved = reservations(work.prompts, work.outputs, rules) if contiguous else np.zeros((1, 0), np.int64)
    at_start = np.zeros((1, requests), np.float64)
    prefixes = np.full((1, requests), work.prefix_tokens, np.int64)
    rows, ended = serve_workloads(
        work.prompts, work.outputs, at_start, prefixes, work.groups, reserved, policy, cost=1.0
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
    counters = dict(zip(COUNTERS, np.ascontiguousarray(rows.T), strict=True))
    prompt_tokens = np.where(ended, work.prompts, 0).sum(axis=1)
    return Served(prompt_tokens, outputs.sum(axis=1), outputs.max(axis=1), static, counters)


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


def shares(served: Served, rules: Rules) -> Shares:
    """Where the cache goes; nan throughout where memory has no limit."""
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


def _power_of_two_from(tokens: I64) -> I64:
    """The smallest power of two that is not below, 1 for 0."""
    return np.left_shift(1, np.ceil(np.log2(np.maximum(tokens, 1))).astype(np.int64))

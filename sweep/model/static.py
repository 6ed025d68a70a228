"""Static batching where prompts take steps and memory limits a group.

A group is taken from the head of the queue, as many requests as there are places and as fit with all they might ever
hold: each reserves its prompt and the longest output there can be, or the context that the server is made for. The
prompts are computed together, a token budget a step; the last of these steps gives every member its first token. The
group then stays until its longest member has ended, and only then the next one is taken: nobody is preempted, and who
has ended keeps place and memory.

Where all wait from the start steps are counted; where requests come over time, or a step takes a time of its own, each
group is told with a clock. Without prompts and memory `lockstep` does the same for many workloads at once, and
`arriving` with a clock.
"""

import numpy as np
import numpy.typing as npt

from sweep.model.compiled import kernel
from sweep.model.heaps import put_request, put_time, take_request, take_time
from sweep.model.stepcost import NEVER, step_seconds_at
from sweep.model.steptime import CONSTANT

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def static_steps(
    prompts: I64,
    outputs: I64,
    served: Flags,
    *,
    slots: int,
    token_budget: int,
    capacity: int,
    most_output: int,
    context: int | None = None,
) -> I64:
    """Steps of workloads under static batching, (workloads,).

    prompts, outputs, served : (workloads, requests); a request that is not served is left out, one without output takes
        a place and no step.
    capacity : tokens of the cache, at least prompt + output - 1 of every request; one that could need more than all of
        it reserves all of it, and runs alone.
    most_output : tokens that a request is expected to produce at most.
    context : tokens that each request reserves, in place of its prompt and `most_output`.
    """
    steps = np.zeros(outputs.shape[0], np.int64)
    group_by_group(prompts, outputs, served, slots, token_budget, capacity, most_output, context or 0, steps)
    return steps


@kernel
def group_by_group(
    prompts: I64,
    outputs: I64,
    served: Flags,
    slots: int,
    token_budget: int,
    capacity: int,
    most_output: int,
    context: int,
    steps: I64,
) -> None:
    """Write the steps of each workload; a context of 0 is none."""
    for row in range(outputs.shape[0]):
        members = reserved = prompt_tokens = longest = 0
        for i in range(outputs.shape[1]):
            if not served[row, i]:
                continue
            needed = set_aside(prompts[row, i], most_output, context, capacity)
            if members == slots or reserved + needed > capacity:
                steps[row] += group_steps(prompt_tokens, longest, token_budget)
                members = reserved = prompt_tokens = longest = 0
            members += 1
            reserved += needed
            longest = max(longest, outputs[row, i])
            if outputs[row, i] > 0:
                prompt_tokens += prompts[row, i]
        steps[row] += group_steps(prompt_tokens, longest, token_budget)


@kernel
def group_steps(prompt_tokens: int, longest: int, token_budget: int) -> int:
    """Steps of a group; the last step of its prompts is the first of its outputs."""
    return (prompt_tokens + token_budget - 1) // token_budget + longest - 1 if longest > 0 else 0


@kernel
def group_after_group(
    prompts: I64,
    outputs: I64,
    served: Flags,
    ranks: F64,
    thinks: F64,
    clients: int,
    slots: int,
    token_budget: int,
    capacity: int,
    most_output: int,
    context: int,
    max_wait: float,
    padded: bool,
    code: F64,
    come: F64,
    starts: F64,
    firsts: F64,
    finishes: F64,
    steps: I64,
) -> None:
    """Write when each request comes, starts, speaks and ends, and the steps of each workload.

    come : (workloads, requests), rising along a row; of clients, written. A context of 0 is none.
    """
    requests = outputs.shape[1]
    who, line = np.empty(min(slots, requests), np.int64), np.empty(requests, np.int64)
    thinking, taken = np.empty(max(1, clients), np.float64), np.empty(requests, np.bool_)
    for row in range(outputs.shape[0]):
        arrival, think, output, prompt, rank = come[row], thinks[row], outputs[row], prompts[row], ranks[row]
        start, first, finish = starts[row], firsts[row], finishes[row]
        queue = np.flatnonzero(served[row])
        thinking[:] = 0.0
        taken[:] = False
        now, away = 0.0, clients
        joined = waits = wanted = oldest = done = 0  # `wanted`: tokens that those who wait would reserve
        while done < queue.size:
            # wait: until a group is full, or until the oldest who waits has done so long enough; all who come join
            while True:
                while oldest < joined and taken[queue[oldest]]:
                    oldest += 1
                coming = next_arrival(arrival, queue, joined, clients, thinking, away)
                until = now
                if waits == 0:
                    until = max(now, coming)
                elif waits < slots and wanted <= capacity:
                    until = max(now, arrival[queue[oldest]] + max_wait)
                if coming > until or joined == queue.size:
                    now = until
                    break
                now = max(now, coming)
                request = queue[joined]
                if clients > 0:
                    arrival[request] = coming
                    away = take_time(thinking, away)
                waits = put_request(line, waits, rank, request)
                wanted += set_aside(prompt[request], most_output, context, capacity)
                joined += 1
            # start: the group, by rank, as far as there are places and the next one fits
            places = members = reserved = 0
            while places < slots and waits > 0:
                request = line[0]
                needed = set_aside(prompt[request], most_output, context, capacity)
                if reserved + needed > capacity:
                    break
                waits = take_request(line, waits, rank)
                places += 1
                reserved += needed
                start[request], finish[request], taken[request] = now, now, True
                if output[request] > 0:
                    who[members] = request
                    members += 1
                elif clients > 0:
                    away = put_time(thinking, away, now + think[request])
            wanted -= reserved
            done += places
            # serve: until the longest is done
            now, ran = serve_group(code, who[:members], prompt, output, token_budget, padded, now, first, finish)
            steps[row] += ran
            if clients > 0:
                for place in range(members):
                    away = put_time(thinking, away, finish[who[place]] + think[who[place]])


@kernel
def serve_group(
    code: F64,
    group: I64,
    prompt: I64,
    output: I64,
    token_budget: int,
    padded: bool,
    now: float,
    first: F64,
    finish: F64,
) -> tuple[float, int]:
    """The clock when a group is done that starts now, and its steps; writes when its members speak and end."""
    batch, longest = group.size, output[group].max() if group.size > 0 else 0
    kv_tokens = prompt_tokens = prompt[group].sum()
    # prompts: one behind the other, a budget a step; a chunk reads what is computed of its prompt before it
    place = before = 0
    for computed in range(0, prompt_tokens, token_budget):
        while before + prompt[group[place]] <= computed:
            before += prompt[group[place]]
            place += 1
        now += step_seconds_at(code, 0, computed - before, min(token_budget, prompt_tokens - computed))
    # step: until the longest is done; equal steps are taken together
    next_end, equal = 1, code[0] == CONSTANT
    for request in group:
        first[request] = now
        finish[request] = now + (output[request] - 1) * code[1] if equal else now
    if equal:
        now += max(0, longest - 1) * code[1]
    for token in range(2, 2 if equal else longest + 1):
        # retire: who has ended has the answer and leaves the batch, unless it is padded; the place stays empty
        if token - 1 == next_end:
            next_end = NEVER
            for request in group:
                if output[request] >= token:
                    next_end = min(next_end, output[request])
                elif output[request] == token - 1:
                    finish[request] = now
                    batch -= 0 if padded else 1
                    kv_tokens -= 0 if padded else prompt[request] + token - 2
        kv_tokens += batch
        now += step_seconds_at(code, batch, kv_tokens, 0)
    for request in group:
        if not equal and output[request] == longest:
            finish[request] = now
    return now, group_steps(prompt_tokens, longest, token_budget)


@kernel
def set_aside(prompt: int, most_output: int, context: int, capacity: int) -> int:
    """Tokens of cache that a request reserves; a context of 0 is none."""
    return min(context if context > 0 else prompt + most_output, capacity)


@kernel
def next_arrival(come: F64, queue: I64, joined: int, clients: int, thinking: F64, away: int) -> float:
    """When the next request comes; never if all have, or if no client is away thinking."""
    if joined == queue.size or (clients > 0 and away == 0):
        return np.inf
    return float(thinking[0] if clients > 0 else come[queue[joined]])

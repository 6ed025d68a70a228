"""Static batching where prompts take steps and memory limits a group.

A group is taken from the head of the queue, as many requests as there are places and as fit with all they might ever
hold: each reserves its prompt and the longest output there can be, or the context that the server is made for. The
prompts are computed together, a token budget a step; the last of these steps gives every member its first token. The
group then stays until its longest member has ended, and only then the next one is taken: nobody is preempted, and who
has ended keeps place and memory.

Without prompts and memory `lockstep` does the same for many workloads at once.
"""

import numpy as np
import numpy.typing as npt

from sweep.model.compiled import kernel

I64 = npt.NDArray[np.int64]
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
            needed = min(context if context > 0 else prompts[row, i] + most_output, capacity)
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

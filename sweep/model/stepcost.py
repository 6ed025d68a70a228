"""Seconds of one step in compiled code, for the kernels that step; `steptime` says how its array is laid out.

A kernel takes the array of `steptime.packed` as an argument and asks inside its loop. Left out: whole runs, which are
in `stepseconds`, and the meaning of the kinds, which is in `steptime`.
"""

import numpy as np

from sweep.model.compiled import kernel
from sweep.model.steptime import AFFINE, CONSTANT, ROOFLINE

NEVER = 2**62  # number of a step that is not reached


@kernel
def step_seconds_at(code, batch, kv_tokens, prefill_tokens):
    """Seconds of one step from a packed step time; nan for a prompt where a table has none."""
    if code[0] == CONSTANT:
        return code[1]
    if code[0] == AFFINE:
        return code[1] + code[2] * batch + code[3] * kv_tokens + code[4] * prefill_tokens
    if code[0] == ROOFLINE:
        emitted = batch + 1 if prefill_tokens > 0 else batch
        attended = kv_tokens + 0.5 * prefill_tokens * prefill_tokens
        flops = code[3] * (batch + prefill_tokens) + code[7] * emitted + code[8] * attended
        return max((code[1] + code[2] * kv_tokens) / code[4], flops / code[5]) + code[6]
    seconds = 0.0
    if prefill_tokens > 0:
        seconds = on_line(code, int(code[2]), float(prefill_tokens + batch))
        if batch > 0:
            seconds += beyond_prompt(code, batch, kv_tokens / batch, prefill_tokens)
    elif batch > 0:
        seconds = on_surface(code, int(code[3]), batch, kv_tokens / batch)
    return code[1] if seconds < code[1] else seconds


@kernel
def beyond_prompt(code, batch, kv_per_request, prefill_tokens):
    """What a step of both takes beyond a prompt of all its tokens, from a packed table, in seconds."""
    count = int(code[4])
    last = 4 + count
    if prefill_tokens >= code[last]:
        return on_surface(code, int(code[last + count]), batch, kv_per_request)
    low = 5 + interval_of(code, 5, count, float(prefill_tokens))
    here = on_surface(code, int(code[low + count]), batch, kv_per_request)
    further = on_surface(code, int(code[low + 1 + count]), batch, kv_per_request)
    return here + (further - here) * (prefill_tokens - code[low]) / (code[low + 1] - code[low])


@kernel
def on_surface(code, surface, batch, kv_per_request):
    """The value of a packed surface: linear in the batch, past its ends on along the two batches there."""
    count = int(code[surface])
    if count == 1:
        return on_line(code, int(code[surface + 2]), kv_per_request)
    low = surface + 1 + interval_of(code, surface + 1, count, float(batch))
    here = on_line(code, int(code[low + count]), kv_per_request)
    if batch == code[low]:
        return here
    further = on_line(code, int(code[low + 1 + count]), kv_per_request)
    return here + (further - here) * (batch - code[low]) / (code[low + 1] - code[low])


@kernel
def on_line(code, line, at):
    """The value of a packed line, past its ends on along the two points there; nan if it has none."""
    count = int(code[line])
    if count == 0:
        return np.nan
    low = line + 1 + interval_of(code, line + 1, count, at)
    here, further = code[low + count], code[low + 1 + count]
    return here + (further - here) * (at - code[low]) / (code[low + 1] - code[low])


@kernel
def interval_of(code, first, count, at):
    """Which interval between `count` >= 2 rising values from index `first` on holds `at`: 0 to count - 2."""
    low, high = 0, count - 2
    while low < high:
        middle = (low + high + 1) // 2
        if code[first + middle] <= at:
            low = middle
        else:
            high = middle - 1
    return low

"""Seconds of steps, and of whole runs of static and continuous batching, for any step time.

All requests wait from the start and slots are the only limit, as in `lockstep`; a request with a prompt of P tokens and
an output of L is decoded in L steps and reads P + s tokens of KV cache in its step s. What static batching costs
depends on what it is: by default it pads, members that are done go on computing until the longest of their group is
done; or they leave the batch, and only their places stay empty. Prompts are computed one at a time, each in a step of
its own, and stand apart (`prompt_s`), to be added or not. Servers with arrivals or blocks are elsewhere.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.errors import InputError
from sweep.model.compiled import kernel
from sweep.model.stepcost import NEVER, step_seconds_at
from sweep.model.steptable import F64, I64
from sweep.model.steptime import AFFINE, Affine, Constant, StepTime, packed

MOST_COUNT = 2**40  # of requests or tokens in a step


class BatchSeconds(NamedTuple):
    """What a run of batching takes, (replicates,) each, or scalars for one workload."""

    steps: I64
    request_steps: I64  # sum over steps of the requests that compute
    kv_token_steps: I64  # sum over steps of the KV tokens that are read
    decode_s: F64
    prompt_s: F64  # of all prompts, each alone in a step; nan where the step time does not know prompts

    def total_s(self) -> F64:
        """Seconds with prompts charged."""
        return self.decode_s + self.prompt_s


def step_seconds(
    step_time: StepTime, batch: npt.ArrayLike, kv_tokens: npt.ArrayLike = 0, prefill_tokens: npt.ArrayLike = 0
) -> F64:
    """Seconds of steps that run these counts, in the shape they broadcast to. Raises InputError."""
    given = [_counts(values) for values in (batch, kv_tokens, prefill_tokens)]
    try:
        shape = np.broadcast_shapes(*(counts.shape for counts in given))
    except ValueError:
        raise InputError(f"shapes of counts do not fit: {', '.join(str(counts.shape) for counts in given)}") from None
    seconds = np.empty(shape, np.float64)
    batches, kvs, prefills = (np.broadcast_to(counts, shape).flatten() for counts in given)
    _each_step(packed(step_time), batches, kvs, prefills, seconds.reshape(-1))
    return seconds


def static_seconds(
    step_time: StepTime,
    output_tokens: npt.ArrayLike,
    slots: int,
    prompt_tokens: npt.ArrayLike = 0,
    *,
    padded: bool = True,
) -> BatchSeconds:
    """What static batching takes: groups of `slots` requests in order, each until its longest is done.

    output_tokens : (requests,) or (replicates, requests). prompt_tokens : the same shape, or one that broadcasts to it.
    padded : members that are done go on, their cache growing, until the longest is done; or they leave at once.
    A request of 0 tokens takes a place and no step, padded or not.
    """
    outputs, prompts = _workloads(output_tokens, prompt_tokens, slots)
    code, sums, seconds = packed(step_time), *_sums(outputs)
    _static(code, outputs, prompts, slots, padded, sums, seconds)
    return _result(step_time, outputs, prompts, sums, seconds, np.ndim(output_tokens))


def continuous_seconds(
    step_time: StepTime, output_tokens: npt.ArrayLike, slots: int, prompt_tokens: npt.ArrayLike = 0
) -> BatchSeconds:
    """What continuous batching takes: first come, first served, a slot freed in one step being taken in the next."""
    outputs, prompts = _workloads(output_tokens, prompt_tokens, slots)
    code, sums, seconds = packed(step_time), *_sums(outputs)
    _continuous(code, outputs, prompts, min(slots, max(1, outputs.shape[1])), sums, seconds)
    return _result(step_time, outputs, prompts, sums, seconds, np.ndim(output_tokens))


@kernel
def _each_step(code, batch, kv_tokens, prefill_tokens, seconds):
    for step in range(len(batch)):
        seconds[step] = step_seconds_at(code, batch[step], kv_tokens[step], prefill_tokens[step])


@kernel
def _static(code, outputs, prompts, slots, padded, sums, seconds):
    requests = outputs.shape[1]
    for replicate in range(outputs.shape[0]):
        output, prompt = outputs[replicate], prompts[replicate]
        for first in range(0, requests, slots):
            # start: the next group, without those who ask for nothing
            stop = min(first + slots, requests)
            batch, kv_tokens, step = 0, 0, 0
            longest, next_end = 0, NEVER
            for request in range(first, stop):
                if output[request] > 0:
                    batch += 1
                    kv_tokens += prompt[request]
                    longest = max(longest, output[request])
                    next_end = min(next_end, output[request])
            while step < longest:
                # step: every request of the batch reads its text, one token longer each time
                step += 1
                kv_tokens += batch
                sums[replicate, 0] += 1
                sums[replicate, 1] += batch
                sums[replicate, 2] += kv_tokens
                if code[0] > AFFINE:  # the others follow from the sums
                    seconds[replicate] += step_seconds_at(code, batch, kv_tokens, 0)
                # retire: who is done leaves, unless the group is padded
                if step == next_end and not padded:
                    next_end = NEVER
                    for request in range(first, stop):
                        if output[request] == step:
                            batch -= 1
                            kv_tokens -= prompt[request] + step
                        elif output[request] > step:
                            next_end = min(next_end, output[request])


@kernel
def _continuous(code, outputs, prompts, slots, sums, seconds):
    requests = outputs.shape[1]
    ends, texts = np.empty(slots, np.int64), np.empty(slots, np.int64)
    for replicate in range(outputs.shape[0]):
        output, prompt = outputs[replicate], prompts[replicate]
        batch, kv_tokens, step, head, next_end = 0, 0, 0, 0, NEVER
        while batch > 0 or head < requests:
            # admit: fill free slots from the head of the queue
            while batch < slots and head < requests:
                if output[head] > 0:
                    ends[batch], texts[batch] = step + output[head], prompt[head] + output[head]
                    next_end = min(next_end, ends[batch])
                    batch += 1
                    kv_tokens += prompt[head]
                head += 1
            if batch == 0:
                break  # the rest of the queue asked for nothing
            # step: every running request reads its text, one token longer each time, until the next one is done
            while step < next_end:
                step += 1
                kv_tokens += batch
                sums[replicate, 0] += 1
                sums[replicate, 1] += batch
                sums[replicate, 2] += kv_tokens
                if code[0] > AFFINE:
                    seconds[replicate] += step_seconds_at(code, batch, kv_tokens, 0)
            # retire: who is done gives back the slot
            kept, next_end = 0, NEVER
            for slot in range(batch):
                if ends[slot] == step:
                    kv_tokens -= texts[slot]
                else:
                    ends[kept], texts[kept] = ends[slot], texts[slot]
                    next_end = min(next_end, ends[kept])
                    kept += 1
            batch = kept


def _sums(outputs: I64) -> tuple[I64, F64]:
    """Room for steps, requests and KV tokens summed over steps, and seconds, all 0."""
    return np.zeros((len(outputs), 3), np.int64), np.zeros(len(outputs), np.float64)


def _result(step_time: StepTime, outputs: I64, prompts: I64, sums: I64, seconds: F64, dimensions: int) -> BatchSeconds:
    """The sums by name. Seconds of a constant or a line come from the whole sums, with one rounding a term."""
    steps, request_steps, kv_token_steps = np.ascontiguousarray(sums.T)
    match step_time:
        case Constant(step_s):
            seconds = steps * step_s
        case Affine(c0_s, per_request_s, per_kv_token_s, _):
            seconds = c0_s * steps + (per_request_s * request_steps + per_kv_token_s * kv_token_steps)
    has_prompt = (prompts > 0) & (outputs > 0)
    alone = step_seconds(step_time, 0, 0, prompts[has_prompt])
    charged = np.zeros(prompts.shape)
    charged[has_prompt] = alone
    result = BatchSeconds(steps, request_steps, kv_token_steps, seconds, charged.sum(axis=1))
    return result if dimensions == 2 else BatchSeconds(*(column[0] for column in result))


def _counts(values: npt.ArrayLike) -> I64:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"counts of requests and tokens: must be integers, got {array.dtype}")
    if array.size and not 0 <= array.min() <= array.max() <= MOST_COUNT:
        raise InputError(
            f"counts of requests and tokens: must be from 0 to {MOST_COUNT}, got {array.min()} to {array.max()}"
        )
    return array.astype(np.int64)


def _workloads(output_tokens: npt.ArrayLike, prompt_tokens: npt.ArrayLike, slots: int) -> tuple[I64, I64]:
    """Outputs and prompts, both (replicates, requests)."""
    if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or slots < 1:
        raise InputError(f"slots: must be an integer of at least 1, got {slots!r}")
    outputs = _counts(output_tokens)
    if outputs.ndim not in (1, 2):
        raise InputError(f"output_tokens: must be (requests,) or (replicates, requests), got {outputs.ndim} dimensions")
    prompts = _counts(prompt_tokens)
    try:
        prompts = np.broadcast_to(prompts, outputs.shape).copy()
    except ValueError:
        raise InputError(f"prompt_tokens: {prompts.shape} does not fit output_tokens {outputs.shape}") from None
    longest, text = float(outputs.max(initial=0)), float(prompts.max(initial=0))
    if outputs.shape[-1] * longest * (text + longest) > NEVER:
        raise InputError(f"output_tokens: {outputs.shape[-1]:,} requests of up to {longest:,.0f} tokens are too many")
    return np.atleast_2d(outputs), np.atleast_2d(prompts)

"""What both schedulers can serve in the long run, in requests a second: what a load is a share of.

Where slots alone limit a server these are the rates with all slots busy: exact for a constant step; a step that depends
on what runs in it is taken at the mean of it, which is exact for the continuous side of a line.

With memory, the continuous side is a bound that no server passes: a request takes so many slot-steps, so many computed
tokens and so many token-steps of cache, and each of the three is limited. What preemptions, blocks that are not full
and waiting at the head of the queue cost is left out, so a server may fail to keep up with a load below 1. Static
groups are taken to be padded, and as large as slots and memory let them be for the mean prompt.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.model.lengths import integer_lengths, moments
from sweep.model.rules import Rules
from sweep.model.steptime import Affine, Constant, StepTime
from sweep.model.theory import mean_longest
from sweep.study.schema import Setting, WorkloadSpec, slots_of
from sweep.study.server_rules import rules_of

F64 = NDArray[np.float64]


class Capacities(NamedTuple):
    """Requests a second of each scheduler; infinite where requests take nothing."""

    continuous_per_s: float
    static_per_s: float


def capacities(setting: Setting, step_time: StepTime, *, served: bool) -> Capacities:
    """What both schedulers serve on this server. served : whether by the server model, with memory and a budget."""
    mean = moments(integer_lengths(setting.workload.output)).mean
    if mean == 0 or slots_of(setting.server) == 0:
        return Capacities(math.inf, math.inf)
    return _with_memory(setting, step_time) if served else _of_slots(setting, step_time)


def has_prompts(workload: WorkloadSpec) -> bool:
    """Whether requests have prompts of their own."""
    return workload.prompt is not None or workload.trace is not None


def _of_slots(setting: Setting, step_time: StepTime) -> Capacities:
    """Prompts are computed one at a time, each in a step of its own in which nobody else moves on."""
    workload, slots = setting.workload, slots_of(setting.server)
    lengths = integer_lengths(workload.output)
    mean, cv = moments(lengths)
    longest, prompt = mean_longest(lengths, slots), _mean_prompt(workload)
    read = prompt + (mean * (1 + cv * cv) + 1) / 2  # by a running request, over the steps of all requests
    prompt_s = _step_s(step_time, 0, 0, prompt) if has_prompts(workload) and setting.server.charge_prompts else 0.0
    continuous_s = mean / slots * _step_s(step_time, slots, slots * read, 0) + prompt_s
    static_s = longest / slots * _step_s(step_time, slots, slots * (prompt + (longest + 1) / 2), 0) + prompt_s
    return Capacities(1 / continuous_s, 1 / static_s)


class _Requests(NamedTuple):
    """Kinds of requests, (kinds,) each; weights add up to 1, or to the share that is not refused."""

    output: F64
    prompt: F64  # with the prefix; the mean one where prompts do not depend on outputs
    found: F64  # of it, in the cache at best
    weight: F64


def _with_memory(setting: Setting, step_time: StepTime) -> Capacities:
    rules = rules_of(setting)
    requests = _kinds(setting.workload, rules)
    if not requests.weight.any():
        return Capacities(math.inf, math.inf)
    return Capacities(_continuous_per_s(requests, rules, step_time), _static_per_s(setting, requests, rules, step_time))


def _continuous_per_s(requests: _Requests, rules: Rules, step_time: StepTime) -> float:
    output, weight = requests.output, requests.weight
    computed = requests.prompt - requests.found
    decoded = np.maximum(output - 1, 0)  # the first token comes with the prompt
    slot_steps = decoded + np.maximum(computed / rules.token_budget, 1) + rules.refill_delay
    taken: list[float] = [(weight * slot_steps).sum() / rules.slots]
    taken.append((weight * (computed + decoded)).sum() / rules.token_budget)
    if rules.kind != "slots":
        taken.append((weight * _token_steps(requests, rules)).sum() / rules.cache_tokens)
    per_step = 1 / max(taken)
    batch = per_step * (weight * decoded).sum()
    read = per_step * (weight * decoded * (requests.prompt + output / 2)).sum()  # the token being computed included
    return per_step / _step_s(step_time, batch, read, per_step * (weight * computed).sum())


def _token_steps(requests: _Requests, rules: Rules) -> F64:
    """Tokens of cache that a request has, summed over the steps that give it a token."""
    output, prompt = requests.output, requests.prompt
    if rules.kind == "paged":
        return output * (prompt - requests.found) + output * (output - 1) / 2
    match rules.reserve:
        case "maximum":  # all alike, so a whole number of them fits
            reserved = np.full(output.shape, rules.cache_tokens / max(1, rules.cache_tokens // rules.most_tokens))
        case "power_of_two":
            reserved = prompt + 2 ** np.ceil(np.log2(np.maximum(output, 1)))
        case "asked":
            reserved = prompt + output
        case "oracle":
            reserved = prompt + output - 1
    return np.asarray(output * np.minimum(reserved, rules.cache_tokens))


def _static_per_s(setting: Setting, requests: _Requests, rules: Rules, step_time: StepTime) -> float:
    prompt = float((requests.weight * requests.prompt).sum() / requests.weight.sum())
    reserved = min(rules.context or prompt + rules.most_output, rules.static_cache_tokens)
    members = min(rules.static_slots, int(rules.static_cache_tokens / reserved))
    longest = mean_longest(integer_lengths(setting.workload.output), members)
    prompt_steps = max(1, math.ceil(members * prompt / rules.token_budget))
    prompt_s = prompt_steps * _step_s(step_time, 0, 0, members * prompt / prompt_steps)
    decode_s = _step_s(step_time, members, members * (prompt + (longest + 1) / 2), 0)
    return members / (prompt_s + max(longest - 1, 0) * decode_s) / float(requests.weight.sum())


def _kinds(workload: WorkloadSpec, rules: Rules) -> _Requests:
    """Requests with output that are not refused."""
    if workload.trace is not None:
        rows = workload.trace.requests()
        output, own = rows.output_tokens.astype(np.float64), np.maximum(rows.prompt_tokens, 1).astype(np.float64)
        weight = np.where(own <= _room(workload, rules, output), 1 / output.size, 0.0)
    else:
        lengths = integer_lengths(workload.output)
        output, weight = lengths.values.astype(np.float64), np.diff(lengths.cdf, prepend=0.0)
        share, own = _prompts_within(workload, _room(workload, rules, output))
        weight = weight * share
    prompt = _prefix(workload) + own
    found = _prefix(workload) // rules.block_size * rules.block_size if rules.prefix_caching else 0
    return _Requests(output, prompt, np.minimum(found, prompt - 1), np.where(output > 0, weight, 0.0))


def _room(workload: WorkloadSpec, rules: Rules, output: F64) -> F64:
    """The longest prompt of its own with which a request of each output is not refused."""
    text = np.full(output.shape, float(rules.cache_tokens))
    if not rules.chunked_prefill and rules.kind == "paged":  # who is preempted comes back with all its text in a step
        text = np.minimum(text, rules.token_budget)
    room = text - (output - 1)
    return np.asarray((room if rules.chunked_prefill else np.minimum(room, rules.token_budget)) - _prefix(workload))


def _prompts_within(workload: WorkloadSpec, room: F64) -> tuple[F64, F64]:
    """The share of prompts that are no longer than each room, and their mean."""
    if workload.prompt is None:
        return (room >= 1).astype(np.float64), np.ones(room.shape)
    values, cdf, _ = integer_lengths(workload.prompt)
    sums = np.cumsum(values * np.diff(cdf, prepend=0.0))
    last = np.searchsorted(values, room, side="right") - 1
    return np.where(last < 0, 0.0, cdf[last]), np.where(last < 0, 1.0, sums[last] / cdf[last])


def _prefix(workload: WorkloadSpec) -> int:
    return 0 if workload.shared_prefix is None else workload.shared_prefix.tokens


def _step_s(step_time: StepTime, batch: float, kv_tokens: float, prefill_tokens: float) -> float:
    if isinstance(step_time, Constant):
        return step_time.step_s
    if isinstance(step_time, Affine):
        c0, c1, c2, c3 = step_time
        return c0 + c1 * batch + c2 * kv_tokens + c3 * prefill_tokens
    from sweep.model.stepseconds import step_seconds  # a compiler, which few studies need to be read

    return float(step_seconds(step_time, round(batch), round(kv_tokens), round(prefill_tokens)))


def _mean_prompt(workload: WorkloadSpec) -> float:
    if workload.prompt is not None:
        return moments(integer_lengths(workload.prompt)).mean
    return moments(integer_lengths(workload.trace.lengths("prompt"))).mean if workload.trace is not None else 0.0

"""What a study with a clock comes to for a cell: its step time, rules of admission, and the rate that its load means.

A study has a clock when requests arrive over time, are admitted in another order than their own, or take steps of times
of their own. Left out: the simulation itself, which is in `rows.arriving`, and servers with memory, which have no such
clock yet.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sweep.model.lengths import integer_lengths, moments
from sweep.model.steptime import Affine, Constant, StepTime, computes_prompts, largest_batch
from sweep.model.theory import mean_longest
from sweep.study.arrival_spec import ArrivalSpec, SloSpec
from sweep.study.faults import Fault
from sweep.study.schema import Setting, WorkloadSpec, has_clock, slots_of

STEP = Constant(1.0)  # of a study without a step time: its clock counts steps


class Timing(NamedTuple):
    """A cell's clock and rules. `rate_per_s` is per step where no step time is known."""

    step_time: StepTime
    has_seconds: bool
    order: str
    prediction_cv: float
    max_wait_s: float
    pads: bool
    charges_prompts: bool
    rate_per_s: float | None  # None: not of the study's choosing
    capacity_per_s: float  # requests that continuous batching serves with all slots busy
    load: float | None
    static_load: float | None  # the same for static batching with full groups; above 1 its queue only grows


class Demand(NamedTuple):
    """What arrives beside lengths, the same for all cells of a point."""

    arrivals: ArrivalSpec
    priorities: tuple[float, ...] | None
    slo: SloSpec | None
    prompts: bool  # whether there are any


def demand_of(workload: WorkloadSpec) -> Demand:
    """What arrives, with what is left out filled in."""
    arrivals = workload.arrivals or ArrivalSpec(process="at_once")
    return Demand(arrivals, workload.priorities, workload.slo, _has_prompts(workload))


def timing_of(setting: Setting) -> Timing:
    """The clock of a cell that has slots."""
    workload, server = setting.workload, setting.server
    step_time: StepTime = STEP
    if server.step is not None:
        step_time = server.step.step_time
    elif server.step_ms is not None:
        step_time = Constant(server.step_ms / 1000)
    continuous_per_s, static_per_s = _capacities(setting, step_time)
    rate = _rate(workload.arrivals, continuous_per_s)
    return Timing(
        step_time,
        server.step is not None or server.step_ms is not None,
        server.order,
        server.prediction_cv,
        server.max_wait_s,
        server.pads,
        server.charge_prompts,
        rate,
        continuous_per_s,
        None if rate is None else rate / continuous_per_s,
        None if rate is None else rate / static_per_s,
    )


def why_not_timed(setting: Setting) -> str | None:
    """Why a cell cannot run on its clock, None if it can."""
    arrivals, timing = setting.workload.arrivals, timing_of(setting)
    if arrivals is not None and arrivals.horizon == "steady" and timing.load is not None and timing.load >= 1:
        said = f"its load is {timing.load:.4g} of what continuous batching can serve"
        return f'horizon = "steady" needs a load below 1, and {said}: the queue would only grow'
    most = largest_batch(timing.step_time)
    if most is not None and slots_of(setting.server) > most:
        return f"step times were measured up to a batch of {most:,}, and there are {slots_of(setting.server):,} slots"
    return None


def clock_faults(resolved: Iterable[Setting]) -> Iterator[Fault]:
    """What does not go together in studies with a clock, each once."""
    cells = list(resolved)
    if not any(map(has_clock, cells)):
        return
    for setting in cells:
        workload, server = setting.workload, setting.server
        for path, given in _of_memory(setting).items():
            if given:
                yield Fault(path, "does not go with arrivals, an order, an slo or a step yet", hint="leave it out")
        arrivals = workload.arrivals
        in_seconds = server.step is not None or server.step_ms is not None
        if arrivals is not None and not in_seconds and _speaks_of_seconds(arrivals):
            yield Fault(("workload", "arrivals"), "is in seconds and needs a step time", hint="set server.step_ms")
        if not in_seconds and (workload.slo is not None or server.max_wait_s > 0):
            path = ("workload", "slo") if workload.slo is not None else ("server", "max_wait_s")
            yield Fault(path, "is in seconds and needs a step time", hint="set server.step_ms")
        if server.order == "priority" and workload.priorities is None:
            yield Fault(("workload", "priorities"), 'missing; server.order = "priority" needs it', kind="missing")
        if arrivals is not None and arrivals.process == "times" and workload.requests > len(arrivals.given_s()):
            there = f"{workload.requests:,} requests, and arrivals has {len(arrivals.given_s()):,} times"
            yield Fault(("workload", "requests"), there)
        if _charges_unknown_prompts(setting):
            yield Fault(("server", "step"), "has no rows of prompts alone", hint="set server.charge_prompts = false")


def _of_memory(setting: Setting) -> dict[tuple[str | int, ...], Any]:
    """What only the server model knows, by path."""
    workload, server = setting.workload, setting.server
    return {
        ("workload", "shared_prefix"): workload.shared_prefix,
        ("server", "kv"): server.kv,
        ("server", "refill_delay"): server.refill_delay,
        ("server", "static_slots"): server.static_slots,
    }


def _speaks_of_seconds(arrivals: ArrivalSpec) -> bool:
    own = arrivals.process in ("phases", "bursts", "times") or bool(arrivals.think_s)
    return arrivals.rate_per_s is not None or own


def _charges_unknown_prompts(setting: Setting) -> bool:
    step = setting.server.step
    known = step is None or computes_prompts(step.step_time)
    return _has_prompts(setting.workload) and setting.server.charge_prompts and not known


def _has_prompts(workload: WorkloadSpec) -> bool:
    return workload.prompt is not None or workload.trace is not None


def _rate(arrivals: ArrivalSpec | None, capacity_per_s: float) -> float | None:
    if arrivals is None:
        return None
    return arrivals.load * capacity_per_s if arrivals.load is not None else arrivals.rate_per_s


def _capacities(setting: Setting, step_time: StepTime) -> tuple[float, float]:
    """Requests a second that both schedulers serve with a queue that never empties.

    Exact for a constant step. A step that depends on what runs is taken at the mean of it, which is exact for the
    continuous side of a line; static groups are taken to be padded.
    """
    workload, slots = setting.workload, slots_of(setting.server)
    lengths = integer_lengths(workload.output)
    mean, cv = moments(lengths)
    if mean == 0 or slots == 0:
        return float("inf"), float("inf")
    longest, prompt = mean_longest(lengths, slots), _mean_prompt(workload)
    read = prompt + (mean * (1 + cv * cv) + 1) / 2  # by a running request, over the steps of all requests
    prompt_s = _step_s(step_time, 0, 0, prompt) if _has_prompts(workload) and setting.server.charge_prompts else 0.0
    continuous_s = mean / slots * _step_s(step_time, slots, slots * read, 0) + prompt_s
    static_s = longest / slots * _step_s(step_time, slots, slots * (prompt + (longest + 1) / 2), 0) + prompt_s
    return 1 / continuous_s, 1 / static_s


def _step_s(step_time: StepTime, batch: int, kv_tokens: float, prefill_tokens: float) -> float:
    if isinstance(step_time, Constant):
        return step_time.step_s
    if isinstance(step_time, Affine):
        c0, c1, c2, c3 = step_time
        return c0 + c1 * batch + c2 * kv_tokens + c3 * prefill_tokens
    from sweep.model.stepseconds import step_seconds  # a compiler, which few studies need to be read

    return float(step_seconds(step_time, batch, round(kv_tokens), round(prefill_tokens)))


def _mean_prompt(workload: WorkloadSpec) -> float:
    if workload.prompt is not None:
        return moments(integer_lengths(workload.prompt)).mean
    return moments(integer_lengths(workload.trace.lengths("prompt"))).mean if workload.trace is not None else 0.0

"""What a study with a clock comes to for a cell: its step time, rules of admission, and the rate that its load means.

A study has a clock when requests arrive over time, are admitted in another order than their own, or take steps of times
of their own. It runs on the server model where memory, prefixes, a delay or groups of another size are given in any
cell. Left out: the simulation itself, which is in `rows.arriving`.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sweep.model.steptime import Constant, StepTime, computes_prompts, largest_batch
from sweep.model.trace_pack import Moments
from sweep.study.arrival_spec import ArrivalSpec, SloSpec
from sweep.study.capacity import capacities, has_prompts
from sweep.study.faults import Fault
from sweep.study.schema import Setting, WorkloadSpec, has_clock, has_step_time, is_served_study, slots_of

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
    capacity_per_s: float  # requests that continuous batching serves at most; see `capacity`
    load: float | None
    static_load: float | None  # the same for static batching with full groups; above 1 its queue only grows


class Demand(NamedTuple):
    """What arrives beside lengths, the same for all cells of a point."""

    arrivals: ArrivalSpec
    priorities: tuple[float, ...] | None
    slo: SloSpec | None
    prompts: bool  # whether there are any
    moments: Moments | None = None  # of given times, or of the rows of a trace

    def gap_cv(self) -> float | None:
        """The cv of the gaps that is asked for; None where the process is not one of gaps."""
        return self.arrivals.gap_cv() if self.moments is None else self.moments.gap_cv()


def demand_of(workload: WorkloadSpec) -> Demand:
    """What arrives, with what is left out filled in."""
    arrivals = workload.arrivals or ArrivalSpec(process="at_once")
    return Demand(arrivals, workload.priorities, workload.slo, has_prompts(workload), _moments(workload))


def timing_of(setting: Setting, *, served: bool) -> Timing:
    """The clock of a cell that has slots. served : whether the study runs on the server model."""
    workload, server = setting.workload, setting.server
    step_time: StepTime = STEP
    if server.step is not None:
        step_time = server.step.step_time
    elif server.step_ms is not None:
        step_time = Constant(server.step_ms / 1000)
    continuous_per_s, static_per_s = capacities(setting, step_time, served=served)
    rate = _rate(workload, continuous_per_s)
    return Timing(
        step_time,
        has_step_time(setting),
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


def why_unserved(setting: Setting, *, served: bool) -> str | None:
    """Why a load is no rate, or a cell cannot stand for a server that runs forever, None if all is well."""
    timing = timing_of(setting, served=served)
    if timing.rate_per_s is not None and not math.isfinite(timing.rate_per_s):
        return "a load is a share of what the server can serve, and there is no limit to that: no request takes a step"
    if not _is_steady(setting) or timing.load is None or timing.load < 1:
        return None
    said = f"its load is {timing.load:.4g} of what continuous batching can serve"
    return f'horizon = "steady" needs a load below 1, and {said}: the queue would only grow'


def why_unmeasured(setting: Setting) -> str | None:
    """Why a cell may take steps of more requests than its table was measured with, None if it cannot."""
    step = setting.server.step
    most = None if step is None else largest_batch(step.step_time)
    if most is None or slots_of(setting.server) <= most:
        return None
    return f"step times were measured up to a batch of {most:,}, and there are {slots_of(setting.server):,} slots"


def kept_unasked(resolved: Iterable[Setting]) -> Iterator[str]:
    """Metrics that a study with a clock keeps in any case: the seconds that its rates are taken over, and whether a
    server with memory keeps up with requests that keep coming.
    """
    cells = list(resolved)
    if not any(map(has_clock, cells)):
        return
    if all(map(has_step_time, cells)):
        yield from ("static_s", "continuous_s")
    if is_served_study(cells) and any(map(_is_steady, cells)):
        yield from ("static_growth_share", "continuous_growth_share")


def _is_steady(setting: Setting) -> bool:
    return setting.workload.arrivals is not None and setting.workload.arrivals.horizon == "steady"


def clock_faults(resolved: Iterable[Setting]) -> Iterator[Fault]:
    """What does not go together in studies with a clock, each once."""
    cells = list(resolved)
    if not any(map(has_clock, cells)):
        return
    served = is_served_study(cells)
    for setting in cells:
        workload, server = setting.workload, setting.server
        arrivals = workload.arrivals
        in_seconds = has_step_time(setting)
        if arrivals is not None and not in_seconds and _speaks_of_seconds(arrivals):
            yield Fault(("workload", "arrivals"), "is in seconds and needs a step time", hint="set server.step_ms")
        if not in_seconds and (workload.slo is not None or server.max_wait_s > 0):
            late = ("workload", "slo") if workload.slo is not None else ("server", "max_wait_s")
            yield Fault(late, "is in seconds and needs a step time", hint="set server.step_ms")
        if server.order == "priority" and workload.priorities is None:
            yield Fault(("workload", "priorities"), 'missing; server.order = "priority" needs it', kind="missing")
        given = arrivals.moments() if arrivals is not None else None
        if given is not None and workload.requests > len(given.seconds):
            there = f"{workload.requests:,} requests, and arrivals has {len(given.seconds):,} times"
            yield Fault(("workload", "requests"), there)
        yield from _prompt_faults(setting, served=served)


def _prompt_faults(setting: Setting, *, served: bool) -> Iterator[Fault]:
    """What the steps of prompts lack. On the server model every request has a prompt, and computes it again when it
    comes back from a preemption.
    """
    step, charged = setting.server.step, setting.server.charge_prompts
    unknown = step is not None and not computes_prompts(step.step_time)
    if served and not charged:
        why = "prompts always take steps where server.kv, shared_prefix, refill_delay or static_slots is given"
        yield Fault(("server", "charge_prompts"), why, "false", "leave it out")
    elif served and unknown:
        why = "has no rows of prompts alone, which server.kv, shared_prefix, refill_delay and static_slots need"
        yield Fault(("server", "step"), why, hint="add rows with batch = 0")
    elif unknown and charged and has_prompts(setting.workload):
        yield Fault(("server", "step"), "has no rows of prompts alone", hint="set server.charge_prompts = false")


def _speaks_of_seconds(arrivals: ArrivalSpec) -> bool:
    own = arrivals.process in ("phases", "bursts", "times") or bool(arrivals.think_s)
    unscaled = arrivals.process == "trace" and arrivals.load is None
    return arrivals.rate_per_s is not None or own or unscaled


def _moments(workload: WorkloadSpec) -> Moments | None:
    """Given times, or those of the rows of a trace; None where arrivals are drawn."""
    arrivals = workload.arrivals
    if arrivals is not None and arrivals.process == "trace":
        assert workload.trace is not None
        return workload.trace.moments()
    return None if arrivals is None else arrivals.moments()


def _rate(workload: WorkloadSpec, capacity_per_s: float) -> float | None:
    arrivals, moments = workload.arrivals, _moments(workload)
    if arrivals is None:
        return None
    if arrivals.load is not None:
        return arrivals.load * capacity_per_s
    return arrivals.rate_per_s if arrivals.rate_per_s or moments is None else moments.rate_per_s()

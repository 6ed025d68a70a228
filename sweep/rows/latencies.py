"""Rows of a chunk whose cells have a clock: both schedulers on requests that arrive, and what users see of it.

    wait  from arrival to a slot        ttft  from arrival to the first token
    e2e   from arrival to the last      tpot  from the first token to the last, over the tokens after the first

All are of the requests that count: every one in a terminating study, those after the warm-up in a steady one. What a
request without output lacks, or one of a single token (tpot), is left out; a percentile needs a few requests beyond it.
Utilisation is the share of slot-time in which a slot holds a request that is not done, from the first arrival that
counts to the end: the last token, or in a steady study the last arrival.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sweep.grid import Cell, Chunk, Point
from sweep.model.arrivals import arrival_s, observed, think_times
from sweep.model.arriving import Requests, Times, continuous_times, static_times
from sweep.model.steptime import Constant
from sweep.model.uniforms import CLASSES, PREDICTIONS, uniforms
from sweep.rows.draws import outputs, workloads
from sweep.study.arrival_spec import SloSpec
from sweep.study.timed_metrics import OF_SLO_RATE, TIMED
from sweep.study.timing import Timing

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Array = NDArray[Any]

MOST_DRAWN = 2**19  # requests simulated at a time: some 100 MB with all that becomes of them
BEYOND = 5  # requests that must lie beyond a percentile for it to be said
HALVINGS = 14
RATES = 2.0**-10, 2.0**2  # between which the largest rate is sought, relative to the capacity

# A request costs so much whatever its length where steps are equal, and more where each step is looked at.
REQUEST_NS, STEPPED_REQUEST_NS = 500.0, 3_000.0


class Lived(NamedTuple):
    """One scheduler's latencies of the requests that count, (workloads, counted), in seconds; nan where undefined."""

    wait: F64
    ttft: F64
    tpot: F64
    e2e: F64


def timed_columns(chunk: Chunk, cells: Sequence[Cell]) -> dict[str, Array]:
    """Columns of all metrics that the point measures, a row for each cell and replicate in this order."""
    columns: list[list[dict[str, Array]]] = [[] for _ in cells]
    for first, count in _pieces(chunk):
        drawn = _drawn(chunk.point, first, count)
        for place, cell in enumerate(cells):
            columns[place].append(_columns(chunk.point, cell, drawn, first, count))
    rows = [piece for pieces in columns for piece in pieces]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def timed_ns(cell: Cell, measure: Sequence[str]) -> float:
    """About how long a request takes on a cell's server; fixed, since the boundaries of chunks follow from it."""
    assert cell.timing is not None
    once = REQUEST_NS if isinstance(cell.timing.step_time, Constant) else STEPPED_REQUEST_NS
    return once * (1 + HALVINGS * len(set(measure) & set(OF_SLO_RATE)))


def _pieces(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """First replicate and number of those that are simulated together."""
    most = max(1, MOST_DRAWN // chunk.point.workload.requests)
    for first in range(chunk.first, chunk.stop, most):
        yield first, min(most, chunk.stop - first)


class _Drawn(NamedTuple):
    """What is the same for all cells."""

    output: I64
    prompt: I64


def _drawn(point: Point, first: int, count: int) -> _Drawn:
    workload = point.workload
    assert workload.demand is not None
    if not workload.demand.prompts:
        output = outputs(workload, first, count)
        return _Drawn(output, np.zeros_like(output))
    work = workloads(workload, first, count)
    return _Drawn(work.outputs, work.prompts)


def _columns(point: Point, cell: Cell, drawn: _Drawn, first: int, count: int) -> dict[str, Array]:
    workload, timing = point.workload, cell.timing
    assert workload.demand is not None
    assert timing is not None
    requests = _requests(point, timing, drawn, first, count)
    runs = {name: _run(name, timing, requests, cell.slots) for name in ("static", "continuous")}
    arrivals = workload.demand.arrivals
    steady = arrivals.horizon == "steady"
    counted = int(arrivals.warm_up * workload.requests) if steady else 0
    found: dict[str, Array] = {
        "output_tokens": drawn.output.sum(axis=1),
        "longest_output_tokens": drawn.output.max(axis=1),
    }
    lived = {name: _lived(times, drawn.output, counted) for name, times in runs.items()}
    wanted = set(point.measure)
    for name, times in runs.items():
        known = timing.has_seconds
        found[f"{name}_steps"] = times.steps
        found[f"{name}_s"] = _span(times) if known else np.full(count, np.nan)
        found[f"{name}_utilisation"] = _utilisation(times, cell.slots, counted, steady=steady)
        found |= _latencies(name, lived[name], times, counted, workload.demand.slo, wanted, steady=steady)
        if f"{name}_slo_rate_per_s" in wanted:
            assert workload.demand.slo is not None
            slo = workload.demand.slo
            found[f"{name}_slo_rate_per_s"] = _largest_rate(cell, name, requests, slo, counted)
    for metric in ("wait", "ttft", "e2e"):
        if f"{metric}_ratio" in wanted:
            static, continuous = (_mean(getattr(lived[name], metric)) for name in ("static", "continuous"))
            found[f"{metric}_ratio"] = _ratio(static, continuous)
    if steady and timing.static_load is not None and timing.static_load >= 1:
        overloaded = [one for one in found if one in TIMED and one.startswith(("static", "wait_", "ttft_", "e2e_"))]
        found |= {one: np.full(count, np.nan) for one in overloaded}
    rate, cv = observed(_sent_s(runs["continuous"]) if arrivals.process == "clients" else requests.arrival_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = {"multiple": found["static_steps"] / found["continuous_steps"]}
    return found | multiple | {"arrival_rate_per_s": rate, "arrival_gap_cv": cv}


def _requests(point: Point, timing: Timing, drawn: _Drawn, first: int, count: int) -> Requests:
    workload = point.workload
    assert workload.demand is not None
    arrivals, size = workload.demand.arrivals, workload.requests
    at = (workload.seed, first, count, size)
    rank = _ranks(point, timing, drawn.output, first, count)
    if arrivals.process == "clients":
        think = think_times(arrivals.think_s or 0.0, *at)
        assert arrivals.clients is not None
        return Requests(np.zeros((count, size)), drawn.output, drawn.prompt, rank, min(arrivals.clients, size), think)
    times = arrival_s(arrivals.pattern(), timing.rate_per_s, *at)
    return Requests(times, drawn.output, drawn.prompt, rank)


def _ranks(point: Point, timing: Timing, output: I64, first: int, count: int) -> F64:
    """Who goes first: the lower rank; equal ranks go by arrival."""
    workload = point.workload
    assert workload.demand is not None
    number = partial(uniforms, workload.seed, first=first, count=count, numbers=workload.requests)
    if timing.order == "shortest_first":
        if timing.prediction_cv == 0:
            return output.astype(np.float64)
        variance = np.log1p(timing.prediction_cv**2)  # of the logarithm of an error of mean 1
        error = np.exp(np.sqrt(variance) * ndtri(number(stream=PREDICTIONS)) - variance / 2)
        return np.asarray(output * error, np.float64)
    if timing.order == "priority":
        shares = np.array(workload.demand.priorities)
        bounds = np.cumsum(shares)[:-1] / shares.sum()
        return np.searchsorted(bounds, number(stream=CLASSES), side="right").astype(np.float64)
    return np.zeros(output.shape)


def _run(scheduler: str, timing: Timing, requests: Requests, slots: int) -> Times:
    charged = timing.charges_prompts
    if scheduler == "continuous":
        return continuous_times(timing.step_time, requests, slots, charged=charged)
    how = {"charged": charged, "max_wait_s": timing.max_wait_s, "padded": timing.pads}
    return static_times(timing.step_time, requests, slots, **how)  # type: ignore[arg-type]


def _lived(times: Times, output: I64, counted: int) -> Lived:
    arrival, start, first, finish = (moments[:, counted:] for moments in times[:4])
    tokens, unit_s = output[:, counted:], times.unit_s
    with np.errstate(divide="ignore", invalid="ignore"):
        return Lived(
            (start - arrival) * unit_s,
            (first - arrival) * unit_s,
            np.where(tokens > 1, (finish - first) / (tokens - 1) * unit_s, np.nan),
            np.where(tokens > 0, (finish - arrival) * unit_s, np.nan),
        )


def _latencies(
    scheduler: str, lived: Lived, times: Times, counted: int, slo: SloSpec | None, wanted: set[str], *, steady: bool
) -> dict[str, Array]:
    """The wanted ones of a scheduler's means, percentiles and shares."""
    found: dict[str, Array] = {}
    for metric, values in lived._asdict().items():
        names = {part: f"{scheduler}_{metric}_{part}_s" for part in ("mean", "p50", "p90", "p95", "p99")}
        if not wanted & set(names.values()):
            continue
        found[names.pop("mean")] = _mean(values)
        found |= zip(names.values(), _percentiles(values, [int(part[1:]) for part in names]), strict=True)
    found[f"{scheduler}_waited_share"] = (lived.wait > 0).mean(axis=1)
    if slo is not None:
        met = _meets(lived, slo)
        found[f"{scheduler}_slo_share"] = met.mean(axis=1)
        found[f"{scheduler}_goodput_per_s"] = _ratio(met.sum(axis=1), _window_s(times, counted, steady=steady))
    return found


def _meets(lived: Lived, slo: SloSpec) -> Flags:
    """Which requests have all that is asked; what a request has not, such as a second token, is not late."""
    met = np.ones(lived.ttft.shape, np.bool_)
    for limit, values in ((slo.ttft_s, lived.ttft), (slo.tpot_s, lived.tpot), (slo.e2e_s, lived.e2e)):
        if limit is not None:
            met &= ~(values > limit)
    return met


def _largest_rate(cell: Cell, scheduler: str, requests: Requests, slo: SloSpec, counted: int) -> F64:
    """The largest rate at which each workload keeps its SLO, by halving; nan where it does at no rate, or at all.

    The same gaps are stretched, so under a higher rate each request of a workload comes sooner and none changes.
    """
    timing = cell.timing
    assert timing is not None
    own_rate_per_s = timing.rate_per_s
    assert own_rate_per_s is not None

    def kept(rate_per_s: F64) -> Flags:
        stretched = requests._replace(arrival_s=requests.arrival_s * (own_rate_per_s / rate_per_s)[:, None])
        lived = _lived(_run(scheduler, timing, stretched, cell.slots), requests.output, counted)
        return np.asarray(_meets(lived, slo).mean(axis=1) >= slo.share)

    count = len(requests.output)
    low, high = (np.full(count, timing.capacity_per_s * factor) for factor in RATES)
    bracketed = kept(low) & ~kept(high)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        ok = kept(middle)
        low, high = np.where(ok, middle, low), np.where(ok, high, middle)
    return np.where(bracketed, low, np.nan)


def _sent_s(times: Times) -> F64:
    """When clients sent their requests."""
    return times.arrival * times.unit_s


def _span(times: Times) -> F64:
    """Seconds from the first arrival to the last token."""
    return np.asarray((times.finish.max(axis=1) - times.arrival[:, 0]) * times.unit_s)


def _window_s(times: Times, counted: int, *, steady: bool) -> F64:
    """Seconds over which rates are taken."""
    start, end = _window(times, counted, steady=steady)
    return np.asarray((end - start) * times.unit_s)


def _window(times: Times, counted: int, *, steady: bool) -> tuple[F64, F64]:
    """When it starts and ends, on the clock of the times."""
    return times.arrival[:, counted], times.arrival[:, -1] if steady else times.finish.max(axis=1)


def _utilisation(times: Times, slots: int, counted: int, *, steady: bool) -> F64:
    start, end = _window(times, counted, steady=steady)
    held = np.minimum(times.finish, end[:, None]) - np.maximum(times.start, start[:, None])
    return _ratio(np.maximum(held, 0).sum(axis=1), slots * (end - start))


def _mean(values: F64) -> F64:
    """The mean of the defined values of each row; nan where there is none."""
    defined = np.isfinite(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=1), defined.sum(axis=1))


def _percentiles(values: F64, percents: Sequence[int]) -> list[F64]:
    """Percentiles of the defined values of each row, linear between neighbours; nan where too few lie beyond."""
    ordered = np.sort(values, axis=1)  # nan last
    counts = np.isfinite(values).sum(axis=1)
    found = []
    for percent in percents:
        place = (counts - 1) * percent / 100
        low = np.clip(np.floor(place).astype(np.int64), 0, None)
        high = np.minimum(low + 1, np.maximum(counts - 1, 0))
        ends = (np.take_along_axis(ordered, at[:, None], axis=1)[:, 0] for at in (low, high))
        lower, upper = ends
        said = counts * (100 - percent) >= 100 * BEYOND
        found.append(np.where(said, lower + (upper - lower) * (place - low), np.nan))
    return found


def _ratio(above: Array, below: Array) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)

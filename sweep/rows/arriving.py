"""Rows of a chunk whose cells have a clock: requests as they arrive, and what both schedulers make of them.

What is measured of their times is in `latencies`; the draws themselves are in `model.arrivals` and `draws`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sweep.grid import Cell, Chunk, Point
from sweep.metrics import OF_SLO_RATE, TIMED
from sweep.model.arrivals import observed, think_times
from sweep.model.arriving import continuous_times, static_times
from sweep.model.steptime import Constant
from sweep.model.times import AnyTimes, Requests
from sweep.model.uniforms import CLASSES, PREDICTIONS, uniforms
from sweep.rows.draws import arrivals, outputs, workloads
from sweep.rows.latencies import Window, latency_columns, meets, ratio, span_s, utilisation
from sweep.study.arrival_spec import SloSpec
from sweep.study.timing import Timing

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Array = NDArray[Any]

MOST_DRAWN = 2**19  # requests simulated at a time: some 100 MB with all that becomes of them
HALVINGS = 14
RATES = 2.0**-10, 2.0**2  # between which the largest rate is sought, relative to the capacity

# A request costs so much whatever its length where steps are equal, and more where each step is looked at.
REQUEST_NS, STEPPED_REQUEST_NS = 500.0, 3_000.0


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
    window = Window(int(arrivals.warm_up * workload.requests) if steady else 0, steady)
    found: dict[str, Array] = {
        "output_tokens": drawn.output.sum(axis=1),
        "longest_output_tokens": drawn.output.max(axis=1),
    }
    compared = [metric for metric in ("wait", "ttft", "e2e") if f"{metric}_ratio" in point.measure]
    wanted = {*point.measure, *(f"{name}_{metric}_mean_s" for name in runs for metric in compared)}
    for name, times in runs.items():
        known = timing.has_seconds
        found[f"{name}_steps"] = times.steps
        found[f"{name}_s"] = span_s(times) if known else np.full(count, np.nan)
        found[f"{name}_utilisation"] = utilisation(times, cell.slots, window)
        found |= latency_columns(name, times, drawn.output, window, workload.demand.slo, wanted)
        if f"{name}_slo_rate_per_s" in wanted:
            assert workload.demand.slo is not None
            slo = workload.demand.slo
            found[f"{name}_slo_rate_per_s"] = _largest_rate(cell, name, requests, slo, window)
    for metric in compared:
        found[f"{metric}_ratio"] = ratio(*(found[f"{name}_{metric}_mean_s"] for name in runs))
    if steady and timing.static_load is not None and timing.static_load >= 1:
        overloaded = [one for one in found if one in TIMED and one.startswith(("static", "wait_", "ttft_", "e2e_"))]
        found |= {one: np.full(count, np.nan) for one in overloaded}
    if wanted & {"arrival_rate_per_s", "arrival_gap_cv"}:
        sent_s = _sent_s(runs["continuous"]) if arrivals.process == "clients" else requests.arrival_s
        found["arrival_rate_per_s"], found["arrival_gap_cv"] = observed(sent_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        return found | {"multiple": found["static_steps"] / found["continuous_steps"]}


def _requests(point: Point, timing: Timing, drawn: _Drawn, first: int, count: int) -> Requests:
    workload = point.workload
    assert workload.demand is not None
    spec, size = workload.demand.arrivals, workload.requests
    rank = _ranks(point, timing, drawn.output, first, count)
    if spec.process == "clients":
        think = think_times(spec.think_s or 0.0, workload.seed, first, count, size)
        assert spec.clients is not None
        return Requests(np.zeros((count, size)), drawn.output, drawn.prompt, rank, min(spec.clients, size), think)
    return Requests(arrivals(workload, timing.rate_per_s, first, count), drawn.output, drawn.prompt, rank)


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


def _run(scheduler: str, timing: Timing, requests: Requests, slots: int) -> AnyTimes:
    charged = timing.charges_prompts
    if scheduler == "continuous":
        return continuous_times(timing.step_time, requests, slots, charged=charged)
    how = {"charged": charged, "max_wait_s": timing.max_wait_s, "padded": timing.pads}
    return static_times(timing.step_time, requests, slots, **how)  # type: ignore[arg-type]


def _largest_rate(cell: Cell, scheduler: str, requests: Requests, slo: SloSpec, window: Window) -> F64:
    """The largest rate at which each workload keeps its SLO, by halving; nan where it does at no rate, or at all.

    The same gaps are stretched, so under a higher rate each request of a workload comes sooner and none changes.
    """
    timing = cell.timing
    assert timing is not None
    own_rate_per_s = timing.rate_per_s
    assert own_rate_per_s is not None

    def kept(rate_per_s: F64) -> Flags:
        stretched = requests._replace(arrival_s=requests.arrival_s * (own_rate_per_s / rate_per_s)[:, None])
        met = meets(_run(scheduler, timing, stretched, cell.slots), requests.output, window, slo)
        return np.asarray(met.mean(axis=1) >= slo.share)

    count = len(requests.output)
    low, high = (np.full(count, timing.capacity_per_s * factor) for factor in RATES)
    bracketed = kept(low) & ~kept(high)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        ok = kept(middle)
        low, high = np.where(ok, middle, low), np.where(ok, high, middle)
    return np.where(bracketed, low, np.nan)


def _sent_s(times: AnyTimes) -> F64:
    """When clients sent their requests."""
    return times.arrival * times.unit_s

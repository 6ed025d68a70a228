"""Rows of a chunk whose cells have a clock: requests as they arrive, and what both schedulers make of them.

What is measured of their times is in `latencies`; the draws themselves are in `model.arrivals` and `draws`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sweep.grid import Cell, Chunk, Point
from sweep.metrics import OF_SLO_RATE, TIMED
from sweep.model.arrivals import observed, think_times
from sweep.model.policies import Workloads
from sweep.model.queues import LANES
from sweep.model.steptime import Constant
from sweep.model.times import AnyTimes, Requests
from sweep.model.uniforms import CLASSES, PREDICTIONS, uniforms
from sweep.rows.backlog import growth_share
from sweep.rows.draws import arrivals, outputs, workloads
from sweep.rows.latencies import Window, latency_columns, ratio, slo_share, span_s, utilisation
from sweep.rows.schedulers import SCHEDULERS, Scheduler, counted, run_on, slots_under
from sweep.study.arrival_spec import SloSpec
from sweep.study.timing import Timing

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Array = NDArray[Any]

MOST_DRAWN = 2**19  # requests whose outputs are drawn at a time
MOST_SIMULATED = 2**17  # and that are simulated at a time: what becomes of them mostly stays in the cache
HALVINGS = 14
RATES = 2.0**-10, 2.0**2  # between which the largest rate is sought, relative to the capacity

# What a request costs, whatever its length, where it is simulated in lanes, and for each rate that is tried for an SLO;
# where equal steps are taken in another order or by clients; and where each step is looked at.
LANES_NS, RATE_NS, REQUEST_NS, STEPPED_REQUEST_NS = 50.0, 10.0, 400.0, 3_000.0
SERVED_REQUEST_NS, STEPPED_SERVED_REQUEST_NS = 2_000.0, 6_000.0  # with memory, or a token budget


def timed_columns(chunk: Chunk, cells: Sequence[Cell]) -> dict[str, Array]:
    """Columns of all metrics that the point measures, a row for each cell and replicate in this order."""
    columns: list[list[dict[str, Array]]] = [[] for _ in cells]
    for first, work in _pieces(chunk):
        for place, cell in enumerate(cells):
            columns[place].append(_columns(chunk.point, cell, work, first))
    rows = [piece for pieces in columns for piece in pieces]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def times_of(point: Point, cell: Cell, replicate: int) -> dict[str, AnyTimes]:
    """When the requests of one workload came, had their slots and were done, by scheduler."""
    assert cell.timing is not None
    work = _drawn(point, replicate, 1)
    requests = _requests(point, cell.timing, work, replicate, 1)
    return {name: run_on(cell, name, work, requests).times for name in SCHEDULERS}


def timed_ns(cell: Cell, measure: Sequence[str]) -> float:
    """About how long a request takes on a cell's server; fixed, since the boundaries of chunks follow from it."""
    assert cell.timing is not None
    rates = (HALVINGS + 2) * len(set(measure) & set(OF_SLO_RATE))
    equal = isinstance(cell.timing.step_time, Constant)
    if cell.rules is not None:
        return (SERVED_REQUEST_NS if equal else STEPPED_SERVED_REQUEST_NS) * (1 + rates)
    if not equal:
        return STEPPED_REQUEST_NS * (1 + rates)
    if cell.timing.order != "first_come" or cell.timing.rate_per_s is None:
        return REQUEST_NS * (1 + rates)
    return LANES_NS + RATE_NS * rates


def _pieces(chunk: Chunk) -> Iterator[tuple[int, Workloads]]:
    """Workloads that are simulated together, and the first replicate: whole blocks of lanes, if so many can be.

    Outputs are drawn for more of them at once, since `lockstep` has more lanes.
    """
    requests = chunk.point.workload.requests
    most = max(1, MOST_SIMULATED // requests)
    most -= most % int(LANES) if most > LANES else 0
    drawn = most * max(1, MOST_DRAWN // (most * requests))
    for start in range(chunk.first, chunk.stop, drawn):
        work = _drawn(chunk.point, start, min(drawn, chunk.stop - start))
        for first in range(0, len(work.outputs), most):
            yield start + first, _some(work, slice(first, first + most))


def _some(work: Workloads, rows: slice) -> Workloads:
    """Some of the workloads; what is the same for all stays."""
    prompts, groups = (array if len(array) == 1 else array[rows] for array in (work.prompts, work.groups))
    return work._replace(prompts=prompts, outputs=work.outputs[rows], groups=groups)


def _drawn(point: Point, first: int, count: int) -> Workloads:
    """What is the same for all cells; without prompts, but on the server model, they are of no tokens, said once."""
    workload = point.workload
    assert workload.demand is not None
    if workload.demand.prompts or any(cell.rules is not None for cell in point.cells):
        return workloads(workload, first, count)
    output = outputs(workload, first, count)
    return Workloads(np.zeros((1, 1), np.int64), output, np.zeros((1, 1), np.int64), 0)


def _columns(point: Point, cell: Cell, work: Workloads, first: int) -> dict[str, Array]:
    workload, timing, count = point.workload, cell.timing, len(work.outputs)
    assert workload.demand is not None
    assert timing is not None
    requests = _requests(point, timing, work, first, count)
    runs = {name: run_on(cell, name, work, requests) for name in SCHEDULERS}
    arrivals = workload.demand.arrivals
    steady = arrivals.horizon == "steady"
    window = Window(int(arrivals.warm_up * workload.requests) if steady else 0, steady)
    found = counted(cell, work, **runs)
    compared = [metric for metric in ("wait", "ttft", "e2e") if f"{metric}_ratio" in point.measure]
    wanted = {*point.measure, *(f"{name}_{metric}_mean_s" for name in runs for metric in compared)}
    for name, (times, *_) in runs.items():
        known = timing.has_seconds
        found[f"{name}_s"] = span_s(times) if known else np.full(count, np.nan)
        found[f"{name}_utilisation"] = utilisation(times, slots_under(cell, name), window)
        found |= latency_columns(name, times, work.outputs, window, workload.demand.slo, wanted)
        if f"{name}_growth_share" in wanted:
            found[f"{name}_growth_share"] = growth_share(times, window)
        if f"{name}_slo_rate_per_s" in wanted:
            assert workload.demand.slo is not None
            slo = workload.demand.slo
            found[f"{name}_slo_rate_per_s"] = _largest_rate(cell, name, work, requests, slo, window)
    for metric in compared:
        found[f"{metric}_ratio"] = ratio(*(found[f"{name}_{metric}_mean_s"] for name in runs))
    if steady and timing.static_load is not None and timing.static_load >= 1:
        overloaded = [one for one in found if one in TIMED and one.startswith(("static", "wait_", "ttft_", "e2e_"))]
        overloaded = [one for one in overloaded if one not in OF_SLO_RATE]  # sought at rates of its own
        found |= {one: np.full(count, np.nan) for one in overloaded}
    if wanted & {"arrival_rate_per_s", "arrival_gap_cv"}:
        by_clients = arrivals.process == "clients"
        rate, cv = _observed_of_clients(runs["continuous"].times) if by_clients else observed(requests.arrival_s)
        found |= {"arrival_rate_per_s": rate, "arrival_gap_cv": cv}
    with np.errstate(divide="ignore", invalid="ignore"):
        return found | {"multiple": found["static_steps"] / found["continuous_steps"]}


def _requests(point: Point, timing: Timing, work: Workloads, first: int, count: int) -> Requests:
    workload = point.workload
    assert workload.demand is not None
    spec, size = workload.demand.arrivals, workload.requests
    output, prompt = work.outputs, work.prompts
    rank = _ranks(point, timing, output, first, count)
    if spec.process == "clients":
        think = think_times(spec.think_s or 0.0, workload.seed, first, count, size)
        assert spec.clients is not None
        return Requests(np.zeros((count, size)), output, prompt, rank, min(spec.clients, size), think)
    return Requests(arrivals(workload, timing.rate_per_s, first, count), output, prompt, rank)


def _ranks(point: Point, timing: Timing, output: I64, first: int, count: int) -> F64:
    """Who goes first: the lower rank; equal ranks go by arrival, and one for all stands once."""
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
    return np.zeros((1, 1))


def _largest_rate(
    cell: Cell, scheduler: Scheduler, work: Workloads, requests: Requests, slo: SloSpec, window: Window
) -> F64:
    """The largest rate at which each workload keeps its SLO, by halving; nan where it does at no rate, or at all.

    The same gaps are stretched, so under a higher rate each request of a workload comes sooner and none changes.
    """
    timing = cell.timing
    assert timing is not None
    own_rate_per_s = timing.rate_per_s
    assert own_rate_per_s is not None

    def kept(rate_per_s: F64) -> Flags:
        stretched = requests._replace(arrival_s=requests.arrival_s * (own_rate_per_s / rate_per_s)[:, None])
        times = run_on(cell, scheduler, work, stretched).times
        return np.asarray(slo_share(times, work.outputs, window, slo) >= slo.share)

    count = len(requests.output)
    low, high = (np.full(count, timing.capacity_per_s * factor) for factor in RATES)
    bracketed = kept(low) & ~kept(high)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        ok = kept(middle)
        low, high = np.where(ok, middle, low), np.where(ok, high, middle)
    return np.where(bracketed, low, np.nan)


def _observed_of_clients(times: AnyTimes) -> tuple[F64, F64]:
    """Rate and cv of what clients sent; a request that would be refused is not sent."""
    sent_s = [row[np.isfinite(row)] * times.unit_s for row in times.arrival]
    rates, cvs = zip(*(observed(row[None, :]) for row in sent_s), strict=True)
    return np.concatenate(rates), np.concatenate(cvs)

"""What users see of a scheduler: from the times of requests to latencies, shares, rates and utilisation as columns.

    wait  from arrival to a slot        ttft  from arrival to the first token
    e2e   from arrival to the last      tpot  from the first token to the last, over the tokens after the first

All are of the requests that count: every one in a terminating study, those after the warm-up in a steady one. What a
request without output lacks, or one of a single token (tpot), is left out, and so are requests that were refused, whose
times are all nan; a percentile needs a few requests beyond it.
Utilisation is the share of slot-time in which a slot holds a request that is not done, from the first arrival that
counts to the end: the last token, or in a steady study the last arrival. Left out: how the times came about.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sweep.model.queues import held_steps, seconds_to_tokens
from sweep.model.times import AnyTimes, Times, Waits
from sweep.study.arrival_spec import SloSpec

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Array = NDArray[Any]

Latency = Literal["wait", "ttft", "tpot", "e2e"]

LATENCIES: tuple[Latency, ...] = get_args(Latency)
PERCENTS = (50, 90, 95, 99)
MOST_IN_CACHE = 2**16  # requests whose latencies are looked at together: fresh memory costs more than arithmetic
BEYOND = 5  # requests that must lie beyond a percentile for it to be said


class Window(NamedTuple):
    """Which requests count: those from place `first` on; with `steady`, time ends with the last arrival."""

    first: int
    steady: bool


def latency_columns(
    scheduler: str, times: AnyTimes, output: I64, window: Window, slo: SloSpec | None, wanted: set[str]
) -> dict[str, Array]:
    """The wanted ones of a scheduler's means, percentiles and shares, found for a few workloads at a time."""
    most = max(1, MOST_IN_CACHE // output.shape[1])
    groups = [slice(first, first + most) for first in range(0, len(output), most)]
    found = [_columns_of(scheduler, times.of(rows), output[rows], window, slo, wanted) for rows in groups]
    return {name: np.concatenate([columns[name] for columns in found]) for name in found[0]}


def _columns_of(
    scheduler: str, times: AnyTimes, output: I64, window: Window, slo: SloSpec | None, wanted: set[str]
) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for metric in LATENCIES:
        names = {part: f"{scheduler}_{metric}_{part}_s" for part in ("mean", *map("p{}".format, PERCENTS))}
        percents = [percent for percent in PERCENTS if names[f"p{percent}"] in wanted]
        if not wanted & set(names.values()):
            continue
        values = latency_s(metric, times, output, window)
        if names["mean"] in wanted:
            found[names["mean"]] = mean_of(values)
        if percents:
            said = percentiles(values, percents)
            found |= {names[f"p{percent}"]: column for percent, column in zip(percents, said, strict=True)}
    if f"{scheduler}_waited_share" in wanted:
        found[f"{scheduler}_waited_share"] = ratio(_waited(times, window).sum(axis=1), _counted(times, window))
    if slo is not None and wanted & {f"{scheduler}_slo_share", f"{scheduler}_goodput_per_s"}:
        met = meets(times, output, window, slo)
        found[f"{scheduler}_slo_share"] = ratio(met.sum(axis=1), _counted(times, window))
        found[f"{scheduler}_goodput_per_s"] = ratio(met.sum(axis=1), _window_s(times, window))
    return found


def latency_s(metric: Latency, times: AnyTimes, output: I64, window: Window) -> F64:
    """One latency of the requests that count, (workloads, counted), in seconds; nan where undefined."""
    tokens, unit_s = output[:, window.first :], times.unit_s
    if isinstance(times, Waits):
        match metric:
            case "wait":
                return np.multiply(times.wait[:, window.first :], unit_s, dtype=np.float64)
            case "tpot":
                return np.where(tokens > 1, unit_s, np.nan)
            case "ttft" | "e2e":
                return seconds_to_tokens(times.wait, output, window.first, unit_s, last=metric == "e2e")
    arrival, first, finish = (moments[:, window.first :] for moments in (times.arrival, times.first, times.finish))
    match metric:
        case "wait":
            return np.asarray((times.start[:, window.first :] - arrival) * unit_s)
        case "ttft":
            return np.asarray((first - arrival) * unit_s)
        case "tpot":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(tokens > 1, (finish - first) / (tokens - 1) * unit_s, np.nan)
        case "e2e":
            return np.where(tokens > 0, (finish - arrival) * unit_s, np.nan)


def meets(times: AnyTimes, output: I64, window: Window, slo: SloSpec) -> Flags:
    """Which requests have all that is asked; what a request has not, such as a second token, is not late. A refused one
    has nothing.
    """
    limits: dict[Latency, float | None] = {"ttft": slo.ttft_s, "tpot": slo.tpot_s, "e2e": slo.e2e_s}
    late = [latency_s(one, times, output, window) > limit for one, limit in limits.items() if limit is not None]
    return np.asarray(~np.logical_or.reduce(late) & _are_served(times, window))


def slo_share(times: AnyTimes, output: I64, window: Window, slo: SloSpec) -> F64:
    """The share of each workload's requests that have all that is asked."""
    return ratio(meets(times, output, window, slo).sum(axis=1), _counted(times, window))


def span_s(times: AnyTimes) -> F64:
    """Seconds from the first arrival to the last token."""
    return np.asarray((times.over - _first(times, 0)) * times.unit_s)


def utilisation(times: AnyTimes, slots: int, window: Window) -> F64:
    """The share of slot-time in which slots are in use."""
    start, end = _bounds(times, window)
    if isinstance(times, Waits):
        held = held_steps(times.arrival, times.wait, times.output, start, end)
    else:
        spans = np.minimum(times.finish, end[:, None]) - np.maximum(times.start, start[:, None])
        held = np.fmax(spans, 0).sum(axis=1)  # 0 for who was refused
    return ratio(held, slots * (end - start))


def _waited(times: AnyTimes, window: Window) -> Flags:
    """Which requests that count did not get a slot at once."""
    wait = times.wait if isinstance(times, Waits) else times.start - times.arrival
    return np.asarray(wait[:, window.first :] > 0)


def _window_s(times: AnyTimes, window: Window) -> F64:
    """Seconds over which rates are taken."""
    start, end = _bounds(times, window)
    return np.asarray((end - start) * times.unit_s)


def _bounds(times: AnyTimes, window: Window) -> tuple[F64, F64]:
    """When it starts and ends, on the clock of the times."""
    return _first(times, window.first), _last(times) if window.steady else times.over


def _first(times: AnyTimes, place: int) -> F64:
    """The first arrival from a place on, of a request that was not refused."""
    return np.asarray(
        np.fmin.reduce(times.arrival[:, place:], axis=1) if _may_refuse(times) else times.arrival[:, place]
    )


def _last(times: AnyTimes) -> F64:
    return np.asarray(np.fmax.reduce(times.arrival, axis=1) if _may_refuse(times) else times.arrival[:, -1])


def _counted(times: AnyTimes, window: Window) -> Array:
    """How many requests of each workload count."""
    if _may_refuse(times):
        return np.asarray(_are_served(times, window).sum(axis=1))
    return np.full(len(times.arrival), times.arrival.shape[1] - window.first)


def _are_served(times: AnyTimes, window: Window) -> Flags:
    """Which requests after the warm-up were not refused."""
    arrival = times.arrival[:, window.first :]
    return np.isfinite(times.start[:, window.first :]) if _may_refuse(times) else np.ones(arrival.shape, np.bool_)


def _may_refuse(times: AnyTimes) -> bool:
    """Whether there may be requests without times: only a server with memory refuses any."""
    return isinstance(times, Times)


def mean_of(values: F64) -> F64:
    """The mean of the defined values of each row; nan where there is none."""
    counts = _defined(values)
    all_are = (counts == values.shape[1]).all()
    sums = values.sum(axis=1) if all_are else np.where(np.isfinite(values), values, 0.0).sum(axis=1)
    return ratio(sums, counts)


def percentiles(values: F64, percents: Sequence[int]) -> list[F64]:
    """Percentiles of the defined values of each row, linear between neighbours; nan where too few lie beyond."""
    ordered = np.sort(values, axis=1)  # nan last
    counts = _defined(values)
    rows, found = np.arange(len(values)), []
    for percent in percents:
        place = (counts - 1) * percent / 100
        low = np.clip(np.floor(place).astype(np.int64), 0, None)
        high = np.minimum(low + 1, np.maximum(counts - 1, 0))
        lower, upper = ordered[rows, low], ordered[rows, high]
        said = counts * (100 - percent) >= 100 * BEYOND
        found.append(np.where(said, lower + (upper - lower) * (place - low), np.nan))
    return found


def _defined(values: F64) -> Array:
    """How many values of each row are defined; mostly all, which is quicker to say than to count."""
    defined = np.isfinite(values)
    return np.full(len(values), values.shape[1]) if defined.all() else np.count_nonzero(defined, axis=1)


def ratio(above: Array, below: Array) -> F64:
    """One over the other; nan where the other is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)

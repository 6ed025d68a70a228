"""What users see of a scheduler: from the times of requests to latencies, shares, rates and utilisation as columns.

    wait  from arrival to a slot        ttft  from arrival to the first token
    e2e   from arrival to the last      tpot  from the first token to the last, over the tokens after the first

All are of the requests that count: every one in a terminating study, those after the warm-up in a steady one. What a
request without output lacks, or one of a single token (tpot), is left out; a percentile needs a few requests beyond it.
Utilisation is the share of slot-time in which a slot holds a request that is not done, from the first arrival that
counts to the end: the last token, or in a steady study the last arrival. Left out: how the times came about.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.model.times import Times
from sweep.study.arrival_spec import SloSpec

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Flags = NDArray[np.bool_]
Array = NDArray[Any]

BEYOND = 5  # requests that must lie beyond a percentile for it to be said


class Window(NamedTuple):
    """Which requests count: those from place `first` on; with `steady`, time ends with the last arrival."""

    first: int
    steady: bool


class Lived(NamedTuple):
    """One scheduler's latencies of the requests that count, (workloads, counted), in seconds; nan where undefined."""

    wait: F64
    ttft: F64
    tpot: F64
    e2e: F64


def lived(times: Times, output: I64, window: Window) -> Lived:
    """The latencies of the requests that count."""
    arrival, start, first, finish = (moments[:, window.first :] for moments in times[:4])
    tokens, unit_s = output[:, window.first :], times.unit_s
    with np.errstate(divide="ignore", invalid="ignore"):
        return Lived(
            (start - arrival) * unit_s,
            (first - arrival) * unit_s,
            np.where(tokens > 1, (finish - first) / (tokens - 1) * unit_s, np.nan),
            np.where(tokens > 0, (finish - arrival) * unit_s, np.nan),
        )


def latency_columns(
    scheduler: str, lives: Lived, times: Times, window: Window, slo: SloSpec | None, wanted: set[str]
) -> dict[str, Array]:
    """The wanted ones of a scheduler's means, percentiles and shares."""
    found: dict[str, Array] = {}
    for metric, values in lives._asdict().items():
        names = {part: f"{scheduler}_{metric}_{part}_s" for part in ("mean", "p50", "p90", "p95", "p99")}
        if not wanted & set(names.values()):
            continue
        found[names.pop("mean")] = mean_of(values)
        found |= zip(names.values(), percentiles(values, [int(part[1:]) for part in names]), strict=True)
    found[f"{scheduler}_waited_share"] = (lives.wait > 0).mean(axis=1)
    if slo is not None:
        met = meets(lives, slo)
        found[f"{scheduler}_slo_share"] = met.mean(axis=1)
        found[f"{scheduler}_goodput_per_s"] = ratio(met.sum(axis=1), _window_s(times, window))
    return found


def meets(lives: Lived, slo: SloSpec) -> Flags:
    """Which requests have all that is asked; what a request has not, such as a second token, is not late."""
    met = np.ones(lives.ttft.shape, np.bool_)
    for limit, values in ((slo.ttft_s, lives.ttft), (slo.tpot_s, lives.tpot), (slo.e2e_s, lives.e2e)):
        if limit is not None:
            met &= ~(values > limit)
    return met


def span_s(times: Times) -> F64:
    """Seconds from the first arrival to the last token."""
    return np.asarray((times.finish.max(axis=1) - times.arrival[:, 0]) * times.unit_s)


def _window_s(times: Times, window: Window) -> F64:
    """Seconds over which rates are taken."""
    start, end = _bounds(times, window)
    return np.asarray((end - start) * times.unit_s)


def _bounds(times: Times, window: Window) -> tuple[F64, F64]:
    """When it starts and ends, on the clock of the times."""
    return times.arrival[:, window.first], times.arrival[:, -1] if window.steady else times.finish.max(axis=1)


def utilisation(times: Times, slots: int, window: Window) -> F64:
    """The share of slot-time in which slots are in use."""
    start, end = _bounds(times, window)
    held = np.minimum(times.finish, end[:, None]) - np.maximum(times.start, start[:, None])
    return ratio(np.maximum(held, 0).sum(axis=1), slots * (end - start))


def mean_of(values: F64) -> F64:
    """The mean of the defined values of each row; nan where there is none."""
    defined = np.isfinite(values)
    return ratio(np.where(defined, values, 0.0).sum(axis=1), defined.sum(axis=1))


def percentiles(values: F64, percents: Sequence[int]) -> list[F64]:
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


def ratio(above: Array, below: Array) -> F64:
    """One over the other; nan where the other is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)

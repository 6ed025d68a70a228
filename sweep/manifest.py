"""What a study comes to, as plain data: its points, cells, claims and the exact figures that theory gives for them.

This is what `results` keeps in manifest.json, so that a report needs neither the study file nor the model.
"""

import math
import platform
from functools import cache
from importlib.metadata import version
from typing import Any

from sweep.grid import Cell, Point
from sweep.model.distributions import Given
from sweep.model.lengths import IntegerLengths, integer_lengths, moments
from sweep.model.theory import (
    CHEAP_ENTRIES,
    exact_static_steps,
    limit_multiple,
    mean_continuous_bounds,
    static_steps_distribution,
    static_steps_sd,
)
from sweep.record import FORMAT
from sweep.study import Study, plain, study_hash_parts

CONVOLVED = 2**23  # entries that exact distributions may take in all cells together: about a second
THEORY = (
    "exact_static_steps",
    "limit_multiple",
    "exact_static_steps_sd",
    "exact_static_steps_p05",
    "exact_static_steps_p50",
    "exact_static_steps_p95",
    "exact_output_tokens",
    "least_continuous_steps",  # bounds on the expected steps of continuous batching
    "most_continuous_steps",
)
PACKAGES = ("batch-sweep", "numpy", "numba", "polars", "scipy")


def manifest(study: Study, points: tuple[Point, ...], keep: str = "rows") -> dict[str, Any]:
    """The manifest of a folder that has no shards yet."""
    entries = CONVOLVED // sum(len(point.cells) for point in points)
    cells = [_cell(cell, point, entries) for point in points for cell in point.cells]
    return {
        "format": FORMAT,
        "hash": points[0].study,
        "versions": {**versions(), "python": platform.python_version()},
        "keep": keep,
        "depends": {"keep": keep, **study_hash_parts(study)},
        **plain(study),
        "points": [_point(point) for point in points],
        "cells": sorted(cells, key=lambda cell: cell["cell"]),
        "failures": [],
        "shards": [],
    }


@cache
def versions() -> dict[str, str]:
    """What the bytes of a shard may depend on, the same for client and workers; of Python not the last number."""
    return {"python": ".".join(platform.python_version_tuple()[:2]), **{name: version(name) for name in PACKAGES}}


def _point(point: Point) -> dict[str, Any]:
    lengths = integer_lengths(point.workload.output)
    mean, cv = moments(lengths)
    return {
        "point": point.index,
        "replicates": 0,
        "rounds": [],
        "requests": point.workload.requests,
        "output": point.workload.output.model_dump(mode="json", exclude_none=True),
        "output_mean": mean,
        "output_cv": _null(cv),
        "output_at_cap": lengths.at_cap,
        **_horizon(point),
        "cells": [cell.index for cell in point.cells],
    }


def _cell(cell: Cell, point: Point, entries: int) -> dict[str, Any]:
    return {
        "cell": cell.index,
        "point": point.index,
        "axes": dict(cell.axes),
        "slots": cell.slots,
        "context": cell.context,
        "step_ms": cell.step_ms,
        "error": cell.error,
        "drawn": cell.drawn,
        **_clock(cell, point),
        **_theory(cell, point, integer_lengths(point.workload.output), entries),
    }


def _horizon(point: Point) -> dict[str, Any]:
    """Which requests count; nothing where all wait from the start."""
    demand = point.workload.demand
    if demand is None or demand.arrivals.process == "at_once":
        return {}
    return {"horizon": demand.arrivals.horizon, "warm_up": demand.arrivals.warm_up}


def _clock(cell: Cell, point: Point) -> dict[str, float | None]:
    """The rate and the cv of gaps asked for and the loads they mean; nothing in a study without a clock."""
    demand = point.workload.demand
    if cell.timing is None or demand is None:
        return {}
    timing = cell.timing
    rate, capacity = timing.rate_per_s, timing.capacity_per_s
    return {
        "requested_rate_per_s": rate if timing.has_seconds else None,
        "requested_gap_cv": demand.gap_cv(),
        "capacity_per_s": capacity if timing.has_seconds and math.isfinite(capacity) else None,
        "offered_load": timing.load,
        "static_load": timing.static_load,
    }


def _theory(cell: Cell, point: Point, lengths: IntegerLengths, entries: int) -> dict[str, float | None]:
    """Exact expectations of a cell, and the distribution of its static steps where that has no more than `entries`."""
    if cell.error is not None or not _is_ideal(cell, point):
        return dict.fromkeys(THEORY)
    size = point.workload.requests, cell.slots
    steps = static_steps_distribution(lengths, *size, min(entries, CHEAP_ENTRIES))
    percentiles = [None if steps is None else float(steps.quantile(share)) for share in (0.05, 0.5, 0.95)]
    values = (
        exact_static_steps(lengths, *size),
        _null(limit_multiple(lengths, cell.slots)),
        static_steps_sd(lengths, *size),
        *percentiles,
        point.workload.requests * moments(lengths).mean,
        *mean_continuous_bounds(lengths, *size),
    )
    return dict(zip(THEORY, values, strict=True))


def _is_ideal(cell: Cell, point: Point) -> bool:
    """Whether slots are the only limit, steps are tokens and lengths are independent, as the theory has it."""
    rules, workload = cell.rules, point.workload
    if isinstance(workload.output, Given) or (workload.rows is not None and workload.rows.order != "rows"):
        return False
    if cell.timing is not None:
        return False
    if rules is None:
        return True
    prompts = workload.prompt is not None or workload.prefix is not None or workload.rows is not None
    return not prompts and rules.kind == "slots" and rules.static_slots == rules.slots and rules.refill_delay == 0


def _null(value: float) -> float | None:
    """JSON has no nan: what is undefined is null there."""
    return None if math.isnan(value) else value

"""What a results folder says about each cell: estimates with intervals. Leaves out verdicts (`claims`) and pictures.

Sums run in numpy over a cell's replicates in order, never in polars, whose threads may add floats in any order: the
same rows give the same bytes of `cells.parquet` on any machine and with any number of threads.
"""

import io
import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import bdtr, bdtrc, ndtri, stdtrit

from sweep.results import Store, metrics, write_whole

Values: TypeAlias = npt.NDArray[np.float64 | np.int64]
I64: TypeAlias = npt.NDArray[np.int64]
Interval: TypeAlias = tuple[float, float]

ESTIMATES = ("mean", "sd", "se", "ci_low", "ci_high", "p05", "p50", "p95")
RATES = ("static_tokens_per_s", "continuous_tokens_per_s", "static_requests_per_s", "continuous_requests_per_s")


class Column(NamedTuple):
    """One metric of one cell, in the order of the replicates."""

    replicates: I64  # (n,), the number of each workload
    values: Values  # (n,), nan where undefined


NO_VALUES = Column(np.empty(0, np.int64), np.empty(0, np.float64))  # of a cell without rows


class Estimates(NamedTuple):
    """What one column says about the mean and the spread; None where there are too few defined values."""

    mean: float | None = None
    sd: float | None = None
    se: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p05: float | None = None
    p50: float | None = None
    p95: float | None = None


def summarise(store: Store) -> pl.DataFrame:
    """One row for each cell: its axis values, the estimates of every metric, theory and rates.

    A cell that could not run keeps its row, with null metrics and the reason in `error`. A column has the same type
    whatever is null in it.
    """
    manifest, failed = store.manifest, store.failed()
    rows = {cell["cell"]: _identity(cell, manifest) for cell in manifest["cells"]}
    for cell, reason in failed.items():
        rows[cell]["error"] = reason
    for point in manifest["points"]:
        for metric in metrics(manifest["measure"]):
            for cell, column in columns_by_cell(store, point["point"], metric).items():
                rows[cell]["replicates"] = len(column.values)
                for name, value in zip(ESTIMATES, estimates(column.values), strict=True):
                    rows[cell][f"{metric}_{name}"] = value
                rows[cell][f"{metric}_total"] = exact_sum(column.values)
    points = {point["point"]: point for point in manifest["points"]}
    for cell in manifest["cells"]:
        rows[cell["cell"]].update(_ratios(rows[cell["cell"]], cell, points[cell["point"]]))
    schema = _schema(manifest)
    return pl.DataFrame({name: [row.get(name) for row in rows.values()] for name in schema}, schema=schema)


def write_cells(store: Store) -> pl.DataFrame:
    """The summary, also written to cells.parquet in the folder."""
    cells = summarise(store)
    sink = io.BytesIO()
    cells.write_parquet(sink)
    write_whole(store.folder / "cells.parquet", sink.getvalue())
    return cells


def axis_columns(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the axes, in the order of the grid; columns that move together stand side by side."""
    return tuple(column for axis in manifest["axes"] for column in axis["columns"])


def columns_by_cell(store: Store, point: int, metric: str) -> dict[int, Column]:
    """One metric of a point's workloads for each cell that has rows and did not fail, which would leave only those that
    happened to work; one metric at a time keeps memory small.
    """
    frame = store.point_rows(point, [metric])
    cells, starts, counts = np.unique(frame["cell"].to_numpy(), return_index=True, return_counts=True)
    replicates, values = frame["replicate"].to_numpy(), frame[metric].to_numpy()
    failed = store.failed()
    return {
        int(cell): Column(replicates[start : start + count], values[start : start + count])
        for cell, start, count in zip(cells, starts, counts, strict=True)  # rows come sorted by cell
        if cell not in failed
    }


def estimates(values: Values) -> Estimates:
    """Mean, deviation, 95 % t interval and linear percentiles of the defined values.

    One value has no deviation and no interval; none has nothing at all.
    """
    values = defined(values)
    if len(values) == 0:
        return Estimates()
    p05, p50, p95 = (float(value) for value in np.percentile(values, (5, 50, 95)))
    mean, sd = _mean_and_sd(values)
    if sd is None:
        return Estimates(mean, p05=p05, p50=p50, p95=p95)
    low, high = _t_interval(mean, sd, len(values), 0.95)
    return Estimates(mean, sd, sd / math.sqrt(len(values)), low, high, p05, p50, p95)


def mean_interval(values: Values, confidence: float = 0.95) -> Interval | None:
    """Student's t interval for the mean of the defined values; None for fewer than two.

    Values that are all the same give an interval of no width.
    """
    values = defined(values)
    if len(values) < 2:
        return None
    mean, sd = _mean_and_sd(values)
    assert sd is not None
    return _t_interval(mean, sd, len(values), confidence)


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval | None:
    """The score interval for a share of n independent trials (Wilson 1927); None when there were none."""
    if n == 0:
        return None
    z2 = float(ndtri((1 + confidence) / 2)) ** 2
    share = successes / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * share * (1 - share) / n + (z2 / (2 * n)) ** 2) / (1 + z2 / n)
    # At the ends the formula gives exactly 0 and 1; rounding must not take the interval past its estimate.
    return (0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half)


def percentile_interval(values: Values, p: float, confidence: float = 0.95) -> Interval | None:
    """Order statistics that enclose the p-th percentile, in 0..100, whatever the distribution.

    The count of values at or below the percentile is binomial, so the ranks follow from its tails, at most
    (1 - confidence) / 2 each: the interval covers with at least `confidence`. None when even the smallest and the
    largest value are too few.
    """
    values = np.sort(defined(values))
    n, share, tail = len(values), p / 100, (1 - confidence) / 2
    below = bisect_right(range(n), tail, key=lambda k: float(bdtr(k, n, share)))  # P(count <= below - 1) <= tail
    above = bisect_left(range(n), -tail, key=lambda k: -float(bdtrc(k, n, share)))  # P(count > above) <= tail
    if below == 0 or above == n:
        return None
    return float(values[below - 1]), float(values[above])


def defined(values: Values) -> Values:
    """The values that are not nan."""
    return values[~np.isnan(values)]


def exact_sum(values: Values) -> int | float:
    """The sum of the defined values; for integers exact, where 64 bits could wrap."""
    values = defined(values)
    if values.dtype.kind != "i":
        return float(values.sum())
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def _mean_and_sd(values: Values) -> tuple[float, float | None]:
    """The mean and, from two values on, the sample deviation; equal values give exactly themselves and 0."""
    if values.min() == values.max():
        return float(values[0]), 0.0 if len(values) > 1 else None
    return float(values.mean()), float(values.std(ddof=1))


def _t_interval(mean: float, sd: float, n: int, confidence: float) -> Interval:
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * sd / math.sqrt(n)
    return mean - half, mean + half


def _identity(cell: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    point = next(point for point in manifest["points"] if point["point"] == cell["point"])
    return {
        "cell": cell["cell"],
        "slots": cell["slots"],
        **{column: _plain(cell["axes"][column]) for column in axis_columns(manifest)},  # `slots` may be an axis
        "replicates": 0,
        "error": cell["error"],
        "exact_static_steps": _known(cell["exact_static_steps"]),
        "limit_multiple": _known(cell["limit_multiple"]),
        "realised_output_mean": point["output_mean"],
        "realised_output_cv": point["output_cv"],
        "realised_output_at_cap": point["output_at_cap"],
    }


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _ratios(row: Mapping[str, Any], cell: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, float | None]:
    """The ratios of sums over all workloads of a cell; None where nothing was simulated or no time is known."""
    totals = {name: row.get(f"{name}_total", 0) for name in ("output_tokens", "static_steps", "continuous_steps")}
    ratios = {"multiple_of_totals": _ratio(totals["static_steps"], totals["continuous_steps"])}
    if cell["step_ms"] is not None:
        for scheduler in ("static", "continuous"):
            seconds = totals[f"{scheduler}_steps"] * cell["step_ms"] / 1000
            ratios[f"{scheduler}_tokens_per_s"] = _ratio(totals["output_tokens"], seconds)
            ratios[f"{scheduler}_requests_per_s"] = _ratio(row["replicates"] * point["requests"], seconds)
    return ratios


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _schema(manifest: Mapping[str, Any]) -> dict[str, Any]:
    timed = any(cell["step_ms"] is not None for cell in manifest["cells"])
    theory = ("exact_static_steps", "limit_multiple")
    realised = ("realised_output_mean", "realised_output_cv", "realised_output_at_cap")
    return {
        "cell": pl.Int64,
        **{column: _axis_type(manifest, column) for column in axis_columns(manifest)},
        "slots": pl.Int64,
        "replicates": pl.Int64,
        "error": pl.String,
        **{f"{metric}_{name}": pl.Float64 for metric in metrics(manifest["measure"]) for name in ESTIMATES},
        **dict.fromkeys(("multiple_of_totals", *theory, *realised, *(RATES if timed else ())), pl.Float64),
    }


def _axis_type(manifest: Mapping[str, Any], column: str) -> Any:
    types = {type(_plain(cell["axes"][column])) for cell in manifest["cells"]}
    if types == {int}:
        return pl.Int64
    return pl.Float64 if types <= {int, float} else pl.String


def _plain(value: Any) -> int | float | str:
    """An axis value as a table can hold it: numbers and texts as they are, anything else as JSON."""
    return value if type(value) in (int, float, str) else json.dumps(value, sort_keys=True)

"""What a results folder says about each cell: estimates with intervals. Leaves out verdicts (`claims`) and pictures.

Sums run in numpy over a cell's replicates in order, never in polars, whose threads may add floats in any order: the
same rows give the same bytes of `cells.parquet` on any machine and with any number of threads.
"""

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from sweep.report import tallied
from sweep.report.adjusted import Adjusted, Control, adjusted, controls
from sweep.report.intervals import (
    Interval,
    Values,
    both,
    defined,
    mean_and_sd,
    mean_interval,
    percentile_ends,
    percentile_interval,
    percentile_needs,
    ratio_of_means,
    t_interval,
    wilson,
)
from sweep.results import Store
from sweep.shards import metrics
from sweep.sums import tallies
from sweep.writing import write_whole

__all__ = [
    "NO_VALUES",
    "Column",
    "Estimates",
    "Interval",
    "Values",
    "axis_columns",
    "columns_by_cell",
    "defined",
    "estimates",
    "exact_sum",
    "mean_interval",
    "mean_intervals",
    "percentile_interval",
    "summarise",
    "values_to_draw",
    "wilson",
    "write_cells",
]

I64: TypeAlias = npt.NDArray[np.int64]

PERCENTILES = (5, 50, 95)
ESTIMATES = ("mean", "sd", "se", "ci_low", "ci_high", "p05", "p50", "p95")
MORE = (
    *(f"p{p:02}_ci_{end}" for p in PERCENTILES for end in ("low", "high")),
    *("simultaneous_low", "simultaneous_high"),
    *Adjusted._fields,
)
MOST_READ = 2**21  # values read at a time, 16 MB: as many metrics of a point as fit, or one
MOST_NEEDED = max(map(percentile_needs, PERCENTILES))  # workloads from which on no interval is withheld
OF_TOTALS = tuple(f"multiple_of_totals{part}" for part in ("", "_se", "_ci_low", "_ci_high"))
THEORY = (
    "exact_static_steps",
    "exact_static_steps_sd",
    "exact_static_steps_p05",
    "exact_static_steps_p50",
    "exact_static_steps_p95",
    "least_continuous_steps",
    "most_continuous_steps",
    "limit_multiple",
)
OF_CLOCK = (  # of studies with arrivals
    "requested_rate_per_s",
    "requested_gap_cv",
    "capacity_per_s",
    "offered_load",
    "static_load",
)
SUMMED = ("output_tokens", "static_steps", "continuous_steps", "static_s", "continuous_s")
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
        _summarise_point(store, point, rows)
    for metric in metrics(manifest["measure"]):
        _widen(list(rows.values()), metric)
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
    happened to work; one metric at a time keeps memory small. None has a column where only sums are kept.
    """
    if store.keeps == "summary":
        return {}
    found = _columns(store, point, (metric,))
    return {cell: Column(replicates, columns[metric]) for cell, (replicates, columns) in found.items()}


def mean_intervals(store: Store, point: int, metric: str, confidence: float) -> dict[int, Interval | None]:
    """The interval of a metric's mean in each cell of a point; None where there are too few values."""
    if store.keeps == "summary":
        known = tallies(store, point)
        return {cell: tallied.mean_interval(tally.sums[metric], confidence) for cell, tally in known.items()}
    columns = columns_by_cell(store, point, metric)
    return {cell: mean_interval(column.values, confidence) for cell, column in columns.items()}


def values_to_draw(store: Store, point: int, metric: str) -> dict[int, tuple[Values, int]]:
    """Values for the histogram of each cell of a point, and of how many workloads each value is one: 1 for rows."""
    if store.keeps == "summary":
        known = tallies(store, point) if metric == "multiple" else {}
        return {cell: tallied.drawn_values(tally) for cell, tally in known.items()}
    return {cell: (column.values, 1) for cell, column in columns_by_cell(store, point, metric).items()}


def estimates(values: Values) -> Estimates:
    """Mean, deviation, 95 % t interval and linear percentiles of the defined values.

    One value has no deviation and no interval; none has nothing at all.
    """
    values = defined(values)
    if len(values) == 0:
        return Estimates()
    # Of values in order percentiles are found in half the time, the sort included.
    p05, p50, p95 = (float(value) for value in np.percentile(np.sort(values), (5, 50, 95)))
    mean, sd = mean_and_sd(values)
    if sd is None:
        return Estimates(mean, p05=p05, p50=p50, p95=p95)
    low, high = t_interval(mean, sd / math.sqrt(len(values)), len(values) - 1)
    return Estimates(mean, sd, sd / math.sqrt(len(values)), low, high, p05, p50, p95)


def exact_sum(values: Values) -> int | float:
    """The sum of the defined values; for integers exact, where 64 bits could wrap."""
    values = defined(values)
    if values.dtype.kind != "i":
        return float(values.sum())
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def _identity(cell: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    point = next(point for point in manifest["points"] if point["point"] == cell["point"])
    return {
        "cell": cell["cell"],
        "slots": cell["slots"],
        **{column: _plain(cell["axes"][column]) for column in axis_columns(manifest)},  # `slots` may be an axis
        "replicates": 0,
        "error": cell["error"],
        **{name: _known(cell.get(name)) for name in THEORY},
        **{name: _known(cell[name]) for name in OF_CLOCK if name in cell},
        "realised_output_mean": point["output_mean"],
        "realised_output_cv": point["output_cv"],
        "realised_output_at_cap": point["output_at_cap"],
    }


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _summarise_point(store: Store, point: Mapping[str, Any], rows: Mapping[int, dict[str, Any]]) -> None:
    """Adds to each cell's row what its workloads say."""
    cells = {cell["cell"]: cell for cell in store.manifest["cells"] if cell["point"] == point["point"]}
    if store.keeps == "summary":
        for number, tally in tallies(store, point["point"]).items():
            rows[number] |= tallied.columns(tally)
            rates = _rates(tallied.totals(tally), tally.replicates, cells[number], _served(point, rows[number]))
            rows[number] |= rates
        return
    names = metrics(store.manifest["measure"])
    summed = [name for name in SUMMED if name in names]
    steps = _columns(store, point["point"], summed)
    known = {number: controls(cells[number], columns) for number, (_, columns) in steps.items()}
    together = max(1, MOST_READ // max(1, point["replicates"] * len(cells)))
    for first in range(0, len(names), together):
        for number, (_, columns) in _columns(store, point["point"], names[first : first + together]).items():
            for metric, values in columns.items():
                _add_estimates(rows[number], metric, values, known[number])
    for number, (_, columns) in steps.items():
        rows[number] |= _ratios(columns, cells[number], _served(point, rows[number]))


def _add_estimates(row: dict[str, Any], metric: str, values: Values, known: Sequence[Control]) -> None:
    row["replicates"] = len(values)
    found = {
        "n": len(defined(values)),
        **estimates(values)._asdict(),
        **_percentile_intervals(values),
        **adjusted(metric, values, known)._asdict(),
    }
    row |= {f"{metric}_{name}": value for name, value in found.items()}
    if found["n"] < MOST_NEEDED:
        row["intervals_need"] = MOST_NEEDED


def _served(point: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The point with as many requests a workload as were served on average: those that can never fit are refused."""
    return {**point, "requests": point["requests"] - (row.get("refused_requests_mean") or 0)}


def _columns(store: Store, point: int, names: Sequence[str]) -> dict[int, tuple[I64, dict[str, Values]]]:
    """Replicates and columns of each cell of a point that has rows and did not fail."""
    frame = store.point_rows(point, names)
    cells = frame["cell"].to_numpy()
    starts = np.flatnonzero(np.diff(cells, prepend=-1))  # rows come sorted by cell
    counts = np.diff(starts, append=len(cells))
    replicates, values = frame["replicate"].to_numpy(), {name: frame[name].to_numpy() for name in names}
    failed = store.failed()
    return {
        int(cell): (
            replicates[start : start + count],
            {name: column[start : start + count] for name, column in values.items()},
        )
        for cell, start, count in zip(cells[starts], starts, counts, strict=True)
        if cell not in failed
    }


def _percentile_intervals(values: Values) -> dict[str, float | None]:
    """Order statistics around each percentile; None where there are too few."""
    found: dict[str, float | None] = {}
    ordered = np.sort(defined(values))
    for p in PERCENTILES:
        found[f"p{p:02}_ci_low"], found[f"p{p:02}_ci_high"] = both(percentile_ends(ordered, p)) or (None, None)
    return found


def _widen(rows: Sequence[dict[str, Any]], metric: str) -> None:
    """Intervals that all cells' means keep together with 95 %: each at 1 - 5 % / cells (Bonferroni)."""
    unsure = [row for row in rows if row.get(f"{metric}_se") is not None]
    for row in unsure:
        ends = t_interval(row[f"{metric}_mean"], row[f"{metric}_se"], row[f"{metric}_n"] - 1, 1 - 0.05 / len(unsure))
        row[f"{metric}_simultaneous_low"], row[f"{metric}_simultaneous_high"] = ends


def _ratios(
    columns: Mapping[str, Values], cell: Mapping[str, Any], point: Mapping[str, Any]
) -> dict[str, float | None]:
    """The ratios of sums over all workloads of a cell; None where nothing was simulated or no time is known."""
    totals = {name: exact_sum(column) for name, column in columns.items()}
    ratio = _ratio(totals["static_steps"], totals["continuous_steps"])
    ratios: dict[str, float | None] = {"multiple_of_totals": ratio}
    if ratio is not None and (found := ratio_of_means(columns["static_steps"], columns["continuous_steps"])):
        n = len(columns["static_steps"])
        ratios |= dict(zip(OF_TOTALS[1:], (found[1], *t_interval(ratio, found[1], n - 1)), strict=True))
    return ratios | _rates(totals, len(columns["output_tokens"]), cell, point)


def _rates(
    totals: Mapping[str, float], workloads: int, cell: Mapping[str, Any], point: Mapping[str, Any]
) -> dict[str, float | None]:
    """Tokens and requests a second over all workloads of a cell; nothing where no step time is known.

    Seconds are those of all steps where these have one length, else those that were measured: with a clock, idle time
    from the first arrival to the last token is among them.
    """
    rates: dict[str, float | None] = {}
    for scheduler in ("static", "continuous"):
        seconds = totals.get(f"{scheduler}_s")
        if cell["step_ms"] is not None:
            seconds = totals[f"{scheduler}_steps"] * cell["step_ms"] / 1000
        if seconds is not None:
            rates[f"{scheduler}_tokens_per_s"] = _ratio(totals["output_tokens"], seconds)
            rates[f"{scheduler}_requests_per_s"] = _ratio(workloads * point["requests"], seconds)
    return rates


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _schema(manifest: Mapping[str, Any]) -> dict[str, Any]:
    timed = any(cell["step_ms"] is not None for cell in manifest["cells"]) or "static_s" in manifest["measure"]
    clock = [name for name in OF_CLOCK if any(name in cell for cell in manifest["cells"])]
    realised = ("realised_output_mean", "realised_output_cv", "realised_output_at_cap")
    return {
        "cell": pl.Int64,
        **{column: _axis_type(manifest, column) for column in axis_columns(manifest)},
        "slots": pl.Int64,
        "replicates": pl.Int64,
        "error": pl.String,
        "intervals_need": pl.Int64,
        **{f"{metric}_{name}": pl.Float64 for metric in metrics(manifest["measure"]) for name in (*ESTIMATES, *MORE)},
        **dict.fromkeys((*OF_TOTALS, *THEORY, *realised, *clock, *(RATES if timed else ())), pl.Float64),
    }


def _axis_type(manifest: Mapping[str, Any], column: str) -> Any:
    types = {type(_plain(cell["axes"][column])) for cell in manifest["cells"]}
    if types == {int}:
        return pl.Int64
    return pl.Float64 if types <= {int, float} else pl.String


def _plain(value: Any) -> int | float | str:
    """An axis value as a table can hold it: numbers and texts as they are, anything else as JSON."""
    return value if type(value) in (int, float, str) else json.dumps(value, sort_keys=True)

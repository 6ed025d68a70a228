"""The summary of a results folder, a row for each cell: estimates of every metric, theory beside them, and rates.

The order of sums is that of `stats`, so the same rows give the same bytes of `cells.parquet`.
"""

import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sweep.metrics import OF_SLO_RATE
from sweep.report import tallied
from sweep.report.adjusted import Adjusted, Control, adjusted, controls
from sweep.report.intervals import Values, both, defined, percentile_ends, percentile_needs, ratio_of_means, t_interval
from sweep.report.stats import axis_columns, estimates, exact_sum, point_columns
from sweep.results import Store
from sweep.shards import metrics
from sweep.sums import tallies
from sweep.writing import write_whole

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
            rows[number] |= tallied.columns(tally, cells[number])
            rates = _rates(tallied.totals(tally), tally.replicates, cells[number], _served(point, rows[number]))
            rows[number] |= rates
        return
    names = metrics(store.manifest["measure"])
    summed = [name for name in SUMMED if name in names]
    steps = point_columns(store, point["point"], summed)
    known = {number: controls(cells[number], columns) for number, (_, columns) in steps.items()}
    together = max(1, MOST_READ // max(1, point["replicates"] * len(cells)))
    for first in range(0, len(names), together):
        for number, (_, columns) in point_columns(store, point["point"], names[first : first + together]).items():
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
        **{f"{metric}_n": pl.Int64 for metric in metrics(manifest["measure"]) if metric in OF_SLO_RATE},
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

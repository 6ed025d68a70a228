"""What the script in the page is told of each cell: its place in the grid, its figures as they are read, a histogram.

Leaves out how they are shown. Axes and cells go by number here, so no name that a user gave is ever looked up.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from sweep.report.charts.histogram import counted
from sweep.report.charts.tiles import compact
from sweep.report.claims import Verdict, bound_text, bounds
from sweep.report.figures import claim_on
from sweep.report.findings import THEORY, THEORY_NAMES, meets
from sweep.report.intervals import Values
from sweep.report.stats import values_to_draw
from sweep.report.words import (
    SHORT,
    at,
    axis_title,
    axis_value,
    main_cell,
    metric_name,
    number,
    percent,
    plural,
    verdict_estimate,
    with_interval,
)
from sweep.results import Store

MOST_HISTOGRAMS = 400  # cells; with more of them the page would not open at once


def details(store: Store, cells: pl.DataFrame, verdicts: Sequence[Verdict], metrics: Iterable[str]) -> dict[str, Any]:
    """Axes, metrics and cells as plain data. metrics : those whose distributions can be looked at, the first first."""
    manifest = store.manifest
    axes = [_axis(axis["columns"], cells) for axis in manifest["axes"]]
    told = [
        {
            "cell": row["cell"],
            "at": [axis["keys"].index(tuple(row[column] for column in axis["columns"])) for axis in axes],
            "where": at({column: row[column] for axis in axes for column in axis["columns"]}) or "the one cell",
            "workloads": plural(row["replicates"], "workload"),
            "reason": None if row["replicates"] else row["error"] or "not simulated yet",
            "verdicts": [_verdict(verdict) for verdict in verdicts if verdict.cell == row["cell"]],
            "metrics": {metric: _figures(row, metric) for metric in metrics},
        }
        for row in cells.iter_rows(named=True)
    ]
    if len(told) <= MOST_HISTOGRAMS:
        _add_histograms(store, {cell["cell"]: cell["metrics"] for cell in told}, metrics)
    return {
        "main": main_cell(cells, manifest),
        "axes": [{key: axis[key] for key in ("columns", "name", "title", "values", "upwards")} for axis in axes],
        "metrics": {metric: _words(metric) for metric in metrics},
        "cells": told,
    }


def _axis(columns: Sequence[str], cells: pl.DataFrame) -> dict[str, Any]:
    """The values of an axis: numbers by size, all else in the order of the grid; columns that move together are one."""
    keys = list(dict.fromkeys(cells.select(columns).iter_rows()))
    upwards = len(columns) == 1 and cells[columns[0]].dtype.is_numeric()
    keys = sorted(keys) if upwards else keys
    return {
        "columns": list(columns),
        "keys": keys,
        "name": ", ".join(SHORT.get(column, column) for column in columns),
        "title": ", ".join(axis_title(column) for column in columns),
        "values": [", ".join(map(axis_value, key)) for key in keys],
        "upwards": upwards,
    }


def _words(metric: str) -> dict[str, Any]:
    name = metric_name(metric)
    return {"subject": name.subject, "title": name.title, "theory": THEORY_NAMES.get(metric)}


def _verdict(verdict: Verdict) -> dict[str, str]:
    asked = f"{verdict.text} ({verdict.metric}: {verdict.condition})"
    return {"is": verdict.verdict, "metric": verdict.metric, "claim": asked, "found": verdict_estimate(verdict)}


def _figures(row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """A metric of a cell: the mean, theory and their difference as numbers and as text, and its interval and spread."""
    mean, theory = row[f"{metric}_mean"], row[THEORY[metric]] if metric in THEORY else None
    views = (mean, theory, None if mean is None or theory is None else mean - theory)
    low, high = row[f"{metric}_p05"], row[f"{metric}_p95"]
    return {
        "values": [None if view is None else float(f"{view:.6g}") for view in views],
        "tiles": [None if view is None else compact(view) for view in views],
        "means": [None if view is None else number(view) for view in views],
        "mean": with_interval(mean, row[f"{metric}_ci_low"], row[f"{metric}_ci_high"], "95 % interval "),
        "spread": None if low is None or high is None else f"{number(low)} to {number(high)}",
    }


def _add_histograms(store: Store, cells: Mapping[int, dict[str, Any]], metrics: Iterable[str]) -> None:
    for metric in metrics:
        for point in store.manifest["points"]:
            for cell, (values, one_in) in values_to_draw(store, point["point"], metric).items():
                claim = claim_on(metric, store.manifest, {cell})
                cells[cell][metric] |= _histogram(values, claim) | ({"one_in": f"{one_in:,}"} if one_in > 1 else {})


def _histogram(values: Values, claim: Mapping[str, Any] | None) -> dict[str, Any]:
    """The bars of a cell on bins of its own, and what share of its workloads meets the claim."""
    edges, counts = counted(values, claim)
    found: dict[str, Any] = {"edges": [float(f"{edge:.6g}") for edge in edges], "counts": counts.tolist()}
    if claim and len(values):
        share = percent(float(meets(values, claim).mean()))
        ends = [bound if math.isfinite(bound) else None for bound in bounds(claim)]
        found |= {"bounds": ends, "claimed": f"{share} of workloads {bound_text(claim)}"}
    return found

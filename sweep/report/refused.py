"""Requests that never ran because they could never fit: how many, and in which cells. No other figure counts them."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.report.words import at, number, plural

CELLS_NAMED = 3


def refused_text(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Where requests were refused, the worst cells first; nothing where none was.

    frame : a row for each cell, as summarised.
    """
    if "refused_requests_mean" not in frame.columns:
        return ""
    some = frame.filter(pl.col("refused_requests_mean") > 0).sort(
        "refused_requests_mean", "cell", descending=[True, False]
    )
    if some.is_empty():
        return ""
    named = [_refused(row, manifest) for row in some.head(CELLS_NAMED).iter_rows(named=True)]
    more = f", and fewer in {plural(some.height - CELLS_NAMED, 'other cell')}" if some.height > CELLS_NAMED else ""
    return f"Refused, since they could never fit, and counted in no other figure: {'; '.join(named)}{more}."


def _refused(row: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    cell = next(cell for cell in manifest["cells"] if cell["cell"] == row["cell"])
    point = next(point for point in manifest["points"] if point["point"] == cell["point"])
    where = f" at {at(cell['axes'])}" if cell["axes"] else ""
    return f"{number(row['refused_requests_mean'])} of {point['requests']:,} requests{where}"

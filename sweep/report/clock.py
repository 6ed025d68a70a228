"""What a study with arrivals must say of itself: which requests count, and where static batching cannot keep up."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.report.words import number, percent, plural


def clock_text(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Whether a study is terminating or steady, and in how many cells static batching has a load of 1 or more.

    cells : a row for each cell, as summarised. Nothing for a study without arrivals.
    """
    horizons = {(point["horizon"], point["warm_up"]) for point in manifest["points"] if point.get("horizon")}
    kinds = [_kind(*horizon) for horizon in sorted(horizons)]
    return " ".join([*kinds, *_overloaded(cells)]) if kinds else ""


def _kind(horizon: str, warm_up: float) -> str:
    if horizon == "terminating":
        return "Terminating: each workload runs from an empty server to an empty one, and all requests count."
    return f"Steady: the first {percent(warm_up)} of the requests of each workload, by arrival, do not count."


def _overloaded(cells: pl.DataFrame) -> list[str]:
    """The loads of static batching that are 1 or more: its queue grows for as long as requests come."""
    if "static_load" not in cells.columns:
        return []
    loads = cells.filter(pl.col("static_load") >= 1)["static_load"].to_list()
    if not loads:
        return []
    span = number(min(loads)) if len(loads) == 1 else f"{number(min(loads))} to {number(max(loads))}"
    where = plural(len(loads), "cell")
    return [f"Static batching cannot keep up in {where}, its load being {span}: its queue grows while requests come."]

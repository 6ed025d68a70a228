"""What a study with arrivals must say of itself: which requests count, and where a scheduler cannot keep up."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.report.words import number, percent, plural

LEAST_GROWTH = 0.01  # of a queue, as a share of the requests that count: less than that is said of no cell


def clock_text(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Whether a study is terminating or steady, in how many cells static batching has a load of 1 or more, and in how
    many a server with memory was seen to fall behind.

    cells : a row for each cell, as summarised. Nothing for a study without arrivals.
    """
    horizons = {(point["horizon"], point["warm_up"]) for point in manifest["points"] if point.get("horizon")}
    kinds = [_kind(*horizon) for horizon in sorted(horizons)]
    behind = [text for scheduler in ("continuous", "static") for text in _behind(cells, scheduler)]
    return " ".join([*kinds, *_overloaded(cells), *behind]) if kinds else ""


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


def _behind(cells: pl.DataFrame, scheduler: str) -> list[str]:
    """The cells of a steady study whose queue grew beyond chance, as only servers with memory are measured for it."""
    growth = f"{scheduler}_growth_share"
    if f"{growth}_mean" not in cells.columns:
        return []
    grew = (pl.col(f"{growth}_ci_low") > 0) & (pl.col(f"{growth}_mean") >= LEAST_GROWTH)
    shares = cells.filter(grew)[f"{growth}_mean"].to_list()
    if not shares:
        return []
    span = percent(shares[0]) if len(shares) == 1 else f"{percent(min(shares))} to {percent(max(shares))}"
    return [
        f"{scheduler.capitalize()} batching fell behind in {plural(len(shares), 'cell')}: its queue grew by {span} of"
        " the requests that count, so what is said there is of this many requests and of no server that runs forever."
    ]

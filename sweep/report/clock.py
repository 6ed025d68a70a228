"""What a study with arrivals must say of itself: which requests count, where a scheduler cannot keep up, and which of
its metrics lead, since both schedulers end with the last arrivals where they keep up.
"""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.metrics import parted
from sweep.report.words import number, percent, plural
from sweep.shards import metrics

LATENCY = re.compile(r"(static|continuous)_((wait|ttft|tpot|e2e)_(mean|p\d\d)_s|slo_rate_per_s)")
PERCENTILE = re.compile(r"(static|continuous)_(wait|ttft|tpot|e2e)_p\d\d_s")
LEADING = {"static_load": "static load"}
RATIOS = ("e2e_ratio", "ttft_ratio", "wait_ratio")  # of latencies, static to continuous

OBSERVED = (  # what came, what was asked for, and what both are called
    ("arrival_rate_per_s", "requested_rate_per_s", "The observed rate of arrivals (requests/s)"),
    ("arrival_gap_cv", "requested_gap_cv", "The observed cv of their gaps"),
)
LEAST_BEYOND = 5  # requests beyond a percentile that is not withheld
LEAST_GROWTH = 0.01  # of a queue, as a share of the requests that count: less than that is said of no cell


def clock_text(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Whether a study is terminating or steady, in how many cells static batching has a load of 1 or more or a server
    with memory was seen to fall behind, and which largest rates are of no server that runs forever.

    cells : a row for each cell, as summarised. Nothing for a study without arrivals.
    """
    horizons = {(point["horizon"], point["warm_up"]) for point in manifest["points"] if point.get("horizon")}
    kinds = [_kind(*horizon) for horizon in sorted(horizons)]
    behind = [text for scheduler in ("continuous", "static") for text in _behind(cells, scheduler)]
    rates = [text for scheduler in ("static", "continuous") for text in _of_rates(cells, scheduler)]
    said = [*kinds, *_overloaded(cells), *behind, *rates, *_withheld(cells, manifest), *_observed(cells)]
    return " ".join(said) if kinds else ""


def horizon_of(manifest: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    """Whether a cell is "steady" or "terminating"; nothing where all requests wait from the start."""
    return str(manifest["points"][cell["point"]].get("horizon") or "")


def latencies_of(manifest: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The latencies that a study with arrivals measures, each of one scheduler or of both, static first.

    Before them the largest rates at which the latencies asked for are kept.
    """
    if not any(point.get("horizon") for point in manifest["points"]):
        return []
    measured = [name for name in metrics(manifest["measure"]) if LATENCY.fullmatch(name)]
    ways = sorted(dict.fromkeys(parted(name)[1] for name in measured), key=lambda way: way != "slo_rate_per_s")
    return [tuple(sorted((name for name in measured if parted(name)[1] == way), reverse=True)) for way in ways]


def ratios_of(manifest: Mapping[str, Any]) -> list[str]:
    """The ratios of latencies that a study measures."""
    return [name for name in RATIOS if name in metrics(manifest["measure"])]


def leading(manifest: Mapping[str, Any]) -> list[str]:
    """The columns with which the table of cells begins, before the multiple: none where all wait from the start and
    nobody asks for seconds.

    With arrivals the load of static batching, the first two latencies and the first ratio of what is measured, or in
    their place utilisation; then the multiple in time, beside that of steps.
    """
    in_time = [name for name in ("multiple_s",) if name in metrics(manifest["measure"])]
    if not any(point.get("horizon") for point in manifest["points"]):
        return in_time
    latencies = [name for pair in latencies_of(manifest)[:2] for name in pair]
    waited = [*latencies, *ratios_of(manifest)[:1]]
    return ["static_load", *(waited or ("static_utilisation", "continuous_utilisation")), *in_time]


def load_text(row: Mapping[str, Any]) -> str:
    """The load of static batching in a cell, marked where it is 1 or more."""
    load = row.get("static_load")
    return "-" if load is None else f"{number(load)} (over)" if load >= 1 else number(load)


def overloaded(row: Mapping[str, Any]) -> bool:
    """Whether static batching has a load of 1 or more in a cell."""
    return (row.get("static_load") or 0) >= 1


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
    span = " to ".join(dict.fromkeys((number(min(loads)), number(max(loads)))))
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


def _of_rates(cells: pl.DataFrame, scheduler: str) -> list[str]:
    """Where the largest rate is that of fewer workloads, or more than the scheduler can serve in the long run."""
    rate = f"{scheduler}_slo_rate_per_s"
    if f"{rate}_n" not in cells.columns:
        return []
    missing = cells.filter(pl.col(f"{rate}_n") < pl.col("replicates"))
    served = pl.col("requested_rate_per_s") / pl.col("static_load" if scheduler == "static" else "offered_load")
    beyond = cells.filter(pl.col(f"{rate}_mean") > served)
    said = []
    if missing.height:
        lost, every = (
            int(found.sum()) for found in (missing["replicates"] - missing[f"{rate}_n"], missing["replicates"])
        )
        said.append(
            f"Under {scheduler} batching no largest rate was found in {lost:,} of {plural(every, 'workload')}"
            f" ({plural(missing.height, 'cell')}): the lowest rate that is tried breaks the SLO there, or the highest"
            " keeps it, and means are over the others."
        )
    if beyond.height:
        said.append(
            f"In {plural(beyond.height, 'cell')} the largest rate of {scheduler} batching is more than it can serve in"
            " the long run: it is kept because workloads end, and by no server that runs forever."
        )
    return said


def _observed(cells: pl.DataFrame) -> list[str]:
    """The observed rate and cv of the gaps beside those asked for, in the cells where they are furthest apart."""
    said = []
    for observed, asked, words in OBSERVED:
        if not {f"{observed}_mean", asked} <= set(cells.columns):
            continue
        off = (pl.col(f"{observed}_mean") / pl.col(asked) - 1).abs()
        known = cells.filter(off.is_not_null()).sort(off, descending=True, maintain_order=True)
        if known.height:
            came, wanted = (number(known[name][0]) for name in (f"{observed}_mean", asked))
            where = "" if known.height == 1 else ", where they are furthest apart"
            said.append(f"{words} is {came} and {wanted} was asked for{where}.")
    return said


def _withheld(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """The percentiles that have no value for want of requests, and how many requests they take."""
    found: dict[int, int] = {}
    percentiles = [name for name in metrics(manifest["measure"]) if PERCENTILE.fullmatch(name)]
    for cell in cells.filter(pl.col("replicates") > 0).iter_rows(named=True):
        steady = horizon_of(manifest, manifest["cells"][cell["cell"]]) == "steady"
        told = [name for name in percentiles if not (steady and overloaded(cell) and name.startswith("static"))]
        for p in {int(name[-4:-2]) for name in told if cell[f"{name}_mean"] is None}:
            found[p] = found.get(p, 0) + 1
    return [
        f"p{p} is withheld in {plural(count, 'cell')}: it takes {LEAST_BEYOND * 100 // (100 - p):,} requests that"
        " count, so that enough lie beyond it."
        for p, count in sorted(found.items())
    ]

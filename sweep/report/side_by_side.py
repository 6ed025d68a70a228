"""What a chart of lines shows in words where it may have several metrics, such as one of both schedulers.

One metric has the words of `findings`. Left out: the drawing (`charts.curves`), and what one line does.
"""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from sweep.metrics import parted, unit_of
from sweep.report import findings
from sweep.report.words import SHORT, at, axis_value, both_name, metric_name, number, plural

UNITS = {"s": "seconds", "share": "share"}


def title(cells: pl.DataFrame, x: str, color: str | None, metrics: Sequence[str]) -> str:
    """What a chart of these metrics shows: where both schedulers differ most, else how the first one runs."""
    known = [metric for metric in metrics if cells[f"{metric}_mean"].count()] or metrics
    if of_both(known):
        return _of_both(cells, x, color, known)
    return findings.of_lines(cells, x, color, known[0])


def axis_title(metrics: Sequence[str]) -> str:
    """The title of the axis of values."""
    if len(metrics) == 1:
        return f"mean {metric_name(metrics[0]).title}"
    if of_both(metrics):
        return f"mean {both_name(parted(metrics[0])[1]).title}"
    unit, schedulers = unit_of(metrics[0]), {parted(metric)[0] for metric in metrics}
    under = f" under {schedulers.pop()} batching" if len(schedulers) == 1 and "" not in schedulers else ""
    return f"means{under} ({UNITS.get(unit, unit)})" if unit else f"means{under}"


def notes(cells: pl.DataFrame, x: str, metrics: Sequence[str]) -> list[str]:
    """Where metrics of cells that ran have no value, and where static batching cannot keep up with what comes."""
    ran = cells.filter(pl.col("replicates") > 0)
    slow = _overloaded(ran) if any(_needs_static(metric) for metric in metrics) else ran.clear()
    said = _slow(slow, ran, x, metrics) if len(slow) else []
    for metric in metrics:
        none = ran.filter(pl.col(f"{metric}_mean").is_null())
        if _needs_static(metric):
            none = none.join(slow, on="cell", how="anti")
        if len(none):
            where = "" if len(none) == len(ran) else _where(none, ran, x)
            said.append(f"{_called(metric, metrics)} is undefined{where}")
    return said


def of_both(metrics: Sequence[str]) -> bool:
    """Whether there is one thing measured, of static and of continuous batching."""
    parts = [parted(metric) for metric in metrics]
    return {scheduler for scheduler, _ in parts} == {"static", "continuous"} and len({what for _, what in parts}) == 1


def _of_both(cells: pl.DataFrame, x: str, color: str | None, metrics: Sequence[str]) -> str:
    """The cell in which the schedulers differ most, with what both come to there."""
    what = parted(metrics[0])[1]
    static, continuous = f"static_{what}", f"continuous_{what}"
    both = cells.drop_nulls([f"{static}_mean", f"{continuous}_mean"])
    if both.is_empty():
        return findings.of_lines(cells, x, color, continuous)
    subject, unit = both_name(what).subject, f" {unit_of(static)}" if unit_of(static) not in ("", "share") else ""
    if not any(_differ(row, static, continuous) for row in both.iter_rows(named=True)):
        return f"{subject} is the same under both schedulers, as far as the intervals tell"
    row = max(both.iter_rows(named=True), key=lambda row: _apart(row[f"{static}_mean"], row[f"{continuous}_mean"]))
    where = at({name: row[name] for name in (x, color) if name})
    values = " and ".join(
        f"{number(row[f'{metric}_mean'])}{unit} under {name} batching"
        for metric, name in ((static, "static"), (continuous, "continuous"))
    )
    only = "" if len(both) > 1 else ", the one place where both are known"
    return f"{subject} differs most at {where}{only}: {values}"


def _differ(row: dict[str, Any], first: str, second: str) -> bool:
    """Whether the intervals of two metrics of a cell lie apart."""
    ends = [
        [row[f"{metric}_ci_{end}"] if row[f"{metric}_ci_{end}"] is not None else row[f"{metric}_mean"] for end in _ENDS]
        for metric in (first, second)
    ]
    return bool(ends[0][0] > ends[1][1] or ends[1][0] > ends[0][1])


_ENDS = ("low", "high")


def _apart(first: float, second: float) -> float:
    """How far apart two values are: their ratio, either way; without end where just one is 0."""
    if min(first, second) <= 0:
        return math.inf if first != second else 0.0
    return abs(math.log(first / second))


def _overloaded(ran: pl.DataFrame) -> pl.DataFrame:
    """The cells in which static batching has a load of 1 or more."""
    return ran.filter(pl.col("static_load") >= 1) if "static_load" in ran.columns else ran.clear()


def _needs_static(metric: str) -> bool:
    """Whether a metric depends on how static batching copes with the rate that comes; a largest rate is sought."""
    if metric.endswith("_slo_rate_per_s"):
        return False
    return parted(metric)[0] == "static" or metric.endswith("_ratio") or metric.startswith("multiple")


def _slow(slow: pl.DataFrame, ran: pl.DataFrame, x: str, metrics: Sequence[str]) -> list[str]:
    """Where static batching cannot keep up, and what that makes of its values."""
    own = [metric for metric in metrics if _needs_static(metric)]
    ends = (slow["static_load"].min(), slow["static_load"].max())
    load = " to ".join(dict.fromkeys(number(end) for end in ends))  # type: ignore[arg-type]
    gone = all(slow[f"{metric}_mean"].count() == 0 for metric in own)
    rest = "it has no value there" if gone else "its queue grows for as long as requests come"
    return [f"Static batching cannot keep up{_where(slow, ran, x)} (its own load is {load}): {rest}"]


def _where(cells: pl.DataFrame, ran: pl.DataFrame, x: str) -> str:
    """At which values of the axis these cells are; how many they are where at each value others ran too."""
    found = cells[x].unique(maintain_order=True)
    if len(cells) < len(ran) and len(found) == len(ran[x].unique()):
        return f" in {len(cells):,} of {plural(len(ran), 'cell')}"
    ordered = found.sort().to_list() if found.dtype.is_numeric() else found.to_list()
    name = SHORT.get(x, x)
    if found.dtype.is_numeric() and len(ordered) > 2:
        return f" at {name} = {axis_value(ordered[0])} to {axis_value(ordered[-1])}"
    return f" at {name} = {', '.join(map(axis_value, ordered))}"


def _called(metric: str, metrics: Sequence[str]) -> str:
    """The metric as its lines are called."""
    if of_both(metrics):
        return f"{both_name(parted(metric)[1]).subject} under {parted(metric)[0]} batching"
    return metric_name(metric).subject

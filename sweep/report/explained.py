"""Pictures that explain a multiple: what its parts are, and how it approaches its limit; each with caption and numbers.

Leaves out the drawing (`charts`) and the parts themselves (`attribution`).
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.report import charts
from sweep.report.attribution import Attribution, Part, attribution
from sweep.report.charts.axes import nothing
from sweep.report.charts.look import Chart, styled
from sweep.report.findings import workloads_text
from sweep.report.words import SHORT, axis_value, number, plural, with_interval
from sweep.results import Store

PLACES = ("requests_per_slot", "series", "share", "low", "high")


def waterfall_figure(store: Store, metric: str) -> tuple[Chart, str, pl.DataFrame]:
    """The parts of a metric from the first cell of a factorial study to the last: picture, caption, numbers."""
    found = attribution(store, metric)
    if found is None:
        why = (
            "The parts are not known: every axis needs two values, every cell a result in every workload, and rows kept"
        )
        return styled(nothing(), why, []), f"{why}.", pl.DataFrame()
    named = found.parts if found.drain is None else (*found.parts, found.drain)
    parts = {part.name: part for part in named}
    simulated = {part.name: part for part in found.simulated}
    data = pl.DataFrame(
        {
            "part": [*parts, "all"],
            "adds": [*(part.value for part in parts.values()), found.end.value],
            "adds_simulated": [*(simulated[name].value if name in simulated else None for name in parts), None],
        }
    )
    chart = charts.waterfall(found, metric=metric, note=f"Over {plural(found.workloads, 'workload')} of each cell")
    return chart, _of_parts(found, metric), data


def approach_figure(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> tuple[Chart, str, pl.DataFrame]:
    """How near each cell's mean multiple is to its limit against requests per slot: picture, caption, numbers."""
    frame, n = approach_frame(cells, manifest), workloads_text(cells, ["multiple"])
    caption = (
        "Each value is multiple_mean / limit_multiple, the mean over workloads of each workload's multiple over what it"
        f" tends to in a queue that never empties, which is exact (n = {n} in a cell; bands are 95 % t"
        " intervals). The gap is the drain: the last requests run out in ever emptier slots."
    )
    return charts.approach(frame), caption, frame


def approach_frame(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> pl.DataFrame:
    """Requests per slot and the share of the limit of each cell with a limit above 1, a series for each setting."""
    rows = []
    for row in cells.iter_rows(named=True):
        limit, mean = row["limit_multiple"], row["multiple_mean"]
        if limit is None or limit <= 1 or mean is None:
            continue
        cell = manifest["cells"][row["cell"]]
        low, high = (
            row[f"multiple_ci_{end}"] if row["multiple_ci_low"] is not None else mean for end in ("low", "high")
        )
        rows.append(
            (
                manifest["points"][cell["point"]]["requests"] / cell["slots"],
                _series(cell["axes"], cell["slots"]),
                *(value / limit for value in (mean, low, high)),
            )
        )
    schema = {name: pl.String if name == "series" else pl.Float64 for name in PLACES}
    order = list(dict.fromkeys(series for _, series, *_ in rows))  # that of the grid
    rows.sort(key=lambda row: (order.index(row[1]), row[0]))
    return pl.DataFrame(rows, schema=schema, orient="row")


def _series(axes: Mapping[str, Any], slots: int) -> str:
    """All that tells the lines apart, which is not how many requests wait."""
    others = {column: value for column, value in axes.items() if column not in ("requests", "slots")}
    named = {"slots": slots, **others}
    return ", ".join(f"{SHORT.get(column, column)} = {axis_value(value)}" for column, value in named.items())


def _of_parts(found: Attribution, metric: str) -> str:
    """The caption: what the parts are of, and the same parts of the simulated means."""
    simulated = "; ".join(f"{part.name} {_signed(part)}" for part in found.simulated)
    n = f"{plural(found.workloads, 'workload')} of each cell, paired 95 % t intervals"
    orders = "A part is the mean over all orders in which the factors can be added (Shapley's value)."
    if found.drain is None:
        return f"What each factor adds to {metric}_mean ({n}): {simulated}. {orders}"
    return (
        f"What each factor adds to the limit of {metric}_mean in a queue that never empties, which is exact; the drain"
        f" is the simulated mean less that limit, {_signed(found.drain)}. Of the simulated means ({n}) the factors"
        f" add: {simulated}. {orders}"
    )


def _signed(part: Part) -> str:
    if part.interval is None:
        return number(part.value)
    return with_interval(part.value, *part.interval)

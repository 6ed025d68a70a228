"""The distributions of a metric in several cells, one above the other on one axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import nothing
from sweep.report.charts.histogram import bars, bin_edges, reach
from sweep.report.charts.look import BLUE, GREY, INK, MUTED, PAPER, RED, WIDTH, Chart, styled
from sweep.report.claims import bound_text, bounds
from sweep.report.intervals import Values, defined
from sweep.report.words import axis_title, metric_name, number, percent

Claim = Mapping[str, Any]
ROW = 44  # height in pixels


def distributions(
    values: Mapping[str, Values], column: str, *, metric: str = "multiple", claim: Claim | None = None, note: str = ""
) -> Chart:
    """A small histogram for each value of an axis, with its mean and the share that meets the claim.

    values : label of the axis value -> that cell's workloads. Bars of a row are relative to its highest.
    """
    title = findings.of_distributions(values, column, metric, claim)
    subtitle = findings.under_distributions(values, claim, note)
    known = {label: defined(cell) for label, cell in values.items()}
    every = np.concatenate([np.empty(0), *known.values()])
    if len(every) == 0:
        return styled(nothing(), title, subtitle)
    low, high = bounds(claim) if claim else (-math.inf, math.inf)
    edges = bin_edges(every, [bound for bound in (low, high) if math.isfinite(bound)])
    domain = reach(edges, low, high)
    places = {label: len(values) - 1 - row for row, label in enumerate(values)}  # the first on top
    drawn = [_row(cell, low, high, edges, places[label]) for label, cell in known.items() if len(cell)]
    layers = [
        _histograms(pl.concat(drawn), metric, domain, column, len(values)),
        *_row_words(known, values, claim, places),
        *_bound_rules(claim, domain),
    ]
    return styled(alt.layer(*layers), title, subtitle, width=WIDTH, height=ROW * len(values))


def _row(values: Values, low: float, high: float, edges: Values, place: int) -> pl.DataFrame:
    """The bars of one cell, on the line of its row."""
    own = bars(values, (values >= low) & (values <= high), edges)
    scale = 0.85 / int(own["to"].max())  # type: ignore[arg-type]
    return own.with_columns(pl.col("from", "to") * scale + place)


def _histograms(frame: pl.DataFrame, metric: str, domain: Sequence[float], column: str, rows: int) -> Chart:
    mark = alt.Chart(frame).mark_bar(stroke=PAPER, strokeWidth=0.3, binSpacing=0)
    axis = alt.Axis(labels=False, ticks=False, domain=False, values=list(range(rows)), titlePadding=76)
    height = alt.Scale(domain=[0, rows], nice=False)
    return mark.encode(  # type: ignore[no-any-return]
        x=alt.X("x:Q", title=metric_name(metric).title, scale=alt.Scale(domain=list(domain), nice=False)),
        x2="x2:Q",
        y=alt.Y("from:Q", title=axis_title(column), scale=height, axis=axis),
        y2="to:Q",
        color=alt.condition("datum.meets", alt.value(BLUE), alt.value(GREY)),
        tooltip=[alt.Tooltip("x:Q", title="from"), alt.Tooltip("x2:Q", title="to"), alt.Tooltip("count:Q")],
    )


def _row_words(
    known: Mapping[str, Values], values: Mapping[str, Values], claim: Claim | None, places: Mapping[str, int]
) -> list[Chart]:
    """The name of each row at its left, its mean as a tick, and its figures at the right."""
    rows = []
    for label, cell in known.items():
        mean = float(cell.mean()) if len(cell) else None
        said = "no result" if mean is None else f"mean {number(mean)}"
        if claim and mean is not None:
            said += f", {percent(float(findings.meets(values[label], claim).mean()))} {bound_text(claim)}"
        place = places[label]
        rows.append({"label": label, "x": mean, "y": place, "y2": place + 0.95, "middle": place + 0.4, "said": said})
    frame = pl.DataFrame(rows, schema_overrides={"x": pl.Float64})
    base = alt.Chart(frame).encode(y="middle:Q")
    ticks = alt.Chart(frame.drop_nulls("x")).mark_rule(color=INK, strokeWidth=2).encode(x="x:Q", y="y:Q", y2="y2:Q")
    names = base.mark_text(align="right", dx=-10, color=MUTED, fontSize=12, limit=110)
    figures = base.mark_text(align="left", dx=10, color=INK, fontSize=12)
    return [
        ticks,
        names.encode(x=alt.value(0), text="label:N"),
        figures.encode(x=alt.value(WIDTH), text="said:N"),
    ]


def _bound_rules(claim: Claim | None, domain: Sequence[float]) -> list[Chart]:
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    if not found:
        return []
    rules = alt.Chart(pl.DataFrame({"x": found})).mark_rule(color=RED, strokeWidth=1.5, strokeDash=[6, 4])
    return [rules.encode(x="x:Q")]

"""Axes and small parts that several charts share. Leaves out colours and type (`look`)."""

import altair as alt
import numpy as np
import polars as pl

from sweep.report.charts.look import MUTED, Chart
from sweep.report.intervals import Values
from sweep.report.words import axis_title, axis_value


def numeric_axis(column: pl.Series, name: str, *, log: bool | None = None) -> alt.X:
    """The horizontal axis of a numeric column: logarithmic when its values are spaced so; ticks at few values."""
    values = np.array(column.unique().sort().to_list(), dtype=float)
    if log is None:
        log = len(values) > 2 and values[0] > 0 and _spread(np.diff(np.log(values))) < _spread(np.diff(values))
    log = log and values[0] > 0  # a zero has no place on a logarithmic axis
    ticks = {"values": values.tolist()} if len(values) <= 12 else {}
    axis = alt.Axis(format=",.6~f", labelOverlap="greedy", labelSeparation=6, **ticks)
    scale = alt.Scale(type="log" if log else "linear", zero=False, nice=False, padding=14)
    return alt.X("x:Q", title=axis_title(name), axis=axis, scale=scale)


def named_axis(column: pl.Series, name: str) -> alt.X:
    """The horizontal axis of a column of names, in the order of the grid, slanted where they are long."""
    names = value_labels(column)
    slanted = max(map(len, names)) > 80 / len(names) + 4
    return alt.X("x:N", sort=names, title=axis_title(name), axis=alt.Axis(labelAngle=-25 if slanted else 0))


def value_labels(column: pl.Series) -> list[str]:
    """The values of an axis as they are read, each once, in their order: numbers by size, text as given."""
    values = column.unique(maintain_order=True)
    return [axis_value(value) for value in (values.sort() if column.dtype.is_numeric() else values)]


def tooltips(*fields: tuple[str, str]) -> list[alt.Tooltip]:
    """A tooltip of these (field, title) pairs, each shown as the text that it is."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in fields]


def nothing() -> Chart:
    """An empty ground, for a chart whose title has to say why there is nothing on it."""
    words = alt.Chart(pl.DataFrame({"text": ["no result"]})).mark_text(color=MUTED, fontSize=16)
    return words.encode(text="text:N")  # type: ignore[no-any-return]


def clamp(value: float, low: float, high: float) -> float:
    """The value, moved to the nearer end where it lies outside."""
    return min(max(value, low), high)


def _spread(steps: Values) -> float:
    """How uneven the steps are: their deviation relative to their mean."""
    return float(steps.std() / steps.mean())

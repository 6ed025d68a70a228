"""The lines of a chart: which there are, what each is called, how it is told apart, and the rows that it is drawn from.

Leaves out axes and marks (`curves`). Static and continuous batching have the same colours in every chart that shows
both; what else tells lines apart is then their dashes and the shapes of their points.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import polars as pl

from sweep.metrics import SCHEDULERS, parted
from sweep.report.charts.look import SCHEDULER_COLORS, series_colors
from sweep.report.findings import BOUNDS, THEORY
from sweep.report.words import SHORT, axis_value, short_metric, with_interval

DASHED_LINES = 6  # with more lines than this, theory would hide them
DASHES = ([1, 0], [7, 3], [2, 2.5], [9, 3, 2, 3], [4, 2])
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross")
GLYPHS = "\u25cf\u25a0\u25c6\u25b2\u271a"  # the same in text


class Line(NamedTuple):
    """A line: the metric it shows, of the cells with a value of the column that tells lines apart, and its looks."""

    metric: str
    value: Any  # None without such a column
    name: str
    color: str
    style: int  # of the dashes and shapes: 0 is a plain line


def lines_of(cells: pl.DataFrame, color: str | None, metrics: Sequence[str]) -> list[Line]:
    """The lines of a chart of these metrics, in the order of the metrics and then of the column's values."""
    values = _values(cells[color]) if color else [None]
    keys = [(metric, value) for metric in metrics for value in values]
    of_scheduler = {parted(metric)[0] for metric in metrics} == set(SCHEDULERS)
    if len(metrics) == 1:
        hues: list[Any] = [value for _, value in keys]
        rests: list[Any] = [None] * len(keys)
    elif of_scheduler:
        hues = [parted(metric)[0] for metric, _ in keys]
        rests = [(parted(metric)[1], value) for metric, value in keys]
    else:
        hues, rests = [metric for metric, _ in keys], [value for _, value in keys]
    styles = {rest: place for place, rest in enumerate(dict.fromkeys(rests))}
    colors = _colors(hues, metrics)
    words = line_words(metrics)
    return [
        Line(metric, value, _name(words[metric], color, value, len(metrics)), colors[hue], styles[rest] % len(DASHES))
        for (metric, value), hue, rest in zip(keys, hues, rests, strict=True)
    ]


def line_words(metrics: Sequence[str]) -> dict[str, str]:
    """What lines of these metrics are called, without what all of them have in common: "static", or "ttft p95"."""
    schedulers, ways = ({parted(metric)[part] for metric in metrics} for part in (0, 1))
    if len(ways) == 1:
        return {metric: parted(metric)[0] for metric in metrics}
    own = 1 if len(schedulers) == 1 else None  # the scheduler is that of all
    return {metric: short_metric(metric if own is None else parted(metric)[own]) for metric in metrics}


def line_frame(cells: pl.DataFrame, x: str, color: str | None, lines: Sequence[Line]) -> pl.DataFrame:
    """A row for each cell and metric: its place on the axis, its line, the mean with its interval, and theory."""
    numeric = cells[x].dtype.is_numeric()
    order = [name for name in (color, x) if name and cells[name].dtype.is_numeric()]
    ordered = cells.sort(order, maintain_order=True) if order else cells
    plain = len(lines) <= DASHED_LINES and not any(line.style for line in lines)
    frames = []
    for line in lines:
        own = ordered if line.value is None else ordered.filter(pl.col(color or x) == line.value)
        frames.append(_rows(own, x, line, numeric=numeric, plain=plain))
    return pl.concat(frames)


def color_of(lines: Sequence[Line]) -> alt.Color:
    """The channel of the colours of lines."""
    scale = alt.Scale(domain=[line.name for line in lines], range=[line.color for line in lines])
    return alt.Color("series:N", scale=scale, legend=None)


def dashes_of(lines: Sequence[Line]) -> dict[str, alt.StrokeDash]:
    """The channel of the dashes, where lines differ in more than colour."""
    if not any(line.style for line in lines):
        return {}
    dashes = alt.Scale(domain=[line.name for line in lines], range=[DASHES[line.style] for line in lines])
    return {"strokeDash": alt.StrokeDash("series:N", scale=dashes, legend=None)}


def shape_of(lines: Sequence[Line]) -> dict[str, alt.Shape]:
    """The channel of the shapes of points, where lines differ in more than colour."""
    if not any(line.style for line in lines):
        return {}
    shapes = alt.Scale(domain=[line.name for line in lines], range=[SHAPES[line.style] for line in lines])
    return {"shape": alt.Shape("series:N", scale=shapes, legend=None)}


def _values(column: pl.Series) -> list[Any]:
    """The values of a column, each once: numbers by size, all else as given."""
    values = column.unique(maintain_order=True)
    return (values.sort() if column.dtype.is_numeric() else values).to_list()


def _colors(hues: Sequence[Any], metrics: Sequence[str]) -> dict[Any, str]:
    """A colour for each hue; those of the schedulers where the hues are schedulers, or the one metric is of one."""
    each = list(dict.fromkeys(hues))
    if set(each) <= set(SCHEDULERS):
        return {scheduler: SCHEDULER_COLORS[scheduler] for scheduler in each}
    if each == [None] and parted(metrics[0])[0]:
        return {None: SCHEDULER_COLORS[parted(metrics[0])[0]]}
    return dict(zip(each, series_colors(len(each)), strict=True))


def _name(metric: str, color: str | None, value: Any, metrics: int) -> str:
    """What a line is called, such as "static", "cv 2" or "static, cv 2"; a line alone is the mean."""
    of_value = f"{SHORT.get(color, color)} {axis_value(value)}" if color else ""
    if metrics == 1:
        return of_value or "mean"
    return f"{metric}, {of_value}" if of_value else metric


def _rows(cells: pl.DataFrame, x: str, line: Line, *, numeric: bool, plain: bool) -> pl.DataFrame:
    metric, n = line.metric, len(cells)
    mean = cells[f"{metric}_mean"]
    ends = [cells[f"{metric}_ci_{end}"] for end in ("low", "high")]
    labels = [axis_value(value) for value in cells[x]]
    unknown = pl.Series([None] * n, dtype=pl.Float64)
    theory = cells[THEORY[metric]] if metric in THEORY and plain else unknown
    least, most = (cells[name] for name in BOUNDS[metric]) if metric in BOUNDS and plain else (unknown, unknown)
    told = [
        None if m is None else f"{SHORT.get(x, x)} = {label}; {line.name} {with_interval(m, low, high)}"
        for label, m, low, high in zip(labels, mean, *ends, strict=True)
    ]
    return pl.DataFrame(
        {
            "x": cells[x] if numeric else labels,
            "label": labels,
            "series": [line.name] * n,
            "value": mean.cast(pl.Float64),
            "low": pl.select(pl.coalesce(ends[0], mean)).to_series().cast(pl.Float64),
            "high": pl.select(pl.coalesce(ends[1], mean)).to_series().cast(pl.Float64),
            "text": [None if m is None else f"{m:.4g}" for m in mean],
            "told": told,
            "theory": theory,
            "least": least,
            "most": most,
            "n": [f"{n:,}" for n in cells["replicates"]],
        },
        schema_overrides={"text": pl.String, "told": pl.String},
    )

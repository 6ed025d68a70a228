"""Pictures of results: functions from a frame, or an array, to an `alt.Chart`. Leaves out which ones to draw.

Data columns get plain names (`x`, `y`, `value`, ...), so that a dot or a bracket in the name of an axis never meets
Vega's own reading of field names, and user text stands in data and titles only, never in an expression.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from sweep.report import findings
from sweep.report.claims import FAILS, UNDECIDED, bound_text, bounds
from sweep.report.findings import THEORY, THEORY_NAMES
from sweep.report.look import (
    BLUE,
    GREY,
    HEIGHT,
    INK,
    MISSING,
    MUTED,
    ON_DARK,
    ON_LIGHT,
    PAPER,
    RED,
    WIDTH,
    Chart,
    series_colors,
    styled,
)
from sweep.report.stats import Values, defined, mean_interval
from sweep.report.words import SHORT, axis_title, axis_value, decimals_for, metric_name, number, percent

Claim = Mapping[str, Any]

DASHED_LINES = 6  # with more lines than this, theory would hide them


def distribution(values: Values, *, metric: str = "multiple", where: str = "", claim: Claim | None = None) -> Chart:
    """A metric over the workloads of a cell: the histogram, the mean with its interval, and the bounds of a claim."""
    title = findings.of_distribution(values, metric, claim)
    subtitle = findings.under_distribution(values, where, claim)
    known = defined(values)
    if len(known) == 0:
        return styled(_nothing(), title, subtitle)
    low, high = bounds(claim) if claim else (-math.inf, math.inf)
    edges = _edges(known, [bound for bound in (low, high) if math.isfinite(bound)])
    counts = np.histogram(known, edges)[0]
    domain, top = _domain(edges, low, high), int(counts.max())
    bars = pl.DataFrame({"x": edges[:-1], "x2": edges[1:], "zero": 0, "count": counts}).filter(pl.col("count") > 0)
    middle = (pl.col("x") + pl.col("x2")) / 2  # bounds are edges, so a bar is within them when its middle is
    x = alt.X("x:Q", title=metric_name(metric).title, scale=alt.Scale(domain=domain, nice=False))
    height = alt.Scale(domain=[0, 1.32 * top], nice=False)
    histogram = (
        alt.Chart(bars.with_columns(meets=(middle >= low) & (middle <= high)))
        .mark_bar(stroke=PAPER, strokeWidth=0.5, binSpacing=0)
        .encode(
            x=x,
            x2="x2:Q",
            y=alt.Y("zero:Q", title="workloads", scale=height, axis=alt.Axis(tickCount=5)),
            y2="count:Q",
            color=alt.condition("datum.meets", alt.value(BLUE), alt.value(GREY)),
            tooltip=[alt.Tooltip("x:Q", title="from"), alt.Tooltip("x2:Q", title="to"), alt.Tooltip("count:Q")],
        )
    )
    met = f"{percent(float(findings.meets(values, claim).mean()))} of workloads" if claim else ""
    layers = [histogram, *_rules(known, claim, met, domain, top)]
    return styled(alt.layer(*layers), title, subtitle, width=WIDTH, height=HEIGHT)


def heatmap(
    cells: pl.DataFrame,
    x: str,
    y: str,
    *,
    metric: str = "multiple",
    verdicts: Mapping[int, str] | None = None,
    note: str = "",
) -> Chart:
    """The mean of a metric over two axes, a number in each cell, and marks where a claim does not hold.

    Where theory knows a counterpart, a switch shows that, or the difference, instead; a saved picture shows the
    simulation. verdicts : cell -> verdict; note : what the marks and the other axes mean.
    """
    frame = _heat_frame(cells, x, y, metric, verdicts or {})
    columns, rows = _labels(cells[x]), _labels(cells[y])
    if cells[y].dtype.is_numeric():
        rows = rows[::-1]  # as on any chart, large is up
    step_x, step_y = _clamp(WIDTH / len(columns), 34, 120), _clamp(400 / len(rows), 24, 90)
    view = alt.param(
        name="show",
        value="simulated",
        bind=alt.binding_radio(options=["simulated", "limit", "difference"], name="Show: "),
    )
    switched = metric in THEORY and frame["value_limit"].count() > 0
    shown = view.name if switched else "'simulated'"
    base = (
        alt.Chart(frame)
        .transform_calculate(value=f"datum['value_' + {shown}]", text=f"datum['text_' + {shown}]")
        .encode(
            x=alt.X("x:N", sort=columns, title=axis_title(x), axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("y:N", sort=rows, title=axis_title(y)),
            tooltip=_tooltips(("x", x), ("y", y), ("text", "shown"), ("n", "workloads"), ("reason", "reason")),
        )
    )
    layers = [*_holes(base), *_tiles(base, metric, step_x, step_y, len(rows), alone=len(cells) == 1)]
    layers += _corners(base, shown, step_x, step_y, set((verdicts or {}).values()))
    chart = alt.layer(*layers)
    subtitle = [*findings.under_means(cells, note), *findings.reasons(cells, [y, x])]
    title = findings.of_heatmap(cells, [y, x], metric)
    size = {"width": alt.Step(step_x), "height": alt.Step(step_y)}
    return styled(chart.add_params(view) if switched else chart, title, subtitle, **size)


def lines(
    cells: pl.DataFrame,
    x: str,
    *,
    color: str | None = None,
    metric: str = "multiple",
    claim: Claim | None = None,
    note: str = "",
) -> Chart:
    """The mean of a metric against one axis with its 95 % band, a line for each value of another, theory dashed."""
    frame = _line_frame(cells, x, color, metric)
    title = findings.of_lines(cells, x, color, metric)
    names = list(dict.fromkeys(frame["series"]))
    joined = bool(cells[x].dtype.is_numeric())
    subtitle = [*findings.under_means(cells, note), *_key(frame, metric, joined=joined)]
    subtitle += findings.reasons(cells, [name for name in (color, x) if name])
    if frame["value"].count() == 0:
        return styled(_nothing(), title, subtitle)
    domain = _reach(frame, metric, claim)
    horizontal = _numeric_axis(cells[x], x) if joined else _named_axis(cells[x], x)
    colors = alt.Color("series:N", scale=alt.Scale(domain=names, range=series_colors(len(names))), legend=None)
    vertical = {"title": f"mean {metric_name(metric).title}", "scale": alt.Scale(domain=domain, nice=False, zero=False)}
    tooltip = _tooltips(("label", x), ("series", color or "line"), ("text", f"mean {metric}"), ("n", "workloads"))
    base = alt.Chart(frame).encode(x=horizontal, color=colors, tooltip=tooltip)
    layers = [*_interval_layers(base, vertical, joined=joined), *_reference_rules(metric, claim, domain)]
    if frame["theory"].count():
        layers.append(_theory_layer(base, vertical, joined=joined))
    if len(names) > 1:
        layers.append(_end_labels(frame, names, horizontal, colors, domain))
    width = WIDTH if joined else alt.Step(_clamp(WIDTH / cells[x].n_unique(), 40, 150))
    return styled(alt.layer(*layers), title, subtitle, width=width, height=HEIGHT)


def requests_that_fit(cells: pl.DataFrame, x: str = "context", *, note: str = "") -> Chart:
    """How many requests fit at once against context, both axes logarithmic; a cross at the bottom where none fits."""
    points = cells.unique([x], keep="first", maintain_order=True).sort(x)
    labels = [axis_value(slots) for slots in points["slots"]]
    frame = pl.DataFrame({"x": points[x], "value": points["slots"], "label": pl.Series(labels, dtype=pl.String)})
    fit, none = frame.filter(pl.col("value") > 0), frame.filter(pl.col("value") <= 0)
    horizontal = _numeric_axis(cells[x], x, log=True)
    slots = sorted(set(fit["value"]))
    ticks = alt.Axis(values=slots if len(slots) <= 12 else alt.Undefined, format=",~f")
    vertical = alt.Y("value:Q", title="requests that fit at once (slots)", scale=alt.Scale(type="log"), axis=ticks)
    base = alt.Chart(fit).encode(x=horizontal, y=vertical)
    layers: list[Chart] = [
        base.mark_line(color=BLUE, strokeWidth=2),
        base.mark_point(color=BLUE, filled=True, size=50, opacity=1),
        base.mark_text(dx=6, dy=-10, align="left", color=INK, fontSize=12).encode(text="label:N"),
    ]
    if len(none):
        crosses = alt.Chart(none).encode(x=horizontal, y=alt.value(HEIGHT - 10))
        layers += [
            crosses.mark_text(text="\u00d7", color=RED, fontSize=20),
            crosses.mark_text(text="none fits", color=RED, dy=-16),
        ]
    subtitle = [*([note] if note else []), *findings.reasons(cells, [x])]
    return styled(alt.layer(*layers), findings.of_fit(points, x), subtitle, width=WIDTH, height=HEIGHT)


def _nothing() -> Chart:
    """An empty ground, for a chart whose title has to say why there is nothing on it."""
    words = alt.Chart(pl.DataFrame({"text": ["no result"]})).mark_text(color=MUTED, fontSize=16)
    return words.encode(text="text:N")  # type: ignore[no-any-return]


def _clamp(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _labels(column: pl.Series) -> list[str]:
    """The values of an axis as they are read, each once, in their order: numbers by size, text as given."""
    values = column.unique(maintain_order=True)
    return [axis_value(value) for value in (values.sort() if column.dtype.is_numeric() else values)]


def _tooltips(*fields: tuple[str, str]) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in fields]


def _edges(values: Values, bounds: Sequence[float]) -> Values:
    """Bin edges a round width apart; the bounds of a claim are edges, so that no bar lies across one."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        half = max(abs(low), 1) / 40
        return np.array([low - half, low + half])
    rough = (high - low) / _clamp(2 * len(values) ** (1 / 3), 8, 50)
    power = 10.0 ** math.floor(math.log10(rough))
    width = power * next(step for step in (1, 2, 2.5, 5, 10) if rough <= step * power * (1 + 1e-9))
    start = bounds[0] if bounds else 0.0
    first = math.floor((low - start) / width)
    last = math.floor((high - start) / width) + 1
    return np.unique([*(start + width * np.arange(first, last + 1)), *(b for b in bounds if low < b < high)])


def _domain(edges: Values, low: float, high: float) -> list[float]:
    """The range of the histogram's axis: all bars and, where they are not far off, the claim's bounds."""
    first, last = float(edges[0]), float(edges[-1])
    reach = 1.5 * (last - first)
    shown = [first, last, *(bound for bound in (low, high) if first - reach <= bound <= last + reach)]
    room = (5 if len(edges) == 2 else 0.04) * (max(shown) - min(shown))  # one bar alone is drawn narrow
    return [min(shown) - room, max(shown) + room]


def _rules(values: Values, claim: Claim | None, met: str, domain: Sequence[float], top: int) -> list[Chart]:
    """The mean in a band of its interval and the bounds of the claim, with their words on sides that stay apart."""
    mean, interval = float(values.mean()), mean_interval(values)
    layers: list[Chart] = []
    if interval and interval[0] < interval[1]:
        band = alt.Chart(pl.DataFrame({"x": [interval[0]], "x2": [interval[1]]}))
        layers.append(band.mark_rect(color=INK, opacity=0.25).encode(x="x:Q", x2="x2:Q"))
    layers.append(alt.Chart(pl.DataFrame({"x": [mean]})).mark_rule(color=INK, strokeWidth=2).encode(x="x:Q"))
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    place = (mean - domain[0]) / (domain[1] - domain[0])
    right = (mean > found[-1] and place < 0.8) or place < 0.2 if found else place < 0.5
    text = f"mean {number(mean, decimals_for(*interval) if interval else None)}"
    layers += _words([text], mean, [1.27 * top], INK, right=right)
    if claim and found:
        rules = alt.Chart(pl.DataFrame({"x": found})).mark_rule(color=RED, strokeWidth=2, strokeDash=[6, 4])
        asked = [f"claim: {bound_text(claim)}", met]
        place = (found[-1] - domain[0]) / (domain[1] - domain[0])
        right = place < 0.3 or (place < 0.7 and mean <= found[-1])
        layers += [rules.encode(x="x:Q"), *_words(asked, found[-1], [1.17 * top, 1.09 * top], RED, right=right)]
    return layers


def _words(texts: list[str], x: float, heights: list[float], color: str, *, right: bool) -> list[Chart]:
    """Bold words on one side of a rule, with a ground of paper so that bars and rules do not cross them."""
    frame = pl.DataFrame({"x": [x] * len(texts), "y": heights, "text": texts})
    align, dx = ("left", 7) if right else ("right", -7)
    style: dict[str, Any] = {"align": align, "dx": dx, "fontSize": 13, "fontWeight": "bold"}
    base = alt.Chart(frame).encode(x="x:Q", y="y:Q", text="text:N")
    return [base.mark_text(stroke=PAPER, strokeWidth=5, **style), base.mark_text(color=color, **style)]


def _heat_frame(cells: pl.DataFrame, x: str, y: str, metric: str, verdicts: Mapping[int, str]) -> pl.DataFrame:
    """A row for each cell: its place, the three views as number and as text, and why it may have none."""
    limit = THEORY.get(metric)
    rows = []
    for row in cells.iter_rows(named=True):
        mean, theory = row[f"{metric}_mean"], row[limit] if limit else None
        views = {
            "simulated": mean,
            "limit": theory,
            "difference": None if mean is None or theory is None else mean - theory,
        }
        rows.append(
            {
                "x": axis_value(row[x]),
                "y": axis_value(row[y]),
                **{f"value_{name}": value for name, value in views.items()},
                **{f"text_{name}": None if value is None else _compact(value) for name, value in views.items()},
                "n": f"{row['replicates']:,}",
                "reason": None if row["replicates"] else row["error"] or "not simulated yet",
                "verdict": verdicts.get(row["cell"]),
            }
        )
    texts = ("x", "y", "text_simulated", "text_limit", "text_difference", "n", "reason", "verdict")
    values = ("value_simulated", "value_limit", "value_difference")
    return pl.DataFrame(rows, schema={**dict.fromkeys(values, pl.Float64), **dict.fromkeys(texts, pl.String)})


def _compact(value: float) -> str:
    """A number that fits a tile."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * power:
            return f"{value / power:.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _holes(base: alt.Chart) -> list[Chart]:
    """Cells without a result: hollow, so that they are seen to be missing and not to be low."""
    missing = base.transform_filter("!isValid(datum.value)")
    return [
        missing.mark_rect(fill=MISSING, stroke=GREY, strokeDash=[3, 2], strokeWidth=1),
        missing.mark_text(text="\u2013", fontSize=13, color="#7b8794"),
    ]


def _tiles(base: alt.Chart, metric: str, step_x: float, step_y: float, rows: int, *, alone: bool) -> list[Chart]:
    """The cells with a result: colour and number."""
    ran = base.transform_filter("isValid(datum.value)")
    legend = alt.Legend(title=["mean", metric.replace("_", " ")], gradientLength=_clamp(step_y * rows - 44, 40, 200))
    scale = alt.Scale(scheme="yellowgreenblue", zero=False, nice=False)
    color = alt.Color("value:Q", scale=scale, legend=None if alone else legend)
    ink = alt.condition("luminance(scale('color', datum.value)) < 0.25", alt.value(ON_DARK), alt.value(ON_LIGHT))
    size = _clamp(min(step_x / 3.4, step_y / 2.1), 10, 15)
    return [
        ran.mark_rect(stroke=PAPER, strokeWidth=1).encode(color=color),
        ran.mark_text(fontSize=size).encode(text="text:N", color=ink),
    ]


def _corners(base: alt.Chart, shown: str, step_x: float, step_y: float, found: set[str]) -> list[Chart]:
    """A filled corner where a claim fails, an open one where it is undecided; of the simulation only."""
    size = _clamp(min(step_x, step_y) / 4, 6, 12)
    place: dict[str, Any] = {"xOffset": step_x / 2 - size / 2 - 1, "yOffset": -step_y / 2 + size / 2 + 1}
    shape: dict[str, Any] = {
        "shape": "M-1,-1L1,-1L1,1Z",
        "size": size**2,
        "stroke": RED,
        "strokeWidth": 1.2,
        "opacity": 1,
    }
    marks = []
    for verdict, fill in ((FAILS, RED), (UNDECIDED, PAPER)):
        if verdict in found:
            chosen = base.transform_filter(
                f"datum.verdict === '{verdict}' && {shown} === 'simulated' && isValid(datum.value)"
            )
            marks.append(chosen.mark_point(fill=fill, **shape, **place))
    return marks


def _line_frame(cells: pl.DataFrame, x: str, color: str | None, metric: str) -> pl.DataFrame:
    """A row for each cell: its place on the axis, its line, the mean with its interval, and theory."""
    numeric = cells[x].dtype.is_numeric()
    order = [name for name in (color, x) if name and cells[name].dtype.is_numeric()]
    ordered = cells.sort(order, maintain_order=True) if order else cells
    mean = ordered[f"{metric}_mean"]
    low, high = (ordered[f"{metric}_ci_{end}"] for end in ("low", "high"))
    labels = [axis_value(value) for value in ordered[x]]
    name = SHORT.get(color, color) if color else None
    crowded = color is not None and cells[color].n_unique() > DASHED_LINES
    theory = pl.Series([None] * len(ordered), dtype=pl.Float64)
    if metric in THEORY and not crowded:
        theory = ordered[THEORY[metric]]
    return pl.DataFrame(
        {
            "x": ordered[x] if numeric else labels,
            "label": labels,
            "series": [f"{name} {axis_value(value)}" for value in ordered[color]] if color else ["mean"] * len(ordered),
            "value": mean,
            "low": pl.select(pl.coalesce(low, mean)).to_series(),
            "high": pl.select(pl.coalesce(high, mean)).to_series(),
            "text": [None if m is None else f"{m:.4g}" for m in mean],
            "theory": theory,
            "n": [f"{n:,}" for n in ordered["replicates"]],
        },
        schema_overrides={"text": pl.String},
    )


def _reach(frame: pl.DataFrame, metric: str, claim: Claim | None) -> list[float]:
    """The range of the vertical axis: all intervals; theory and claim where they do not flatten the rest."""
    low, high = float(frame["low"].min()), float(frame["high"].max())  # type: ignore[arg-type]
    if metric == "multiple":
        low = min(low, 1.0)  # one is no gain, the natural foot of this axis
    elif 0 < low < high / 2:
        low = 0.0
    span = (high - low) or abs(high) / 4 or 1.0
    others = [*frame["theory"].drop_nulls(), *(bounds(claim) if claim else ())]
    near = [_clamp(value, low - span / 2, high + span / 2) for value in others if math.isfinite(value)]
    low, high = min(low, *near, high), max(high, *near, low)
    room = 0.05 * ((high - low) or span)
    return [low if low == 0 else low - room, high + room]


def _numeric_axis(column: pl.Series, name: str, *, log: bool | None = None) -> alt.X:
    """The horizontal axis of a numeric column: logarithmic when its values are spaced so; ticks at few values."""
    values = np.array(column.unique().sort().to_list(), dtype=float)
    if log is None:
        log = len(values) > 2 and values[0] > 0 and _spread(np.diff(np.log(values))) < _spread(np.diff(values))
    log = log and values[0] > 0  # a zero has no place on a logarithmic axis
    ticks = {"values": values.tolist()} if len(values) <= 12 else {}
    axis = alt.Axis(format=",~f", labelOverlap=True, **ticks)
    scale = alt.Scale(type="log" if log else "linear", zero=False, nice=False, padding=14)
    return alt.X("x:Q", title=axis_title(name), axis=axis, scale=scale)


def _named_axis(column: pl.Series, name: str) -> alt.X:
    """The horizontal axis of a column of names, in the order of the grid, slanted where they are long."""
    labels = _labels(column)
    slanted = max(map(len, labels)) > 80 / len(labels) + 4
    return alt.X("x:N", sort=labels, title=axis_title(name), axis=alt.Axis(labelAngle=-25 if slanted else 0))


def _spread(steps: Values) -> float:
    """How uneven the steps are: their deviation relative to their mean."""
    return float(steps.std() / steps.mean())


def _reference_rules(metric: str, claim: Claim | None, domain: Sequence[float]) -> list[Chart]:
    """A thin rule at a multiple of one, and dashed ones at the bounds of a claim."""
    layers: list[Chart] = []
    if metric in ("multiple", "multiple_s") and domain[0] <= 1 <= domain[1]:
        layers.append(alt.Chart(pl.DataFrame({"y": [1.0]})).mark_rule(color=MUTED).encode(y="y:Q"))
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    if claim and found:
        rules = alt.Chart(pl.DataFrame({"y": found}))
        layers.append(rules.mark_rule(color=RED, strokeDash=[2, 3], strokeWidth=1.5).encode(y="y:Q"))
        words = alt.Chart(pl.DataFrame({"y": found[-1:], "text": [f"claim: {bound_text(claim)}"]}))
        style: dict[str, Any] = {"align": "left", "dx": 4, "dy": -8, "fontSize": 12, "fontWeight": "bold"}
        marks = (words.mark_text(stroke=PAPER, strokeWidth=4, **style), words.mark_text(color=RED, **style))
        layers += [mark.encode(x=alt.value(0), y="y:Q", text="text:N") for mark in marks]
    return layers


def _interval_layers(base: alt.Chart, vertical: dict[str, Any], *, joined: bool) -> list[Chart]:
    """Means with their intervals: a line in its band along numbers, dots with bars for names."""
    ran = base.transform_filter("isValid(datum.value)")
    interval = {"y": alt.Y("low:Q", **vertical), "y2": "high:Q"}
    dots = ran.mark_point(filled=True, size=40, opacity=1).encode(y=alt.Y("value:Q", **vertical))
    if not joined:
        return [ran.mark_rule(strokeWidth=2.5).encode(**interval), dots]
    # The line itself is drawn through the missing values, so that it breaks where a cell has no result.
    line = base.mark_line(strokeWidth=2.2, invalid="break-paths-show-domains").encode(y=alt.Y("value:Q", **vertical))
    return [base.mark_area(opacity=0.22, invalid="break-paths-show-domains").encode(**interval), line, dots]


def _theory_layer(base: alt.Chart, vertical: dict[str, Any], *, joined: bool) -> Chart:
    known = base.transform_filter("isValid(datum.theory)")
    mark = (
        known.mark_line(strokeDash=[5, 4], strokeWidth=1.4, clip=True)
        if joined
        else known.mark_tick(clip=True, size=44, thickness=2, opacity=1)
    )
    return mark.encode(y=alt.Y("theory:Q", **vertical))  # type: ignore[no-any-return]


def _key(frame: pl.DataFrame, metric: str, *, joined: bool) -> list[str]:
    """What the marks beside the means are."""
    bands, dashes = ("bands", "dashed") if joined else ("bars", "ticks")
    theory = f"; {dashes}: {THEORY_NAMES[metric]}" if metric in THEORY and frame["theory"].count() else ""
    return [f"{bands.capitalize()} are 95 % intervals{theory}"]


def _end_labels(
    frame: pl.DataFrame, names: Sequence[str], horizontal: alt.X, colors: alt.Color, domain: Sequence[float]
) -> Chart:
    """The name of each line at its end; where lines end close together the names are moved apart."""
    ends = frame.filter(pl.col("value").is_not_null()).group_by("series", maintain_order=True).last().sort("value")
    every = math.ceil(len(ends) / (HEIGHT / 15))
    ends = ends.gather_every(every)
    gap = (domain[1] - domain[0]) * 15 / HEIGHT
    ends = ends.with_columns(place=pl.Series(_apart(ends["value"].to_list(), gap, domain[1])))
    assert set(ends["series"]) <= set(names)
    mark = alt.Chart(ends).mark_text(align="left", dx=9, fontSize=12, fontWeight="bold")
    return mark.encode(x=horizontal, y="place:Q", text="series:N", color=colors)  # type: ignore[no-any-return]


def _apart(values: Sequence[float], gap: float, top: float) -> list[float]:
    """Ascending values moved as little as a sweep up and down can, to be at least a gap apart and below the top."""
    places = list(values)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], top if i == len(places) - 1 else places[i + 1] - gap)
    return places

"""A metric against one axis of the grid, a line for each value of another, and theory beside it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import clamp, named_axis, nothing, numeric_axis, tooltips
from sweep.report.charts.look import HEIGHT, MUTED, PAPER, RED, WIDTH, Chart, series_colors, styled
from sweep.report.claims import bound_text, bounds
from sweep.report.findings import BOUNDS, THEORY, THEORY_NAMES
from sweep.report.words import SHORT, axis_value, metric_name

Claim = Mapping[str, Any]

THEORIES = ("theory", "least", "most")
DASHED_LINES = 6  # with more lines than this, theory would hide them


def lines(
    cells: pl.DataFrame,
    x: str,
    *,
    color: str | None = None,
    metric: str = "multiple",
    claim: Claim | None = None,
    note: str = "",
    log: bool = False,
) -> Chart:
    """The mean of a metric against one axis with its 95 % band, a line for each value of another, theory dashed.

    log : a logarithmic vertical axis, unless a mean is 0 or below, which has no place on it.
    """
    frame = _line_frame(cells, x, color, metric)
    title = findings.of_lines(cells, x, color, metric)
    names = list(dict.fromkeys(frame["series"]))
    joined = bool(cells[x].dtype.is_numeric())
    subtitle = [*findings.under_means(cells, note), *_key(frame, metric, joined=joined)]
    subtitle += findings.reasons(cells, [name for name in (color, x) if name])
    if frame["value"].count() == 0:
        return styled(nothing(), title, subtitle)
    log = log and bool((frame["value"].drop_nulls() > 0).all())
    domain = _log_reach(frame) if log else _reach(frame, metric, claim)
    if log:
        frame = frame.with_columns(low=pl.max_horizontal("low", pl.lit(domain[0])))
    horizontal = numeric_axis(cells[x], x) if joined else named_axis(cells[x], x)
    colors = alt.Color("series:N", scale=alt.Scale(domain=names, range=series_colors(len(names))), legend=None)
    vertical = {"title": f"mean {metric_name(metric).title}", "scale": _vertical_scale(domain, log=log)}
    vertical |= {"axis": alt.Axis(values=_log_ticks(*domain), format=",.6~f")} if log else {}
    tooltip = tooltips(("label", x), ("series", color or "line"), ("text", f"mean {metric}"), ("n", "workloads"))
    base = alt.Chart(frame).encode(x=horizontal, color=colors, tooltip=tooltip)
    layers = [*_interval_layers(base, vertical, joined=joined), *_reference_rules(frame, metric, claim, domain)]
    layers += [_theory_layer(base, vertical, name, joined=joined) for name in THEORIES if frame[name].count()]
    if len(names) > 1:
        layers.append(_end_labels(frame, names, horizontal, colors, domain, log=log))
    width = WIDTH if joined else alt.Step(clamp(WIDTH / cells[x].n_unique(), 40, 150))
    return styled(alt.layer(*layers), title, subtitle, width=width, height=HEIGHT)


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
    bounded = [theory, theory]
    if metric in THEORY and not crowded:
        theory = ordered[THEORY[metric]]
    if metric in BOUNDS and not crowded:
        bounded = [ordered[name] for name in BOUNDS[metric]]
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
            "least": bounded[0],
            "most": bounded[1],
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
    near = [clamp(value, low - span / 2, high + span / 2) for value in others if math.isfinite(value)]
    low, high = min(low, *near, high), max(high, *near, low)
    room = 0.05 * ((high - low) or span)
    return [low if low == 0 else low - room, high + room]


def _log_reach(frame: pl.DataFrame) -> list[float]:
    """The range of a logarithmic axis: all means, and intervals as far as they reach above a tenth of the lowest."""
    lowest = float(frame["value"].min())  # type: ignore[arg-type]
    low = max(float(frame["low"].min()), lowest / 10)  # type: ignore[arg-type]
    return [low / 1.2, float(frame["high"].max()) * 1.2]  # type: ignore[arg-type]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten on the axis; over many powers 1 alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= 3 else (1,)
    return [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]


def _vertical_scale(domain: list[float], *, log: bool) -> alt.Scale:
    return alt.Scale(type="log", domain=domain, nice=False) if log else alt.Scale(domain=domain, nice=False, zero=False)


def _reference_rules(frame: pl.DataFrame, metric: str, claim: Claim | None, domain: Sequence[float]) -> list[Chart]:
    """A thin rule at a multiple of one, and dashed ones at the bounds of a claim."""
    layers: list[Chart] = []
    if metric in ("multiple", "multiple_s") and domain[0] <= 1 <= domain[1]:
        layers.append(alt.Chart(pl.DataFrame({"y": [1.0]})).mark_rule(color=MUTED).encode(y="y:Q"))
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    if claim and found:
        rules = alt.Chart(pl.DataFrame({"y": found}))
        layers.append(rules.mark_rule(color=RED, strokeDash=[2, 3], strokeWidth=1.5).encode(y="y:Q"))
        words = alt.Chart(pl.DataFrame({"y": found[-1:], "text": [f"claim: {bound_text(claim)}"]}))
        end: dict[str, Any] = {"align": "left", "dx": 4} if _clear_at_left(frame, found[-1]) else {"align": "right"}
        style: dict[str, Any] = {**end, "dy": -8, "fontSize": 12, "fontWeight": "bold"}
        place = alt.value(0 if end["align"] == "left" else "width")
        marks = (words.mark_text(stroke=PAPER, strokeWidth=4, **style), words.mark_text(color=RED, **style))
        layers += [mark.encode(x=place, y="y:Q", text="text:N") for mark in marks]
    return layers


def _clear_at_left(frame: pl.DataFrame, bound: float) -> bool:
    """Whether the means keep at least as far from a bound in the first third of the axis as they do in the last."""
    places = list(dict.fromkeys(frame["label"]))
    third = -(-len(places) // 3)
    near = frame.with_columns(gap=(pl.col("value") - bound).abs()).filter(pl.col("gap").is_not_null())
    left, right = (near.filter(pl.col("label").is_in(part))["gap"].min() for part in (places[:third], places[-third:]))
    return left is None or (right is not None and bool(left >= right))  # type: ignore[operator]


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


def _theory_layer(base: alt.Chart, vertical: dict[str, Any], name: str, *, joined: bool) -> Chart:
    """What theory knows: an expectation or a limit dashed, bounds dotted."""
    known = base.transform_filter(f"isValid(datum.{name})")
    dash = [5, 4] if name == "theory" else [1, 3]
    mark = (
        known.mark_line(strokeDash=dash, strokeWidth=1.4, clip=True)
        if joined
        else known.mark_tick(clip=True, size=44, thickness=2, opacity=1)
    )
    return mark.encode(y=alt.Y(f"{name}:Q", **vertical))  # type: ignore[no-any-return]


def _key(frame: pl.DataFrame, metric: str, *, joined: bool) -> list[str]:
    """What the marks beside the means are."""
    bands, dashes = ("bands", "dashed") if joined else ("bars", "ticks")
    theory = f"; {dashes}: {THEORY_NAMES[metric]}" if metric in THEORY and frame["theory"].count() else ""
    bounds_drawn = "; dotted: Graham's bounds on the mean" if frame["least"].count() else ""
    return [f"{bands.capitalize()} are 95 % intervals{theory}{bounds_drawn}"]


def _end_labels(
    frame: pl.DataFrame,
    names: Sequence[str],
    horizontal: alt.X,
    colors: alt.Color,
    domain: Sequence[float],
    *,
    log: bool,
) -> Chart:
    """The name of each line at its end; where lines end close together the names are moved apart."""
    ends = frame.filter(pl.col("value").is_not_null()).group_by("series", maintain_order=True).last().sort("value")
    every = math.ceil(len(ends) / (HEIGHT / 15))
    ends = ends.gather_every(every)
    seen, back = (math.log, math.exp) if log else (float, float)  # heights on the picture
    gap = (seen(domain[1]) - seen(domain[0])) * 15 / HEIGHT
    places = _apart([seen(value) for value in ends["value"]], gap, seen(domain[1]))
    ends = ends.with_columns(place=pl.Series([back(place) for place in places]))
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

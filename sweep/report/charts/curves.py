"""Metrics against one axis of the grid, a line for each value of another and each metric, and theory beside them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from sweep.report import findings, side_by_side
from sweep.report.charts.axes import clamp, named_axis, nothing, numeric_axis, tooltips
from sweep.report.charts.look import HEIGHT, MUTED, PAPER, RED, WIDTH, Chart, styled
from sweep.report.charts.series import GLYPHS, Line, color_of, dashes_of, line_frame, line_words, lines_of, shape_of
from sweep.report.claims import bound_text, bounds
from sweep.report.findings import THEORY_NAMES

Claim = Mapping[str, Any]

THEORIES = ("theory", "least", "most")
RATIOS = ("multiple", "multiple_s", "wait_ratio", "ttft_ratio", "e2e_ratio")  # of static to continuous: 1 is no gain
LABEL_PX = 15  # a name's height
SIDES: dict[str, dict[str, Any]] = {"beside": {"dx": 9}, "above": {"dx": -3, "dy": -13}, "below": {"dx": -3, "dy": 15}}


def lines(
    cells: pl.DataFrame,
    x: str,
    *,
    color: str | None = None,
    metric: str | Sequence[str] = "multiple",
    claim: Claim | None = None,
    note: str = "",
    log: bool = False,
    log_x: bool | None = None,
) -> Chart:
    """The means of metrics against one axis with their 95 % bands, a line for each value of another, theory dashed.

    metric : one, or several in one unit. log : a logarithmic vertical axis, unless a mean is 0 or below, which has no
    place on it. log_x : the same of the horizontal axis; None where its values are spaced so.
    """
    metrics = [metric] if isinstance(metric, str) else list(metric)
    drawn = lines_of(cells, color, metrics)
    frame = line_frame(cells, x, color, drawn)
    joined = bool(cells[x].dtype.is_numeric())
    title = side_by_side.title(cells, x, color, metrics)
    positive = bool((frame["value"].drop_nulls() > 0).all())
    subtitle = [*findings.under_means(cells, metrics, note), *_key(frame, metrics, joined=joined)]
    subtitle += side_by_side.notes(cells, x, metrics)
    subtitle += _no_place(mean=log and not positive, value_of=x if log_x and joined and cells[x].min() == 0 else "")
    subtitle += findings.reasons(cells, [name for name in (color, x) if name])
    if frame["value"].count() == 0:
        return styled(nothing(), title, subtitle)
    log = log and positive
    domain = _log_reach(frame) if log else _reach(frame, metrics, claim)
    if log:
        frame = frame.with_columns(low=pl.col("low").clip(domain[0]))  # null stays null: the band has a gap there
    horizontal = numeric_axis(cells[x], x, log=log_x) if joined else named_axis(cells[x], x)
    vertical = {"title": side_by_side.axis_title(metrics), "scale": _vertical_scale(domain, log=log)}
    vertical |= {"axis": alt.Axis(values=_log_ticks(*domain), format=",.6~f")} if log else {}
    named = "mean" if len(metrics) > 1 else f"mean {metrics[0]}"
    tooltip = tooltips(("label", x), ("series", color or "line"), ("text", named), ("n", "workloads"))
    base = alt.Chart(frame).encode(x=horizontal, color=color_of(drawn), tooltip=tooltip)
    base = base if joined or len(drawn) == 1 else _beside(base, drawn)
    layers = [*_interval_layers(base, vertical, drawn, joined=joined)]
    layers += _reference_rules(frame, metrics, claim, domain)
    layers += [_theory_layer(base, vertical, name, joined=joined) for name in THEORIES if frame[name].count()]
    layers += _end_labels(frame, drawn, horizontal, domain, log=log, joined=joined) if len(drawn) > 1 else []
    width = WIDTH if joined else alt.Step(clamp(WIDTH / cells[x].n_unique(), 40, 150), **{"for": "position"})
    return styled(alt.layer(*layers), title, subtitle, width=width, height=HEIGHT)


def _no_place(*, mean: bool, value_of: str) -> list[str]:
    """Which logarithmic axis could not be, since something on it is 0: that of means, or that of a column."""
    told = "has no place on a logarithmic axis, so this one is linear"
    return [*([f"A mean of 0 {told}"] if mean else []), *([f"The value 0 of {value_of} {told}"] if value_of else [])]


def _beside(base: alt.Chart, drawn: Sequence[Line]) -> alt.Chart:
    """The chart with the points of several lines over one name side by side."""
    apart = alt.Scale(paddingInner=0, paddingOuter=0.35)
    names = [line.name for line in drawn]
    return base.encode(xOffset=alt.XOffset("series:N", sort=names, scale=apart))


def _reach(frame: pl.DataFrame, metrics: Sequence[str], claim: Claim | None) -> list[float]:
    """The range of the vertical axis: all intervals; theory and claim where they do not flatten the rest."""
    low, high = float(frame["low"].min()), float(frame["high"].max())  # type: ignore[arg-type]
    if "multiple" in metrics:
        low = min(low, 1.0)  # one is no gain, the natural foot of this axis
    elif 0 < low < high / 2:
        low = min(low, 1.0) if set(metrics) <= set(RATIOS) else 0.0
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
    """1, 2 and 5 of each power of ten on the axis; more within one power, and over many powers 1 alone."""
    powers = math.log10(high / low)
    digits = range(1, 10) if powers < 1 else (1, 2, 5) if powers < 4 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [digit * 10.0**power for power in decades for digit in digits if low <= digit * 10.0**power <= high]


def _vertical_scale(domain: list[float], *, log: bool) -> alt.Scale:
    return alt.Scale(type="log", domain=domain, nice=False) if log else alt.Scale(domain=domain, nice=False, zero=False)


def _reference_rules(
    frame: pl.DataFrame, metrics: Sequence[str], claim: Claim | None, domain: Sequence[float]
) -> list[Chart]:
    """A thin rule at a ratio of one, and dashed ones at the bounds of a claim."""
    layers: list[Chart] = []
    if set(metrics) <= set(RATIOS) and domain[0] <= 1 <= domain[1]:
        layers.append(alt.Chart(pl.DataFrame({"y": [1.0]})).mark_rule(color=MUTED).encode(y="y:Q"))
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    if claim and found:
        rules = alt.Chart(pl.DataFrame({"y": found}))
        layers.append(rules.mark_rule(color=RED, strokeDash=[2, 3], strokeWidth=1.5).encode(y="y:Q"))
        words = alt.Chart(pl.DataFrame({"y": found[-1:], "text": [_claim_words(claim, metrics)]}))
        end: dict[str, Any] = {"align": "left", "dx": 4} if _clear_at_left(frame, found[-1]) else {"align": "right"}
        style: dict[str, Any] = {**end, "dy": -8, "fontSize": 12, "fontWeight": "bold"}
        place = alt.value(0 if end["align"] == "left" else "width")
        marks = (words.mark_text(stroke=PAPER, strokeWidth=4, **style), words.mark_text(color=RED, **style))
        layers += [mark.encode(x=place, y="y:Q", text="text:N") for mark in marks]
    return layers


def _claim_words(claim: Claim, metrics: Sequence[str]) -> str:
    """What a claim asks for; of several metrics also which it is on."""
    if len(metrics) == 1:
        return f"claim: {bound_text(claim)}"
    return f"claim on {line_words(metrics)[claim['metric']]}: {bound_text(claim)}"


def _clear_at_left(frame: pl.DataFrame, bound: float) -> bool:
    """Whether the means keep at least as far from a bound in the first third of the axis as they do in the last.

    The mean beside a third counts too: a steep line to it would cross the words.
    """
    places = list(dict.fromkeys(frame["label"]))
    third = -(-len(places) // 3) + 1
    near = frame.with_columns(gap=(pl.col("value") - bound).abs()).filter(pl.col("gap").is_not_null())
    left, right = (near.filter(pl.col("label").is_in(part))["gap"].min() for part in (places[:third], places[-third:]))
    return left is None or (right is not None and bool(left >= right))  # type: ignore[operator]


def _interval_layers(base: alt.Chart, vertical: dict[str, Any], drawn: Sequence[Line], *, joined: bool) -> list[Chart]:
    """Means with their intervals: a line in its band along numbers, dots with bars for names."""
    ran = base.transform_filter("isValid(datum.value)")
    interval = {"y": alt.Y("low:Q", **vertical), "y2": "high:Q"}
    dots = ran.mark_point(filled=True, size=40, opacity=1)
    dots = dots.encode(y=alt.Y("value:Q", **vertical), description="told:N", **shape_of(drawn))
    if not joined:
        return [ran.mark_rule(strokeWidth=2.5).encode(**interval), dots]
    # The line itself is drawn through the missing values, so that it breaks where a cell has no result.
    line = base.mark_line(strokeWidth=2.2, invalid="break-paths-show-domains")
    line = line.encode(y=alt.Y("value:Q", **vertical), **dashes_of(drawn))
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


def _key(frame: pl.DataFrame, metrics: Sequence[str], *, joined: bool) -> list[str]:
    """What the marks beside the means are."""
    bands, dashes = ("bands", "dashed") if joined else ("bars", "ticks")
    known = [THEORY_NAMES[metric] for metric in metrics if metric in THEORY_NAMES and frame["theory"].count()]
    theory = f"; {dashes}: {', '.join(known)}" if known else ""
    bounds_drawn = "; dotted: Graham's bounds on the mean" if frame["least"].count() else ""
    return [f"{bands.capitalize()} are 95 % intervals{theory}{bounds_drawn}"]


def _end_labels(
    frame: pl.DataFrame, drawn: Sequence[Line], horizontal: alt.X, domain: Sequence[float], *, log: bool, joined: bool
) -> list[Chart]:
    """The name of each line at its end: beside it, or above or below a line that ends earlier, where others may pass.

    Those that end together are moved apart. Beside a picture of names the shape of the points stands with the name.
    """
    shapes = not joined and any(line.style for line in drawn)
    glyphs = {line.name: f"{GLYPHS[line.style]} " if shapes else "" for line in drawn}
    known = frame.filter(pl.col("value").is_not_null())
    ends = known.group_by("series", maintain_order=True).last()
    ends = ends.with_columns(words=pl.col("series").replace_strict(glyphs) + pl.col("series"))
    seen, back = (math.log, math.exp) if log else (float, float)  # heights on the picture
    gap = (seen(domain[1]) - seen(domain[0])) * LABEL_PX / HEIGHT
    found = []
    for _, group in ends.group_by("x" if joined else pl.lit(0), maintain_order=True):
        every = math.ceil(len(group) / (HEIGHT / LABEL_PX))
        shown = group.sort("value").gather_every(every)
        places = _apart([seen(value) for value in shown["value"]], gap, seen(domain[1]))
        others = [seen(value) for value in known.filter(pl.col("x") == shown["x"][0])["value"]]
        crowded = [any(0 < other - place < 2 * gap for other in others) for place in places]
        early = joined and shown["x"][0] < frame["x"].max()
        sides = [("below" if crowd else "above") if early else "beside" for crowd in crowded]
        found.append(shown.with_columns(place=pl.Series(map(back, places)), side=pl.Series(sides)))
    at = horizontal if joined else alt.value("width")
    layers: list[Chart] = []
    for (side,), group in pl.concat(found).group_by("side", maintain_order=True):
        mark = alt.Chart(group).mark_text(align="left", fontSize=12, fontWeight="bold", **SIDES[str(side)])
        layers.append(mark.encode(x=at, y="place:Q", text="words:N", color=color_of(drawn)))
    return layers


def _apart(values: Sequence[float], gap: float, top: float) -> list[float]:
    """Ascending values moved as little as a sweep up and down can, to be at least a gap apart and below the top."""
    places = list(values)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], top if i == len(places) - 1 else places[i + 1] - gap)
    return places

"""How many requests fit at once, against context. Computed from memory, not simulated."""

import altair as alt
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import numeric_axis
from sweep.report.charts.look import BLUE, HEIGHT, INK, RED, WIDTH, Chart, series_colors, styled
from sweep.report.words import axis_value

LINE_PX = 16  # a label's height


def requests_that_fit(cells: pl.DataFrame, x: str = "context", *, color: str | None = None, note: str = "") -> Chart:
    """How many requests fit at once against context, both axes logarithmic; a cross at the bottom where none fits.

    color : the column that tells lines apart, such as that of the models.
    """
    if color is not None:
        return _a_line_each(cells, x, color, note)
    points = cells.unique([x], keep="first", maintain_order=True).sort(x)
    labels = [axis_value(slots) for slots in points["slots"]]
    frame = pl.DataFrame({"x": points[x], "value": points["slots"], "label": pl.Series(labels, dtype=pl.String)})
    fit, none = frame.filter(pl.col("value") > 0), frame.filter(pl.col("value") <= 0)
    horizontal = numeric_axis(cells[x], x, log=True)
    slots = sorted(set(fit["value"]))
    ticks = alt.Axis(values=slots if len(slots) <= 12 else alt.Undefined, format=",~f")
    vertical = alt.Y(
        "value:Q", title="requests that fit at once (slots)", scale=alt.Scale(type="log", padding=14), axis=ticks
    )
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


def _a_line_each(cells: pl.DataFrame, x: str, color: str, note: str) -> Chart:
    """A line for each value of a column, with its name and the requests that fit at its end."""
    points = cells.unique([color, x], keep="first", maintain_order=True).sort(x, maintain_order=True)
    names = [axis_value(value) for value in points[color].unique(maintain_order=True)]
    series = pl.Series([axis_value(value) for value in points[color]], dtype=pl.String)
    frame = pl.DataFrame({"x": points[x], "value": points["slots"], "series": series})
    fit, none = frame.filter(pl.col("value") > 0), frame.filter(pl.col("value") <= 0)
    horizontal = numeric_axis(cells[x], x, log=True)
    ticks = alt.Axis(format=",~f", values=[unit * 10**power for power in range(7) for unit in (1, 2, 5)])
    scale = alt.Scale(type="log", domain=_domain(fit), nice=False)
    vertical = alt.Y("value:Q", title="requests that fit at once (slots)", scale=scale, axis=ticks)
    colors = alt.Color("series:N", scale=alt.Scale(domain=names, range=series_colors(len(names))), legend=None)
    base = alt.Chart(fit).encode(x=horizontal, y=vertical, color=colors)
    layers: list[Chart] = [base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=40, opacity=1)]
    if len(fit):
        ends = alt.Chart(_ends(fit)).mark_text(align="left", dx=9, fontSize=12, fontWeight="bold")
        layers.append(ends.encode(x=horizontal, y="place:Q", text="label:N", color=colors))
    if len(none):
        crosses = alt.Chart(none).encode(x=horizontal, y=alt.value(HEIGHT - 10), color=colors)
        layers.append(crosses.mark_text(text="\u00d7", fontSize=20))
    subtitle = [*([note] if note else []), *findings.reasons(cells, [color, x])]
    return styled(alt.layer(*layers), findings.of_fits(points, x, color), subtitle, width=WIDTH, height=HEIGHT)


def _ends(fit: pl.DataFrame) -> pl.DataFrame:
    """The last point of each line with its label, the labels of lines that end close together moved up."""
    ends = fit.group_by("series", maintain_order=True).last().sort("value", maintain_order=True)
    low, high = _domain(fit)
    apart = (high / low) ** (LINE_PX / HEIGHT)  # the ratio of two values a label's height apart
    places: list[float] = []
    for value in ends["value"]:
        places.append(max(value, places[-1] * apart) if places else float(value))
    labels = [f"{name}: {value:,}" for name, value in zip(ends["series"], ends["value"], strict=True)]
    return ends.with_columns(place=pl.Series(places), label=pl.Series(labels))


def _domain(fit: pl.DataFrame) -> list[float]:
    """The range of the vertical axis: one request, the least there can be, and the most that fit, with some room."""
    most = fit["value"].max() or 1
    return [0.8, 1.3 * max(float(most), 2.0)]  # type: ignore[arg-type]

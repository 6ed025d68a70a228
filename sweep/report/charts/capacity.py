"""How many requests fit at once, against context. Computed from memory, not simulated."""

import altair as alt
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import numeric_axis
from sweep.report.charts.look import BLUE, HEIGHT, INK, RED, WIDTH, Chart, styled
from sweep.report.words import axis_value


def requests_that_fit(cells: pl.DataFrame, x: str = "context", *, note: str = "") -> Chart:
    """How many requests fit at once against context, both axes logarithmic; a cross at the bottom where none fits."""
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

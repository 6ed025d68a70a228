"""A metric over two axes of the grid, a tile for each cell."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import clamp, tooltips, value_labels
from sweep.report.charts.look import GREY, MISSING, ON_DARK, ON_LIGHT, PAPER, RED, WIDTH, Chart, styled
from sweep.report.claims import FAILS, UNDECIDED
from sweep.report.findings import THEORY
from sweep.report.words import axis_title, axis_value


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
    columns, rows = value_labels(cells[x]), value_labels(cells[y])
    if cells[y].dtype.is_numeric():
        rows = rows[::-1]  # as on any chart, large is up
    step_x, step_y = clamp(WIDTH / len(columns), 34, 120), clamp(400 / len(rows), 24, 90)
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
            tooltip=tooltips(("x", x), ("y", y), ("text", "shown"), ("n", "workloads"), ("reason", "reason")),
        )
    )
    layers = [*_holes(base), *_tiles(base, metric, step_x, step_y, len(rows), alone=len(cells) == 1)]
    layers += _corners(base, shown, step_x, step_y, set((verdicts or {}).values()))
    chart = alt.layer(*layers)
    subtitle = [*findings.under_means(cells, [metric], note), *findings.reasons(cells, [y, x])]
    title = findings.of_heatmap(cells, [y, x], metric)
    size = {"width": alt.Step(step_x), "height": alt.Step(step_y)}
    return styled(chart.add_params(view) if switched else chart, title, subtitle, **size)


def compact(value: float) -> str:
    """A number that fits a tile."""
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * power:
            return f"{value / power:.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


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
                **{f"text_{name}": None if value is None else compact(value) for name, value in views.items()},
                "n": f"{row['replicates']:,}",
                "reason": None if row["replicates"] else row["error"] or "not simulated yet",
                "verdict": verdicts.get(row["cell"]),
            }
        )
    texts = ("x", "y", "text_simulated", "text_limit", "text_difference", "n", "reason", "verdict")
    values = ("value_simulated", "value_limit", "value_difference")
    return pl.DataFrame(rows, schema={**dict.fromkeys(values, pl.Float64), **dict.fromkeys(texts, pl.String)})


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
    legend = alt.Legend(title=["mean", metric.replace("_", " ")], gradientLength=clamp(step_y * rows - 44, 40, 200))
    scale = alt.Scale(scheme="yellowgreenblue", zero=False, nice=False)
    color = alt.Color("value:Q", scale=scale, legend=None if alone else legend)
    ink = alt.condition("luminance(scale('color', datum.value)) < 0.25", alt.value(ON_DARK), alt.value(ON_LIGHT))
    size = clamp(min(step_x / 3.4, step_y / 2.1), 10, 15)
    return [
        ran.mark_rect(stroke=PAPER, strokeWidth=1).encode(color=color),
        ran.mark_text(fontSize=size).encode(text="text:N", color=ink),
    ]


def _corners(base: alt.Chart, shown: str, step_x: float, step_y: float, found: set[str]) -> list[Chart]:
    """A filled corner where a claim fails, an open one where it is undecided; of the simulation only."""
    size = clamp(min(step_x, step_y) / 4, 6, 12)
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

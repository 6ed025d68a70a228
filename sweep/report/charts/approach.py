"""How near a mean multiple is to its limit against requests per slot: a measured curve, a line for each setting."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from sweep.report.charts.axes import nothing, numeric_axis
from sweep.report.charts.look import HEIGHT, MUTED, WIDTH, Chart, series_colors, styled
from sweep.report.words import number, percent

NEAR = 0.95  # of the limit: the rule that is drawn, and what the title speaks of


def approach(cells: pl.DataFrame, *, note: str = "") -> Chart:
    """The mean multiple as a share of its limit against requests per slot.

    cells : `requests_per_slot`, `series`, `share`, `low` and `high`, a row for each cell that has a limit above 1.
    """
    title = of_approach(cells)
    subtitle = ["Bands are 95 % intervals of the mean multiple over its limit", *([note] if note else [])]
    if cells.is_empty():
        return styled(nothing(), title, subtitle)
    frame = cells.select(pl.col("requests_per_slot").alias("x"), "series", "share", "low", "high").with_columns(
        text=pl.Series([percent(share) for share in cells["share"]])
    )
    names = frame["series"].unique(maintain_order=True).to_list()
    colors = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=series_colors(len(names))),
        legend=alt.Legend(title=None, orient="bottom-right", symbolOpacity=1) if len(names) > 1 else None,
    )
    vertical: dict[str, Any] = {"title": "mean multiple / limit", "scale": alt.Scale(domain=[0, 1.02], nice=False)}
    tooltip = [alt.Tooltip("x:Q", title="requests per slot"), alt.Tooltip("text:N", title="of the limit")]
    base = alt.Chart(frame).encode(x=numeric_axis(frame["x"], "requests per slot", log=True), color=colors)
    rule = alt.Chart(pl.DataFrame({"y": [NEAR]})).mark_rule(color=MUTED, strokeDash=[5, 4]).encode(y="y:Q")
    layers: list[Chart] = [
        rule,
        base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q", **vertical), y2="high:Q"),
        base.mark_line(strokeWidth=2.2).encode(y=alt.Y("share:Q", **vertical)),
        base.mark_point(filled=True, size=36, opacity=1).encode(y=alt.Y("share:Q", **vertical), tooltip=tooltip),
    ]
    return styled(alt.layer(*layers), title, subtitle, width=WIDTH, height=HEIGHT)


def of_approach(cells: pl.DataFrame) -> str:
    """From how many requests per slot on the multiple is near its limit, on the quickest and the slowest line."""
    found = [at for _, line in cells.group_by("series", maintain_order=True) if (at := _near(line)) is not None]
    if not found:
        return f"The mean multiple nowhere reaches {percent(NEAR)} of its limit"
    ends = " to ".join(dict.fromkeys(number(at, 0) for at in (min(found), max(found))))
    return f"It takes some {ends} requests per slot to come within {percent(1 - NEAR)} of the limit"


def _near(line: pl.DataFrame) -> float | None:
    """Requests per slot at which a line comes that near to the limit, between two cells on a logarithmic scale."""
    line = line.sort("requests_per_slot")
    logs, shares = np.log(line["requests_per_slot"].to_numpy()), line["share"].to_numpy()
    first = int(np.argmax(shares >= NEAR))
    if shares[first] < NEAR:
        return None
    if first == 0:
        return float(np.exp(logs[0]))
    return float(np.exp(np.interp(NEAR, shares[first - 1 : first + 1], logs[first - 1 : first + 1])))

"""What each factor adds to a multiple, one bar after the other, and what the drain takes away."""

from typing import NamedTuple

import altair as alt
import polars as pl

from sweep.report.attribution import Attribution
from sweep.report.charts.look import BLUE, GREY, INK, MUTED, RED, WIDTH, Chart, styled
from sweep.report.words import metric_name, number

ROW = 46  # height in pixels


class _Bar(NamedTuple):
    """One row: from where to where, and what it is."""

    name: str
    start: float
    stop: float
    label: str
    color: str


def waterfall(found: Attribution, *, metric: str = "multiple", title: str = "", note: str = "") -> Chart:
    """Bars from the value before any factor to the one after all, each beginning where the last one ended."""
    bars = _bars(found)
    frame = pl.DataFrame(
        {
            "name": [bar.name for bar in bars],
            "x": [min(bar.start, bar.stop) for bar in bars],
            "x2": [max(bar.start, bar.stop) for bar in bars],
            "stop": [bar.stop for bar in bars],
            "label": [bar.label for bar in bars],
            "color": [bar.color for bar in bars],
        }
    )
    order = [bar.name for bar in bars]
    rows = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, ticks=False, domain=False))
    reach = max(bar.stop for bar in bars)
    scale = alt.Scale(domain=[0, 1.12 * reach], nice=False)
    base = alt.Chart(frame).encode(y=rows)
    layers: list[Chart] = [
        base.mark_bar(size=26).encode(
            x=alt.X("x:Q", title=f"mean {metric_name(metric).title}", scale=scale),
            x2="x2:Q",
            color=alt.Color("color:N", scale=None),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("label:N", title="adds")],
        ),
        base.mark_text(align="left", dx=6, fontSize=13, color=INK).encode(x="x2:Q", text="label:N"),
    ]
    if metric == "multiple":
        layers.insert(0, alt.Chart(pl.DataFrame({"x": [1.0]})).mark_rule(color=MUTED).encode(x="x:Q"))
    return styled(
        alt.layer(*layers), title or _title(found), [note] if note else [], width=WIDTH, height=ROW * len(bars)
    )


def _bars(found: Attribution) -> list[_Bar]:
    bars = [_Bar("before", 0.0, found.start, number(found.start, 2), GREY)]
    for part in found.parts:
        bars.append(_step(part.name, bars[-1].stop, part.value))
    if found.limit is not None and found.drain is not None:
        bars.append(_Bar("limit: a queue that never empties", 0.0, found.limit, number(found.limit, 2), GREY))
        bars.append(_step("drain: the last requests", found.limit, found.drain.value))
    return [*bars, _Bar("simulated", 0.0, found.end.value, number(found.end.value, 2), GREY)]


def _step(name: str, start: float, value: float) -> _Bar:
    sign = "+" if value >= 0 else "\u2212"
    return _Bar(name, start, start + value, f"{sign} {number(abs(value), 2)}", BLUE if value >= 0 else RED)


def _title(found: Attribution) -> str:
    """The largest part, and what the drain leaves."""
    most = max(found.parts, key=lambda part: part.value)
    first = f"Most comes from {most.name} (+ {number(most.value, 2)})"
    if found.drain is None or found.limit is None:
        return first
    if found.drain.value < 0:
        return f"{first}; the drain takes {number(-found.drain.value, 2)} of {number(found.limit, 2)} away"
    return first

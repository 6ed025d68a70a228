"""Slots against steps, a bar for each request: static batching above continuous on one scale, idle time hatched."""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import polars as pl

from sweep.report.charts.look import BLUE, GREY, INK, MUTED, PAPER, SERIES, WIDTH, Chart, styled

SCHEDULERS = ("static", "continuous")
STROKES, FINE = 90, 24  # of the hatching over the width of the picture, while there are no more slots than this
LONG = SERIES[3]
MARGIN = 0.09  # between a bar and the edge of its slot
ROW, TALLEST = 12, 330  # height of a slot and of a panel


def timeline(bars: pl.DataFrame, slots: int, title: str, note: str = "") -> Chart:
    """Bars (scheduler, request, slot, first_step, last_step) of one workload under both schedulers.

    A request that is longer than all but a tenth of the others is marked, since its group waits for it.
    """
    steps = {name: _total(bars.filter(scheduler=name)) for name in SCHEDULERS}
    longest = max(steps.values())
    named = {name: f"{name} batching: {total:,} steps" for name, total in steps.items()}
    rows = [*_strokes(bars, slots, longest, named), *_requests(bars, named)]
    panel = alt.layer(_idle(longest, slots), _bars(longest, slots)).properties(
        width=WIDTH, height=min(TALLEST, max(40, ROW * slots))
    )
    header = alt.Header(title=None, labelOrient="top", labelAnchor="start", labelFontSize=13, labelColor=INK)
    facet = alt.Row("panel:N", header=header, sort=list(named.values()))
    whole = panel.facet(row=facet, data=alt.InlineData(values=rows))  # a frame of more than 5,000 rows is refused
    words = "A bar is a request in its slot, the longest tenth in orange; hatched: a slot that idles"
    return styled(whole, title, [words, *([note] if note else [])])


def _requests(bars: pl.DataFrame, named: Mapping[str, str]) -> list[dict[str, Any]]:
    """A bar for each request and scheduler; those of one colour stand together."""
    drawn = bars.with_columns(tokens=pl.col("last_step") - pl.col("first_step") + 1)
    drawn = drawn.select(
        "request", "tokens", kind=pl.lit("bar"), long=pl.col("tokens") > pl.col("tokens").quantile(0.9),
        panel=pl.col("scheduler").replace_strict(named),
        x=pl.col("first_step") - 1, x2=pl.col("last_step"), y=pl.col("slot") + MARGIN, y2=pl.col("slot") + 1 - MARGIN,
    )  # fmt: skip
    return drawn.sort("long", maintain_order=True).to_dicts()


def _strokes(bars: pl.DataFrame, slots: int, longest: int, named: Mapping[str, str]) -> list[dict[str, Any]]:
    """The hatching of both panels as one broken line each: two ends of a stroke, then a gap."""
    points = [
        (panel, place)
        for name, panel in named.items()
        for x, x2, y, y2 in _hatching(name, bars, slots, longest)
        for place in ((x, y), (x2, y2), (None, None))
    ]
    return [
        {"kind": "idle", "panel": panel, "x": x, "y": y, "place": place} for place, (panel, (x, y)) in enumerate(points)
    ]


def _total(bars: pl.DataFrame) -> int:
    return max(bars["last_step"].to_list(), default=0)


def _bars(longest: int, slots: int) -> Chart:
    tokens = [alt.Tooltip("request:Q"), alt.Tooltip("tokens:Q", format=","), alt.Tooltip("x2:Q", title="last step")]
    color = alt.condition("datum.long", alt.value(LONG), alt.value(BLUE))
    return (  # type: ignore[no-any-return]
        alt.Chart()
        .transform_filter("datum.kind == 'bar'")
        .mark_rect(stroke=PAPER, strokeWidth=0.4)
        .encode(**_place(longest, slots), color=color, tooltip=tokens)
    )


def _idle(longest: int, slots: int) -> Chart:
    place = _place(longest, slots)
    hatched = alt.Chart().transform_filter("datum.kind == 'idle'")
    line = hatched.mark_line(color=GREY, strokeWidth=0.8, invalid="break-paths-show-domains")
    return line.encode(x=place["x"], y=place["y"], order="place:Q")  # type: ignore[no-any-return]


def _place(longest: int, slots: int) -> dict[str, alt.X | alt.X2 | alt.Y | alt.Y2]:
    count = alt.Axis(tickCount=min(slots, 8), tickMinStep=1, format="d", titleColor=MUTED)
    return {
        "x": alt.X("x:Q", title="steps", scale=alt.Scale(domain=[0, longest], nice=False)),
        "x2": alt.X2("x2:Q"),
        "y": alt.Y("y:Q", title="slots", axis=count, scale=alt.Scale(domain=[slots, 0], nice=False)),
        "y2": alt.Y2("y2:Q"),
    }


def _hatching(name: str, bars: pl.DataFrame, slots: int, longest: int) -> Iterator[tuple[float, float, float, float]]:
    """Slanted strokes over the time that each slot idles until the scheduler is done."""
    mine = bars.filter(scheduler=name).sort("slot", "first_step")
    total = _total(mine)
    apart = longest / STROKES * max(1, slots / FINE)
    for slot in range(slots):
        rows = mine.filter(slot=slot).select("first_step", "last_step").rows()
        edges = [0, *(edge for first, last in rows for edge in (first - 1, last)), total]
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            for stroke in range(int(start / apart), int(stop / apart) + 1):
                left, right = max(stroke * apart, start), min((stroke + 0.6) * apart, stop)
                if left < right:
                    yield left, right, slot + 1 - MARGIN, slot + MARGIN

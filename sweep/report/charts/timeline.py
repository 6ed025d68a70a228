"""Slots against steps or seconds, a bar for each request: static batching above continuous on one scale, idle hatched.

Where requests arrive over time, a tick above the slots marks each arrival.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from sweep.metrics import SCHEDULERS
from sweep.report.charts.look import BLUE, GREY, INK, MUTED, PAPER, SERIES, WIDTH, Chart, styled
from sweep.report.words import number, plural

STROKES, FINE = 90, 24  # of the hatching over the width of the picture, while there are no more slots than this
LONG = SERIES[3]
MARGIN = 0.09  # between a bar and the edge of its slot
ROW, TALLEST = 12, 330  # height of a slot and of a panel
ABOVE = 1.3  # slots' heights in which arrivals are marked
MOST_ARRIVALS = 400  # that are marked one by one

Window = tuple[float, float]


def timeline(bars: pl.DataFrame, slots: int, title: str, note: str = "", window: Window | None = None) -> Chart:
    """Bars of one workload under both schedulers; see `moments` for their columns.

    A request that is longer than all but a tenth of the others is marked, since its group waits for it. window : the
    stretch of time that is shown; None for all.
    """
    unit, drawn = moments(bars)
    over = {name: _over(drawn.filter(scheduler=name)) for name in SCHEDULERS}
    shown = window or (0.0, max(over.values()))
    drawn = drawn.with_columns(long=pl.col("length") > pl.col("length").quantile(0.9))
    came = drawn.filter(pl.col("arrival").is_between(*shown)) if drawn["arrival"].max() else drawn.clear()
    came = came if len(came) <= len(SCHEDULERS) * MOST_ARRIVALS else came.clear()
    drawn = drawn.filter((pl.col("finish") > shown[0]) & (pl.col("start") < shown[1]))
    named = {name: f"{name} batching: {amount(total, unit)}" for name, total in over.items()}
    rows = [*_strokes(drawn, slots, over, named, shown), *_requests(drawn, named, shown), *_arrivals(came, named)]
    place = _place(shown, slots, unit, ABOVE if len(came) else 0)
    layers = [_idle(place), _bars(place), *([_ticks(place)] if len(came) else [])]
    panel = alt.layer(*layers).properties(width=WIDTH, height=min(TALLEST, max(40, ROW * slots)))
    header = alt.Header(title=None, labelOrient="top", labelAnchor="start", labelFontSize=13, labelColor=INK)
    facet = alt.Row("panel:N", header=header, sort=list(named.values()))
    whole = panel.facet(row=facet, data=alt.InlineData(values=rows))  # a frame of more than 5,000 rows is refused
    words = "A bar is a request in its slot, the longest tenth in orange; hatched: a slot that idles"
    words += "; ticks above: arrivals" if len(came) else ""
    return styled(whole, title, [words, *([note] if note else [])])


def moments(bars: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """The unit of bars, "s" or "steps", and their scheduler, request, slot, arrival, start, finish and length.

    bars : with `first_step` and `last_step` where all wait from the start, else with a moment's unit in the name of its
    column, such as `start_s`.
    """
    kept = ["scheduler", "request", "slot"]
    if "first_step" in bars.columns:
        own = {"arrival": pl.lit(0), "start": pl.col("first_step") - 1, "finish": pl.col("last_step")}
        unit = "steps"
    else:
        unit = "s" if "start_s" in bars.columns else "steps"
        own = {moment: pl.col(f"{moment}_{unit}") for moment in ("arrival", "start", "finish")}
    drawn = bars.select(*kept, **own)
    return unit, drawn.with_columns(length=pl.col("finish") - pl.col("start"))


def middle(came: Sequence[float], shown: int) -> Window | None:
    """The stretch of time in the middle in which so many requests come; None for few, who can all be drawn."""
    if len(came) <= 2 * shown:
        return None
    ordered = sorted(came)
    start, end = float(ordered[len(came) // 2]), float(ordered[len(came) // 2 + shown])
    return (start, end) if start < end else None


def amount(value: float, unit: str) -> str:
    """A time with its unit."""
    return f"{number(value)} s" if unit == "s" else plural(round(value), "step")


def _requests(drawn: pl.DataFrame, named: Mapping[str, str], shown: Window) -> list[dict[str, Any]]:
    """A bar for each request and scheduler, as far as it is shown; those of one colour stand together."""
    rows = drawn.select(
        "request", "length", "long", kind=pl.lit("bar"), panel=pl.col("scheduler").replace_strict(named),
        x=pl.col("start").clip(shown[0]), x2=pl.col("finish").clip(upper_bound=shown[1]), end=pl.col("finish"),
        y=pl.col("slot") + MARGIN, y2=pl.col("slot") + 1 - MARGIN,
    )  # fmt: skip
    return rows.sort("long", maintain_order=True).to_dicts()


def _arrivals(came: pl.DataFrame, named: Mapping[str, str]) -> list[dict[str, Any]]:
    """A tick for each request that comes."""
    panel = pl.col("scheduler").replace_strict(named) if len(came) else pl.lit("")
    return came.select(kind=pl.lit("arrival"), panel=panel, x="arrival", y=pl.lit(-ABOVE), y2=pl.lit(-0.3)).to_dicts()


def _strokes(
    drawn: pl.DataFrame, slots: int, over: Mapping[str, float], named: Mapping[str, str], shown: Window
) -> list[dict[str, Any]]:
    """The hatching of both panels as one broken line each: two ends of a stroke, then a gap."""
    points = [
        (panel, place)
        for name, panel in named.items()
        for x, x2, y, y2 in _hatching(drawn.filter(scheduler=name), slots, over[name], shown)
        for place in ((x, y), (x2, y2), (None, None))
    ]
    return [
        {"kind": "idle", "panel": panel, "x": x, "y": y, "place": place} for place, (panel, (x, y)) in enumerate(points)
    ]


def _over(drawn: pl.DataFrame) -> float:
    return max(drawn["finish"].to_list(), default=0)


def _bars(place: Mapping[str, Any]) -> Chart:
    told = [alt.Tooltip("request:Q"), alt.Tooltip("length:Q", format=",~r"), alt.Tooltip("end:Q", format=",~r")]
    color = alt.condition("datum.long", alt.value(LONG), alt.value(BLUE))
    bars = alt.Chart().transform_filter("datum.kind == 'bar'").mark_rect(stroke=PAPER, strokeWidth=0.4)
    return bars.encode(**place, color=color, tooltip=told)  # type: ignore[no-any-return]


def _ticks(place: Mapping[str, Any]) -> Chart:
    ticks = alt.Chart().transform_filter("datum.kind == 'arrival'").mark_rule(color=INK, strokeWidth=0.7)
    return ticks.encode(x=place["x"], y=place["y"], y2=place["y2"])  # type: ignore[no-any-return]


def _idle(place: Mapping[str, Any]) -> Chart:
    hatched = alt.Chart().transform_filter("datum.kind == 'idle'")
    line = hatched.mark_line(color=GREY, strokeWidth=0.8, invalid="break-paths-show-domains")
    return line.encode(x=place["x"], y=place["y"], order="place:Q")  # type: ignore[no-any-return]


def _place(shown: Window, slots: int, unit: str, above: float) -> dict[str, alt.X | alt.X2 | alt.Y | alt.Y2]:
    parts = min(slots, 4)
    count = alt.Axis(values=[round(slots * part / parts) for part in range(parts + 1)], format="d", titleColor=MUTED)
    title = "seconds" if unit == "s" else unit
    return {
        "x": alt.X("x:Q", title=title, scale=alt.Scale(domain=list(shown), nice=False)),
        "x2": alt.X2("x2:Q"),
        "y": alt.Y("y:Q", title="slots", axis=count, scale=alt.Scale(domain=[slots, -above], nice=False)),
        "y2": alt.Y2("y2:Q"),
    }


def _hatching(
    mine: pl.DataFrame, slots: int, over: float, shown: Window
) -> Iterator[tuple[float, float, float, float]]:
    """Slanted strokes over the time that each slot idles until the scheduler is done, as far as it is shown."""
    mine, end = mine.sort("slot", "start"), min(over, shown[1])
    apart = (shown[1] - shown[0]) / STROKES * max(1, slots / FINE)
    for slot in range(slots):
        rows = mine.filter(slot=slot).select("start", "finish").rows()
        edges = [shown[0], *(edge for row in rows for edge in row), end]
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            for stroke in range(int(start / apart), int(stop / apart) + 1):
                left, right = max(stroke * apart, start), min((stroke + 0.6) * apart, stop)
                if left < right:
                    yield left, right, slot + 1 - MARGIN, slot + MARGIN

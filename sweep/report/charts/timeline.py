"""Slots against steps, a bar for each request: static batching above continuous on one scale, idle time hatched."""

from collections.abc import Iterator

import altair as alt
import polars as pl

from sweep.report.charts.look import BLUE, GREY, INK, MUTED, PAPER, SERIES, WIDTH, Chart, styled

SCHEDULERS = ("static", "continuous")
STROKES = 90  # of the hatching, over the width of the picture
LONG = SERIES[3]
MARGIN = 0.09  # between a bar and the edge of its slot
ROW, TALLEST = 12, 330  # height of a slot and of a panel


def timeline(bars: pl.DataFrame, slots: int, title: str, note: str = "") -> Chart:
    """Bars (scheduler, request, slot, first_step, last_step) of one workload under both schedulers.

    A request that is longer than all but a tenth of the others is marked, since its group waits for it.
    """
    steps = {name: _total(bars.filter(scheduler=name)) for name in SCHEDULERS}
    longest = max(steps.values())
    drawn = bars.with_columns(tokens=pl.col("last_step") - pl.col("first_step") + 1)
    drawn = drawn.select(
        "scheduler", "request", "tokens", kind=pl.lit("bar"), long=pl.col("tokens") > pl.col("tokens").quantile(0.9),
        x=pl.col("first_step") - 1, x2=pl.col("last_step"), y=pl.col("slot") + MARGIN, y2=pl.col("slot") + 1 - MARGIN,
    )  # fmt: skip
    idle = pl.DataFrame(
        [stroke for name in SCHEDULERS for stroke in _hatching(name, bars, slots, longest)],
        schema={"scheduler": pl.String, "x": pl.Float64, "x2": pl.Float64, "y": pl.Float64, "y2": pl.Float64},
        orient="row",
    ).with_columns(kind=pl.lit("idle"))
    frame = pl.concat([idle, drawn.cast({"x": pl.Float64, "x2": pl.Float64})], how="diagonal")
    panel = alt.layer(_idle(longest, slots), _bars(longest, slots)).properties(
        width=WIDTH, height=min(TALLEST, max(40, ROW * slots))
    )
    header = alt.Header(title=None, labelOrient="top", labelAnchor="start", labelFontSize=13, labelColor=INK)
    named = {name: f"{name} batching: {total:,} steps" for name, total in steps.items()}
    whole = panel.facet(
        row=alt.Row("panel:N", header=header, sort=list(named.values())), data=frame.with_columns(
            panel=pl.col("scheduler").replace_strict(named)
        ),
    )  # fmt: skip
    words = "A bar is a request in its slot, the longest tenth in orange; hatched: a slot that idles"
    return styled(whole, title, [words, *([note] if note else [])])


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
    hatched = alt.Chart().transform_filter("datum.kind == 'idle'").mark_rule(color=GREY, strokeWidth=0.8)
    return hatched.encode(**_place(longest, slots))  # type: ignore[no-any-return]


def _place(longest: int, slots: int) -> dict[str, alt.X | alt.X2 | alt.Y | alt.Y2]:
    count = alt.Axis(tickCount=min(slots, 8), tickMinStep=1, format="d", titleColor=MUTED)
    return {
        "x": alt.X("x:Q", title="steps", scale=alt.Scale(domain=[0, longest], nice=False)),
        "x2": alt.X2("x2:Q"),
        "y": alt.Y("y:Q", title="slots", axis=count, scale=alt.Scale(domain=[slots, 0], nice=False)),
        "y2": alt.Y2("y2:Q"),
    }


def _hatching(
    name: str, bars: pl.DataFrame, slots: int, longest: int
) -> Iterator[tuple[str, float, float, float, float]]:
    """Slanted strokes over the time that each slot idles until the scheduler is done."""
    mine = bars.filter(scheduler=name).sort("slot", "first_step")
    total = _total(mine)
    apart = longest / STROKES
    for slot in range(slots):
        rows = mine.filter(slot=slot).select("first_step", "last_step").rows()
        edges = [0, *(edge for first, last in rows for edge in (first - 1, last)), total]
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            for stroke in range(int(start / apart), int(stop / apart) + 1):
                left, right = max(stroke * apart, start), min((stroke + 0.6) * apart, stop)
                if left < right:
                    yield name, left, right, slot + 1 - MARGIN, slot + MARGIN

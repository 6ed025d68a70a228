"""Charts of real requests: how long they are, their multiple in file order and drawn, how well families fit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from sweep.report.charts.look import BLUE, HEIGHT, INK, MUTED, RED, SERIES, WIDTH, Chart, styled
from sweep.report.words import number

SIDES = ("prompt", "output")


def lengths(quantiles: Mapping[str, Sequence[float]]) -> Chart:
    """The share of requests that are at most so long, prompts and outputs on one logarithmic axis.

    quantiles : for "prompt" and "output", lengths at equally spaced shares from 0 to 1. Lengths of 0 stand at 1.
    """
    frames = []
    for side in SIDES:
        values = np.maximum(np.asarray(quantiles[side], dtype=float), 1.0)
        shares = np.linspace(0.0, 1.0, len(values))
        frames.append(pl.DataFrame({"x": values, "y": shares}).with_columns(series=pl.lit(side)))
    frame = pl.concat(frames)
    colors = alt.Color("series:N", scale=alt.Scale(domain=list(SIDES), range=[SERIES[1], BLUE]), legend=None)
    base = alt.Chart(frame).encode(
        x=alt.X("x:Q", title="tokens", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format=",~f")),
        y=alt.Y("y:Q", title="share of requests that are at most so long", axis=alt.Axis(format="%")),
        color=colors,
    )
    marks = base.mark_line(strokeWidth=2.2, interpolate="step-after", clip=True)
    middle = {side: float(np.median(np.maximum(quantiles[side], 1))) for side in SIDES}
    named = pl.DataFrame(
        {"x": list(middle.values()), "y": [0.5, 0.5], "series": list(SIDES), "text": [f"{s}s" for s in SIDES]}
    )
    words = alt.Chart(named).mark_text(align="left", dx=10, dy=12, fontSize=13, fontWeight="bold")
    labels = words.encode(x="x:Q", y="y:Q", text="text:N", color=colors)
    halves = f"at most {number(middle['output'])} tokens, of the prompts {number(middle['prompt'])}"
    title, subtitle = f"Half of the outputs are {halves}", ["Logarithmic axis; lengths of 0 stand at 1"]
    return styled(alt.layer(marks, labels), title, subtitle, width=WIDTH, height=HEIGHT)


def multiples(cells: pl.DataFrame, in_file_order: Sequence[Mapping[str, Any]]) -> Chart:
    """The multiple against slots: drawn workloads with the middle 90 % of them, the file's own order, the limit."""
    own = {row["slots"]: row["multiple"] for row in in_file_order}
    frame = cells.select(
        pl.col("slots").alias("x"),
        pl.col("multiple_mean").alias("mean"),
        pl.col("multiple_p05").alias("low"),
        pl.col("multiple_p95").alias("high"),
        pl.col("limit_multiple").alias("limit"),
    ).with_columns(own=pl.Series([own.get(slots) for slots in cells["slots"]], dtype=pl.Float64))
    base = alt.Chart(frame).encode(
        x=alt.X(
            "x:Q",
            title="slots (requests running at once)",
            scale=alt.Scale(type="log", nice=False, padding=14),
            axis=alt.Axis(values=cells["slots"].to_list(), format=",~f"),
        )
    )
    top = float(frame.select(pl.max_horizontal(pl.col("high", "own").max())).item() or 1.0)
    vertical: dict[str, Any] = {
        "title": "multiple (static steps / continuous steps)",
        "scale": alt.Scale(domain=[min(1.0, float(frame["low"].min() or 1.0)), 1.15 * top], nice=False),  # type: ignore[arg-type]
    }
    layers = [
        base.mark_area(color=BLUE, opacity=0.22).encode(y=alt.Y("low:Q", **vertical), y2="high:Q"),
        base.mark_line(color=BLUE, strokeWidth=2.2).encode(y=alt.Y("mean:Q", **vertical)),
        base.mark_line(color=MUTED, strokeDash=[5, 4], clip=True).encode(y=alt.Y("limit:Q", **vertical)),
        base.mark_point(color=INK, shape="diamond", filled=True, size=70, opacity=1).encode(
            y=alt.Y("own:Q", **vertical)
        ),
    ]
    best = max((row for row in in_file_order if row["multiple"]), key=lambda row: row["multiple"], default=None)
    title = (
        f"In file order the multiple reaches {number(best['multiple'])} at {best['slots']:,} slots"
        if best
        else "No request has output, so there is no multiple"
    )
    key = ["Diamonds: the requests in file order; dashed: a queue that never empties"]
    key.append("Line: the mean over workloads drawn from them, nine in ten of which lie in the band")
    return styled(alt.layer(*layers), title, key, width=WIDTH, height=HEIGHT)


def fitted(fits: Sequence[Mapping[str, Any]], name: str) -> Chart:
    """Quantiles of the best families against those of the file, on logarithmic axes; on the diagonal they are equal.

    fits : `name`, and `quantiles` as pairs of the file's and the family's tokens, best first.
    """
    names = [fit["name"] for fit in fits]
    frame = pl.DataFrame(
        [
            {"x": max(1.0, float(own)), "y": max(1.0, float(theirs)), "series": fit["name"]}
            for fit in fits
            for own, theirs in fit["quantiles"]
        ]
    )
    ends = [float(min(frame["x"].min(), frame["y"].min())), float(max(frame["x"].max(), frame["y"].max()))]  # type: ignore[type-var, arg-type]
    scale = alt.Scale(type="log", domain=[ends[0], max(ends[1], 2 * ends[0])], nice=False)
    colors = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=[BLUE, SERIES[3], SERIES[1]][: len(names)]),
        legend=alt.Legend(title="family, best first"),
    )
    axis = alt.Axis(format=",~f")
    diagonal = alt.Chart(pl.DataFrame({"x": ends, "y": ends})).mark_line(color=RED, strokeDash=[5, 4], strokeWidth=1.4)
    points = alt.Chart(frame).mark_line(point=alt.OverlayMarkDef(size=22, filled=True), strokeWidth=1.2, clip=True)
    place = {
        "x": alt.X("x:Q", title=f"output tokens in {name}", scale=scale, axis=axis),
        "y": alt.Y("y:Q", title="output tokens in the family", scale=scale, axis=axis),
    }
    worst = _largest_ratio(fits[0]["quantiles"])
    title = f"Best fit: {names[0]}, whose quantiles are within a factor of {worst:.2g} of the file's"
    layers = alt.layer(diagonal.encode(**place), points.encode(**place, color=colors))
    return styled(
        layers, title, ["Quantiles from 1 % to 99.9 %; on the dashed line both are equal"], width=HEIGHT, height=HEIGHT
    )


def _largest_ratio(pairs: Sequence[Sequence[float]]) -> float:
    return max(math.exp(abs(math.log(max(1.0, own) / max(1.0, theirs)))) for own, theirs in pairs)

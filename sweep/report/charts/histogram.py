"""The distribution of a metric over the workloads of one cell, with its mean and the bounds of a claim."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt
import polars as pl

from sweep.report import findings
from sweep.report.charts.axes import clamp, nothing
from sweep.report.charts.look import BLUE, GREY, HEIGHT, INK, PAPER, RED, WIDTH, Chart, styled
from sweep.report.claims import bound_text, bounds
from sweep.report.intervals import Values, defined, mean_interval
from sweep.report.words import decimals_for, metric_name, number, percent

Claim = Mapping[str, Any]


def distribution(values: Values, *, metric: str = "multiple", where: str = "", claim: Claim | None = None) -> Chart:
    """A metric over the workloads of a cell: the histogram, the mean with its interval, and the bounds of a claim."""
    title = findings.of_distribution(values, metric, claim)
    subtitle = findings.under_distribution(values, where, claim)
    known = defined(values)
    if len(known) == 0:
        return styled(nothing(), title, subtitle)
    low, high = bounds(claim) if claim else (-math.inf, math.inf)
    edges = bin_edges(known, [bound for bound in (low, high) if math.isfinite(bound)])
    frame = bars(known, (known >= low) & (known <= high), edges)
    domain, top = reach(edges, low, high), int(frame["to"].max())  # type: ignore[arg-type]
    met = f"{percent(float(findings.meets(values, claim).mean()))} of workloads" if claim else ""
    layers = [_histogram(frame, metric, domain, top), *_rules(known, claim, met, domain, top)]
    return styled(alt.layer(*layers), title, subtitle, width=WIDTH, height=HEIGHT)


def counted(values: Values, claim: Claim | None = None) -> tuple[Values, npt.NDArray[np.int64]]:
    """Bin edges and the number of workloads in each bin, of which there are none where no value is defined."""
    known = defined(values)
    if len(known) == 0:
        return np.empty(0), np.empty(0, np.int64)
    edges = bin_edges(known, [bound for bound in (bounds(claim) if claim else ()) if math.isfinite(bound)])
    return edges, np.histogram(known, edges)[0]


def bars(values: Values, meets: npt.NDArray[np.bool_], edges: Values) -> pl.DataFrame:
    """The bars of the histogram: in each bin the workloads that meet the claim, and on them those that do not.

    Bounds are edges, so a bin is all of one kind, but for workloads that lie on an upper bound itself.
    """
    within, without = (np.histogram(values[kind], edges)[0] for kind in (meets, ~meets))
    place = {"x": edges[:-1], "x2": edges[1:]}
    lower = pl.DataFrame({**place, "from": 0 * within, "to": within, "count": within, "meets": True})
    upper = pl.DataFrame({**place, "from": within, "to": within + without, "count": without, "meets": False})
    told = pl.format("{} to {}: {}", *(pl.col(end).map_elements(number, pl.String) for end in ("x", "x2")), "count")
    return pl.concat([lower, upper]).filter(pl.col("count") > 0).with_columns(told=told)


def _histogram(frame: pl.DataFrame, metric: str, domain: Sequence[float], top: int) -> Chart:
    """The bars on their axes, with room above them for the words."""
    height = alt.Scale(domain=[0, 1.32 * top], nice=False)
    mark = alt.Chart(frame).mark_bar(stroke=PAPER, strokeWidth=0.5, binSpacing=0)
    return mark.encode(  # type: ignore[no-any-return]
        x=alt.X("x:Q", title=metric_name(metric).title, scale=alt.Scale(domain=domain, nice=False)),
        x2="x2:Q",
        y=alt.Y("from:Q", title="workloads", scale=height, axis=alt.Axis(tickCount=5, tickMinStep=1)),
        y2="to:Q",
        color=alt.condition("datum.meets", alt.value(BLUE), alt.value(GREY)),
        description="told:N",
        tooltip=[alt.Tooltip("x:Q", title="from"), alt.Tooltip("x2:Q", title="to"), alt.Tooltip("count:Q")],
    )


def bin_edges(values: Values, bounds: Sequence[float]) -> Values:
    """Bin edges a round width apart; the bounds of a claim are edges, so that no bar lies across one."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        half = max(abs(low), 1) / 40
        return np.array([low - half, low + half])
    rough = (high - low) / clamp(2 * len(values) ** (1 / 3), 8, 50)
    power = 10.0 ** math.floor(math.log10(rough))
    width = power * next(step for step in (1, 2, 2.5, 5, 10) if rough <= step * power * (1 + 1e-9))
    start = bounds[0] if bounds else 0.0
    first = math.floor((low - start) / width)
    last = math.floor((high - start) / width) + 1
    return np.unique([*(start + width * np.arange(first, last + 1)), *(b for b in bounds if low < b < high)])


def reach(edges: Values, low: float, high: float) -> list[float]:
    """The range of the histogram's axis: all bars and, where they are not far off, the claim's bounds."""
    first, last = float(edges[0]), float(edges[-1])
    far = 1.5 * (last - first)
    shown = [first, last, *(bound for bound in (low, high) if first - far <= bound <= last + far)]
    room = (5 if len(edges) == 2 else 0.04) * (max(shown) - min(shown))  # one bar alone is drawn narrow
    return [min(shown) - room, max(shown) + room]


def _rules(values: Values, claim: Claim | None, met: str, domain: Sequence[float], top: int) -> list[Chart]:
    """The mean in a band of its interval and the bounds of the claim, with their words on sides that stay apart."""
    mean, interval = float(values.mean()), mean_interval(values)
    layers: list[Chart] = []
    if interval and interval[0] < interval[1]:
        band = alt.Chart(pl.DataFrame({"x": [interval[0]], "x2": [interval[1]]}))
        layers.append(band.mark_rect(color=INK, opacity=0.25).encode(x="x:Q", x2="x2:Q"))
    layers.append(alt.Chart(pl.DataFrame({"x": [mean]})).mark_rule(color=INK, strokeWidth=2).encode(x="x:Q"))
    found = [bound for bound in bounds(claim) if domain[0] <= bound <= domain[1]] if claim else []
    place = (mean - domain[0]) / (domain[1] - domain[0])
    right = (mean > found[-1] and place < 0.8) or place < 0.2 if found else place < 0.5
    text = f"mean {number(mean, decimals_for(*interval) if interval else None)}"
    layers += _words([text], mean, [1.27 * top], INK, right=right)
    if claim and found:
        rules = alt.Chart(pl.DataFrame({"x": found})).mark_rule(color=RED, strokeWidth=2, strokeDash=[6, 4])
        asked = [f"claim: {bound_text(claim)}", met]
        place = (found[-1] - domain[0]) / (domain[1] - domain[0])
        right = place < 0.3 or (place < 0.7 and mean <= found[-1])
        layers += [rules.encode(x="x:Q"), *_words(asked, found[-1], [1.17 * top, 1.09 * top], RED, right=right)]
    return layers


def _words(texts: list[str], x: float, heights: list[float], color: str, *, right: bool) -> list[Chart]:
    """Bold words on one side of a rule, with a ground of paper so that bars and rules do not cross them."""
    frame = pl.DataFrame({"x": [x] * len(texts), "y": heights, "text": texts})
    align, dx = ("left", 7) if right else ("right", -7)
    style: dict[str, Any] = {"align": align, "dx": dx, "fontSize": 13, "fontWeight": "bold"}
    base = alt.Chart(frame).encode(x="x:Q", y="y:Q", text="text:N")
    return [base.mark_text(stroke=PAPER, strokeWidth=5, **style), base.mark_text(color=color, **style)]

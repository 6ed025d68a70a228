"""Where the verdict on a claim turns: the value of an axis at which what is claimed passes its bound.

Along each numeric axis of the grid, the other axes held, the estimate is joined by straight lines between neighbouring
cells, on the scale on which the axis is spaced evenly. Where these lines pass the bound lies the boundary. Its interval
reaches from where the one end of the 95 % intervals passes the bound to where the other end does, and is open where
none of the cells is sure. What the straight lines leave out, the bend between two cells, is not in the interval: the
neighbours between which it lies are given too.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sweep.report.claims import Verdict, as_json, bounds, condition, judge
from sweep.report.words import SHORT, at, axis_value, number
from sweep.results import Store

MOST_LINES = 20  # in a terminal


class Boundary(NamedTuple):
    """Where along an axis a claim turns; an end of the interval is None where no cell on that side is sure."""

    metric: str
    condition: str
    axis: str
    fixed: dict[str, Any]  # the values of the other axes
    value: float
    ci_low: float | None
    ci_high: float | None
    between: tuple[float, float]  # the neighbouring cells' values
    holds: str  # "below" or "above": on which side the claim is true, as far as this bound goes
    cells: list[int]  # of the line


class _Place(NamedTuple):
    """A cell on a line: its value of the axis, and how far estimate and interval are above the bound."""

    value: float
    low: float
    estimate: float
    high: float


def boundaries(store: Store) -> list[Boundary]:
    """The boundaries of all claims, each condition once along each line of cells that a claim speaks of."""
    manifest = store.manifest
    found: dict[str, Boundary] = {}
    for claim in manifest["claims"]:
        if claim["of"] == "every" or "minus_cells" in claim:
            continue  # a single workload decides the one; the other has no line of its own
        lines = [line for axis in _numeric_axes(manifest) for line in _lines(manifest, axis, claim["cells"])]
        wanted = sorted({cell for _, _, cells in lines for cell in cells})
        verdicts = {one.cell: one for one in judge(store, [{**claim, "cells": wanted}])} if wanted else {}
        for axis, fixed, cells in lines:
            for boundary in _along(claim, axis, fixed, [verdicts[cell] for cell in cells]):
                found.setdefault(repr(boundary[:9]), boundary)
    return list(found.values())


def boundaries_text(found: Sequence[Boundary]) -> str:
    """A line for each boundary, the first ones of a large grid."""
    lines = [f"Turns: {boundary_text(one)}" for one in found[:MOST_LINES]]
    return "\n".join(lines + ([f"... and {len(found) - MOST_LINES:,} more, in --json"] if found[MOST_LINES:] else []))


def boundary_text(boundary: Boundary) -> str:
    """Where a claim turns, such as "multiple mean >= 5 above requests = 238 (95 % 235 to 241; between 225 and 250)"."""
    name = SHORT.get(boundary.axis, boundary.axis)
    low, high = boundary.ci_low, boundary.ci_high
    ends = f"95 % {'below' if low is None else number(low)} to {'above' if high is None else number(high)}"
    where = f" at {at(boundary.fixed)}" if boundary.fixed else ""
    lies = " and ".join(map(_axis_number, boundary.between))
    value = number(boundary.value)
    return f"{boundary.metric} {boundary.condition}{where} {boundary.holds} {name} = {value} ({ends}; between {lies})"


def check_json(verdicts: Sequence[Verdict], found: Sequence[Boundary]) -> list[dict[str, Any]]:
    """The verdicts as plain data, each with the boundaries of its condition on the lines through its cell."""
    plain = zip(verdicts, as_json(verdicts), strict=True)
    return [
        {**data, "boundaries": [other._asdict() for other in found if _is_of(other, verdict)]}
        for verdict, data in plain
    ]


def _is_of(boundary: Boundary, verdict: Verdict) -> bool:
    same = (boundary.metric, boundary.condition) == (verdict.metric, verdict.condition)
    return same and verdict.cell in boundary.cells


def _axis_number(value: float) -> str:
    return axis_value(int(value) if value == int(value) else value)


def _numeric_axes(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [axis for axis in manifest["axes"] if _is_numeric(axis["columns"][0], manifest)]


def _is_numeric(column: str, manifest: Mapping[str, Any]) -> bool:
    values = {cell["axes"][column] for cell in manifest["cells"] if type(cell["axes"][column]) in (int, float)}
    return len(values) > 1 and all(type(cell["axes"][column]) in (int, float) for cell in manifest["cells"])


def _lines(
    manifest: Mapping[str, Any], axis: Mapping[str, Any], claimed: Iterable[int]
) -> Iterator[tuple[str, dict[str, Any], list[int]]]:
    """Cells along an axis, by its value, for each setting of the others that some claimed cell has."""
    column, own = axis["columns"][0], set(axis["columns"])
    lines: dict[str, list[int]] = {}
    cells = {cell["cell"]: cell["axes"] for cell in manifest["cells"]}
    others = {cell: {name: value for name, value in axes.items() if name not in own} for cell, axes in cells.items()}
    for cell in cells:
        lines.setdefault(repr(others[cell]), []).append(cell)
    for key in dict.fromkeys(repr(others[cell]) for cell in claimed):
        yield column, others[lines[key][0]], sorted(lines[key], key=lambda cell: float(cells[cell][column]))


def _along(claim: Mapping[str, Any], axis: str, fixed: dict[str, Any], line: Sequence[Verdict]) -> Iterator[Boundary]:
    """The boundaries of a claim along one line of cells."""
    low, high = (claim["of"]["share"], math.inf) if _is_share(claim) else bounds(claim)
    for edge in {low, high}:
        if not math.isfinite(edge):
            continue
        places = [
            _Place(float(one.axes[axis]), one.ci_low - edge, one.estimate - edge, one.ci_high - edge)
            for one in line
            if one.estimate is not None and one.ci_low is not None and one.ci_high is not None
        ]
        scale = _scale([place.value for place in places])
        for turn, (before, after) in enumerate(pairwise(places)):
            if (before.estimate < 0) != (after.estimate < 0):
                rises = before.estimate < 0
                value = _crossing(before.value, after.value, before.estimate, after.estimate, scale)
                yield Boundary(
                    claim["metric"],
                    condition(claim),
                    axis,
                    fixed,
                    value,
                    *_ends(places, turn, value, rises, scale),
                    (before.value, after.value),
                    "above" if rises == (edge == low) else "below",
                    [one.cell for one in line],
                )


def _is_share(claim: Mapping[str, Any]) -> bool:
    return isinstance(claim["of"], dict) and "share" in claim["of"]


def _ends(
    places: Sequence[_Place], turn: int, value: float, rises: bool, log: bool
) -> tuple[float | None, float | None]:
    """The last value before a boundary, and the first after it, at which the interval does not hold the bound."""
    near = [place.high if rises else -place.low for place in places]  # below 0 where the near side is sure
    far = [place.low if rises else -place.high for place in places]  # above 0 where the far side is sure
    values = [place.value for place in places]
    low = next(
        (
            min(value, _crossing(values[at], values[at + 1], near[at], near[at + 1], log))
            for at in range(turn, -1, -1)
            if near[at] < 0 <= near[at + 1]
        ),
        None,
    )
    high = next(
        (
            max(value, _crossing(values[at], values[at + 1], far[at], far[at + 1], log))
            for at in range(turn, len(places) - 1)
            if far[at] <= 0 < far[at + 1]
        ),
        None,
    )
    return low, high


def _crossing(x0: float, x1: float, y0: float, y1: float, log: bool) -> float:
    """Where the straight line between two points is 0."""
    share = y0 / (y0 - y1)
    if log:
        return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
    return x0 + share * (x1 - x0)


def _scale(values: Sequence[float]) -> bool:
    """Whether values are spaced more evenly on a logarithmic scale."""
    if len(values) < 3 or values[0] <= 0:
        return False
    steps, ratios = np.diff(values), np.diff(np.log(values))
    return bool(ratios.std() / ratios.mean() < steps.std() / steps.mean())

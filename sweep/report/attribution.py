"""Where a multiple comes from: what each factor of a small factorial study adds, and what the drain takes away.

A factor is an axis of two values, the first of them "before" and the second "after". Factors act together (no slots are
worth anything where all lengths are equal), so what one adds depends on which others came first: here it is the mean
over all orders, Shapley's value, and the parts add up to the whole. For the multiple they are taken of its limit, which
is exact, and what the last requests lose while ever more slots stand empty is one part more: the simulated mean less
the limit. The same parts of the simulated means stand beside them, workload by workload, with their intervals.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import factorial
from typing import Any, NamedTuple

import numpy as np

from sweep.report.intervals import Interval, Values, mean_interval
from sweep.report.stats import NO_VALUES, columns_by_cell
from sweep.report.words import SHORT, axis_value
from sweep.results import Store

MOST_FACTORS = 6


class Factor(NamedTuple):
    """An axis of two values."""

    column: str
    before: Any
    after: Any


class Part(NamedTuple):
    """What a factor adds. `interval` is None where the part is exact."""

    name: str
    value: float
    interval: Interval | None = None


class Attribution(NamedTuple):
    """From the multiple before any factor to the one after all of them, by parts that add up."""

    start: float
    parts: tuple[Part, ...]
    limit: float | None  # after all factors in a queue that never empties; None where the parts are simulated means
    drain: Part | None
    end: Part
    simulated: tuple[Part, ...]  # the parts of the simulated means
    workloads: int
    cell: int  # after all factors


def factors(manifest: Mapping[str, Any]) -> list[Factor]:
    """The axes of two values, in the order of the grid; none where other axes have more, or there are too many."""
    found = []
    for axis in manifest["axes"]:
        column = axis["columns"][0]
        values = list({repr(cell["axes"][column]): cell["axes"][column] for cell in manifest["cells"]}.values())
        if len(values) > 2:
            return []
        found += [Factor(column, *values)] if len(values) == 2 else []
    return found if len(found) <= MOST_FACTORS else []


def attribution(store: Store, metric: str = "multiple") -> Attribution | None:
    """What each factor of a folder adds to a metric; None without factors, without rows, or where a cell has none."""
    known = factors(store.manifest)
    if not known or store.keeps == "summary":
        return None
    cells = _by_levels(store.manifest, known)
    columns = _columns(store, metric, list(cells.values()))
    if columns is None:
        return None
    names = [factor_name(factor) for factor in known]
    weights = [_weights(place, len(known)) for place in range(len(known))]
    every = (True,) * len(known)
    simulated = tuple(
        _part(name, np.sum([weight[levels] * columns[cells[levels]["cell"]] for levels in cells], axis=0))
        for name, weight in zip(names, weights, strict=True)
    )
    first, last = (columns[cells[levels]["cell"]] for levels in ((False,) * len(known), every))
    end = _part("simulated", last)
    limits = {levels: cell["limit_multiple"] for levels, cell in cells.items()}
    where = cells[every]["cell"]
    if metric != "multiple" or any(limit is None for limit in limits.values()):
        return Attribution(float(first.mean()), simulated, None, None, end, simulated, len(last), where)
    exact = tuple(
        Part(name, sum(weight[levels] * limits[levels] for levels in cells))
        for name, weight in zip(names, weights, strict=True)
    )
    limit = limits[every]
    drain = _part("drain", last - limit)
    return Attribution(limits[(False,) * len(known)], exact, limit, drain, end, simulated, len(last), where)


def factor_name(factor: Factor) -> str:
    """How a factor is called, such as "context: 8,192 to 2,048"."""
    name = SHORT.get(factor.column, factor.column)
    return f"{name}: {axis_value(factor.before)} to {axis_value(factor.after)}"


def _by_levels(manifest: Mapping[str, Any], known: Sequence[Factor]) -> dict[tuple[bool, ...], Mapping[str, Any]]:
    """The cell of each setting of the factors: whether each has its second value."""
    found = {tuple(cell["axes"][f.column] == f.after for f in known): cell for cell in manifest["cells"]}
    return {levels: found[levels] for levels in product((False, True), repeat=len(known))}


def _columns(store: Store, metric: str, cells: Sequence[Mapping[str, Any]]) -> dict[int, Values] | None:
    """The metric of each cell over the workloads that all have met; None where one has no defined result."""
    points = {cell["point"]: None for cell in cells}
    found = {number: column for point in points for number, column in columns_by_cell(store, point, metric).items()}
    columns = [found.get(cell["cell"], NO_VALUES) for cell in cells]
    common = min(len(column.values) for column in columns)  # replicates are numbered from 0 in each
    if common < 2 or any(np.isnan(column.values[:common]).any() for column in columns):
        return None
    return {cell["cell"]: column.values[:common] for cell, column in zip(cells, columns, strict=True)}


def _weights(place: int, count: int) -> dict[tuple[bool, ...], float]:
    """What a cell's value counts in a factor's part: the mean over all orders in which factors may be added."""
    weights = dict.fromkeys(product((False, True), repeat=count), 0.0)
    others = [other for other in range(count) if other != place]
    for size in range(count):
        share = factorial(size) * factorial(count - size - 1) / factorial(count)
        for chosen in combinations(others, size):
            without = tuple(at in chosen for at in range(count))
            weights[tuple(at in chosen or at == place for at in range(count))] += share
            weights[without] -= share
    return weights


def _part(name: str, values: Values) -> Part:
    return Part(name, float(values.mean()), mean_interval(values))

"""Rows of a chunk to the summary that is kept in their place; what a summary means and how it is read is in `sums`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sweep.metrics import COUNTS
from sweep.model.tally import codeviations, counted, histogram, measured, product
from sweep.shards import metrics, shard_bytes
from sweep.sums import CONTROLS, HALF, KEPT, LINES, Values, controls_of, places_of, summary_schema

_WIDEST = 2**20  # places that are counted in an array; beyond it they are sorted
_EXACT = 2.0**52  # lines up to which every place is a whole number of 64 bits


def summary_parquet(
    column: Callable[[str], Values],
    cells: Sequence[int],
    replicates: range,
    measure: Sequence[str],
    metadata: dict[str, str],
) -> bytes:
    """Bytes of a summary shard: a row for each cell.

    column : gives the values of a metric for all cells one after the other, (cells x replicates,). It is asked for one
        at a time, so that those which are made only for this need not be in memory together.
    """
    rows: list[dict[str, Any]] = [{"cell": cell, "replicates": len(replicates)} for cell in cells]
    controls = {control: _as_kernels_take(column(control), np.int64).reshape(len(cells), -1) for control in CONTROLS}
    for metric in metrics(measure):  # the controls come first
        values = column(metric)
        _add(rows, metric, values, replicates)
        _add_products(rows, metric, values, controls)
    static, continuous = (column(metric).reshape(len(cells), -1) for metric in ("static_steps", "continuous_steps"))
    for row, a, b in zip(rows, static, continuous, strict=True):
        largest = row["static_steps_highest"][0] * row["continuous_steps_highest"][0]
        row |= _halves("steps_product", _products(a, b, largest))
    return shard_bytes(pl.DataFrame(rows, schema=summary_schema(measure)), metadata)


def _add(rows: Sequence[dict[str, Any]], metric: str, values: Values, replicates: range) -> None:
    """Adds what is kept of a metric to the row of each cell."""
    summed = _of_counts if metric in COUNTS else _of_numbers
    for row, mine in zip(rows, values.reshape(len(rows), -1), strict=True):
        row |= {f"{metric}_{name}": value for name, value in summed(mine, replicates).items()}
        if metric == "multiple":
            row |= _placed(mine, row["multiple_lowest"], row["multiple_highest"])


def _add_products(rows: Sequence[dict[str, Any]], metric: str, values: Values, controls: Mapping[str, Values]) -> None:
    """Adds how a metric goes along with the controls to the row of each cell; null where it is not known throughout."""
    for place, (row, mine) in enumerate(zip(rows, values.reshape(len(rows), -1), strict=True)):
        if row[f"{metric}_n"] < len(mine) or not controls_of(metric):
            continue
        (a, a_mean), (b, b_mean) = ((controls[control][place], _mean(row, control)) for control in CONTROLS)
        found = codeviations(_as_kernels_take(mine, np.float64), _mean(row, metric), a, a_mean, b, b_mean)
        row |= {f"{metric}_with_{control}": found[CONTROLS.index(control)] for control in controls_of(metric)}


def _mean(row: Mapping[str, Any], metric: str) -> float:
    if metric not in COUNTS:
        return float(row[f"{metric}_mean"])
    total, n = row[f"{metric}_sum_high"] * HALF + row[f"{metric}_sum_low"], row[f"{metric}_n"]
    return float(total / n)


def _of_counts(counts: Values, replicates: range) -> dict[str, Any]:
    """What is kept of whole numbers that are not negative, which are always known."""
    values = _as_kernels_take(counts, np.int64)
    lows, highs = np.empty((2, KEPT), np.int64)
    total, squares = counted(values, lows, highs)
    largest, n = int(values[highs[0]]), len(values)
    exact = total if largest * n < 2**63 else sum(values.tolist())
    row = {"n": n, **_ends(values, replicates, lows, highs)}
    row |= _halves("sum", exact)
    return row | _halves("squares", squares if largest**2 * n < 2**63 else _products(values, values, largest**2))


def _of_numbers(numbers: Values, replicates: range) -> dict[str, Any]:
    values = _as_kernels_take(numbers, np.float64)
    lows, highs = np.empty((2, KEPT), np.int64)
    n, mean, deviations = measured(values, lows, highs)
    return {"n": n, **_ends(values, replicates, lows, highs), "mean": mean, "deviations": deviations}


def _ends(values: Values, replicates: range, lows: Values, highs: Values) -> dict[str, list[Any]]:
    """The extreme values and the replicates that have them, from their places, -1 for none."""
    row: dict[str, list[Any]] = {}
    for name, places in (("lowest", lows.tolist()), ("highest", highs.tolist())):
        there = [place for place in places if place >= 0]
        row |= {name: values[there].tolist(), f"{name}_replicates": [replicates[place] for place in there]}
    return row


def _products(a: Values, b: Values, largest: int) -> int:
    """The sum of the products of whole numbers that are not negative, none above `largest`: where 64 bits wrap, too."""
    if largest * len(a) < 2**63:
        return int(product(_as_kernels_take(a, np.int64), _as_kernels_take(b, np.int64)))
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def _halves(name: str, value: int) -> dict[str, int]:
    return {f"{name}_high": value // HALF, f"{name}_low": value % HALF}


def _placed(multiple: Values, lowest: Sequence[float], highest: Sequence[float]) -> dict[str, list[int]]:
    """The places on the grid that have any, in order, and how many each has; a larger value is in no lower place."""
    if not lowest:
        return {"multiple_places": [], "multiple_counts": []}
    low, high = lowest[0], highest[0]
    if not -_EXACT < low * LINES <= high * LINES < _EXACT:
        return _sorted_places(multiple)
    first, last = places_of(np.array([low, high])).tolist()
    if last - first >= _WIDEST:
        return _sorted_places(multiple)
    counts = np.zeros(last - first + 1, np.int64)
    histogram(_as_kernels_take(multiple, np.float64), float(LINES), first, counts)
    some = np.flatnonzero(counts)
    return {"multiple_places": (some + first).tolist(), "multiple_counts": counts[some].tolist()}


def _sorted_places(multiple: Values) -> dict[str, list[int]]:
    places, counts = np.unique(places_of(multiple[~np.isnan(multiple)]), return_counts=True)
    return {"multiple_places": places.tolist(), "multiple_counts": counts.tolist()}


def _as_kernels_take(values: Values, kind: type) -> Values:
    """The very values where they lie side by side and may be written, so that each kernel is compiled but once."""
    return np.require(values, kind, ["C", "W"])

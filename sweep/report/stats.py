"""The columns of a results folder, cell by cell, and what one of them says: an estimate of its mean and its spread.

Leaves out the table of all cells (`summary`), verdicts (`claims`) and pictures. Sums run in numpy over a cell's
replicates in order, never in polars, whose threads may add floats in any order: the same rows give the same bytes of
`cells.parquet` on any machine and with any number of threads.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sweep.report import tallied
from sweep.report.intervals import Interval, Values, defined, mean_and_sd, mean_interval, t_interval
from sweep.results import Store
from sweep.sums import tallies

I64: TypeAlias = npt.NDArray[np.int64]


class Column(NamedTuple):
    """One metric of one cell, in the order of the replicates."""

    replicates: I64  # (n,), the number of each workload
    values: Values  # (n,), nan where undefined


NO_VALUES = Column(np.empty(0, np.int64), np.empty(0, np.float64))  # of a cell without rows


class Estimates(NamedTuple):
    """What one column says about the mean and the spread; None where there are too few defined values."""

    mean: float | None = None
    sd: float | None = None
    se: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p05: float | None = None
    p50: float | None = None
    p95: float | None = None


def axis_columns(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the axes, in the order of the grid; columns that move together stand side by side."""
    return tuple(column for axis in manifest["axes"] for column in axis["columns"])


def columns_by_cell(store: Store, point: int, metric: str) -> dict[int, Column]:
    """One metric of a point's workloads for each cell that has rows and did not fail, which would leave only those that
    happened to work; one metric at a time keeps memory small. None has a column where only sums are kept.
    """
    if store.keeps == "summary":
        return {}
    found = point_columns(store, point, (metric,))
    return {cell: Column(replicates, columns[metric]) for cell, (replicates, columns) in found.items()}


def mean_intervals(store: Store, point: int, metric: str, confidence: float) -> dict[int, Interval | None]:
    """The interval of a metric's mean in each cell of a point; None where there are too few values."""
    if store.keeps == "summary":
        known = tallies(store, point)
        return {cell: tallied.mean_interval(tally.sums[metric], confidence) for cell, tally in known.items()}
    columns = columns_by_cell(store, point, metric)
    return {cell: mean_interval(column.values, confidence) for cell, column in columns.items()}


def values_to_draw(store: Store, point: int, metric: str) -> dict[int, tuple[Values, int]]:
    """Values for the histogram of each cell of a point, and of how many workloads each value is one: 1 for rows."""
    if store.keeps == "summary":
        known = tallies(store, point) if metric == "multiple" else {}
        return {cell: tallied.drawn_values(tally) for cell, tally in known.items()}
    return {cell: (column.values, 1) for cell, column in columns_by_cell(store, point, metric).items()}


def estimates(values: Values) -> Estimates:
    """Mean, deviation, 95 % t interval and linear percentiles of the defined values.

    One value has no deviation and no interval; none has nothing at all.
    """
    values = defined(values)
    if len(values) == 0:
        return Estimates()
    # Of values in order percentiles are found in half the time, the sort included.
    p05, p50, p95 = (float(value) for value in np.percentile(np.sort(values), (5, 50, 95)))
    mean, sd = mean_and_sd(values)
    if sd is None:
        return Estimates(mean, p05=p05, p50=p50, p95=p95)
    low, high = t_interval(mean, sd / math.sqrt(len(values)), len(values) - 1)
    return Estimates(mean, sd, sd / math.sqrt(len(values)), low, high, p05, p50, p95)


def exact_sum(values: Values) -> int | float:
    """The sum of the defined values; for integers exact, where 64 bits could wrap."""
    values = defined(values)
    if values.dtype.kind != "i":
        return float(values.sum())
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def point_columns(store: Store, point: int, names: Sequence[str]) -> dict[int, tuple[I64, dict[str, Values]]]:
    """Replicates and columns of each cell of a point that has rows and did not fail."""
    frame = store.point_rows(point, names)
    cells = frame["cell"].to_numpy()
    starts = np.flatnonzero(np.diff(cells, prepend=-1))  # rows come sorted by cell
    counts = np.diff(starts, append=len(cells))
    replicates, values = frame["replicate"].to_numpy(), {name: frame[name].to_numpy() for name in names}
    failed = store.failed()
    return {
        int(cell): (
            replicates[start : start + count],
            {name: column[start : start + count] for name, column in values.items()},
        )
        for cell, start, count in zip(cells[starts], starts, counts, strict=True)
        if cell not in failed
    }

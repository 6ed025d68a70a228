"""What is kept of a chunk in place of its rows, and how chunks are added up: sums, extremes and a histogram.

Counts are summed as whole numbers without rounding. Of the other metrics each chunk keeps the mean and the squared
deviations from it, which are joined in the order of the chunks (Chan, Golub and LeVeque, 1983), so that the same study
gives the same figures on any machine. The multiple also has a histogram on a grid of hundredths that is the same for
every study; a value on the grid is told from those between two of its lines, so a share is exact for such a bound.
How each metric goes along with those whose expectation may be known is kept too, for means that luck is taken out of.
How a chunk is summed is in `summing`; this side is read without a compiler.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from sweep.errors import FolderError
from sweep.metrics import COUNTS
from sweep.results import Store
from sweep.shards import metrics

Values: TypeAlias = npt.NDArray[Any]
_Ends: TypeAlias = tuple[tuple[float, int], ...]  # extreme values, the furthest first, with their replicates

LINES = 100  # of the grid in one unit of the multiple
KEPT = 3  # of the smallest and of the largest values: as many replicates as a verdict names
HALF = 2**62  # a whole number beyond 64 bits stands in two columns: high * 2^62 + low
CONTROLS = ("output_tokens", "static_steps")  # counts whose expectation theory may know


class Sums(NamedTuple):
    """One metric of one cell over its workloads. `total` and `total_squares` are exact, and of counts alone."""

    n: int = 0  # workloads in which it is defined
    mean: float = math.nan
    deviations: float = 0.0  # sum of squared deviations from the mean
    lowest: _Ends = ()
    highest: _Ends = ()
    total: int | None = None
    total_squares: int | None = None

    @property
    def low(self) -> float:
        """The smallest value."""
        return self.lowest[0][0] if self.lowest else math.inf

    @property
    def high(self) -> float:
        """The largest value."""
        return self.highest[0][0] if self.highest else -math.inf

    @property
    def sd(self) -> float | None:
        """The sample deviation; None for fewer than two values, 0 where all are the same."""
        if self.n < 2:
            return None
        return 0.0 if self.low == self.high else math.sqrt(self.deviations / (self.n - 1))

    @property
    def se(self) -> float | None:
        """The standard error of the mean."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)


class Tally(NamedTuple):
    """All that is known of one cell. `places` are those of the multiple on the grid, with the workloads in each.

    together : of a metric and a control, the sum of products of their deviations from the mean; None where the metric
    is undefined in some workload.
    """

    replicates: int
    sums: dict[str, Sums]
    product: int  # sum of static x continuous steps
    places: dict[int, int]
    together: dict[tuple[str, str], float | None]


def controls_of(metric: str) -> tuple[str, ...]:
    """The controls that a metric is kept together with; of two controls one is enough."""
    return CONTROLS[: CONTROLS.index(metric)] if metric in CONTROLS else CONTROLS


def summary_schema(measure: Sequence[str]) -> dict[str, Any]:
    """Columns of a summary shard, in order."""
    schema: dict[str, Any] = {"cell": pl.Int64, "replicates": pl.Int64}
    for metric in metrics(measure):
        count = metric in COUNTS
        schema[f"{metric}_n"] = pl.Int64
        for end in ("lowest", "highest"):
            kind = pl.Int64 if count else pl.Float64
            schema |= {f"{metric}_{end}": pl.List(kind), f"{metric}_{end}_replicates": pl.List(pl.Int64)}
        halves = [f"{name}_{half}" for name in ("sum", "squares") for half in ("high", "low")]
        schema |= {f"{metric}_{name}": pl.Int64 for name in halves} if count else {}
        schema |= {} if count else {f"{metric}_{name}": pl.Float64 for name in ("mean", "deviations")}
        schema |= {f"{metric}_with_{control}": pl.Float64 for control in controls_of(metric)}
    schema |= {"steps_product_high": pl.Int64, "steps_product_low": pl.Int64}
    return schema | {"multiple_places": pl.List(pl.Int64), "multiple_counts": pl.List(pl.Int64)}


def tallies(store: Store, point: int) -> dict[int, Tally]:
    """What the point's shards add up to, for each cell that did not fail; a shard at a time is in memory."""
    found: dict[int, Tally] = {}
    failed, wanted = store.failed(), store.manifest["points"][point]["replicates"]
    for span in store.spans_of(point):
        if span.stop > wanted:  # of a run with more replicates, and a sum cannot be cut
            continue
        shard = pl.read_parquet(store.path_of(span), glob=False)
        if shard.columns != list(summary_schema(store.manifest["measure"])):
            raise FolderError(f"{store.folder}: holds sums of an earlier version; run the study again with --fresh")
        for row in shard.iter_rows(named=True):
            if row["cell"] not in failed:
                tally = _read(row, store.manifest["measure"])
                found[row["cell"]] = _joined(found[row["cell"]], tally) if row["cell"] in found else tally
    return found


def bounds_of(place: int) -> tuple[float, float]:
    """The least and the largest value in a place; in one between two lines neither is reached."""
    line = place // 2
    return line / LINES, (line + place % 2) / LINES


def places_of(values: Values) -> npt.NDArray[np.int64]:
    """Places of values on the grid, (n,): 2k for k hundredths exactly, 2k + 1 between these and the next."""
    nearest = np.rint(values * LINES)  # or, between two lines, either of them: the place is the same
    line = nearest / LINES
    places: npt.NDArray[np.int64] = 2 * nearest.astype(np.int64)
    places += values > line
    places -= values < line
    return places


def _whole(row: Mapping[str, Any], name: str) -> int:
    return int(row[f"{name}_high"]) * HALF + int(row[f"{name}_low"])


def _read(row: Mapping[str, Any], measure: Sequence[str]) -> Tally:
    sums = {metric: _sums(row, metric) for metric in metrics(measure)}
    places = dict(zip(row["multiple_places"], row["multiple_counts"], strict=True))
    pairs = ((metric, control) for metric in sums for control in controls_of(metric))
    together = {pair: row["_with_".join(pair)] for pair in pairs}
    return Tally(row["replicates"], sums, _whole(row, "steps_product"), places, together)


def _sums(row: Mapping[str, Any], metric: str) -> Sums:
    n = row[f"{metric}_n"]
    if n == 0:
        return Sums(total=0, total_squares=0) if metric in COUNTS else Sums()
    low, high = (
        tuple(zip(row[f"{metric}_{end}"], row[f"{metric}_{end}_replicates"], strict=True))
        for end in ("lowest", "highest")
    )
    if metric in COUNTS:
        return _of_counts(n, low, high, _whole(row, f"{metric}_sum"), _whole(row, f"{metric}_squares"))
    return Sums(n, row[f"{metric}_mean"], row[f"{metric}_deviations"], low, high)


def _of_counts(n: int, low: _Ends, high: _Ends, total: int, squares: int) -> Sums:
    deviations = Fraction(n * squares - total * total, n)
    return Sums(n, total / n, float(deviations), low, high, total, squares)


def _joined(a: Tally, b: Tally) -> Tally:
    places = Counter(a.places)
    places.update(b.places)
    sums = {metric: _joined_sums(a.sums[metric], b.sums[metric]) for metric in a.sums}
    together = {pair: _joined_products(a, b, *pair) for pair in a.together}
    return Tally(a.replicates + b.replicates, sums, a.product + b.product, dict(places), together)


def _joined_products(a: Tally, b: Tally, metric: str, control: str) -> float | None:
    one, other, n = a.together[metric, control], b.together[metric, control], a.replicates + b.replicates
    if one is None or other is None:
        return None
    apart = (b.sums[metric].mean - a.sums[metric].mean) * (b.sums[control].mean - a.sums[control].mean)
    return one + other + apart * a.replicates * b.replicates / n


def _joined_sums(a: Sums, b: Sums) -> Sums:
    if a.n == 0 or b.n == 0:
        return a if b.n == 0 else b
    low = tuple(sorted(a.lowest + b.lowest)[:KEPT])
    high = tuple(sorted(a.highest + b.highest, key=lambda end: (-end[0], end[1]))[:KEPT])
    n = a.n + b.n
    if a.total is not None and b.total is not None and a.total_squares is not None and b.total_squares is not None:
        return _of_counts(n, low, high, a.total + b.total, a.total_squares + b.total_squares)
    apart = b.mean - a.mean
    mean = a.mean + apart * b.n / n
    return Sums(n, mean, a.deviations + b.deviations + apart * apart * a.n * b.n / n, low, high)

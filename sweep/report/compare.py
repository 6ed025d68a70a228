"""Two cells side by side: the difference of a metric's means and their ratio, each with an interval.

Cells that met the same workloads are compared workload by workload: what both share cancels out, and the interval is
that of the paired differences. They share their draws when both were drawn from one seed, whatever was changed
between them; then the same random numbers gave each workload its lengths. Otherwise the two are independent samples,
and are said to be. The ratio is that of the two means, not a mean of ratios.

Rows are needed: a folder of sums alone is refused, and so is a cell that has no results, with its reason.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sweep.errors import InputError
from sweep.report.claims import difference
from sweep.report.intervals import Interval, Values, defined, mean_and_sd, mean_interval, ratio_of_means, t_interval
from sweep.report.stats import NO_VALUES, Column, columns_by_cell
from sweep.report.terminal import aligned
from sweep.report.words import at, number, with_interval
from sweep.results import Store
from sweep.shards import metrics

MOST_NAMED = 12  # metrics in a message; of more, the closest


class Side(NamedTuple):
    """One cell of a comparison."""

    folder: str
    cell: int
    axes: dict[str, Any]
    mean: float | None
    replicates: int
    lacks: str | None = None  # why it has no results


class Comparison(NamedTuple):
    """A metric in cell a less that in cell b, and the mean in a over that in b; None where undefined.

    variance_reduction : how many times as many workloads an unpaired comparison would need to be as sure.
    """

    metric: str
    a: Side
    b: Side
    paired: bool
    why: str
    replicates: int  # that both have met, where paired
    difference: float | None
    difference_ci_low: float | None
    difference_ci_high: float | None
    ratio_of_means: float | None
    ratio_ci_low: float | None
    ratio_ci_high: float | None
    variance_reduction: float | None


def comparisons(a: Path, b: Path | None, cells: Sequence[int], metric: str) -> list[Comparison]:
    """Two cells of a folder, or of two folders; without cells, those of two folders that have the same axis values.

    Of several pairs, those with a cell that has no results stay, undefined and with the reason; at least one has some.
    Raises InputError and FolderError.
    """
    first = Store.open(a)
    second = first if b is None else Store.open(b)
    for store in {id(first): first, id(second): second}.values():
        _refuse_sums(store)
        _refuse_unknown(store, metric)
    if cells:
        if len(cells) != 2:
            raise InputError(f"--cells: takes two cells, as in --cells 2,3; got {len(cells)}")
        pairs = [(_cell(first, cells[0]), _cell(second, cells[1]))]
    elif b is None:
        raise InputError("--cells: name two cells of the folder, as in --cells 2,3, or give a second folder")
    else:
        pairs = _alike(first, second)
    found = [compare(first, one, second, other, metric) for one, other in pairs]
    if all(lacking(one) for one in found):
        raise InputError(lacking(found[0]))
    return found


def lacking(one: Comparison) -> str:
    """Why two cells could not be compared; nothing where they were."""
    side = next((side for side in (one.a, one.b) if side.lacks), None)
    return f"cell {side.cell} of {side.folder} has no results: {side.lacks}" if side else ""


def compare(a: Store, one: Mapping[str, Any], b: Store, other: Mapping[str, Any], metric: str) -> Comparison:
    """One cell against another. a, b : their folders; one, other : the cells as the manifests have them."""
    x, y = _column(a, one, metric), _column(b, other, metric)
    paired, why = _share_draws(a.manifest, one, b.manifest, other)
    found = _paired(x, y) if paired else _unpaired(defined(x.values), defined(y.values))
    return Comparison(metric, _side(a, one, x), _side(b, other, y), paired, why, **found)


def text(found: Sequence[Comparison]) -> str:
    """The comparisons as a table for a terminal."""
    header = ["a", "b", "mean a", "mean b", "a - b (95 %)", "mean a / mean b (95 %)", "workloads"]
    rows = [
        [
            _name(one.a, one.b),
            _name(one.b, one.a),
            *(("-" if side.mean is None else number(side.mean)) for side in (one.a, one.b)),
            with_interval(one.difference, one.difference_ci_low, one.difference_ci_high),
            with_interval(one.ratio_of_means, one.ratio_ci_low, one.ratio_ci_high),
            f"{one.replicates:,} in common" if one.paired else f"{one.a.replicates:,} and {one.b.replicates:,}",
        ]
        for one in found
    ]
    gains = [one.variance_reduction for one in found if one.variance_reduction is not None]
    worth = " to ".join(dict.fromkeys(number(gain) for gain in (min(gains), max(gains)))) if gains else ""
    gain = f"; pairing is worth {worth} times the workloads" if gains else ""
    known = [one for one in found if not lacking(one)]
    reasons = [f"{'Paired' if one.paired else 'Unpaired'}: {one.why}" for one in known]
    told = f"{'. '.join(dict.fromkeys(reasons))}{gain}."
    lines = [line for one in found if (line := lacking(one))]
    return "\n".join([found[0].metric, *aligned(header, rows), "", told, *dict.fromkeys(lines)])


def as_json(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparisons as plain data; undefined is None."""
    return [{**one._asdict(), "a": one.a._asdict(), "b": one.b._asdict()} for one in found]


def _paired(x: Column, y: Column) -> dict[str, Any]:
    """Difference and ratio over the workloads that both cells have met and in which both are defined."""
    rest = difference(x, y)
    both = rest.replicates[~np.isnan(rest.values)]
    mine, theirs = (column.values[np.isin(column.replicates, both)].astype(np.float64) for column in (x, y))
    apart = mine - theirs
    ratio = ratio_of_means(mine, theirs)
    ends = t_interval(*ratio, len(both) - 1) if ratio else None
    return {
        "replicates": len(both),
        **_difference(float(apart.mean()) if len(both) else None, mean_interval(apart)),
        **_ratio(ratio[0] if ratio else None, ends),
        "variance_reduction": _gain(mine, theirs, apart),
    }


def _unpaired(x: Values, y: Values) -> dict[str, Any]:
    """Difference by Welch's interval, ratio by linearisation; of two independent samples."""
    nothing = {"replicates": 0, **_difference(None, None), **_ratio(None, None), "variance_reduction": None}
    if len(x) < 2 or len(y) < 2:
        return nothing
    (mean_x, sd_x), (mean_y, sd_y) = mean_and_sd(x), mean_and_sd(y)
    assert sd_x is not None
    assert sd_y is not None
    parts = sd_x**2 / len(x), sd_y**2 / len(y)
    apart = mean_x - mean_y
    freedom = _welch(parts, (len(x) - 1, len(y) - 1))
    found = nothing | _difference(apart, t_interval(apart, math.sqrt(sum(parts)), freedom))
    if mean_y == 0:
        return found
    ratio = mean_x / mean_y
    parts = parts[0], ratio**2 * parts[1]
    se = math.sqrt(sum(parts)) / abs(mean_y)
    return found | _ratio(ratio, t_interval(ratio, se, _welch(parts, (len(x) - 1, len(y) - 1))))


def _welch(parts: tuple[float, float], freedom: tuple[int, int]) -> float:
    """Degrees of freedom of a sum of two estimated variances (Welch, 1947)."""
    below = sum(part**2 / free for part, free in zip(parts, freedom, strict=True))
    return sum(parts) ** 2 / below if below else float(sum(freedom))


def _gain(x: Values, y: Values, apart: Values) -> float | None:
    if len(apart) < 2 or (spread := float(apart.var(ddof=1))) == 0:
        return None
    return float(x.var(ddof=1) + y.var(ddof=1)) / spread


def _difference(value: float | None, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"difference": value, "difference_ci_low": low, "difference_ci_high": high}


def _ratio(value: float | None, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"ratio_of_means": value, "ratio_ci_low": low, "ratio_ci_high": high}


def _share_draws(
    a: Mapping[str, Any], one: Mapping[str, Any], b: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[bool, str]:
    """Whether the same random numbers made the workloads of both cells, and why that is known."""
    outputs = [manifest["points"][cell["point"]]["output"] for manifest, cell in ((a, one), (b, other))]
    labs = [output["distribution"] == "lab" for output in outputs]
    if all(labs):
        same = outputs[0].get("first_seed", 0) == outputs[1].get("first_seed", 0)
        return same, "the reference lab's seeds are the same" if same else "the reference lab's seeds differ"
    if any(labs):
        return False, "one of them has the reference lab's own generator"
    if a["seed"] != b["seed"]:
        return False, f"the seeds are {a['seed']} and {b['seed']}"
    return True, f"both are drawn from seed {a['seed']}"


def _column(store: Store, cell: Mapping[str, Any], metric: str) -> Column:
    return columns_by_cell(store, cell["point"], metric).get(cell["cell"], NO_VALUES)


def _side(store: Store, cell: Mapping[str, Any], column: Column) -> Side:
    known = defined(column.values)
    mean = float(known.mean()) if len(known) else None
    lacks = None if len(column.values) else _why_empty(store, cell)
    return Side(str(store.folder), cell["cell"], dict(cell["axes"]), mean, len(column.values), lacks)


def _why_empty(store: Store, cell: Mapping[str, Any]) -> str:
    reason = cell["error"] or store.failed().get(cell["cell"])
    return reason or "none of its workloads is simulated yet; run the study again to go on"


def _alike(a: Store, b: Store) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The cells of two folders that have the same axis values; one cell each are alike in any case."""
    if len(a.manifest["cells"]) == len(b.manifest["cells"]) == 1:
        return [(a.manifest["cells"][0], b.manifest["cells"][0])]
    there = {repr(sorted(cell["axes"].items())): cell for cell in b.manifest["cells"]}
    keys = [(cell, repr(sorted(cell["axes"].items()))) for cell in a.manifest["cells"]]
    if pairs := [(cell, there[key]) for cell, key in keys if key in there]:
        return pairs
    raise InputError(f"{a.folder} and {b.folder}: no cell has the same axis values in both; name two with --cells")


def _cell(store: Store, index: int) -> dict[str, Any]:
    cells: list[dict[str, Any]] = store.manifest["cells"]
    if not 0 <= index < len(cells):
        raise InputError(f"--cells: {store.folder} has cells 0 to {len(cells) - 1}, got {index}")
    return cells[index]


def _refuse_sums(store: Store) -> None:
    if store.keeps == "summary":
        raise InputError(
            f"{store.folder}: keeps sums and no rows (--keep summary), and a comparison needs a row for each workload;"
            " run the study into another folder without --keep summary"
        )


def _refuse_unknown(store: Store, metric: str) -> None:
    known = metrics(store.manifest["measure"])
    if metric in known:
        return
    listed = ", ".join(known)
    if len(known) > MOST_NAMED:
        near = difflib.get_close_matches(metric[:100], known, 3)
        listed = f"{len(known)} metrics{', such as ' if near else ''}{' or '.join(near)}"
    raise InputError(f'--metric: must be one of {listed} ({store.folder} has no others), got "{metric:.100}"')


def _name(side: Side, other: Side) -> str:
    """What a cell is called beside the other one: its folder where they differ, and its axis values."""
    where = at(side.axes) or f"cell {side.cell}"
    return f"{Path(side.folder).name}: {where}" if side.folder != other.folder else where

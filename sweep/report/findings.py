"""What a chart shows, in words: its title states the finding, its subtitle of how many workloads and where.

Leaves out the drawing (`charts`), and never says more than the intervals allow: a rise within the noise is no rise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sweep.report.claims import bound_text, bounds, condition
from sweep.report.stats import Values, defined
from sweep.report.words import at, axis_value, metric_name, number, percent, plural, with_interval

THEORY = {"multiple": "limit_multiple", "static_steps": "exact_static_steps"}
THEORY_NAMES = {"multiple": "the limit of a queue that never empties", "static_steps": "the exact expectation"}


def of_distribution(values: Values, metric: str, claim: Mapping[str, Any] | None) -> str:
    """How many workloads meet the claim, or the mean where nothing is claimed."""
    subject, known = metric_name(metric).subject, defined(values)
    if len(known) == 0:
        return f"{subject} is undefined in every workload"
    if claim:
        share = percent(float(meets(values, claim).mean()))
        reach = f"reach {claim['at_least']:g}x" if metric == "multiple" and "at_least" in claim else None
        return f"{share} of workloads {reach or f'have {metric} {bound_text(claim)}'}"
    mean = number(float(known.mean()))
    return f"{subject} is {mean} in every workload" if known.min() == known.max() else f"{subject} is {mean} on average"


def meets(values: Values, claim: Mapping[str, Any]) -> Any:
    """Whether each workload lies within the claim's bounds, (n,); an undefined one does not."""
    low, high = bounds(claim)
    return (values >= low) & (values <= high)


def of_heatmap(cells: pl.DataFrame, columns: Sequence[str], metric: str) -> str:
    """The smallest and the largest mean and where they are."""
    ran = cells.filter(pl.col(f"{metric}_mean").is_not_null()).sort(f"{metric}_mean", maintain_order=True)
    subject = metric_name(metric).subject
    if len(ran) == 0:
        return f"{subject} is not known: no cell has a result"
    low, high = _place(ran, 0, columns, metric), _place(ran, -1, columns, metric)
    if len(ran) == 1:
        return f"{subject} is {low}"
    if ran[f"{metric}_mean"].n_unique() == 1:
        return f"{subject} is {number(ran[f'{metric}_mean'][0])} in every cell"
    return f"{subject} runs from {low} to {high}"


def of_lines(cells: pl.DataFrame, x: str, color: str | None, metric: str) -> str:
    """How a metric changes along an axis; with several lines, where it is smallest and largest."""
    ran = cells.filter(pl.col(f"{metric}_mean").is_not_null())
    if color is not None or len(ran) < 2 or not ran[x].dtype.is_numeric():
        return of_heatmap(cells, [name for name in (color, x) if name], metric)
    ran = ran.sort(x)
    subject, mean = metric_name(metric).subject, ran[f"{metric}_mean"]
    lows = ran[f"{metric}_ci_low"].fill_null(-math.inf).to_list()
    highs = ran[f"{metric}_ci_high"].fill_null(math.inf).to_list()
    first, last = _place(ran, 0, [x], metric), _place(ran, -1, [x], metric)
    peak, dip = int(mean.arg_max() or 0), int(mean.arg_min() or 0)
    if max(lows) <= min(highs):
        return f"{subject} is {'' if max(mean) == min(mean) else 'about '}{number(mean[peak])} at every {x}"
    if lows[peak] > max(highs[0], highs[-1]):
        return f"{subject} is largest, {_place(ran, peak, [x], metric)}"
    if highs[dip] < min(lows[0], lows[-1]):
        return f"{subject} is smallest, {_place(ran, dip, [x], metric)}"
    return f"{subject} {'rises' if mean[-1] > mean[0] else 'falls'} from {first} to {last}"


def under_distribution(values: Values, where: str, claim: Mapping[str, Any] | None) -> list[str]:
    """Of which workloads, the range of nine in ten, and what was claimed."""
    known = defined(values)
    spread = ""
    if len(known) > 1 and known.min() < known.max():
        spread = "; 90 % of them lie within {} and {}".format(*_percentiles(known))
    undefined = f"; undefined in {len(values) - len(known):,}" if len(known) < len(values) else ""
    first = f"{plural(len(values), 'workload')}{f' at {where}' if where else ''}{spread}{undefined}"
    return [first, *([f"Claim: {claim['text']} ({condition(claim)})"] if claim else [])]


def under_means(cells: pl.DataFrame, note: str) -> list[str]:
    """Over how many workloads a mean was taken, and the note."""
    counts = cells.filter(pl.col("replicates") > 0)["replicates"].unique().sort().to_list()
    if not counts:
        return [note] if note else []
    over = plural(counts[0], "workload") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} workloads"
    return [f"Means over {over}" + (f"; {note}" if note else "")]


def reasons(cells: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Why cells have no result: one line for each reason, with the first cell it holds for."""
    failed = cells.filter(pl.col("replicates") == 0).with_columns(pl.col("error").fill_null("not simulated yet"))
    found = []
    for (reason,), group in failed.group_by("error", maintain_order=True):
        where = at({column: group[column][0] for column in columns})
        others = f" and {plural(len(group) - 1, 'more cell')}" if len(group) > 1 else ""
        found.append(f"No result{f' at {where}' if where else ''}{others}: {reason}")
    return found


def of_fit(points: pl.DataFrame, x: str) -> str:
    """How many requests fit at the smallest and at the largest value of an axis; points sorted by it."""
    fit = points.filter(pl.col("slots") > 0)
    if len(fit) == 0:
        return f"No request fits at any {x}"
    title = f"{plural(fit['slots'][0], 'request')} {'fits' if fit['slots'][0] == 1 else 'fit'}"
    title += f" at {x} {axis_value(fit[x][0])}"
    return title + (f", {fit['slots'][-1]:,} at {axis_value(fit[x][-1])}" if len(fit) > 1 else "")


def caption_mean(metric: str, row: Mapping[str, Any]) -> str:
    """The mean of a metric in one cell with its interval."""
    return with_interval(row[f"{metric}_mean"], row[f"{metric}_ci_low"], row[f"{metric}_ci_high"])


def _place(cells: pl.DataFrame, row: int, columns: Sequence[str], metric: str) -> str:
    """A mean and where it is, such as "4.74 at slots = 32"."""
    where = at({column: cells[column][row] for column in columns})
    return number(cells[f"{metric}_mean"][row]) + (f" at {where}" if where else "")


def _percentiles(values: Values) -> tuple[str, str]:
    low, high = np.percentile(values, (5, 95))
    return number(float(low)), number(float(high))

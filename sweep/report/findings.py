"""What a chart shows, in words: its title states the finding, its subtitle of how many workloads and where.

Leaves out the drawing (`charts`), and never says more than the intervals allow: a rise within the noise is no rise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sweep.report.claims import bound_text, bounds, condition
from sweep.report.intervals import Values, defined
from sweep.report.words import SHORT, at, axis_value, metric_name, number, percent, plural

THEORY = {"multiple": "limit_multiple", "static_steps": "exact_static_steps"}
BOUNDS = {"continuous_steps": ("least_continuous_steps", "most_continuous_steps")}  # of a mean, by theory
STAYS, RISES, FALLS = "stays the same", "rises", "falls"
PEAKS, DIPS = "is largest in between", "is smallest in between"
THEORY_NAMES = {"multiple": "the limit of a queue that never empties", "static_steps": "the exact expectation"}


def of_distribution(values: Values, metric: str, claim: Mapping[str, Any] | None) -> str:
    """How many workloads meet the claim, or the mean where nothing is claimed."""
    subject, known = metric_name(metric).subject, defined(values)
    if len(known) == 0:
        return f"{subject} is undefined in every workload"
    if len(values) == 1:
        return f"{subject} is {number(float(known[0]))} in the one workload"
    if claim:
        return f"{percent(float(meets(values, claim).mean()))} of workloads {_reached(metric, claim)}"
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
    """How a metric changes along an axis; with several lines, which of them change in which way."""
    ran = cells.filter(pl.col(f"{metric}_mean").is_not_null())
    if len(ran) < 2 or not ran[x].dtype.is_numeric():
        return of_heatmap(cells, [name for name in (color, x) if name], metric)
    if color is not None:
        return _of_many_lines(ran.sort(x), x, color, metric)
    ran = ran.sort(x)
    subject, mean = metric_name(metric).subject, ran[f"{metric}_mean"]
    first, last = _place(ran, 0, [x], metric), _place(ran, -1, [x], metric)
    peak, dip = int(mean.arg_max() or 0), int(mean.arg_min() or 0)
    about = "" if max(mean) == min(mean) else "about "
    return {
        STAYS: f"{subject} is {about}{number(mean[peak])} at every value of {SHORT.get(x, x)}",
        PEAKS: f"{subject} is largest, {_place(ran, peak, [x], metric)}",
        DIPS: f"{subject} is smallest, {_place(ran, dip, [x], metric)}",
        RISES: f"{subject} rises from {first} to {last}",
        FALLS: f"{subject} falls from {first} to {last}",
    }[_shape(ran, metric)]


def of_distributions(values: Mapping[str, Values], column: str, metric: str, claim: Mapping[str, Any] | None) -> str:
    """The smallest and the largest share that meets the claim, or mean, and where they are."""
    subject, name = metric_name(metric).subject, SHORT.get(column, column)
    known = {label: cell for label, cell in values.items() if len(defined(cell))}
    if not known:
        return f"{subject} is not known: no cell has a result"
    if claim:
        shares = {label: float(meets(cell, claim).mean()) for label, cell in known.items()}
        ends = _ends(shares, percent, name)
        return f"{ends[0].upper()}{ends[1:]} of workloads {_reached(metric, claim)}"
    means = {label: float(defined(cell).mean()) for label, cell in known.items()}
    ends = _ends(means, number, name)
    return f"{subject} {f'runs {ends}' if ends.startswith('from') else f'is {ends}'}"


def under_distribution(values: Values, where: str, claim: Mapping[str, Any] | None) -> list[str]:
    """Of which workloads, the range of nine in ten, and what was claimed."""
    known = defined(values)
    spread = ""
    if len(known) > 1 and known.min() < known.max():
        spread = "; 90 % of them lie within {} and {}".format(*_percentiles(known))
    undefined = f"; undefined in {len(values) - len(known):,}" if len(known) < len(values) else ""
    first = f"{plural(len(values), 'workload')}{f' at {where}' if where else ''}{spread}{undefined}"
    return [first, *([f"Claim: {claim['text']} ({condition(claim)})"] if claim else [])]


def under_distributions(values: Mapping[str, Values], claim: Mapping[str, Any] | None, note: str) -> list[str]:
    """Of how many workloads, what the ticks are, and what was claimed."""
    counts = sorted({len(cell) for cell in values.values() if len(cell)}) or [0]
    over = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    first = f"{over} workloads in a row; its tick is their mean" + (f"; {note}" if note else "")
    return [first, *([f"Claim: {claim['text']} ({condition(claim)})"] if claim else [])]


def under_means(cells: pl.DataFrame, metrics: Sequence[str], note: str) -> list[str]:
    """Over how many workloads the means of metrics were taken, and the note."""
    counts = workloads_of(cells, metrics)
    if not counts:
        return [note] if note else []
    over = plural(counts[0], "workload") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} workloads"
    return [f"Means over {over}" + (f"; {note}" if note else "")]


def workloads_text(cells: pl.DataFrame, metrics: Sequence[str]) -> str:
    """Over how many workloads means are: one number, or the smallest and the largest."""
    counts = workloads_of(cells, metrics) or [0]
    return " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))


def workloads_of(cells: pl.DataFrame, metrics: Sequence[str]) -> list[int]:
    """Over how many workloads means are, rising: those in which the metric is known, where that is counted."""
    counted = [f"{metric}_n" if f"{metric}_n" in cells.columns else "replicates" for metric in metrics]
    return sorted({count for name in counted for count in cells[name] if count})


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


def of_fits(points: pl.DataFrame, x: str, color: str) -> str:
    """How many requests fit at the largest value of an axis, on the lowest line and on the highest."""
    last = points.filter(pl.col(x) == pl.col(x).max()).sort("slots", maintain_order=True)
    (fewest, lowest), (most, highest) = ((last["slots"][row], axis_value(last[color][row])) for row in (0, -1))
    where = f"At {x} {axis_value(last[x][0])}"
    fit = f"{plural(fewest, 'request')} {'fits' if fewest == 1 else 'fit'}"
    if fewest == most:
        return f"{where}: {fit} with every {color}"
    return f"{where}: {fit} with {color} {lowest}, {most:,} with {highest}"


def _ends(found: Mapping[str, float], shown: Callable[[float], str], name: str) -> str:
    """The smallest and the largest value with their places, such as "from 2 at slots = 4 to 5 at slots = 8"."""
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    if shown(found[low]) == shown(found[high]):
        return f"{shown(found[low])} at every value of {name}"
    return f"from {shown(found[low])} at {name} = {low} to {shown(found[high])} at {name} = {high}"


def _reached(metric: str, claim: Mapping[str, Any]) -> str:
    """What workloads do that meet a claim, such as "reach 5x"."""
    if metric == "multiple" and "at_least" in claim:
        return f"reach {claim['at_least']:g}x"
    return f"have {metric} {bound_text(claim)}"


def _of_many_lines(ran: pl.DataFrame, x: str, color: str, metric: str) -> str:
    """Which lines have which shape; a line of one point has none."""
    order = ran[color].unique(maintain_order=True)
    lines = {
        value: ran.filter(pl.col(color) == value) for value in (order.sort() if order.dtype.is_numeric() else order)
    }
    shapes = {value: _shape(line, metric) for value, line in lines.items() if len(line) > 1}
    subject, name = metric_name(metric).subject, SHORT.get(color, color)
    if not shapes:
        return of_heatmap(ran, [color, x], metric)
    if len(set(shapes.values())) == 1:
        shape = shapes.popitem()[1]
        peak = int(ran[f"{metric}_mean"].arg_max() or 0)
        height = f", up to {_place(ran, peak, [x, color], metric)}" if shape == PEAKS else ""
        return f"{subject} {shape} along {SHORT.get(x, x)} at every value of {name}{height}"
    groups = {shape: [value for value in shapes if shapes[value] == shape] for shape in dict.fromkeys(shapes.values())}
    told = [f"{shape} at {name} = {_listed(values, list(shapes))}" for shape, values in groups.items()]
    return f"Along {SHORT.get(x, x)}, {subject[0].lower()}{subject[1:]} {'; '.join(told)}"


def _listed(values: Sequence[Any], order: Sequence[Any]) -> str:
    """Values as they are read; three and more that follow each other as a range."""
    first = order.index(values[0])
    if len(values) > 2 and list(values) == list(order[first : first + len(values)]):
        return f"{axis_value(values[0])} to {axis_value(values[-1])}"
    return ", ".join(map(axis_value, values))


def _shape(line: pl.DataFrame, metric: str) -> str:
    """How the means of one line run, as far as their intervals tell."""
    mean = line[f"{metric}_mean"]
    lows = pl.select(pl.coalesce(line[f"{metric}_ci_low"], mean)).to_series().to_list()
    highs = pl.select(pl.coalesce(line[f"{metric}_ci_high"], mean)).to_series().to_list()
    peak, dip = int(mean.arg_max() or 0), int(mean.arg_min() or 0)
    if max(lows) <= min(highs):
        return STAYS
    if lows[peak] > max(highs[0], highs[-1]):
        return PEAKS
    if highs[dip] < min(lows[0], lows[-1]):
        return DIPS
    return RISES if mean[-1] > mean[0] else FALLS


def _place(cells: pl.DataFrame, row: int, columns: Sequence[str], metric: str) -> str:
    """A mean and where it is, such as "4.74 at slots = 32"."""
    where = at({column: cells[column][row] for column in columns})
    return number(cells[f"{metric}_mean"][row]) + (f" at {where}" if where else "")


def _percentiles(values: Values) -> tuple[str, str]:
    low, high = np.percentile(values, (5, 95))
    return number(float(low)), number(float(high))

"""The literal twin of `sweep.rows.summing`: a row of a summary from whole columns, in numpy and plain integers."""

import numpy as np

from sweep.metrics import COUNTS
from sweep.shards import metrics
from sweep.sums import HALF, KEPT, controls_of, places_of


def summary_row(cell, replicates, columns, measure):
    """The row of one cell as a dict, from its columns, each (replicates,)."""
    row = {"cell": cell, "replicates": len(replicates)}
    for metric in metrics(measure):
        row |= {
            f"{metric}_{name}": value
            for name, value in _column(columns[metric], np.array(replicates), whole=metric in COUNTS).items()
        }
        row |= _products(metric, columns)
    static, continuous = columns["static_steps"].tolist(), columns["continuous_steps"].tolist()
    row |= _halves("steps_product", sum(a * b for a, b in zip(static, continuous, strict=True)))
    multiple = columns["multiple"]
    places, counts = np.unique(places_of(multiple[~np.isnan(multiple)]), return_counts=True)
    return {**row, "multiple_places": places.tolist(), "multiple_counts": counts.tolist()}


def _column(values, replicates, *, whole):
    known = ~np.isnan(values)
    values, replicates = values[known], replicates[known]
    row = {"n": len(values)}
    for end, order in (("lowest", np.argsort(values, kind="stable")), ("highest", np.argsort(-values, kind="stable"))):
        row |= {end: values[order[:KEPT]].tolist(), f"{end}_replicates": replicates[order[:KEPT]].tolist()}
    if whole:
        numbers = values.tolist()
        return row | _halves("sum", sum(numbers)) | _halves("squares", sum(number * number for number in numbers))
    mean = float(values.mean()) if len(values) else 0.0
    return row | {"mean": mean, "deviations": float(((values - mean) ** 2).sum())}


def _products(metric, columns):
    values = columns[metric]
    if np.isnan(values).any():
        return {}
    apart = {name: _apart(columns[name]) for name in (metric, *controls_of(metric))}
    return {f"{metric}_with_{name}": _in_lanes(apart[metric] * apart[name]) for name in controls_of(metric)}


def _in_lanes(terms):
    """Every fourth term is added to one of four sums in order, these in pairs, and then the rest."""
    whole = len(terms) - len(terms) % 4
    lanes = [0.0] * 4
    for place, term in enumerate(terms[:whole].tolist()):
        lanes[place % 4] += term
    total = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    for term in terms[whole:].tolist():
        total += term
    return total


def _apart(values):
    """Deviations from the mean, which for whole numbers is that of their sum."""
    mean = sum(values.tolist()) / len(values) if values.dtype.kind == "i" else values.mean()
    return values.astype(np.float64) - mean


def _halves(name, value):
    return {f"{name}_high": value // HALF, f"{name}_low": value % HALF}

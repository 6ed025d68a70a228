"""Means made surer by what theory knows: control variates, fitted by regression. Leaves out the plain estimates.

A workload that drew more tokens than expected, or whose static steps came out above their exact expectation, was met
by chance; a regression on both takes their part out of a metric's mean. The adjusted mean estimates the same
expectation as the plain one with a smaller error (Lavenberg and Welch, 1981). Work per slot, the bound that no schedule
beats, is the tokens over the slots and hence the same control.

All sums are numpy's over the workloads in order and the few equations are solved here, never by a BLAS.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.report.intervals import Values
from sweep.sums import CONTROLS, Tally

F64 = npt.NDArray[np.float64]

FEWEST = 64  # below this the fit itself is too unsure, and its bias, of the order 1 / n, is not small
WORTH = 1.05  # a smaller gain does not pay for a second number to explain
ROUNDING = 1e-12  # of a variance: what sums leave of one below it is none
ALIKE = 1e-9  # what is left of a control's variance when others explain the rest: below it, it says nothing new


class Control(NamedTuple):
    """A quantity of each workload, (n,), whose expectation is known exactly."""

    metric: str
    values: Values
    expectation: float


class Adjusted(NamedTuple):
    """A mean with the known errors of its controls taken out; None where that does not pay.

    variance_reduction : how many times as many workloads the plain mean would need to be as sure.
    """

    adjusted: float | None = None
    adjusted_se: float | None = None
    variance_reduction: float | None = None


def controls(cell: Mapping[str, Any], columns: Mapping[str, Values]) -> list[Control]:
    """The controls of a cell whose expectations its entry in the manifest knows.

    columns : metric -> values in the order of the replicates.
    """
    return [Control(metric, columns[metric], value) for metric, value in expectations(cell).items()]


def expectations(cell: Mapping[str, Any]) -> dict[str, float]:
    """What is expected of each control in a cell, where its entry in the manifest knows."""
    known = {metric: cell.get(f"exact_{metric}") for metric in CONTROLS}
    return {metric: value for metric, value in known.items() if value is not None}


def adjusted(metric: str, values: Values, known: Sequence[Control]) -> Adjusted:
    """The mean of a metric adjusted by regression on the controls.

    Nothing for few workloads or undefined values, for a metric that is itself a control (its expectation is known),
    and where the variance hardly shrinks.
    """
    n = len(values)
    if n < FEWEST or any(control.metric == metric for control in known) or np.isnan(values).any():
        return Adjusted()
    y = values - values.mean()
    kept = _independent([control.values - control.values.mean() for control in known])
    total = float((y * y).sum())
    if not kept or total == 0:
        return Adjusted()
    x = [centred for _, centred in kept]
    off = [float(known[i].values.mean()) - known[i].expectation for i, _ in kept]
    cross = [[float((a * b).sum()) for b in x] for a in x]
    slopes = _solved(cross, [float((a * y).sum()) for a in x])
    residual = y - sum(slope * a for slope, a in zip(slopes, x, strict=True))
    fit = _Fit(n, float(values.mean()), total, off, cross, slopes, float((residual * residual).sum()))
    return _adjusted(fit)


def adjusted_of_sums(metric: str, tally: Tally, known: Mapping[str, float]) -> Adjusted:
    """The same from sums alone, to rounding; known : what is expected of each control."""
    n, sums = tally.replicates, tally.sums[metric]
    if n < FEWEST or metric in known or sums.n < n or sums.low == sums.high:
        return Adjusted()
    kept = _independent_of_sums(tally, list(known))
    if not kept:
        return Adjusted()
    off = [tally.sums[control].mean - known[control] for control in kept]
    cross = [[_product(tally, a, b) for b in kept] for a in kept]
    right = [_product(tally, metric, control) for control in kept]
    slopes = _solved(cross, right)
    explained = sum(slope * product for slope, product in zip(slopes, right, strict=True))
    rest = sums.deviations - explained
    residual = rest if rest > ROUNDING * sums.deviations else 0.0
    return _adjusted(_Fit(n, sums.mean, sums.deviations, off, cross, slopes, residual))


class _Fit(NamedTuple):
    """A regression: of n values their mean and squared deviations, by how much the means of the controls are off, the
    products of the controls' deviations, the slopes, and the squared deviations that are left.
    """

    n: int
    mean: float
    total: float
    off: Sequence[float]
    cross: Sequence[Sequence[float]]
    slopes: Sequence[float]
    residual: float


def _adjusted(fit: _Fit) -> Adjusted:
    n = fit.n
    freedom = n - len(fit.off) - 1
    spread = 1 / n + sum(o * s for o, s in zip(fit.off, _solved(fit.cross, fit.off), strict=True))
    se = math.sqrt(fit.residual / freedom * spread)
    plain_se = math.sqrt(fit.total / (n - 1) / n)
    if se * math.sqrt(WORTH) >= plain_se:
        return Adjusted()
    mean = fit.mean - sum(slope * o for slope, o in zip(fit.slopes, fit.off, strict=True))
    return Adjusted(mean, se, (plain_se / se) ** 2 if se > 0 else None)


def _product(tally: Tally, metric: str, control: str) -> float:
    """The sum of products of the deviations of a metric, or a control, and a control."""
    if metric == control:
        return tally.sums[metric].deviations
    found = tally.together.get((metric, control))
    found = tally.together[control, metric] if found is None else found
    assert found is not None, "of a metric that is defined in every workload"
    return found


def _independent_of_sums(tally: Tally, controls: Sequence[str]) -> list[str]:
    """The controls that say something which those before do not: as for columns, by the variance that is left."""
    kept: list[str] = []
    for control in controls:
        own = _product(tally, control, control)
        right = [_product(tally, control, other) for other in kept]
        cross = [[_product(tally, a, b) for b in kept] for a in kept]
        explained = sum(slope * product for slope, product in zip(_solved(cross, right), right, strict=True))
        if own - explained > ALIKE * own:
            kept.append(control)
    return kept


def _independent(columns: Sequence[F64]) -> list[tuple[int, F64]]:
    """The columns, each with its place, that say something which those before do not (Gram and Schmidt)."""
    kept: list[tuple[int, F64]] = []
    left: list[F64] = []
    for place, column in enumerate(columns):
        rest = column
        for other in left:
            rest = rest - float((rest * other).sum()) / float((other * other).sum()) * other
        if float((rest * rest).sum()) > ALIKE * float((column * column).sum()):
            kept.append((place, column))
            left.append(rest)
    return kept


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """The solution of a few symmetric positive definite equations, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for pivot in range(len(rows)):
        for below in range(pivot + 1, len(rows)):
            factor = rows[below][pivot] / rows[pivot][pivot]
            rows[below] = [b - factor * p for b, p in zip(rows[below], rows[pivot], strict=True)]
    found: list[float] = []
    for row in reversed(rows):
        known = sum(a * b for a, b in zip(row[len(rows) - len(found) : -1], found, strict=True))
        found.insert(0, (row[-1] - known) / row[len(rows) - len(found) - 1])
    return found

"""The answer of a study in a sentence or two, as page, summary and gallery begin with it.

It is about the main cell. Where requests arrive over time, both schedulers end with the last of them unless too many
come, so the multiple tends to 1 and what users wait leads; a load of static batching of 1 or more is said first.
Left out: what a study says of itself beside (`clock`, `refused`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from sweep.metrics import parted, unit_of
from sweep.report.claims import Verdict
from sweep.report.clock import horizon_of, latencies_of, overloaded, ratios_of
from sweep.report.words import (
    at,
    both_name,
    decimals_for,
    main_cell,
    number,
    plural,
    share_with_interval,
    with_interval,
)

AS_LONG = {
    "e2e_ratio": "a request takes {} times as long to its last token",
    "ttft_ratio": "a request takes {} times as long to its first token",
    "wait_ratio": "a request waits {} times as long for a slot",
}


def sentence(frame: pl.DataFrame, manifest: Mapping[str, Any], verdicts: Iterable[Verdict]) -> str:
    """The answer: what leads in the main cell, and how many workloads meet its first claim."""
    cell = manifest["cells"][main_cell(frame, manifest)]
    row = frame.row(by_predicate=pl.col("cell") == cell["cell"], named=True)
    where = f"At {at(cell['axes'])}, " if cell["axes"] else ""
    if row["multiple_mean"] is None:
        return _upper(f"{where}there is no answer: {row['error'] or 'no multiple was simulated'}.")
    known = (verdict for verdict in verdicts if verdict.cell == cell["cell"] and verdict.share is not None)
    told = next(known, None) if row["multiple_sd"] else None  # of equal workloads, or of one, a share says nothing
    horizon = horizon_of(manifest, cell)
    lead = _arriving(row, manifest, horizon) if horizon else _multiple(row)
    more = _where_it_keeps_up(frame, manifest) if horizon and overloaded(row) else ""
    return _upper(f"{where}{lead}{_met(told) if told else ''}.{more}")


def _arriving(row: Mapping[str, Any], manifest: Mapping[str, Any], horizon: str) -> str:
    """What leads where requests arrive over time; the multiple where no latency was measured."""
    latencies = latencies_of(manifest)
    if latencies and latencies[0][0].endswith("_slo_rate_per_s"):  # sought for each scheduler, whatever comes
        return _latency(row, latencies[0])
    if overloaded(row):
        lost = f"static batching cannot keep up: its own load is {number(row['static_load'])}, and its queue grows"
        if horizon == "terminating" or not latencies:
            return f"{lost} while requests come. In all, {_multiple(row)}"
        continuous = [name for name in latencies[0] if parted(name)[0] == "continuous"]
        shown = f". {_upper(_latency(row, continuous))}" if continuous else ""
        return f"{lost} while requests come{shown}"
    known = [name for name in latencies[0] if row[f"{name}_mean"] is not None] if latencies else []
    lead = _ratio(row, manifest) or (_latency(row, known) if known else "")
    return (
        f"{lead}; the multiple of steps, {number(row['multiple_mean'])}, does not show it" if lead else _multiple(row)
    )


def _ratio(row: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """How many times as long it takes under static batching, by the first ratio that is known."""
    metric = next((name for name in ratios_of(manifest) if row[f"{name}_mean"] is not None), None)
    if metric is None:
        return ""
    mean, low, high = (row[f"{metric}_{part}"] for part in ("mean", "ci_low", "ci_high"))
    decimals = decimals_for(low, high) if low is not None and high is not None else None
    said = AS_LONG[metric].format(number(mean, decimals))
    interval = "" if low is None else f", 95 % interval {number(low, decimals)} to {number(high, decimals)}"
    over = f"mean {metric} of {plural(row['replicates'], 'workload')}{interval}"
    return f"{said} under static batching as under continuous batching ({over})"


def _latency(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """One latency, or largest rate, of the schedulers that are named."""
    subject = both_name(parted(names[0])[1]).subject
    if all(row[f"{name}_mean"] is None for name in names):
        return f"{subject[0].lower()}{subject[1:]} is undefined in all of {plural(row['replicates'], 'workload')}"
    values = [f"{_value(row, name)} under {parted(name)[0]} batching" for name in names]
    over = f"{'mean' if len(names) == 1 else 'means'} of {_workloads(row, names)}"
    return f"{subject[0].lower()}{subject[1:]} is {' and '.join(values)}, {over}"


def _workloads(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The workloads that means are over: a largest rate is not found in all of them."""
    every = row["replicates"]
    found = [row.get(f"{name}_n", every) for name in names]
    if set(found) <= {every, None}:
        return plural(every, "workload")
    return f"{' and '.join(f'{n:,}' for n in found)} of {plural(every, 'workload')}, in which there is one"


def _value(row: Mapping[str, Any], metric: str) -> str:
    """A mean with its unit and its interval."""
    mean, low, high = (row[f"{metric}_{part}"] for part in ("mean", "ci_low", "ci_high"))
    if mean is None:
        return "undefined"
    decimals = None if low is None else decimals_for(low, high)
    interval = "" if low in (None, high) else f" (95 % interval {number(low, decimals)} to {number(high, decimals)})"
    return f"{number(mean, decimals)} {unit_of(metric)}{interval}"


def _where_it_keeps_up(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """What a latency ratio comes to in the cell with the highest load that static batching can serve."""
    fine = frame.filter((pl.col("static_load") < 1) & (pl.col("replicates") > 0)).sort("static_load")
    for row in reversed(fine.rows(named=True)):
        if said := _ratio(row, manifest):
            return f" Where it keeps up, at {at(manifest['cells'][row['cell']]['axes'])}, {said}."
    return ""


def _multiple(row: Mapping[str, Any]) -> str:
    """The multiple of steps, and that of seconds where it is measured."""
    seconds = row.get("multiple_s_mean")
    return _of_steps(row) + ("" if seconds is None else f", and {_with_interval(row, 'multiple_s')} times the seconds")


def _with_interval(row: Mapping[str, Any], metric: str) -> str:
    return with_interval(*(row[f"{metric}_{part}"] for part in ("mean", "ci_low", "ci_high")))


def _of_steps(row: Mapping[str, Any]) -> str:
    compared = "times the steps of continuous batching"
    workloads = plural(row["replicates"], "workload")
    if row["multiple_ci_low"] is None:
        return f"static batching takes {number(row['multiple_mean'])} {compared} (one workload, so without an interval)"
    if row["multiple_sd"] == 0:
        return f"static batching takes exactly {number(row['multiple_mean'])} {compared} in each of {workloads}"
    decimals = decimals_for(row["multiple_ci_low"], row["multiple_ci_high"])
    low, high = (number(row[f"multiple_ci_{end}"], decimals) for end in ("low", "high"))
    mean = number(row["multiple_mean"], decimals)
    interval = f"mean multiple of {workloads}, 95 % interval {low} to {high}"
    return f"static batching takes {mean} {compared} on average ({interval})"


def _met(verdict: Verdict) -> str:
    share = share_with_interval(verdict.share, verdict.share_low, verdict.share_high)
    if verdict.metric == "multiple" and verdict.bound.startswith(">= "):
        return f", and {share} of workloads reach {verdict.bound[3:]}"
    return f", and in {share} of workloads {verdict.metric} is {verdict.bound}"


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]

"""The answer as plain text for a terminal: the sentence, the verdicts and a table of cells. ASCII, no colour needed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sweep.report.answer import sentence
from sweep.report.claims import FAILS, Verdict
from sweep.report.clock import LEADING, clock_text, leading, load_text
from sweep.report.refused import refused_text
from sweep.report.stats import axis_columns
from sweep.report.words import at, axis_value, number, plural, precision_text, verdict_estimate, with_interval
from sweep.tables import aligned as aligned

MOST_ROWS = 40  # of the table of cells
MOST_FAILED = 10  # named under it, with their reasons
MOST_VERDICTS = 12  # shown one by one


def summary_text(frame: pl.DataFrame, manifest: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """Title, answer, cells and verdicts of a results folder."""
    parts = [manifest["title"], sentence(frame, manifest, verdicts), precision_text(frame, manifest)]
    parts += [refused_text(frame, manifest), clock_text(frame, manifest), cells_text(frame, manifest)]
    if verdicts:
        parts.append(verdicts_text(verdicts) if len(verdicts) <= MOST_VERDICTS else _counted(verdicts))
    return "\n\n".join(part for part in parts if part)


def verdicts_text(verdicts: Sequence[Verdict]) -> str:
    """Two lines for each verdict: what was claimed and what became of it, then the figures behind that."""
    if not verdicts:
        return "The study makes no claims."
    return "\n".join(line for verdict in verdicts for line in _verdict_lines(verdict))


def replay_text(folder: Path, manifest: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """The command that draws the workload that speaks most against a claim, against one that fails if any does.

    Nothing where no cell can be drawn, or where the manifest does not say that one can.
    """
    drawn = {cell["cell"] for cell in manifest["cells"] if cell.get("drawn", False)}
    shown = [verdict for verdict in verdicts if verdict.worst_replicates and verdict.cell in drawn]
    if not shown:
        return ""
    worst = next((verdict for verdict in shown if verdict.verdict == FAILS), shown[0])
    return f"Look into one: sweep replay {folder} --cell {worst.cell} --replicate {worst.worst_replicates[0]}"


def _counted(verdicts: Sequence[Verdict]) -> str:
    """A line for each claim: in how many cells it holds, fails or is undecided."""
    found: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.text, Counter())[verdict.verdict] += 1
    lines = [
        f"{text}: " + ", ".join(f"{outcome} in {plural(n, 'cell')}" for outcome, n in counts.items())
        for text, counts in found.items()
    ]
    return "\n".join([*lines, "Each cell: sweep check, or the page."])


def cells_text(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """A table with a row for each cell, the first ones of a large grid; under it why cells have no results."""
    axes = list(dict.fromkeys([*axis_columns(manifest), "slots"]))
    own = leading(manifest)
    several = ["mean static steps", "mean continuous steps", "mean multiple (95 %)", "median multiple"]
    header = [*axes, *(LEADING.get(name, f"mean {name} (95 %)") for name in own)]
    header += ["mean multiple (95 %)"] if len(own) > 1 else [*several, "multiple of totals", "limit"]
    rows = [_cell_row(row, axes, own) for row in frame.head(MOST_ROWS).iter_rows(named=True)]
    lines = aligned(header, rows)
    if frame.height > MOST_ROWS:
        lines.append(f"... and {frame.height - MOST_ROWS:,} cells more, in cells.parquet")
    return "\n".join([*lines, *cells_that_failed(frame, manifest)])


def cells_that_failed(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """A line for each cell without results, with its reason; of many the first ones."""
    axes = {cell["cell"]: at(cell["axes"]) for cell in manifest["cells"]}
    failed = frame.filter(pl.col("error").is_not_null()).select("cell", "error").rows()
    lines = [
        f"cell {cell}{f' ({axes[cell]})' if axes[cell] else ''} has no results: {error}"
        for cell, error in failed[:MOST_FAILED]
    ]
    if len(failed) > MOST_FAILED:
        lines.append(f"... and {plural(len(failed) - MOST_FAILED, 'cell')} more without results")
    return lines


def _cell_row(row: Mapping[str, Any], axes: Sequence[str], own: Sequence[str]) -> list[str]:
    cells = [axis_value(row[name]) for name in axes]
    columns = len(own) + (1 if len(own) > 1 else 6)
    if row["error"] is not None:
        return [*cells, *["-"] * columns]
    cells += [load_text(row) if name == "static_load" else _mean(row, name) for name in own]
    if len(own) > 1:
        return [*cells, _mean(row, "multiple")]
    figures = [row["static_steps_mean"], row["continuous_steps_mean"]]
    ratios = [row["multiple_p50"], row["multiple_of_totals"], row["limit_multiple"]]
    return [*cells, *map(_figure, figures), _mean(row, "multiple"), *map(_figure, ratios)]


def _mean(row: Mapping[str, Any], metric: str) -> str:
    mean = row[f"{metric}_mean"]
    return "-" if mean is None else with_interval(mean, row[f"{metric}_ci_low"], row[f"{metric}_ci_high"])


def _figure(value: float | None) -> str:
    return "-" if value is None else number(value, 0 if abs(value) >= 100 else 3)


def _verdict_lines(verdict: Verdict) -> list[str]:
    where = f" ({at(verdict.axes)})" if verdict.axes else ""
    worst = ", ".join(map(str, verdict.worst_replicates))
    figures = f"{verdict.metric} {verdict.condition}: {verdict_estimate(verdict)}"
    return [
        f"{verdict.verdict.upper():9}  {verdict.text}{where}",
        f"           {figures}; worst replicates {worst or 'none'}",
    ]

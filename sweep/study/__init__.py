"""The study: what is simulated, on which grid, and what is claimed of it. Read from a file, with every fault at once.

`schema` says what may stand in the tables, `axes` and `resolve` what the grid makes of them, `changes` what --set
does to a file. Here the parts are tied together. Points and cells are made in `grid`.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path as File
from typing import Any

from pydantic import ValidationError

from sweep.metrics import EXTRA
from sweep.study.axes import SECTIONS, Axis, paths_named, read_axes
from sweep.study.changes import Change, changed_text, make, parse_change, parse_text, plain_text, read_text
from sweep.study.columns import claimed, column_faults, columns, metric_faults
from sweep.study.faults import (
    Fault,
    Path,
    is_related,
    line,
    model_faults,
    number_faults,
    printable,
    refuse,
)
from sweep.study.files import read_files, without_files
from sweep.study.ranges import MOST_CELLS
from sweep.study.resolve import is_under, resolve
from sweep.study.runnable import why_not
from sweep.study.schema import (
    Chart,
    Claim,
    Precision,
    ServerSpec,
    Setting,
    StudyFile,
    WorkloadSpec,
    has_clock,
    is_served_study,
    slots_of,
)
from sweep.study.timing import clock_faults, kept_unasked

__all__ = [
    "Axis",
    "Chart",
    "Claim",
    "Precision",
    "ServerSpec",
    "Setting",
    "Study",
    "WorkloadSpec",
    "cells_of",
    "columns_of",
    "parse_study",
    "plain",
    "read_study",
    "setting",
    "settings",
    "slots_of",
    "study_hash_parts",
]

DEFAULT_REPLICATES = 1_000
SEMANTICS = 2  # up by one when the same study would give other rows: folders from before are then refused


@dataclass(frozen=True)
class Study:
    """A study without faults. `workload` and `server` are as given; the grid sets parts of them for each cell."""

    name: str  # of its file, as given
    title: str
    question: str
    seed: int
    replicates: int | None  # this or precision
    precision: Precision | None
    workload: dict[str, Any]
    server: dict[str, Any]
    grid: dict[str, Any]
    measure: tuple[str, ...]  # with what claims, charts and precision ask for
    axes: tuple[Axis, ...]
    claims: tuple[Claim, ...]
    charts: tuple[Chart, ...]
    source: str  # TOML that gives this very study
    notes: tuple[str, ...] = ()  # what the user should know of how it was read
    resolved: tuple[Setting, ...] = field(default=(), repr=False, compare=False)  # cell by cell, from the rest


def read_study(
    path: str | File, *, changes: Sequence[str] = (), seed: int | None = None, replicates: int | None = None
) -> Study:
    """The study in a file, with changes such as "server.slots=8" made first. Raises StudyError with every fault.

    seed, replicates : instead of the file's own; replicates also instead of a precision, which is noted.
    """
    name = printable(str(path))
    text = read_text(path, name)
    document = parse_text(text, name)
    made = [parse_change(change) for change in changes]
    set_by_user = [".".join(change.path) for change in made]
    notes = []
    made += [Change(("seed",), seed)] if seed is not None else []
    if replicates is not None:
        made.append(Change(("replicates",), replicates))
        if "precision" in document or any(change.path[0] == "precision" for change in made):
            made.append(Change(("precision",), None))
            notes.append(f"{name}: {replicates:,} replicates of each cell, instead of the precision asked for")
    make(document, made)
    files = read_files(document, File(path).parent)
    make(document, files.changes)
    study = _parse(document, name, set_by_user, files.faults)
    made += files.changes
    source = changed_text(text, made, document) if made else text
    return replace(study, source=source, notes=(*notes, *files.notes))


def parse_study(document: dict[str, Any], name: str) -> Study:
    """The study in plain data as TOML gives it. Raises StudyError with a line for every fault, each with `name`."""
    files = read_files(document, File())
    if files.changes:
        document = copy.deepcopy(document)
        make(document, files.changes)
    return replace(_parse(document, name, (), files.faults), source=plain_text(document), notes=tuple(files.notes))


def settings(study: Study) -> tuple[Setting, ...]:
    """Workload and server of each cell, row-major in the order of the axes."""
    return study.resolved


def setting(study: Study, values: Sequence[Sequence[Any]]) -> Setting:
    """Workload and server with these values, a tuple for each axis. Raises StudyError where they are not usable."""
    axes = tuple(
        axis._replace(values=(tuple(given),), labels=None) for axis, given in zip(study.axes, values, strict=True)
    )
    found, faults = resolve({"workload": study.workload, "server": study.server}, axes)
    refuse(study.name, faults)
    return found[0]


def columns_of(study: Study) -> dict[str, list[Any]]:
    """The axis columns, a value for each cell, and always the slots."""
    return columns(study.axes, study.resolved)


def cells_of(study: Study, claim: Claim) -> list[int]:
    """The cells that a claim speaks of, by index."""
    return [cell for cell, _ in claimed(claim, study.axes, columns_of(study))]


def study_hash_parts(study: Study) -> dict[str, Any]:
    """What the rows of a study depend on, as plain data; replicates, claims, charts and words are not among it."""
    axes = [{"paths": list(axis.paths), "values": [list(row) for row in axis.values]} for axis in study.axes]
    return {
        "semantics": SEMANTICS,
        "seed": study.seed,
        "workload": without_files(study.workload),
        "server": study.server,
        "axes": without_files(axes),
        "measure": list(study.measure),
        **_slots_found(study),
        **_files_read(study),
    }


def _slots_found(study: Study) -> dict[str, Any]:
    """The slots of each cell where they follow from memory: the package's facts on models and GPUs may change."""
    by_memory = study.server.get("slots") == "memory"
    return {"slots_found": [slots_of(setting.server) for setting in study.resolved]} if by_memory else {}


def _files_read(study: Study) -> dict[str, Any]:
    """What stands for the files of step times that are read by each cell; nothing where there are none."""
    steps = [setting.server.step for setting in study.resolved]
    digests = [None if step is None else step.digest() for step in steps]
    return {"files_read": [[None, digest] for digest in digests]} if any(digests) else {}


def plain(study: Study) -> dict[str, Any]:
    """The study as plain data for a manifest, each claim with the cells it speaks of."""
    by_name = columns_of(study)
    claims = [_plain_claim(claim, claimed(claim, study.axes, by_name)) for claim in study.claims]
    return {
        "title": study.title,
        "question": study.question,
        "seed": study.seed,
        "replicates": study.replicates,
        "precision": study.precision.model_dump(mode="json") if study.precision is not None else None,
        "measure": list(study.measure),
        "study": {"workload": study.workload, "server": study.server, "grid": study.grid},
        "axes": [_plain_axis(axis) for axis in study.axes],
        "claims": claims,
        "charts": [chart.model_dump(mode="json") for chart in study.charts],
    }


def _plain_claim(claim: Claim, cells: list[tuple[int, int | None]]) -> dict[str, Any]:
    """A claim with the cells it speaks of and, where it is on a difference, the cell that is taken from each."""
    found = {**claim.model_dump(mode="json", exclude_none=True), "cells": [cell for cell, _ in cells]}
    if not claim.minus:
        del found["minus"]
        return found
    return {**found, "minus_cells": [other for _, other in cells]}


def _plain_axis(axis: Axis) -> dict[str, Any]:
    return {
        "columns": list(axis.columns),
        "paths": list(axis.paths),
        "values": [list(row) for row in axis.values],
        "labels": None if axis.labels is None else [list(row) for row in axis.labels],
    }


def _parse(document: dict[str, Any], name: str, set_by_user: Iterable[str], of_files: Iterable[Fault]) -> Study:
    """The study but for its source. of_files : faults of the files that it names."""
    numbers = list(number_faults(document))
    if any(fault.kind == "deep" for fault in numbers):
        refuse(name, map(line, numbers))
    numbers = [fault for fault in numbers if fault.path[0] != "grid"]  # those stand among the faults of the axes
    document = copy.deepcopy(document)  # the study keeps parts of it
    wrong = {fault.path for fault in numbers}
    file, faults = _file(document)
    base = {key: document.get(key, {}) for key in SECTIONS}
    grid = document.get("grid", {})
    grid = grid if isinstance(grid, dict) else {}
    axes, axis_faults = read_axes(grid)
    paths = [path for axis in axes for path in axis.paths]
    lost: list[Path] = [tuple(path.split(".")) for path in paths_named(grid) if path not in paths]
    resolved, cell_faults = _resolve(base, axes, lost)
    columns_at_fault = column_faults(document, axes, resolved) if not axis_faults else ()
    measure = _measure(file, resolved) if file is not None else ()
    clocks_at_fault = list(clock_faults(resolved))
    lines = [
        *map(line, (*numbers, *of_files)),
        *(line(fault) for fault in faults if fault.path not in wrong),
        *(text for text, path in cell_faults.items() if path not in wrong),
        *map(line, axis_faults),
        *_overruled(set_by_user, paths),
        *(_nothing_runs(resolved) if not clocks_at_fault else ()),
        *map(line, clocks_at_fault),
        *map(line, metric_faults(document, resolved)),
        *(line(fault) for fault in columns_at_fault if fault.path not in wrong),
    ]
    refuse(name, lines)
    assert file is not None
    return Study(
        name=name,
        title=file.title or File(name).stem,
        question=file.question,
        seed=file.seed,
        replicates=(file.replicates or DEFAULT_REPLICATES) if file.precision is None else None,
        precision=file.precision,
        workload=file.workload,
        server=file.server,
        grid=file.grid,
        measure=measure,
        axes=axes,
        claims=file.claims,
        charts=file.charts,
        source="",
        resolved=resolved,
    )


def _file(document: dict[str, Any]) -> tuple[StudyFile | None, list[Fault]]:
    """The tables of a file each by itself, or their faults."""
    faults = []
    if "replicates" in document and "precision" in document:
        faults.append(Fault(("precision",), "replicates is given too; keep one of them"))
    try:
        return StudyFile.model_validate(document), faults
    except ValidationError as error:
        return None, faults + model_faults(error, StudyFile, document)


def _resolve(
    base: dict[str, Any], axes: tuple[Axis, ...], lost: list[Path]
) -> tuple[tuple[Setting, ...], dict[str, Path]]:
    """The cells, or their faults; but for those at the `lost` paths, whose axes could not be read."""
    cells = math.prod(len(axis.values) for axis in axes)
    if cells > MOST_CELLS:
        return (), {f"grid: {cells:,} cells; there may be at most {MOST_CELLS:,}": ("grid",)}
    if not all(isinstance(table, dict) for table in base.values()):
        return (), {}
    resolved, faults = resolve(base, axes)
    if not lost:
        return resolved, faults
    return (), {text: path for text, path in faults.items() if not any(is_related(path, other) for other in lost)}


def _overruled(set_by_user: Iterable[str], paths: Iterable[str]) -> Iterator[str]:
    for change, path in product(set_by_user, paths):
        if is_under(change, path):
            yield f'--set {printable(change)}: has no effect, the grid sets it; change grid."{path}" instead'


def _nothing_runs(resolved: tuple[Setting, ...]) -> Iterator[str]:
    served, timed = is_served_study(resolved), any(map(has_clock, resolved))
    reasons = [why_not(setting, served=served, timed=timed) for setting in resolved]
    if reasons and reasons[0] is not None and all(reasons):
        yield f"{reasons[0].key}: no cell can run: {reasons[0].text}"


def _measure(file: StudyFile, resolved: Iterable[Setting]) -> tuple[str, ...]:
    """What is kept beside the metrics of every study: what is asked for, then what is claimed or drawn.

    Where requests can be refused, how many were; and what a study with a clock keeps in any case.
    """
    named = [claim.metric for claim in file.claims]
    named += [file.precision.metric] if file.precision is not None else []
    named += [word or "" for chart in file.charts for word in (*chart.metrics, chart.x, chart.y, chart.color)]
    named += ["refused_requests"] if is_served_study(resolved) else []
    named += kept_unasked(resolved)
    return tuple(dict.fromkeys([*file.measure, *(metric for metric in EXTRA if metric in named)]))

"""From a study to its points, one for each workload, and their cells, one for each server that meets it.

Left out: which replicates of a point are simulated, and when; that is `runner`.
"""

import hashlib
import json
from typing import Any, NamedTuple

from sweep.model.distributions import Distribution
from sweep.model.trace_pack import Requests
from sweep.study import Study, columns_of, settings, study_hash_parts
from sweep.study.runnable import why_not
from sweep.study.schema import Setting, has_clock, is_served_study, slots_of
from sweep.study.server_cache import PrefixSpec
from sweep.study.server_rules import Rules, rules_of
from sweep.study.timing import Demand, Timing, demand_of, timing_of
from sweep.study.traced import TraceSpec


class Cell(NamedTuple):
    """A server that meets a workload. `error` says why it cannot run; where no request has a slot, it has 0 slots."""

    index: int  # type: ignore[assignment]  # row-major in the order of the axes; hides tuple.index
    axes: tuple[tuple[str, Any], ...]  # column and value
    slots: int
    step_ms: float | None
    context: int | None
    error: str | None
    rules: Rules | None = None  # of the server model; None where slots are the only limit
    timing: Timing | None = None  # of a study with a clock

    @property
    def not_drawn(self) -> str | None:
        """Why no workload can be drawn slot by slot, None where one can: where slots alone limit the server."""
        if self.error is not None:
            return f"cannot run: {self.error}"
        if self.rules is not None:
            return "has memory, or prompts beside decoding; only servers that slots alone limit are drawn"
        return None

    @property
    def drawn(self) -> bool:
        """Whether a workload can be drawn slot by slot."""
        return self.not_drawn is None


class Rows(NamedTuple):
    """Rows of a trace and how they are drawn; see `TraceSpec`."""

    requests: Requests
    order: str
    block: int


class Workload(NamedTuple):
    """What arrives, the same for all cells of a point."""

    seed: int
    requests: int
    output: Distribution
    prompt: Distribution | None = None  # own tokens, behind the prefix; None: one token
    prefix: PrefixSpec | None = None
    rows: Rows | None = None  # of a trace, in place of the prompt; `output` is then their outputs on their own
    demand: Demand | None = None  # of a study with a clock


class Point(NamedTuple):
    """A workload and the cells that meet it: they share its draws."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    workload: Workload
    cells: tuple[Cell, ...]
    measure: tuple[str, ...]  # metrics to keep beside those of every study
    study: str  # SHA-256 of what the rows depend on


class Chunk(NamedTuple):
    """Replicates `first` up to `stop`, not included, of a point."""

    point: Point
    first: int
    stop: int


def points(study: Study) -> tuple[Point, ...]:
    """The points in the order in which their workloads first appear among the cells."""
    places: dict[int, int] = {}  # by identity first: a workload may hold a long list of lengths
    by_value: dict[Workload, int] = {}
    timed = any(map(has_clock, settings(study)))
    cells: list[list[Cell]] = []
    for cell, setting in zip(_cells(study), settings(study), strict=True):
        spec = setting.workload
        if id(spec) not in places:
            rows = _rows(spec.trace)
            demand = demand_of(spec) if timed else None
            workload = Workload(study.seed, spec.requests, spec.output, spec.prompt, spec.shared_prefix, rows, demand)
            places[id(spec)] = by_value.setdefault(workload, len(by_value))
            cells += [[]] if len(cells) < len(by_value) else []
        cells[places[id(spec)]].append(cell)
    digest = _digest(study)
    return tuple(
        Point(index, workload, tuple(cells[index]), study.measure, digest) for workload, index in by_value.items()
    )


def _rows(trace: TraceSpec | None) -> Rows | None:
    return None if trace is None else Rows(trace.requests(), trace.order, trace.block)


def _cells(study: Study) -> list[Cell]:
    columns = columns_of(study)
    names = [name for axis in study.axes for name in axis.columns]
    rows = zip(*(columns[name] for name in names), strict=True) if names else [()]
    served, timed = is_served_study(settings(study)), any(map(has_clock, settings(study)))
    return [
        _cell(index, tuple(zip(names, row, strict=True)), setting, served=served, timed=timed)
        for index, (row, setting) in enumerate(zip(rows, settings(study), strict=True))
    ]


def _cell(index: int, axes: tuple[tuple[str, Any], ...], setting: Setting, *, served: bool, timed: bool) -> Cell:
    """The cell of a setting; `served` if any cell of the study takes the server model, so that all give its columns,
    `timed` if any has a clock.
    """
    server, reason = setting.server, why_not(setting, served=served, timed=timed)
    error = None if reason is None else reason.text
    rules = rules_of(setting) if served and error is None else None
    timing = timing_of(setting, served=served) if timed and slots_of(server) else None
    step_ms = None if timed else server.step_ms  # seconds are then not steps of one length
    return Cell(index, axes, slots_of(server), step_ms, server.context, error, rules, timing)


def _digest(study: Study) -> str:
    text = json.dumps(study_hash_parts(study), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

"""The Python door: run a study, read a results folder, and what can be asked of it."""

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from sweep.errors import InputError
from sweep.grid import Point, points
from sweep.manifest import manifest
from sweep.progress import Silent, scheduled_requests
from sweep.report.answer import sentence
from sweep.report.boundary import Boundary, boundaries
from sweep.report.claims import Verdict, check
from sweep.report.intervals import Interval
from sweep.report.stats import mean_intervals
from sweep.report.summary import summarise, write_cells
from sweep.report.words import plural
from sweep.results import Store
from sweep.runner import Watch, chunks
from sweep.runner import run as fill
from sweep.status import status
from sweep.study import Precision, Study, parse_study, read_study
from sweep.timelines import write_timelines
from sweep.verify import Verification, verify

if TYPE_CHECKING:
    from sweep.report.charts.look import Chart


def run(
    study: Study | str | Path | dict[str, Any],
    out: str | Path | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    *,
    fresh: bool = False,
    report: bool = True,
    keep: str = "rows",
    watch: Watch | None = None,
) -> "Results":
    """The results of a study, given as such, as its file or as its tables, simulated as far as `out` lacks them.

    out : folder of the results, made or continued; None is a temporary one that goes with the Results.
    executor : any concurrent.futures.Executor; None is a pool of `jobs` threads, one for each core unless told. A pool
        that would fork its processes, which can hang, gives way to one that spawns as many.
    fresh : drop what the folder holds. report : also make the charts and the page.
    keep : "rows", or "summary" for sums and histograms where there are too many rows to keep.
    Raises StudyError, FolderError, WorkerError and InputError.
    """
    if keep not in ("rows", "summary"):
        raise InputError(f'keep: must be "rows" or "summary", got {keep!r}')
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise InputError(f"jobs: must be a whole number of at least 1, got {jobs!r}")
    if not isinstance(study, Study | str | Path | dict):
        raise InputError(f"study: must be a Study, the path of a file or a dict of its tables, got {study!r:.60}")
    if isinstance(study, dict):
        study = parse_study(study, "study")
    elif not isinstance(study, Study):
        study = read_study(study)
    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="sweep-"))
        try:
            results = run(study, folder, executor, jobs, report=report, keep=keep, watch=watch)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        weakref.finalize(results, shutil.rmtree, folder, ignore_errors=True)
        return results
    folder = Path(out)
    cells = points(study)
    with Store.writing(folder, manifest(study, cells, keep), study.source, fresh=fresh) as store:
        precise = _Precise(study.precision)
        fill(cells, store, _rounds(study), precise, watch or Silent(), executor=executor, jobs=jobs)
        store.enter()
        frame = write_cells(store)
        write_timelines(store, frame, cells)
        if report:
            _write_report(store, frame)
    return Results(folder)


def plan(study: Study, folder: Path, keep: str = "rows") -> str:
    """What running a study would simulate, and take by a small pilot, in a few lines; nothing is written.

    keep : "rows", or "summary" for sums.
    """
    from sweep.pilot import forecast, text

    cells = points(study)
    most = max(_rounds(study))
    want = {point.index: most for point in cells if any(cell.error is None for cell in point.cells)}
    have = Store.open(folder).have() if (folder / "manifest.json").exists() else frozenset()
    todo = list(chunks(cells, have, want, keep))
    left = sum(map(scheduled_requests, todo))
    grid = [cell for point in cells for cell in point.cells]
    failed = [f"cell {cell.index} cannot run: {cell.error}" for cell in grid if cell.error is not None]
    replicates = f"{'' if study.precision is None else 'up to '}{plural(most, 'replicate')}"
    size = f"{plural(len(grid), 'cell')} of {plural(len(cells), 'point')}, {replicates} each"
    lines = [
        f"{study.title}: {size} -> {folder}",
        f"to simulate: {plural(len(todo), 'chunk')}, {plural(left, 'scheduled request')}",
    ]
    if todo:
        lines.append(text(forecast(cells, have, list(_rounds(study)), study.precision, keep=keep), keep=keep))
    return "\n".join([*lines, *failed])


def read(folder: str | Path) -> "Results":
    """The results in a folder that `run` wrote. Raises FolderError."""
    return Results(Path(folder))


class Results:
    """A results folder: its rows, its cells, the verdicts of its claims and its charts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._store = Store.open(folder)

    @property
    def manifest(self) -> dict[str, Any]:
        """The study as it was resolved: points, cells, claims, versions and shards."""
        return self._store.manifest

    @property
    def replicates(self) -> pl.LazyFrame:
        """One row for each cell and replicate, sorted; see the columns in `sweep.shards.schema`."""
        return self._store.rows()

    @cached_property
    def cells(self) -> pl.DataFrame:
        """One row for each cell: axis values, estimates with intervals, and what theory says."""
        try:
            return pl.read_parquet(self.folder / "cells.parquet", glob=False)
        except (OSError, pl.exceptions.PolarsError):  # absent or damaged, and perhaps not ours to write
            return summarise(self._store)

    @property
    def damaged(self) -> list[str]:
        """Shards that are not what was written, by name; left out of everything, and simulated again by `run`."""
        return self._store.damaged

    @property
    def failures(self) -> list[dict[str, Any]]:
        """What failed in the last run: `cell`, `error`, the replicates it first met and the number of `chunks`."""
        return list(self.manifest.get("failures", ()))

    def status(self) -> dict[str, Any]:
        """What is done and left, point by point, what failed and what is damaged, as plain data."""
        return status(self._store)

    def verify(self, sample: int = 8, seed: int | None = None) -> Verification:
        """What comes of simulating so many shards again, chosen at random by the seed, against those that are here."""
        return verify(self._store, sample, seed)

    def check(self) -> list[Verdict]:
        """The verdict on each claim in each cell that it speaks of."""
        return check(self._store)

    def boundaries(self) -> list[Boundary]:
        """Where along each numeric axis the verdict on a claim turns, with an interval."""
        return boundaries(self._store)

    def report(self) -> Path:
        """The page, made again from the folder with the summary and the charts."""
        self.__dict__.pop("cells", None)
        return _write_report(self._store)

    @property
    def charts(self) -> "dict[str, Chart]":
        """The pictures of the page by name, as Altair charts to look at or to change."""
        from sweep.report.figures import figures

        return {figure.name: figure.chart for figure in figures(self._store, self.cells, self.check())}

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer in a sentence, then the cells."""
        answer = sentence(self.cells, self.manifest, self.check())
        return f"<p><b>{escape(self.manifest['title'])}</b>: {escape(answer)}</p>{self.cells._repr_html_()}"

    def __repr__(self) -> str:
        return f"<Results of {self._store.manifest['title']!r} in {self.folder}>"


def _write_report(store: Store, cells: pl.DataFrame | None = None) -> Path:
    from sweep.report.page import write_report  # altair takes most of a second to import, and not every run needs it

    return write_report(store, cells)


class _Precise:
    """Whether every cell of a point has the precision asked for; always, where none was asked for."""

    def __init__(self, precision: Precision | None) -> None:
        self._precision = precision

    def __call__(self, store: Store, point: Point) -> bool:
        if self._precision is None:
            return True
        intervals = mean_intervals(store, point.index, self._precision.metric, self._precision.confidence)
        return all(self._meets(interval) for interval in intervals.values())

    def _meets(self, interval: Interval | None) -> bool:
        assert self._precision is not None
        if interval is None:
            return False
        low, high = interval
        return (high - low) / 2 <= self._precision.half_width_of((low + high) / 2)


def _rounds(study: Study) -> Iterator[int]:
    """Replicates after each round: as many as asked for, or doubling from the least to the most."""
    if study.precision is None:
        assert study.replicates is not None
        yield study.replicates
        return
    replicates = study.precision.min_replicates
    while replicates < study.precision.max_replicates:
        yield replicates
        replicates *= 2
    yield study.precision.max_replicates

"""Chunks to rows: which replicates are simulated together, on what, and in which order they are kept.

The boundaries of chunks follow from the study alone and every row is a pure function of the seed and its place, so the
bytes of a folder depend on neither the number of workers nor the order in which they finish.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweep.draws import outputs
from sweep.errors import WorkerError
from sweep.grid import Cell, Chunk, Point
from sweep.latencies import timed_columns, timed_ns
from sweep.machine import usable_cores
from sweep.manifest import versions
from sweep.model import lockstep
from sweep.model.distributions import Given, Lab
from sweep.model.lengths import look_up_of
from sweep.results import Span, Store, to_parquet
from sweep.schema import IN_SECONDS
from sweep.serving import served_columns, served_ns
from sweep.sums import summary_parquet
from sweep.workers import Outcome, execute, reason_of, refuse_forking


class Watch(Protocol):
    """Is told of the chunks of a round before it starts, then of each one that is kept."""

    def compiling(self) -> AbstractContextManager[None]: ...  # noqa: D102

    def plan(self, chunks: Sequence[Chunk]) -> None: ...  # noqa: D102

    def done(self, chunk: Chunk) -> None: ...  # noqa: D102


BLOCK = 128  # replicates that the kernels take at a time
MOST_ROWS = 2**20  # of a chunk: some 30 MB before compression
MOST_ROWS_SUMMED = 2**18  # where rows are summed and not kept, memory is what is to be saved
MOST_GIVEN = 2**22  # requests whose lengths are held at a time where they are not drawn in the kernel: 32 MB
CHUNK_NS = 2.5e8  # work of a chunk by the estimate below: short enough to interrupt, long enough to hide its cost

Array = NDArray[Any]
Enough = Callable[[Store, Point], bool]


def chunk_replicates(point: Point, keep: str = "rows") -> int:
    """Replicates in each chunk of a point: whole blocks, by a fixed estimate of the work and never by the machine."""
    ns_per_request = 1.5 + sum(_ns_per_request(cell, point) for cell in point.cells)
    by_work = CHUNK_NS / (ns_per_request * point.workload.requests)
    by_rows = (MOST_ROWS_SUMMED if keep == "summary" else MOST_ROWS) / len(point.cells)
    return max(BLOCK, int(min(by_work, by_rows)) // BLOCK * BLOCK)


def _ns_per_request(cell: Cell, point: Point) -> float:
    if cell.timing is not None:
        return timed_ns(cell, point.measure)
    return 0.1 + 0.015 * min(cell.slots, point.workload.requests, 200) if cell.rules is None else served_ns(cell)


def chunks(
    points: Iterable[Point], have: Collection[Span], want: Mapping[int, int], keep: str = "rows"
) -> Iterator[Chunk]:
    """The chunks that are missing for `want` replicates of each point (by its index), in order.

    Rows of more replicates than are wanted will do; sums of more cannot be cut.
    """
    there = {(span.point, span.first): span.stop for span in sorted(have)}
    for point in points:
        size = chunk_replicates(point, keep)
        for first in range(0, want.get(point.index, 0), size):
            stop = min(first + size, want[point.index])
            most = first + size if keep == "rows" else stop  # beyond the chunk: cut by another rule
            if not stop <= there.get((point.index, first), 0) <= most:
                yield Chunk(point, first, stop)


def simulate(chunk: Chunk, keep: str = "rows") -> bytes:
    """Rows of a chunk, or their summary, for every cell of its point that can run, as the bytes of a Parquet file."""
    point, count = chunk.point, chunk.stop - chunk.first
    cells = [cell for cell in point.cells if cell.error is None]
    columns = {
        "cell": np.repeat(np.array([cell.index for cell in cells], np.int64), count),
        "replicate": np.tile(np.arange(chunk.first, chunk.stop, dtype=np.int64), len(cells)),
        **_scheduled(chunk, cells),
    }
    if "multiple" not in columns:
        columns |= _ratios(columns, cells, count)
    if not set(IN_SECONDS).isdisjoint(point.measure):
        step_s = np.repeat([(cell.step_ms or np.nan) / 1000 for cell in cells], count)
        columns |= _seconds(columns, step_s)
    write = summary_parquet if keep == "summary" else to_parquet
    return write(columns, point.measure, _metadata(chunk, keep, len(cells)))


def _scheduled(chunk: Chunk, cells: Sequence[Cell]) -> dict[str, Array]:
    """What both schedulers made of a chunk, by the model that its study takes."""
    if cells[0].timing is not None:
        return timed_columns(chunk, cells)
    return _lockstep_columns(chunk, cells) if cells[0].rules is None else served_columns(chunk, cells)


def _metadata(chunk: Chunk, keep: str, cells: int) -> dict[str, str]:
    """What makes a shard say by itself which study, replicates and cells it is of, and what made it."""
    return {
        "sweep.study": chunk.point.study,
        "sweep.seed": str(chunk.point.workload.seed),
        "sweep.keep": keep,
        "sweep.point": str(chunk.point.index),
        "sweep.first": str(chunk.first),
        "sweep.stop": str(chunk.stop),
        "sweep.cells": str(cells),
        "sweep.versions": json.dumps(versions()),
    }


def work(chunk: Chunk, keep: str, client: Mapping[str, str]) -> Outcome:
    """The outcome of a chunk, whatever happens in it: where it fails, each cell by itself, so that the others go on.

    client : the versions that whoever asks has. Raises WorkerError where they are not those here.
    """
    if client != versions():
        differing = [
            f"{name} is {client.get(name)} here and {theirs} there"
            for name, theirs in versions().items()
            if client.get(name) != theirs
        ]
        raise WorkerError(f"a worker has other versions than this process: {'; '.join(differing)}; install the same")
    try:
        return Outcome(simulate(chunk, keep))
    except Exception as error:
        return _cell_by_cell(chunk, keep, reason_of(error))


def _cell_by_cell(chunk: Chunk, keep: str, reason: str) -> Outcome:
    """What is left of a chunk that failed when the cells that fail by themselves are taken out."""
    failures: dict[int, str] = {}
    fit: list[Cell] = []
    for cell in _that_run(chunk.point):
        try:
            simulate(_with_cells(chunk, [cell]), keep)
            fit.append(cell)
        except Exception as error:
            failures[cell.index] = reason_of(error)
    with suppress(Exception):
        if failures and fit:
            return Outcome(simulate(_with_cells(chunk, fit), keep), tuple(failures.items()))
    return Outcome(None, tuple((cell.index, failures.get(cell.index, reason)) for cell in _that_run(chunk.point)))


def _that_run(point: Point) -> list[Cell]:
    return [cell for cell in point.cells if cell.error is None]


def _with_cells(chunk: Chunk, cells: Sequence[Cell]) -> Chunk:
    return chunk._replace(point=chunk.point._replace(cells=tuple(cells)))


def _lockstep_columns(chunk: Chunk, cells: Sequence[Cell]) -> dict[str, Array]:
    steps = _steps(chunk, [cell.slots for cell in cells])
    return {
        "output_tokens": np.broadcast_to(steps.output_tokens, steps.static.shape).ravel(),  # no copy for one cell
        "longest_output_tokens": np.broadcast_to(steps.longest_output_tokens, steps.static.shape).ravel(),
        "static_steps": steps.static.ravel(),
        "continuous_steps": steps.continuous.ravel(),
    }


def _steps(chunk: Chunk, slots: list[int]) -> lockstep.Steps:
    workload, count = chunk.point.workload, chunk.stop - chunk.first
    if workload.rows is not None or isinstance(workload.output, Lab | Given):
        size = max(BLOCK, MOST_GIVEN // workload.requests // BLOCK * BLOCK)
        parts = [
            lockstep.given_steps(outputs(workload, first, min(size, chunk.stop - first)), slots)
            for first in range(chunk.first, chunk.stop, size)
        ]
        return lockstep.Steps(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))
    return lockstep.drawn_steps(
        look_up_of(workload.output), workload.seed, chunk.first, count, workload.requests, slots
    )


def _compile_for(point: Point) -> None:
    """Compiles what a point needs on a workload of a few requests, before several threads would wait for it."""
    requests = min([cell.slots for cell in point.cells if cell.error is None]) + 1
    small = point._replace(workload=point.workload._replace(requests=min(requests, point.workload.requests)))
    with suppress(Exception):  # it will come up again in the chunk that it belongs to
        simulate(Chunk(small, 0, 1))


def _ratios(columns: Mapping[str, Array], cells: Sequence[Cell], count: int) -> dict[str, Array]:
    """Multiple and utilisations; nan, hence null, where nothing ran."""
    names = "output_tokens", "static_steps", "continuous_steps"
    tokens, static, continuous = (columns[name].reshape(len(cells), count) for name in names)
    slots = np.array([[float(cell.slots)] for cell in cells])
    static_slots = np.array([[float(cell.rules.static_slots if cell.rules else cell.slots)] for cell in cells])
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "multiple": (static / continuous).ravel(),
            "static_utilisation": (tokens / (static * static_slots)).ravel(),
            "continuous_utilisation": (tokens / (continuous * slots)).ravel(),
        }


def _seconds(columns: Mapping[str, Array], step_s: Array) -> dict[str, Array]:
    """Seconds of both schedulers, where they are steps of one length; a study with a clock has them already."""
    steps = {"static_s": columns["static_steps"] * step_s, "continuous_s": columns["continuous_steps"] * step_s}
    seconds = {name: columns.get(name, values) for name, values in steps.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        return {**seconds, "multiple_s": seconds["static_s"] / seconds["continuous_s"]}


def run(
    points: tuple[Point, ...],
    store: Store,
    rounds: Iterable[int],
    enough: Enough,
    watch: Watch,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
) -> None:
    """Fills the store: after each of `rounds` (replicates a point, rising) goes on with the points not precise enough.

    Works on `jobs` threads, one for each usable core unless told, or on an executor of the caller's. What fails is
    noted in the store, cell by cell, and the rest goes on. Raises WorkerError where the executor can do no work.
    """
    if executor is not None:
        refuse_forking(executor)
    own = ThreadPoolExecutor(jobs or usable_cores()) if executor is None else None
    alive = [point for point in points if any(cell.error is None for cell in point.cells)]
    assert alive, "a study in which no cell can run is refused when it is read"
    failed: set[Span] = set()

    if own is not None:
        with watch.compiling():
            _compile_for(alive[0])

    def keep(chunk: Chunk, outcome: Outcome) -> None:
        span = Span(chunk.point.index, chunk.first, chunk.stop)
        for cell, reason in outcome.failures:
            store.fail(span, cell, reason)
            failed.add(span)
        if outcome.payload is not None:
            store.put(span, outcome.payload, partial=bool(outcome.failures))
        watch.done(chunk)

    try:
        for replicates in rounds:
            want = {point.index: replicates for point in alive}
            for point in alive:
                store.manifest["points"][point.index]["replicates"] = replicates
                store.manifest["points"][point.index]["rounds"].append(replicates)
            store.enter()
            todo = list(chunks(alive, store.have() | failed, want, store.keeps))
            watch.plan(todo)
            execute(todo, executor or own, partial(work, keep=store.keeps, client=versions()), keep)  # type: ignore[arg-type]
            alive = [point for point in alive if not enough(store, point)]
            if not alive:
                return
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)

"""Chunks to rows: which replicates are simulated together, on what, and in which order they are kept.

The boundaries of chunks follow from the study alone and every row is a pure function of the seed and its place, so the
bytes of a folder depend on neither the number of workers nor the order in which they finish.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweep.errors import WorkerError
from sweep.executors.workers import Outcome, execute, own_pool, reason_of
from sweep.grid import Cell, Chunk, Point
from sweep.manifest import versions
from sweep.model import lockstep
from sweep.model.distributions import Given, Lab
from sweep.model.lengths import look_up_of
from sweep.results import Store
from sweep.rows.arriving import timed_columns, timed_ns
from sweep.rows.draws import outputs
from sweep.rows.serving import served_columns, served_ns
from sweep.rows.summing import summary_parquet
from sweep.shards import Span, metrics, to_parquet


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
    indexes = [cell.index for cell in cells]
    column = partial(_column, _scheduled(chunk, cells), cells)
    metadata = _metadata(chunk, keep, len(cells))
    if keep == "summary":
        return summary_parquet(column, indexes, range(chunk.first, chunk.stop), point.measure, metadata)
    columns = {
        "cell": np.repeat(np.array(indexes, np.int64), count),
        "replicate": np.tile(np.arange(chunk.first, chunk.stop, dtype=np.int64), len(cells)),
        **{metric: column(metric) for metric in metrics(point.measure)},
    }
    return to_parquet(columns, point.measure, metadata)


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
        "output_tokens": _for_each(cells, steps.output_tokens),
        "longest_output_tokens": _for_each(cells, steps.longest_output_tokens),
        "static_steps": steps.static.ravel(),
        "continuous_steps": steps.continuous.ravel(),
    }


def _for_each(cells: Sequence[Cell], values: Array) -> Array:
    return values if len(cells) == 1 else np.tile(values, len(cells))


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


def _compile_for(point: Point, keep: str) -> None:
    """Compiles what a point needs on a workload of a few requests, before several threads would wait for it."""
    requests = min([cell.slots for cell in point.cells if cell.error is None]) + 1
    small = point._replace(workload=point.workload._replace(requests=min(requests, point.workload.requests)))
    with suppress(Exception):  # it will come up again in the chunk that it belongs to
        simulate(Chunk(small, 0, 1), keep)


def _column(scheduled: Mapping[str, Array], cells: Sequence[Cell], metric: str) -> Array:
    """A metric of all rows, as scheduled or made of what was: a ratio is nan, hence null, where nothing ran."""
    if metric in scheduled:
        return scheduled[metric]
    column = partial(_column, scheduled, cells)
    if metric in ("static_s", "continuous_s"):  # of steps of one length; a study with a clock has them already
        step_s = [(cell.step_ms or np.nan) / 1000 for cell in cells]
        return _times(column(f"{metric.removesuffix('_s')}_steps"), step_s)
    if metric == "multiple_s":
        return _ratio(column("static_s"), column("continuous_s"))
    if metric == "multiple":
        return _ratio(column("static_steps"), column("continuous_steps"))
    if metric == "static_utilisation":
        slots = [cell.rules.static_slots if cell.rules else cell.slots for cell in cells]
        return _share(column("output_tokens"), _times(column("static_steps"), slots))
    assert metric == "continuous_utilisation", metric
    return _share(column("output_tokens"), _times(column("continuous_steps"), [cell.slots for cell in cells]))


def _times(values: Array, by_cell: Sequence[float]) -> Array:
    """The values of each cell times a number of its own."""
    return (values.reshape(len(by_cell), -1) * np.array(by_cell, np.float64)[:, None]).ravel()


def _ratio(a: Array, b: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def _share(part: Array, whole: Array) -> Array:
    """The ratio, put where the whole was: fresh memory costs more than the division."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(part, whole, out=whole)


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
    own = own_pool(executor, jobs)
    pool = own or executor
    assert pool is not None
    alive = [point for point in points if any(cell.error is None for cell in point.cells)]
    assert alive, "a study in which no cell can run is refused when it is read"
    failed: set[Span] = set()

    if executor is None:
        with watch.compiling():
            _compile_for(alive[0], store.keeps)

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
            execute(todo, pool, partial(work, keep=store.keeps, client=versions()), keep)
            alive = [point for point in alive if not enough(store, point)]
            if not alive:
                return
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)

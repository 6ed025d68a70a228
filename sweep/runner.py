"""Chunks to rows: which replicates are simulated together, on what, and in which order they are kept.

The boundaries of chunks follow from the study alone and every row is a pure function of the seed and its place, so the
bytes of a folder depend on neither the number of workers nor the order in which they finish.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sweep.grid import Chunk, Point
from sweep.model import lockstep
from sweep.model.lengths import Lab, lab_lengths, look_up_of
from sweep.results import Span, Store, to_parquet


class Watch(Protocol):
    """Is told of the chunks of a round before it starts, then of each one that is kept."""

    def compiling(self) -> AbstractContextManager[None]: ...  # noqa: D102

    def plan(self, chunks: Sequence[Chunk]) -> None: ...  # noqa: D102

    def done(self, chunk: Chunk) -> None: ...  # noqa: D102


BLOCK = 128  # replicates that the kernels take at a time
MOST_ROWS = 2**20  # of a chunk: some 30 MB before compression
CHUNK_NS = 2.5e8  # work of a chunk by the estimate below: short enough to interrupt, long enough to hide its cost

Array = NDArray[Any]
Enough = Callable[[Store, Point], bool]


def usable_cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunk_replicates(point: Point) -> int:
    """Replicates in each chunk of a point: whole blocks, by a fixed estimate of the work and never by the machine."""
    slots = [min(cell.slots, point.workload.requests) for cell in point.cells]
    ns_per_request = 2.0 + sum(0.3 + 0.05 * min(places, 1000) for places in slots)
    by_work = CHUNK_NS / (ns_per_request * point.workload.requests)
    by_rows = MOST_ROWS / len(point.cells)
    return max(BLOCK, int(min(by_work, by_rows)) // BLOCK * BLOCK)


def chunks(points: Iterable[Point], have: Collection[Span], want: Mapping[int, int]) -> Iterator[Chunk]:
    """The chunks that are missing for `want` replicates of each point (by its index), in order."""
    longest = {(span.point, span.first): span.stop for span in sorted(have)}
    for point in points:
        size = chunk_replicates(point)
        for first in range(0, want.get(point.index, 0), size):
            stop = min(first + size, want[point.index])
            if longest.get((point.index, first), 0) < stop:
                yield Chunk(point, first, stop)


def simulate(chunk: Chunk, keep: str = "rows") -> bytes:
    """Rows of a chunk, for every cell of its point that can run, as the bytes of a Parquet file."""
    point, count = chunk.point, chunk.stop - chunk.first
    cells = [cell for cell in point.cells if cell.error is None]
    steps = _steps(chunk, [cell.slots for cell in cells])
    columns = {
        "cell": np.repeat(np.array([cell.index for cell in cells], np.int64), count),
        "replicate": np.tile(np.arange(chunk.first, chunk.stop, dtype=np.int64), len(cells)),
        "output_tokens": np.tile(steps.output_tokens, len(cells)),
        "longest_output_tokens": np.tile(steps.longest_output_tokens, len(cells)),
        "static_steps": steps.static.ravel(),
        "continuous_steps": steps.continuous.ravel(),
    }
    columns |= _ratios(columns, np.repeat([float(cell.slots) for cell in cells], count))
    columns |= _seconds(columns, np.repeat([(cell.step_ms or np.nan) / 1000 for cell in cells], count))
    metadata = {"sweep.study": point.study, "sweep.seed": str(point.workload.seed), "sweep.keep": keep}
    return to_parquet(columns, point.measure, metadata)


def _steps(chunk: Chunk, slots: list[int]) -> lockstep.Steps:
    _, requests, output = chunk.point.workload
    count = chunk.stop - chunk.first
    if isinstance(output, Lab):
        return lockstep.given_steps(lab_lengths(output.first_seed, chunk.first, count, requests), slots)
    seed = chunk.point.workload.seed
    return lockstep.drawn_steps(look_up_of(output), seed, chunk.first, count, requests, slots)


def _compile_for(point: Point) -> None:
    """Compiles what a point needs on a workload of a few requests, before several threads would wait for it."""
    requests = min([cell.slots for cell in point.cells if cell.error is None]) + 1
    small = point._replace(workload=point.workload._replace(requests=min(requests, point.workload.requests)))
    simulate(Chunk(small, 0, 1))


def _ratios(columns: Mapping[str, Array], slots: Array) -> dict[str, Array]:
    """Multiple and utilisations; nan, hence null, where nothing ran."""
    tokens, static, continuous = columns["output_tokens"], columns["static_steps"], columns["continuous_steps"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "multiple": static / continuous,
            "static_utilisation": tokens / (static * slots),
            "continuous_utilisation": tokens / (continuous * slots),
        }


def _seconds(columns: Mapping[str, Array], step_s: Array) -> dict[str, Array]:
    seconds = {"static_s": columns["static_steps"] * step_s, "continuous_s": columns["continuous_steps"] * step_s}
    with np.errstate(divide="ignore", invalid="ignore"):
        return {**seconds, "multiple_s": seconds["static_s"] / seconds["continuous_s"]}


def execute(
    todo: Iterable[Chunk],
    executor: Executor,
    done: Callable[[Chunk, bytes], None],
    *,
    in_flight: int,
    keep: str = "rows",
) -> None:
    """Simulates chunks on the executor and hands each payload to `done`, in this thread, as it comes.

    At most `in_flight` chunks are given out at a time, so memory does not grow with their number. An error, or an
    interrupt, drops the chunks that have not started; what came back before it has been handed on.
    """
    waiting = iter(todo)
    running: dict[Future[bytes], Chunk] = {}
    try:
        while True:
            while len(running) < in_flight and (chunk := next(waiting, None)) is not None:
                running[executor.submit(simulate, chunk, keep)] = chunk
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=lambda future: running[future][1:]):
                done(running.pop(future), future.result())
    finally:
        for future in running:
            future.cancel()


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

    Works on `jobs` threads, one for each usable core unless told, or on an executor of the caller's.
    """
    workers = jobs or usable_cores()
    own = ThreadPoolExecutor(workers) if executor is None else None
    alive = [point for point in points if any(cell.error is None for cell in point.cells)]
    assert alive, "a study in which no cell can run is refused when it is read"

    with watch.compiling():
        _compile_for(alive[0])

    def keep(chunk: Chunk, payload: bytes) -> None:
        store.put(Span(chunk.point.index, chunk.first, chunk.stop), payload)
        watch.done(chunk)

    try:
        for replicates in rounds:
            want = {point.index: replicates for point in alive}
            for point in alive:
                store.manifest["points"][point.index]["replicates"] = replicates
            todo = list(chunks(alive, store.have(), want))
            watch.plan(todo)
            execute(todo, executor or own, keep, in_flight=2 * workers)  # type: ignore[arg-type]
            alive = [point for point in alive if not enough(store, point)]
            if not alive:
                return
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)

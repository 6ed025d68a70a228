"""Chunks on an executor: few in flight, each result handed back in this thread, every failure kept and none fatal.

Knows nothing of what is done with a chunk; that is a function that `runner` gives. Any concurrent.futures.Executor
will do, dask.distributed's among them, whose scheduler gives the chunks of a lost worker to another.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from multiprocessing import get_context
from typing import NamedTuple

from sweep.errors import SweepError, WorkerError
from sweep.executors.machine import usable_cores
from sweep.grid import Chunk

ATTEMPTS = 3  # at a chunk whose worker is lost, or cannot answer
HOPELESS = 8  # chunks that failed on the executor before any succeeded: it can do none
LOOK_AGAIN_S = 5.0  # whether a cluster has more workers by now
REASON_LENGTH = 300


class Outcome(NamedTuple):
    """What became of a chunk: its bytes, None where no cell could be simulated, and why cells are missing from them."""

    payload: bytes | None
    failures: tuple[tuple[int, str], ...] = ()  # cell and reason


Work = Callable[[Chunk], Outcome]
Done = Callable[[Chunk, Outcome], None]


def execute(todo: Iterable[Chunk], executor: Executor, work: Work, done: Done) -> None:
    """Gives chunks to the executor and hands each outcome to `done`, in this thread, as it comes.

    At most two chunks for each worker are given out at a time, so memory does not grow with their number. An error of
    `done`, or an interrupt, drops the chunks that have not started; what came back before it has been handed on.
    Raises WorkerError where the executor can do no work.
    """
    waiting = iter(todo)
    running: dict[Future[Outcome], _Attempt] = {}
    succeeded = failed = 0
    try:
        while True:
            while len(running) < 2 * workers_of(executor) and (chunk := next(waiting, None)) is not None:
                running[_submit(executor, work, chunk)] = _Attempt(chunk, 1)
            if not running:
                return
            finished, _ = wait(running, timeout=LOOK_AGAIN_S, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=lambda future: running[future].place()):
                chunk, attempt = running.pop(future)
                lost = _lost(future)
                if lost is not None and attempt < ATTEMPTS:
                    running[_submit(executor, work, chunk)] = _Attempt(chunk, attempt + 1)
                    continue
                succeeded, failed = succeeded + (lost is None), failed + (lost is not None)
                if failed >= HOPELESS and not succeeded:
                    raise WorkerError(f"the workers cannot simulate any chunk: {lost}")
                done(chunk, future.result() if lost is None else _of_no_cell(chunk, lost))
    finally:
        for future in running:
            future.cancel()


def workers_of(executor: Executor) -> int:
    """How many chunks an executor works on at a time, as far as it tells; a cluster may grow and shrink."""
    client = getattr(executor, "_client", None)  # dask.distributed's
    if client is not None:
        return max(1, int(sum(client.nthreads().values())))
    return int(getattr(executor, "_max_workers", None) or usable_cores())


def own_pool(executor: Executor | None, jobs: int | None) -> Executor | None:
    """A pool to work on in place of the caller's; None where that one will do.

    Without one it is a pool of threads. One whose processes would be forked while threads run, as is the default of
    ProcessPoolExecutor on Linux before Python 3.14, gives way to as many processes that are spawned: a lock that a
    thread holds would stay closed in a fork, which then hangs for ever.
    """
    if executor is None:
        return ThreadPoolExecutor(jobs or usable_cores())
    context = getattr(executor, "_mp_context", None)
    if context is None or context.get_start_method() != "fork":
        return None
    return ProcessPoolExecutor(workers_of(executor), mp_context=get_context("spawn"))


def reason_of(error: BaseException) -> str:
    """The error in one line of printable text."""
    lines = error.lines if isinstance(error, SweepError) else [f"{type(error).__name__}: {error}"]
    text = " ".join("; ".join(lines).split())
    return "".join(c if c.isprintable() else "?" for c in text[:REASON_LENGTH])


class _Attempt(NamedTuple):
    chunk: Chunk
    number: int

    def place(self) -> tuple[int, int]:
        return self.chunk.point.index, self.chunk.first


def _submit(executor: Executor, work: Work, chunk: Chunk) -> Future[Outcome]:
    try:
        return executor.submit(work, chunk)
    except BrokenExecutor as error:
        raise _broken(error) from error
    except RuntimeError as error:  # no more threads, or the executor was shut down
        raise WorkerError(f"no chunk can be given to the workers: {reason_of(error)}; try fewer with --jobs") from error


def _lost(future: Future[Outcome]) -> str | None:
    """Why a chunk came back without an outcome, None where it has one. Raises WorkerError where none ever will."""
    if future.cancelled():
        return "the executor dropped the chunk"
    error = future.exception()
    if isinstance(error, WorkerError):
        raise error
    if isinstance(error, BrokenExecutor):
        raise _broken(error) from error
    return None if error is None else reason_of(error)


def _broken(error: BrokenExecutor) -> WorkerError:
    return WorkerError(
        f"a worker ended abruptly, killed or out of memory, and took the pool with it ({type(error).__name__}); what "
        "was finished is kept, run the study again to go on"
    )


def _of_no_cell(chunk: Chunk, reason: str) -> Outcome:
    cells = [cell.index for cell in chunk.point.cells if cell.error is None]
    return Outcome(None, tuple((cell, reason) for cell in cells))

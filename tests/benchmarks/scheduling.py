"""How much time is lost to scheduling: chunks that take 0.2 s and give back a megabyte, on a worker for each core.

python tests/benchmarks/scheduling.py [CHUNKS]
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

from sweep.executors.machine import usable_cores
from sweep.executors.workers import Outcome, execute

CHUNK_S = 0.2
PAYLOAD = 1_000_000


class Place(NamedTuple):
    """The part of a chunk that scheduling looks at."""

    index: int  # type: ignore[assignment]
    cells: tuple[()] = ()


class Waiting(NamedTuple):
    """A chunk whose work is to wait."""

    point: Place
    first: int
    stop: int


def work(_: Any) -> Outcome:
    """A payload after the time of a chunk."""
    time.sleep(CHUNK_S)
    return Outcome(bytes(PAYLOAD))


def chunks(count: int) -> Iterator[Any]:
    """So many chunks."""
    return (Waiting(Place(0), place, place + 1) for place in range(count))


def lost(executor: Executor, count: int, workers: int) -> float:
    """The share of time beyond that of the work itself, once the workers are up."""
    execute(chunks(2 * workers), executor, work, lambda *_: None)
    started = time.perf_counter()
    execute(chunks(count), executor, work, lambda *_: None)
    return (time.perf_counter() - started) * workers / (count * CHUNK_S) - 1


def main() -> None:
    """Prints a line for each kind of worker."""
    count, workers = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, usable_cores()
    with ThreadPoolExecutor(workers) as threads:
        print(f"{workers} threads: {lost(threads, count, workers):.1%} lost")
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes:
        print(f"{workers} processes: {lost(processes, count, workers):.1%} lost")
    from dask.distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        print(f"{workers} workers of Dask: {lost(client.get_executor(pure=False), count, workers):.1%} lost")


if __name__ == "__main__":
    main()

"""What running a study would take: replicates, seconds and bytes to expect, from a small pilot. Writes nothing.

The pilot simulates the first workloads of a few points, evenly spread over the study, on one core. Points between them
take after the nearest one, by the requests that they schedule. Leaves out charts and the page.
"""

import io
import math
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import polars as pl

from sweep.executors.machine import usable_cores
from sweep.grid import Chunk, Point
from sweep.progress import scheduled_requests
from sweep.report.intervals import defined, mean_and_sd
from sweep.report.needed import mean_decides
from sweep.report.words import plural
from sweep.runner import BLOCK, chunk_replicates, chunks, simulate
from sweep.shards import Span
from sweep.study.schema import Precision

MOST_POINTS = 8  # that are tried
PART = 8  # of a whole chunk, which takes some tenths of a second, is one such share simulated
MOST_SCHEDULED = 2**26  # requests that a pilot of one point schedules; longer workloads are cut for it


class Forecast(NamedTuple):
    """What is to be expected of a run. `replicates` of each point, by its index, those there are included."""

    replicates: dict[int, int]
    seconds: float
    bytes: int
    tried: int  # points


class _Trial(NamedTuple):
    """What the pilot found of one point."""

    point: Point
    seconds_per_request: float  # scheduled
    bytes_per_part: float  # a row, or where sums are kept a cell of a chunk
    needed: float  # replicates for the precision asked for


def forecast(
    points: Sequence[Point],
    have: Collection[Span],
    rounds: Sequence[int],
    precision: Precision | None,
    jobs: int | None = None,
    keep: str = "rows",
) -> Forecast:
    """What to expect of a run that goes on with the shards of `have` and keeps rows, or their "summary"."""
    alive = [point for point in points if any(cell.error is None for cell in point.cells)]
    step = math.ceil(len(alive) / MOST_POINTS)
    trials = {place: _tried(alive[place], precision, keep) for place in range(step // 2, len(alive), step)}
    nearest = {point.index: trials[min(trials, key=lambda at: abs(at - place))] for place, point in enumerate(alive)}
    want = {index: next((n for n in rounds if n >= trial.needed), rounds[-1]) for index, trial in nearest.items()}
    todo = list(chunks(alive, have, want, keep))
    seconds = sum(nearest[chunk.point.index].seconds_per_request * scheduled_requests(chunk) for chunk in todo)
    size = sum(nearest[chunk.point.index].bytes_per_part * _parts(chunk, keep) for chunk in todo)
    return Forecast(want, seconds / min(jobs or usable_cores(), max(1, len(todo))), round(size), len(trials))


def text(found: Forecast, jobs: int | None = None, keep: str = "rows") -> str:
    """The forecast in a line."""
    counts = sorted(set(found.replicates.values()))
    each = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    cores = jobs or usable_cores()
    size = next(
        f"{found.bytes / scale:,.3g} {unit}"
        for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
        if found.bytes >= scale or scale == 1
    )
    tried = plural(found.tried, "point")
    seconds = "less than a second" if found.seconds < 1 else f"about {float(f'{found.seconds:.2g}'):,g} s"
    replicates = "1 replicate" if counts == [1] else f"{each} replicates"
    on = f"on {plural(cores, 'core')}"
    kept = "rows" if keep == "rows" else "sums"
    return f"to expect, from a pilot of {tried}: {replicates} of each cell, {seconds} {on}, {size} of {kept}"


def _parts(chunk: Chunk, keep: str) -> int:
    """What the bytes of a chunk go along with: its rows, or the cells that sums are kept of."""
    cells = len(_that_run(chunk.point))
    return cells if keep == "summary" else cells * (chunk.stop - chunk.first)


def _tried(point: Point, precision: Precision | None, keep: str) -> _Trial:
    """One point's pilot, twice: the first run also compiles the kernels and makes the tables."""
    servers = len(_that_run(point))
    count = max(BLOCK, chunk_replicates(point, keep) // PART // BLOCK * BLOCK)
    requests = max(1, min(point.workload.requests, MOST_SCHEDULED // (count * servers)))
    chunk = Chunk(point._replace(workload=point.workload._replace(requests=requests)), 0, count)
    payload, seconds = b"", math.inf
    for _ in range(2):
        started = time.perf_counter()
        payload = simulate(chunk, keep)
        seconds = min(seconds, time.perf_counter() - started)
    rows = payload if keep == "rows" or precision is None else simulate(chunk)
    needed = _needed(rows, precision) if precision is not None else 0.0
    return _Trial(point, seconds / (count * requests * servers), len(payload) / _parts(chunk, keep), needed)


def _needed(payload: bytes, precision: Precision) -> float:
    """Replicates that the least sure cell needs, if its spread is that of the pilot."""
    needed = 0.0
    for _, rows in pl.read_parquet(io.BytesIO(payload)).group_by("cell"):
        values = defined(rows[precision.metric].to_numpy())
        if len(values) < 2:
            return math.inf
        centre, sd = mean_and_sd(values)
        half = precision.half_width_of(centre)
        if sd:
            needed = max(needed, mean_decides(values, centre - half, centre + half, precision.confidence) or math.inf)
    return needed


def _that_run(point: Point) -> list[object]:
    return [cell for cell in point.cells if cell.error is None]

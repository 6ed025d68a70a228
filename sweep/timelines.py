"""Which slot serves which request when: one workload under both schedulers, and timelines.parquet with two of them.

The file has the worst and the median workload of the main cell, for the report, which simulates nothing. Left out: how
they are drawn (`commands.replay` in letters, `report.charts.timeline` as a picture).
"""

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from sweep.grid import Cell, Point
from sweep.model.timeline import Bar, Span, continuous_bars, spans_of, static_bars, steps
from sweep.report.stats import columns_by_cell
from sweep.report.words import main_cell
from sweep.results import Store
from sweep.rows.arriving import times_of
from sweep.rows.draws import outputs
from sweep.writing import write_whole

MOST_REQUESTS = 5_000  # more than a picture can show
NAME = "timelines.parquet"


class Replay(NamedTuple):
    """One workload under both schedulers: its spans by scheduler, in `unit`, and the steps that each took."""

    requests: int  # with those that have no token, and so no span
    slots: int
    unit: str  # "s", or "steps" where no step time is known
    spans: dict[str, list[Span]]
    steps: dict[str, int]

    @property
    def over(self) -> dict[str, float]:
        """When the last request ends."""
        return {name: max((span.finish for span in spans), default=0) for name, spans in self.spans.items()}

    @property
    def arrives(self) -> bool:
        """Whether requests come over time, and do not all wait from the start."""
        return any(span.arrival > 0 for spans in self.spans.values() for span in spans)


def replay_of(lengths: Sequence[int], slots: int) -> Replay:
    """Lengths that all wait from the start, for slots that are the only limit, in steps."""
    bars = {"static": static_bars(lengths, slots), "continuous": continuous_bars(lengths, slots)}
    spans = {
        name: [Span(bar.request, bar.slot, 0, bar.first_step - 1, bar.last_step) for bar in found]
        for name, found in bars.items()
    }
    return Replay(len(lengths), slots, "steps", spans, {name: steps(found) for name, found in bars.items()})


def replay_at(point: Point, cell: Cell, replicate: int) -> Replay:
    """A workload of a point on the server of a cell that can be drawn."""
    if cell.timing is None:
        return replay_of(outputs(point.workload, replicate, 1)[0].tolist(), cell.slots)
    times = times_of(point, cell, replicate)
    spans = {name: spans_of(found, in_seconds=cell.timing.has_seconds) for name, found in times.items()}
    unit = "s" if cell.timing.has_seconds else "steps"
    steps_of = {name: int(found.steps[0]) for name, found in times.items()}
    return Replay(point.workload.requests, cell.slots, unit, spans, steps_of)


def write_timelines(store: Store, cells: pl.DataFrame, points: tuple[Point, ...]) -> None:
    """Writes the two workloads; nothing where they are too large, cannot be drawn, or no multiple was kept."""
    (store.folder / NAME).unlink(missing_ok=True)
    if store.manifest["keep"] != "rows":
        return
    index = main_cell(cells, store.manifest)
    point = next(point for point in points if any(cell.index == index for cell in point.cells))
    cell = next(cell for cell in point.cells if cell.index == index)
    if not cell.drawn or point.workload.requests > MOST_REQUESTS:
        return
    column = columns_by_cell(store, point.index, "multiple").get(index)
    if column is None or np.isnan(column.values).all():
        return
    order = np.argsort(column.values, kind="stable")[: np.isfinite(column.values).sum()]
    frames = []
    for role, place in (("worst", order[0]), ("median", order[(len(order) - 1) // 2])):
        replicate = int(column.replicates[place])
        labels = {"cell": index, "slots": cell.slots, "replicate": replicate, "role": role}
        found = rows_of(replay_at(point, cell, replicate), clock=cell.timing is not None)
        frames.append(found.select(*(pl.lit(value).alias(name) for name, value in labels.items()), pl.all()))
    sink = io.BytesIO()
    pl.concat(frames).cast({"cell": pl.Int64, "slots": pl.Int64, "replicate": pl.Int64}).write_parquet(sink)
    write_whole(store.folder / NAME, sink.getvalue())


def rows_of(replay: Replay, *, clock: bool) -> pl.DataFrame:
    """A row for each scheduler and request: its slot, and its first and last step; with a clock its moments."""
    rows = [(name, *span) for name, spans in replay.spans.items() for span in spans]
    numbers = {"request": pl.Int64, "slot": pl.Int64}
    if clock:
        moments = dict.fromkeys((f"{moment}_{replay.unit}" for moment in ("arrival", "start", "finish")), pl.Float64)
        return pl.DataFrame(rows, schema={"scheduler": pl.String, **numbers, **moments}, orient="row")
    bars = [(name, request, slot, start + 1, finish) for name, request, slot, _, start, finish in rows]
    return pl.DataFrame(bars, schema={"scheduler": pl.String, **dict.fromkeys(Bar._fields, pl.Int64)}, orient="row")

"""timelines.parquet: which slot serves which request when, for the worst and the median workload of the main cell.

The report draws them without simulating anything again.
"""

import io

import numpy as np
import polars as pl

from sweep.grid import Point
from sweep.model.timeline import Bar, continuous_bars, static_bars
from sweep.report.stats import columns_by_cell
from sweep.report.words import main_cell
from sweep.results import Store
from sweep.writing import write_whole
from sweep.rows.draws import outputs

MOST_REQUESTS = 5_000  # more than a picture can show
NAME = "timelines.parquet"


def write_timelines(store: Store, cells: pl.DataFrame, points: tuple[Point, ...]) -> None:
    """Writes the bars of the two workloads; nothing where they are too large, or where no multiple was kept."""
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
    rows = []
    for role, place in (("worst", order[0]), ("median", order[(len(order) - 1) // 2])):
        replicate = int(column.replicates[place])
        lengths = outputs(point.workload, replicate, 1)[0].tolist()
        for scheduler, bars in (
            ("static", static_bars(lengths, cell.slots)),
            ("continuous", continuous_bars(lengths, cell.slots)),
        ):
            rows += [(index, cell.slots, replicate, role, scheduler, *bar) for bar in bars]
    sink = io.BytesIO()
    pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(sink)
    write_whole(store.folder / NAME, sink.getvalue())


_SCHEMA = {
    "cell": pl.Int64, "slots": pl.Int64, "replicate": pl.Int64, "role": pl.String, "scheduler": pl.String,
    **dict.fromkeys(Bar._fields, pl.Int64),
}  # fmt: skip

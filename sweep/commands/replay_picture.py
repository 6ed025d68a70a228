"""One workload slot by slot as a picture in a file, for `sweep replay --picture`. Leaves out the drawing in letters."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sweep.errors import InputError
from sweep.model.timeline import Bar, continuous_bars, static_bars, steps
from sweep.report.charts import timeline
from sweep.report.charts.look import PICTURES, save_as
from sweep.timelines import MOST_REQUESTS

MOST_SLOTS = 330  # a line of the picture each


def write_picture(path: Path, lengths: Sequence[int], slots: int, title: str) -> None:
    """Writes both schedulers as SVG or PNG, by the ending of the path. Raises InputError where that cannot be."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--picture: {path} must end in {' or '.join(PICTURES)}")
    if len(lengths) > MOST_REQUESTS:
        raise InputError(f"--picture: {len(lengths):,} requests; a picture can show {MOST_REQUESTS:,}")
    if slots > MOST_SLOTS:
        raise InputError(f"--picture: {slots:,} slots; a picture can show {MOST_SLOTS:,}")
    schedules = {"static": static_bars(lengths, slots), "continuous": continuous_bars(lengths, slots)}
    static, continuous = map(steps, schedules.values())
    if not continuous:
        raise InputError("--picture: no request has a token, so there is nothing to draw")
    rows = [(name, *bar) for name, bars in schedules.items() for bar in bars]
    schema = {"scheduler": pl.String, **dict.fromkeys(Bar._fields, pl.Int64)}
    bars = pl.DataFrame(rows, schema=schema, orient="row")
    note = f"multiple {static / continuous:.3f}: {static:,} against {continuous:,} steps"
    save_as(timeline(bars, slots, title, note), path)

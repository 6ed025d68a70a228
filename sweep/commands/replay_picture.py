"""One workload slot by slot as a picture in a file, for `sweep replay --picture`. Leaves out the drawing in letters."""

from pathlib import Path

from sweep.errors import InputError
from sweep.report.charts import timeline
from sweep.report.charts.look import PICTURES, save_as
from sweep.report.charts.timeline import Window
from sweep.report.words import number
from sweep.timelines import MOST_REQUESTS, Replay, rows_of

MOST_SLOTS = 330  # a line of the picture each


def write_picture(path: Path, replay: Replay, title: str, shown: Window | None = None) -> None:
    """Writes both schedulers as SVG or PNG, by the ending of the path. Raises InputError where that cannot be.

    shown : the stretch of time that is drawn; None for all.
    """
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--picture: {path} must end in {' or '.join(PICTURES)}")
    if replay.requests > MOST_REQUESTS:
        raise InputError(f"--picture: {replay.requests:,} requests; a picture can show {MOST_REQUESTS:,}")
    if replay.slots > MOST_SLOTS:
        raise InputError(f"--picture: {replay.slots:,} slots; a picture can show {MOST_SLOTS:,}")
    static, continuous = replay.steps["static"], replay.steps["continuous"]
    if not continuous:
        raise InputError("--picture: no request has a token, so there is nothing to draw")
    note = f"multiple {static / continuous:.3f}: {static:,} against {continuous:,} steps"
    if replay.unit == "s":
        note += f"; {' against '.join(f'{number(over)} s' for over in replay.over.values())}"
    bars = rows_of(replay, clock=replay.unit == "s" or replay.arrives)
    save_as(timeline(bars, replay.slots, title, note, shown), path)

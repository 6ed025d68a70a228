"""One workload slot by slot, static batching above continuous, drawn with letters for any terminal."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters

from sweep.errors import InputError
from sweep.grid import points
from sweep.model.timeline import Span
from sweep.report.charts.timeline import Window, amount, middle
from sweep.report.words import number
from sweep.results import Store
from sweep.study import read_study
from sweep.timelines import Replay, replay_at

IDLE = "."
MOST_SLOTS = 64  # drawn; more are named and left out
SHOWN = 40  # requests that arrive in what is drawn of very many
ARRIVALS = "arrive"  # the name of the row that counts who comes


def drawing(replay: Replay, width: int, shown: Window | None = None) -> str:
    """Both schedulers on one scale of at most `width` columns: a letter for each request, a dot where a slot idles.

    Where requests arrive over time a row of figures counts those that do, column by column. shown : the stretch of time
    that is drawn; None for all, or of very many requests that arrive those in the middle.
    """
    longest = max(replay.over.values())
    stretch = shown or (middle(_came(replay), SHOWN) if replay.arrives else None)
    start, end = stretch or (0, longest)
    label = max(len(str(replay.slots)) + 6, len(ARRIVALS) + 1 if replay.arrives else 0)
    whole = replay.unit == "steps" and not replay.arrives and stretch is None
    column = _column(end - start, max(1, width - label), whole=whole)
    parts = [_schedule(name, replay, (start, end), column, label) for name in replay.spans]
    last = [_last_line(replay, column)]
    if stretch:
        told = f"{number(start)} to {amount(end, replay.unit)} of {amount(longest, replay.unit)}"
        last.append(f"Drawn are {told}; --from and --to draw another stretch")
    return "\n\n".join([*parts, "\n".join(last)])


def _came(replay: Replay) -> list[float]:
    return [span.arrival for span in replay.spans["continuous"]]


def _column(longest: float, most: int, *, whole: bool) -> float:
    """Steps or seconds of a column, so that there are at most so many: whole steps, or a round number."""
    if whole:
        return max(1, -(-int(longest) // most))
    least = longest / most or 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * (1 - 1e-12))


def _schedule(name: str, replay: Replay, shown: Window, column: float, label: int) -> str:
    spans, over = replay.spans[name], replay.over[name]
    start, end = shown[0], max(shown[0], min(over, shown[1]))
    columns = math.ceil((end - start) / column - 1e-9)
    rows = [f"{name}: {amount(over, replay.unit)}{_used(spans, over, replay)}"]
    if replay.arrives:
        rows.append(f"{ARRIVALS:<{label}}{_arrivals(spans, start, column, columns)}".rstrip())
    for slot in range(min(replay.slots, MOST_SLOTS)):
        mine = [span for span in spans if span.slot == slot and span.finish > start and span.start < end]
        head = f"slot {slot + 1:>{len(str(replay.slots))}}"
        rows.append(f"{head:<{label}}{_row(mine, (start, end), column, columns)}".rstrip())
    if replay.slots > MOST_SLOTS:
        rows.append(f"... and {replay.slots - MOST_SLOTS:,} slots more")
    return "\n".join(rows)


def _used(spans: Sequence[Span], over: float, replay: Replay) -> str:
    """How much of the slots' time is in use and, where requests arrive, how long one takes."""
    if not over:
        return ""
    share = sum(span.finish - span.start for span in spans) / (over * replay.slots)
    used = f", {share:.1%} of slot-{'steps' if replay.unit == 'steps' else 'time'} used"
    if not replay.arrives:
        return used
    mean = sum(span.finish - span.arrival for span in spans) / len(spans)
    return f"{used}, {amount(mean, replay.unit)} from arrival to last token on average"


def _last_line(replay: Replay, column: float) -> str:
    """The multiple, and what a column is."""
    static, continuous = replay.steps["static"], replay.steps["continuous"]
    multiple = f"{static / continuous:.3f}" if continuous else "undefined"
    wide = f"{column:g} s" if replay.unit == "s" else "1 step" if column == 1 else f"{column:g} steps"
    told = f"multiple {multiple} ({static:,} / {continuous:,} steps); 1 column is {wide}; {IDLE} is an idle slot"
    return f"{told}; figures count arrivals, + is ten or more" if replay.arrives else told


def _arrivals(spans: Sequence[Span], start: float, column: float, columns: int) -> str:
    """How many requests come in each column."""
    counts = [0] * columns
    for span in spans:
        place = int((span.arrival - start) // column)
        if 0 <= place < columns:
            counts[place] += 1
    return "".join(" " if not count else str(count) if count < 10 else "+" for count in counts)


def _row(spans: Sequence[Span], shown: Window, column: float, columns: int) -> str:
    """A slot's time, each column with the letter of the request that fills most of it."""
    start, end = shown
    shares: list[dict[str, float]] = [{IDLE: min(column, end - start - place * column)} for place in range(columns)]
    for span in spans:
        letter = ascii_letters[span.request % len(ascii_letters)]
        first, last = max(span.start, start) - start, min(span.finish, end) - start
        for place in range(int(first / column), min(columns, math.ceil(last / column))):
            covered = min(last, (place + 1) * column) - max(first, place * column)
            shares[place][letter] = shares[place].get(letter, 0) + covered
            shares[place][IDLE] -= covered
    return "".join(max(share, key=lambda letter: share[letter]) for share in shares)


def replay_in(folder: Path, cell: int, replicate: int) -> Replay:
    """A replicate of a cell in a results folder. Raises SweepError."""
    manifest = Store.open(folder).manifest
    study = read_study(folder / "study.toml")
    found = {candidate.index: (point, candidate) for point in points(study) for candidate in point.cells}
    if cell not in found:
        raise InputError(f"--cell: {folder} has cells 0 to {len(found) - 1}, got {cell}")
    point, server = found[cell]
    if server.not_drawn is not None:
        raise InputError(f"--cell: cell {cell} {server.not_drawn}")
    done = next(point["replicates"] for point in manifest["points"] if cell in point["cells"])
    if not 0 <= replicate < done:
        raise InputError(f"--replicate: {folder} has replicates 0 to {done - 1} of cell {cell}, got {replicate}")
    return replay_at(point, server, replicate)


def stretch(start: float | None, end: float | None, replay: Replay) -> Window | None:
    """The stretch of time that two options ask for, cut at the end; None where neither does. Raises InputError."""
    if start is None and end is None:
        return None
    longest = max(replay.over.values())
    shown = (start or 0.0, longest if end is None else min(end, longest))
    if not 0 <= shown[0] < shown[1] or shown[0] >= longest:
        told = f"{shown[0]:g} to {shown[1]:g}"
        raise InputError(f"--from, --to: must be a stretch within 0 to {longest:g} {replay.unit}, got {told}")
    return shown


def parse_lengths(text: str) -> list[int]:
    """Lengths in text such as "40,3,25,5" or "40 3 25 5". Raises InputError."""
    words = re.split(r"[\s,]+", text.strip())
    for word in words:
        if not re.fullmatch(r"\d{1,9}", word):
            raise InputError(f'--lengths: "{word[:40]}" is not a whole number of tokens; give them as in 40,3,25,5')
    return [int(word) for word in words]

"""One workload slot by slot, static batching above continuous, drawn with letters for any terminal."""

import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters

from sweep.errors import InputError
from sweep.grid import Cell, Workload, points
from sweep.model.timeline import Bar, continuous_bars, static_bars, steps
from sweep.results import Store
from sweep.rows.draws import outputs
from sweep.study import read_study

IDLE = "."
MOST_SLOTS = 64  # drawn; more are named and left out


def drawing(lengths: Sequence[int], slots: int, width: int) -> str:
    """Both schedulers on one scale of at most `width` columns: a letter for each request, a dot where a slot idles."""
    schedules = {"static": static_bars(lengths, slots), "continuous": continuous_bars(lengths, slots)}
    longest = max(map(steps, schedules.values()))
    label = len(str(slots)) + 6
    per_column = max(1, -(-longest // max(1, width - label)))
    parts = [_schedule(name, bars, slots, sum(lengths), per_column) for name, bars in schedules.items()]
    static, continuous = (steps(bars) for bars in schedules.values())
    multiple = f"{static / continuous:.3f}" if continuous else "undefined"
    unit = "1 column is 1 step" if per_column == 1 else f"1 column is {per_column} steps"
    parts.append(f"multiple {multiple} ({static:,} / {continuous:,} steps); {unit}; {IDLE} is an idle slot")
    return "\n\n".join(parts)


def _schedule(name: str, bars: Sequence[Bar], slots: int, tokens: int, per_column: int) -> str:
    total = steps(bars)
    used = f", {tokens / (total * slots):.1%} of slot-steps used" if total else ""
    rows = [f"{name}: {total:,} steps{used}"]
    for slot in range(min(slots, MOST_SLOTS)):
        mine = [bar for bar in bars if bar.slot == slot]
        rows.append(f"slot {slot + 1:>{len(str(slots))}} {_row(mine, total, per_column)}")
    if slots > MOST_SLOTS:
        rows.append(f"... and {slots - MOST_SLOTS:,} slots more")
    return "\n".join(rows)


def _row(bars: Sequence[Bar], total: int, per_column: int) -> str:
    """A slot's time, each column with the letter of the request that fills most of it."""
    columns = -(-total // per_column)
    shares: list[dict[str, int]] = [{IDLE: min(per_column, total - column * per_column)} for column in range(columns)]
    for bar in bars:
        letter = ascii_letters[bar.request % len(ascii_letters)]
        for column in range((bar.first_step - 1) // per_column, (bar.last_step - 1) // per_column + 1):
            start, stop = column * per_column, (column + 1) * per_column
            covered = min(bar.last_step, stop) - max(bar.first_step - 1, start)
            shares[column][letter] = shares[column].get(letter, 0) + covered
            shares[column][IDLE] -= covered
    return "".join(max(share, key=lambda letter: share[letter]) for share in shares)


def workload_in(folder: Path, cell: int, replicate: int) -> tuple[list[int], int]:
    """Lengths of a replicate in a results folder, and the slots of the cell that met them. Raises SweepError."""
    manifest = Store.open(folder).manifest
    study = read_study(folder / "study.toml")
    found: dict[int, tuple[Workload, Cell]] = {
        candidate.index: (point.workload, candidate) for point in points(study) for candidate in point.cells
    }
    if cell not in found:
        raise InputError(f"--cell: {folder} has cells 0 to {len(found) - 1}, got {cell}")
    workload, server = found[cell]
    if server.error is not None:
        raise InputError(f"--cell: cell {cell} cannot run: {server.error}")
    if server.timing is not None:
        raise InputError(f"--cell: cell {cell} has arrivals, an order or a step time; those are not drawn yet")
    if server.rules is not None:
        raise InputError(f"--cell: cell {cell} has prompts or memory; only servers that slots alone limit are drawn")
    done = next(point["replicates"] for point in manifest["points"] if cell in point["cells"])
    if not 0 <= replicate < done:
        raise InputError(f"--replicate: {folder} has replicates 0 to {done - 1} of cell {cell}, got {replicate}")
    return outputs(workload, replicate, 1)[0].tolist(), server.slots


def parse_lengths(text: str) -> list[int]:
    """Lengths in text such as "40,3,25,5" or "40 3 25 5". Raises InputError."""
    words = re.split(r"[\s,]+", text.strip())
    for word in words:
        if not re.fullmatch(r"\d{1,9}", word):
            raise InputError(f'--lengths: "{word[:40]}" is not a whole number of tokens; give them as in 40,3,25,5')
    return [int(word) for word in words]

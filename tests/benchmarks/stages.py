"""What each stage costs: draw, look-up, reduction, both schedulers, and then writing and summarising the rows.

    python tests/benchmarks/stages.py [--rounds 9] [--json FILE] [--page]

Every stage is run alone on a tile of the reference study, on one core, by processor time; medians over the rounds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
from numba import njit
from reference_study import REQUESTS, SEED, STUDY, grid_slots, look_up

from sweep import read_study, run
from sweep.grid import Chunk, points
from sweep.model import lockstep
from sweep.report.summary import summarise
from sweep.results import Store
from sweep.runner import simulate

LANES, TILE = int(lockstep.LANES), lockstep.TILES[0]
WORKLOADS = 12_800
Cost = tuple[str, float, str]


def kernel_costs(rounds: int) -> list[Cost]:
    """Nanoseconds a request of each stage of the kernel."""
    kind, table = np.uint16, lockstep._tables(look_up(), np.uint16)
    lengths = lockstep.draw_lengths(look_up(), SEED, 0, LANES, TILE).T.astype(kind).ravel()
    words = np.random.default_rng(SEED).integers(0, 2**32, (400, 4 * LANES), np.uint32)
    rows = np.uintp(TILE)

    def cost(name: str, function: Callable[..., Any], *arguments: Any, requests: int = TILE * LANES) -> Cost:
        drive = _many(function, len(arguments))
        return name, _ns(lambda: drive(300, *arguments), 300 * requests, rounds), "request"

    draw = (np.uint64(37), np.uint64(0), np.uint64(0), np.uint64(9), np.uint64(5), _lanes(4, np.uint32))
    fours, group, steps = _lanes(TILE // 4, kind), _lanes(1, kind), _lanes(1, np.int64)
    found = [
        cost("draw: Philox", lockstep._draw_words, *draw, requests=4 * LANES),
        ("look-up", _ns(lambda: _look_up_all(words, table, _lanes(4, kind)), words.size, rounds), "request"),
        cost("reduction: tokens, longest, longest of four", lockstep._count, lengths, rows, fours, group, steps),
        cost("static, 16 slots", lockstep._static, fours, rows // np.uintp(4), np.uintp(4), np.uintp(0), group, steps),
        cost("static, 15 slots", lockstep._static, lengths, rows, np.uintp(15), np.uintp(0), group, steps),
    ]
    found += [
        cost(f"continuous, {slots} slots", _continuous, lengths, rows, *_sorted(slots, kind)) for slots in grid_slots()
    ]
    for slots in (256, 1024, 10_000):
        found.append(_ring_cost(slots, rounds))
    return found


def _ring_cost(slots: int, rounds: int) -> Cost:
    """By difference, since a ring must fill before it is what it is in a long run."""
    requests, count = 5 * slots, 2**21 // slots // LANES * LANES + LANES
    both, draws = (
        _ns(
            lambda of=of: lockstep.drawn_steps(look_up(), SEED, 0, count, requests, of),
            count * requests,
            max(3, rounds // 3),
        )
        for of in ([slots], [])
    )
    return f"both schedulers, {slots:,} slots (ring)", both - draws, "request"


def row_costs(rounds: int) -> list[Cost]:
    """Nanoseconds a row of what comes after the kernel."""
    study = read_study(STUDY)
    (point,) = points(study)
    slots, many = grid_slots(), WORKLOADS * len(grid_slots())
    kernel = _ns(lambda: lockstep.drawn_steps(look_up(), SEED, 0, WORKLOADS, REQUESTS, slots), many, rounds)
    rows = _ns(lambda: simulate(Chunk(point, 0, WORKLOADS)), many, rounds)
    sums = _ns(lambda: simulate(Chunk(point, 0, WORKLOADS), "summary"), many, rounds)
    found = [
        ("kernel, 5 slot counts", kernel, "row"),
        ("columns and Parquet (--keep rows)", rows - kernel, "row"),
        ("columns, sums and histograms (--keep summary)", sums - kernel, "row"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        run(study, folder, report=False)
        store = Store.open(folder)
        cells = study.replicates * len(slots)
        found.append(("summary of the folder", _ns(lambda: summarise(store), cells, rounds), "row"))
    return found


@njit(nogil=True)
def _look_up_all(words: Any, table: Any, lengths: Any) -> None:
    for four in range(words.shape[0]):
        lockstep._look_up(words[four], table, lengths, np.uintp(0))


@njit(nogil=True)
def _continuous(lengths: Any, rows: Any, slots: Any, free: Any, late: Any, origin: Any) -> None:
    lockstep._continuous(lengths, rows, free, late)
    lockstep._rebase(slots, free, late, origin)


def _sorted(slots: int, kind: type[Any]) -> tuple[Any, ...]:
    return np.uintp(slots), _lanes(-(-slots // 4) * 4, kind), _lanes(4, kind), _lanes(1, np.int64)


def _lanes(rows: int, kind: type[Any]) -> Any:
    """Rows of lanes on a cache line, as the kernel has them at best."""
    spare = np.zeros(rows * LANES + 64, kind)
    start = -spare.ctypes.data % 64 // spare.itemsize
    return spare[start : start + rows * LANES]


def _many(function: Callable[..., Any], arguments: int) -> Callable[..., None]:
    """A compiled loop over a kernel, so that a call from Python is not what is measured."""
    names = ", ".join(f"a{index}" for index in range(arguments))
    scope: dict[str, Any] = {"function": function}
    exec(f"def drive(n, {names}):\n for _ in range(n): function({names})", scope)
    return njit(nogil=True)(scope["drive"])  # type: ignore[no-any-return]


def _ns(function: Callable[[], Any], divisor: int, rounds: int) -> float:
    """Median nanoseconds of processor time of a call after the first, for each of `divisor`."""
    function()
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) / divisor * 1e9


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    costs = [*kernel_costs(arguments.rounds), *row_costs(arguments.rounds)]
    of = machine.machine()
    rows = [[name, f"{ns:,.{3 if ns < 1 else 1}f}", f"a {per}"] for name, ns, per in costs]
    text = f"{machine.in_words(of)}\n\n{machine.table(['stage', 'ns on a core', ''], rows)}"
    print(text)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": of, "ns": {name: ns for name, ns, _ in costs}}, indent=1))
    if arguments.page:
        machine.write_section("stages", text)


if __name__ == "__main__":
    main()

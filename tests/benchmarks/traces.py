"""What `sweep trace` takes for files of two sizes, in each container, in order of time and out of it.

    python tests/benchmarks/traces.py [--rows 2_000_000,8_000_000] [--json FILE] [--page]

Processor time and the most memory of a process of its own; every file is read once before, so that all is compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import machine
import numpy as np
import polars as pl

ROWS = (2_000_000, 8_000_000)
SMALL = 1_000  # rows of the file that shows what the program itself takes
FILES = {  # whether some rows are late, and how the file is written
    "CSV": (False, pl.DataFrame.write_csv),
    "CSV, one row in 1,000 half a second late": (True, pl.DataFrame.write_csv),
    "JSON lines": (False, pl.DataFrame.write_ndjson),
    "Parquet": (False, pl.DataFrame.write_parquet),
}


def write(kind: str, rows: int, path: Path) -> None:
    """Writes requests in this project's own words, some 17 a second."""
    late, to_file = FILES[kind]
    to_file(_requests(rows, late=late), path)


def _requests(rows: int, *, late: bool) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    arrival_s = np.cumsum(rng.exponential(0.06, rows)).round(6)
    if late:
        arrival_s[::1000] = np.maximum(arrival_s[::1000] - 0.5, 0)
    prompt, output = (rng.lognormal(mean, 1, rows).astype(np.int64) + 1 for mean in (6.8, 4.9))
    return pl.DataFrame({"arrival_s": arrival_s, "prompt_tokens": prompt, "output_tokens": output})


def measure(path: Path) -> dict[str, float]:
    """Megabytes at the peak and seconds of processor time of `sweep trace` for a file."""
    started = subprocess.Popen([sys.executable, "-m", "sweep", "trace", str(path)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    assert status == 0, path
    started.returncode = 0
    return {"file_mb": path.stat().st_size / 1e6, "peak_mb": used.ru_maxrss * 1024 / 1e6, "s": used.ru_utime}


def results(rows: Sequence[int]) -> list[dict[str, Any]]:
    """What each kind of file takes at each size."""
    found = []
    # A process starts with the memory of the one that starts it, so files are written in another one.
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as other:
        path = Path(folder) / "requests"
        for kind in FILES:
            for count in (SMALL, *rows):
                other.submit(write, kind, count, path).result()
                measure(path) if count == SMALL else None
                found.append({"file": kind, "rows": count, **measure(path)})
    return found


def text(found: Sequence[dict[str, Any]], of: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    head = ["file", "rows", "MB of file", "MB of memory at the peak", "s"]
    lines = [
        [row["file"], f"{row['rows']:,}", f"{row['file_mb']:,.1f}", f"{row['peak_mb']:,.0f}", f"{row['s']:.1f}"]
        for row in found
    ]
    return f"{machine.table(head, lines)}\n\n{machine.in_words(of)}"


def main() -> None:
    """Measures, prints, and writes what was asked for."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", default=",".join(map(str, ROWS)))
    asked.add_argument("--json", type=Path)
    asked.add_argument("--page", action="store_true")
    given = asked.parse_args()
    of, found = machine.machine(), results([int(rows) for rows in given.rows.split(",")])
    print(text(found, of))
    if given.json:
        given.json.write_text(json.dumps({"machine": of, "traces": found}, indent=1))
    if given.page:
        machine.write_section("traces", text(found, of))


if __name__ == "__main__":
    main()

"""How the time grows: in threads, replicates, slots and cells, from end to end, and before anything is simulated.

    python tests/benchmarks/scaling.py [--requests 1e9] [--json FILE] [--page]

Processor time throughout, of all threads and child processes, so that a busy machine changes little; the best of three
for what is short. `--requests` is the smaller of the two runs from which the slope of `sweep run` is taken.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import machine
from reference_study import REQUESTS, SEED, SLOTS, STUDY, look_up

from sweep import run
from sweep.model import lockstep

CHUNK = 12_800
ROOT = Path(__file__).parents[2]
Rows = list[list[str]]


def threads() -> Rows:
    """Nanoseconds of processor time a request on one thread and on all cores; the same, if threads do not wait."""
    rows = []
    for count in sorted({1, machine.machine()["cores"]}):
        with ThreadPoolExecutor(count) as pool:
            ns = _cpu_s(lambda pool=pool: list(pool.map(_chunk, range(40)))) / (40 * CHUNK * REQUESTS) * 1e9
        rows.append([f"{count} thread{'s' if count > 1 else ''}", f"{ns:.2f}"])
    return rows


def replicates() -> Rows:
    """Nanoseconds a request and the most memory that a process needed, by replicates of one call."""
    program = """
import resource, sys, time
from reference_study import look_up
from sweep.model import lockstep
count = int(sys.argv[1])
lockstep.drawn_steps(look_up(), 37, 0, 128, 200, [16])
start = time.process_time()
lockstep.drawn_steps(look_up(), 37, 0, count, 200, [16])
seconds = time.process_time() - start
print(seconds / count / 200 * 1e9, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    rows = []
    for count in (10_000, 100_000, 1_000_000):
        command = [sys.executable, "-c", program, str(count)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout
        ns, mib = map(float, said.split())
        rows.append([f"{count:,} replicates", f"{ns:.2f}", f"{mib:.0f} MiB, {count * 48 / 2**20:.0f} of them results"])
    return rows


def slots() -> Rows:
    """Nanoseconds a request of draws and both schedulers, by slots; long enough that the queue lasts."""
    names = {lockstep.SORTED: "sorted lanes", lockstep.RING: "ring", lockstep.HEAP: "heap"}
    longest = int(look_up().values[-1])
    rows = []
    for places in (1, 4, 16, 64, 128, 234, 235, 512, 2_000, 10_000, 100_000):
        requests = max(REQUESTS, 4 * places)
        count = max(1, 2_000_000 // requests // 128) * 128
        steps = _cpu_s(lambda n=count, r=requests, p=places: lockstep.drawn_steps(look_up(), SEED, 0, n, r, [p]))
        rows.append(
            [f"{places:,} slots", f"{steps / count / requests * 1e9:.2f}", names[lockstep._way(places, longest)]]
        )
    return rows


def cells() -> Rows:
    """Microseconds a row of a whole run without a page, by the number of cells."""
    rows = []
    for count in (10, 100, 1000):
        study = _study(5000)
        study["grid"] = {
            "server.slots": list(range(4, 14)),
            "workload.requests": [REQUESTS + more for more in range(count // 10)],
        }
        seconds = _cpu_s(lambda study=study: run(study, report=False), times=1)
        rows.append(
            [f"{count:,} cells of 5,000 workloads", f"{seconds:.1f} s", f"{seconds / count / 5000 * 1e6:.2f} µs a row"]
        )
    return rows


def slope(requests: float) -> Rows:
    """What twice the requests take more, from end to end with sums kept, against the kernels alone."""
    seconds = []
    for times in (1, 2):
        study = _study(int(times * requests / REQUESTS))
        seconds.append(_cpu_s(lambda study=study: run(study, report=False, keep="summary"), times=1))
    ns = (seconds[1] - seconds[0]) / requests * 1e9
    own = (
        _cpu_s(lambda: lockstep.drawn_steps(look_up(), SEED, 0, 400_000, REQUESTS, [SLOTS]))
        / (400_000 * REQUESTS)
        * 1e9
    )
    return [[f"{requests:.0e} to {2 * requests:.0e} requests", f"{ns:.2f}", f"{own:.2f}", f"{ns / own:.2f}"]]


def starts() -> Rows:
    """Seconds, of processor time and as they passed, of what is done before and around the kernels."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = [sys.executable, "-m", "sweep"]
        small = [*sweep, "run", str(STUDY), "-o", f"{folder}/results", "--fresh", "--no-report", "--quiet"]
        cold = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/kernels"}
        return [
            ["sweep --help", *_command([*sweep, "--help"], dict(os.environ), 3)],
            ["first run of five_x.toml, all compiled", *_command(small, cold, 1)],
            ["the same again", *_command(small, cold, 3)],
        ]


def _command(command: list[str], environment: dict[str, str], times: int) -> list[str]:
    found = []
    for _ in range(times):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        found.append((cpu, time.perf_counter() - start))
    return [f"{min(cpu for cpu, _ in found):.2f}", f"{min(passed for _, passed in found):.2f}"]


def _chunk(number: int) -> Any:
    return lockstep.drawn_steps(look_up(), SEED, number * CHUNK, CHUNK, REQUESTS, [SLOTS])


def _study(workloads: int) -> dict[str, Any]:
    short = {"weight": 0.9, "distribution": "uniform", "low": 8, "high": 40}
    long = {"weight": 0.1, "distribution": "uniform", "low": 400, "high": 700}
    return {
        "title": "scaling",
        "seed": SEED,
        "replicates": workloads,
        "workload": {"requests": REQUESTS, "output": {"distribution": "mixture", "parts": [short, long]}},
        "server": {"slots": SLOTS},
    }


def _cpu_s(function: Callable[[], Any], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return min(seconds)


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=float, default=1e9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    _chunk(0)  # compiled before anything is timed
    parts = {
        "Threads": (["", "ns a request on a core"], threads()),
        "Replicates": (["", "ns a request on a core", "memory"], replicates()),
        "Slots": (["", "ns a request on a core", "times are kept in"], slots()),
        "Cells": (["", "processor time", ""], cells()),
        "From end to end, sums kept": (["", "ns a request more", "kernels alone", "ratio"], slope(arguments.requests)),
        "Starting": (["", "processor seconds", "seconds"], starts()),
    }
    of = machine.machine()
    tables = [f"**{name}**\n\n{machine.table(head, rows)}" for name, (head, rows) in parts.items()]
    text = "\n\n".join([machine.in_words(of), *tables])
    print(text)
    if arguments.json:
        record = {"machine": of, **{name: rows for name, (_, rows) in parts.items()}}
        arguments.json.write_text(json.dumps(record, indent=1))
    if arguments.page:
        machine.write_section("scaling", text)


if __name__ == "__main__":
    main()

"""Requests that arrive over time: lanes against one workload at a time, and what the rows of a study take of it.

    python tests/benchmarks/arrivals.py [--rounds 7] [--json FILE] [--page]

One core, processor time, medians over the rounds; all contenders take turns on the same requests. Checks first that all
give the same waits.
"""

import argparse
import heapq
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np
from reference_study import SEED, look_up

import sweep
from sweep.grid import Chunk, points
from sweep.model.arrival_patterns import Gaps
from sweep.model.arrivals import arrival_s
from sweep.model.arriving import continuous_times, static_times
from sweep.model.lockstep import draw_lengths
from sweep.model.steptime import Constant
from sweep.model.times import Requests, in_units
from sweep.rows import arriving, latencies
from sweep.rows.schedulers import run_on
from sweep.study import parse_study

SLOTS = (1, 4, 16, 64, 256, 1024)
WORKLOADS, LOAD = 32, 0.8  # as many as the rows of a study are made of at a time
STEP = Constant(0.02)
REPLICATES = 128
TURN_S = 0.02
WINDOW = latencies.Window(600, steady=True)
STUDY = {
    "seed": SEED,
    "replicates": REPLICATES,
    "measure": ["continuous_ttft_p95_s", "static_ttft_p95_s", "e2e_ratio", "continuous_waited_share"],
    "workload": {
        "requests": 3000,
        "output": {"distribution": "lognormal", "mean": 100, "cv": 1},
        "arrivals": {"process": "poisson", "load": 0.5, "horizon": "steady"},
    },
    "server": {"slots": 16, "step_ms": 20.0},
}
Turns = dict[str, tuple[Callable[[], Any], int]]


def kernel_turns(slots: int) -> Turns:
    """Both schedulers in lanes and one workload at a time, and a heap in Python, with how many requests each serves."""
    requests = 4096
    output = draw_lengths(look_up(), SEED, 0, WORKLOADS, requests)
    rate_per_s = LOAD * slots / output.mean() / STEP.step_s
    arrival = arrival_s(Gaps("exponential"), rate_per_s, SEED, 0, WORKLOADS, requests)
    same = np.zeros((1, 1))
    work = Requests(arrival, output, same.astype(np.int64), same)
    rising = work._replace(rank=np.tile(np.arange(requests, dtype=np.float64), (WORKLOADS, 1)))  # the same order
    gaps = np.diff(in_units(arrival, STEP)[0], prepend=0).tolist()
    lengths = output[0].tolist()
    for scheduler in (continuous_times, static_times):
        assert (scheduler(STEP, work, slots).start == scheduler(STEP, rising, slots).start).all()
    in_lanes = continuous_times(STEP, work, slots)
    assert python_waits(gaps, lengths, slots) == (in_lanes.start - in_lanes.arrival)[0].tolist()
    many = requests * WORKLOADS
    return {
        "continuous, lanes": (lambda: continuous_times(STEP, work, slots), many),
        "continuous, a heap": (lambda: continuous_times(STEP, rising, slots), many),
        "continuous, heapq in Python": (lambda: python_waits(gaps, lengths, slots), requests),
        "static, lanes": (lambda: static_times(STEP, work, slots), many),
        "static, one at a time": (lambda: static_times(STEP, rising, slots), many),
    }


def python_waits(gaps: list[float], lengths: list[int], slots: int) -> list[float]:
    """Waits under continuous batching with a heap of the times at which slots become free."""
    free, now, waits = [0.0] * slots, 0.0, []
    for gap, length in zip(gaps, lengths, strict=True):
        now += gap
        start = max(now, free[0])
        heapq.heapreplace(free, start + length)
        waits.append(start - now)
    return waits


def row_turns() -> Turns:
    """What the rows of a study with arrivals take, whole and by stages."""
    point = points(parse_study(STUDY, "arrivals"))[0]
    cell, many = point.cells[0], REPLICATES * point.workload.requests
    (first, work), *_ = arriving._pieces(Chunk(point, 0, REPLICATES))
    some, timing = work.outputs.size, cell.timing
    assert timing is not None
    requests = arriving._requests(point, timing, work, first, len(work.outputs))
    times = run_on(cell, "continuous", work, requests).times
    ttft = latencies.latency_s("ttft", times, work.outputs, WINDOW)
    return {
        "rows: both schedulers, two p95, two means, a share": (
            lambda: arriving.timed_columns(Chunk(point, 0, REPLICATES), [cell]),
            many,
        ),
        "draw of outputs": (lambda: arriving._drawn(point, 0, REPLICATES), many),
        "draw of arrivals": (lambda: arriving._requests(point, timing, work, first, len(work.outputs)), some),
        "continuous, 16 slots, from seconds to waits": (lambda: run_on(cell, "continuous", work, requests), some),
        "static, 16 slots, from seconds to waits": (lambda: run_on(cell, "static", work, requests), some),
        "one latency in seconds": (lambda: latencies.latency_s("e2e", times, work.outputs, WINDOW), some),
        "its mean": (lambda: latencies.mean_of(ttft), some),
        "its p95": (lambda: latencies.percentiles(ttft, [95]), some),
        "utilisation": (lambda: latencies.utilisation(times, cell.slots, WINDOW), some),
    }


def ns_in_turns(turns: Turns, rounds: int) -> dict[str, float]:
    """Median nanoseconds of processor time for each request, by contender; a turn is some calls of a contender."""
    calls = {name: 1 + int(TURN_S / _seconds(function, 1)) for name, (function, _) in turns.items()}
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, (function, requests) in turns.items():
            seconds[name].append(_seconds(function, calls[name]) / calls[name] / requests)
    return {name: statistics.median(times) * 1e9 for name, times in seconds.items()}


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        function()
    return time.process_time() - start


def in_words(of: dict[str, Any], kernels: dict[int, dict[str, float]], rows: dict[str, float]) -> str:
    """Both tables as Markdown."""
    names = list(kernels[SLOTS[0]])
    by_slots = [[f"{slots:,}", *(_ns(kernels[slots][name]) for name in names)] for slots in SLOTS]
    of_kernels = machine.table(["slots; ns a request on a core", *names], by_slots)
    of_rows = machine.table(["16 slots", "ns a request on a core"], [[name, _ns(ns)] for name, ns in rows.items()])
    return "\n\n".join([machine.in_words(of), of_kernels, of_rows])


def _ns(ns: float) -> str:
    return f"{ns:,.{1 if ns < 100 else 0}f}"


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    kernels = {slots: ns_in_turns(kernel_turns(slots), arguments.rounds) for slots in SLOTS}
    rows = ns_in_turns(row_turns(), arguments.rounds)
    of = machine.machine()
    text = in_words(of, kernels, rows)
    print(text)
    if arguments.json:
        found = {"machine": of, "sweep": sweep.__version__, "kernels": kernels, "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=1))
    if arguments.page:
        machine.write_section("arrivals", text)


if __name__ == "__main__":
    main()

"""Side by side: the kernels and others on the reference study, draws included, both schedulers.

    python tests/benchmarks/compare.py [--rounds 7] [--json FILE] [--chart FILE.svg] [--page]

Contenders take turns, a fraction of a second each, so that a busy machine is busy for all of them; what is shown are
medians over the rounds, and ratios are medians of the ratios within a round. Where others use the machine too, threads
wait for a core: so beside the rate that was measured stands the rate by processor time, with the cores to itself, and
ratios are of these. The C++ twin must give the very same steps. `--page` writes the table into docs/speed.md.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import machine
import numpy as np
import rivals
import twin
from reference_study import REQUESTS, SEED, SLOTS, grid_slots, look_up

from sweep.model import lockstep

CHUNK = 12_800  # workloads that a thread takes at a time
TURN_S = 0.4  # what each contender is given in a round


class Contender(NamedTuple):
    """`run` simulates a number of workloads, a multiple of `batch`; each counts for `servers` servers."""

    name: str
    run: Callable[[int], object]
    batch: int
    threads: int = 1
    servers: int = 1


class Result(NamedTuple):
    """Requests a second of a contender in each round, as time passed and by processor time."""

    contender: Contender
    rates: list[float]
    own_rates: list[float]


def contenders() -> list[Contender]:
    """Those that can run here, ours first."""
    grid = grid_slots()
    found = [
        *_on_threads("kernels", lockstep.drawn_steps, grid),
        *(_on_threads("C++ twin", twin.drawn_steps, grid) if twin.compiler() else []),
    ]
    rng = random.Random(SEED)
    found += [
        Contender("NumPy over replicates", lambda count: rivals.numpy_over_replicates(count, rng), 1000),
        Contender("Python, heapq and random", lambda count: rivals.event_heap(count, rng), 20),
        Contender("Python, step by step", lambda count: rivals.step_loop(count, rng), 2),
    ]
    if find_spec("simpy"):
        found.insert(-1, Contender("SimPy", lambda count: rivals.simpy_processes(count, rng), 2))
    return found


def _on_threads(name: str, kernel: Callable[..., object], grid: list[int]) -> list[Contender]:
    """A kernel on two threads, on one, and on two with several servers for each draw."""
    return [
        Contender(f"{name}, 2 threads", _chunks(kernel, 2, [SLOTS]), 2 * CHUNK, 2),
        Contender(f"{name}, 1 thread", _chunks(kernel, 1, [SLOTS]), CHUNK),
        Contender(f"{name}, {len(grid)} slot counts, 2 threads", _chunks(kernel, 2, grid), 2 * CHUNK, 2, len(grid)),
    ]


def _chunks(kernel: Callable[..., object], threads: int, slots: list[int]) -> Callable[[int], object]:
    table = look_up()
    pool = ThreadPoolExecutor(threads)

    def run(workloads: int) -> object:
        firsts = range(0, workloads, CHUNK)
        return list(pool.map(lambda first: kernel(table, SEED, first, CHUNK, REQUESTS, slots), firsts))

    return run


def check() -> None:
    """Raises AssertionError unless the twin gives the same steps and the rivals the same means."""
    slots = [*grid_slots(), 1, 3, 5]
    ours = lockstep.drawn_steps(look_up(), SEED, 10**6, 1000, 199, slots)
    if twin.compiler():
        for mine, theirs in zip(ours, twin.drawn_steps(look_up(), SEED, 10**6, 1000, 199, slots), strict=True):
            assert (mine == theirs).all(), "the C++ twin gives other steps"
    many = lockstep.drawn_steps(look_up(), SEED, 0, 100_000, REQUESTS, [SLOTS])
    for rival, workloads in (
        (rivals.numpy_over_replicates, 20_000),
        (rivals.event_heap, 500),
        (rivals.step_loop, 100),
        *([(rivals.simpy_processes, 100)] if find_spec("simpy") else []),
    ):
        for steps, mean in zip((many.static, many.continuous), rival(workloads, random.Random(1)), strict=True):
            assert abs(steps.mean() - mean) < 5 * steps.std() / np.sqrt(workloads), f"{rival.__name__} has another mean"


def measure(all_of_them: list[Contender], rounds: int) -> list[Result]:
    """Rates of each contender over the rounds; the first turn of each only finds how many workloads fill one."""
    counts = []
    for contender in all_of_them:
        contender.run(contender.batch)
        seconds, _ = _turn(contender, contender.batch)
        counts.append(max(1, round(TURN_S / seconds)) * contender.batch)
    results = [Result(contender, [], []) for contender in all_of_them]
    for _ in range(rounds):
        for contender, count, result in zip(all_of_them, counts, results, strict=True):
            seconds, cpu_seconds = _turn(contender, count)
            result.rates.append(count * REQUESTS / seconds)
            result.own_rates.append(count * REQUESTS * contender.threads / cpu_seconds)
    return results


def _turn(contender: Contender, count: int) -> tuple[float, float]:
    """Seconds that passed, and seconds of processor time on all threads."""
    start, cpu_start = time.perf_counter(), time.process_time()
    contender.run(count)
    return time.perf_counter() - start, time.process_time() - cpu_start


def ratio(above: Result, below: Result) -> float:
    """How many times faster one is by processor time, as the median of the ratios within rounds."""
    return statistics.median(a / b for a, b in zip(above.own_rates, below.own_rates, strict=True))


def table(results: list[Result]) -> str:
    """The results as Markdown."""
    rows = []
    for result in results:
        _, _, _, threads, servers = result.contender
        rate, own = statistics.median(result.rates), statistics.median(result.own_rates)
        faster = ratio(results[2] if servers > 1 else results[0], result)
        ns = 1e9 * threads / own
        rows.append(
            [
                result.contender.name,
                _short(rate),
                _short(own),
                _short(own * servers),
                f"{ns:,.{2 if ns < 10 else 0}f}",
                f"{faster:,.{2 if faster < 10 else 0}f}",
            ]
        )
    head = [
        "",
        "requests a second",
        "with the cores to itself",
        "times servers",
        "ns a request on a core",
        "kernels on 2 threads: times as fast",
    ]
    return machine.table(head, rows)


def threads_in_words(results: list[Result]) -> str:
    """What a second thread gives, as it was and by processor time."""
    passed = statistics.median(two / one for two, one in zip(results[0].rates, results[1].rates, strict=True))
    return (
        f"Two threads of the kernels gave {passed:.2f} times one on the cores that others left to them, and give "
        f"{ratio(results[0], results[1]):.2f} times one by processor time."
    )


def _short(rate: float) -> str:
    return (
        f"{rate / 1e6:,.0f} million" if rate >= 1e7 else f"{rate / 1e6:,.3g} million" if rate >= 1e6 else f"{rate:,.0f}"
    )


def chart(results: list[Result]) -> object:
    """Requests a second on a logarithmic axis, a dot for each round."""
    import altair as alt
    import polars as pl

    single = [result for result in results if result.contender.servers == 1]
    order = [result.contender.name for result in single]
    frame = pl.DataFrame(
        [{"name": result.contender.name, "rate": rate} for result in single for rate in result.own_rates]
    )
    base = alt.Chart(frame, width=480, height=28 * len(order), title="Simulated requests a second, both schedulers")
    return base.mark_tick(thickness=2, size=16).encode(
        alt.X("rate:Q").scale(type="log").title("requests a second (logarithmic)").axis(format="~s"),
        alt.Y("name:N").sort(order).title(None).axis(labelLimit=260),
    )


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    check()
    results = measure(contenders(), arguments.rounds)
    of = machine.machine()
    text = f"{machine.in_words(of)}\n\n{table(results)}\n\n{threads_in_words(results)}"
    print(text)
    if arguments.json:
        record = {"machine": of, "requests_per_s": {}, "with_the_cores_to_itself": {}}
        for result in results:
            record["requests_per_s"][result.contender.name] = result.rates
            record["with_the_cores_to_itself"][result.contender.name] = result.own_rates
        arguments.json.write_text(json.dumps(record, indent=1))
    if arguments.chart:
        chart(results).save(str(arguments.chart))  # type: ignore[attr-defined]
    if arguments.page:
        machine.write_section("compare", text)


if __name__ == "__main__":
    main()

"""The server kernel against its literal twin: recorded runs of an engine short of memory, and the reference.

    python tests/benchmarks/serving.py [--rounds 5] [--json FILE] [--page]

One core, processor time, medians over the rounds; both programs take turns on the same workload.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import reference_server

from sweep.model.server import Policy, serve_workloads

RUNS = Path(__file__).parents[1] / "golden" / "vllm"
COPIES = 200  # of a workload in one call of the kernel, as a chunk has many


def cases() -> dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]]:
    """Requests (prompt, output, arrival, prefix, group) and server of each case, by name."""
    found = {path.stem: _recorded(path) for path in sorted(RUNS.glob("mem_*.json"))}
    rng = random.Random(37)
    outputs = [rng.randint(400, 700) if rng.random() < 0.10 else rng.randint(8, 40) for _ in range(200)]
    for slots in (4, 16, 64):
        server = {"slots": slots, "block_size": 16, "blocks": 10_000, "token_budget": 2048}
        server |= {"prefix_caching": False, "chunked_prefill": True}
        found[f"reference, {slots} slots, paged"] = [(1, output, 0, 0, 0) for output in outputs], server
    return found


def _recorded(path: Path) -> tuple[list[tuple[int, ...]], dict[str, Any]]:
    golden = json.loads(path.read_text())
    fields = {"prompt_len": 0, "output_len": 0, "arrival": 0, "prefix_len": 0, "prefix_id": 0}
    config = golden["config"]
    server = {
        "slots": config["max_num_seqs"],
        "block_size": config["block_size"],
        "blocks": config["num_gpu_blocks"] - 1,
        "token_budget": config["max_num_batched_tokens"],
        "prefix_caching": config["enable_prefix_caching"],
        "chunked_prefill": config["enable_chunked_prefill"],
    }
    return [tuple(request.get(name, none) for name, none in fields.items()) for request in golden["requests"]], server


def measure(requests: list[tuple[int, ...]], server: dict[str, Any], rounds: int) -> tuple[float, float]:
    """Seconds of one workload in the kernel and in the twin."""
    prompt, output, arrival, prefix, group = (np.array([column] * COPIES) for column in zip(*requests, strict=True))
    reserved = np.zeros((1, 0), np.int64)
    policy = Policy(**server, refill_delay=0)

    def kernel() -> object:
        return serve_workloads(prompt, output, arrival.astype(np.float64), prefix, group, reserved, policy)

    def twin() -> object:
        return reference_server.serve(requests, **server)

    kernel()
    turns = [(_seconds(kernel) / COPIES, _seconds(twin)) for _ in range(rounds)]
    return statistics.median(turn[0] for turn in turns), statistics.median(turn[1] for turn in turns)


def _seconds(program: Callable[[], object]) -> float:
    started = time.process_time()
    program()
    return time.process_time() - started


def main() -> None:
    """Measures, prints a table and writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write the table into docs/speed.md")
    asked = parser.parse_args()
    on, rows, found = machine.machine(), [], {}
    for name, (requests, server) in cases().items():
        ours, theirs = measure(requests, server, asked.rounds)
        found[name] = {"kernel_s": ours, "twin_s": theirs, "requests": len(requests)}
        rows.append(
            [
                name,
                f"{ours / len(requests) * 1e9:,.0f}",
                f"{theirs / len(requests) * 1e6:,.0f}",
                f"{theirs / ours:,.0f}",
            ]
        )
    head = ["case", "ns a request, kernel", "microseconds a request, literal twin", "times as fast"]
    text = f"{machine.in_words(on)}\n\n{machine.table(head, rows)}"
    print(text)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": on, "cases": found}, indent=1))
    if asked.page:
        machine.write_section("serving", text)


if __name__ == "__main__":
    main()

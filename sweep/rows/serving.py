"""Rows of a chunk whose servers have prompts, memory or a delay: every cell by the server model, one after the other.

Left out: servers that slots alone limit, for which `lockstep` gives the same columns much sooner.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.grid import Cell, Chunk
from sweep.model.policies import Served, serve_on, shares
from sweep.model.rules import Rules
from sweep.rows.draws import workloads

Array = NDArray[Any]

MOST_DRAWN = 2**22  # requests drawn at a time: some 100 MB with all that is known of them

# Measured on one core of a small server: a request costs so much whatever its length, and more where blocks are shared.
REQUEST_NS = 400.0
SHARED_REQUEST_NS = 2_000.0


def served_columns(chunk: Chunk, cells: Sequence[Cell]) -> dict[str, Array]:
    """Columns of all metrics but ratios and seconds, a row for each cell and replicate in this order."""
    columns: list[list[dict[str, Array]]] = [[] for _ in cells]
    for first, count in _pieces(chunk):
        work = workloads(chunk.point.workload, first, count)
        for place, cell in enumerate(cells):
            assert cell.rules is not None, "a study is served as a whole or not at all"
            columns[place].append(server_columns(serve_on(work, cell.rules), cell.rules))
    rows = [piece for pieces in columns for piece in pieces]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def server_columns(served: Served, rules: Rules) -> dict[str, Array]:
    """Columns of all metrics but ratios and seconds, a row for each workload."""
    counters, parts = served.counters, shares(served, rules)
    steps = counters["engine_steps"]
    # a server that reserves counts in tokens; its pieces are shown as the blocks that they would fill
    per_block = rules.block_size if rules.kind == "reserve" else 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "output_tokens": served.output_tokens,
            "longest_output_tokens": served.longest_output_tokens,
            "static_steps": served.static_steps,
            "continuous_steps": steps,
            "prompt_tokens": served.prompt_tokens,
            "scheduled_tokens": counters["scheduled_tokens"],
            "preemptions": counters["preemptions"],
            "recomputed_tokens": counters["recomputed_tokens"],
            "prefix_hit_tokens": counters["hits_first"],
            "resumed_hit_tokens": counters["hits_resumed"],
            "refused_requests": counters["refused"],
            "max_blocks": -(-counters["max_blocks"] // per_block),
            "mean_blocks": counters["sum_blocks"] / per_block / steps,
            "peak_batch": counters["max_batch"],
            "mean_batch": counters["sum_batch"] / steps,
            "tokens_per_step": served.output_tokens / steps,
            "used_share": parts.used,
            "reserved_share": parts.reserved,
            "lost_share": parts.lost,
            "free_share": parts.free,
        }


def served_ns(cell: Cell) -> float:
    """About how long a request takes on a cell's server; fixed, since the boundaries of chunks follow from it."""
    return SHARED_REQUEST_NS if cell.rules is not None and cell.rules.prefix_caching else REQUEST_NS


def _pieces(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """First replicate and number of those that are drawn together."""
    most = max(1, MOST_DRAWN // chunk.point.workload.requests)
    for first in range(chunk.first, chunk.stop, most):
        yield first, min(most, chunk.stop - first)

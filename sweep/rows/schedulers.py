"""One scheduler on the server and the clock of a cell, by the kernels that its study takes.

Slots alone limit a server, and prompts are computed alone; or it has memory, prefixes and a token budget, and prompts
are computed beside decoding. Left out: what is measured of the times, which is in `latencies`, and of the cache, which
is in `serving`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.grid import Cell
from sweep.model.arriving import continuous_times, static_times
from sweep.model.policies import Served, Workloads, continuous_on, static_on
from sweep.model.times import AnyTimes, Requests
from sweep.rows.serving import server_columns

Scheduler = Literal["static", "continuous"]
SCHEDULERS: tuple[Scheduler, ...] = ("static", "continuous")


class Ran(NamedTuple):
    """When each request was served; on the server model also which ones were, (workloads, requests), and counters."""

    times: AnyTimes
    served: NDArray[np.bool_] | None = None  # None: all
    counters: Mapping[str, NDArray[np.int64]] = MappingProxyType({})


def run_on(cell: Cell, scheduler: Scheduler, work: Workloads, requests: Requests) -> Ran:
    """What a scheduler makes of requests."""
    timing, rules = cell.timing, cell.rules
    assert timing is not None
    how = {"max_wait_s": timing.max_wait_s, "padded": timing.pads}
    if rules is not None and scheduler == "continuous":
        return Ran(*continuous_on(work, requests, rules, timing.step_time))
    if rules is not None:
        return Ran(*static_on(work, requests, rules, timing.step_time, **how))  # type: ignore[arg-type]
    slots, charged = cell.slots, timing.charges_prompts
    if scheduler == "continuous":
        times = continuous_times(timing.step_time, requests, slots, charged=charged)
    else:
        times = static_times(timing.step_time, requests, slots, charged=charged, **how)  # type: ignore[arg-type]
    return Ran(times)


def slots_under(cell: Cell, scheduler: Scheduler) -> int:
    """Places there are: under static batching a group may have a size of its own."""
    return cell.rules.static_slots if cell.rules is not None and scheduler == "static" else cell.slots


def counted(cell: Cell, work: Workloads, static: Ran, continuous: Ran) -> dict[str, NDArray[Any]]:
    """Steps and tokens of each workload, and on the server model what its memory came to."""
    steps = {"static_steps": static.times.steps, "continuous_steps": continuous.times.steps}
    if cell.rules is None:
        tokens, longest = work.outputs.sum(axis=1), work.outputs.max(axis=1)
        return {"output_tokens": tokens, "longest_output_tokens": longest, **steps}
    assert continuous.served is not None
    outputs = np.where(continuous.served, work.outputs, 0)
    prompts = np.where(outputs > 0, work.prompts, 0).sum(axis=1)
    counters = dict(continuous.counters)
    served = Served(prompts, outputs.sum(axis=1), outputs.max(axis=1), static.times.steps, counters)
    return server_columns(served, cell.rules)

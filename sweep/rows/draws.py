"""The workloads of a chunk as arrays: outputs, prompts, prefix groups and arrivals, each from a stream of its own.

A draw depends on the seed, the stream, the replicate and the place of the request, so it does not matter in which
pieces the replicates are drawn. Where slots alone limit a server, `lockstep` draws and schedules in one go instead.
"""

import numpy as np
from numpy.typing import NDArray

from sweep.grid import Rows, Workload
from sweep.model.arrivals import arrival_s
from sweep.model.distributions import Distribution, Given, Lab
from sweep.model.lengths import lab_lengths, look_up_of
from sweep.model.listed import Uniform
from sweep.model.lockstep import OUTPUTS, PREFIXES, PROMPTS, draw_lengths
from sweep.model.policies import Workloads

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def outputs(workload: Workload, first: int, count: int) -> I64:
    """Output tokens of replicates `first` to `first + count`, (count, requests)."""
    if workload.rows is not None:
        return workload.rows.requests.output_tokens[_places(workload.rows, workload, first, count)]
    return _lengths(workload.output, workload, first, count, OUTPUTS)


def workloads(workload: Workload, first: int, count: int) -> Workloads:
    """All that a server with prompts needs to know of these replicates."""
    prefix = workload.prefix
    shape = (count, workload.requests)
    own = np.ones(shape, np.int64)
    if workload.prompt is not None:
        own = _lengths(workload.prompt, workload, first, count, PROMPTS)
    elif workload.rows is not None:
        of_rows = workload.rows.requests.prompt_tokens[_places(workload.rows, workload, first, count)]
        own = np.maximum(of_rows, 1)  # a file may say 0, which no server has
    groups = np.zeros((1, workload.requests), np.int64)
    if prefix is not None and prefix.groups > 1:
        groups = _lengths(Uniform(low=0, high=prefix.groups - 1), workload, first, count, PREFIXES)
    tokens = 0 if prefix is None else prefix.tokens
    return Workloads(own + tokens, outputs(workload, first, count), groups, tokens)


def arrivals(workload: Workload, rate_per_s: float | None, first: int, count: int) -> F64:
    """When the requests come in seconds, (count, requests), each replicate from 0 on; those of clients are not drawn.

    Each row of a trace brings the gap before it, so a stretch of the file keeps the times that it has there.
    """
    demand = workload.demand
    assert demand is not None
    if demand.arrivals.process != "trace":
        return arrival_s(demand.arrivals.pattern(), rate_per_s, workload.seed, first, count, workload.requests)
    assert workload.rows is not None
    assert demand.moments is not None
    assert rate_per_s is not None
    gaps_ns = demand.moments.gap_ns()[_places(workload.rows, workload, first, count)]
    gaps_ns[:, 0] = 0
    return np.cumsum(gaps_ns, axis=1) / 1e9 * (demand.moments.rate_per_s() / rate_per_s)


def _places(rows: Rows, workload: Workload, first: int, count: int) -> I64:
    """Which row of the trace each request is, (count, requests); after the last row comes the first."""
    there, requests = len(rows.requests.output_tokens), workload.requests
    if rows.order == "replay" and requests >= there:
        return np.tile(np.arange(requests, dtype=np.int64) % there, (count, 1))
    block = {"rows": 1, "blocks": min(rows.block, requests), "replay": requests}[rows.order]
    any_row = Uniform(low=0, high=there - 1)
    starts = draw_lengths(look_up_of(any_row), workload.seed, first, count, -(-requests // block), OUTPUTS)
    places = (starts[:, :, np.newaxis] + np.arange(block, dtype=np.int64)) % there
    return places.reshape(count, -1)[:, :requests]


def _lengths(spec: Distribution, workload: Workload, first: int, count: int, stream: int) -> I64:
    if isinstance(spec, Lab):
        return lab_lengths(spec.first_seed, first, count, workload.requests)
    if isinstance(spec, Given):
        return np.tile(np.resize(np.array(spec.values, np.int64), workload.requests), (count, 1))
    return draw_lengths(look_up_of(spec), workload.seed, first, count, workload.requests, stream)

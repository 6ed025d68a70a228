"""One workload on a server with a paged KV cache: who runs in each step, planned as a production engine plans it.

A step runs every request of the batch once: a decoding request computes one token, the newest may still be inside its
prompt and computes a chunk of it, all within a token budget. Keys and values live in blocks of `block_size` tokens.
Where a running request needs a block and none is free, the newest one is preempted: it lets go of its blocks, goes
ahead of all who wait, and later computes its text anew. With prefix caching, full blocks are found again by the text
they hold, also after their request has left, until they are taken for other text. Instead of taking blocks as they
fill, a server may also set aside at admission all that a request can ever need, as engines did before paging.

One workload at a time, on one thread, without the lock of the interpreter. Draws, studies and results are elsewhere;
so is static batching, and a server that slots alone limit has faster kernels.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.errors import InputError, SweepError
from sweep.model.compiled import kernel
from sweep.model.heaps import put_request, put_time, take_request, take_time
from sweep.model.rules import NO_LIMIT
from sweep.model.stepcost import NEVER, step_seconds_at
from sweep.model.steptime import CONSTANT, Constant, StepTime, computes_prompts, packed
from sweep.model.times import in_units, packed_in_units, unit_s

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_TOKENS = 10_000_000  # of a prompt or an output: sums over the steps of a run stay far inside int64
MOST_STEPS = 2**52  # of an arrival: the clock is a float64 and counts whole steps exactly
MOST_SECONDS = 1e9  # of an arrival: some thirty years, and a float64 still tells a tenth of a microsecond

COUNTERS = (  # of `serve_workloads`, in this order; sums are over engine steps
    "engine_steps",
    "preemptions",
    "scheduled_tokens",
    "recomputed_tokens",
    "refused",
    "max_blocks",
    "sum_blocks",
    "max_batch",
    "sum_batch",
    "sum_cached",
    "hits_first",
    "hits_resumed",
)

TIMES = ("come", "admitted", "first_token", "last_token")  # of `serve_over_time`, in this order, as `Run` has them

# Prefix caching gives blocks an identity. It is kept in three tables; -1 is nobody.
HELD, NAME = 0, 1  # `texts`: for each block of each request's text the block that holds it, and its name
OLDEST, NEWEST = 0, 1  # `names`: the blocks of that name, in the order of their naming, are a chain
NAMED, OLDER, NEWER, HOLDERS, BEFORE, AFTER = 0, 1, 2, 3, 4, 5  # `pool`: a block's name, neighbours in its chain, how
# many requests hold it, and neighbours among the free blocks: a ring closed by the last row, both its front and back


class Trace(NamedTuple):
    """What each engine step ran, (engine_steps,) each; blocks and what is in them include the tokens of that step."""

    batch: I64  # requests
    tokens: I64  # computed
    blocks: I64  # in use
    step: I64  # its number
    cached_tokens: I64  # in the blocks in use, those of a shared block once


class Seconds(NamedTuple):
    """When it all was, in seconds of the clock that arrivals are on; nan where there was no such moment."""

    arrival_s: F64  # (requests,); where all steps are equal, the step that it meets
    start_s: F64  # (requests,), the beginning of the first step that ran it
    first_token_s: F64  # (requests,)
    last_token_s: F64  # (requests,)
    makespan_s: float
    step_end_s: F64 | None = None  # (engine_steps,), with `record`


class Served(NamedTuple):
    """What a server did with a workload.

    Engine steps are steps that ran at least one token; step k runs from clock k - 1 to clock k, and steps skipped
    because nobody was there count in `makespan_steps` alone. Where steps take different times none is skipped, and step
    k is the k-th engine step. Means are over engine steps, nan if there are none.
    `scheduled_tokens` = prompts and outputs of the requests served, less one token each (the last is never computed)
    + `recomputed_tokens` - both kinds of prefix hits.
    """

    engine_steps: int
    makespan_steps: int
    preemptions: int
    scheduled_tokens: int
    recomputed_tokens: int  # computed once and thrown away by preemptions
    refused: int  # requests that could never end here, so never began
    max_blocks: int
    mean_blocks: float
    max_batch: int
    mean_batch: float
    mean_cached_tokens: float  # in the blocks in use, those of a shared block once
    prefix_hit_tokens_first: int  # found when a request was admitted for the first time
    prefix_hit_tokens_resumed: int  # found when it came back from a preemption: its own text included
    first_token_step: I64  # (requests,); 0 where no token came: refused, or no output asked for
    last_token_step: I64  # (requests,); likewise
    preemptions_per_request: I64  # (requests,)
    admission_events: I64 | None = None  # (admissions, 3): step, request, prefix-hit tokens; resumptions included
    preemption_events: I64 | None = None  # (preemptions, 2): step, request
    trace: Trace | None = None
    schedule: list[list[list[int]]] | None = None  # for each engine step [request, tokens], in the order of planning
    seconds: Seconds | None = None  # where a step time was given


class Requests(NamedTuple):
    """A workload as plain arrays, (requests,) each: tokens, and arrivals in the unit of the step cost."""

    prompt: I64
    output: I64
    arrival: F64
    prefix: I64  # the first tokens of the prompt that all requests of one group share
    group: I64  # 0 .. groups - 1


class Policy(NamedTuple):
    """What a server has room for, requests at a time, blocks and tokens a step, and how it plans."""

    slots: int
    block_size: int
    blocks: int
    token_budget: int
    prefix_caching: bool
    chunked_prefill: bool
    refill_delay: int


class Log(NamedTuple):
    """Where a run is written step by step; arrays of exact size, or empty ones for a run that is only counted."""

    steps: (
        F64  # (engine_steps, 5): requests, tokens computed, blocks in use, the clock at its end, tokens in the blocks
    )
    scheduled: I64  # (sum of batch, 2): request, tokens
    admissions: I64  # (admissions, 3): engine step, request, prefix-hit tokens
    preemptions: I64  # (preemptions, 2): engine step, request


class Line(NamedTuple):
    """Who goes first among those who wait, and who sends the requests."""

    rank: F64  # (requests,) the lowest first, equal ones by arrival; () where all are equal
    think: F64  # (requests,) from the end of a request to the next of its client; () without clients
    clients: int  # who send one request after the other; 0: requests come when they come


class Run(NamedTuple):
    """The counters of a run. Times are clock readings; those of requests are nan where there was no such moment."""

    engine_steps: int
    makespan: float
    served: int
    refused: int
    preemptions: int
    scheduled_tokens: int
    recomputed_tokens: int
    max_blocks: int
    sum_blocks: int
    max_batch: int
    sum_batch: int
    sum_cached: int
    hits_first: int
    hits_resumed: int
    first_token: F64
    last_token: F64
    preempted: I64
    come: F64  # arrivals, those of clients as they came about
    admitted: F64  # at the beginning of the first step
    first_step: I64  # the engine step of the first token, 0 where there was none
    last_step: I64


def serve(
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    *,
    arrival_step: npt.ArrayLike | None = None,
    arrival_s: npt.ArrayLike | None = None,
    prefix_tokens: npt.ArrayLike | None = None,
    prefix_group: npt.ArrayLike | None = None,
    slots: int,
    block_size: int,
    blocks: int,
    token_budget: int,
    prefix_caching: bool = False,
    chunked_prefill: bool = True,
    refill_delay: int = 0,
    reserve_tokens: npt.ArrayLike | None = None,
    step_time: StepTime | None = None,
    record: bool = False,
) -> Served:
    """What a server does with these requests, step by step, all counters exact.

    prompt_tokens, output_tokens : (requests,) whole numbers; a request without output takes no step.
    arrival_step : (requests,) a request with arrival a can run from step a + 1 on; by default all wait at 0.
    arrival_s : (requests,) arrivals in seconds, where there is a step time; those between two equal steps wait for the
        second one.
    prefix_tokens, prefix_group : (requests,) the first `prefix_tokens` of the prompt are the same text in all requests
        of that group; all other text is a request's own.
    slots, blocks, token_budget : the most requests running, blocks of `block_size` tokens, and tokens in a step.
    chunked_prefill : whether a prompt may be spread over steps; if not, it waits for a step with room for all of it.
    refill_delay : 0, or 1 for an engine that plans a step while the last one still runs: a request that has ended
        occupies its place and its blocks during the next step, unless it would be an empty one.
    reserve_tokens : (requests,) tokens set aside for each request from its admission to its end, in place of blocks as
        they fill: nobody is preempted. It goes with block_size = 1, so that `blocks` are tokens.
    step_time : what a step takes, to have `seconds` too.
    record : also give events, trace and schedule.

    A request that needs more blocks than there are, or without chunked prefill could not come back from a preemption
    because its text exceeds the token budget, is refused. Raises InputError.
    """
    faults: list[str] = []
    policy = _policy(faults, slots, block_size, blocks, token_budget, prefix_caching, chunked_prefill, refill_delay)
    work = _requests(faults, prompt_tokens, output_tokens, arrival_step, prefix_tokens, prefix_group)
    reserved = _reserved(faults, work, policy, reserve_tokens)
    arrival = _arrivals_on(faults, step_time, arrival_s, arrival_step, work)
    if faults:
        raise InputError(*faults)
    how = (reserved, *_first_come(), *policy, packed_in_units(step_time))
    given = work._replace(arrival=arrival)
    run = serve_one(*(*given, *how, *_log(0, 0, 0, 0)))
    served = _served(run, step_time)
    if not record:
        return served
    log = _log(run.engine_steps, run.sum_batch, run.served + run.preemptions, run.preemptions)
    serve_one(*(*given, *how, *log))  # the first run has said how much there is to write
    return _recorded(served, log, step_time)


def _arrivals_on(
    faults: list[str],
    step_time: StepTime | None,
    arrival_s: npt.ArrayLike | None,
    arrival_step: npt.ArrayLike | None,
    work: Requests,
) -> F64:
    """Arrivals on the clock of the kernel: in steps, or in seconds where steps take different times."""
    if step_time is not None:
        faults.extend(_faults_of(step_time))
    if arrival_step is not None and (arrival_s is not None or not isinstance(step_time, Constant | None)):
        faults.append("arrival_step: goes with equal steps, and without arrival_s; give one of them")
    if arrival_s is None:
        return work.arrival
    if step_time is None or faults:
        faults += [] if step_time else ["arrival_s: needs a step_time; give one, or arrival_step"]
        return work.arrival
    try:
        seconds = np.array(arrival_s, np.float64)
    except (TypeError, ValueError):
        seconds = np.full(1, np.nan)
    most_s = min(MOST_SECONDS, MOST_STEPS * step_time.step_s) if isinstance(step_time, Constant) else MOST_SECONDS
    if seconds.shape != work.prompt.shape or not ((seconds >= 0) & (seconds <= most_s)).all():
        faults.append(f"arrival_s: must be seconds from 0 to {most_s:.0e}, one for each request")
        return work.arrival
    return in_units(seconds, step_time)


def _faults_of(step_time: StepTime) -> list[str]:
    if not isinstance(step_time, StepTime):
        return [f"step_time: must be a Constant, an Affine, a Roofline or a StepTable, got {step_time!r}"]
    try:
        packed(step_time)
    except SweepError as error:
        return list(error.lines)
    known = computes_prompts(step_time)
    return [] if known else ["step_time: has no rows of prompts alone, and this server computes prompts; add some"]


def _served(run: Run, step_time: StepTime | None) -> Served:
    equal = isinstance(step_time, Constant | None)
    unit = unit_s(step_time)
    seconds = Seconds(
        run.come * unit,
        run.admitted * unit,
        run.first_token * unit,
        run.last_token * unit,
        run.makespan * unit,
    )
    return Served(
        engine_steps=run.engine_steps,
        makespan_steps=int(run.makespan) if equal else run.engine_steps,
        preemptions=run.preemptions,
        scheduled_tokens=run.scheduled_tokens,
        recomputed_tokens=run.recomputed_tokens,
        refused=run.refused,
        max_blocks=run.max_blocks,
        mean_blocks=run.sum_blocks / run.engine_steps if run.engine_steps else float("nan"),
        max_batch=run.max_batch,
        mean_batch=run.sum_batch / run.engine_steps if run.engine_steps else float("nan"),
        mean_cached_tokens=run.sum_cached / run.engine_steps if run.engine_steps else float("nan"),
        prefix_hit_tokens_first=run.hits_first,
        prefix_hit_tokens_resumed=run.hits_resumed,
        first_token_step=np.nan_to_num(run.first_token).astype(np.int64) if equal else run.first_step,
        last_token_step=np.nan_to_num(run.last_token).astype(np.int64) if equal else run.last_step,
        preemptions_per_request=run.preempted,
        seconds=None if step_time is None else seconds,
    )


def _recorded(served: Served, log: Log, step_time: StepTime | None) -> Served:
    batch, tokens, blocks, step, cached = np.ascontiguousarray(log.steps.T).astype(np.int64)
    end = log.steps[:, 3] * unit_s(step_time)
    if not isinstance(step_time, Constant | None):
        step = np.arange(1, batch.size + 1)
    for events in (log.admissions, log.preemptions):  # from the count of engine steps to the number of the step
        events[:, 0] = step[events[:, 0] - 1]
    ends = np.cumsum(batch)
    schedule = [log.scheduled[first:end].tolist() for first, end in zip(ends - batch, ends, strict=True)]
    return served._replace(
        admission_events=log.admissions,
        preemption_events=log.preemptions,
        trace=Trace(batch, tokens, blocks, step, cached),
        schedule=schedule,
        seconds=served.seconds and served.seconds._replace(step_end_s=end),
    )


def _log(steps: int, scheduled: int, admissions: int, preemptions: int) -> Log:
    return Log(
        steps=np.zeros((steps, 5), np.float64),
        scheduled=np.zeros((scheduled, 2), np.int64),
        admissions=np.zeros((admissions, 3), np.int64),
        preemptions=np.zeros((preemptions, 2), np.int64),
    )


def _policy(
    faults: list[str],
    slots: int,
    block_size: int,
    blocks: int,
    token_budget: int,
    prefix_caching: bool,
    chunked_prefill: bool,
    refill_delay: int,
) -> Policy:
    sizes = {"slots": slots, "block_size": block_size, "blocks": blocks, "token_budget": token_budget}
    flags = {"prefix_caching": prefix_caching, "chunked_prefill": chunked_prefill}
    for name, size in sizes.items():
        if not _is_whole(size) or not 1 <= size <= MOST_STEPS:
            faults.append(f"{name}: must be a whole number from 1 to {MOST_STEPS}, got {size!r}")
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            faults.append(f"{name}: must be True or False, got {flag!r}")
    if not faults and token_budget < slots:
        faults.append(f"token_budget: must be at least the slots, {slots}, so that all can decode, got {token_budget}")
    if not _is_whole(refill_delay) or refill_delay not in (0, 1):
        faults.append(f"refill_delay: must be 0 or 1, got {refill_delay!r}")
    if faults:
        return Policy(1, 1, 1, 1, False, True, 0)
    return Policy(
        int(slots),
        int(block_size),
        int(blocks),
        int(token_budget),
        bool(prefix_caching),
        bool(chunked_prefill),
        int(refill_delay),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _requests(
    faults: list[str],
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    arrival_step: npt.ArrayLike | None,
    prefix_tokens: npt.ArrayLike | None,
    prefix_group: npt.ArrayLike | None,
) -> Requests:
    prompt = _whole_numbers(faults, "prompt_tokens", prompt_tokens, None, 1, MOST_TOKENS)
    size = prompt.size or None  # unknown if the prompts are at fault
    output = _whole_numbers(faults, "output_tokens", output_tokens, size, 0, MOST_TOKENS)
    arrival = _whole_numbers(faults, "arrival_step", arrival_step, size, 0, MOST_STEPS)
    prefix = _whole_numbers(faults, "prefix_tokens", prefix_tokens, size, 0, MOST_TOKENS)
    group = _whole_numbers(faults, "prefix_group", prefix_group, size, 0, np.iinfo(np.int64).max)
    if not faults and (prefix > prompt).any():
        i = int(np.argmax(prefix > prompt))
        faults.append(
            f"prefix_tokens: must be within the prompt, got {prefix[i]} of {prompt[i]} tokens for request {i}"
        )
    dense = np.unique(group, return_inverse=True)[1].astype(np.int64)
    return Requests(prompt, output, arrival.astype(np.float64), prefix, dense)


def _reserved(faults: list[str], work: Requests, policy: Policy, reserve_tokens: npt.ArrayLike | None) -> I64:
    """What is set aside for each request, (requests,), or nothing for a server that pages."""
    if reserve_tokens is None:
        return np.zeros(0, np.int64)
    reserved = _whole_numbers(faults, "reserve_tokens", reserve_tokens, work.prompt.size or None, 1, MOST_STEPS)
    if policy.block_size != 1 or policy.prefix_caching:
        faults.append("reserve_tokens: needs block_size = 1, and no prefix_caching")
    short = reserved < work.prompt + work.output - 1 if not faults else np.zeros(1, np.bool_)
    if short.any():
        i = int(np.argmax(short))
        needed = work.prompt[i] + work.output[i] - 1
        faults.append(f"reserve_tokens: must hold the {needed} tokens of request {i}, got {reserved[i]}")
    return reserved


def _whole_numbers(
    faults: list[str], name: str, values: npt.ArrayLike | None, size: int | None, low: int, high: int
) -> I64:
    """Return `values` as int64, (requests,); None are zeros. What is wrong goes into `faults`."""
    nothing = np.zeros(size or 0, np.int64)
    if values is None:
        return nothing
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        faults.append(f"{name}: must be a list of whole numbers, one for each request")
        return nothing
    if array.ndim != 1 or array.size == 0:
        faults.append(f"{name}: must be a list of at least one whole number, got shape {array.shape}")
    elif array.dtype.kind not in "iu":
        faults.append(f"{name}: must be whole numbers, got {array.dtype}")
    elif size is not None and array.size != size:
        faults.append(f"{name}: must be one for each of the {size} requests, got {array.size}")
    elif array.min() < low or array.max() > high:
        i = int(np.argmax((array < low) | (array > high)))
        faults.append(f"{name}: must be from {low} to {high}, got {array[i]} for request {i}")
    else:
        return np.array(array, np.int64)  # a copy: the kernel would be compiled anew for arrays that are read-only
    return nothing


def serve_workloads(
    prompts: I64, outputs: I64, arrivals: F64, prefixes: I64, groups: I64, reserved: I64, policy: Policy
) -> tuple[I64, Flags]:
    """Counters of many workloads on one server, (workloads, COUNTERS), and which requests ended, (workloads, requests).

    prompts, outputs : (workloads, requests); the others may have one row that all workloads share.
    reserved : (workloads, requests) as for `serve_one`, or (1, 0) for a server that pages.
    """
    work, line = (prompts, outputs, arrivals, prefixes, groups, reserved), _first_come()
    nowhere = np.zeros((len(TIMES), 0, 0), np.float64)
    ranks, thinks, code = np.atleast_2d(line.rank), np.atleast_2d(line.think), packed_in_units(None)
    return _serve_rows(work, ranks, thinks, line.clients, policy, code, nowhere)


def serve_over_time(
    prompts: I64,
    outputs: I64,
    arrivals: F64,
    prefixes: I64,
    groups: I64,
    reserved: I64,
    ranks: F64,
    thinks: F64,
    clients: int,
    policy: Policy,
    code: F64,
) -> tuple[I64, Flags, F64]:
    """What `serve_workloads` gives, and the moments that `TIMES` names, (TIMES, workloads, requests).

    ranks, thinks : (workloads, requests) as for `serve_one`, or (1, 0).
    code : the packed time of a step; moments are in its unit, nan where there was none.
    """
    times = np.full((len(TIMES), *outputs.shape), np.nan)
    work = (prompts, outputs, arrivals, prefixes, groups, reserved)
    return *_serve_rows(work, ranks, thinks, clients, policy, code, times), times


def _serve_rows(
    work: tuple[I64, I64, F64, I64, I64, I64],
    ranks: F64,
    thinks: F64,
    clients: int,
    policy: Policy,
    code: F64,
    times: F64,
) -> tuple[I64, Flags]:
    outputs = work[1]
    counters = np.zeros((outputs.shape[0], len(COUNTERS)), np.int64)
    ended = np.zeros(outputs.shape, np.bool_)
    how = (ranks, thinks, clients, *policy, code)
    served_rows(*(*work, *how, *_log(0, 0, 0, 0), counters, ended, times))
    return counters, ended


def _first_come() -> Line:
    """All in order of arrival, which is given."""
    return Line(np.zeros(0, np.float64), np.zeros(0, np.float64), 0)


@kernel
def served_rows(
    prompts: I64,
    outputs: I64,
    arrivals: F64,
    prefixes: I64,
    groups: I64,
    reserved: I64,
    ranks: F64,
    thinks: F64,
    clients: int,
    slots: int,
    block_size: int,
    blocks: int,
    token_budget: int,
    prefix_caching: bool,
    chunked_prefill: bool,
    refill_delay: int,
    code: F64,
    step_log: F64,
    schedule_log: I64,
    admission_log: I64,
    preemption_log: I64,
    counters: I64,
    ended: Flags,
    times: F64,
) -> None:
    """Serve one workload after the other; write what `COUNTERS` names, who got all, and what `TIMES` names."""
    for row in range(outputs.shape[0]):
        run = serve_one(
            prompts[row],
            outputs[row],
            arrivals[row % arrivals.shape[0]],
            prefixes[row % prefixes.shape[0]],
            groups[row % groups.shape[0]],
            reserved[row % reserved.shape[0]],
            ranks[row % ranks.shape[0]],
            thinks[row % thinks.shape[0]],
            clients,
            slots,
            block_size,
            blocks,
            token_budget,
            prefix_caching,
            chunked_prefill,
            refill_delay,
            code,
            step_log,
            schedule_log,
            admission_log,
            preemption_log,
        )
        counters[row, 0] = run.engine_steps
        counters[row, 1] = run.preemptions
        counters[row, 2] = run.scheduled_tokens
        counters[row, 3] = run.recomputed_tokens
        counters[row, 4] = run.refused
        counters[row, 5] = run.max_blocks
        counters[row, 6] = run.sum_blocks
        counters[row, 7] = run.max_batch
        counters[row, 8] = run.sum_batch
        counters[row, 9] = run.sum_cached
        counters[row, 10] = run.hits_first
        counters[row, 11] = run.hits_resumed
        ended[row] = run.last_token == run.last_token
        if times.shape[1] > 0:
            times[0, row] = run.come
            times[1, row] = run.admitted
            times[2, row] = run.first_token
            times[3, row] = run.last_token


@kernel
def serve_one(
    prompt: I64,
    output: I64,
    arrival: F64,
    prefix: I64,
    group: I64,
    reserved: I64,
    rank: F64,
    think: F64,
    clients: int,
    slots: int,
    block_size: int,
    blocks: int,
    token_budget: int,
    prefix_caching: bool,
    chunked_prefill: bool,
    refill_delay: int,
    code: F64,
    step_log: F64,
    schedule_log: I64,
    admission_log: I64,
    preemption_log: I64,
) -> Run:
    """What the server does with a workload: counters, and the steps themselves where the logs have room for them.

    The fields of `Requests`, of `Line`, of `Policy`, and of `Log`, in this order: compiled code that is kept on disk
    must not refer to classes, or a later version that names them otherwise could not even find it out of date.

    reserved : (requests,) blocks set aside for each request while it is here, or () where they are taken as they fill.
    code : the packed time of a step (`steptime`); arrivals, thinking, token times and the makespan are in its unit.
    """
    even, step_cost = code[0] == CONSTANT, code[1]
    closed, ranked = clients > 0, rank.size > 0
    requests = prompt.size
    places = min(slots, requests)
    text = prompt + output - 1  # tokens that are computed; the last one generated never is
    # a block longer than every text is as good as one that just holds it, and keeps the table of phases short
    size = min(block_size, text.max() + 1)
    paging = reserved.size == 0
    most = blocks_of(text, size) if paging else reserved  # blocks of a request that it ever holds at a time
    fits = can_end(prompt, output, reserved, size, blocks, token_budget, chunked_prefill)
    queue = in_order_of_arrival(arrival, (fits | (output == 0)) if closed else fits)
    usable = min(blocks, most[queue].sum())  # with more, none would be taken twice
    caching = prefix_caching
    start, texts, names, pool = new_cache(prefix, group, text, queue, usable, size) if caching else no_cache()
    recording = step_log.size > 0

    # Requests: tokens known, prompt and generated; and of them computed (while decoding, see `lead`).
    known = prompt.copy()
    done = np.zeros(requests, np.int64)
    come = np.full(requests, np.nan) if closed else arrival
    admitted = np.full(requests, np.nan)
    first_token = np.full(requests, np.nan)
    last_token = np.full(requests, np.nan)
    first_step = np.zeros(requests, np.int64)
    last_step = np.zeros(requests, np.int64)
    preempted = np.zeros(requests, np.int64)
    # Waiting: the preempted, next one on top, then queue[joined:] as they arrive. All the preempted have a place,
    # since nobody new is admitted before them. With ranks those who have come stand in a heap between the two.
    stack = np.empty(places, np.int64)
    heap = np.empty(requests if ranked else 0, np.int64)
    stacked = waits = joined = 0
    thinking = np.zeros(clients, np.float64)  # a heap: when each client that is away sends its next request
    away = clients
    # Running, in order of admission: those that decode, then those in their prompt (one at most from step to step).
    # After s steps a decoding request has computed lead + s tokens, so that decoding changes nothing kept here.
    batch = np.empty(places, np.int64)
    chunk = np.empty(places, np.int64)  # prompt tokens of this step
    lead = np.empty(places, np.int64)
    ends = np.empty(places, np.int64)  # number of its last step
    phase = np.empty(places, np.int64)  # after s steps its blocks are full if s = phase (mod size)
    takers = np.zeros(size, np.int64)  # decoding requests of each phase
    running = decoding = 0
    next_end = NEVER  # once a request is preempted, perhaps too early
    # Ended, but on the server for one more step.
    ghosts = np.empty(places, np.int64)
    lingering = 0

    used = steps = finished = 0
    cached = 0  # tokens in the blocks in use: what the requests here have computed, less what they share
    clock = origin = 0.0  # where steps are equal the clock shows origin + (steps - origin_steps) * step_cost
    origin_steps = 0
    preemptions = scheduled = recomputed = max_blocks = sum_blocks = max_batch = sum_batch = sum_cached = 0
    hits_first = hits_resumed = admissions = 0

    while finished < queue.size:
        # wait: with nobody here the clock jumps to the next arrival
        coming = np.inf if joined == queue.size else (thinking[0] if closed else come[queue[joined]])
        if running + stacked + waits + lingering == 0 and coming > clock:
            clock = origin = coming
            origin_steps = steps
        # join: all who have come by now; without ranks they stand in the queue already
        while ranked and coming <= clock:
            i = queue[joined]
            joined += 1
            if closed:
                come[i] = coming
                away = take_time(thinking, away)
                if away == 0:
                    thinking[0] = np.inf
            if output[i] > 0:
                waits = put_request(heap, waits, rank, i)
            else:  # a client's; it has its answer at once
                finished += 1
                away = put_time(thinking, away, coming + think[i])
            coming = np.inf if joined == queue.size else (thinking[0] if closed else come[queue[joined]])
        preemptions_before, admissions_before = preemptions, admissions
        prompt_before = running > decoding

        # grow: each running request takes the blocks for its next tokens, or preempts the newest until it can
        due = steps % size
        prompt_need = 0
        if prompt_before:
            i = batch[decoding]
            chunk[decoding] = min(known[i] - done[i], token_budget - decoding)
            if paging:
                prompt_need = blocks_of(done[i] + chunk[decoding], size) - blocks_of(done[i], size)
        r = 0
        if used + takers[due] + prompt_need <= usable:
            used += takers[due] + prompt_need
            while caching and r < decoding:
                ahead = phase[r] - due
                if ahead == 0 or ahead == 1 or ahead == 1 - size:  # a block is taken, or becomes full
                    extend(pool, names, texts, start[batch[r]], lead[r] + steps, 1, size)
                r += 1
            if caching and prompt_before:
                extend(pool, names, texts, start[batch[decoding]], done[batch[decoding]], chunk[decoding], size)
            r = running
        while r < running:
            need = prompt_need if r >= decoding else int(phase[r] == due)
            while need > usable - used and running > r:
                running -= 1
                i = batch[running]
                if running < decoding:
                    decoding -= 1
                    takers[phase[running]] -= 1
                    done[i] = lead[running] + steps
                    known[i] = done[i] + 1
                held = blocks_of(done[i], size)
                freed = give_back(pool, texts, start[i], held) if caching else held
                used -= freed
                cached -= done[i] - (held - freed) * size
                if recording:
                    write(preemption_log, preemptions, steps + 1, i, 0)
                recomputed += done[i]
                done[i] = 0
                preempted[i] += 1
                preemptions += 1
                stack[stacked] = i
                stacked += 1
            if running > r:
                used += need
                if caching and r >= decoding:
                    extend(pool, names, texts, start[batch[r]], done[batch[r]], chunk[r], size)
                elif caching and (phase[r] - due) % size <= 1:
                    extend(pool, names, texts, start[batch[r]], lead[r] + steps, 1, size)
            r += 1
        tokens = decoding
        if running > decoding:
            done[batch[decoding]] += chunk[decoding]
            tokens += chunk[decoding]

        # admit: in order, while the whole known text of the next one fits into the free blocks
        left = token_budget - tokens
        waiting = True
        while preemptions == preemptions_before and left > 0 and running + lingering < places:
            waiting = stacked + waits > 0 or coming <= clock
            if not waiting:
                break
            i = stack[stacked - 1] if stacked > 0 else (heap[0] if ranked else queue[joined])
            found, found_held = look_up(pool, names, texts, start[i], (known[i] - 1) // size) if caching else (0, 0)
            rest = known[i] - found * size
            need = blocks_of(known[i], size) if paging else reserved[i]
            if need - found_held > usable - used or (rest > left and not chunked_prefill):
                break
            if stacked > 0:
                stacked -= 1
            elif ranked:
                waits = take_request(heap, waits, rank)
            else:
                joined += 1
                coming = come[queue[joined]] if joined < queue.size else np.inf
            new = min(rest, left)
            done[i] = found * size + new
            used += (blocks_of(done[i], size) if paging else reserved[i]) - found_held
            cached += (found - found_held) * size
            if caching:
                hold(pool, names, texts, start[i], found)
                extend(pool, names, texts, start[i], found * size, new, size)
            if recording:
                write(admission_log, admissions, steps + 1, i, found * size)
            if preempted[i] > 0:
                hits_resumed += found * size
            else:
                hits_first += found * size
                admitted[i] = clock
            batch[running] = i
            chunk[running] = new
            running += 1
            admissions += 1
            tokens += new
            left -= new

        # off: if only ended requests are here, no step runs, and they leave before the next plan
        if running == 0:
            freed, gone = leave(pool, texts, start, ghosts[:lingering], text, reserved, size, caching)
            used -= freed
            cached -= gone
            lingering = 0
            continue

        # step: every running request computes; with its whole text computed it gets one more token
        steps += 1
        if even:
            clock = origin + (steps - origin_steps) * step_cost
        else:
            read = tokens_read(batch, lead, done, chunk, decoding, running, steps)
            clock += step_seconds_at(code, decoding, read, tokens - decoding)
        cached += tokens
        if recording:
            step_log[steps - 1] = np.array((running, tokens, used, clock, cached))
            write_schedule(schedule_log, sum_batch, batch, chunk, running, decoding)
        scheduled += tokens
        sum_batch += running
        sum_blocks += used
        sum_cached += cached
        max_batch = max(max_batch, running)
        max_blocks = max(max_blocks, used)
        while decoding < running and done[batch[decoding]] == known[batch[decoding]]:
            i = batch[decoding]
            lead[decoding] = done[i] - steps
            ends[decoding] = text[i] - lead[decoding]
            phase[decoding] = -lead[decoding] % size
            takers[phase[decoding]] += int(paging)
            next_end = min(next_end, ends[decoding])
            if known[i] == prompt[i]:
                first_token[i] = clock
                first_step[i] = steps
            decoding += 1

        # leap: if all decode and nobody can come, the steps are alike until one ends, lacks a block or arrives
        same = admissions == admissions_before and preemptions == preemptions_before and not prompt_before
        if decoding == running and lingering == 0 and steps < next_end and (same or running == places):
            limit, until = next_end, np.inf
            if running < places and coming < np.inf and (not waiting or (ranked and stacked == 0)):
                until = coming
            if even and until < np.inf:
                limit = min(limit, origin_steps + steps_to(until, origin, step_cost))
            elif clock >= until:
                limit = steps
            leapt_from = steps
            walking = recording or not even
            turns = 0 if walking else min((limit - steps) // size, (usable - used) // running)
            if not paging and not walking:  # nothing is taken on the way
                sum_blocks += used * (limit - steps)
                steps = limit
            elif turns > 1:  # turns of `size` steps, in which each request takes one block
                sum_blocks += blocks_over_turns(turns, takers, steps % size, running, used)
                used += turns * running
                steps += turns * size
            due = steps % size
            read = 0 if even else tokens_read(batch, lead, done, chunk, decoding, running, steps)
            while steps < limit and used + takers[due] <= usable:
                used += takers[due]
                sum_blocks += used
                steps += 1
                due = due + 1 if due + 1 < size else 0
                if not even:
                    read += running
                    clock += step_seconds_at(code, running, read, 0)
                    limit = limit if clock < until else steps
                if recording:
                    if even:
                        clock = origin + (steps - origin_steps) * step_cost
                    entry = sum_batch + (steps - 1 - leapt_from) * running
                    stored = cached + (steps - leapt_from) * running
                    step_log[steps - 1] = np.array((running, running, used, clock, stored))
                    write_schedule(schedule_log, entry, batch, chunk, running, decoding)
            if caching:
                leapt_due = leapt_from % size
                for r in range(running):
                    ahead = phase[r] - leapt_due if phase[r] >= leapt_due else phase[r] - leapt_due + size
                    if ahead <= steps - leapt_from:
                        extend(pool, names, texts, start[batch[r]], lead[r] + leapt_from, steps - leapt_from, size)
            leapt = steps - leapt_from
            scheduled += running * leapt
            sum_batch += running * leapt
            sum_cached += cached * leapt + running * (leapt * (leapt + 1) // 2)
            cached += running * leapt
            max_blocks = max(max_blocks, used)
            if even:
                clock = origin + (steps - origin_steps) * step_cost

        # retire: who has all its tokens gives back slot and blocks, now or after one more step
        if lingering > 0:
            freed, gone = leave(pool, texts, start, ghosts[:lingering], text, reserved, size, caching)
            used -= freed
            cached -= gone
            lingering = 0
        if steps >= next_end:
            stay = 0
            while stay < decoding and ends[stay] != steps:
                stay += 1
            for r in range(stay, running):
                i = batch[r]
                if r < decoding and ends[r] == steps:
                    takers[phase[r]] -= int(paging)
                    last_token[i] = clock
                    last_step[i] = steps
                    finished += 1
                    if closed:
                        away = put_time(thinking, away, clock + think[i])
                    ghosts[lingering] = i
                    lingering += 1
                    continue
                batch[stay], lead[stay], ends[stay], phase[stay] = i, lead[r], ends[r], phase[r]
                stay += 1
            decoding -= running - stay
            running = stay
            next_end = ends[:decoding].min() if decoding > 0 else NEVER
            if refill_delay == 0:
                freed, gone = leave(pool, texts, start, ghosts[:lingering], text, reserved, size, caching)
                used -= freed
                cached -= gone
                lingering = 0

    refused = (output > 0).sum() - fits.sum()
    counts = (
        preemptions,
        scheduled,
        recomputed,
        max_blocks,
        sum_blocks,
        max_batch,
        sum_batch,
        sum_cached,
        hits_first,
        hits_resumed,
    )
    moments = (first_token, last_token, preempted, come, admitted, first_step, last_step)
    return Run(steps, clock, fits.sum(), refused, *counts, *moments)


@kernel
def can_end(
    prompt: I64, output: I64, reserved: I64, size: int, blocks: int, token_budget: int, chunked_prefill: bool
) -> Flags:
    """Requests, (requests,), that ask for output and are not refused: room and budget suffice for each by itself."""
    text, paging = prompt + output - 1, reserved.size == 0
    most = blocks_of(text, size) if paging else reserved
    # tokens to be computed at a time: where nobody is ever preempted, nobody has to come back with all its text
    longest = text if paging and blocks < NO_LIMIT else prompt
    able: Flags = (output > 0) & (most <= blocks) & (chunked_prefill | (longest <= token_budget))
    return able


@kernel
def tokens_read(batch: I64, lead: I64, done: I64, chunk: I64, decoding: int, running: int, step: int) -> int:
    """Tokens of cache that a step reads, those that its decoding requests compute included.

    Who decodes reads all its text up to the token being computed; a chunk of a text reads what is computed of it before
    the chunk.
    """
    read = decoding * step
    for r in range(decoding):
        read += lead[r]
    for r in range(decoding, running):
        read += done[batch[r]] - chunk[r]
    return read


@kernel
def blocks_of(tokens: Any, size: int) -> Any:
    """Blocks that hold so many tokens."""
    return (tokens + size - 1) // size


@kernel
def blocks_over_turns(turns: int, takers: I64, due: int, running: int, used: int) -> int:
    """Blocks in use, summed over turns of one step for each phase, the first of them `due`.

    In a turn each request takes a block, in the step of its phase, and uses it from that step on.
    """
    size = takers.size
    taken = 0
    for j in range(size):
        taken += takers[(due + j) % size] * (size - j)
    return turns * (size * used + taken) + size * running * (turns * (turns - 1) // 2)


@kernel
def steps_to(moment: float, origin: float, step_cost: float) -> int:
    """Steps from `origin` until the clock has reached `moment`."""
    steps = int(np.ceil((moment - origin) / step_cost))
    while origin + (steps - 1) * step_cost >= moment:  # the quotient may be rounded up, or down
        steps -= 1
    while origin + steps * step_cost < moment:
        steps += 1
    return steps


@kernel
def in_order_of_arrival(arrival: F64, fits: npt.NDArray[np.bool_]) -> I64:
    """Requests that fit, by arrival, then by number."""
    order = np.arange(arrival.size)
    if (arrival[1:] < arrival[:-1]).any():
        order = np.argsort(arrival, kind="mergesort")
    queue: I64 = order[fits[order]]
    return queue


@kernel
def write(events: I64, row: int, step: int, request: int, found: int) -> None:
    """Write an event; the width of the table says whether it keeps the tokens found."""
    events[row, 0] = step
    events[row, 1] = request
    if events.shape[1] > 2:
        events[row, 2] = found


@kernel
def write_schedule(schedule: I64, row: int, batch: I64, chunk: I64, running: int, decoding: int) -> None:
    """Write what each request of a step computes, the first of them at `row`."""
    for r in range(running):
        schedule[row + r, 0] = batch[r]
        schedule[row + r, 1] = chunk[r] if r >= decoding else 1


@kernel
def leave(
    pool: I64, texts: I64, start: I64, ended: I64, text: I64, reserved: I64, size: int, caching: bool
) -> tuple[int, int]:
    """Blocks that come free when these requests, their text all computed, leave in this order; and tokens in them."""
    free = tokens = 0
    for i in ended:
        held = blocks_of(text[i], size) if reserved.size == 0 else reserved[i]
        freed = give_back(pool, texts, start[i], held) if caching else held
        free += freed
        tokens += text[i] - (held - freed) * size
    return free, tokens


@kernel
def no_cache() -> tuple[I64, I64, I64, I64]:
    """What `new_cache` gives, for a server that does not look for prefixes."""
    nothing = np.zeros((0, 0), np.int64)
    return np.zeros(0, np.int64), nothing, nothing, nothing


@kernel
def new_cache(prefix: I64, group: I64, text: I64, queue: I64, usable: int, size: int) -> tuple[I64, I64, I64, I64]:
    """Where each request's blocks begin in `texts`, `texts`, `names` and `pool`, with all blocks free and nameless.

    A block within the prefix that a group shares has the group's name, any other its request's own.
    """
    start = np.zeros(text.size, np.int64)
    shared = np.zeros(group.max() + 1, np.int64)  # blocks that some request of the group shares
    total = 0
    for i in queue:
        start[i] = total
        total += blocks_of(text[i], size)
        shared[group[i]] = max(shared[group[i]], prefix[i] // size)
    first_name = total + np.cumsum(shared) - shared
    texts = np.full((total, 2), -1, np.int64)
    for i in queue:
        for j in range(blocks_of(text[i], size)):
            own = j >= prefix[i] // size
            texts[start[i] + j, NAME] = start[i] + j if own else first_name[group[i]] + j
    names = np.full((total + shared.sum(), 2), -1, np.int64)
    pool = np.full((usable + 1, 6), -1, np.int64)
    pool[:, HOLDERS] = 0
    pool[:, AFTER] = (np.arange(usable + 1) + 1) % (usable + 1)
    pool[:, BEFORE] = (np.arange(usable + 1) + usable) % (usable + 1)
    return start, texts, names, pool


@kernel
def look_up(pool: I64, names: I64, texts: I64, start: int, most: int) -> tuple[int, int]:
    """Blocks found from the start of a text, at most so many, and those of them that others hold.

    Of several blocks of one name, the one named first is found.
    """
    found = held = 0
    while found < most:
        block = names[texts[start + found, NAME], OLDEST]
        if block < 0:
            break
        held += int(pool[block, HOLDERS] > 0)
        found += 1
    return found, held


@kernel
def hold(pool: I64, names: I64, texts: I64, start: int, found: int) -> None:
    """Make a request one more holder of the blocks found for it."""
    for j in range(start, start + found):
        block = names[texts[j, NAME], OLDEST]
        if pool[block, HOLDERS] == 0:
            take_out(pool, block)
        pool[block, HOLDERS] += 1
        texts[j, HELD] = block


@kernel
def extend(pool: I64, names: I64, texts: I64, start: int, done: int, new: int, size: int) -> None:
    """Take blocks for `new` tokens after `done`, from the front of the pool, and name those that become full."""
    for j in range(start + blocks_of(done, size), start + blocks_of(done + new, size)):
        block = pool[pool.shape[0] - 1, AFTER]
        take_out(pool, block)
        if pool[block, NAMED] >= 0:
            forget(pool, names, block)
        pool[block, HOLDERS] = 1
        texts[j, HELD] = block
    for j in range(start + done // size, start + (done + new) // size):
        block, name = texts[j, HELD], texts[j, NAME]
        newest = names[name, NEWEST]
        pool[block, NAMED] = name
        pool[block, OLDER] = newest
        pool[block, NEWER] = -1
        names[name, NEWEST] = block
        if newest >= 0:
            pool[newest, NEWER] = block
        else:
            names[name, OLDEST] = block


@kernel
def forget(pool: I64, names: I64, block: int) -> None:
    """Take its name from a block that is about to hold other text."""
    name, older, newer = pool[block, NAMED], pool[block, OLDER], pool[block, NEWER]
    pool[block, NAMED] = -1
    if older >= 0:
        pool[older, NEWER] = newer
    else:
        names[name, OLDEST] = newer
    if newer >= 0:
        pool[newer, OLDER] = older
    else:
        names[name, NEWEST] = older


@kernel
def take_out(pool: I64, block: int) -> None:
    """Take a free block out of the ring, wherever it is."""
    before, after = pool[block, BEFORE], pool[block, AFTER]
    pool[before, AFTER] = after
    pool[after, BEFORE] = before


@kernel
def give_back(pool: I64, texts: I64, start: int, held: int) -> int:
    """Blocks that come free when a request lets go of all it holds: nameless ones to the front, others to the back.

    The last block goes first, so that the beginning of a text is found longest.
    """
    free = 0
    for j in range(start + held - 1, start - 1, -1):
        block = texts[j, HELD]
        pool[block, HOLDERS] -= 1
        if pool[block, HOLDERS] > 0:
            continue
        end = pool.shape[0] - 1
        before = end if pool[block, NAMED] < 0 else pool[end, BEFORE]
        after = pool[before, AFTER]
        pool[block, BEFORE], pool[block, AFTER] = before, after
        pool[before, AFTER] = block
        pool[after, BEFORE] = block
        free += 1
    return free

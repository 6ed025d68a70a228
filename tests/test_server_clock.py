"""The server model on a clock: equal to literal twins, to the engine's steps, and to the server without memory."""

import json
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import reference_server as twin
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.model import server, static
from sweep.model.arriving import continuous_times, static_times
from sweep.model.policies import ServedTimes, Workloads, continuous_on, reservations, serve_on, static_on
from sweep.model.roofline import Roofline
from sweep.model.rules import NO_LIMIT, Rules
from sweep.model.server import Served, serve
from sweep.model.stepseconds import step_seconds
from sweep.model.steptable import step_table
from sweep.model.steptime import Affine, Constant
from sweep.model.times import Requests, in_units

ENGINE_RUNS = sorted((Path(__file__).parent / "golden" / "vllm").glob("*.json"))
quick = settings(deadline=None, derandomize=True, max_examples=150)
thorough = settings(deadline=None, derandomize=True, max_examples=600)

UNIT = Constant(1.0)
LINE = Affine(0.5, 0.25, 1 / 64, 1 / 32)  # sums of such terms are exact
SAME = Affine(0.5, 0.25, 1 / 64, 0.25 + 1 / 64)  # a prompt of one token costs what a token costs that reads itself
ROOF = Roofline(4e9, 1e5, 8e9, 1e12, 2e13, 1e-3, 1e8, 1e5)
ROWS = "".join(f"{b},{b * kv},0,{5 + 0.5 * b + 0.01 * b * kv}\n" for b in (1, 4, 16) for kv in (10, 100))
PROMPTS = "".join(f"0,0,{p},{3 + 0.1 * p}\n" for p in (8, 64))
BOTH = "".join(f"4,{4 * kv},{p},{6 + 0.15 * p + 0.02 * kv}\n" for p in (16, 48) for kv in (10, 100))
HEADER = "batch,kv_tokens,prefill_tokens,ms\n"
TABLE = step_table("measured.csv", HEADER + ROWS + PROMPTS + BOTH)
ALL_KINDS = [UNIT, Constant(0.02), LINE, ROOF, TABLE]


def rules(**changes) -> Rules:
    """A server with 4 slots and no limit of memory, and what is changed of it."""
    defaults = {
        "kind": "slots",
        "reserve": "oracle",
        "slots": 4,
        "static_slots": changes.get("slots", 4),
        "block_size": 16,
        "blocks": NO_LIMIT,
        "cache_tokens": NO_LIMIT,
        "static_cache_tokens": changes.get("cache_tokens", NO_LIMIT),
        "token_budget": 10**6,
        "prefix_caching": False,
        "chunked_prefill": True,
        "refill_delay": 0,
        "most_tokens": 100,
        "most_output": 40,
        "context": None,
    }
    return Rules(**(defaults | changes))


def coming(arrival, output, prompt=1, rank=0.0, clients=0, think=0.0) -> Requests:
    output = np.atleast_2d(np.asarray(output, np.int64))
    wide = partial(np.broadcast_to, shape=output.shape)
    prompt, rank = wide(np.asarray(prompt, np.int64)), wide(np.asarray(rank, np.float64))
    return Requests(wide(np.asarray(arrival, float)), output, prompt, rank, clients, wide(np.asarray(think, float)))


def work_of(requests: Requests, prefix: int = 0, groups=None) -> Workloads:
    one = np.zeros((1, requests.output.shape[1]), np.int64)
    return Workloads(
        requests.prompt.copy(), requests.output.copy(), one if groups is None else np.atleast_2d(groups), prefix
    )


def continuous(requests: Requests, step_time=UNIT, prefix: int = 0, groups=None, **changes) -> ServedTimes:
    return continuous_on(work_of(requests, prefix, groups), requests, rules(**changes), step_time)


def in_groups(requests: Requests, step_time=UNIT, *, max_wait_s=0.0, padded=True, **changes) -> ServedTimes:
    server = rules(**changes)
    return static_on(work_of(requests), requests, server, step_time, max_wait_s=max_wait_s, padded=padded)


def counting(step_time):
    """What a twin asks for the time of a step; whole steps where all are equal."""
    if isinstance(step_time, Constant):
        return twin.one_step
    return cache(lambda *counts: float(step_seconds(step_time, *counts)))


def moments(run: ServedTimes) -> list[list[float]]:
    return np.column_stack([column[0] for column in run.times[:4]]).tolist()


def asked_for(everyone) -> list[list[float]]:
    """Arrival, start, first and last token of each request, nan where there was no such moment."""
    nan = float("nan")
    rows = []
    for one in everyone:
        if one.output == 0:
            rows.append([one.arrival, one.arrival, nan, one.arrival])
        elif one.last == 0:
            rows.append([nan] * 4)
        else:
            rows.append([one.arrival, one.start, one.first, one.last])
    return rows


@st.composite
def traffic(draw, *, prefix: int = 0) -> Requests:
    n = draw(st.integers(1, 16))
    numbers = partial(st.lists, min_size=n, max_size=n)
    gap = draw(st.sampled_from([0, 2, 9, 40]))
    arrival = np.cumsum(draw(numbers(st.integers(0, gap))))
    rank = draw(numbers(st.sampled_from([0.0, 1.0, 2.5]))) if draw(st.booleans()) else 0.0
    clients = draw(st.sampled_from([0, 0, 1, 3, 20]))
    prompt = prefix + np.array(draw(numbers(st.integers(1, 30))))
    think = draw(numbers(st.integers(0, 6)))
    return coming(arrival, draw(numbers(st.integers(0, 20))), prompt, rank, clients, think)


@st.composite
def servers(draw, longest: int = 50) -> dict:
    slots, size = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 4, 16]))
    kind = draw(st.sampled_from(["slots", "reserve", "paged", "paged"]))
    blocks = NO_LIMIT if kind == "slots" else -(-draw(st.integers(longest - 10, 3 * longest)) // size)
    return {
        "kind": kind,
        "reserve": draw(st.sampled_from(["maximum", "power_of_two", "oracle", "asked"])),
        "slots": slots,
        "block_size": size,
        "blocks": blocks,
        "cache_tokens": NO_LIMIT if kind == "slots" else blocks * size,
        "token_budget": slots + draw(st.sampled_from([0, 3, 10, 100])),
        "chunked_prefill": draw(st.booleans()),
        "refill_delay": draw(st.integers(0, 1)),
    }


def twins_of(requests: Requests, step_time, prefix: int = 0, groups=None) -> list[twin.Request]:
    arrival, think = in_units(requests.arrival_s, step_time)[0], in_units(requests.think_s, step_time)[0]
    group = np.zeros(arrival.size, int) if groups is None else groups
    told = zip(requests.prompt[0].tolist(), requests.output[0].tolist(), arrival.tolist(), group, strict=True)
    given = [(prompt, output, moment, prefix, int(one)) for prompt, output, moment, one in told]
    return twin.people(given, requests.rank[0].tolist(), think.tolist())


def told(requests: Requests, step_time, server: Rules, prefix: int = 0, groups=None) -> tuple[list, dict]:
    """What the twin has for the moments of each request, and for the counters."""
    everyone = twins_of(requests, step_time, prefix, groups)
    how = {
        "slots": server.slots,
        "token_budget": server.token_budget,
        "chunked_prefill": server.chunked_prefill,
        "refill_delay": server.refill_delay,
        "clients": requests.clients,
        "step_s": counting(step_time),
    }
    if server.kind == "paged":
        sizes = {"block_size": server.block_size, "blocks": server.blocks}
        run = twin.run(everyone, **sizes, prefix_caching=server.prefix_caching, **how)
    else:
        aside = [0] * len(everyone)
        if server.kind == "reserve":
            aside = reservations(requests.prompt, requests.output, server)[0].tolist()
        run = twin.run_reserving(everyone, aside, tokens=server.cache_tokens, **how)
    return asked_for(everyone), run


def assert_told(run: ServedTimes, expected: tuple[list, dict]) -> None:
    times, counters = expected
    np.testing.assert_array_equal(moments(run), times)
    assert run.times.steps[0] == counters["engine_steps"]
    assert run.counters["refused"][0] == counters["refused"]
    assert run.counters["sum_cached"][0] == sum(counters["trace"]["cached_tokens"])
    for name in ("preemptions", "scheduled_tokens", "recomputed_tokens"):
        assert name not in counters or run.counters[name][0] == counters[name]


@thorough
@given(traffic(), servers(), st.sampled_from(ALL_KINDS))
def test_continuous_batching_on_a_clock_is_what_its_twin_does(requests, server, step_time) -> None:
    assert_told(continuous(requests, step_time, **server), told(requests, step_time, rules(**server)))


@thorough
@given(traffic(prefix=11), servers(longest=61), st.sampled_from(ALL_KINDS), st.data())
def test_it_is_what_its_twin_does_when_prefixes_are_cached(requests, server, step_time, data) -> None:
    size = requests.output.size
    groups = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    server |= {"kind": "paged", "prefix_caching": True, "blocks": min(server["blocks"], 150)}
    run = continuous(requests, step_time, 11, groups, **server)
    assert_told(run, told(requests, step_time, rules(**server), 11, groups))


@thorough
@given(
    traffic(), servers(), st.sampled_from(ALL_KINDS), st.sampled_from([0.0, 3.0, 40.0]), st.booleans(), st.booleans()
)
def test_static_batching_on_a_clock_is_what_its_twin_does(requests, server, step_time, max_wait, padded, wide) -> None:
    if wide:
        server["context"] = 50
    run = in_groups(requests, step_time, max_wait_s=max_wait, padded=padded, **server)
    everyone, limits = twins_of(requests, step_time), rules(**server)
    steps = twin.static_over_time(
        [one for one, served in zip(everyone, run.served[0], strict=True) if served],
        slots=limits.static_slots,
        token_budget=limits.token_budget,
        capacity=limits.static_cache_tokens,
        most_output=limits.most_output,
        context=limits.context,
        max_wait=float(in_units(np.array(max_wait), step_time)),
        padded=padded,
        clients=requests.clients,
        step_s=counting(step_time),
    )
    expected = [
        [one.arrival, one.start, one.first or np.nan, one.last] if served else [np.nan] * 4
        for one, served in zip(everyone, run.served[0], strict=True)
    ]
    np.testing.assert_array_equal(moments(run), expected)
    assert run.times.steps[0] == steps == run.counters["steps"][0]


@quick
@given(traffic(), servers())
def test_both_schedulers_serve_the_same_requests_and_the_others_are_as_if_they_were_not_there(requests, server) -> None:
    run, other = continuous(requests, LINE, **server), in_groups(requests, LINE, **server)
    assert run.served.tolist() == other.served.tolist()
    assert run.served.sum() + run.counters["refused"][0] == requests.output.size
    there = run.served[0]
    assert all(np.isnan(column[0][~there]).all() for column in [*run.times[:4], *other.times[:4]])
    if there.any():
        columns = (requests.arrival_s, requests.output, requests.prompt, requests.rank)
        arrival, output, prompt, rank = (column[:, there] for column in columns)
        kept = Requests(arrival, output, prompt, rank, requests.clients, requests.think_s[:, there])
        for scheduler, whole in ((continuous, run), (in_groups, other)):
            np.testing.assert_array_equal(moments(scheduler(kept, LINE, **server)), np.array(moments(whole))[there])


@pytest.mark.parametrize("path", ENGINE_RUNS, ids=lambda path: path.stem)
def test_with_a_constant_step_times_are_the_steps_of_the_recorded_engine(path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    config, expected = golden["config"], golden["expected"]
    columns = {"prompt_len": 0, "output_len": 0, "arrival": 0, "prefix_len": 0, "prefix_id": 0}
    table = [[one.get(name, default) for name, default in columns.items()] for one in golden["requests"]]
    prompt, output, arrival, prefix, group = np.array(table, np.int64).T[:, np.newaxis, :].copy()
    order = np.argsort(arrival[0], kind="stable")
    policy = server.Policy(
        config["max_num_seqs"],
        config["block_size"],
        config["num_gpu_blocks"] - 1,
        config["max_num_batched_tokens"],
        config["enable_prefix_caching"],
        config["enable_chunked_prefill"],
        0,
    )
    nobody, code = np.zeros((1, 0)), server.packed(UNIT).copy()
    line = (np.zeros((1, 0), np.int64), nobody, nobody, 0, policy, code)
    counters, ended, times = server.serve_over_time(prompt, output, arrival.astype(float), prefix, group, *line)
    come, admitted, first, last = times[:, 0]
    assert first.tolist() == expected["first_token_step"]
    assert last.tolist() == expected["last_token_step"]
    assert come.tolist() == arrival[0].tolist()
    assert ended.all()
    assert counters[0, 0] == expected["engine_steps"]
    admissions = {}
    for step, request, _ in expected["admission_events"]:
        admissions.setdefault(request, step - 1)
    assert admitted.tolist() == [admissions[request] for request in range(len(order))]


@quick
@given(traffic(), servers(), st.floats(1e-3, 10.0))
def test_with_a_constant_step_the_clock_counts_steps_of_that_length(requests, server, step_s) -> None:
    scaled = requests._replace(arrival_s=requests.arrival_s * step_s, think_s=requests.think_s * step_s)
    for scheduler in (continuous, in_groups):
        in_steps, timed = scheduler(requests, **server), scheduler(scaled, Constant(step_s), **server)
        assert (in_steps.times.unit_s, timed.times.unit_s) == (1.0, step_s)
        np.testing.assert_array_equal(moments(in_steps), moments(timed))


@quick
@given(traffic(), servers())
def test_with_all_waiting_from_the_start_the_steps_and_counters_are_those_without_a_clock(requests, server) -> None:
    requests = requests._replace(arrival_s=np.zeros_like(requests.arrival_s), clients=0)
    plain = requests._replace(rank=np.zeros_like(requests.rank))
    counted = serve_on(work_of(requests), rules(**server))
    for step_time in (UNIT, LINE):
        run, groups = continuous(plain, step_time, **server), in_groups(plain, step_time, **server)
        assert {name: column[0] for name, column in run.counters.items()} == {
            name: column[0] for name, column in counted.counters.items()
        }
        assert groups.times.steps[0] == counted.static_steps[0]


@quick
@given(traffic(), st.integers(1, 6), st.sampled_from([UNIT, SAME]), st.sampled_from([0.0, 3.0]), st.booleans())
def test_with_prompts_of_one_token_and_memory_without_limit_it_is_the_server_without_memory(
    requests, slots, step_time, max_wait, padded
) -> None:
    """A token that reads itself is the prompt of one token here, and the first of the output there."""
    output, one = np.maximum(requests.output, 1), np.ones_like(requests.prompt)
    here = requests._replace(output=output, prompt=one)
    there = requests._replace(output=output, prompt=np.zeros_like(one), rank=requests.rank.copy())
    times = continuous_times(step_time, there, slots)
    run = continuous(here, step_time, slots=slots)
    assert (
        moments(run)
        == np.column_stack(
            [column[0] for column in (times.arrival, times.start)]
            + [column[0] for column in (times.first, times.finish)]
        ).tolist()
    )
    assert run.times.steps[0] == times.steps[0]
    times = static_times(step_time, there, slots, max_wait_s=max_wait, padded=padded)
    groups = in_groups(here, step_time, slots=slots, max_wait_s=max_wait, padded=padded)
    assert (
        moments(groups) == np.column_stack([times.arrival[0], times.start[0], times.first[0], times.finish[0]]).tolist()
    )
    assert groups.times.steps[0] == times.steps[0]


@quick
@given(traffic(), servers(), st.sampled_from([UNIT, LINE, ROOF, TABLE]))
def test_every_time_is_at_least_its_floor(requests, server, step_time) -> None:
    shortest = (
        1.0 if step_time is UNIT else min(float(step_seconds(step_time, *counts)) for counts in [(1, 1), (0, 0, 1)])
    )
    for run in (continuous(requests, step_time, **server), in_groups(requests, step_time, **server)):
        arrival, start, first, finish = (column[run.served] for column in run.times[:4])
        output = requests.output[run.served]
        spoke = output > 0
        chunks = -(-requests.prompt[run.served] // rules(**server).token_budget)
        slack = 1 - 1e-12  # of sums that are rounded
        assert (start >= arrival).all()
        assert (first - start >= chunks * shortest * slack)[spoke].all()
        assert (finish - first >= (output - 1) * shortest * slack)[spoke].all()
        assert np.isnan(first[~spoke]).all()
        assert (finish == start)[~spoke].all()


@quick
@given(traffic(), servers())
def test_nobody_waits_for_a_reservation_that_fits_while_a_slot_is_free(requests, server) -> None:
    """Whoever waits at a moment does so behind one, first by rank, for whom there is no slot or no room."""
    server |= {"kind": "reserve", "refill_delay": 0, "chunked_prefill": True, "token_budget": 10**6}
    server |= {"cache_tokens": min(server["cache_tokens"], 90)}
    run, limits = continuous(requests, **server), rules(**server)
    aside = reservations(requests.prompt, requests.output, limits)[0]
    arrival, start, _, finish = np.where(run.served & (requests.output > 0), np.array(run.times[:4]), np.inf)[:, 0]
    for moment in np.unique(start[np.isfinite(start)]):
        waiting = np.flatnonzero((arrival <= moment) & (start > moment))
        if waiting.size > 0:
            running = (start <= moment) & (finish > moment)
            first = waiting[np.lexsort((waiting, requests.rank[0][waiting]))[0]]
            assert running.sum() == limits.slots or aside[running].sum() + aside[first] > limits.cache_tokens


@quick
@given(traffic(), servers())
def test_littles_law_is_exact_from_empty_to_empty(requests, server) -> None:
    """Requests in the batch, summed over steps, are the times that requests spend in it, where none is sent back."""
    server |= {"kind": "reserve" if server["kind"] == "paged" else server["kind"]}
    run = continuous(requests, **server)
    inside = (run.times.finish - run.times.start)[run.served]
    assert inside.sum() == run.counters["sum_batch"][0]
    here = np.where(run.served, np.array(run.times[:4]), np.inf)[:, 0]
    clock = np.arange(0, max(0, np.max(here[3][np.isfinite(here[3])], initial=0)))
    present = (here[0][:, None] <= clock) & (here[3][:, None] > clock)
    assert present.sum() == (run.times.finish - run.times.arrival)[run.served].sum()


@quick
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=30), st.integers(1, 6))
def test_an_affine_step_saves_its_constant_in_every_step_that_is_saved(lengths, slots) -> None:
    """With members leaving and no prompt cut, both do the same work for each request: the difference is c0 x steps."""
    prompt, output = np.array(lengths).T
    requests = coming(0, output, prompt)
    read = (output - 1) * prompt + (output - 1) * output // 2  # P + 1 to P + L - 1
    x = (LINE.per_request_s * (output - 1) + LINE.per_kv_token_s * read + LINE.per_prefill_token_s * prompt).sum()
    run, groups = continuous(requests, LINE, slots=slots), in_groups(requests, LINE, slots=slots, padded=False)
    assert run.times.finish.max() == LINE.c0_s * run.times.steps[0] + x
    assert groups.times.finish.max() == LINE.c0_s * groups.times.steps[0] + x


def test_a_prompt_in_chunks_reads_what_is_computed_of_it() -> None:
    parts = [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 11, 0), (1, 12, 0)]
    ends = np.cumsum([float(step_seconds(LINE, *part)) for part in parts])
    for run in (
        continuous(coming(0, [3], 10), LINE, token_budget=4),
        in_groups(coming(0, [3], 10), LINE, token_budget=4),
    ):
        assert moments(run) == [[0, 0, ends[2], ends[4]]]


def test_who_decodes_runs_beside_a_prompt_in_one_step() -> None:
    run = continuous(coming([0, 0.5], [3, 2], [6, 9]), LINE, token_budget=10)
    parts = [(0, 0, 6), (1, 7, 9), (2, 8 + 10, 0)]
    ends = np.cumsum([float(step_seconds(LINE, *part)) for part in parts])
    assert moments(run) == [[0, 0, ends[0], ends[2]], [0.5, ends[0], ends[1], ends[2]]]


def test_a_request_that_comes_back_computes_its_text_anew_as_a_prompt() -> None:
    """Two requests of 4 + 4 tokens in 8 blocks of one token: the second gives way, and finds nothing of its text."""
    run = continuous(coming(0, [4, 4], 4), LINE, kind="paged", slots=2, block_size=1, blocks=8, cache_tokens=8)
    parts = [(0, 0, 8), (1, 5, 0), (1, 6, 0), (1, 7, 0), (0, 0, 5), (1, 6, 0), (1, 7, 0)]
    ends = np.cumsum([float(step_seconds(LINE, *part)) for part in parts])
    assert run.counters["preemptions"][0] == 1
    assert moments(run) == [[0, 0, ends[0], ends[3]], [0, 0, ends[0], ends[6]]]


def test_a_lone_client_is_served_at_once_every_time() -> None:
    requests = coming(0, [3, 0, 5, 1], clients=1, think=[2, 1, 4, 9])
    assert continuous(requests).times.arrival[0].tolist() == [0, 5, 6, 15]
    assert in_groups(requests).times.finish[0].tolist() == [3, 5, 11, 16]


def test_a_group_starts_when_the_next_one_does_not_fit_and_not_only_when_all_places_are_taken() -> None:
    requests = coming([0, 1, 2, 30], [4, 4, 4, 4], 10)
    limits = {"kind": "reserve", "slots": 4, "cache_tokens": 100, "max_wait_s": 10}  # 10 + 40 for each: two fit
    assert in_groups(requests, **limits).times.start[0].tolist() == [2, 2, 12, 40]
    assert in_groups(requests, **limits | {"slots": 3, "cache_tokens": 150}).times.start[0].tolist() == [2, 2, 2, 40]


def test_who_is_preempted_goes_ahead_of_a_lower_rank() -> None:
    requests = coming([0, 0, 1], [4, 4, 1], [4, 4, 1], rank=[1, 2, 0])
    run = continuous(requests, kind="paged", slots=2, block_size=1, blocks=8, cache_tokens=8)
    assert run.counters["preemptions"][0] == 1
    assert run.times.start[0].tolist() == [0, 0, 4]
    assert run.times.finish[0].tolist() == [4, 7, 5]


def test_a_lower_rank_that_fits_is_not_kept_waiting_by_one_that_does_not() -> None:
    requests = coming([0, 1, 2], [9, 9, 2], [1, 2, 1], rank=[0, 1, 0])
    run = continuous(requests, LINE, kind="reserve", slots=3, cache_tokens=12, reserve="oracle")
    assert run.times.start[0, 2] < run.times.finish[0, 0] <= run.times.start[0, 1]


def one_by_one(requests: Requests, step_time, **changes) -> Served:
    """The first workload by `serve`, with every step."""
    limits = rules(**changes)
    blocks = {"block_size": limits.block_size, "blocks": min(limits.blocks, 10**6), "refill_delay": limits.refill_delay}
    sizes = {"slots": limits.slots, "token_budget": limits.token_budget, "chunked_prefill": limits.chunked_prefill}
    clock = {"arrival_s": requests.arrival_s[0], "step_time": step_time}
    return serve(requests.prompt[0], requests.output[0], record=True, **clock, **blocks, **sizes)


@quick
@given(traffic(), servers(), st.sampled_from(ALL_KINDS))
def test_serve_shows_the_steps_and_seconds_of_the_rows(requests, server, step_time) -> None:
    server |= {"kind": "paged", "blocks": min(server["blocks"], 150)}
    requests = requests._replace(clients=0, rank=np.zeros_like(requests.rank))
    run, shown = continuous(requests, step_time, **server), one_by_one(requests, step_time, **server)
    assert {"refused": shown.refused, "preemptions": shown.preemptions, "engine_steps": shown.engine_steps} == {
        name: run.counters[name][0] for name in ("refused", "preemptions", "engine_steps")
    }
    spoke = run.served[0] & (requests.output[0] > 0)
    assert shown.seconds is not None
    for moments_s, column in zip(shown.seconds[:4], run.times[:4], strict=True):
        np.testing.assert_array_equal(moments_s[spoke], column[0][spoke] * run.times.unit_s)
    ends = shown.seconds.step_end_s
    assert shown.seconds.makespan_s == max(ends, default=0)
    if not isinstance(step_time, Constant):
        assert shown.makespan_steps == shown.engine_steps == shown.trace.step.size
        np.testing.assert_array_equal(ends[shown.first_token_step[spoke] - 1], shown.seconds.first_token_s[spoke])
        np.testing.assert_array_equal(ends[shown.last_token_step[spoke] - 1], shown.seconds.last_token_s[spoke])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"arrival_s": [0, 1]}, "arrival_s: needs a step_time; give one, or arrival_step"),
        (
            {"arrival_step": [0, 1], "step_time": LINE},
            "arrival_step: goes with equal steps, and without arrival_s; give one of them",
        ),
        (
            {"arrival_step": [0, 1], "arrival_s": [0, 1], "step_time": UNIT},
            "arrival_step: goes with equal steps, and without arrival_s; give one of them",
        ),
        (
            {"arrival_s": [0, -1], "step_time": LINE},
            "arrival_s: must be seconds from 0 to 1e+09, one for each request",
        ),
        (
            {"arrival_s": [0, "x"], "step_time": LINE},
            "arrival_s: must be seconds from 0 to 1e+09, one for each request",
        ),
        ({"arrival_s": [0], "step_time": LINE}, "arrival_s: must be seconds from 0 to 1e+09, one for each request"),
        ({"step_time": Constant(0.0)}, "step time: must be above 0 seconds, got 0.0"),
        ({"step_time": 0.02}, "step_time: must be a Constant, an Affine, a Roofline or a StepTable, got 0.02"),
        (
            {"step_time": step_table("decoding.csv", HEADER + ROWS)},
            "step_time: has no rows of prompts alone, and this server computes prompts; add some",
        ),
    ],
)
def test_a_clock_that_cannot_be_is_refused(given, line) -> None:
    with pytest.raises(InputError) as refusal:
        serve([3, 3], [2, 3], slots=2, block_size=4, blocks=9, token_budget=8, **given)
    assert list(refusal.value.lines) == [line]


def test_step_times_that_know_no_prompts_are_refused() -> None:
    table = step_table("decoding.csv", HEADER + ROWS)
    for scheduler in (continuous, in_groups):
        with pytest.raises(InputError, match="has no rows of prompts alone"):
            scheduler(coming(0, [3]), table)


def test_workloads_side_by_side_are_what_each_is_alone() -> None:
    rng = np.random.default_rng(5)
    arrival = np.cumsum(rng.exponential(3, (4, 40)), axis=1)
    together = Requests(arrival, rng.integers(0, 30, (4, 40)), rng.integers(1, 60, (4, 40)), rng.random((4, 40)))
    limits = {"kind": "paged", "blocks": 12, "cache_tokens": 192}
    for scheduler in (continuous, in_groups):
        whole = scheduler(together, ROOF, **limits)
        for row in range(4):
            alone = scheduler(Requests(*(column[row : row + 1] for column in together[:4])), ROOF, **limits)
            np.testing.assert_array_equal(np.array(alone.times[:4])[:, 0], np.array(whole.times[:4])[:, row])


def test_each_kernel_is_compiled_once() -> None:
    for step_time in ALL_KINDS:
        for clients in (0, 2):
            requests = coming([0, 1], [2, 3], rank=[clients, 0], clients=clients)
            continuous(requests, step_time)
            in_groups(requests, step_time, padded=clients == 0)
    serve_on(work_of(requests), rules())
    server.serve([1], [1], slots=1, block_size=1, blocks=1, token_budget=1, record=True)
    for kernel in (server.served_rows, server.serve_one, static.group_after_group, static.group_by_group):
        assert len(kernel.signatures) == 1

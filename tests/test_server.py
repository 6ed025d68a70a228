"""The server model: equal to recorded runs of a real engine, to a literal twin, and to what must hold on every run."""

import heapq
import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import reference_server
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.model.server import Served, serve, serve_one
from sweep.model.steptime import Constant, packed

GOLDEN = Path(__file__).parent / "golden"
ENGINE_RUNS = sorted((GOLDEN / "vllm").glob("*.json"))
PUBLISHED = json.loads((GOLDEN / "published.json").read_text(encoding="utf-8"))["caps"]

RNG = random.Random(37)
REFERENCE = [RNG.randint(400, 700) if RNG.random() < 0.10 else RNG.randint(8, 40) for _ in range(200)]
PLENTY = {"block_size": 16, "blocks": 10_000, "token_budget": 2048}


def plain(served: Served) -> dict:
    """The run as lists and numbers, a mean of nothing as None."""
    run = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in served._asdict().items()}
    run.pop("seconds")
    if served.trace is not None:
        run["trace"] = {name: column.tolist() for name, column in served.trace._asdict().items()}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in run.items()}


def engine_run(path: Path, *, record: bool) -> tuple[dict, dict]:
    """A recorded run of the engine, under our names, and ours of the same requests."""
    golden = json.loads(path.read_text(encoding="utf-8"))
    config, requests, expected = golden["config"], golden["requests"], golden["expected"]
    served = serve(
        [request["prompt_len"] for request in requests],
        [request["output_len"] for request in requests],
        arrival_step=[request.get("arrival", 0) for request in requests],
        prefix_tokens=[request.get("prefix_len", 0) for request in requests],
        prefix_group=[request.get("prefix_id", 0) for request in requests],
        slots=config["max_num_seqs"],
        block_size=config["block_size"],
        blocks=config["num_gpu_blocks"] - 1,
        token_budget=config["max_num_batched_tokens"],
        prefix_caching=config["enable_prefix_caching"],
        chunked_prefill=config["enable_chunked_prefill"],
        record=record,
    )
    expected["makespan_steps"] = expected.pop("makespan")
    ours = plain(served)
    if record:
        ours["trace"] = {name: ours["trace"][name] for name in expected["trace"]}
    return expected, {name: ours[name] for name in expected}


def ideal_refill_steps(lengths: list[int], slots: int) -> int:
    free_at = [0] * slots
    for length in lengths:
        heapq.heapreplace(free_at, free_at[0] + length)
    return max(free_at)


@st.composite
def servers(draw, *, prefix_caching):
    """Requests (prompt, output, arrival, prefix, group) and a small server, often too small for some of them."""
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 100]))
    slots = draw(st.integers(1, 8))
    longest = draw(st.sampled_from([3, 10, 40]))
    latest = draw(st.sampled_from([0, 5, 60, 300]))
    group_prefix = draw(st.lists(st.integers(0, longest), min_size=1, max_size=3))
    requests = []
    for _ in range(draw(st.integers(1, 20))):
        group = draw(st.integers(0, len(group_prefix) - 1))
        prefix = draw(st.sampled_from([group_prefix[group], group_prefix[group], longest // 2]))
        prompt = max(1, prefix + draw(st.one_of(st.integers(0, 1), st.integers(0, longest))))
        output = draw(st.one_of(st.integers(0, 4), st.integers(1, 40)))
        requests.append((prompt, output, draw(st.integers(0, latest)), prefix, group))
    needs = [-(-(prompt + output - 1) // block_size) for prompt, output, *_ in requests]
    return requests, {
        "slots": slots,
        "block_size": block_size,
        "blocks": max(1, max(needs) + draw(st.integers(-2, 12))),
        "token_budget": slots + draw(st.sampled_from([0, 1, 3, 10, 60, 100])),
        "prefix_caching": prefix_caching,
        "chunked_prefill": draw(st.booleans()),
    }


def served_by(requests: list[tuple[int, ...]], server: dict, **more) -> Served:
    prompt, output, arrival, prefix, group = zip(*requests, strict=True)
    return serve(prompt, output, arrival_step=arrival, prefix_tokens=prefix, prefix_group=group, **server, **more)


def check_conservation(requests: list[tuple[int, ...]], server: dict, served: Served) -> None:
    """What holds on every run: requests, tokens and blocks are all accounted for."""
    asked = np.array([output for _, output, *_ in requests])
    arrival = np.array([arrival for _, _, arrival, *_ in requests])
    ended = served.last_token_step > 0
    assert ended.sum() + served.refused == (asked > 0).sum()
    assert (served.first_token_step[ended] > arrival[ended]).all()
    assert (served.last_token_step - served.first_token_step >= asked - 1)[ended].all()
    useful = sum(prompt + output - 1 for (prompt, output, *_), end in zip(requests, ended, strict=True) if end)
    hits = served.prefix_hit_tokens_first + served.prefix_hit_tokens_resumed
    assert served.scheduled_tokens == useful + served.recomputed_tokens - hits
    assert served.preemptions == served.preemptions_per_request.sum()
    assert served.max_blocks <= server["blocks"]
    assert served.max_batch <= server["slots"]


def blocks_held(requests: list[tuple[int, ...]], block_size: int, served: Served) -> list[int]:
    """Blocks that the requests hold in each step, from the schedule and the events alone, if none are shared."""
    text = [prompt + output - 1 for prompt, output, *_ in requests]
    victims = {}
    for step, request in served.preemption_events.tolist():
        victims.setdefault(step, []).append(request)
    done, held = dict.fromkeys(range(len(requests)), 0), []
    for step, plan in zip(served.trace.step.tolist(), served.schedule, strict=True):
        done.update(dict.fromkeys(victims.get(step, []), 0))
        for request, tokens in plan:
            done[request] += tokens
        held.append(sum(-(-tokens // block_size) for tokens in done.values()))
        done.update({request: 0 for request, _ in plan if done[request] == text[request]})
    return held


def test_there_are_41_recorded_runs_of_the_engine():
    assert len(ENGINE_RUNS) == 41


@pytest.mark.parametrize("path", ENGINE_RUNS, ids=lambda path: path.stem)
def test_a_recorded_engine_run_agrees_in_every_field(path):
    expected, ours = engine_run(path, record=True)
    assert ours == expected


@pytest.mark.parametrize("path", ENGINE_RUNS, ids=lambda path: path.stem)
def test_counting_alone_gives_the_numbers_of_the_recorded_engine_run(path):
    expected, ours = engine_run(path, record=False)
    recorded = {"admission_events", "preemption_events", "trace", "schedule"}
    assert all(ours[name] is None for name in recorded & ours.keys())
    assert {name: ours[name] for name in ours.keys() - recorded} == {
        name: expected[name] for name in expected.keys() - recorded
    }


@pytest.mark.parametrize("path", ENGINE_RUNS, ids=lambda path: path.stem)
def test_the_twin_gives_the_recorded_engine_run_too(path):
    golden = json.loads(path.read_text(encoding="utf-8"))
    config = golden["config"]
    fields = {"prompt_len": 0, "output_len": 0, "arrival": 0, "prefix_len": 0, "prefix_id": 0}
    twin = reference_server.serve(
        [tuple(request.get(name, default) for name, default in fields.items()) for request in golden["requests"]],
        slots=config["max_num_seqs"],
        block_size=config["block_size"],
        blocks=config["num_gpu_blocks"] - 1,
        token_budget=config["max_num_batched_tokens"],
        prefix_caching=config["enable_prefix_caching"],
        chunked_prefill=config["enable_chunked_prefill"],
    )
    twin["makespan"] = twin["makespan_steps"]
    expected = golden["expected"]
    twin["trace"] = {name: twin["trace"][name] for name in expected["trace"]}
    assert {name: twin[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("cap", "pool"), [(cap, pool) for cap in PUBLISHED for pool in range(len(PUBLISHED[cap]["paged"]))]
)
def test_the_published_benchmark_is_replayed_exactly_with_a_paged_cache(cap, pool):
    paged = PUBLISHED[cap]["paged"][pool]
    output = np.maximum(PUBLISHED[cap]["lengths"], 1)  # in these figures a length rounded to 0 is one token
    served = serve(
        np.full(output.size, 512),
        output,
        slots=paged["slots"],
        block_size=16,
        blocks=paged["usable_blocks"],
        token_budget=paged["token_budget"],
    )
    assert served.engine_steps == paged["engine_steps"]
    assert served.preemptions == paged["preemptions"]
    assert served.mean_batch == paged["mean_batch"]


@settings(deadline=None, derandomize=True, max_examples=600)
@given(servers(prefix_caching=False))
@example(
    (
        [(1, 1, 0, 0, 0)],
        {"slots": 1, "block_size": 1, "blocks": 1, "token_budget": 1, "prefix_caching": False, "chunked_prefill": True},
    )
)
def test_the_twin_gives_the_same_run(case):
    requests, server = case
    assert plain(served_by(requests, server, record=True)) == reference_server.serve(requests, **server)


@settings(deadline=None, derandomize=True, max_examples=700)
@given(servers(prefix_caching=True))
def test_the_twin_gives_the_same_run_when_prefixes_are_cached(case):
    requests, server = case
    assert plain(served_by(requests, server, record=True)) == reference_server.serve(requests, **server)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(servers(prefix_caching=False) | servers(prefix_caching=True))
def test_the_twin_gives_the_same_run_when_ended_requests_linger(case):
    requests, server = case
    twin = reference_server.serve(requests, **server, refill_delay=1)
    assert plain(served_by(requests, server, refill_delay=1, record=True)) == twin


@settings(deadline=None, derandomize=True, max_examples=300)
@given(servers(prefix_caching=False) | servers(prefix_caching=True), st.integers(0, 1))
def test_requests_tokens_and_blocks_are_conserved_and_recording_changes_nothing(case, refill_delay):
    requests, server = case
    served = served_by(requests, server, refill_delay=refill_delay)
    recorded = served_by(requests, server, refill_delay=refill_delay, record=True)
    check_conservation(requests, server, served)
    nothing = dict.fromkeys(["admission_events", "preemption_events", "trace", "schedule"])
    assert plain(served) == plain(recorded) | nothing
    assert recorded.trace.tokens.sum() == served.scheduled_tokens
    assert (recorded.trace.tokens <= server["token_budget"]).all()


@settings(deadline=None, derandomize=True, max_examples=250)
@given(servers(prefix_caching=False))
def test_blocks_in_use_are_what_the_schedule_says_the_requests_hold(case):
    requests, server = case
    served = served_by(requests, server, record=True)
    assert blocks_held(requests, server["block_size"], served) == served.trace.blocks.tolist()


@pytest.mark.parametrize(("slots", "steps"), [(4, 3556), (8, 1975), (16, 1148), (32, 696), (64, 661)])
def test_short_prompts_and_plenty_of_blocks_are_ideal_slot_refilling(slots, steps):
    served = serve([1] * 200, REFERENCE, slots=slots, **PLENTY)
    assert served.engine_steps == ideal_refill_steps(REFERENCE, slots) == steps


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 20), st.sampled_from([1, 7, 16, 10**9]))
def test_any_lengths_with_short_prompts_and_plenty_of_blocks_are_ideal_slot_refilling(lengths, slots, block_size):
    served = serve([1] * len(lengths), lengths, slots=slots, block_size=block_size, blocks=10**9, token_budget=slots)
    assert served.engine_steps == ideal_refill_steps(lengths, slots)


@pytest.mark.parametrize(("slots", "steps"), [(4, 3607), (8, 1996), (16, 1157), (32, 703), (64, 661)])
def test_a_slot_that_is_refilled_a_step_late_costs_what_the_asynchronous_engine_shows(slots, steps):
    assert serve([1] * 200, REFERENCE, slots=slots, refill_delay=1, **PLENTY).engine_steps == steps


def test_late_refilling_costs_nothing_when_all_slots_end_together():
    for refill_delay in (0, 1):
        assert serve([1] * 200, [100] * 200, slots=16, refill_delay=refill_delay, **PLENTY).engine_steps == 1300


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_thousand_requests_that_fit_one_at_a_time_take_their_turns(prefix_caching):
    hostile = {"slots": 1, "block_size": 4, "blocks": 1, "token_budget": 1, "prefix_caching": prefix_caching}
    served = serve([2] * 1000, [3] * 1000, **hostile)
    assert served.engine_steps == 4 * 1000
    assert served.preemptions == 0
    assert served.max_blocks == 1


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_pool_for_one_request_with_slots_for_many_still_serves_everybody(prefix_caching):
    requests = [(8, 56, 0, 0, 0)] * 1000
    server = {"slots": 64, "block_size": 1, "blocks": 63, "token_budget": 64, "prefix_caching": prefix_caching}
    served = served_by(requests, server)
    check_conservation(requests, server, served)
    assert served.preemptions > 1000
    assert (served.last_token_step > 0).all()


def test_millions_of_steps_where_nothing_changes_are_counted_exactly():
    tokens, size = 10_000_000, 16
    served = serve([1, 1], [tokens, tokens], slots=2, block_size=size, blocks=2 * tokens, token_budget=2)
    assert served.engine_steps == tokens
    assert served.mean_blocks == 2 * size * sum(range(1, tokens // size + 1)) / tokens


def test_a_request_that_can_never_fit_is_refused_and_counted():
    served = serve([10, 30, 10], [7, 3, 8], slots=2, block_size=4, blocks=4, token_budget=100)
    assert served.refused == 2
    assert served.last_token_step.tolist() == [7, 0, 0]


def test_without_chunks_a_text_longer_than_the_budget_is_refused_since_it_could_not_come_back():
    limits = {"slots": 2, "block_size": 4, "blocks": 100, "token_budget": 20, "chunked_prefill": False}
    served = serve([15, 15], [6, 7], **limits)
    assert served.refused == 1
    assert served.last_token_step.tolist() == [6, 0]


def test_if_all_are_refused_no_step_runs_and_means_are_undefined():
    served = serve([10], [10], slots=1, block_size=1, blocks=1, token_budget=1, record=True)
    assert (served.engine_steps, served.makespan_steps, served.refused) == (0, 0, 1)
    assert math.isnan(served.mean_batch)
    assert math.isnan(served.mean_blocks)
    assert served.schedule == []


def test_a_request_without_output_takes_no_step():
    served = serve([5, 5], [0, 3], slots=1, **PLENTY)
    assert served.engine_steps == 3
    assert served.refused == 0
    assert served.first_token_step.tolist() == [0, 1]


def one_run(prompt, output, arrival, step_s: float, *policy):
    """A run of the kernel that is only counted, in order of arrival and without prefixes."""
    zeros, paged, nobody = np.zeros(len(output), np.int64), np.zeros(0, np.int64), np.zeros(0)
    nothing = (np.zeros((0, 5)), *(np.zeros((0, k), np.int64) for k in (2, 3, 2)))
    code = packed(Constant(step_s)).copy()
    return serve_one(prompt, output, arrival, zeros, zeros, paged, nobody, nobody, 0, *policy, code, *nothing)


def test_with_a_constant_step_times_are_steps_times_step_to_the_last_bit():
    work = (np.full(200, 300), np.array(REFERENCE), np.zeros(200))
    limits = (16, 16, 400, 2048, False, True, 0)
    steps, seconds = one_run(*work, 1.0, *limits), one_run(*work, 0.02, *limits)
    assert seconds.makespan == steps.makespan * 0.02
    assert (seconds.last_token == steps.last_token * 0.02).all()
    assert (seconds.first_token == steps.first_token * 0.02).all()
    assert seconds[4:14] == steps[4:14]


def test_arrivals_in_seconds_run_from_the_first_step_that_begins_after_them():
    work = (np.ones(3, np.int64), np.array([5, 2, 1]), np.array([0.0, 0.05, 9.99]))
    run = one_run(*work, 0.02, 2, 16, 9, 9, False, True, 0)
    assert run.admitted.tolist() == [0.0, 3 * 0.02, 9.99]
    assert run.first_token.tolist() == [0.02, 4 * 0.02, 9.99 + 0.02]
    assert run.makespan == 9.99 + 0.02


def test_the_kernel_is_compiled_once_whatever_the_arrays_given():
    read_only = np.array([3, 4], np.int32)
    read_only.flags.writeable = False
    for prompt in ([3, 4], (3, 4), read_only, np.array([3, 9, 4, 9], np.uint8)[::2]):
        serve(prompt, prompt, slots=2, prefix_caching=True, record=True, **PLENTY)
    assert len(serve_one.signatures) == 1


def test_threads_give_the_same_runs_as_one_after_the_other():
    def run(slots: int) -> dict:
        return plain(serve([200] * 200, REFERENCE, slots=slots, block_size=16, blocks=150, token_budget=256))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(run, range(1, 33))) == [run(slots) for slots in range(1, 33)]


SMALL = {"slots": 2, "block_size": 4, "blocks": 9, "token_budget": 8}


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"prompt_tokens": [3, 0]}, ["prompt_tokens: must be from 1 to 10000000, got 0 for request 1"]),
        ({"prompt_tokens": []}, ["prompt_tokens: must be a list of at least one whole number, got shape (0,)"]),
        (
            {"prompt_tokens": [[3], [4]]},
            ["prompt_tokens: must be a list of at least one whole number, got shape (2, 1)"],
        ),
        ({"prompt_tokens": [[3], [4, 5]]}, ["prompt_tokens: must be a list of whole numbers, one for each request"]),
        ({"prompt_tokens": [3.5, 4.0]}, ["prompt_tokens: must be whole numbers, got float64"]),
        ({"output_tokens": [1]}, ["output_tokens: must be one for each of the 2 requests, got 1"]),
        ({"output_tokens": [1, -1]}, ["output_tokens: must be from 0 to 10000000, got -1 for request 1"]),
        ({"arrival_step": [-1, 0]}, [f"arrival_step: must be from 0 to {2**52}, got -1 for request 0"]),
        ({"prefix_tokens": [0, 5]}, ["prefix_tokens: must be within the prompt, got 5 of 4 tokens for request 1"]),
        ({"slots": 0}, [f"slots: must be a whole number from 1 to {2**52}, got 0"]),
        ({"blocks": True}, [f"blocks: must be a whole number from 1 to {2**52}, got True"]),
        ({"token_budget": 1}, ["token_budget: must be at least the slots, 2, so that all can decode, got 1"]),
        ({"refill_delay": 2}, ["refill_delay: must be 0 or 1, got 2"]),
        ({"prefix_caching": "no"}, ["prefix_caching: must be True or False, got 'no'"]),
        (
            {"block_size": 0, "output_tokens": [1, "two"]},
            [
                f"block_size: must be a whole number from 1 to {2**52}, got 0",
                "output_tokens: must be whole numbers, got <U21",
            ],
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_line_for_each_fault(arguments, lines):
    with pytest.raises(InputError) as refusal:
        serve(**({"prompt_tokens": [3, 4], "output_tokens": [2, 2]} | SMALL | arguments))
    assert list(refusal.value.lines) == lines

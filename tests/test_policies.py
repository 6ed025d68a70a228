"""Memory policies: equal to literal twins and a published benchmark, and all of the cache accounted for."""

import json
from pathlib import Path

import numpy as np
import pytest
import reference_server
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import InputError
from sweep.model.lockstep import given_steps
from sweep.model.policies import Shares, Workloads, reservations, serve_on, shares
from sweep.model.rules import NO_LIMIT, Rules
from sweep.model.server import serve

PUBLISHED = json.loads((Path(__file__).parent / "golden" / "published.json").read_text(encoding="utf-8"))["caps"]
RESERVES = ("maximum", "power_of_two", "oracle", "asked")


def rules(**changes) -> Rules:
    """A server with 16 slots and room for 4,096 tokens, and what is changed of it."""
    kind = changes.setdefault("kind", "paged")
    slots, size = changes.setdefault("slots", 16), changes.setdefault("block_size", 16)
    blocks = changes.setdefault("blocks", NO_LIMIT if kind == "slots" else 4096 // size)
    changes.setdefault("cache_tokens", NO_LIMIT if kind == "slots" else blocks * size)
    defaults = {
        "reserve": "maximum",
        "static_slots": slots,
        "static_cache_tokens": changes["cache_tokens"],
        "token_budget": max(2048, slots),
        "prefix_caching": False,
        "chunked_prefill": True,
        "refill_delay": 0,
        "most_tokens": 2048,
        "most_output": 1024,
        "context": None,
    }
    return Rules(**(defaults | changes))


def workloads(prompts, outputs, groups=None, prefix_tokens: int = 0) -> Workloads:
    outputs = np.atleast_2d(np.asarray(outputs, np.int64))
    prompts = np.array(np.broadcast_to(np.asarray(prompts, np.int64), outputs.shape))
    groups = np.zeros((1, outputs.shape[1]), np.int64) if groups is None else np.atleast_2d(groups)
    return Workloads(prompts, outputs, groups, prefix_tokens)


def drawn(seed: int, count: int = 20, requests: int = 150, prefix_tokens: int = 0) -> Workloads:
    rng = np.random.default_rng(seed)
    prompts = prefix_tokens + rng.integers(1, 400, (count, requests))
    outputs = np.where(rng.random((count, requests)) < 0.1, rng.integers(200, 400, (count, requests)), 20)
    return Workloads(prompts, outputs, rng.integers(0, 3, (count, requests)), prefix_tokens)


@st.composite
def small_servers(draw):
    """Requests (prompt, output, arrival, prefix, group), what is reserved for each, and a server that reserves."""
    slots = draw(st.integers(1, 6))
    requests, reserved = [], []
    for _ in range(draw(st.integers(1, 20))):
        prompt, output = draw(st.integers(1, 30)), draw(st.integers(0, 30))
        requests.append((prompt, output, draw(st.sampled_from([0, 0, 3, 40])), 0, 0))
        reserved.append(max(1, prompt + output - 1 + draw(st.sampled_from([0, 1, 20]))))
    server = {
        "slots": slots,
        "tokens": max(1, max(reserved) + draw(st.integers(-3, 60))),
        "token_budget": slots + draw(st.sampled_from([0, 3, 10, 60])),
        "chunked_prefill": draw(st.booleans()),
        "refill_delay": draw(st.integers(0, 1)),
    }
    return requests, reserved, server


def reserving(requests, reserved, server, *, record: bool):
    prompt, output, arrival, _, _ = zip(*requests, strict=True)
    limits = {key: value for key, value in server.items() if key != "tokens"}
    return serve(
        prompt,
        output,
        arrival_step=arrival,
        reserve_tokens=reserved,
        block_size=1,
        blocks=server["tokens"],
        record=record,
        **limits,
    )


@settings(deadline=None, derandomize=True, max_examples=400)
@given(small_servers())
def test_the_twin_gives_the_same_run_of_a_server_that_reserves(case):
    requests, reserved, server = case
    run = reserving(requests, reserved, server, record=True)
    twin = reference_server.serve_reserving(requests, reserved, **server)
    assert {name: column.tolist() for name, column in run.trace._asdict().items()} == twin.pop("trace")
    ours = {name: getattr(run, name) for name in twin}
    assert {name: getattr(value, "tolist", lambda value=value: value)() for name, value in ours.items()} == twin
    assert run.preemptions == 0


@settings(deadline=None, derandomize=True, max_examples=200)
@given(small_servers())
def test_counting_alone_gives_what_recording_gives(case):
    counted, recorded = (reserving(*case, record=record) for record in (False, True))
    if recorded.engine_steps:
        assert counted.mean_cached_tokens == recorded.trace.cached_tokens.mean()
        assert counted.mean_blocks == recorded.trace.blocks.mean()
    assert counted.last_token_step.tolist() == recorded.last_token_step.tolist()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=25),
    st.integers(1, 6),
    st.sampled_from([1, 5, 16, 100]),
    st.integers(79, 400),
)
def test_the_twin_takes_the_same_static_steps(requests, slots, token_budget, capacity):
    prompts, outputs = zip(*requests, strict=True)
    server = rules(
        kind="slots",
        slots=max(slots, token_budget),
        static_slots=slots,
        token_budget=token_budget,
        static_cache_tokens=capacity,
        most_output=40,
    )
    twin = reference_server.static_steps(
        prompts, outputs, slots=slots, token_budget=token_budget, capacity=capacity, most_output=40
    )
    assert serve_on(workloads(prompts, outputs), server).static_steps.tolist() == [twin]


@pytest.mark.parametrize("cap", PUBLISHED)
def test_the_published_benchmark_is_replayed_exactly_by_static_and_continuous_batching_of_the_same_slots(cap):
    figures = PUBLISHED[cap]
    server = rules(kind="slots", slots=figures["static_slots"], token_budget=8192)
    served = serve_on(workloads(512, figures["lengths"]), server)
    assert served.static_steps.tolist() == [figures["static_steps"]]
    assert served.counters["engine_steps"].tolist() == [figures["continuous_steps_same_slots"]]


@pytest.mark.parametrize("cap", PUBLISHED)
def test_the_published_benchmark_is_replayed_exactly_with_reserved_tokens(cap):
    figures = PUBLISHED[cap]
    server = rules(
        kind="reserve", reserve="asked", slots=256, cache_tokens=figures["reserved_tokens"], token_budget=8192
    )
    counters = serve_on(workloads(512, figures["lengths"]), server).counters
    assert counters["engine_steps"].tolist() == [figures["continuous_steps_reserved"]]
    assert counters["preemptions"].tolist() == [0]
    mean_batch = counters["sum_batch"] / counters["engine_steps"]
    assert mean_batch.tolist() == [figures["mean_batch_reserved"]]


@pytest.mark.parametrize("cap", PUBLISHED)
@pytest.mark.parametrize("pool", [0, 1])
def test_the_published_benchmark_is_replayed_exactly_with_paging(cap, pool):
    figures = PUBLISHED[cap]["paged"][pool]
    server = rules(slots=figures["slots"], blocks=figures["usable_blocks"], token_budget=figures["token_budget"])
    counters = serve_on(workloads(512, np.maximum(PUBLISHED[cap]["lengths"], 1)), server).counters
    assert counters["engine_steps"].tolist() == [figures["engine_steps"]]
    assert counters["preemptions"].tolist() == [figures["preemptions"]]
    assert (counters["sum_batch"] / counters["engine_steps"]).tolist() == [figures["mean_batch"]]


@pytest.mark.parametrize("kind", ["slots", "paged"])
@pytest.mark.parametrize("slots", [1, 4, 16, 500])
def test_prompts_of_one_token_and_plenty_of_memory_are_lockstep(kind, slots):
    outputs = drawn(7).outputs
    plenty = {} if kind == "slots" else {"blocks": 10**6}
    served = serve_on(workloads(1, outputs), rules(kind=kind, slots=slots, **plenty))
    ideal = given_steps(outputs, [slots])
    assert served.static_steps.tolist() == ideal.static[0].tolist()
    assert served.counters["engine_steps"].tolist() == ideal.continuous[0].tolist()
    assert served.output_tokens.tolist() == ideal.output_tokens.tolist()
    assert served.longest_output_tokens.tolist() == ideal.longest_output_tokens.tolist()


def test_a_server_that_reserves_the_maximum_is_one_with_as_many_slots_as_fit():
    work = drawn(3)
    reserve = serve_on(work, rules(kind="reserve", cache_tokens=5 * 2048 + 100))
    five = serve_on(work, rules(kind="slots", slots=5, token_budget=2048))
    assert reserve.counters["engine_steps"].tolist() == five.counters["engine_steps"].tolist()


def test_the_more_exactly_memory_is_reserved_the_more_requests_run():
    def mean_batch(**policy) -> float:
        counters = serve_on(drawn(5), rules(slots=256, **policy)).counters
        return counters["sum_batch"].sum() / counters["engine_steps"].sum()

    batches = [mean_batch(kind="reserve", reserve=reserve) for reserve in ("maximum", "power_of_two", "oracle")]
    batches += [mean_batch(kind="paged"), mean_batch(kind="slots", token_budget=2048)]
    assert batches == sorted(batches)
    assert len(set(batches)) == len(batches)


@pytest.mark.parametrize("policy", [*({"kind": "reserve", "reserve": reserve} for reserve in RESERVES), {}])
@pytest.mark.parametrize("refill_delay", [0, 1])
def test_the_parts_of_the_cache_are_the_whole_in_every_workload(policy, refill_delay):
    server = rules(slots=64, refill_delay=refill_delay, **policy)
    parts = shares(serve_on(drawn(11), server), server)
    assert np.allclose(sum(parts), 1, rtol=0, atol=1e-12)
    assert all((part >= 0).all() for part in parts)
    assert (parts.lost == 0).all() == bool(policy)
    assert (parts.reserved == 0).all() == (not policy)


def test_with_prefixes_shared_the_parts_are_the_whole_too_and_shared_tokens_count_once():
    work = drawn(13, prefix_tokens=300)
    server = rules(slots=64, prefix_caching=True)
    served = serve_on(work, server)
    parts = shares(served, server)
    assert served.counters["hits_first"].min() > 0
    assert np.allclose(sum(parts), 1, rtol=0, atol=1e-12)
    assert (parts.used <= 1).all()


def test_the_oracle_wastes_nothing_but_room_for_tokens_to_come():
    server = rules(kind="reserve", reserve="oracle", slots=1)
    work = workloads([[10, 7]], [[1, 1]])  # prompts of one step each: full from the first step on
    assert shares(serve_on(work, server), server).reserved.tolist() == [0]


def test_where_memory_has_no_limit_there_are_no_shares_of_it():
    server = rules(kind="slots")
    assert all(np.isnan(part).all() for part in shares(serve_on(drawn(1, count=2), server), server))


def test_where_no_step_runs_shares_are_undefined():
    server = rules(blocks=1)
    served = serve_on(workloads([[100]], [[100]]), server)
    assert served.counters["refused"].tolist() == [1]
    assert served.static_steps.tolist() == [0]
    assert all(np.isnan(part).all() for part in Shares(*shares(served, server)))


@pytest.mark.parametrize(
    ("reserve", "tokens"),
    [("maximum", [2048, 2048]), ("power_of_two", [10 + 32, 10 + 64]), ("oracle", [34, 73]), ("asked", [35, 74])],
)
def test_what_is_reserved_for_an_output_of_25_and_of_64_tokens(reserve, tokens):
    server = rules(kind="reserve", reserve=reserve)
    assert reservations(np.array([[10, 10]]), np.array([[25, 64]]), server).tolist() == [tokens]


def test_a_request_that_fits_never_reserves_more_than_there_is():
    server = rules(kind="reserve", reserve="power_of_two", cache_tokens=100)
    assert reservations(np.array([[30, 40]]), np.array([[65, 65]]), server).tolist() == [[100, 104]]


def test_a_request_longer_than_the_maximum_is_refused():
    served = serve_on(workloads([[2000, 2000]], [[49, 50]]), rules(kind="reserve", cache_tokens=10_000))
    assert served.counters["refused"].tolist() == [1]
    assert served.output_tokens.tolist() == [49]


@pytest.mark.parametrize(("kind", "refused"), [("paged", 2), ("slots", 1), ("reserve", 1)])
def test_without_chunks_only_who_can_be_preempted_must_fit_a_step_with_all_its_text(kind, refused):
    server = rules(kind=kind, slots=4, token_budget=100, chunked_prefill=False)
    served = serve_on(workloads([[90, 90, 101]], [[11, 12, 5]]), server)
    assert served.counters["refused"].tolist() == [refused]


def test_refused_requests_count_for_neither_scheduler():
    served = serve_on(workloads([[10, 5000, 10]], [[20, 20, 30]]), rules(slots=1))
    assert served.counters["refused"].tolist() == [1]
    assert served.output_tokens.tolist() == [50]
    assert served.static_steps.tolist() == [50]
    assert served.counters["engine_steps"].tolist() == [50]


def test_a_static_group_waits_for_all_of_its_prompts():
    server = rules(kind="slots", slots=4, token_budget=100)
    served = serve_on(workloads([[60, 60, 60, 60]], [[5, 1, 1, 1]]), server)
    assert served.static_steps.tolist() == [3 + 5 - 1]


def test_a_context_is_what_each_member_of_a_static_group_reserves():
    server = rules(kind="slots", slots=4, static_cache_tokens=3 * 500 + 499, context=500)
    assert serve_on(workloads(100, [[10] * 6]), server).static_steps.tolist() == [2 * 10]


def test_memory_makes_static_groups_smaller_than_the_slots():
    served = serve_on(workloads(100, [[10] * 6]), rules(slots=4, static_cache_tokens=2 * 1124 + 1123))
    assert served.static_steps.tolist() == [3 * 10]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"reserve_tokens": [5]}, "reserve_tokens: must be one for each of the 2 requests, got 1"),
        ({"reserve_tokens": [5, 4]}, "reserve_tokens: must hold the 5 tokens of request 1, got 4"),
        ({"block_size": 4}, "reserve_tokens: needs block_size = 1, and no prefix_caching"),
        ({"prefix_caching": True}, "reserve_tokens: needs block_size = 1, and no prefix_caching"),
    ],
)
def test_reservations_that_cannot_be_are_refused(changes, line):
    with pytest.raises(InputError) as refusal:
        serve(
            [3, 3],
            [2, 3],
            **({"reserve_tokens": [4, 5], "block_size": 1, "slots": 1, "blocks": 9, "token_budget": 4} | changes),
        )
    assert list(refusal.value.lines) == [line]

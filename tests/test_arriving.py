"""Batching with arrivals: equal to literal twins, to the other kernels where both apply, and to queueing theory."""

import json
import math
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import reference_arriving as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp, stdtrit

from sweep.model import arriving
from sweep.model.arrival_patterns import Gaps
from sweep.model.arrivals import arrival_s
from sweep.model.arriving import continuous_times, static_times
from sweep.model.distributions import Mixture, UniformPart
from sweep.model.lengths import integer_lengths, look_up_of, moments
from sweep.model.listed import Constant as ConstantLength
from sweep.model.lockstep import continuous_steps, draw_lengths, static_steps
from sweep.model.server import serve
from sweep.model.stepfit import affine, fit_affine
from sweep.model.steptable import read_step_table
from sweep.model.steptime import Affine, Constant
from sweep.model.tails import Geometric
from sweep.model.times import AnyTimes, Requests

MEASURED = Path(__file__).parents[2] / "shared" / "data" / "step_times"
CASES = json.loads((MEASURED / "reference_workload.json").read_text())["cases"] if MEASURED.exists() else []
needs_tables = pytest.mark.skipif(not CASES, reason="the measured step times are not here")
quick = settings(deadline=None, derandomize=True, max_examples=60)

UNIT = Constant(1.0)
LINE = Affine(0.5, 0.25, 1 / 64, 1 / 32)  # sums of such terms are exact, so twins agree to the last bit


def all_at(arrival, output, prompt=0, rank=0.0, clients=0, think=0.0) -> Requests:
    output = np.atleast_2d(np.asarray(output, np.int64))
    wide = partial(np.broadcast_to, shape=output.shape)
    prompt = np.ascontiguousarray(wide(np.asarray(prompt, np.int64)))
    rank = np.ascontiguousarray(wide(np.asarray(rank, np.float64)))
    return Requests(
        wide(np.asarray(arrival, np.float64)), output, prompt, rank, clients, wide(np.asarray(think, float))
    )


@st.composite
def workloads(draw) -> Requests:
    n = draw(st.integers(1, 14))
    numbers = partial(st.lists, min_size=n, max_size=n)
    arrival = np.cumsum(draw(numbers(st.integers(0, 9))))
    rank = draw(numbers(st.sampled_from([0.0, 1.0, 2.5])))
    clients = draw(st.sampled_from([0, 0, 1, 3, 20]))
    think = draw(numbers(st.integers(0, 6)))
    return all_at(arrival, draw(numbers(st.integers(0, 9))), draw(numbers(st.integers(0, 5))), rank, clients, think)


def of_twin(scheduler, work: Requests, *args) -> tuple[list[list[float]], int]:
    columns = (work.output[0], work.prompt[0], work.rank[0], work.think_s[0])
    requests = [
        twin.Request(number, int(o), int(p), float(r), float(t))
        for number, (o, p, r, t) in enumerate(zip(*columns, strict=True))
    ]
    if not work.clients:
        for request, moment in zip(requests, work.arrival_s[0], strict=True):
            request.arrival = float(moment)
    steps = scheduler(requests, work.clients, *args)
    return [[one.arrival, one.start, one.first, one.finish] for one in requests], steps


def moments_of(times: AnyTimes) -> list[np.ndarray]:
    return [times.arrival, times.start, times.first, times.finish]


def assert_same(times: AnyTimes, expected: tuple[list[list[float]], int]) -> None:
    got = np.column_stack([column[0] for column in moments_of(times)])
    np.testing.assert_array_equal(got, np.array(expected[0]))
    assert times.steps[0] == expected[1]


def seconds(step_time, batch: int, kv_tokens: int, prefill_tokens: int) -> float:
    if isinstance(step_time, Constant):
        return step_time.step_s
    c0, c1, c2, c3 = step_time
    return c0 + c1 * batch + c2 * kv_tokens + c3 * prefill_tokens


@quick
@given(workloads(), st.integers(1, 5), st.sampled_from([UNIT, LINE]), st.booleans())
def test_continuous_batching_is_what_its_twin_does(work, slots, step_time, charged) -> None:
    got = continuous_times(step_time, work, slots, charged=charged)
    assert_same(got, of_twin(twin.continuous, work, slots, partial(seconds, step_time), charged))


@quick
@given(
    workloads(),
    st.integers(1, 5),
    st.sampled_from([UNIT, LINE]),
    st.booleans(),
    st.sampled_from([0.0, 3.0, 40.0]),
    st.booleans(),
)
def test_static_batching_is_what_its_twin_does(work, slots, step_time, charged, max_wait, padded) -> None:
    got = static_times(step_time, work, slots, charged=charged, max_wait_s=max_wait, padded=padded)
    step_s = partial(seconds, step_time)
    assert_same(got, of_twin(twin.static, work, slots, step_s, charged, max_wait, padded))


@quick
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 9))
def test_with_all_waiting_from_the_start_steps_are_those_of_the_lanes(lengths, slots) -> None:
    work = all_at(0, lengths)
    assert continuous_times(UNIT, work, slots).finish.max() == continuous_steps(lengths, slots)
    assert static_times(UNIT, work, slots).finish.max() == static_steps(lengths, slots)


@quick
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 6), st.integers(0, 12))
def test_tokens_come_when_the_server_model_has_them(seed, n, slots, gap) -> None:
    rng = np.random.default_rng(seed)
    arrival, output = np.cumsum(rng.integers(0, gap + 1, n)), rng.integers(1, 20, n)
    got = continuous_times(UNIT, all_at(arrival, output), slots)
    served = serve(
        np.ones(n, int), output, arrival_step=arrival, slots=slots, block_size=16, blocks=1000, token_budget=2048
    )
    assert (got.first[0] == served.first_token_step).all()
    assert (got.finish[0] == served.last_token_step).all()
    assert got.steps[0] == served.engine_steps


@quick
@given(workloads(), st.integers(1, 5), st.floats(1e-3, 10.0))
def test_with_a_constant_step_the_clock_counts_steps_of_that_length(work, slots, step_s) -> None:
    scaled = work._replace(arrival_s=work.arrival_s * step_s, think_s=work.think_s * step_s)
    for scheduler in (continuous_times, static_times):
        in_steps, timed = scheduler(UNIT, work, slots), scheduler(Constant(step_s), scaled, slots)
        assert (in_steps.unit_s, timed.unit_s) == (1.0, step_s)
        np.testing.assert_array_equal(moments_of(timed), moments_of(in_steps))


@quick
@given(workloads(), st.integers(1, 5), st.sampled_from([UNIT, LINE]))
def test_every_time_is_at_least_its_floor(work, slots, step_time) -> None:
    shortest = seconds(step_time, 1, 1, 0)
    for scheduler in (continuous_times, static_times):
        times = scheduler(step_time, work, slots)
        spoke = work.output > 0
        assert (times.start >= times.arrival).all()
        assert (times.first[spoke] >= times.start[spoke] + shortest).all()
        assert (times.finish[spoke] >= times.first[spoke] + (work.output[spoke] - 1) * shortest).all()
        assert np.isnan(times.first[~spoke]).all()


@quick
@given(workloads(), st.integers(1, 5))
def test_no_slot_idles_while_somebody_waits(work, slots) -> None:
    """Under continuous batching: whoever waits at a moment does so because all slots are taken."""
    times = continuous_times(UNIT, work, slots, charged=False)
    starts, ends, comes = times.start[0], times.finish[0], times.arrival[0]
    for moment in np.arange(0, ends.max()):
        if ((comes <= moment) & (starts > moment)).any():
            assert ((starts <= moment) & (ends > moment)).sum() == slots


@quick
@given(workloads(), st.integers(1, 5))
def test_littles_law_is_exact_from_empty_to_empty(work, slots) -> None:
    """The number present, summed over the steps of the run, is the sum of the times that requests spend here."""
    for scheduler in (continuous_times, static_times):
        times = scheduler(UNIT, work, slots)
        steps = np.arange(0, times.finish.max())
        present = (times.arrival[0][:, None] <= steps) & (times.finish[0][:, None] > steps)
        assert present.sum() == (times.finish - times.arrival).sum()


@quick
@given(workloads(), st.integers(1, 5))
def test_shortest_first_never_starts_a_longer_one_while_a_shorter_one_waits(work, slots) -> None:
    work = work._replace(rank=work.output.astype(np.float64), clients=0)
    times = continuous_times(UNIT, work, slots)
    starts, comes, output = times.start[0], times.arrival[0], work.output[0]
    for one, started in enumerate(starts):
        passed_over = (comes <= started) & (starts > started)
        assert (output[passed_over] >= output[one]).all()


def test_a_lone_client_is_served_at_once_every_time() -> None:
    work = all_at(0, [3, 5, 1], clients=1, think=[2, 4, 9])
    times = continuous_times(UNIT, work, 4)
    assert times.arrival[0].tolist() == [0, 5, 14]
    assert times.finish[0].tolist() == [3, 10, 15]


def test_a_group_starts_when_full_or_when_its_oldest_has_waited_long_enough() -> None:
    work = all_at([0, 1, 2, 30, 31], [4, 4, 4, 4, 4])
    assert static_times(UNIT, work, 3, max_wait_s=10).start[0].tolist() == [2, 2, 2, 40, 40]
    assert static_times(UNIT, work, 2, max_wait_s=10).start[0].tolist() == [1, 1, 12, 31, 31]
    assert static_times(UNIT, work, 3).start[0].tolist() == [0, 4, 4, 30, 34]


# Seconds


MIX = Mixture(parts=(UniformPart(weight=0.9, low=8, high=40), UniformPart(weight=0.1, low=400, high=700)))


def test_an_affine_step_saves_its_constant_in_every_step_that_is_saved() -> None:
    """With finished members leaving, both schedulers do the same work for each request: X seconds in all."""
    lengths = draw_lengths(look_up_of(MIX), 37, 0, 20, 200)
    cost = Affine(0.02, 3e-4, 2e-7)
    work = all_at(0, lengths, prompt=512)
    static, continuous = (
        static_times(cost, work, 16, charged=False, padded=False),
        continuous_times(cost, work, 16, charged=False),
    )
    x = 3e-4 * lengths.sum(axis=1) + 2e-7 * (lengths * 512 + lengths * (lengths + 1) // 2).sum(axis=1)
    static_s, continuous_s = static.finish.max(axis=1), continuous.finish.max(axis=1)
    assert static_s == pytest.approx(0.02 * static.steps + x, rel=1e-11)
    assert continuous_s == pytest.approx(0.02 * continuous.steps + x, rel=1e-11)
    assert static_s - continuous_s == pytest.approx((static.steps - continuous.steps) * 0.02, rel=1e-9)


@needs_tables
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"slots{case['slots']}-prompts{case['prompt_tokens']}")
def test_the_reference_workload_takes_the_seconds_found_elsewhere(case) -> None:
    rng = random.Random(37)
    lengths = [rng.randint(400, 700) if rng.random() < 0.10 else rng.randint(8, 40) for _ in range(200)]
    work = all_at(0, lengths, prompt=case["prompt_tokens"])
    for name, right in case["seconds"].items():
        table = read_step_table(MEASURED / f"{name}.csv")
        for kind, step_time in (("table", table), ("fit", affine(fit_affine(table)))):
            if right[kind] is None:
                continue
            runs = {
                "static_padded": static_times(step_time, work, case["slots"], charged=False),
                "static": static_times(step_time, work, case["slots"], charged=False, padded=False),
                "continuous": continuous_times(step_time, work, case["slots"], charged=False),
            }
            for how, run in runs.items():
                assert run.steps[0] == case["steps"][how]
                assert run.finish.max() == pytest.approx(right[kind][how], abs=6e-7)
        if right["table"] is not None and right["prompts"] is not None:
            charged = static_times(table, work, case["slots"])
            assert charged.finish.max() == pytest.approx(right["table"]["static_padded"] + right["prompts"], abs=2e-6)
            charged = continuous_times(table, work, case["slots"])
            assert charged.finish.max() == pytest.approx(right["table"]["continuous"] + right["prompts"], abs=2e-6)


# Queueing theory
#
# Twelve replications of one long run give a mean with a t interval. At 1 - 1e-4 for each of the 22 means below, one in
# 450 choices of the seed would raise a false alarm. A run starts empty; with this many requests that shifts its mean by
# less than a tenth of the interval. Services of 10,000 steps and more leave the grid of steps without effect.

REPLICATIONS = 12
MEAN_STEPS = 10_000


def replications(lengths, load: float, slots: int, requests: int) -> AnyTimes:
    spec_mean = moments(integer_lengths(lengths)).mean
    rate = load * slots / spec_mean
    arrivals = arrival_s(Gaps("exponential"), rate, 1909, 0, REPLICATIONS, requests)
    output = draw_lengths(look_up_of(lengths), 1909, 0, REPLICATIONS, requests)
    return continuous_times(UNIT, all_at(np.ceil(arrivals), output), slots)


def assert_mean(values, expected: float) -> None:
    """The expected value is in the interval of 1 - 1e-4 around the mean of these replications."""
    half = float(stdtrit(REPLICATIONS - 1, 1 - 5e-5)) * values.std(ddof=1) / math.sqrt(REPLICATIONS)
    assert half < 0.25 * expected, "too few requests to tell"
    assert abs(values.mean() - expected) <= half


def erlang_c(servers: int, load: float) -> float:
    """The chance to wait in M/M/m (Erlang, 1917), `load` being that of each server."""
    offered = servers * load
    terms = np.arange(servers) * math.log(offered) - gammaln(np.arange(servers) + 1)
    last = servers * math.log(offered) - gammaln(servers + 1) - math.log1p(-load)
    return float(np.exp(last - logsumexp([*terms, last])))


def test_erlang_c_is_the_table_value() -> None:
    assert erlang_c(1, 0.8) == pytest.approx(0.8)
    assert erlang_c(2, 0.5) == pytest.approx(1 / 3)


@pytest.mark.parametrize("slots", [1, 4, 16])
@pytest.mark.parametrize(("load", "requests"), [(0.5, 120_000), (0.8, 120_000), (0.95, 400_000)])
def test_markovian_queues_wait_as_erlang_has_it(slots, load, requests) -> None:
    lengths = Geometric(mean=MEAN_STEPS, max_tokens=2**24)
    times = replications(lengths, load, slots, requests)
    waits = times.start - times.arrival
    chance = erlang_c(slots, load)
    assert_mean((waits >= 1).mean(axis=1), chance)
    assert_mean(waits.mean(axis=1), chance * MEAN_STEPS / (slots * (1 - load)))


@pytest.mark.parametrize(
    ("lengths", "square"),
    [
        (ConstantLength(value=MEAN_STEPS), 1.0),
        (
            Mixture(
                parts=(
                    UniformPart(weight=0.9, low=4_000, high=6_000),
                    UniformPart(weight=0.1, low=50_000, high=60_000),
                )
            ),
            None,
        ),
    ],
    ids=["deterministic", "general"],
)
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_waits_as_pollaczek_and_khinchine_have_it(lengths, square, load) -> None:
    mean, cv = moments(integer_lengths(lengths))
    assert square is None or 1 + cv**2 == pytest.approx(square)
    times = replications(lengths, load, 1, 60_000)
    expected = load * mean * (1 + cv**2) / (2 * (1 - load))
    assert_mean((times.start - times.arrival).mean(axis=1), expected)


def test_each_kernel_is_compiled_once() -> None:
    work = all_at([0, 1], [2, 3])
    for step_time in (UNIT, LINE):
        continuous_times(step_time, work, 2)
        static_times(step_time, work._replace(clients=2), 1, padded=False, charged=False)
    assert len(arriving._continuous.signatures) == 1
    assert len(arriving._continuous_equal.signatures) == 1
    assert len(arriving._static.signatures) == 1

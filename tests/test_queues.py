"""Waits in lanes: equal to the kernels that go through one workload at a time, to literal twins, and to `lockstep`."""

import numpy as np
import pytest
import reference_arriving as twin
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.model import arriving, queues
from sweep.model.arriving import continuous_times, static_times
from sweep.model.lockstep import continuous_steps, static_steps
from sweep.model.steptime import Affine, Constant
from sweep.model.times import AnyTimes, Requests, Times, Waits

quick = settings(deadline=None, derandomize=True, max_examples=100)

STEP = Constant(1.0)
MAX_WAITS = st.sampled_from([0.0, 1.0, 7.0, 60.0, 1e4])


def requests(arrival, output) -> Requests:
    output = np.atleast_2d(np.asarray(output, np.int64))
    arrival = np.broadcast_to(np.asarray(arrival, np.float64), output.shape)
    return Requests(arrival, output, np.zeros((1, 1), np.int64), np.zeros((1, 1)))


def one_by_one(work: Requests) -> Requests:
    """The same requests for the kernels without lanes: ranks that rise with the arrivals change nothing else."""
    return work._replace(rank=np.tile(np.arange(work.output.shape[1], dtype=np.float64), (len(work.output), 1)))


def assert_equal(got: AnyTimes, expected: AnyTimes) -> None:
    assert (type(got), type(expected)) == (Waits, Times)
    for name in ("arrival", "start", "first", "finish", "steps", "over", "unit_s"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), name)


@st.composite
def workloads(draw, most_requests=80) -> Requests:
    """Some workloads, from idle servers to endless queues, with gaps and outputs of 0 among the rest."""
    shape = draw(st.integers(1, 3)), draw(st.integers(2, most_requests))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    gap, length = draw(st.sampled_from([0, 1, 5, 40, 10**6])), draw(st.sampled_from([1, 4, 30, 10**6]))
    return requests(np.cumsum(rng.integers(0, gap + 1, shape), axis=1), rng.integers(0, length + 1, shape))


@quick
@given(workloads(), st.integers(1, 20), st.sampled_from([1.0, 0.02, 1 / 3]))
def test_continuous_batching_in_lanes_is_that_of_the_heap(work, slots, step_s) -> None:
    work = work._replace(arrival_s=work.arrival_s * step_s)
    step = Constant(step_s)
    assert_equal(continuous_times(step, work, slots), continuous_times(step, one_by_one(work), slots))


@quick
@given(workloads(), st.integers(1, 90), MAX_WAITS)
def test_static_batching_in_lanes_is_that_of_one_workload_at_a_time(work, slots, max_wait_s) -> None:
    got, expected = (static_times(STEP, one, slots, max_wait_s=max_wait_s) for one in (work, one_by_one(work)))
    assert_equal(got, expected)


@quick
@given(workloads(most_requests=25), st.integers(1, 8), MAX_WAITS)
def test_both_are_what_their_literal_twins_do(work, slots, max_wait) -> None:
    work = work._replace(output=np.minimum(work.output, 50))  # the twins take every step
    continuous, static = continuous_times(STEP, work, slots), static_times(STEP, work, slots, max_wait_s=max_wait)
    for row in range(len(work.output)):
        for got, scheduler, rules in ((continuous, twin.continuous, ()), (static, twin.static, (max_wait, True))):
            of_twin = [
                twin.Request(number, int(output), 0, 0.0, 0.0, float(moment))
                for number, (output, moment) in enumerate(zip(work.output[row], work.arrival_s[row], strict=True))
            ]
            steps = scheduler(of_twin, 0, slots, lambda *_: 1.0, False, *rules)
            assert got.steps[row] == steps
            for name in ("start", "first", "finish"):
                np.testing.assert_array_equal(getattr(got, name)[row], [getattr(one, name) for one in of_twin], name)


@quick
@given(workloads(), st.integers(1, 20))
def test_with_all_waiting_from_the_start_the_last_is_done_when_lockstep_says(work, slots) -> None:
    work = requests(0, work.output)
    assert (continuous_times(STEP, work, slots).over == continuous_steps(work.output, slots)).all()
    assert (static_times(STEP, work, slots).over == static_steps(work.output, slots)).all()


@pytest.mark.parametrize("workloads", [31, 32, 33, 100])
def test_workloads_in_other_lanes_change_nothing(workloads) -> None:
    rng = np.random.default_rng(workloads)
    shape = (workloads, 70)
    work = requests(np.cumsum(rng.integers(0, 20, shape), axis=1), rng.integers(0, 90, shape))
    alone = work._replace(arrival_s=work.arrival_s[-1:], output=work.output[-1:])
    for scheduler in (continuous_times, static_times):
        together, by_itself = scheduler(STEP, work, 5), scheduler(STEP, alone, 5)
        assert_equal(together, scheduler(STEP, one_by_one(work), 5))
        assert (together.wait[-1:] == by_itself.wait).all()


@pytest.mark.parametrize(("length", "kinds"), [(10**6, "II"), (2 * 10**6, "LI"), (10**13, "LL")])
def test_lanes_are_as_wide_as_the_work_of_a_workload_needs(length, kinds) -> None:
    rng = np.random.default_rng(1)
    work = requests(np.cumsum(rng.integers(0, length // 4, (2, 100)), axis=1), np.full((2, 100), length))
    for scheduler, kind in zip((continuous_times, static_times), kinds, strict=True):
        got = scheduler(STEP, work, 3)
        assert got.wait.dtype.char == kind
        assert got.wait.max() > length
        assert_equal(got, scheduler(STEP, one_by_one(work), 3))


@pytest.mark.parametrize("gap", [2.0**31, 2.0**32, 2.0**40])
def test_a_gap_beyond_the_lanes_only_empties_the_server(gap) -> None:
    work = requests(np.arange(100) * gap, np.full(100, 7))
    for scheduler in (continuous_times, static_times):
        got = scheduler(STEP, work, 2)
        assert got.wait.dtype == np.uint32
        assert not got.wait.any()
        assert_equal(got, scheduler(STEP, one_by_one(work), 2))


def test_a_last_group_that_is_not_full_waits_as_long_as_it_may() -> None:
    work = requests([0, 1, 2, 30, 31], [4, 4, 4, 4, 4])
    assert static_times(STEP, work, 3, max_wait_s=10).start[0].tolist() == [2, 2, 2, 40, 40]
    assert static_times(STEP, work, 9, max_wait_s=50).start[0].tolist() == [50, 50, 50, 50, 50]


def test_what_the_lanes_leave_out_goes_through_one_workload_at_a_time(monkeypatch) -> None:
    work = requests(np.arange(9) * 2, np.full(9, 5))
    prompts = work._replace(prompt=np.ones((1, 9), np.int64))
    clients = work._replace(clients=2, think_s=np.ones((1, 9)))
    late = work._replace(arrival_s=work.arrival_s + 2.0**54)
    for scheduler in (continuous_times, static_times):
        assert isinstance(scheduler(STEP, prompts, 2, charged=False), Waits)
        assert isinstance(scheduler(STEP, prompts, 2), Times)
        assert isinstance(scheduler(Affine(1.0, 0.5, 0.0), work, 2), Times)
        assert all(isinstance(scheduler(STEP, other, 2), Times) for other in (clients, late, one_by_one(work)))
    monkeypatch.setattr(arriving, "LANE_SLOTS", 2)
    assert isinstance(continuous_times(STEP, work, 2), Waits)
    assert isinstance(continuous_times(STEP, work, 3), Times)


def test_each_kernel_is_compiled_once_for_each_lane_type() -> None:
    for length in (3, 10**13):
        work = requests(np.arange(6), np.full((2, 6), length))
        sliced = work._replace(arrival_s=work.arrival_s[:, ::2], output=np.asfortranarray(work.output)[:, ::2])
        for one in (work, sliced):
            for times in (continuous_times(STEP, one, 2), static_times(STEP, one, 2)):
                held = queues.held_steps(times.arrival, times.wait, times.output, times.arrival[:, 0], times.over)
                assert (held == one.output.sum(axis=1)).all()
                for first in (0, 2):
                    assert queues.seconds_to_tokens(times.wait, times.output, first, 1.0, last=True).min() >= length
    for kernel in (queues._continuous, queues._static, queues._held, queues._seconds_to_tokens):
        assert len(kernel.signatures) == 2

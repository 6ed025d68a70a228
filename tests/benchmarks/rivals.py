"""The reference study as others would simulate it: each draws its workloads and runs both schedulers on them.

Every function takes a number of workloads and gives the means of static and of continuous steps, which must agree with
those of the kernels within sampling error. They are written to be fair: what a practitioner would write who cares for
speed with the tools at hand, and no more.
"""

import heapq
import random
import sys
from pathlib import Path

import numpy as np
from reference_study import LONG, LONG_SHARE, REQUESTS, SHORT, SLOTS

sys.path.append(str(Path(__file__).parents[1]))
from reference import continuous_finishes, static_finishes

Means = tuple[float, float]


def step_loop(workloads: int, rng: random.Random) -> Means:
    """The literal loop over steps, in which every running request gets a token: the twin of the tests."""
    static = continuous = 0
    for _ in range(workloads):
        lengths = _lengths(rng)
        static += static_finishes(lengths, SLOTS)[0]
        continuous += continuous_finishes(lengths, SLOTS)[0]
    return static / workloads, continuous / workloads


def event_heap(workloads: int, rng: random.Random) -> Means:
    """From event to event: the longest of each group, and a heap of the times at which slots become free."""
    static = continuous = 0
    for _ in range(workloads):
        lengths = _lengths(rng)
        static += sum(max(lengths[first : first + SLOTS]) for first in range(0, REQUESTS, SLOTS))
        free = [0] * SLOTS
        for length in lengths:
            heapq.heapreplace(free, free[0] + length)
        continuous += max(free)
    return static / workloads, continuous / workloads


def numpy_over_replicates(workloads: int, rng: random.Random) -> Means:
    """All workloads at once in arrays: one request after the other takes the first slot that is free in each."""
    draws = np.random.default_rng(rng.getrandbits(64))
    shape = workloads, REQUESTS
    long = draws.random(shape) < LONG_SHARE
    lengths = np.where(long, draws.integers(*LONG, shape, endpoint=True), draws.integers(*SHORT, shape, endpoint=True))
    static = np.maximum.reduceat(lengths, np.arange(0, REQUESTS, SLOTS), axis=1).sum(axis=1)
    free = np.zeros((workloads, SLOTS), np.int64)
    every = np.arange(workloads)
    for request in range(REQUESTS):
        free[every, free.argmin(axis=1)] += lengths[:, request]
    return float(static.mean()), float(free.max(axis=1).mean())


def simpy_processes(workloads: int, rng: random.Random) -> Means:
    """A process for each request in SimPy, the slots a resource; static batching waits for the whole group."""
    import simpy

    def request(environment, length, slots):
        with slots.request() as slot:
            yield slot
            yield environment.timeout(length)

    def groups(environment, lengths):
        for first in range(0, REQUESTS, SLOTS):
            yield environment.all_of([environment.timeout(length) for length in lengths[first : first + SLOTS]])

    static = continuous = 0
    for _ in range(workloads):
        lengths = _lengths(rng)
        environment = simpy.Environment()
        environment.process(groups(environment, lengths))
        environment.run()
        static += environment.now
        environment = simpy.Environment()
        slots = simpy.Resource(environment, SLOTS)
        for length in lengths:
            environment.process(request(environment, length, slots))
        environment.run()
        continuous += environment.now
    return static / workloads, continuous / workloads


def _lengths(rng: random.Random) -> list[int]:
    return [rng.randint(*LONG) if rng.random() < LONG_SHARE else rng.randint(*SHORT) for _ in range(REQUESTS)]

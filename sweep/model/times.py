"""Requests that arrive over time, and what became of each: the values that kernels with a clock take and give."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.model.steptime import Constant, StepTime, packed

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Array = NDArray[Any]

_ALMOST = 1 - 1e-12  # what a quotient of two rounded times may be short of or beyond a whole number


class Requests(NamedTuple):
    """What arrives, (workloads, requests) each; `arrival_s` never falls along a row, from 0 or later on.

    Prompts, ranks and times of thinking may be (1, 1): the same for all. With `clients` above 0 there are that many,
    who all send a request at 0; request i is the i-th that is sent, and its client sends the next one `think_s[i]`
    after its end. `arrival_s` is then not looked at.
    """

    arrival_s: F64
    output: I64
    prompt: I64
    rank: F64
    clients: int = 0
    think_s: F64 = np.zeros((1, 1))

    @property
    def by_arrival(self) -> bool:
        """Whether they are known to come one after the other, and are taken as they come."""
        return self.clients == 0 and not bool((self.rank != self.rank.flat[0]).any())


class Times(NamedTuple):
    """What became of each request, (workloads, requests), on a clock that counts `unit_s` seconds: whole steps where
    all take the same time, so that a difference times the unit has one rounding; else single seconds.

    start : when it got its slot, before its prompt. first : its first token; nan without output. finish : its last
    token; where there is no output, its start. A request that a server refuses has nan throughout.
    """

    arrival: F64
    start: F64
    first: F64
    finish: F64
    steps: I64  # (workloads,), that gave a token; those that compute a prompt and idle time are not among them
    unit_s: float

    @property
    def over(self) -> F64:
        """When each workload is done, (workloads,)."""
        return np.asarray(np.fmax.reduce(self.finish, axis=1))

    def of(self, rows: slice) -> "Times":
        """Those of some of the workloads."""
        moments = (self.arrival[rows], self.start[rows], self.first[rows], self.finish[rows])
        return Times(*moments, self.steps[rows], self.unit_s)


class Waits(NamedTuple):
    """The same where all steps take `unit_s`, and prompts no time: then all follows from how many steps a request waits
    for its slot. The clock counts steps.
    """

    arrival: F64
    wait: Array  # whole steps, of an unsigned type
    output: I64
    steps: I64
    over: F64
    unit_s: float

    @property
    def start(self) -> F64:
        """When each request got its slot, (workloads, requests)."""
        return np.asarray(self.arrival + self.wait)

    @property
    def first(self) -> F64:
        """Its first token; nan without output."""
        return np.where(self.output > 0, self.start + 1, np.nan)

    @property
    def finish(self) -> F64:
        """Its last token; where there is no output, its start."""
        return np.asarray(self.start + self.output)

    def of(self, rows: slice) -> "Waits":
        """Those of some of the workloads."""
        arrival, wait, output = self.arrival[rows], self.wait[rows], self.output[rows]
        return Waits(arrival, wait, output, self.steps[rows], self.over[rows], self.unit_s)


AnyTimes = Times | Waits


def unit_s(step_time: StepTime | None) -> float:
    """Seconds by which the clock of `Times` counts: a step where all are equal, else 1; 1 where no time is known."""
    return step_time.step_s if isinstance(step_time, Constant) else 1.0


def packed_in_units(step_time: StepTime | None) -> F64:
    """The packed time of a step on that clock, in memory to be written to, as all arrays of kernels are."""
    return packed(Constant(1.0) if isinstance(step_time, Constant | None) else step_time).copy()


def in_units(seconds: F64, step_time: StepTime) -> F64:
    """Times on the clock of `Times`: where it counts steps, the first whole one that is not earlier.

    So an arrival between two steps meets the second.
    """
    if not isinstance(step_time, Constant):
        return np.asarray(seconds, np.float64)
    steps = np.asarray(seconds / step_time.step_s)
    steps *= _ALMOST
    return np.ceil(steps, out=steps)

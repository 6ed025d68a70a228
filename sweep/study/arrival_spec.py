"""[workload] arrivals and slo of a study: when requests come, which of them count, and what their users ask for.

Names and combinations are checked here; the draws are in `model.arrivals`. What a load comes to in requests a second
depends on the server and is in `timing`.
"""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sweep.model.arrival_patterns import AtOnce, Bursts, Gaps, Pattern, Phases, Times
from sweep.model.trace_pack import Moments, moments_of, unpacked_times
from sweep.study.strict import Strict
from sweep.study.traced import UNREAD, PackedTimes

Process = Literal["at_once", "poisson", "gamma", "weibull", "phases", "bursts", "times", "trace", "clients"]

MOST_S = 1e12
LEAST_RATE = (
    1e-9  # of a rate and of a load: over longer gaps a clock in floating point loses the steps between arrivals
)
MOST_CLIENTS = 1_000_000
Rate = Annotated[float, Field(gt=0, le=1e9)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S)]
Cv = Annotated[float, Field(ge=0.01, le=100)]

# the keys that a process takes beside the rate: those it needs, and those that may be left out
_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "at_once": ((), ()),
    "poisson": ((), ()),
    "gamma": (("cv",), ()),
    "weibull": (("cv",), ()),
    "phases": (("phases",), ()),
    "bursts": (("on_share", "on_s"), ()),
    "times": ((), ("times_s", "path", "packed_times")),
    "trace": ((), ()),
    "clients": (("clients",), ("think_s",)),
}


class Phase(Strict):
    """A time in which requests come at one rate."""

    seconds: Annotated[float, Field(gt=0, le=MOST_S)]
    """How long it lasts."""
    factor: Annotated[float, Field(ge=0, le=1e6)]
    """Its rate, relative to those of the other phases; 0: nobody comes."""


class ArrivalSpec(Strict):
    """When requests come: a process, its rate or its load, and which requests count."""

    process: Process
    """"at_once": all wait from the start. "poisson": exponential gaps; "gamma", "weibull": gaps of a given `cv`.
    "phases": a rate that changes, again and again; "bursts": on and off at random; "times": given ones; "trace": those
    of the rows of [workload.trace]; "clients": each sends its next request some time after the answer to its last."""
    rate_per_s: Rate | None = None
    """Requests a second on average. Given times and those of a trace need neither this nor `load`: they are kept."""
    load: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """The rate as a share of what continuous batching can serve at most, in place of `rate_per_s`."""
    cv: Cv | None = None
    """Standard deviation / mean of the gaps; exponential gaps have 1."""
    phases: Annotated[tuple[Phase, ...], Field(strict=False, min_length=1)] | None = None
    """The phases in their order; after the last comes the first again."""
    on_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the time in which requests come."""
    on_s: Annotated[float, Field(gt=0, le=MOST_S)] | None = None
    """Mean length of a burst in seconds; bursts and pauses are exponential."""
    times_s: Annotated[tuple[Seconds, ...], Field(strict=False, min_length=2)] | None = None
    """When each request comes, in seconds, rising; with a rate or a load they are stretched to it."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """A file of requests in place of `times_s`, seen from the folder of the study file."""
    packed_times: PackedTimes | None = None
    """The times that were read, packed; filled in, not written by hand."""
    clients: Annotated[int, Field(ge=1, le=MOST_CLIENTS)] | None = None
    """Clients, who all send a request at the start."""
    think_s: Seconds | None = None
    """Mean of the exponential time from an answer to the client's next request."""
    horizon: Literal["terminating", "steady"] = "terminating"
    """"terminating": the run from empty to empty is what is asked about, and all requests count. "steady": it stands
    for a server that runs forever, and the first requests do not count."""
    warm_up: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the requests, by arrival, that do not count where horizon = "steady"."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        needed, allowed = _KEYS[self.process]
        given = [key for keys in _KEYS.values() for part in keys for key in part if getattr(self, key) is not None]
        if missing := [key for key in needed if key not in given]:
            raise ValueError(f'process = "{self.process}" needs {" and ".join(missing)}')
        if extra := [key for key in dict.fromkeys(given) if key not in (*needed, *allowed)]:
            raise ValueError(f'{extra[0]} does not go with process = "{self.process}"')
        if self.process == "times" and (self.times_s is None) == (self.path is None):
            raise ValueError('process = "times" needs times_s or path, and not both')
        if self.path is not None and self.packed_times is None:
            raise ValueError(UNREAD)
        self._check_rate()
        self._check_times()
        if self.phases is not None and not any(phase.factor > 0 for phase in self.phases):
            raise ValueError("phases: no phase has a factor above 0, so nobody would ever come")
        return self

    def _check_rate(self) -> None:
        rated = [key for key in ("rate_per_s", "load") if getattr(self, key) is not None]
        if len(rated) == 2:
            raise ValueError("rate_per_s and load are both given; keep one of them")
        if rated and getattr(self, rated[0]) < LEAST_RATE:
            raise ValueError(f"{rated[0]}: must be at least {LEAST_RATE:g}, got {getattr(self, rated[0]):g}")
        if self.process in ("at_once", "clients") and rated:
            raise ValueError(f'{rated[0]} does not go with process = "{self.process}"')
        if self.process not in ("at_once", "clients", "times", "trace") and not rated:
            raise ValueError(f'process = "{self.process}" needs rate_per_s or load')
        if self.horizon == "terminating" and self.warm_up != type(self).model_fields["warm_up"].default:
            raise ValueError('warm_up goes with horizon = "steady" only')
        if self.process == "at_once" and self.horizon == "steady":
            raise ValueError('horizon = "steady" needs requests that keep coming, not process = "at_once"')

    def _check_times(self) -> None:
        if self.times_s is None:
            return
        for at, (sooner, later) in enumerate(pairwise(self.times_s), 1):
            if later < sooner:
                raise ValueError(f"times_s.{at}: must not fall, got {later:g} after {sooner:g}")
        if self.times_s[-1] == self.times_s[0]:
            raise ValueError('times_s: all the same; use process = "at_once"')

    def moments(self) -> Moments | None:
        """The given times, or those of the file; None for other processes."""
        if self.packed_times is not None:
            return unpacked_times(self.packed_times)
        return None if self.times_s is None else moments_of(self.times_s)

    def gap_cv(self) -> float | None:
        """The cv of the gaps that is asked for; None where the process is not one of independent gaps."""
        return 1.0 if self.process == "poisson" else self.cv

    def pattern(self) -> Pattern:
        """The process as `model.arrivals` draws it; clients' is made by the server, a trace's drawn with its rows."""
        match self.process:
            case "poisson":
                return Gaps("exponential")
            case "gamma" | "weibull" as kind:
                assert self.cv is not None
                return Gaps(kind, self.cv)
            case "phases":
                assert self.phases is not None
                return Phases(*zip(*((phase.seconds, phase.factor) for phase in self.phases), strict=True))
            case "bursts":
                assert self.on_share is not None
                assert self.on_s is not None
                return Bursts(self.on_share, self.on_s)
            case "times":
                moments = self.moments()
                assert moments is not None
                return Times(tuple(moments.seconds.tolist()))
            case _:
                return AtOnce()


class SloSpec(Strict):
    """What users ask of a request, and of how many of them."""

    ttft_s: Annotated[float, Field(gt=0)] | None = None
    """The first token comes within this time of the arrival."""
    tpot_s: Annotated[float, Field(gt=0)] | None = None
    """Those after it come this fast, on average over the request."""
    e2e_s: Annotated[float, Field(gt=0)] | None = None
    """The last token comes within this time of the arrival."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Share of the requests of a workload that must have all of this, for the largest rate that keeps the SLO."""

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None and self.e2e_s is None:
            raise ValueError("needs ttft_s, tpot_s or e2e_s")
        return self

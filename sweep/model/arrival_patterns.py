"""Patterns in which requests arrive, as values; how each is drawn is in `arrivals`. This module loads no compiler."""

from typing import Literal, NamedTuple


class AtOnce(NamedTuple):
    """All requests wait from the start."""


class Gaps(NamedTuple):
    """Independent gaps of this distribution and cv (standard deviation / mean); "exponential" has cv 1."""

    kind: Literal["exponential", "gamma", "weibull"]
    cv: float = 1.0


class Phases(NamedTuple):
    """A rate that changes: each phase lasts `seconds` at `factor` times some level, and after the last the first
    follows again. Within a phase arrivals are Poisson.
    """

    seconds: tuple[float, ...]
    factors: tuple[float, ...]


class Bursts(NamedTuple):
    """On for exponential times of mean `on_s`, off for such that the share of time on is `on_share`; Poisson when on,
    nobody when off.
    """

    on_share: float
    on_s: float


class Times(NamedTuple):
    """Given times, the first at 0, from the first request on in every replicate."""

    seconds: tuple[float, ...]


Pattern = AtOnce | Gaps | Phases | Bursts | Times

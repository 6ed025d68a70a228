"""Lengths of published traces as small tables, so that a study of real traffic needs no file; and how they are made.

A table holds points of the exact distribution function, joined by straight lines between whole lengths. It is nowhere
off by more than `NEAR`, and the share of requests above a length by no more than `TAIL` of itself, so that the longest
of many requests, on which static batching depends, is as good as the rest. Order, times and the tie of prompt and
output are not kept.
"""

import difflib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError

I64: TypeAlias = NDArray[np.int64]
F64: TypeAlias = NDArray[np.float64]
Side: TypeAlias = Literal["prompt", "output"]

NEAR = 0.002  # of all requests
TAIL = 0.05  # of the requests that are longer


class Table(NamedTuple):
    """Points of a distribution function: at_most[i] requests have at most tokens[i]; the last is all of them."""

    tokens: I64
    at_most: I64


class Facts(NamedTuple):
    """What the file itself gives: the mean in tokens, the cv and the longest."""

    mean: float
    cv: float
    max: int


class TrafficProfile(NamedTuple):
    """The lengths of a trace, and where it is from."""

    name: str
    requests: int
    source: str
    licence: str
    prompt: Table
    output: Table
    prompt_facts: Facts
    output_facts: Facts


@lru_cache(maxsize=1)
def built_in_profiles() -> tuple[TrafficProfile, ...]:
    """All profiles, by name."""
    listed = json.loads(files("sweep.model").joinpath("data/profiles.json").read_text("utf-8"))
    return tuple(_read(entry) for entry in listed["profiles"])


def profile(name: str) -> TrafficProfile:
    """The profile of a name. Raises InputError for one that there is not."""
    known = {found.name: found for found in built_in_profiles()}
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(known)}"
        raise InputError(f'no profile "{name}"; {hint}')
    return known[name]


def table_of(tokens: NDArray[np.integer]) -> Table:
    """The table of these lengths, (requests,), with as few points as a sweep from the shortest to the longest finds."""
    at, count = _corners(tokens)
    share = count / count[-1]
    allowed = np.minimum(NEAR, TAIL * np.maximum(1 - share, 1 / count[-1]))
    allowed[-1] = 0.0
    kept = [0]
    while kept[-1] < len(at) - 1:
        kept.append(_furthest(kept[-1], at, share, allowed))
    return Table(at[kept], count[kept])


def cdf(table: Table, tokens: I64) -> F64:
    """P(L <= tokens), linear between the points of the table."""
    return np.asarray(np.interp(tokens, table.tokens, table.at_most / table.at_most[-1], left=0.0, right=1.0))


def _corners(tokens: NDArray[np.integer]) -> tuple[I64, I64]:
    """Where the distribution function bends: each length, and the whole number before one that follows a gap."""
    values, counts = np.unique(tokens, return_counts=True)
    values, at_most = values.astype(np.int64), np.cumsum(counts)
    before = np.diff(values, prepend=-1 if values[0] == 0 else -2) > 1
    at = np.concatenate([values, values[before] - 1])
    count = np.concatenate([at_most, (at_most - counts)[before]])
    order = np.argsort(at)
    return at[order], count[order]


def _furthest(start: int, at: I64, share: F64, allowed: F64) -> int:
    """The furthest corner to which a straight line passes all corners between within what is allowed."""
    furthest, low, high = start + 1, -np.inf, np.inf
    for end in range(start + 1, len(at)):
        span, rise = at[end] - at[start], share[end] - share[start]
        if low <= rise / span <= high:
            furthest = end
        low, high = max(low, (rise - allowed[end]) / span), min(high, (rise + allowed[end]) / span)
        if low > high:
            break
    return furthest


def _read(entry: dict[str, object]) -> TrafficProfile:
    sides: dict[str, tuple[Table, Facts]] = {}
    for side in ("prompt", "output"):
        given = entry[side]
        assert isinstance(given, dict)
        table = Table(np.array(given["tokens"], np.int64), np.array(given["at_most"], np.int64))
        table.tokens.flags.writeable = table.at_most.flags.writeable = False
        sides[side] = table, Facts(given["mean"], given["cv"], int(table.tokens[-1]))
    return TrafficProfile(
        str(entry["name"]),
        int(sides["output"][0].at_most[-1]),
        str(entry["source"]),
        str(entry["licence"]),
        sides["prompt"][0],
        sides["output"][0],
        sides["prompt"][1],
        sides["output"][1],
    )

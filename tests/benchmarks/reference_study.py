"""The workload that every contender simulates: the reference study of the README, 200 requests on 16 slots."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sweep.model.distributions import Distribution
from sweep.model.lengths import LookUp, look_up_of

STUDY = Path(__file__).parents[2] / "studies" / "five_x.toml"
SEED = 37
SLOTS = 16
REQUESTS = 200
SHORT, LONG, LONG_SHARE = (8, 40), (400, 700), 0.1


def grid_slots() -> list[int]:
    """The slot counts of the study's grid."""
    return list(_study()["grid"]["server.slots"])


@cache
def look_up() -> LookUp:
    """The table of the study's output lengths."""
    output = _study()["workload"]["output"]
    assert [(part["low"], part["high"], part["weight"]) for part in output["parts"]] == [
        (*SHORT, 1 - LONG_SHARE),
        (*LONG, LONG_SHARE),
    ], "the rivals draw these lengths, written out"
    return look_up_of(TypeAdapter(Distribution).validate_python(output))


def _study() -> dict[str, Any]:
    return tomllib.loads(STUDY.read_text())

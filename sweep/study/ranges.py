"""How the values of one axis are written: a list, evenly spaced, or each a factor times the one before."""

import math
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from sweep.errors import InputError
from sweep.study.strict import Strict

MOST_CELLS = 100_000


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number", "must be a number")
    return value


Number = Annotated[int | float, PlainValidator(_number, json_schema_input_type=float)]


class AxisTable(Strict):
    """An axis that is not a bare list: its values, or the rule that makes them, and what to call them."""

    values: list[Any] | None = None
    """The values, one by one."""
    start: Number | None = None
    """The first value."""
    stop: Number | None = None
    """The last value, itself included."""
    num: Annotated[int, Field(ge=2, le=MOST_CELLS)] | None = None
    """How many values, evenly spaced from start to stop."""
    factor: Number | None = None
    """Each value is the one before times this, from start to stop."""
    name: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """The column's name; left out: the path without its first part, dots as underscores."""
    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """What to call each value; needed where values are tables or lists."""


def values_of(axis: AxisTable) -> list[Any]:
    """The values, one by one. Raises InputError where the rule is incomplete or does not lead from start to stop."""
    given = {name: getattr(axis, name) for name in ("values", "start", "stop", "num", "factor")}
    match {name: value for name, value in given.items() if value is not None}:
        case {"values": values, **rest} if not rest:
            return list(values)
        case {"start": start, "stop": stop, "num": num, **rest} if not rest:
            return _linear(start, stop, num)
        case {"start": start, "stop": stop, "factor": factor, **rest} if not rest:
            return _geometric(start, stop, factor)
        case others:
            rule = "needs values, or start, stop and num, or start, stop and factor"
            raise InputError(f"{rule}; given: {', '.join(others) or 'none'}")


def _linear(start: int | float, stop: int | float, num: int) -> list[int | float]:
    """Evenly spaced values, exact in decimal: 0.1 to 0.5 passes 0.3 and not 0.30000000000000004."""
    low, high = Fraction(repr(start)), Fraction(repr(stop))
    values = [low + (high - low) * index / (num - 1) for index in range(num)]
    whole = isinstance(start, int) and isinstance(stop, int) and all(value.denominator == 1 for value in values)
    return [int(value) if whole else float(value) for value in values]


def _geometric(start: int | float, stop: int | float, factor: int | float) -> list[int | float]:
    """Values from start to stop, each a factor times the one before."""
    if factor <= 0 or factor == 1 or 0 in (start, stop) or (start > 0) != (stop > 0):
        raise InputError("start and stop need the same sign and may not be 0; factor must be above 0 and not 1")
    steps = round((math.log(abs(stop)) - math.log(abs(start))) / math.log(factor))
    try:
        values = [start * factor**index for index in range(max(0, min(steps, MOST_CELLS)) + 1)]
    except OverflowError:
        raise InputError("start and stop are too far apart") from None
    if steps < 1 or not math.isclose(values[-1], stop, rel_tol=1e-9):
        raise InputError(f"no number of factors {factor} leads from {start} to {stop}")
    values[-1] = stop
    near = [round(value) for value in values]
    whole = isinstance(start, int) and isinstance(stop, int)
    if whole and all(math.isclose(value, number, rel_tol=1e-12) for value, number in zip(values, near, strict=True)):
        return list(near)
    return [float(value) for value in values]

"""Quantities with units in text: "64 GiB", "80 GB", "20 ms". A bare number is refused, since it could mean either."""

import math
import re

from sweep.errors import InputError

BYTES = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")


def _quantity(text: str, units: dict[str, float] | dict[str, int], example: str) -> tuple[float, float]:
    match = _QUANTITY.fullmatch(text)
    if match is None or not math.isfinite(float(match[1])):
        raise InputError(f'expected a number with a unit, such as "{example}", got "{text}"')
    if match[2] not in units:
        given = f'unit "{match[2]}" is unknown' if match[2] else "the unit is missing"
        raise InputError(f'{given} in "{text}"; use one of {", ".join(units)}, such as "{example}"')
    return float(match[1]), units[match[2]]


def parse_bytes(text: str) -> int:
    """Bytes in a text such as "64 GiB" (2^30) or "80 GB" (10^9), rounded to whole bytes. Raises InputError."""
    number, unit = _quantity(text, BYTES, "64 GiB")
    if number * unit >= 2**63:
        raise InputError(f'"{text}" is more than 8 EiB; give what there is, such as "64 GiB"')
    return round(number * unit)


def parse_seconds(text: str) -> float:
    """Seconds in a text such as "20 ms". Raises InputError."""
    number, unit = _quantity(text, SECONDS, "20 ms")
    return number * unit


def format_bytes(count: int) -> str:
    """A number of bytes in the largest binary unit that keeps it at 1 or more: 536870912 gives "512 MiB"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count >= BYTES[unit]:
            return f"{count / BYTES[unit]:.4g} {unit}"
    return f"{count} B"

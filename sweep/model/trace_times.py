"""Times of a trace as whole nanoseconds, so that two files with the same times give the same numbers.

Numbers count from an origin of their own in a unit that the format, or the user, states. A date with a time of day
counts from 1970, in UTC where it has a zone. A time is read exactly and rounded once. Dates in
any form but ISO 8601 are left out.
"""

import re
from datetime import date
from decimal import Decimal

import numpy as np
import polars as pl
from numpy.typing import NDArray

I64 = NDArray[np.int64]

UNIT_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
NUMBER, CLOCK, ZONED = "number", "date and time", "date and time with a zone"
YEARS = 1970, 2261  # what 63 bits of nanoseconds hold, without a sign

_MOST_NS = 2**63 - 1
_NUMBER = re.compile(r"\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CLOCK = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d+))?)?"
    r"(?P<zone>\s?(?:Z|UTC|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?))?",
    re.ASCII,
)
_TO_SECONDS = len("2024-05-10 00:00:00")


def kind_of(text: str) -> str:
    """What the times of a file are, by one of them; what is no date is a number, until it is read."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return NUMBER
    return ZONED if match["zone"] else CLOCK


def column_ns(times: pl.Series, kind: str, unit_ns: int) -> I64 | None:
    """Nanoseconds of a column, (rows,); None where some time needs a closer look, value by value."""
    if times.null_count():
        return None
    if isinstance(times.dtype, pl.Datetime):
        return _calendar(times)
    if times.dtype.is_integer():
        return _unsigned(times.cast(pl.Int64, strict=False), unit_ns)
    if times.dtype.is_float():
        return _floats(times.cast(pl.Float64).to_numpy(), unit_ns)
    if times.dtype != pl.String:
        return None
    return _numbers(times, unit_ns) if kind == NUMBER else _clocks(times, kind)


def text_ns(text: str, kind: str, unit_ns: int) -> int:
    """Nanoseconds of one time. Raises ValueError, which says what is wrong with it."""
    text = text.strip()
    if not text:
        raise ValueError("is blank")
    if kind == NUMBER:
        return _number_ns(text, unit_ns)
    match = _CLOCK.fullmatch(text)
    if match is None or kind_of(text) != kind:
        raise ValueError(f"must be a {kind}, as the first one is")
    return _clock_ns(match)


def _unsigned(numbers: pl.Series, unit_ns: int) -> I64 | None:
    whole = numbers.to_numpy()
    if numbers.null_count() or len(whole) == 0 or whole.min() < 0 or whole.max() > _MOST_NS // unit_ns:
        return None
    return np.asarray(whole, np.int64) * unit_ns


def _numbers(texts: pl.Series, unit_ns: int) -> I64 | None:
    whole = texts.cast(pl.Int64, strict=False)
    if not whole.null_count():
        return _unsigned(whole, unit_ns)
    if texts.str.contains("[^0-9.]").any():  # an exponent, a sign, or no number
        return None
    # The fraction is taken apart from the whole part, since a double has no room for nanoseconds of this century.
    parts = texts.str.splitn(".", 2).struct.unnest()
    seconds = _unsigned(parts["field_0"].cast(pl.Int64, strict=False), unit_ns)
    fraction = ("0." + parts["field_1"].fill_null("0")).cast(pl.Float64, strict=False)
    if seconds is None or fraction.null_count():
        return None
    total = seconds + np.rint(fraction.to_numpy() * unit_ns).astype(np.int64)
    return total if total.min() >= 0 else None


def _floats(times: NDArray[np.float64], unit_ns: int) -> I64 | None:
    if len(times) == 0 or not (times.min() >= 0 and times.max() < _MOST_NS // unit_ns):  # so written, nan is refused
        return None
    whole = np.floor(times)
    return whole.astype(np.int64) * unit_ns + np.rint((times - whole) * unit_ns).astype(np.int64)


def _clocks(texts: pl.Series, kind: str) -> I64 | None:
    """Nanoseconds where all texts are written alike, in one zone; seconds and fraction apart take half the time."""
    match = _CLOCK.fullmatch(texts[0]) if len(texts) else None
    if match is None or kind_of(texts[0]) != kind or not _in_years(texts.min(), texts.max()):
        return None
    zone = match["zone"] or ""
    seconds = texts.str.head(_TO_SECONDS).str.to_datetime(
        f"%Y-%m-%d{texts[0][10]}%H:%M:%S", time_unit="us", strict=False
    )
    rest = texts.str.slice(_TO_SECONDS)
    fraction = rest.str.strip_suffix(zone) if zone else rest
    alike = rest.str.ends_with(zone).all() and fraction.str.contains(r"^(\.[0-9]+)?$").all()
    if seconds.null_count() or not alike:
        return None
    ns = fraction.str.slice(1).str.pad_end(9, "0").str.head(9).cast(pl.Int64)
    at_zero = seconds.to_physical().to_numpy() * 1000 + ns.to_numpy()
    return np.asarray(at_zero - _offset_s(match) * 10**9, np.int64)


def _in_years(first: object, last: object) -> bool:
    """True if all texts between these, in the order of letters, start with a year that nanoseconds can hold."""
    return str(YEARS[0]) <= str(first) and str(last) < str(YEARS[1] + 1)


def _calendar(times: pl.Series) -> I64 | None:
    years = times.dt.year().to_numpy()
    if len(years) == 0 or years.min() < YEARS[0] or years.max() > YEARS[1]:
        return None
    return np.asarray(times.dt.epoch("ns").to_numpy(), np.int64)


def _number_ns(text: str, unit_ns: int) -> int:
    if text.startswith("-") and _NUMBER.fullmatch(text[1:]):
        raise ValueError("must not be negative")
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("must be a plain number, or a date and time such as 2024-05-10 00:00:00.009930+00:00")
    try:
        ns = Decimal(text) * unit_ns
    except ArithmeticError:  # an exponent of many digits
        ns = Decimal("inf")
    if ns > _MOST_NS:
        raise ValueError("is too large for a time in nanoseconds; is the unit right?")
    return int(ns.to_integral_value())


def _clock_ns(match: re.Match[str]) -> int:
    year, month, day, hour, minute = map(int, match.group(1, 2, 3, 4, 5))
    second = int(match[6] or 0)
    if not YEARS[0] <= year <= YEARS[1]:
        raise ValueError(f"must be of the years {YEARS[0]} to {YEARS[1]}")
    try:
        days = (date(year, month, day) - date(1970, 1, 1)).days
    except ValueError:
        raise ValueError("is no date of the calendar") from None
    if hour > 23 or minute > 59 or second > 60:  # 60: a leap second
        raise ValueError("is no time of day")
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return (seconds - _offset_s(match)) * 10**9 + int(((match[7] or "") + "0" * 9)[:9])


def _offset_s(match: re.Match[str]) -> int:
    """How far a time's zone is ahead of UTC."""
    if not match["sign"]:
        return 0
    ahead = 3600 * int(match["hours"]) + 60 * int(match["minutes"] or 0)
    return -ahead if match["sign"] == "-" else ahead

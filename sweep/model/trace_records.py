"""Rows of a trace one by one in Python: slow, exact, and with a line number for what is wrong.

Used for the first row of a file, and for blocks in which `trace_rows` met something that is no plain number.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.errors import TraceError
from sweep.model.trace_files import Block
from sweep.model.trace_formats import Layout, listed, quoted
from sweep.model.trace_times import text_ns

I64 = NDArray[np.int64]

MOST_TOKENS = 2**31 - 1

_WHOLE = re.compile(r"[+-]?\d+(?:\.0*)?", re.ASCII)
_THOUSANDS = re.compile(r"\d{1,3}(?:[,'_ .\u00a0\u202f]\d{3})+", re.ASCII)


class Rows(NamedTuple):
    """Rows as they stand in a file: tokens (rows,), and nanoseconds (rows,) where there are times."""

    prompt_tokens: NDArray[np.integer[Any]]
    output_tokens: NDArray[np.integer[Any]]
    arrival_ns: I64 | None


class Record(NamedTuple):
    """One row: where it is, and its values by column."""

    place: str
    values: Mapping[str, Any]


def taken(rows: Rows, which: slice | NDArray[Any]) -> Rows:
    """Some of the rows, in the order of `which`: a slice, a mask or indexes."""
    times = None if rows.arrival_ns is None else rows.arrival_ns[which]
    return Rows(rows.prompt_tokens[which], rows.output_tokens[which], times)


def header_of(name: str, block: Block) -> tuple[list[str], Block]:
    """The fields of the first line that is not blank, and what comes below it."""
    text = block.data.lstrip()
    line = block.line + block.data.count(b"\n", 0, len(block.data) - len(text))
    end = text.find(b"\n") + 1 or len(text)
    header = _text(name, Block(line, text[:end])).rstrip("\r\n")
    if "\r" in header:
        raise TraceError(f"{name}: line {line}: lines end in CR alone; save the file with LF or CR LF")
    try:
        fields = next(csv.reader([header]))
    except csv.Error as error:
        raise _not_csv(name, line, error) from None
    return [field.strip() for field in fields], Block(line + 1, text[end:])


def csv_records(name: str, columns: list[str], block: Block) -> Iterator[Record]:
    """The rows of a block of CSV, but blank ones; a short row has no value for its last columns. Raises TraceError."""
    reader = csv.reader(io.StringIO(_text(name, block), newline="\n"))
    next_line = block.line
    try:
        for fields in reader:
            line, next_line = next_line, block.line + reader.line_num
            if not "".join(fields).strip() and len(fields) <= 1:
                continue
            if len(fields) > len(columns):
                more = f"{len(fields)} fields, but the header has {len(columns)}"
                raise TraceError(f"{name}: line {line}: {more}; is there a comma within a number or a text?")
            yield Record(f"line {line}", dict(zip(columns, fields, strict=False)))
    except csv.Error as error:
        raise _not_csv(name, next_line, error) from None


def _not_csv(name: str, line: int, error: csv.Error) -> TraceError:
    what = str(error).split(" - ")[0]  # what follows is advice to programmers
    return TraceError(f"{name}: line {line}: not CSV: {what}")


def json_records(name: str, block: Block) -> Iterator[Record]:
    """The objects of a block of JSON lines. Raises TraceError."""
    for line, text in enumerate(_text(name, block).split("\n"), block.line):
        if not text.strip():
            continue
        try:
            values = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{name}: line {line}: not JSON: {error}") from None
        if not isinstance(values, dict):
            raise TraceError(
                f"{name}: line {line}: must be an object with a value for each column, got {_shown(values)}"
            )
        yield Record(f"line {line}", values)


def _text(name: str, block: Block) -> str:
    try:
        text = block.data.decode()
    except UnicodeDecodeError as error:
        line = block.line + block.data.count(b"\n", 0, error.start)
        raise TraceError(f"{name}: line {line}: not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        line = block.line + text.count("\n", 0, text.index("\0"))
        raise TraceError(f"{name}: line {line}: has a NUL byte, so the file is no text")
    return text


def checked_rows(name: str, records: Iterable[Record], layout: Layout, *, typed: bool = False) -> Rows:
    """Rows of the records, all checked; with `typed`, a number in quotation marks is text."""
    rows = [_row(name, record, layout, typed) for record in records]
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Rows(columns[0], columns[1], None if layout.time is None else columns[2])


def _row(name: str, record: Record, layout: Layout, typed: bool) -> tuple[int, int, int]:
    place, values = record
    column = ""
    try:
        for column in layout.columns():
            if column not in values:
                raise TraceError(f"{name}: {place}: no {listed([column])}; there are {listed(list(values))}")
        column = layout.prompt
        prompt = _tokens(values[column], typed)
        column = layout.output
        output = _tokens(values[column], typed)
        if layout.time is None:
            return prompt, output, 0
        column = layout.time
        return prompt, output, _time_ns(values[column], layout)
    except ValueError as error:
        got = "" if _is_blank(values[column]) else f", got {_shown(values[column])}"
        raise TraceError(f"{name}: {place}: {column}: {error}{got}") from None


def _tokens(value: Any, typed: bool) -> int:
    """A number of tokens. Raises ValueError, which says what is wrong with it."""
    if _is_blank(value):
        raise ValueError("is blank; a number of tokens is needed")
    text = str(value).strip()
    if isinstance(value, bool) or (typed and isinstance(value, str)):
        raise ValueError("must be a number of tokens")
    if isinstance(value, float | Decimal) and -MOST_TOKENS <= value <= MOST_TOKENS:
        text = f"{Decimal(value):f}"
    if _THOUSANDS.fullmatch(text) and not _WHOLE.fullmatch(text):
        raise ValueError("must be a plain number, without a separator of thousands")
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"must be a whole number of tokens, at most {MOST_TOKENS}")
    if text.startswith("-") and text.strip("-0."):
        raise ValueError("must not be negative")
    if len(text) > 40 or int(text.split(".")[0]) > MOST_TOKENS:
        raise ValueError(f"must be at most {MOST_TOKENS} tokens")
    return int(text.split(".")[0])


def _time_ns(value: Any, layout: Layout) -> int:
    if isinstance(value, bool | list | dict):
        raise ValueError("must be a time")
    return text_ns("" if value is None else str(value), layout.kind, layout.unit_ns)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _shown(value: Any) -> str:
    """A value for a message, in quotation marks if it is text, cut to sixty letters."""
    if isinstance(value, str):
        return quoted(value)
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}..."

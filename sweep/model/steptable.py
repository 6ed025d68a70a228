"""Measured step times from a CSV file: what ran in a step, and how long it took.

Columns, in any order: `batch` (requests that emit a token in the step), `kv_tokens` (tokens of KV cache they read
together), `prefill_tokens` (prompt tokens of one request computed in the step, from an empty cache) and `ms`. What lies
between the rows is the business of `steptime`, straight lines through them that of `stepfit`.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.errors import TraceError
from sweep.model.trace_files import BOM, open_source, whole

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

COLUMNS = ("batch", "kv_tokens", "prefill_tokens", "ms")
MOST_ROWS = 1_000_000
MOST_COUNT = 2**40  # of requests or tokens: their products with a batch stay inside int64
MOST_MS = 1e9
FAULTS_SHOWN = 10


class StepTable(NamedTuple):
    """Rows of a table in the order of the file, (rows,) each, and its name for messages."""

    name: str
    batch: I64
    kv_tokens: I64
    prefill_tokens: I64
    ms: F64

    def where(self, kept: npt.NDArray[np.bool_]) -> "StepTable":
        """The rows where `kept` is true."""
        counts = (self.batch[kept], self.kv_tokens[kept], self.prefill_tokens[kept])
        return StepTable(self.name, *counts, self.ms[kept])

    def decoding(self) -> "StepTable":
        """The rows of steps in which no prompt is computed."""
        return self.where(self.prefill_tokens == 0)

    def prompts(self) -> "StepTable":
        """The rows of steps that only compute a prompt."""
        return self.where(self.batch == 0)

    def both(self) -> "StepTable":
        """The rows of steps that decode and compute a prompt."""
        return self.where((self.batch > 0) & (self.prefill_tokens > 0))


def read_step_table(path: str | Path) -> StepTable:
    """The table in a CSV file, plain or packed by gzip. Raises TraceError with a line for each fault."""
    with open_source(path) as source:
        data, name = whole(source).removeprefix(BOM), source.name
    if b"\0" in data:
        raise TraceError(f"{name}: not text; give the table as CSV in UTF-8, plain or packed by gzip")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"{name}: byte {error.start + 1} is not UTF-8; give the table as CSV in UTF-8") from None
    return step_table(name, text)


def step_table(name: str, text: str) -> StepTable:
    """The table in the text of a CSV file; `name` is for messages. Raises TraceError with a line for each fault."""
    try:
        lines = [(number, fields) for number, fields in _lines(text) if any(field.strip() for field in fields)]
    except csv.Error as error:
        raise TraceError(f"{name}: not CSV: {error}") from None
    if not lines:
        raise TraceError(f"{name}: the file has nothing but blank lines; {_expected()}")
    if len(lines) - 1 > MOST_ROWS:
        raise TraceError(f"{name}: {len(lines) - 1:,} rows; a table may have {MOST_ROWS:,}")
    order = _order(name, [column.strip() for column in lines[0][1]])
    if len(lines) == 1:
        raise TraceError(f"{name}: there are no rows below the header")
    faults: list[str] = []
    rows = [_row(f"{name}: line {number}", fields, order, faults) for number, fields in lines[1:]]
    if faults:
        rest = [f"{name}: {len(faults) - FAULTS_SHOWN:,} more faults"] if len(faults) > FAULTS_SHOWN else []
        raise TraceError(*faults[:FAULTS_SHOWN], *rest)
    batch, kv_tokens, prefill_tokens, ms = zip(*rows, strict=True)
    counts = (np.array(batch, np.int64), np.array(kv_tokens, np.int64), np.array(prefill_tokens, np.int64))
    return StepTable(name, *counts, np.array(ms, np.float64))


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for fields in reader:
        yield reader.line_num, fields


def _expected() -> str:
    return f"expected the columns {', '.join(COLUMNS)}"


def _order(name: str, header: list[str]) -> list[int]:
    """Where each of the columns stands in a row. A column that is not known may tell rows apart, so it is refused."""
    faults = [f'column "{column}" is missing' for column in COLUMNS if column not in header]
    faults += [f"column {_shown(column)} stands there {header.count(column)} times" for column in _repeated(header)]
    faults += [f"column {_shown(column)} is not known" for column in dict.fromkeys(header) if column not in COLUMNS]
    if faults:
        raise TraceError(*(f"{name}: {fault}; {_expected()}" for fault in faults[:FAULTS_SHOWN]))
    return [header.index(column) for column in COLUMNS]


def _repeated(header: list[str]) -> list[str]:
    return [column for column in COLUMNS if header.count(column) > 1]


def _row(where: str, fields: list[str], order: list[int], faults: list[str]) -> tuple[float, ...]:
    """The numbers of a row; what is wrong with it is added to the faults."""
    if len(fields) != len(order):
        faults.append(f"{where}: expected {len(order)} values, got {len(fields)}")
        return (0.0,) * len(order)
    texts = [fields[index].strip() for index in order]
    known: list[Callable[[str], float | None]] = [_count, _count, _count, _milliseconds]
    wanted = [f"a whole number from 0 to {MOST_COUNT}"] * 3 + [f"a number above 0 and at most {MOST_MS:g}"]
    values = [read(text) for read, text in zip(known, texts, strict=True)]
    wrong = [
        f"{where}: {column}: must be {words}, got {_shown(text)}"
        for column, text, value, words in zip(COLUMNS, texts, values, wanted, strict=True)
        if value is None
    ]
    numbers = tuple(-1.0 if value is None else value for value in values)
    faults += wrong or _contradictions(where, *numbers[:3])
    return numbers


def _contradictions(where: str, batch: float, kv_tokens: float, prefill_tokens: float) -> list[str]:
    if batch == 0 and prefill_tokens == 0:
        return [f"{where}: batch and prefill_tokens are both 0: a step of nothing"]
    if batch == 0 and kv_tokens > 0:
        return [f"{where}: batch is 0, so nobody reads the {kv_tokens:g} kv_tokens; prompts start from an empty cache"]
    return []


def _count(text: str) -> int | None:
    value = int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
    return None if value is None or value > MOST_COUNT else value


def _milliseconds(text: str) -> float | None:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if 0 < value <= MOST_MS else None


def _shown(text: str) -> str:
    cut = text if len(text) <= 40 else text[:37] + "..."
    return '"' + "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut) + '"'

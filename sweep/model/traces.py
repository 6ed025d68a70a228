"""Files of real requests: what was asked of a server, how much it answered, and when.

`read_trace` gives the requests of a file in order of arrival, whatever published format it has, and holds them all;
`trace_summary` sums them up without. What a file may look like stands in `trace_formats`, how it is read in
`trace_files`, `trace_rows`, `trace_records` and `trace_times`. Fitting distributions and resampling are left out.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError
from sweep.model.trace_files import Progress, open_source
from sweep.model.trace_formats import Names, check_names
from sweep.model.trace_notes import Oddities, no_requests, sentences
from sweep.model.trace_records import Rows, taken
from sweep.model.trace_rows import open_table

Tokens = NDArray[np.integer[Any]]  # 32 bits each
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
A = TypeVar("A", Tokens, I64, F64)


class Trace(NamedTuple):
    """Requests of a file in order of arrival; arrays are (requests,), those without output left out unless kept.

    format : what the file was read as. rows : how many were read; dropped : how many of them had no output.
    arrival_s : seconds since the first of the requests; None where the file has no times.
    notes : what is odd about the file, a sentence each.
    """

    format: str
    rows: int
    dropped: int
    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_s: F64 | None
    notes: tuple[str, ...]


def read_trace(
    path_or_dash: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word that users write
    prompt_column: str | None = None,
    output_column: str | None = None,
    time_column: str | None = None,
    time_unit: str | None = None,
    keep_zero_outputs: bool = False,
    first: int | None = None,
    progress: Progress | None = None,
) -> Trace:
    """The requests of a file, or of standard input for "-", sorted by time where they are not.

    format : its name, such as "mooncake", "azure-2023-csv" or "csv"; None: by the names of the columns.
    prompt_column, output_column, time_column : columns to read in place of the format's; if the first two are given,
        the third alone says whether there are times. time_unit : of times that are numbers, such as "ms".
    keep_zero_outputs : keep rows without output tokens, which are mostly failed requests.
    first : read that many rows and no more, counted in the order of the file before any is dropped.
    progress : called with the bytes read so far and the size of the file, None where it is not known.
    Raises TraceError, with the line and the value, for a file that cannot be read; InputError for an argument.
    """
    names = names_of(first, format, prompt_column, output_column, time_column, time_unit)
    with open_source(path_or_dash, progress) as source:
        layout, parts = open_table(source, names, first)
        rows, count = _joined(parts, keep_zero_outputs)
        name = source.name
    if not len(rows.output_tokens):
        raise no_requests(name, count)
    return _trace(layout.format, layout.notes, *_in_order(rows), count)


def names_of(
    first: int | None,
    format: str | None = None,  # noqa: A002 - the word that users write
    prompt_column: str | None = None,
    output_column: str | None = None,
    time_column: str | None = None,
    time_unit: str | None = None,
) -> Names:
    """What a user says of a file, checked. Raises InputError."""
    if first is not None and first < 1:
        raise InputError(f"first: must be at least 1 row, got {first}")
    names = Names(format, prompt_column, output_column, time_column, time_unit)
    check_names(names)
    return names


def _joined(parts: Iterable[Rows], keep_zero_outputs: bool) -> tuple[Rows, int]:
    """The requests of all parts, and how many rows there were.

    Columns of many million rows are most of the memory in use, so tokens are kept in 32 bits, and the parts of a column
    are let go before the next is joined.
    """
    prompts, outputs, times, count = [], [], [], 0
    for part in parts:
        count += len(part.output_tokens)
        kept = part if keep_zero_outputs else taken(part, part.output_tokens > 0)
        prompts.append(kept.prompt_tokens.astype(np.int32))
        outputs.append(kept.output_tokens.astype(np.int32))
        if kept.arrival_ns is not None:
            times.append(kept.arrival_ns)
    timed = bool(times)
    arrival_ns = _column(times, np.int64) if timed else None
    return Rows(_column(prompts, np.int32), _column(outputs, np.int32), arrival_ns), count


def _column(parts: list[Any], kind: type[Any]) -> NDArray[Any]:
    column = np.concatenate([np.zeros(0, kind), *parts])
    parts.clear()
    return column


def _in_order(rows: Rows) -> tuple[Rows, Oddities]:
    """The requests by time, those of one time in the order of the file, and what is odd about the times."""
    if rows.arrival_ns is None:
        return rows, Oddities()
    gaps = np.diff(rows.arrival_ns)
    backward = int(np.count_nonzero(gaps < 0))
    if backward:
        order = np.argsort(rows.arrival_ns, kind="stable")
        gaps = np.diff(rows.arrival_ns[order])
        rows = taken(rows, order)
    return rows, Oddities(backward, len(gaps) - int(np.count_nonzero(gaps)))


def _trace(format_name: str, assumed: tuple[str, ...], rows: Rows, of_times: Oddities, count: int) -> Trace:
    prompt, output, arrival_ns = rows
    no_output, no_prompt = (len(tokens) - int(np.count_nonzero(tokens)) for tokens in (output, prompt))
    odd = of_times._replace(dropped=count - len(output), no_output=no_output, no_prompt=no_prompt)
    arrival_s = None if arrival_ns is None else _seconds(arrival_ns, int(arrival_ns[0]))
    notes = (*assumed, *sentences(odd))
    return Trace(format_name, count, odd.dropped, _frozen(prompt), _frozen(output), arrival_s, notes)


def _seconds(ns: I64, start_ns: int) -> F64:
    """Seconds since the start; `ns` is used up, since there may be many."""
    ns -= start_ns
    seconds: F64 = ns / 1e9
    return _frozen(seconds)


def _frozen(array: A) -> A:
    array.flags.writeable = False
    return array

"""Files of real requests: what was asked of a server, how much it answered, and when.

`read_trace` gives the requests of a file in order of arrival, whatever published format it has; `figures` sums them up,
with the steps that both schedulers take for them. What a file may look like stands in `trace_formats`, how it is read
in `trace_files`, `trace_rows`, `trace_records` and `trace_times`. Fitting distributions and resampling are left out.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError, TraceError
from sweep.model.trace_files import Progress, open_source
from sweep.model.trace_formats import Names, check_names
from sweep.model.trace_records import Rows, taken
from sweep.model.trace_rows import open_table

Tokens = NDArray[np.integer[Any]]  # 32 bits each
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
A = TypeVar("A", Tokens, I64, F64)

TILE = 2**20  # requests whose products are summed at a time, so that no temporary is as long as the trace


class Trace(NamedTuple):
    """Requests of a file in order of arrival; arrays are (requests,), those without output left out unless kept.

    format : what the file was read as. rows : how many were read; dropped : how many of them had no output.
    arrival_s : seconds since the first of the requests; None where the file has no times.
    notes : what is odd about the file, a sentence each.
    dropped_arrival_s : (dropped,), when the rows left out came, on the same clock.
    """

    format: str
    rows: int
    dropped: int
    prompt_tokens: Tokens
    output_tokens: Tokens
    arrival_s: F64 | None
    notes: tuple[str, ...]
    dropped_arrival_s: F64 | None = None


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
    if first is not None and first < 1:
        raise InputError(f"first: must be at least 1 row, got {first}")
    names = Names(format, prompt_column, output_column, time_column, time_unit)
    check_names(names)
    with open_source(path_or_dash, progress) as source:
        layout, parts = open_table(source, names, first)
        rows, dropped_ns, count = _joined(parts, keep_zero_outputs)
        name = source.name
    if not len(rows.output_tokens):
        none = (
            f"none of the {count:,} rows has output tokens; --keep-zero-outputs keeps them"
            if count
            else "there are columns and no rows"
        )
        raise TraceError(f"{name}: {none}")
    return _trace(layout.format, layout.notes, *_in_order(rows), dropped_ns, count)


def figures(trace: Trace, slots: Sequence[int] = (16, 64)) -> dict[str, Any]:
    """What is in a trace, as numbers and texts that JSON can hold; null is what is undefined.

    Lengths are of the requests, arrivals of all rows read; cv is by the population's deviation; percentiles interpolate
    linearly. In `in_file_order` all requests wait at step 0, in order of arrival where the file was out of order.
    """
    times = [part for part in (trace.arrival_s, trace.dropped_arrival_s) if part is not None and len(part)]
    return {
        "format": trace.format,
        "rows": trace.rows,
        "requests": len(trace.output_tokens),
        "dropped": trace.dropped,
        "prompt": _lengths(trace.prompt_tokens),
        "output": _lengths(trace.output_tokens),
        "correlation": _correlation(trace.prompt_tokens, trace.output_tokens),
        "arrivals": _arrivals(np.concatenate(times)) if times else None,
        "in_file_order": _multiples(trace.output_tokens, slots),
        "oddities": list(trace.notes),
    }


def _joined(parts: Iterable[Rows], keep_zero_outputs: bool) -> tuple[Rows, I64, int]:
    """The requests of all parts, the times of the rows left out, and how many rows there were.

    Columns of many million rows are most of the memory in use, so tokens are kept in 32 bits, and the parts of a column
    are let go before the next is joined.
    """
    prompts, outputs, times, dropped_ns, count = [], [], [], [np.zeros(0, np.int64)], 0
    for part in parts:
        count += len(part.output_tokens)
        kept = part if keep_zero_outputs else taken(part, part.output_tokens > 0)
        prompts.append(kept.prompt_tokens.astype(np.int32))
        outputs.append(kept.output_tokens.astype(np.int32))
        if part.arrival_ns is not None and kept.arrival_ns is not None:
            times.append(kept.arrival_ns)
            dropped_ns.append(part.arrival_ns[:0] if keep_zero_outputs else part.arrival_ns[part.output_tokens == 0])
    timed = bool(times)
    arrival_ns = _column(times, np.int64) if timed else None
    rows = Rows(_column(prompts, np.int32), _column(outputs, np.int32), arrival_ns)
    return rows, np.concatenate(dropped_ns), count


def _column(parts: list[Any], kind: type[Any]) -> NDArray[Any]:
    column = np.concatenate([np.zeros(0, kind), *parts])
    parts.clear()
    return column


def _in_order(rows: Rows) -> tuple[Rows, list[str]]:
    """The requests by time, those of one time in the order of the file, and what is odd about the times."""
    if rows.arrival_ns is None:
        return rows, []
    gaps, notes = np.diff(rows.arrival_ns), []
    backward = int(np.count_nonzero(gaps < 0))
    if backward:
        order = np.argsort(rows.arrival_ns, kind="stable")
        gaps = np.diff(rows.arrival_ns[order])
        rows = taken(rows, order)
        before = _counted(backward, "request comes", "requests come")
        notes.append(f"{before} at an earlier time than the one before it in the file; requests are sorted by time")
    equal = len(gaps) - int(np.count_nonzero(gaps))
    if equal:
        as_before = _counted(equal, "request has", "requests have")
        notes.append(f"{as_before} the same time as the one before; such requests keep the order of the file")
    return rows, notes


def _trace(
    format_name: str, assumed: tuple[str, ...], rows: Rows, time_notes: list[str], dropped_ns: I64, count: int
) -> Trace:
    prompt, output, arrival_ns = rows
    dropped = count - len(output)
    notes = (*assumed, *time_notes, *_length_notes(prompt, output, dropped))
    arrival_s = dropped_arrival_s = None
    if arrival_ns is not None:
        start_ns = int(arrival_ns[0])
        arrival_s, dropped_arrival_s = _seconds(arrival_ns, start_ns), _seconds(dropped_ns, start_ns)
    return Trace(format_name, count, dropped, _frozen(prompt), _frozen(output), arrival_s, notes, dropped_arrival_s)


def _length_notes(prompt: Tokens, output: Tokens, dropped: int) -> list[str]:
    notes = []
    if dropped:
        notes.append(
            f"{_counted(dropped, 'row', 'rows')} without output tokens dropped (--keep-zero-outputs keeps them)"
        )
    no_output, no_prompt = (len(tokens) - int(np.count_nonzero(tokens)) for tokens in (output, prompt))
    if no_output:
        notes.append(f"{_counted(no_output, 'request has', 'requests have')} no output tokens")
    if no_prompt:
        notes.append(f"{_counted(no_prompt, 'request has', 'requests have')} no prompt tokens")
    return notes


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _seconds(ns: I64, start_ns: int) -> F64:
    """Seconds since the start; `ns` is used up, since there may be many."""
    ns -= start_ns
    seconds: F64 = ns / 1e9
    return _frozen(seconds)


def _frozen(array: A) -> A:
    array.flags.writeable = False
    return array


def _lengths(tokens: Tokens) -> dict[str, Any]:
    mean, deviation = _moments(tokens)
    p50, p95, p99 = np.percentile(tokens, (50, 95, 99)).tolist()
    cv = deviation / mean if mean else None
    return {
        "mean": mean,
        "cv": cv,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": int(tokens.max()),
        "sum": int(tokens.sum(dtype=np.int64)),
    }


def _moments(values: Tokens | F64) -> tuple[float, float]:
    """Mean and the population's standard deviation."""
    mean = float(values.mean())
    return mean, math.sqrt(_products(values, values, mean, mean) / len(values))


def _products(x: Tokens | F64, y: Tokens | F64, x_mean: float, y_mean: float) -> float:
    """The sum of the products of deviations, in tiles."""
    tiles = (slice(first, first + TILE) for first in range(0, len(x), TILE))
    return math.fsum(float((x[tile] - x_mean) @ (y[tile] - y_mean)) for tile in tiles)


def _correlation(prompt: Tokens, output: Tokens) -> float | None:
    """Pearson's r of both lengths, None where one of them never varies."""
    (x_mean, x_deviation), (y_mean, y_deviation) = _moments(prompt), _moments(output)
    if not (x_deviation and y_deviation):
        return None
    return _products(prompt, output, x_mean, y_mean) / len(prompt) / (x_deviation * y_deviation)


def _arrivals(times_s: F64) -> dict[str, Any]:
    """Rate and cv of the gaps between rows, and how they come in bursts; None where there are no gaps, or all are 0.

    times_s : (rows,), in any order; they are sorted in place.
    """
    times_s.sort()
    gaps_s, span_s = np.diff(times_s), float(times_s[-1] - times_s[0])
    mean_s, deviation_s = _moments(gaps_s) if len(gaps_s) else (0.0, 0.0)
    return {
        "rate_per_s": len(gaps_s) / span_s if span_s else None,
        "cv": deviation_s / mean_s if mean_s else None,
        "span_s": span_s,
        "longest_gap_s": float(gaps_s.max()) if len(gaps_s) else None,
        "same_time": int(np.count_nonzero(gaps_s == 0)),
        "busiest_minute": _most_within(times_s, 60.0),
    }


def _most_within(times_s: F64, span_s: float) -> int:
    """Most arrivals within a span that starts with one of them; times_s : sorted."""
    most = 0
    for first in range(0, len(times_s), TILE):
        tile = times_s[first : first + TILE]
        later = np.searchsorted(times_s, tile + span_s)
        most = max(most, int((later - np.arange(first, first + len(tile))).max()))
    return most


def _multiples(output_tokens: Tokens, slots: Sequence[int]) -> list[dict[str, Any]]:
    """Steps of both schedulers, and their ratio, for each number of slots."""
    from sweep.model.lockstep import given_steps  # reading a trace needs no kernels

    for places in slots:
        if isinstance(places, bool) or not isinstance(places, int | np.integer) or places < 1:
            raise InputError(f"slots: must be integers of at least 1, got {places!r}")
    steps = given_steps(np.array(output_tokens, np.int64, ndmin=2), slots)  # for all servers at once
    return [
        {
            "slots": int(places),
            "static_steps": int(static[0]),
            "continuous_steps": int(continuous[0]),
            "multiple": float(static[0] / continuous[0]) if continuous[0] else None,
        }
        for places, static, continuous in zip(slots, steps.static, steps.continuous, strict=True)
    ]

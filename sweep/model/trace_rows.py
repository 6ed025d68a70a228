"""Rows of a trace from CSV, JSON lines or Parquet: two lengths and a time each, checked.

polars reads each block of the file. Where it meets anything but plain values, `trace_records` reads the same block once
more, row by row, which settles what the rows are, or names the line and the value that cannot be. Other columns are not
kept.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sweep.errors import TraceError
from sweep.model.trace_files import Block, Source, blocks, check_text, start_of_text, whole
from sweep.model.trace_formats import Layout, Names, container_asked, layout_of, refuse_document
from sweep.model.trace_records import (
    MOST_TOKENS,
    Record,
    Rows,
    checked_rows,
    csv_records,
    header_of,
    json_records,
    taken,
)
from sweep.model.trace_times import column_ns

I64 = NDArray[np.int64]

PARQUET_ROWS = 2**17  # read at a time; more are no faster and take more memory

_POLARS_GIVES_UP = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, OverflowError)


class Table(NamedTuple):
    """A file whose layout is known, and its rows, some at a time."""

    layout: Layout
    rows: Iterator[Rows]


def open_table(source: Source, names: Names, first: int | None) -> Table:
    """The rows of a file, or the `first` of them, in any container. Raises TraceError, for a row when it is read."""
    asked = container_asked(names)
    if asked == "parquet" or source.head.startswith(b"PAR1"):
        return _parquet_table(source, names, first)
    check_text(source)
    start = start_of_text(source)
    if not start:
        raise TraceError(f"{source.name}: the file has nothing but blank lines")
    if asked == "jsonl" or (asked is None and start[:1] in (b"{", b"[")):
        refuse_document(source.name, start)
        return _json_table(source, names, first)
    return _csv_table(source, names, first)


def _csv_table(source: Source, names: Names, first: int | None) -> Table:
    name, parts = source.name, blocks(source, quoted=True)
    columns, below = header_of(name, next(parts))
    block = next((part for part in chain([below], parts) if part.data.strip()), below)
    first_row = next(csv_records(name, columns, block), None)
    layout = layout_of(name, "csv", source.gzipped, columns, first_row.values if first_row else {}, names)

    def read(block: Block, most: int | None) -> Rows:
        rows = _by_columns(_csv_frame(block, columns), layout)
        return rows or checked_rows(name, islice(csv_records(name, columns, block), most), layout)

    return Table(layout, _limited(chain([block], parts), read, first))


def _json_table(source: Source, names: Names, first: int | None) -> Table:
    name, parts = source.name, blocks(source, quoted=False)
    block = next(parts)
    first_row = next(json_records(name, block), None)
    if first_row is None:
        raise TraceError(f"{name}: there are no rows")
    layout = layout_of(name, "jsonl", source.gzipped, list(first_row.values), first_row.values, names)

    def read(block: Block, most: int | None) -> Rows:
        rows = _by_columns(_json_frame(block, layout), layout)
        return rows or checked_rows(name, islice(json_records(name, block), most), layout, typed=True)

    return Table(layout, _limited(chain([block], parts), read, first))


def _parquet_table(source: Source, names: Names, first: int | None) -> Table:
    name = source.name
    in_place = source.path is not None and source.path.is_file() and not source.gzipped
    try:
        lazy = pl.scan_parquet(source.path if in_place and source.path else io.BytesIO(whole(source)), glob=False)
        schema = lazy.collect_schema()
        plain = [column for column, dtype in schema.items() if not dtype.is_nested()]
        first_row = lazy.select(plain).head(1).collect().to_dicts()
        count = int(lazy.select(pl.len()).collect().item())
    except _POLARS_GIVES_UP as error:
        raise _damaged_parquet(name, error) from None
    layout = layout_of(name, "parquet", source.gzipped, list(schema), first_row[0] if first_row else {}, names)
    return Table(layout, _parquet_rows(name, lazy, layout, count if first is None else min(first, count)))


def _parquet_rows(name: str, lazy: pl.LazyFrame, layout: Layout, count: int) -> Iterator[Rows]:
    for offset in range(0, count, PARQUET_ROWS):
        try:
            part = lazy.select(layout.columns()).slice(offset, min(PARQUET_ROWS, count - offset)).collect()
        except _POLARS_GIVES_UP as error:
            raise _damaged_parquet(name, error) from None
        records = (Record(f"row {row}", values) for row, values in enumerate(part.iter_rows(named=True), offset + 1))
        yield _by_columns(part, layout) or checked_rows(name, records, layout)


def _damaged_parquet(name: str, error: BaseException) -> TraceError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return TraceError(f"{name}: not Parquet, or damaged: {lines[0][:160]}")


def _limited(parts: Iterable[Block], read: Callable[[Block, int | None], Rows], first: int | None) -> Iterator[Rows]:
    """Rows of the blocks until there are `first` of them; no block is read that is not needed."""
    left = first
    for block in parts:
        rows = read(block, left)
        if left is None:
            yield rows
            continue
        yield taken(rows, slice(left))
        left -= len(rows.prompt_tokens)
        if left <= 0:
            return


# ---- a block by columns: quick, and None for what needs a closer look


def _csv_frame(block: Block, columns: list[str]) -> pl.DataFrame | None:
    """All columns as text, since a row with too many fields goes unnoticed when some columns are left out."""
    schema = {f"{number}": pl.String for number in range(len(columns))}
    data = block.data.rstrip()  # blank lines at the end would be rows of nothing
    if not data or b"\0" in data:
        return None
    try:
        frame = pl.read_csv(data, has_header=False, schema=schema)
    except _POLARS_GIVES_UP:
        return None
    kept = {column: number for number, column in enumerate(columns)}
    return frame.select(pl.col(f"{number}").alias(column) for column, number in kept.items())


def _json_frame(block: Block, layout: Layout) -> pl.DataFrame | None:
    types = (pl.Int64, pl.Int64, pl.String)  # times as text, which has room for nanoseconds
    if b"\0" in block.data:
        return None
    try:
        return pl.read_ndjson(block.data, schema=dict(zip(layout.columns(), types, strict=False)))
    except _POLARS_GIVES_UP:
        return None


def _by_columns(frame: pl.DataFrame | None, layout: Layout) -> Rows | None:
    if frame is None or frame.height == 0:
        return None
    prompt, output = _column_tokens(frame[layout.prompt]), _column_tokens(frame[layout.output])
    times = None if layout.time is None else column_ns(frame[layout.time], layout.kind, layout.unit_ns)
    if prompt is None or output is None or (layout.time is not None and times is None):
        return None
    return Rows(prompt, output, times)


def _column_tokens(column: pl.Series) -> I64 | None:
    numbers = column
    if column.dtype == pl.String:
        numbers = column.cast(pl.Int64, strict=False)
        if numbers.null_count():  # as pandas writes whole numbers of a column that had gaps once
            numbers = column.str.strip_chars(" ").str.strip_suffix(".0").cast(pl.Int64, strict=False)
    elif not column.dtype.is_integer():
        return None
    if numbers.null_count():
        return None
    tokens = numbers.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    return None if tokens.min() < 0 or tokens.max() > MOST_TOKENS else tokens

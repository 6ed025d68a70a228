"""Files of real requests in a study: they are read once, with the study, which then holds the lengths itself.

So a results folder, a worker on another machine or a second run need no file, and what a run depends on are lengths,
not the name of a file. `distribution = "trace"` draws prompts or outputs on their own, [workload.trace] whole rows.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sweep.errors import SweepError
from sweep.model.distributions import MAX_TOKENS, Empirical
from sweep.model.trace_pack import MOST_ROWS, Requests, packed, unpacked
from sweep.study.changes import Change
from sweep.study.faults import DEEPEST, Fault, Path
from sweep.study.strict import Strict

if TYPE_CHECKING:
    from sweep.model.traces import Trace

READING = ("format", "prompt_column", "output_column", "first")
Text = Annotated[str, Field(min_length=1)]


UNREAD = "the file was not read; to compare files, make whole tables the values of an axis, with names"


def _unpackable(text: str) -> str:
    if text:
        unpacked(text)  # raises InputError, a ValueError
    return text


class TraceSpec(Strict):
    """Rows of a file of real requests, prompt and output together."""

    path: Text
    """The file, seen from the folder of the study file."""
    order: Literal["rows", "blocks", "replay"] = "rows"
    """"rows": single rows, drawn with replacement; "blocks": runs of `block` rows, which keeps what neighbours have in
    common; "replay": the file's own order, from its start, or from a random row where a workload is shorter than it."""
    block: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 64
    """Rows in a run, for order = "blocks"."""
    format: Text | None = None
    """Format of the file; left out: what its columns say."""
    prompt_column: Text | None = None
    """Column of the prompts, where no format says."""
    output_column: Text | None = None
    """Column of the outputs, where no format says."""
    first: Annotated[int, Field(ge=1)] | None = None
    """Rows to read, and no more."""
    rows: Annotated[str, AfterValidator(_unpackable)] = ""
    """The requests that were read, packed; filled in, not written by hand."""

    @model_validator(mode="after")
    def _file_was_read(self) -> Self:
        if not self.rows:
            raise ValueError(UNREAD)
        return self

    def requests(self) -> Requests:
        """The rows that there are to draw from."""
        return unpacked(self.rows)

    def lengths(self, side: Literal["prompt", "output"]) -> Empirical:
        """The prompts or the outputs on their own, as a distribution."""
        return _lengths(self.rows, side)


def _as_table(trace: Any) -> Any:
    """The name of a file as the table that it is short for."""
    return {"path": trace} if isinstance(trace, str) else trace


TraceOrPath = Annotated[TraceSpec, BeforeValidator(_as_table, json_schema_input_type=TraceSpec | Text)]


def outputs_of(rows: Any) -> Empirical:
    """The outputs of packed rows as a distribution; for what is not packed rows, which is refused elsewhere, any."""
    try:
        return _lengths(rows, "output")
    except (SweepError, TypeError):
        return Empirical(values=(1,))


@lru_cache(maxsize=16)
def _lengths(rows: str, side: Literal["prompt", "output"]) -> Empirical:
    requests = unpacked(rows)
    tokens = requests.prompt_tokens if side == "prompt" else requests.output_tokens
    values, counts = np.unique(tokens, return_counts=True)
    return Empirical(values=tuple(values.tolist()), weights=tuple(counts.tolist()))


class Found(NamedTuple):
    """What the files of a study come to: changes that put their lengths into it, faults, and a note on each file."""

    changes: list[Change]
    faults: list[Fault]
    notes: list[str]


def read_files(document: Mapping[str, Any], folder: File) -> Found:
    """The lengths in the files that a study names, their paths seen from `folder`; those it has already are kept.

    A table whose file is not to be read, since its keys are not usable or an axis sets them, is left to the checks.
    """
    found = Found(_short_named(document), [], [])
    read: dict[str, Trace] = {}
    for path, table in _tables(document):
        if _is_filled(table) or not _can_be_read(table) or _axis_sets(path, document):
            continue
        asked = {key: table[key] for key in READING if key in table}
        key = repr((table["path"], asked))
        try:
            read[key] = read.get(key) or _read(folder / table["path"], asked)
            found.changes.extend(_changes(path, table, read[key], document))
            said = f"{table['path']}: {len(read[key].output_tokens):,} requests, read as {read[key].format}"
            found.notes.extend([said] if said not in found.notes else [])
        except SweepError as error:
            found.faults.extend(Fault((*path, "path"), line) for line in error.lines)
            found.changes.extend(_some_lengths(path, table))
    return found


def _short_named(document: Mapping[str, Any]) -> list[Change]:
    """The change that makes a table of `trace = "mine.csv"`."""
    trace = _workload_of(document).get("trace")
    return [Change(("workload", "trace"), _as_table(trace))] if isinstance(trace, str) else []


def _workload_of(document: Mapping[str, Any]) -> dict[str, Any]:
    workload = document.get("workload")
    return workload if isinstance(workload, dict) else {}


def without_files(node: Any) -> Any:
    """A study's tables with lengths in the place of files: where they were read from changes no row."""
    if isinstance(node, list | tuple):
        return [without_files(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "path" in node and isinstance(node.get("rows"), str):
        kept = {key: value for key, value in node.items() if key not in ("path", *READING)}
        return {**kept, "rows": unpacked(node["rows"]).digest()}
    if node.get("distribution") == "trace":
        node = {key: value for key, value in node.items() if key not in ("path", *READING)}
    return {key: without_files(value) for key, value in node.items()}


def _tables(node: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The tables of a study that name a file of requests, with their paths."""
    if len(path) > DEEPEST:  # refused elsewhere
        return
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _tables(item, (*path, index))
    elif isinstance(node, dict):
        if node.get("distribution") == "trace" or (_is_workload_trace(path) and "path" in node):
            yield path, node
        if path == ("workload",) and isinstance(node.get("trace"), str):
            yield (*path, "trace"), _as_table(node["trace"])
        for key, item in node.items():
            if path or key in ("workload", "grid"):
                yield from _tables(item, (*path, key))


def _is_workload_trace(path: Path) -> bool:
    """Whether a table is [workload.trace], or a value of an axis of such tables."""
    named = [part for part in path if not isinstance(part, int) and part != "values"]
    return named == ["workload", "trace"] or (bool(named) and named[0] == "grid" and named[-1] == "workload.trace")


def _is_filled(table: Mapping[str, Any]) -> bool:
    return "values" in table or "rows" in table


def _can_be_read(table: Mapping[str, Any]) -> bool:
    texts = [table[key] for key in ("path", "format", "prompt_column", "output_column") if key in table]
    first = table.get("first", 1)
    return (
        "path" in table and all(isinstance(text, str) and text for text in texts) and type(first) is int and first > 0
    )


def _axis_sets(path: Path, document: Mapping[str, Any]) -> bool:
    """Whether an axis sets what a table says of its file: no file can then be read for all cells."""
    grid = document.get("grid")
    names = [*grid, *(name for group in _groups(grid) for name in group)] if isinstance(grid, dict) else []
    dotted = ".".join(map(str, path))
    return any(name == f"{dotted}.{key}" for name in names for key in ("path", "distribution", *READING))


def _groups(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    paired = grid.get("paired")
    return [group for group in paired if isinstance(group, dict)] if isinstance(paired, list) else []


def _read(path: File, asked: Mapping[str, Any]) -> "Trace":
    from sweep.model.traces import read_trace  # polars, which few studies need

    return read_trace(path, **asked)


def _changes(path: Path, table: Mapping[str, Any], trace: "Trace", document: Mapping[str, Any]) -> Iterator[Change]:
    """What is filled in for a table. Raises SweepError for a file that is too large for it."""
    at = tuple(map(str, path))
    if table.get("distribution") == "trace":
        tokens = trace.prompt_tokens if table.get("of") == "prompt" else trace.output_tokens
        values, counts = np.unique(tokens, return_counts=True)
        _refuse_longest(int(values[-1]))
        yield Change((*at, "values"), values.tolist())
        yield Change((*at, "weights"), counts.tolist())
        return
    if len(trace.output_tokens) > MOST_ROWS:
        raise SweepError(f"{len(trace.output_tokens):,} requests; a study holds {MOST_ROWS:,}: set first = {MOST_ROWS}")
    _refuse_longest(max(int(trace.prompt_tokens.max()), int(trace.output_tokens.max())))
    yield Change((*at, "rows"), packed(trace.prompt_tokens, trace.output_tokens))
    asked = "requests" in _workload_of(document)
    if path == ("workload", "trace") and not asked and not _axis_names(document, "workload.requests"):
        yield Change(("workload", "requests"), len(trace.output_tokens))


def _some_lengths(path: Path, table: Mapping[str, Any]) -> Iterator[Change]:
    """Lengths for a study that is refused in any case, so that nothing but the file is said of its table."""
    at = tuple(map(str, path))
    if table.get("distribution") == "trace":
        yield Change((*at, "values"), [1])
    else:
        yield Change((*at, "rows"), packed(np.ones(1, np.int64), np.ones(1, np.int64)))


def _axis_names(document: Mapping[str, Any], name: str) -> bool:
    grid = document.get("grid")
    return isinstance(grid, dict) and (name in grid or any(name in group for group in _groups(grid)))


def _refuse_longest(tokens: int) -> None:
    if tokens > MAX_TOKENS:
        raise SweepError(f"the longest request has {tokens:,} tokens; a study takes up to {MAX_TOKENS:,}")

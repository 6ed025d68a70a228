"""Files of real requests that a study names: they are read once, with the study, which then holds what was in them.

So a results folder, a worker on another machine or a second run need no file, and what a run depends on are lengths and
times, not the name of a file. `distribution = "trace"` draws prompts or outputs on their own, [workload.trace] whole
rows, arrivals with process = "times" take the times alone.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.errors import SweepError
from sweep.model.capped import MAX_TOKENS
from sweep.model.trace_pack import MOST_ROWS, Moments, Requests, packed, packed_times, unpacked, unpacked_times
from sweep.study.axes import paths_named
from sweep.study.changes import Change
from sweep.study.faults import DEEPEST, Fault, Path
from sweep.study.traced import as_table

if TYPE_CHECKING:
    from sweep.model.traces import Trace

READING = ("format", "prompt_column", "output_column", "time_column", "time_unit", "first")
PACKED: dict[str, Callable[[str], Requests | Moments]] = {"rows": unpacked, "packed_times": unpacked_times}
TEXTS = ("path", *READING[:-1])


class Found(NamedTuple):
    """What the files of a study come to: changes that put it into the study, faults, and notes on the files."""

    changes: list[Change]
    faults: list[Fault]
    notes: list[str]


def read_files(document: Mapping[str, Any], folder: File) -> Found:
    """What is in the files that a study names, their paths seen from `folder`; what it has already is kept.

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
            said = _notes(table["path"], read[key], timed=_takes_times(path, document))
            found.notes.extend(note for note in said if note not in found.notes)
        except SweepError as error:
            found.faults.extend(Fault((*path, "path"), line) for line in error.lines)
            found.changes.extend(_some(path, table, document))
    found.changes.extend(_as_many_as_times(document, found.changes))
    return found


def without_files(node: Any) -> Any:
    """A study's tables with contents in the place of files: where they were read from changes no row."""
    if isinstance(node, list | tuple):
        return [without_files(item) for item in node]
    if not isinstance(node, dict):
        return node
    contents = {key: node[key] for key in PACKED if isinstance(node.get(key), str)}
    if node.get("distribution") == "trace" or ("path" in node and contents):
        node = {key: value for key, value in node.items() if key not in ("path", *READING)}
    digests = {key: PACKED[key](text).digest() for key, text in contents.items()}
    return {key: without_files(value) for key, value in node.items()} | digests


def _short_named(document: Mapping[str, Any]) -> list[Change]:
    """The change that makes a table of `trace = "mine.csv"`."""
    trace = _workload_of(document).get("trace")
    return [Change(("workload", "trace"), as_table(trace))] if isinstance(trace, str) else []


def _workload_of(document: Mapping[str, Any]) -> dict[str, Any]:
    workload = document.get("workload")
    return workload if isinstance(workload, dict) else {}


def _tables(node: Any, path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The tables of a study that name a file of requests, with their paths."""
    if len(path) > DEEPEST:  # refused elsewhere
        return
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _tables(item, (*path, index))
    elif isinstance(node, dict):
        is_rows = _is_named(path, "trace") and "path" in node
        is_times = _is_named(path, "arrivals") and node.get("process") == "times" and "path" in node
        if node.get("distribution") == "trace" or is_rows or is_times:
            yield path, node
        if path == ("workload",) and isinstance(node.get("trace"), str):
            yield (*path, "trace"), as_table(node["trace"])
        for key, item in node.items():
            if path or key in ("workload", "grid"):
                yield from _tables(item, (*path, key))


def _is_named(path: Path, name: str) -> bool:
    """Whether a table is [workload.NAME], or a value of an axis of such tables."""
    named = [part for part in path if not isinstance(part, int) and part != "values"]
    return named == ["workload", name] or (bool(named) and named[0] == "grid" and named[-1] == f"workload.{name}")


def _takes_times(path: Path, document: Mapping[str, Any]) -> bool:
    """Whether a table takes the times of its file: those of arrivals do, and rows where some arrivals are theirs."""
    if not _is_named(path, "trace"):
        return _is_named(path, "arrivals")
    return "trace" in _processes({key: document.get(key) for key in ("workload", "grid")})


def _processes(node: Any, depth: int = 0) -> set[str]:
    """The processes of arrivals that a study names, in its tables or as values of an axis."""
    found: set[str] = set()
    if depth > DEEPEST:
        return found
    for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key in ("process", "workload.arrivals.process"):
            values = item.get("values") if isinstance(item, dict) else item
            found |= {value for value in (values if isinstance(values, list) else [values]) if isinstance(value, str)}
        else:
            found |= _processes(item, depth + 1)
    return found


def _is_filled(table: Mapping[str, Any]) -> bool:
    return any(key in table for key in ("values", "times_s", *PACKED))


def _can_be_read(table: Mapping[str, Any]) -> bool:
    first = table.get("first", 1)
    texts = [table[key] for key in TEXTS if key in table]
    return (
        "path" in table and all(isinstance(text, str) and text for text in texts) and type(first) is int and first > 0
    )


def _axis_sets(path: Path, document: Mapping[str, Any]) -> bool:
    """Whether an axis sets what a table says of its file: no file can then be read for all cells."""
    dotted = ".".join(map(str, path))
    sets = {f"{dotted}.{key}" for key in ("path", "distribution", *READING)}
    return not sets.isdisjoint(_axis_paths(document))


def _axis_paths(document: Mapping[str, Any]) -> list[str]:
    grid = document.get("grid")
    return paths_named(grid) if isinstance(grid, dict) else []


def _read(path: File, asked: Mapping[str, Any]) -> "Trace":
    from sweep.model.traces import read_trace  # polars, which few studies need

    return read_trace(path, **asked)


def _changes(path: Path, table: Mapping[str, Any], trace: "Trace", document: Mapping[str, Any]) -> Iterator[Change]:
    """What is filled in for a table. Raises SweepError for a file that is too large for it, or lacks something."""
    at = tuple(map(str, path))
    if table.get("distribution") == "trace":
        tokens = trace.prompt_tokens if table.get("of") == "prompt" else trace.output_tokens
        values, counts = np.unique(tokens, return_counts=True)
        _refuse_longest(int(values[-1]))
        yield Change((*at, "values"), values.tolist())
        yield Change((*at, "weights"), counts.tolist())
        return
    if len(trace.output_tokens) > MOST_ROWS:
        raise SweepError(f"{len(trace.output_tokens):,} requests; a study holds {MOST_ROWS:,}{_how_to_cut(path)}")
    if _takes_times(path, document):
        yield Change((*at, "packed_times"), packed_times(_times_of(trace)))
    if _is_named(path, "arrivals"):
        return
    _refuse_longest(max(int(trace.prompt_tokens.max()), int(trace.output_tokens.max())))
    yield Change((*at, "rows"), packed(trace.prompt_tokens, trace.output_tokens))
    if path == ("workload", "trace") and _leaves_requests_out(document):
        yield Change(("workload", "requests"), len(trace.output_tokens))


def _how_to_cut(path: Path) -> str:
    return "; cut the file" if _is_named(path, "arrivals") else f": set first = {MOST_ROWS}"


def _times_of(trace: "Trace") -> NDArray[np.float64]:
    """The times of a file, from 0 on. Raises SweepError where they are no arrivals."""
    times = trace.arrival_s
    if times is None:
        raise SweepError("the file has no arrival times")
    if len(times) < 2:
        raise SweepError("the file has 1 request; arrivals take at least 2")
    if times[-1] == times[0]:
        raise SweepError(f'all {len(times):,} requests come at one time; use process = "at_once"')
    return times


def _notes(name: str, trace: "Trace", *, timed: bool) -> Iterator[str]:
    """What was read, and, where times were taken, their rate and whether they had to be sorted."""
    said = f"{name}: {len(trace.output_tokens):,} requests, read as {trace.format}"
    if not timed:
        yield said
        return
    times = Moments(_times_of(trace))
    yield f"{said}; they come at {times.rate_per_s():.4g} a second, with a cv of the gaps of {times.gap_cv():.4g}"
    yield from (f"{name}: {note}" for note in trace.notes if note.endswith("sorted by time"))


def _some(path: Path, table: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[Change]:
    """Contents for a study that is refused in any case, so that nothing but the file is said of its table."""
    at = tuple(map(str, path))
    if table.get("distribution") == "trace":
        yield Change((*at, "values"), [1])
        return
    rows = 1 if _is_named(path, "trace") and not _takes_times(path, document) else MOST_ROWS
    if _takes_times(path, document):
        yield Change((*at, "packed_times"), packed_times(np.arange(rows, dtype=np.float64)))
    if _is_named(path, "trace"):
        yield Change((*at, "rows"), packed(np.ones(rows, np.int64), np.ones(rows, np.int64)))
    if path[0] == "workload" and _leaves_requests_out(document):
        yield Change(("workload", "requests"), 1)


def _as_many_as_times(document: Mapping[str, Any], changes: list[Change]) -> Iterator[Change]:
    """The number of requests, where nothing says it but given times."""
    arrivals = _workload_of(document).get("arrivals")
    known = any(change.path == ("workload", "requests") for change in changes)
    if known or not isinstance(arrivals, dict) or arrivals.get("process") != "times":
        return
    times = arrivals.get("times_s")
    for change in changes:
        if change.path == ("workload", "arrivals", "packed_times"):
            times = unpacked_times(change.value).seconds.tolist()
    if _leaves_requests_out(document) and isinstance(times, list) and times:
        yield Change(("workload", "requests"), len(times))


def _leaves_requests_out(document: Mapping[str, Any]) -> bool:
    return "requests" not in _workload_of(document) and "workload.requests" not in _axis_paths(document)


def _refuse_longest(tokens: int) -> None:
    if tokens > MAX_TOKENS:
        raise SweepError(f"the longest request has {tokens:,} tokens; a study takes up to {MAX_TOKENS:,}")

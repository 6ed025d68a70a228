"""The formats that traces are published in, told apart by the names of their columns, and what is refused as no trace.

A format's name is its publisher's, then the container: `azure-2023-csv`, `mooncake-jsonl`, `vidur-csv-gzip`. A file
whose columns the user names is just `csv`, `jsonl` or `parquet`. Reading the rows is left to `trace_rows`.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sweep.errors import InputError, TraceError
from sweep.model.trace_times import NUMBER, UNIT_NS, ZONED, kind_of

CONTAINERS = ("csv", "jsonl", "parquet")


class Format(NamedTuple):
    """A format: the columns of a request's lengths and time, and the unit of times that are numbers.

    marks : columns that tell this release from the others. untimed : some of its files have no times.
    """

    name: str
    prompt: str
    output: str
    time: str
    unit: str | None = None
    marks: tuple[str, ...] = ()
    untimed: bool = False


class Names(NamedTuple):
    """What the user says of a file; None is to be found out."""

    format: str | None = None
    prompt: str | None = None
    output: str | None = None
    time: str | None = None
    unit: str | None = None


class Layout(NamedTuple):
    """Where a file has what, and what its times are. `time` is None where there are none."""

    format: str
    prompt: str
    output: str
    time: str | None
    kind: str
    unit_ns: int
    notes: tuple[str, ...]

    def columns(self) -> list[str]:
        """The columns to read: prompt, output and time, where there is one."""
        return [column for column in (self.prompt, self.output, self.time) if column is not None]


_AZURE = ("ContextTokens", "GeneratedTokens", "TIMESTAMP")
_BURSTGPT = ("Request tokens", "Response tokens", "Timestamp")
FORMATS = (  # where several releases have the same columns, the one with a mark comes first
    Format("azure-2025", *_AZURE, marks=("NumImages",)),
    Format("azure-2023", *_AZURE),
    Format("azure-2024", *_AZURE),
    Format("burstgpt-2", *_BURSTGPT, "s", marks=("Session ID",)),
    Format("burstgpt-1", *_BURSTGPT, "s"),
    Format("mooncake", "input_length", "output_length", "timestamp", "ms"),
    Format("vidur", "num_prefill_tokens", "num_decode_tokens", "arrived_at", "s", untimed=True),
    Format("splitwise-sim", "prompt_size", "token_size", "arrival_timestamp", "s"),
    Format("llmservingsim", "input_toks", "output_toks", "arrival_time_ns", "ns"),
)
OWN = Format(
    "", "prompt_tokens", "output_tokens", "arrival_s", "s", untimed=True
)  # this project's words, in any container

SERVEGEN_LENGTHS = (
    "{name}: a ServeGen data set: weights of prompt and output lengths for windows of time, but no requests; "
    "generate requests with ServeGen and give those"
)
SERVEGEN_RATES = (
    "{name}: a ServeGen rate file: for windows of time the request rate, its cv and a family of gaps, but no requests; "
    "generate requests with ServeGen and give those"
)

_CHOICES = (*CONTAINERS, *(known.name for known in FORMATS))
_HOW_TO_NAME = "name them with --prompt-column and --output-column (and --time-column)"


def check_names(names: Names) -> None:
    """Raises InputError for a format or a unit that there is not, and for one column in two parts."""
    if names.format is not None and not _is_known(names.format):
        close = difflib.get_close_matches(names.format, _CHOICES, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(_CHOICES)}"
        raise InputError(f'trace format: "{names.format}" is unknown; {hint}')
    if names.unit is not None and names.unit not in UNIT_NS:
        raise InputError(f'trace time unit: "{names.unit}" is unknown; use one of {", ".join(UNIT_NS)}')
    given = [column for column in (names.prompt, names.output, names.time) if column is not None]
    if len(set(given)) < len(given):
        raise InputError("trace columns: prompt, output and time must be three different columns")


def container_asked(names: Names) -> str | None:
    """The container that the format asked for says, if any."""
    return _parted(names.format)[1] if names.format else None


def layout_of(
    name: str, container: str, gzipped: bool, columns: Sequence[str], first: Mapping[str, Any], names: Names
) -> Layout:
    """Where the file has what, by its columns and its first row. Raises TraceError for what is no trace, or unknown."""
    _refuse_what_is_no_trace(name, columns, first)
    known = _format(name, columns, names)
    prompt, output = names.prompt or known.prompt, names.output or known.output
    time = names.time or (known.time if known.time in columns or not known.untimed else None)
    _check_columns(name, columns, [column for column in (prompt, output, time) if column], known.name)
    kind = kind_of(str(first[time])) if time and first.get(time) is not None else NUMBER
    unit, notes = _unit(name, time, kind, names, known)
    notes += ("no arrival times: all requests are taken to wait from the start",) if time is None else ()
    release = "azure-2024" if known.name == "azure-2023" and kind == ZONED and names.format is None else known.name
    said = "-".join([*([release] if release else []), container, *(["gzip"] if gzipped else [])])
    return Layout(said, prompt, output, time, kind, UNIT_NS[unit], notes)


def refuse_document(name: str, start: bytes) -> None:
    """Raises TraceError for one JSON value over several lines, or a list, where a line should hold a request."""
    first_line = start.split(b"\n", 1)[0].strip()
    if first_line == b"{" and re.search(rb'"input_tokens"\s*:\s*"\{', start):
        raise TraceError(SERVEGEN_LENGTHS.format(name=name))
    if first_line == b"{" or start.startswith(b"["):
        raise TraceError(f"{name}: one JSON value for the whole file; expected JSON lines, an object for each request")


def quoted(text: str) -> str:
    """A text from a file in quotation marks, on one line, and no longer than sixty letters."""
    cut = text if len(text) <= 60 else f"{text[:60]}..."
    return json.dumps(cut.encode(errors="replace").decode(), ensure_ascii=False)


def listed(columns: Sequence[str]) -> str:
    """Names of columns in quotation marks, no more than twenty."""
    return ", ".join(map(quoted, columns[:20])) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _refuse_what_is_no_trace(name: str, columns: Sequence[str], first: Mapping[str, Any]) -> None:
    if any(isinstance(value, dict) and isinstance(value.get("input_tokens"), str) for value in first.values()):
        raise TraceError(SERVEGEN_LENGTHS.format(name=name))
    numbers = [_is_number(column) for column in columns]
    if len(columns) == 6 and all(numbers[:3]) and not numbers[3] and all(numbers[4:]):
        raise TraceError(SERVEGEN_RATES.format(name=name))
    if "sub_requests" in columns:
        raise TraceError(
            f"{name}: LLMServingSim's agentic format, with requests inside requests; give one request a line"
        )


def _is_known(name: str) -> bool:
    family, container = _parted(name)
    return family in {known.name for known in FORMATS} or (family is None and container is not None)


def _parted(name: str) -> tuple[str | None, str | None]:
    """Family and container that the name of a format says."""
    rest = name.removesuffix("-gzip")
    container = next((each for each in CONTAINERS if rest == each or rest.endswith(f"-{each}")), None)
    return rest.removesuffix(container or "").removesuffix("-") or None, container


def _format(name: str, columns: Sequence[str], names: Names) -> Format:
    """The format asked for, else a plain file if the user names its columns, else the first that has these columns."""
    family = _parted(names.format)[0] if names.format else None
    if family:
        return next(known for known in FORMATS if known.name == family)
    if names.prompt and names.output:
        return Format("", names.prompt, names.output, "", untimed=True)
    for known in (*FORMATS, OWN):
        if {known.prompt, known.output, *known.marks} <= set(columns):
            return known
    if any(map(_is_number, columns)):
        raise TraceError(f"{name}: line 1: must name the columns, got {listed(columns)}; put a header above the rows")
    for known in FORMATS:
        if len({known.prompt, known.output, known.time} & set(columns)) == 2:
            _check_columns(name, columns, [known.prompt, known.output], known.name)
    apart = "; columns must stand apart by commas" if len(columns) == 1 and re.search("[;\t|]", columns[0]) else ""
    raise TraceError(f"{name}: no known format has these columns: {listed(columns)}{apart}; {_HOW_TO_NAME}")


def _check_columns(name: str, columns: Sequence[str], wanted: Sequence[str], family: str) -> None:
    missing = [column for column in wanted if column not in columns]
    if missing:
        as_what = f" (read as {family})" if family else ""
        raise TraceError(f"{name}: no column {listed(missing)}{as_what}; there are {listed(columns)}; {_HOW_TO_NAME}")
    twice = [column for column in wanted if list(columns).count(column) > 1]
    if twice:
        raise TraceError(f"{name}: column {listed(twice)} is there twice; give each column a name of its own")


def _unit(name: str, time: str | None, kind: str, names: Names, known: Format) -> tuple[str, tuple[str, ...]]:
    """The unit of times that are numbers: as given, the format's, the name's or seconds; and what was assumed."""
    if time is None or kind != NUMBER:
        if names.unit is not None:
            why = "there are no times" if time is None else f"the times are each a {kind}"
            raise TraceError(f"{name}: {why}, so there is no unit to give; leave --time-unit out")
        return "s", ()
    of_format = known.unit if time == known.time else None
    ending = re.search(r"_(ns|us|ms|s)$", time)
    expected = of_format or (ending[1] if ending else None)
    if names.unit is not None:
        says = f"the format {known.name}" if of_format and known.name else "the column's name"
        note = f'times in "{time}" are read in {names.unit}, as --time-unit says; {says} says {expected}'
        return names.unit, (note,) if expected not in (None, names.unit) else ()
    if of_format:
        return of_format, ()
    unit = expected or "s"
    return unit, (f'times in "{time}" are taken to be in {unit}; --time-unit says otherwise',)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*-?\d+(\.\d*)?([eE][+-]?\d+)?\s*", text, re.ASCII) is not None

"""The axes of a study: values for dotted paths into its workload and server, and the tables with such values set.

How an axis is written is in `ranges`. Which values its path accepts is up to the models in `schema`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import ValidationError

from sweep.errors import InputError
from sweep.metrics import METRICS
from sweep.study.faults import Fault, Path, model_faults, number_faults, shown
from sweep.study.ranges import MOST_CELLS, AxisTable, values_of
from sweep.study.schema import ServerSpec, WorkloadSpec
from sweep.study.strict import Strict

SECTIONS: dict[str, type[Strict]] = {"workload": WorkloadSpec, "server": ServerSpec}
DEEPEST_PATH = 12

_RESERVED = {"cell", "point", "replicate", "replicates", "error", "slots", *METRICS}
_RESERVED |= {"multiple_of_totals", "exact_static_steps", "limit_multiple", "intervals_need"}
_RESERVED |= {"least_continuous_steps", "most_continuous_steps"}
_RESERVED |= {"requested_rate_per_s", "requested_gap_cv", "capacity_per_s", "offered_load", "static_load"}
_RESERVED |= {"static_tokens_per_s", "continuous_tokens_per_s", "static_requests_per_s", "continuous_requests_per_s"}
_SUMMARISED = (*(f"{metric}_" for metric in (*METRICS, "realised_output", "exact_static_steps")),)


class Axis(NamedTuple):
    """Values of one path, or of several that move together; a cell takes one entry of each axis."""

    columns: tuple[str, ...]
    paths: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]  # entry by entry, a value for each path
    labels: tuple[tuple[Any, ...], ...] | None  # what stands in the columns, where that is not the values


class _Column(NamedTuple):
    """One path of an axis, read."""

    path: str
    name: str
    values: list[Any]
    names: tuple[str, ...] | None


def read_axes(grid: dict[str, Any]) -> tuple[tuple[Axis, ...], list[Fault]]:
    """The axes of a [grid], plain ones first, then each [[grid.paired]] table; and every fault of each.

    An axis with faults is there with the entries that can be used, so that those are looked at too; it is left out
    where there are none.
    """
    axes: list[Axis] = []
    faults: list[Fault] = []
    for keys, tables in _groups(grid, faults):
        read = [_column(key, path, given, faults) for key, (path, given) in zip(keys, tables.items(), strict=True)]
        columns = [column for column in read if column is not None]
        axis = _axis(keys, columns, faults) if len(columns) == len(read) else None
        axes += [axis] if axis is not None else []
    return tuple(axes), faults + list(_collisions(axes))


def paths_named(grid: dict[str, Any]) -> list[str]:
    """All paths that a [grid] names, also those of axes which cannot be read."""
    paired = grid.get("paired", [])
    groups = [group for group in paired if isinstance(group, dict)] if isinstance(paired, list) else []
    return [*(path for path in grid if path != "paired"), *(path for group in groups for path in group)]


def overlay(base: dict[str, Any], values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A copy of the study's tables with values set at dotted paths, shorter paths first; raises LookupError."""
    for path, value in sorted(values, key=lambda item: item[0].count(".")):
        base = _with(base, path.split("."), value, [])
    return base


def canonical(value: Any) -> Any:
    """A hashable stand-in by which equal values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return ("table", frozenset((key, canonical(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return ("list", tuple(canonical(item) for item in value))
    return (isinstance(value, bool), value)


def axis_path(path: str) -> Path:
    """Where a plain axis stands in its file."""
    return ("grid", path)


def entries(axis: Axis) -> tuple[tuple[Any, ...], ...]:
    """What stands in the axis's columns, entry by entry."""
    return axis.labels if axis.labels is not None else axis.values


def _groups(grid: dict[str, Any], faults: list[Fault]) -> Iterator[tuple[list[Path], dict[str, Any]]]:
    """Each axis as the places and tables of its paths."""
    for path, table in grid.items():
        if path != "paired":
            yield [axis_path(path)], {path: table}
    paired = grid.get("paired", [])
    if not isinstance(paired, list):
        faults.append(Fault(("grid", "paired"), "must be tables, each under its own [[grid.paired]]"))
        return
    for index, group in enumerate(paired):
        if isinstance(group, dict) and group:
            yield [("grid", "paired", index, path) for path in group], group
        else:
            faults.append(Fault(("grid", "paired", index), "must be a table of axes", shown(group)))


def _axis(keys: list[Path], columns: list[_Column], faults: list[Fault]) -> Axis | None:
    """The axis of columns that move together, with its usable entries; None, and a fault, where they do not match."""
    here = keys[0] if len(keys) == 1 else keys[0][:-1]
    if len({len(column.values) for column in columns}) > 1:
        each = ", ".join(f"{column.path} {len(column.values):,}" for column in columns)
        faults.append(Fault(here, f"axes that move together need equally many values; there are {each}"))
        return None
    values = list(zip(*(column.values for column in columns), strict=True))
    labels = list(zip(*(column.names or column.values for column in columns), strict=True))
    named = any(column.names is not None for column in columns)
    again = _repeated(here, "value", values, faults) | (_repeated(here, "name", labels, faults) if named else set())
    kept = [at for at, row in enumerate(values) if at not in again and all(map(_is_usable, row))]
    if not kept:
        return None
    paths, names = zip(*((column.path, column.name) for column in columns), strict=True)
    return Axis(names, paths, tuple(values[at] for at in kept), tuple(labels[at] for at in kept) if named else None)


def _repeated(here: Path, what: str, rows: list[tuple[Any, ...]], faults: list[Fault]) -> set[int]:
    """The places of rows that stand before already; each is a fault, once."""
    seen: set[Any] = set()
    places = set()
    for at, row in enumerate(rows):
        if (same := canonical(row)) in seen:
            places.add(at)
        seen.add(same)
    twice = dict.fromkeys(", ".join(map(shown, rows[at])) for at in sorted(places))
    faults += [Fault(here, f"{what} {words} stands twice") for words in twice]
    return places


def _is_usable(value: Any) -> bool:
    return bool(value != "memory") and not any(number_faults(value))


def _column(key: Path, path: str, given: Any, faults: list[Fault]) -> _Column | None:
    """One path of an axis with all its values, and their faults; None where path or values cannot be known."""
    wrong_path = _path_fault(key, path, given)
    faults += [wrong_path] if wrong_path is not None else []
    if wrong_path is not None and wrong_path.kind == "unquoted":
        return None
    if not isinstance(given, list | dict):
        rule = "must be a list, { start, stop, num }, { start, stop, factor } or { values, names }"
        faults.append(Fault(key, rule, shown(given)))
        return None
    table = _table(key, given, faults)
    try:
        values = values_of(table) if table is not None else None
    except InputError as error:
        faults.append(Fault(key, str(error)))
        return None
    if table is None or values is None or not _are_counted(key, values, table.names, faults) or wrong_path is not None:
        return None
    return _Column(path, table.name or "_".join(path.split(".")[1:]), values, table.names)


def _path_fault(key: Path, path: str, given: Any) -> Fault | None:
    first, *rest = path.split(".")
    if isinstance(given, dict) and first in SECTIONS and not rest:
        words = f'a path stands in quotes, such as "{first}.{next(iter(given), "")}" = [...]'
        return Fault(key, words, kind="unquoted")
    if first not in SECTIONS or not all(rest) or not rest:
        near = next((name for name, model in SECTIONS.items() if first in model.model_fields), None)
        hint = f'did you mean "{near}.{path}"?' if near else 'such as "server.slots"'
        return Fault(key, f"a path starts with workload. or server.; {hint}")
    return Fault(key, "unknown path; no study is that deep") if len(rest) > DEEPEST_PATH else None


def _table(key: Path, given: list[Any] | dict[str, Any], faults: list[Fault]) -> AxisTable | None:
    """What an axis says of its values, without the parts that are at fault; None where no values can be made of it."""
    wrong = {fault.path: fault for fault in number_faults(given, key)}
    if isinstance(given, list):  # values are looked at one by one
        faults += wrong.values()
        return AxisTable.model_construct(values=given)
    try:
        AxisTable.model_validate(given)
    except ValidationError as error:
        wrong = {fault.path: fault for fault in model_faults(error, AxisTable, given, key)} | wrong
    faults += wrong.values()
    below = {path[len(key) :] for path in wrong}
    lost = {part for part, *deeper in below if not (part == "values" and deeper)}
    if lost & {"values", "start", "stop", "num", "factor", "names"}:
        return None
    return AxisTable.model_validate({part: value for part, value in given.items() if part not in lost})


def _are_counted(key: Path, values: list[Any], names: tuple[str, ...] | None, faults: list[Fault]) -> bool:
    """Whether the values are neither none nor too many, each with a name where there are names."""
    before = len(faults)
    if not values:
        faults.append(Fault(key, "an axis needs at least one value"))
    if len(values) > MOST_CELLS:
        faults.append(Fault(key, f"{len(values):,} values; a study has at most {MOST_CELLS:,} cells"))
    if names is not None and len(names) != len(values):
        faults.append(Fault((*key, "names"), f"{len(names):,} names for {len(values):,} values"))
    counted = len(faults) == before
    if "memory" in values:
        faults.append(Fault(key, '"memory" is no axis value; let slots = "memory" and make context an axis'))
    if names is None and any(isinstance(value, dict | list) for value in values):
        faults.append(Fault(key, "values that are tables or lists need names: { values = [...], names = [...] }"))
    return counted


def _collisions(axes: list[Axis]) -> Iterator[Fault]:
    paths: set[str] = set()
    columns: dict[str, str] = {}
    for column, path in (pair for axis in axes for pair in zip(axis.columns, axis.paths, strict=True)):
        if path in paths:
            yield Fault(axis_path(path), "is an axis twice")
        elif _is_reserved(column) and (column, path) != ("slots", "server.slots"):
            yield Fault(axis_path(path), f'the column "{column}" is one of the results; give another name')
        elif column in columns:
            yield Fault(axis_path(path), f'the column "{column}" is also that of {columns[column]}; give another name')
        paths.add(path)
        columns[column] = path


def _is_reserved(column: str) -> bool:
    return column in _RESERVED or column.startswith(_SUMMARISED)


def _with(data: Any, parts: list[str], value: Any, above: list[str]) -> Any:
    """A copy of nested tables and lists with one value set; tables on the way that are missing are made."""
    if not parts:
        return value
    here = ".".join(above)
    part, *rest = parts
    if isinstance(data, dict):
        return {**data, part: _with(data.get(part, {}), rest, value, [*above, part])}
    whole = ".".join([*above, *parts])
    if not isinstance(data, list):
        raise LookupError(whole, f"{here} is no table")
    if not re.fullmatch("[0-9]{1,9}", part) or int(part) >= len(data):
        raise LookupError(whole, f"{here} is a list of {len(data)}, numbered from 0; there is no {shown(part)}")
    index = int(part)
    return [*data[:index], _with(data[index], rest, value, [*above, part]), *data[index + 1 :]]

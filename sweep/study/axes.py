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


class _RefusedError(Exception):
    """An axis that cannot be read, with its faults."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__()
        self.faults = faults


def read_axes(grid: dict[str, Any]) -> tuple[tuple[Axis, ...], list[Fault]]:
    """The axes of a [grid], plain ones first, then each [[grid.paired]] table; and the faults of those left out."""
    axes: list[Axis] = []
    faults: list[Fault] = []
    for keys, tables in _groups(grid, faults):
        try:
            columns = _columns(keys, tables)
            axes.append(_axis(keys, columns))
        except _RefusedError as refused:
            faults += refused.faults
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


def _columns(keys: list[Path], tables: dict[str, Any]) -> list[_Column]:
    """The paths of one axis, read. Raises _RefusedError with the faults of all of them."""
    columns: list[_Column] = []
    faults: list[Fault] = []
    for key, (path, table) in zip(keys, tables.items(), strict=True):
        try:
            _check_path(key, path, table)
            columns.append(_column(key, path, table))
        except _RefusedError as refused:
            faults += refused.faults
    if faults:
        raise _RefusedError(*faults)
    return columns


def _axis(keys: list[Path], columns: list[_Column]) -> Axis:
    lengths = {len(column.values) for column in columns}
    if len(lengths) > 1:
        each = ", ".join(f"{column.path} {len(column.values):,}" for column in columns)
        raise _RefusedError(Fault(keys[0][:-1], f"axes that move together need equally many values; there are {each}"))
    values = tuple(zip(*(column.values for column in columns), strict=True))
    labels = tuple(zip(*(column.names or column.values for column in columns), strict=True))
    for shape, what in ((values, "value"), (labels, "name")):
        twice = _twice(shape)
        if twice is not None:
            key = keys[0] if len(keys) == 1 else keys[0][:-1]
            raise _RefusedError(Fault(key, f"{what} {', '.join(map(shown, twice))} stands twice"))
    named = any(column.names is not None for column in columns)
    paths = tuple(column.path for column in columns)
    return Axis(tuple(column.name for column in columns), paths, values, labels if named else None)


def _twice(rows: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...] | None:
    seen = set()
    for row in rows:
        key = canonical(row)
        if key in seen:
            return row
        seen.add(key)
    return None


def _check_path(key: Path, path: str, table: Any) -> None:
    first, *rest = path.split(".")
    if isinstance(table, dict) and first in SECTIONS and not rest:
        raise _RefusedError(Fault(key, f'a path stands in quotes, such as "{first}.{next(iter(table), "")}" = [...]'))
    if first not in SECTIONS or not all(rest) or not rest:
        near = next((name for name, model in SECTIONS.items() if first in model.model_fields), None)
        hint = f'did you mean "{near}.{path}"?' if near else 'such as "server.slots"'
        raise _RefusedError(Fault(key, f"a path starts with workload. or server.; {hint}"))
    if len(rest) > DEEPEST_PATH:
        raise _RefusedError(Fault(key, "unknown path; no study is that deep"))


def _column(key: Path, path: str, given: Any) -> _Column:
    table = {"values": given} if isinstance(given, list) else given
    if not isinstance(table, dict):
        rule = "must be a list, { start, stop, num }, { start, stop, factor } or { values, names }"
        raise _RefusedError(Fault(key, rule, shown(given)))
    if wrong := list(number_faults(given, key)):
        raise _RefusedError(*wrong)
    try:
        axis = AxisTable.model_validate(table)
        values = values_of(axis)
    except ValidationError as error:
        raise _RefusedError(*model_faults(error, AxisTable, table, key)) from error
    except InputError as error:
        raise _RefusedError(Fault(key, str(error))) from error
    _check_values(key, values, axis.names)
    return _Column(path, axis.name or "_".join(path.split(".")[1:]), values, axis.names)


def _check_values(key: Path, values: list[Any], names: tuple[str, ...] | None) -> None:
    if not values:
        raise _RefusedError(Fault(key, "an axis needs at least one value"))
    if len(values) > MOST_CELLS:
        raise _RefusedError(Fault(key, f"{len(values):,} values; a study has at most {MOST_CELLS:,} cells"))
    if "memory" in values:
        raise _RefusedError(Fault(key, '"memory" is no axis value; let slots = "memory" and make context an axis'))
    if names is None and any(isinstance(value, dict | list) for value in values):
        raise _RefusedError(Fault(key, "values that are tables or lists need names: { values = [...], names = [...] }"))
    if names is not None and len(names) != len(values):
        raise _RefusedError(Fault((*key, "names"), f"{len(names):,} names for {len(values):,} values"))


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
    return column in _RESERVED or column.startswith(_SUMMARISED) or column.endswith("_per_s")


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

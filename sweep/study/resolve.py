"""From a study's tables and axes to the workload and server of every cell, or the faults there are in any of them.

A fault that comes with an axis value names the axis; one that all cells share stands once, at its own key.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from sweep.study.axes import SECTIONS, Axis, axis_path, entries, overlay
from sweep.study.faults import Fault, Path, key_text, line, model_faults, shown
from sweep.study.schema import Setting

Entry = tuple[int, ...]  # which value of each axis


class _Section(NamedTuple):
    """One of the two tables under all the axis values that reach into it."""

    name: str
    axes: tuple[Axis, ...]  # all of the study's
    reaching: tuple[int, ...]  # the axes that set something here
    specs: dict[Entry, BaseModel]  # by the entries of these
    faults: dict[Fault, list[Entry]]


def resolve(base: dict[str, Any], axes: tuple[Axis, ...]) -> tuple[tuple[Setting, ...], dict[str, Path]]:
    """The setting of each cell, row-major in the order of the axes; or none, and the faults: line -> path at fault."""
    sections = [_section(name, base, axes) for name in SECTIONS]
    lines = {text: path for section in sections for text, path in _lines(section, base)}
    if lines:
        return (), lines
    cells = product(*(range(len(axis.values)) for axis in axes))
    return tuple(_setting(sections, cell) for cell in cells), {}


def _setting(sections: Sequence[_Section], cell: Entry) -> Setting:
    specs: dict[str, Any] = {
        section.name: section.specs[tuple(cell[axis] for axis in section.reaching)] for section in sections
    }
    return Setting.model_construct(**specs)  # each has been validated


def _section(name: str, base: dict[str, Any], axes: tuple[Axis, ...]) -> _Section:
    reaching = tuple(place for place, axis in enumerate(axes) if _set_in(axis, f"{name}."))
    section = _Section(name, axes, reaching, {}, defaultdict(list))
    outputs: dict[Entry, Any] = {}  # long lists of lengths are read once for each distribution, not for each cell
    to_output = tuple(at for at, place in enumerate(reaching) if _set_in(axes[place], "workload.output"))
    for entry in product(*(range(len(axes[place].values)) for place in reaching)):
        table = _table(section, base, entry)
        output = outputs.get(tuple(entry[at] for at in to_output))
        known = table if output is None else {**table, "output": output}
        try:
            section.specs[entry] = spec = SECTIONS[name].model_validate(known)
            outputs[tuple(entry[at] for at in to_output)] = getattr(spec, "output", None)
        except ValidationError as error:
            for fault in model_faults(error, SECTIONS[name], table, (name,)):
                section.faults[fault].append(entry)
    return section


def _table(section: _Section, base: dict[str, Any], entry: Entry) -> dict[str, Any]:
    """The section's table with the values of an entry set, but for those whose paths lead nowhere."""
    values = _values(section, entry)
    while True:
        try:
            return overlay(base, values.items())[section.name]  # type: ignore[no-any-return]
        except LookupError as error:
            path, words = error.args
            section.faults[Fault(tuple(path.split(".")), words, kind="path")].append(entry)
            del values[path]


def _set_in(axis: Axis, start: str) -> bool:
    return any(path.startswith(start) for path in axis.paths)


def _values(section: _Section, entry: Entry) -> dict[str, Any]:
    """The values of an entry at this section's paths."""
    chosen = [(section.axes[place], at) for place, at in zip(section.reaching, entry, strict=True)]
    pairs = [pair for axis, at in chosen for pair in zip(axis.paths, axis.values[at], strict=True)]
    return {path: value for path, value in pairs if path.startswith(f"{section.name}.")}


def _lines(section: _Section, base: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """The faults of a section, each with its path: one line for each value of the axes that bring it about."""
    paths = [path for place in section.reaching for path in section.axes[place].paths]
    for fault, failing in section.faults.items():
        dotted = ".".join(map(str, fault.path))
        unknown = [path for path in paths if is_under(path, dotted)] if _comes_with_a_path(fault, base) else []
        for path in unknown:
            at = "" if path == dotted else f"{dotted}: "
            yield (
                f"{key_text(axis_path(path))}: {at}{fault.sentence().replace('unknown key', 'unknown path')}",
                fault.path,
            )
        named = _at_fault(section, dotted, failing)
        for values in dict.fromkeys(_named(section, named, entry) for entry in failing) if not unknown else ():
            yield (f"{values}: {_rest(fault, dotted, named)}" if named else line(fault)), fault.path


def is_under(path: str, above: str) -> bool:
    """Whether a dotted path is the other or leads on from it."""
    return path == above or path.startswith(f"{above}.")


def _comes_with_a_path(fault: Fault, base: Any) -> bool:
    """Whether it is an axis's path that is wrong, whatever its values."""
    if fault.kind != "unknown":
        return fault.kind == "path"
    for part in fault.path:
        there = base if isinstance(base, dict) else range(len(base)) if isinstance(base, list) else ()
        if part not in there:
            return True
        base = base[part]
    return False


def _at_fault(section: _Section, dotted: str, failing: list[Entry]) -> list[str]:
    """The paths of the axes whose values bring a fault about; none where the tables themselves do."""
    axes = [section.axes[place] for place in section.reaching]
    here = [path for axis in axes for path in axis.paths if is_under(dotted, path)]
    if here:
        return [max(here, key=len)]
    if len(failing) == math.prod(len(axis.values) for axis in axes):
        return []
    choosy = [axis for at, axis in enumerate(axes) if len({entry[at] for entry in failing}) < len(axis.values)]
    paths = [path for axis in choosy or axes for path in axis.paths]
    return [path for path in paths if is_under(path, dotted)] or paths


def _named(section: _Section, paths: list[str], entry: Entry) -> str:
    """The values of these paths in an entry, such as `grid."server.slots": 0`."""
    parts = []
    for place, at in zip(section.reaching, entry, strict=True):
        axis = section.axes[place]
        for path, value in zip(axis.paths, entries(axis)[at], strict=True):
            if path in paths:
                parts.append(f"{key_text(axis_path(path))}: {shown(value)}")
    return ", ".join(parts)


def _rest(fault: Fault, dotted: str, named: list[str]) -> str:
    """The fault after the axis values in front of it, which need not be repeated."""
    if named == [dotted]:
        return fault._replace(got="").sentence()
    if is_under(dotted, named[0]):
        return line(fault._replace(path=fault.path[named[0].count(".") + 1 :]))
    return line(fault)

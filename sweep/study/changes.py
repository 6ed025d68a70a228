"""The text of a study file, and the changes made to it from outside: one value at a dotted path.

Values and paths are written as in TOML. Whether the study has such a path, and takes such a value, is for `study`.
"""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path as File
from typing import Any, NamedTuple

from sweep.errors import StudyError
from sweep.study.faults import key_text, printable, shown

SECTIONS = ("workload", "server")


class Change(NamedTuple):
    """A value to set at a path; None takes away what is there."""

    path: tuple[str, ...]
    value: Any


def read_text(path: str | File, name: str) -> str:
    """The text of a file, without a byte-order mark. Raises StudyError where it cannot be read as UTF-8."""
    try:
        data = File(path).read_bytes()
    except FileNotFoundError:
        raise StudyError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise StudyError(f"{name}: is a folder; give the study file in it") from None
    except (OSError, ValueError) as error:
        raise StudyError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise StudyError(f"{name}: is UTF-16 text; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StudyError(f"{name}: is no UTF-8 text (byte {data[error.start]:#04x} at {error.start})") from None


def parse_text(text: str, name: str) -> dict[str, Any]:
    """The tables of a study's text. Raises StudyError where it is no TOML, or holds nothing."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{name}: is no TOML: {printable(str(error))}") from None
    except (ValueError, RecursionError):
        raise StudyError(f"{name}: cannot be read: lists nest too deep or a number has thousands of digits") from None
    if not document:
        raise StudyError(f"{name}: is empty; a study has a [workload] and a [server], see sweep new")
    return document


def parse_change(text: str) -> Change:
    """A change from `PATH=VALUE`; a value that is no TOML but a bare word is text. Raises StudyError."""
    for mark in re.finditer("=", text):
        path = _path(text[: mark.start()])
        if path is not None:
            return Change(path, _value(text, text[mark.end() :]))
    raise StudyError(f"--set {printable(text)}: write it as PATH=VALUE, such as server.slots=8")


def make(tables: Any, changes: Iterable[Change]) -> None:
    """Make changes in nested tables, plain ones or tomlkit's; tables on the way that are missing are made.

    Raises StudyError where a path leads nowhere.
    """
    for change in changes:
        _make(tables, change)


def changed_text(text: str, changes: Iterable[Change], document: dict[str, Any]) -> str:
    """The text with the changes made and its comments kept; `document` is what it must come to."""
    import tomlkit  # only changed studies need it
    from tomlkit.exceptions import TOMLKitError

    try:
        tables = tomlkit.parse(text)
        make(tables, changes)
        rewritten = tables.as_string()
        if tomllib.loads(rewritten) == document:
            return rewritten
    except (TOMLKitError, ValueError):
        pass  # TOML that tomlkit cannot edit in place
    return plain_text(document)


def plain_text(document: dict[str, Any]) -> str:
    """A study's tables as TOML, without comments: nested tables stand inside one line."""
    single = {key: value for key, value in document.items() if not _stands_alone(value)}
    lines = [f"{key_text((key,))} = {_inline(value)}" for key, value in single.items()]
    for key, value in document.items():
        for table in ([value] if isinstance(value, dict) else value) if key not in single else ():
            head = f"[{key_text((key,))}]" if isinstance(value, dict) else f"[[{key_text((key,))}]]"
            lines += ["", head, *(f"{key_text((name,))} = {_inline(item)}" for name, item in table.items())]
    return "\n".join(lines) + "\n"


def _path(text: str) -> tuple[str, ...] | None:
    """The parts of a dotted key, None where it is none; `grid.server.slots` needs no quotes for its second part."""
    if "\n" in text or "#" in text:
        return None
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        part, table = next(iter(table.items()))
        parts.append(part)
    if len(parts) > 2 and parts[0] == "grid" and parts[1] in SECTIONS:
        parts[1:] = [".".join(parts[1:])]
    return tuple(parts)


def _value(change: str, text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
        if table.keys() == {"value"}:
            return table["value"]
    except (ValueError, RecursionError):
        if re.fullmatch(r"[^\[\]{}\"'=,#\x00-\x1f\x7f]*\w[^\[\]{}\"'=,#\x00-\x1f\x7f]*", text):
            return text.strip()
    raise StudyError(f"--set {printable(change)}: the value is neither TOML nor a bare word")


def _make(tables: Any, change: Change) -> None:
    *above, last = change.path
    for depth, part in enumerate(above):
        if isinstance(tables, dict) and part not in tables:
            tables[part] = {}
        tables = tables[_place(tables, part, change, depth)]
    place = _place(tables, last, change, len(above))
    if change.value is not None:
        tables[place] = change.value
    elif place in tables:
        del tables[place]


def _place(tables: Any, part: str, change: Change, depth: int) -> str | int:
    """The key or index of a part of the path."""
    if isinstance(tables, dict):
        return part
    here = key_text(change.path[:depth])
    if not isinstance(tables, list):
        raise StudyError(f"--set {key_text(change.path)}: {here} is no table")
    if not re.fullmatch("[0-9]{1,9}", part) or int(part) >= len(tables):
        words = f"{here} is a list of {len(tables)}, numbered from 0; there is no {shown(part)}"
        raise StudyError(f"--set {key_text(change.path)}: {words}")
    return int(part)


def _stands_alone(value: Any) -> bool:
    """Whether a value gets a [header] of its own."""
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_quoted(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Faults of a study file as lines: where, what is allowed, what was given, and the word that was probably meant.

Checks are elsewhere (the models in `schema`, the axes in `axes`); this module only puts them in words.
"""

import difflib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sweep.errors import StudyError
from sweep.metrics import ALWAYS, METRICS

Path = tuple[str | int, ...]

LINES_SHOWN = 100
NEAR_SHOWN = 3  # words that may have been meant, where there are too many to name them all
LARGEST_INTEGER = 2**63 - 1
DEEPEST = 32

WORDS = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be made of letters, digits and underscores",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have {min_length} or more values",
    "too_long": "must have {max_length} or fewer values",
}


class Fault(NamedTuple):
    """What is wrong at a path into a study: `got` is the value as it is shown, empty where showing it says nothing."""

    path: Path
    message: str
    got: str = ""
    hint: str = ""
    kind: str = ""

    def sentence(self) -> str:
        """The fault in words, with the value given and the word that was probably meant."""
        return self.message + (f", got {self.got}" if self.got else "") + (f"; {self.hint}" if self.hint else "")


def refuse(name: str, lines: Iterable[str]) -> None:
    """Raise StudyError with a line for each fault, each once, when there are any."""
    unique = list(dict.fromkeys(printable(f"{name}: {line}") for line in lines))
    if len(unique) > LINES_SHOWN:
        unique[LINES_SHOWN:] = [f"{name}: {len(unique) - LINES_SHOWN:,} more faults"]
    if unique:
        raise StudyError(*unique)


def line(fault: Fault) -> str:
    """The fault with its key in front."""
    return f"{key_text(fault.path)}: {fault.sentence()}"


def printable(text: str) -> str:
    """The text with control characters escaped: names come from files, and terminals obey what is printed."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def key_text(path: Path) -> str:
    """A path as a dotted TOML key; parts that are not bare keys stand in quotes."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part, re.ASCII) else shown(part) for part in map(str, path))


def shown(value: object) -> str:
    """A value as TOML writes it, shortened; tables and lists by their kind."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if value.bit_length() <= 128 else f"a number of {value.bit_length():,} bits"
    if isinstance(value, float):
        return f"{value!r}"
    if isinstance(value, str):
        cut = value if len(value) <= 60 else value[:57] + "..."
        return printable(json.dumps(cut, ensure_ascii=False))
    kinds = {dict: "a table", list: "a list", tuple: "a list"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), f"a {type(value).__name__}")


def closest(word: object, known: Collection[str]) -> str | None:
    """The known word that was probably meant, if any is close."""
    return next(iter(difflib.get_close_matches(word[:100], known, 1)), None) if isinstance(word, str) else None


def unknown(path: Path, what: str, known: Collection[str]) -> Fault:
    """The fault of a word, the last part of the path, that is none of the known ones."""
    near = closest(path[-1], known)
    hint = f"allowed: {', '.join(known)}" if near is None else f'did you mean "{near}"?'
    return Fault(path, f"unknown {what}", hint=hint, kind="unknown")


def choice(path: Path, given: object, known: Collection[str]) -> Fault:
    """The fault of a value that is none of the known ones."""
    near = closest(given, known)
    hint = "" if near is None else f'did you mean "{near}"?'
    return Fault(path, f"must be one of {', '.join(known)}", shown(given), hint)


def metric_choice(path: Path, given: object, metrics: Collection[str], columns: Collection[str] = ()) -> Fault:
    """The fault of a value that is no metric, nor a column where those do as well; metrics are too many to name."""
    known = [*columns, *metrics]
    near = difflib.get_close_matches(given[:100], known, NEAR_SHOWN) if isinstance(given, str) else []
    hint = f"did you mean {' or '.join(map(shown, near))}?" if near else ""
    listed = f"{', '.join(columns)}{' or ' if columns else ''}the {len(metrics)} metrics of `sweep list metrics`"
    return Fault(path, f"must be one of {listed}", shown(given), hint)


def is_related(path: Path, other: Path) -> bool:
    """Whether one path leads on from the other."""
    return all(a == b for a, b in zip(map(str, path), map(str, other), strict=False))


def number_faults(data: object, path: Path = ()) -> Iterator[Fault]:
    """Faults of the numbers anywhere below: nan, infinities, beyond 64 bits; and tables nested without end."""
    waiting: list[tuple[Path, object]] = [(path, data)]
    while waiting:
        path, data = waiting.pop()
        if isinstance(data, dict | list) and len(path) >= DEEPEST:
            yield Fault(path[:4], f"nests deeper than {DEEPEST} levels", kind="deep")
        elif isinstance(data, dict):
            waiting += [((*path, key), value) for key, value in reversed(data.items())]
        elif isinstance(data, list):
            waiting += [((*path, index), value) for index, value in reversed(list(enumerate(data)))]
        elif isinstance(data, float) and not math.isfinite(data):
            yield Fault(path, "must be a finite number", shown(data))
        elif isinstance(data, int) and abs(data) > LARGEST_INTEGER:
            yield Fault(path, f"must be at most {LARGEST_INTEGER:,} (2^63 - 1) in size", shown(data))


def model_faults(error: ValidationError, model: type[BaseModel], data: dict[str, Any], at: Path = ()) -> list[Fault]:
    """The faults that a model found in `data`, which stands at path `at`; one for each path.

    A key that is missing because it is misspelt is one fault, not two.
    """
    faults: dict[Path, Fault] = {}
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # it lacks only the items whose own faults are said
        fault = _fault(_path_in(detail["loc"], data, detail["type"]), detail, model, data)
        faults.setdefault(fault.path, fault)
    for path in [path for path, fault in faults.items() if fault.kind == "unknown"]:
        near = closest(path[-1], keys_at(model, data, path[:-1]))
        if near is not None and (*path[:-1], near) in faults and near not in _at(data, path[:-1]):
            del faults[*path[:-1], near]
    return [fault._replace(path=at + fault.path) for fault in faults.values()]


def _fault(path: Path, detail: ErrorDetails, model: type[BaseModel], data: Any) -> Fault:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    tag = str(context.get("discriminator", "")).strip("'")
    if kind == "extra_forbidden":
        return unknown(path, "key", keys_at(model, data, path[:-1]))
    if kind == "literal_error":
        return _wrong_word(path, given, _quoted(context["expected"]))
    if kind == "union_tag_invalid":
        return choice((*path, tag), given[tag], _quoted(context["expected_tags"]))
    if kind == "union_tag_not_found":
        if not isinstance(given, dict):
            return Fault(path, "must be a table", shown(given))
        near = closest(tag, [key for key in given if isinstance(key, str)])
        return Fault((*path, tag), "missing", kind="missing") if near is None else unknown((*path, near), "key", [tag])
    if kind == "missing":
        return Fault(path, "missing", kind="missing")
    if kind in WORDS:
        got = f"{len(given):,}" if kind in ("too_short", "too_long") else shown(given)
        return Fault(path, WORDS[kind].format(**{key: _limit(value) for key, value in context.items()}), got)
    if kind != "value_error":
        return Fault(path, detail["msg"], shown(given))
    words = printable(str(context["error"]))
    return Fault(path, words, "" if isinstance(given, dict) or shown(given) in words else shown(given))


def _wrong_word(path: Path, given: object, expected: list[str]) -> Fault:
    if not set(expected) <= set(METRICS):
        return choice(path, given, expected)
    if given in ALWAYS:
        return Fault(path, "is a metric of every study", shown(given), "leave it out")
    return metric_choice(path, given, expected)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _limit(value: object) -> str:
    return shown(int(value) if isinstance(value, float) and value.is_integer() else value)


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def keys_at(model: type[BaseModel], data: Any, path: Path) -> list[str]:
    """The keys that the table at a path of a model's data may have, in the order of their fields."""
    models = [model]
    for part in path:
        data = data[part]
        if isinstance(part, str):
            fields = [known.model_fields[part] for known in models if part in known.model_fields]
            models = [found for field in fields for found in _models_in(field.annotation)]
        if isinstance(data, dict) and "distribution" in data:
            models = [known for known in models if data["distribution"] in _tags(known)] or models
    return list(dict.fromkeys(key for known in models for key in known.model_fields))


def _path_in(loc: Path, data: Any, kind: str) -> Path:
    """The path without what pydantic adds to it: the tags of the unions it went through."""
    path: list[str | int] = []
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        tag = isinstance(data, dict) and not last and data.get("distribution") == part
        there = isinstance(data, dict) and part in data and not tag
        if there or (isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)):
            path.append(part)
            data = data[part]
        elif last and kind == "missing":
            path.append(part)
    return tuple(path)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("distribution")
    return get_args(field.annotation) if field else ()

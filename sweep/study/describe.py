"""The study file described, from its models: as a JSON schema for editors and as a page of Markdown for people."""

import json
from pathlib import Path as File
from typing import Any

from sweep.errors import InputError
from sweep.study.axes import SECTIONS
from sweep.study.ranges import AxisTable
from sweep.study.schema import StudyFile


def json_schema() -> dict[str, Any]:
    """A JSON schema that editors check study files against; `sweep run` checks more than a schema can say."""
    schema = StudyFile.model_json_schema()
    parts: dict[str, Any] = schema.pop("$defs")
    for key, model in SECTIONS.items():
        table = model.model_json_schema()
        parts |= table.pop("$defs", {})
        schema["properties"][key] = table | {"required": []}  # the grid may give what the table leaves out
    axis = AxisTable.model_json_schema()
    values = {"type": "array", "minItems": 1}
    schema["properties"]["grid"] = {
        "description": "Axes: a dotted path into the study, and its values.",
        "type": "object",
        "properties": {"paired": {"type": "array", "items": {"type": "object"}}},
        "additionalProperties": {"anyOf": [values, axis]},
    }
    schema["required"] = ["workload", "server"]
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "definitions": parts}
    text = json.dumps(_plain(whole)).replace("#/$defs/", "#/definitions/")
    return json.loads(text)  # type: ignore[no-any-return]


def _plain(node: Any) -> Any:
    """The schema without what says nothing in TOML: nulls, which it cannot write, and titles made from names."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _plain(value) for key, value in node.items() if not _says_nothing(key, value)}
    choices = [choice for choice in node.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del node["anyOf"]
        node = {**choices[0], **node}
    elif choices:
        node["anyOf"] = choices
    return node


def _says_nothing(key: str, value: Any) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and value is None) or key == "discriminator"


def new_study() -> str:
    """A commented study to start from."""
    return File(__file__).with_name("new_study.toml").read_text(encoding="utf-8")


def write_new(path: File) -> None:
    """Writes the study to start from, and the schema that its first line names beside it. Raises InputError."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(new_study())
        schema = json.dumps(json_schema(), indent=2)
        path.with_name("study.schema.json").write_text(f"{schema}\n", encoding="utf-8")
    except FileExistsError:
        raise InputError(f"{path}: exists already; choose another name") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def markdown() -> str:
    """The page docs/study.md: every table of a study file with its keys, their kinds, defaults and meaning."""
    schema = json_schema()
    parts = schema["definitions"]
    sections = [_OPENING, _table("The file", schema, parts)]
    sections += [_table(f"`[{key}]`", schema["properties"][key], parts) for key in SECTIONS]
    sections.append(_table("`[grid]`", _plain(AxisTable.model_json_schema()), parts, example=_GRID))
    named = {
        "TraceSpec": "`[workload.trace]`",
        "MemorySpec": "`[server.memory]`",
        "Precision": "`precision`",
        "Claim": "`[[claims]]`",
        "Chart": "`[[charts]]`",
    }
    others = {name: part for name, part in parts.items() if part.get("type") == "object"}
    tagged = {name: part for name, part in others.items() if "distribution" in part.get("properties", {})}
    sections += [_table(named.get(name, name), part, parts) for name, part in others.items() if name not in tagged]
    sections.append(_DISTRIBUTIONS)
    sections += [
        _table(f'`distribution = "{part["properties"]["distribution"]["const"]}"`', part, parts, level="###")
        for name, part in tagged.items()
        if not name.endswith("Part")
    ]
    return "\n".join(sections)


_OPENING = """# The study file

Made from the models that read study files, by `sweep schema --markdown`. An editor that knows JSON schemas checks a
study while it is written when its first line is `#:schema study.schema.json`. A path of an axis leads through the
tables below: `"server.slots" = [4, 8, 16]`. Unknown keys, quoted numbers, nan and infinity are refused, all faults at
once.
"""


_GRID = """```toml
[grid]
"server.slots" = [4, 8, 16]
"workload.output.cv" = { start = 0.5, stop = 2, num = 4 }         # evenly spaced: 0.5, 1, 1.5, 2
"workload.requests" = { start = 100, stop = 3_200, factor = 2 }   # both ends included
"server.order" = { name = "who", values = ["first_come", "shortest_first"] }

[[grid.paired]]       # these move together: one axis
"server.step_ms" = [20, 25]
"server.max_wait_s" = [0, 1]
```

Every combination of the axes is a cell, in the order of the file, `[[grid.paired]]` last; the last axis changes
fastest. A path may lead into a list: `"workload.output.parts.1.weight"`. What claims and charts call a column is the
path without its first part, dots as underscores (`slots`, `output_cv`), or its `name`.
"""


_DISTRIBUTIONS = """## Distributions

A part of a mixture has the keys of its own distribution, and `weight`, its share of the requests.
"""


def _table(title: str, table: dict[str, Any], parts: dict[str, Any], level: str = "##", example: str = "") -> str:
    lines = [f"{level} {title}\n"]
    if table.get("description"):
        lines.append(f"{table['description']}\n")
    if example:
        lines.append(example)
    lines += ["| key | kind | default | meaning |", "| --- | --- | --- | --- |"]
    for key, field in table["properties"].items():
        default = json.dumps(field["default"]) if "default" in field else ""
        meaning = field.get("description", "").replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{key}` | {_kind(field, parts)} | {default} | {meaning} |")
    return "\n".join([*lines, ""])


def _kind(field: dict[str, Any], parts: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"].rsplit("/", 1)[1])
    if "const" in field:
        return f'"{field["const"]}"'
    if "enum" in field:
        return ", ".join(f'"{value}"' for value in field["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in field:
            return " or ".join(dict.fromkeys(_kind(option, parts) for option in field[choice]))
    kinds = {
        "integer": "whole number",
        "string": "text",
        "array": "list",
        "object": "table",
        "boolean": "true, false",
    }
    return kinds.get(field.get("type", ""), str(field.get("type", "any")))

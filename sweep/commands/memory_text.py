"""The answer of `sweep memory`: what a token costs, what there is for it and how many requests fit; as JSON or as text.

Sizes are read here from the text of the options; bytes are counted in `model.memory`. ASCII throughout.
"""

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sweep.errors import InputError, SettingError, SweepError
from sweep.model.gpus import UTILISATION, check_gpus, check_utilisation, read_gpu
from sweep.model.memory import CONTEXTS, Holding, check_context, check_kv_dtype, clashes, memory_answer
from sweep.model.models import Model, check_weight_dtype, model_by_hand, read_model
from sweep.tables import aligned
from sweep.units import format_bytes, parse_bytes

LONGEST_BAR = 40


class Asked(NamedTuple):
    """The options as they were given; None, or False, for those that were not."""

    model: str | None = None
    kv_per_token: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    budget: str | None = None
    kv_dtype: str | None = None
    context: Sequence[int] | None = None
    utilisation: float | None = None
    overhead: str | None = None
    weights: str | None = None
    weight_dtype: str | None = None
    shared_prefix: int = 0
    no_trim_windows: bool = False


def answer(asked: Asked) -> dict[str, Any]:
    """The whole answer as plain data. Raises SweepError with a line for each option that is not usable."""
    given = {key for key, value in asked._asdict().items() if value is not None and value is not False}
    given |= {"trim_windows"} if asked.no_trim_windows else set()
    wrong = clashes(given, budget_needed=False, called=_option)
    if wrong:
        raise InputError(*wrong)
    read = _read(asked)
    whole = [tokens for tokens in CONTEXTS if tokens > asked.shared_prefix] or CONTEXTS
    try:
        return memory_answer(
            read.get("model") or read["kv_per_token"],
            read.get("gpu"),
            _holding(asked),
            contexts=read.get("context", whole),
            utilisation=read.get("utilisation", UTILISATION),
            overhead_bytes=read.get("overhead", 0),
            budget_bytes=read.get("budget"),
            weights=read.get("weights"),
            weight_dtype=asked.weight_dtype,
        )
    except SettingError as error:  # two options do not go together
        raise InputError(f"{_option(error.setting)}: {error.reason}") from None


def as_json(answer: Mapping[str, Any]) -> str:
    """The answer for machines."""
    return json.dumps(answer, indent=1)


def text(answer: Mapping[str, Any], width: int) -> str:
    """The answer for a terminal of this width, a paragraph for each step of the sum."""
    shared = answer["shared_prefix"]
    parts = [
        _head(answer),
        _indented("Keys and values of a token", answer["explanation"]),
        _indented("Memory for them", answer["budget_explanation"]),
        "\n".join(_table(answer)),
        f"The first {shared:,} tokens of every request are the same and held once." if shared else "",
        _notes(answer, width),
    ]
    return "\n\n".join(part for part in parts if part)


def _option(key: str) -> str:
    return "--no-trim-windows" if key == "trim_windows" else f"--{key.replace('_', '-')}"


def _model_by_hand(size: str) -> Model:
    return model_by_hand(parse_bytes(size))


def _contexts(asked: Sequence[int]) -> list[int]:
    return [check_context(tokens) for tokens in asked]


READERS: Mapping[str, Callable[[Any], Any]] = {
    "model": read_model,
    "kv_per_token": _model_by_hand,
    "gpu": read_gpu,
    "gpus": check_gpus,
    "budget": parse_bytes,
    "kv_dtype": check_kv_dtype,
    "context": _contexts,
    "utilisation": check_utilisation,
    "overhead": parse_bytes,
    "weights": parse_bytes,
    "weight_dtype": check_weight_dtype,
}


def _read(asked: Asked) -> dict[str, Any]:
    """What the options mean, of those that are given. Raises InputError with a line for each that is not usable."""
    read, faults = {}, []
    for key, reader in READERS.items():
        given = getattr(asked, key)
        try:
            if given is not None:
                read[key] = reader(given)
        except SettingError as error:
            faults.append(f"{_option(key)}: {error.reason}")
        except SweepError as error:
            faults += [f"{_option(key)}: {line}" for line in error.lines]
    if faults:
        raise InputError(*faults)
    return read


def _holding(asked: Asked) -> Holding:
    kv_dtype, gpus = asked.kv_dtype or "fp16", 1 if asked.gpus is None else asked.gpus
    return Holding(kv_dtype, gpus, asked.shared_prefix, trim_windows=not asked.no_trim_windows)


def _head(answer: Mapping[str, Any]) -> str:
    by_hand = not answer["layer_groups"]
    kept = "" if by_hand else f", keys and values in {answer['kv_dtype']}"
    gpu = f" on {answer['gpus']} x {answer['gpu']}" if answer["gpu"] else ""
    return f"{answer['model']}{gpu}{kept}"


def _indented(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""


def _table(answer: Mapping[str, Any]) -> list[str]:
    """A row for each context, with a bar as long as the requests that fit are many."""
    rows = answer["table"]
    unshared = "requests_that_fit_without_sharing"
    counts = [key for key in ("requests_that_fit", unshared) if key in rows[0]]
    header = ["context", "KV of a request", *("fit without sharing" if key == unshared else "fit" for key in counts)]
    cells = [
        [f"{row['context']:,}", format_bytes(row["bytes_per_request"]), *(_count(row[key]) for key in counts)]
        for row in rows
    ]
    most = max((row["requests_that_fit"] or 0 for row in rows), default=0)
    bars = ["", *(_bar(row["requests_that_fit"] or 0, most) for row in rows)]
    return [f"{line}  {bar}".rstrip() for line, bar in zip(aligned(header, cells), bars, strict=True)]


def _count(requests: int | None) -> str:
    return "?" if requests is None else f"{requests:,}"


def _bar(requests: int, most: int) -> str:
    """A bar in proportion; the shortest one for any request at all, none for none."""
    return "#" * max(round(LONGEST_BAR * requests / most), 1) if requests else ""


def _notes(answer: Mapping[str, Any], width: int) -> str:
    if answer["keys_read"]:
        notes = [f"read: {', '.join(answer['keys_read'])}"]
    else:
        notes = ["read: no file, the model is built in"] if answer["layer_groups"] else []
    notes += [f"assumed: {note}" for note in answer["assumed"]]
    return "\n".join(line for note in notes for line in textwrap.wrap(note, width, subsequent_indent="  "))

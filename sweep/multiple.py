"""A quick answer without a study file: the multiple of one kind of output on a few servers."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep import api
from sweep.errors import InputError, StudyError
from sweep.report.terminal import cells_text
from sweep.study import parse_study

NAME = "--output"


def text(output: str, slots: Sequence[int], requests: int, replicates: int, seed: int) -> str:
    """A table with a row for each number of slots: mean multiple with its interval, and what theory says.

    output : a distribution such as "lognormal mean=100 cv=1", or a file of output lengths. Raises SweepError.
    """
    spec, shown = _output(output)
    document = {
        "title": shown,
        "seed": seed,
        "replicates": replicates,
        "workload": {"requests": requests, "output": spec},
        "server": {"slots": slots[0]},
        "grid": {"server.slots": list(slots)},
    }
    try:
        study = parse_study(document, NAME)
    except StudyError as error:
        raise InputError(*(re.sub(r"workload\.output(\.|: )", "", line) for line in error.lines)) from error
    results = api.run(study, report=False)
    (point,) = results.manifest["points"]
    realised = f"mean {point['output_mean']:,.4g} tokens, cv {point['output_cv'] or 0:.3g}"
    head = f"{shown}: {realised}; {requests:,} requests, {replicates:,} workloads"
    return f"{head}\n\n{cells_text(results.cells, results.manifest)}"


def _output(text: str) -> tuple[dict[str, Any], str]:
    """The table of a distribution, and how to call it."""
    name, *rest = text.split() or [""]
    if not rest and Path(text).is_file():
        return {"distribution": "empirical", "values": lengths_in(Path(text))}, Path(text).name
    if text.lstrip().startswith("{"):
        return _toml(f"output = {text}", text)["output"], "mixture" if "mixture" in text else "output"
    if not re.fullmatch(r"\w+", name):
        raise InputError(f'{NAME}: no file "{text}", and no distribution such as "lognormal mean=100 cv=1"')
    values = [word if "=" in word else f"{word}=" for word in rest]
    return {"distribution": name, **_toml("\n".join(values), text)}, text


def _toml(document: str, given: str) -> dict[str, Any]:
    try:
        return tomllib.loads(document)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{NAME}: "{given}" is not a name and key=value pairs, nor a table ({error})') from error


def lengths_in(path: Path) -> list[int]:
    """Output lengths in a text file, whole numbers apart by white space or commas. Raises InputError."""
    try:
        words = re.split(r"[\s,]+", path.read_text(encoding="utf-8-sig").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text: {error}") from error
    for place, word in enumerate(words, 1):
        if not re.fullmatch(r"\d{1,9}", word):
            raise InputError(f'{path}: entry {place} is "{word[:40]}", not a whole number of tokens')
    return [int(word) for word in words]

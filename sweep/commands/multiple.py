"""A quick answer without a study file: the multiple of one kind of output on a few servers.

The output is a distribution in a few words, its table as in a study file, or a text file of lengths. Files of requests
with arrivals or prompts are not read here.
"""

import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from sweep import api
from sweep.errors import InputError, StudyError
from sweep.model.capped import MAX_TOKENS
from sweep.model.lockstep import continuous_steps, static_steps
from sweep.report.terminal import aligned
from sweep.report.words import number, with_interval
from sweep.study import parse_study

OUTPUT = "--output"
LONGEST_NAME = 60  # characters of a distribution that are shown as given
OPTIONS = (  # where a fault in the study made here comes from
    (r"workload\.output(\.|: )", f"{OUTPUT}: "),
    (r"workload\.requests: ", "--requests: "),
    (r'grid\."server\.slots": ', "--slots: "),
    (r"replicates: ", "--replicates: "),
    (r"seed: ", "--seed: "),
)
NOTE = (
    "exact: expected steps of static batching, from theory; 90 % within: of the workloads;\n"
    "limit: the multiple of a queue that never empties"
)


class _Output(NamedTuple):
    """Lengths as a study file has them, how to call them, and the lengths of a file in their order."""

    table: dict[str, Any]
    name: str
    lengths: list[int] | None = None


def text(output: str, slots: Sequence[int], requests: int, replicates: int, seed: int) -> str:
    """A table with a row for each number of slots: the mean multiple with its interval, and what theory says.

    output : a distribution such as "lognormal mean=100 cv=1", its table, or a file of output lengths, of which the
    multiple in their own order follows in a table of its own. Raises SweepError.
    """
    given = _output(output)
    document = {
        "title": given.name,
        "seed": seed,
        "replicates": replicates,
        "workload": {"requests": requests, "output": given.table},
        "server": {"slots": 1},
        "grid": {"server.slots": list(slots)},
    }
    try:
        study = parse_study(document, OUTPUT)
    except StudyError as error:
        raise InputError(*map(_by_option, error.lines)) from error
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        results = api.run(study, folder, report=False)
        cells, (point,) = results.cells, results.manifest["points"]
    realised = f"mean {number(point['output_mean'])} tokens, cv {number(point['output_cv'] or 0.0)}"
    drawn = f"{requests:,} requests, {replicates:,} workloads"
    parts = [f"{given.name}: {realised}; {drawn}", _table(cells), NOTE]
    if given.lengths is not None:
        parts += [f"The {len(given.lengths):,} requests of the file in their own order", _own(given.lengths, slots)]
    return "\n\n".join(parts)


def lengths_in(path: Path) -> list[int]:
    """Output lengths in a text file, whole numbers apart by white space or commas. Raises InputError."""
    try:
        words = re.split(r"[\s,]+", path.read_text(encoding="utf-8-sig").strip(" \t\r\n,"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text: {error}") from error
    if words == [""]:
        raise InputError(f"{path}: is empty; whole numbers of tokens are needed, apart by white space or commas")
    for place, word in enumerate(words, 1):
        if not re.fullmatch(r"[0-9]+", word):
            raise InputError(f'{path}: entry {place} is "{word[:40]}", not a whole number of tokens')
        if len(word) > 9 or int(word) > MAX_TOKENS:
            raise InputError(f"{path}: entry {place} is {word[:40]}; no request is longer than {MAX_TOKENS:,} tokens")
    return [int(word) for word in words]


def _table(cells: pl.DataFrame) -> str:
    head = ["slots", "static steps", "exact", "continuous steps", "mean multiple (95 %)", "90 % within", "limit"]
    rows = []
    for row in cells.iter_rows(named=True):
        steps = [row["static_steps_mean"], row["exact_static_steps"], row["continuous_steps_mean"]]
        multiple = [row[f"multiple_{name}"] for name in ("mean", "ci_low", "ci_high")]
        spread = [row["multiple_p05"], row["multiple_p95"]]
        rows.append(
            [
                f"{row['slots']:,}",
                *map(_steps, steps),
                with_interval(*multiple),
                "-" if None in spread else " to ".join(map(number, spread)),
                "-" if row["limit_multiple"] is None else f"{row['limit_multiple']:.3f}",
            ]
        )
    return "\n".join(aligned(head, rows))


def _steps(value: float | None) -> str:
    return "-" if value is None else number(value, 1 if value < 1000 else 0)


def _own(lengths: Sequence[int], slots: Sequence[int]) -> str:
    """The one workload that a file is, on each number of slots."""
    rows = []
    for places in slots:
        static, continuous = (int(steps(np.array(lengths), places)) for steps in (static_steps, continuous_steps))
        multiple = f"{static / continuous:.3f}" if continuous else "undefined"
        rows.append([f"{places:,}", f"{static:,}", f"{continuous:,}", multiple])
    return "\n".join(aligned(["slots", "static steps", "continuous steps", "multiple"], rows))


def _by_option(line: str) -> str:
    """A fault of the study made here, as one of the option that it comes from."""
    fault = line.removeprefix(f"{OUTPUT}: ")
    for pattern, option in OPTIONS:
        if re.match(pattern, fault):
            return re.sub(pattern, option, fault, count=1).replace(', or "memory"', "")
    return line


def _output(text: str) -> _Output:
    name, *rest = text.split() or [""]
    if Path(text).is_file():
        lengths = lengths_in(Path(text))
        values, counts = np.unique(lengths, return_counts=True)
        table = {"distribution": "empirical", "values": values.tolist(), "weights": counts.tolist()}
        return _Output(table, Path(text).name, lengths)
    if text.lstrip().startswith("{"):
        table = _toml(f"output = {text}", text)["output"]
        return _Output(table, text if len(text) <= LONGEST_NAME else str(table.get("distribution", "output")))
    if not re.fullmatch(r"\w+", name):
        raise InputError(f'{OUTPUT}: no file "{text}", and no distribution such as "lognormal mean=100 cv=1"')
    return _Output({"distribution": name, **_toml("\n".join(map(_quoted, rest)), text)}, " ".join([name, *rest]))


def _quoted(pair: str) -> str:
    """A key=value pair as TOML: a value that is a plain word is text."""
    return re.sub(r"^(\w+)=(?!(?:true|false|nan|inf)$)([A-Za-z]\w*)$", r'\1="\2"', pair)


def _toml(document: str, given: str) -> dict[str, Any]:
    try:
        return tomllib.loads(document)
    except tomllib.TOMLDecodeError as error:
        rule = f'"{given}" is neither a name and key=value pairs, nor a table, nor a file'
        raise InputError(f"{OUTPUT}: {rule} ({error})") from error

"""The answer of `sweep fit`: which family is most like the outputs of a file, and whether it gives their multiple."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from rich.console import Console

from sweep import api
from sweep.commands.traffic import Asked, keep_beside, reading, results_into, weighted, workloads_for
from sweep.model.fitting import Fit, fits
from sweep.model.lengths import integer_lengths, moments
from sweep.model.trace_summary import Summary, figures, summarise
from sweep.report.words import number
from sweep.study import Study, parse_study
from sweep.tables import aligned

SLOTS = (4, 16, 64)
OWN = "the file"
CLOSE = 0.05  # of the file's multiple
DRAWN_FAMILIES = 3  # in the chart


class Answer(NamedTuple):
    """The families, best first, and the mean multiple of each, and of the file, for each number of slots."""

    name: str
    figures: Mapping[str, Any]
    fits: Sequence[Fit]
    slots: Sequence[int]
    multiples: Mapping[str, Sequence[float]]


def answer(file: str, asked: Asked, console: Console) -> Answer:
    """The families that fit a file; with a folder asked for, also a page in it. Raises SweepError."""
    slots = asked.slots or SLOTS
    with reading(console) as progress:
        trace = summarise(file, slots, **asked.reading, progress=progress)
    name = "standard input" if file == "-" else Path(file).name
    found, families = figures(trace), fits(trace.output)
    study = _study(name, trace, families, slots)
    if asked.folder is not None:
        results = results_into(asked.folder, study)
        shown = [{"name": fit.name, "quantiles": fit.quantiles} for fit in families[:DRAWN_FAMILIES]]
        keep_beside(results, found, trace, {"name": name, "fits": shown})
        console.print(f"page: {results.report()}", markup=False)
        return Answer(name, found, families, slots, _multiples(results.cells))
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        cells = api.run(study, folder, report=False).cells
    return Answer(name, found, families, slots, _multiples(cells))


def table_of(fit: Fit) -> dict[str, Any]:
    """The fitted distribution as it stands in a study."""
    return _table(fit.spec.model_dump(mode="json", exclude_none=True))


def as_json(answer: Answer) -> str:
    """The answer for machines, the file itself first."""
    multiples = {name: dict(zip(map(str, answer.slots), row, strict=True)) for name, row in answer.multiples.items()}
    families = [
        {
            "family": fit.name,
            "output": table_of(fit),
            "parameters": fit.parameters,
            "log_likelihood": fit.log_likelihood,
            "aic": fit.aic,
            "multiples": multiples[fit.name],
        }
        for fit in answer.fits
    ]
    own = {"requests": answer.figures["requests"], "output": answer.figures["output"], "multiples": multiples[OWN]}
    return json.dumps({"file": own, "fits": families}, indent=1)


def text(answer: Answer) -> str:
    """The answer for a terminal."""
    best, output = answer.fits[0], answer.figures["output"]
    header = ["family", "parameters", "worse by", "mean", "cv", *(f"{places:,} slots" for places in answer.slots)]
    own = [OWN, "", "", number(output["mean"]), f"{output['cv']:.3f}", *_row(answer.multiples[OWN])]
    rows = [[fit.name, _words(fit), *_judged(fit, best), *_row(answer.multiples[fit.name])] for fit in answer.fits]
    parts = [
        f"{answer.name}: {answer.figures['requests']:,} outputs, the longest {output['max']:,} tokens",
        "\n".join(aligned(header, [own, *rows], words=(0, 1))),
        "Worse by: Akaike's criterion above the best family's; 10 is a great deal. Mean, cv and the mean multiples\n"
        "are of lengths as they are drawn, up to the file's longest.",
        _verdict(answer),
        f"In a study:\noutput = {_toml(table_of(best))}",
    ]
    return "\n\n".join(parts)


def _study(name: str, trace: Summary, families: Sequence[Fit], slots: Sequence[int]) -> Study:
    requests, replicates = workloads_for(trace)
    outputs = {OWN: weighted(trace), **{fit.name: table_of(fit) for fit in families}}
    document = {
        "title": f"Families fitted to {name}",
        "question": "Which family stands for these outputs, and does it give their multiple?",
        "replicates": replicates,
        "workload": {"requests": requests},
        "server": {"slots": slots[0]},
        "grid": {
            "server.slots": list(slots),
            "workload.output": {"name": "outputs", "names": list(outputs), "values": list(outputs.values())},
        },
        "charts": [{"kind": "heatmap", "x": "slots", "y": "outputs"}],
    }
    return parse_study(document, name)


def _multiples(cells: pl.DataFrame) -> dict[str, list[float]]:
    """The mean multiples by family, in the order of the slots."""
    rows: dict[str, list[float]] = {}
    for cell in cells.iter_rows(named=True):
        rows.setdefault(cell["outputs"], []).append(cell["multiple_mean"])
    return rows


def _table(dumped: dict[str, Any]) -> dict[str, Any]:
    """A distribution without what goes without saying, its name first, and before that the weight of a part."""
    kept = {key: value for key, value in dumped.items() if (key, value) != ("beyond", "clip")}
    if "parts" in kept:
        kept["parts"] = [_table(part) for part in kept["parts"]]
    first: dict[str, Any] = {key: kept.pop(key) for key in ("weight", "distribution") if key in kept}
    return {**first, **kept}


def _words(fit: Fit) -> str:
    """The parameters in a line."""
    table = table_of(fit)
    if "parts" in table:
        shares = [part.get("weight", 1 - table["parts"][0].get("weight", 0)) for part in table["parts"]]
        each = zip(shares, table["parts"], strict=True)
        return "; ".join(f"{share:.0%} {_said(part)}" for share, part in each)
    return _said(table)


def _said(table: Mapping[str, Any]) -> str:
    named = ("value", "low", "high", "mean", "cv")
    return ", ".join(
        f"{key} {table[key]:,.4g}" if key != "cv" else f"cv {table[key]:.3g}" for key in named if key in table
    )


def _toml(value: Any) -> str:
    """A distribution as TOML, the parts of a mixture on lines of their own."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_toml(item)},\n" for item in value) + "]"
    return json.dumps(value)


def _judged(fit: Fit, best: Fit) -> list[str]:
    mean, cv = moments(integer_lengths(fit.spec))
    return [f"{fit.aic - best.aic:,.0f}", number(mean), f"{cv:.3f}"]


def _row(multiples: Sequence[float]) -> list[str]:
    return [f"{multiple:.3f}" for multiple in multiples]


def _verdict(answer: Answer) -> str:
    """Whether the best family may stand for the file where the multiple is asked for."""
    best = answer.fits[0].name
    off = [theirs / own - 1 for own, theirs in zip(answer.multiples[OWN], answer.multiples[best], strict=True)]
    worst = max(off, key=abs)
    places = answer.slots[off.index(worst)]
    if abs(worst) <= CLOSE:
        return f"The best family gives the file's multiple within {abs(worst):.1%} at every number of slots."
    return (
        f"The best family is not the file: its multiple is off by {worst:+.0%} at {places:,} slots. Draw from\n"
        'the file itself (output = { distribution = "trace", path = ... }) where that matters.'
    )

"""The answer of `sweep trace`: what is in a file of real requests, and what continuous batching is worth on them.

The multiple is given twice: for the requests in the order of the file, and over workloads that are drawn from them with
replacement, with its interval. Where the two differ by more than chance, it is the order of the file that matters.
"""

import json
import math
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from sweep import api
from sweep.commands import memory_text
from sweep.commands.memory_text import answer as memory_answer
from sweep.errors import InputError
from sweep.model.counted import percentiles
from sweep.model.trace_files import Progress
from sweep.model.trace_summary import Summary, figures, summarise
from sweep.report.traffic import NAME as TRACE_FILE
from sweep.report.words import number, with_interval
from sweep.study import Study, parse_study
from sweep.tables import aligned
from sweep.units import format_bytes
from sweep.writing import write_whole

SLOTS = (4, 8, 16, 32, 64, 128, 256)
SLOTS_OF_JSON = (16, 64)
LARGEST_WORKLOAD = 1_000_000  # requests; by then the multiple is at its limit
DRAWN_REQUESTS = 20_000_000  # in all workloads of a server together, but no fewer than FEWEST workloads
FEWEST, MOST = 128, 1_000
QUANTILES = 401  # of each length, kept for the chart

WIDTH = 110

PLAIN_EVERY_S = 10.0  # between two lines of progress where there is no terminal
QUIET_S = 1.0  # files that are read sooner need none


class Fit(NamedTuple):
    """What a request of some length takes of the KV cache, and how many such requests fit."""

    request: str
    tokens: int
    bytes_per_request: int
    requests_that_fit: int | None


class Asked(NamedTuple):
    """What is asked of a trace; `reading` are the arguments of `summarise`, `folder` is where a page goes."""

    reading: Mapping[str, Any]
    slots: Sequence[int] | None = None
    model: str | None = None
    gpu: str | None = None
    folder: Path | None = None


class Answer(NamedTuple):
    """What was found; `drawn` is of the workloads drawn from the file."""

    name: str
    figures: Mapping[str, Any]
    memory: Sequence[Fit]
    drawn: "Drawn"


class Drawn(NamedTuple):
    """How many workloads of how many requests were drawn, and what became of them for each number of slots."""

    workloads: int
    requests: int
    cells: pl.DataFrame


def answer(file: str, asked: Asked, console: Console) -> Answer:
    """What is in a file, and its multiples; with a folder asked for, also the page in it. Raises SweepError."""
    if (asked.model is None) != (asked.gpu is None):
        raise InputError("--model and --gpu: give both, such as --model Llama-3.1-8B-Instruct --gpu A100-SXM-80GB")
    slots = asked.slots or SLOTS
    with reading(console) as progress:
        trace = summarise(file, slots, **asked.reading, progress=progress)
    name = "standard input" if file == "-" else Path(file).name
    found = figures(trace)
    memory = fits(trace, asked.model, asked.gpu) if asked.model and asked.gpu else []
    study = resampled_study(name, trace, slots)
    if asked.folder is not None:
        results = results_into(asked.folder, study)
        keep_beside(results, found, trace)
        console.print(f"page: {results.report()}", markup=False)
        return Answer(name, found, memory, _drawn(results))
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        return Answer(name, found, memory, _drawn(api.run(study, folder, report=False)))


def stem(file: Path) -> str:
    """What the folder of a file's page is called: its name without .csv, .csv.gz and the like."""
    return "stdin" if str(file) == "-" else file.name.split(".")[0] or file.name


def resampled_study(name: str, trace: Summary, slots: Sequence[int]) -> Study:
    """The study that draws workloads from the outputs of a trace with replacement, as long as the trace is."""
    requests, replicates = workloads_for(trace)
    return parse_study(
        {
            "title": name,
            "question": "What is continuous batching worth on this traffic?",
            "replicates": replicates,
            "workload": {"requests": requests, "output": weighted(trace)},
            "server": {"slots": slots[0]},
            "grid": {"server.slots": list(slots)},
            "charts": [{"kind": "distribution", "color": "slots"}],
        },
        name,
    )


def workloads_for(trace: Summary) -> tuple[int, int]:
    """Requests of a workload drawn from a trace, and how many workloads: no more than take a second or two."""
    requests = min(trace.output.n, LARGEST_WORKLOAD)
    return requests, max(FEWEST, min(MOST, DRAWN_REQUESTS // requests))


def weighted(trace: Summary) -> dict[str, Any]:
    """The outputs of a trace as a distribution of a study."""
    values, counts = trace.output
    return {"distribution": "empirical", "values": values.tolist(), "weights": counts.tolist()}


def results_into(folder: Path, study: Study) -> api.Results:
    """The results in a folder that holds nothing else, or those of another trace, which go."""
    ours = (folder / TRACE_FILE).exists()
    if (folder / "manifest.json").exists() and not ours:
        raise InputError(f"{folder}: holds the results of a study; choose another folder with -o")
    return api.run(study, folder, fresh=ours, report=False)


def keep_beside(
    results: api.Results, found: Mapping[str, Any], trace: Summary, more: Mapping[str, Any] | None = None
) -> None:
    """Keeps what a page shows of the trace itself in the folder of the results, with `more` of it."""
    shares = np.linspace(0, 100, QUANTILES).tolist()
    quantiles = {"prompt": percentiles(trace.prompt, shares), "output": percentiles(trace.output, shares)}
    kept = {"figures": found, "quantiles": quantiles, **(more or {})}
    write_whole(results.folder / TRACE_FILE, json.dumps(kept, indent=1).encode())


def _drawn(results: api.Results) -> Drawn:
    (point,) = results.manifest["points"]
    return Drawn(point["replicates"], point["requests"], results.cells)


def fits(trace: Summary, model: str, gpu: str) -> list[Fit]:
    """How many requests fit on a GPU at the mean, the high percentiles and the maximum of prompt and output together.

    Raises ModelError for a model or a GPU that is not known.
    """
    tokens = trace.context
    p95, p99 = percentiles(tokens, (95, 99))
    named = {"mean": tokens.total / tokens.n, "p95": p95, "p99": p99, "longest": int(tokens.values[-1])}
    contexts = [max(1, math.ceil(value)) for value in named.values()]
    table = memory_answer(memory_text.Asked(model=model, gpu=gpu, context=contexts))["table"]
    return [
        Fit(request, row["context"], row["bytes_per_request"], row["requests_that_fit"])
        for request, row in zip(named, table, strict=True)
    ]


def as_json(answer: Answer) -> str:
    """The figures of a trace for machines, the workloads drawn from it, the limit, and `memory` where asked for."""
    workloads, requests, cells = answer.drawn
    rows = [
        {
            "slots": cell["slots"],
            "workloads": workloads,
            "requests": requests,
            "multiple_mean": cell["multiple_mean"],
            "ci_low": cell["multiple_ci_low"],
            "ci_high": cell["multiple_ci_high"],
        }
        for cell in cells.iter_rows(named=True)
    ]
    limits = [{"slots": cell["slots"], "multiple": cell["limit_multiple"]} for cell in cells.iter_rows(named=True)]
    table = {"memory": [fit._asdict() for fit in answer.memory]} if answer.memory else {}
    return json.dumps({**answer.figures, "resampled": rows, "limit": limits, **table}, indent=1)


def text(answer: Answer) -> str:
    """The answer for a terminal."""
    figures, drawn = answer.figures, answer.drawn
    parts = [
        f"{answer.name}: {figures['rows']:,} rows read as {figures['format']}, {figures['requests']:,} requests",
        _lengths(figures),
        _arrivals(figures["arrivals"]),
        "\n".join(_multiples(figures, drawn.cells)),
        textwrap.fill(_how_drawn(drawn), WIDTH),
        textwrap.fill(_order(figures, drawn), WIDTH),
        "\n".join(_memory(answer.memory)),
        "\n".join(f"Note: {oddity}." for oddity in figures["oddities"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _lengths(figures: Mapping[str, Any]) -> str:
    header = ["tokens", "mean", "cv", "p50", "p95", "p99", "max", "sum"]
    rows = []
    for side in ("prompt", "output"):
        of = figures[side]
        cv = "-" if of["cv"] is None else f"{of['cv']:.3f}"
        rows.append([side, number(of["mean"]), cv, *(number(of[key], 0) for key in header[3:])])
    correlation = figures["correlation"]
    said = "undefined" if correlation is None else f"{correlation:.2f}"
    return "\n".join([*aligned(header, rows), f"correlation of prompt and output: {said}"])


def _arrivals(arrivals: Mapping[str, Any] | None) -> str:
    """Rate and bursts; gaps of independent arrivals have a cv of 1."""
    if arrivals is None:
        return "arrivals: no times in the file"
    if arrivals["rate_per_s"] is None:
        return "arrivals: all at one time"
    rate, cv = arrivals["rate_per_s"], arrivals["cv"]
    kind = "in bursts" if cv > 1.2 else "more even than independent ones" if cv < 0.8 else "as independent ones come"
    return (
        f"arrivals: {number(rate)} a second over {number(arrivals['span_s'], 0)} s; cv of the gaps {cv:.2f} ({kind}), "
        f"the longest {number(arrivals['longest_gap_s'])} s;\n"
        f"{arrivals['busiest_minute']:,} in the busiest minute, {number(60 * rate)} in the mean one"
    )


def _multiples(figures: Mapping[str, Any], cells: pl.DataFrame) -> list[str]:
    header = ["slots", "static steps", "continuous steps", "multiple in file order", "resampled", "p5 to p95", "limit"]
    rows = [
        [
            f"{found['slots']:,}",
            f"{found['static_steps']:,}",
            f"{found['continuous_steps']:,}",
            "undefined" if found["multiple"] is None else f"{found['multiple']:.3f}",
            with_interval(cell["multiple_mean"], cell["multiple_ci_low"], cell["multiple_ci_high"]),
            "-" if cell["multiple_p05"] is None else f"{cell['multiple_p05']:.3f} to {cell['multiple_p95']:.3f}",
            "-" if cell["limit_multiple"] is None else f"{cell['limit_multiple']:.3f}",
        ]
        for found, cell in zip(figures["in_file_order"], cells.iter_rows(named=True), strict=True)
    ]
    return aligned(header, rows)


def _how_drawn(drawn: Drawn) -> str:
    return (
        f"Resampled: {drawn.workloads:,} workloads of {drawn.requests:,} requests, drawn from the file with "
        "replacement; mean (95 % interval) and where nine in ten lie. Limit: a queue that never empties. All requests "
        "wait from the start."
    )


def _order(figures: Mapping[str, Any], drawn: Drawn) -> str:
    """Whether the order of the file changes the multiple by more than chance would."""
    if drawn.requests < figures["requests"]:
        return "The workloads are shorter than the file, so the two are not compared."
    below, above = [], []
    for found, cell in zip(figures["in_file_order"], drawn.cells.iter_rows(named=True), strict=True):
        multiple, low, high = found["multiple"], cell["multiple_p05"], cell["multiple_p95"]
        if multiple is not None and low is not None:
            below += [found["slots"]] if multiple < low else []
            above += [found["slots"]] if multiple > high else []
    said = []
    if below:
        alike = "neighbours in the file are alike, which spares static batching"
        said.append(f"The file's own order gives less than nine in ten of them at {_listed(below)} slots: {alike}.")
    if above:
        unlike = "neighbours in the file are unlike, which costs static batching"
        said.append(f"The file's own order gives more than nine in ten of them at {_listed(above)} slots: {unlike}.")
    return " ".join(said) or "The file's own order lies among them: it does no more than chance."


def _listed(slots: Sequence[int]) -> str:
    return ", ".join(f"{places:,}" for places in slots)


def _memory(fits: Sequence[Fit]) -> list[str]:
    if not fits:
        return []
    header = ["request", "prompt + output", "KV cache", "fit at once"]
    rows = [
        [fit.request, f"{fit.tokens:,}", format_bytes(fit.bytes_per_request), _count(fit.requests_that_fit)]
        for fit in fits
    ]
    return aligned(header, rows)


def _count(requests: int | None) -> str:
    return "?" if requests is None else f"{requests:,}"


@contextmanager
def reading(console: Console) -> Iterator[Progress]:
    """What is told of the bytes read, and says so after a second: a bar on a terminal, else a line now and then."""
    started = said = time.monotonic()
    bar = Bar(
        TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True
    )
    task = bar.add_task("reading", total=None)

    def progress(done: int, size: int | None) -> None:
        nonlocal said
        now = time.monotonic()
        if console.is_terminal and now - started > QUIET_S:
            bar.start()
            bar.update(task, completed=done, total=size)
        elif now - said >= PLAIN_EVERY_S:
            said = now
            share = f" of {size / 1e6:,.0f} MB, {done / size:.0%}" if size else " MB"
            console.print(f"{done / 1e6:,.0f}{share} read")

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()

"""The report: one HTML file that opens from disk, with no script and no reference to anything outside it.

Leaves out estimates, verdicts and pictures, which come ready made. Whatever a user wrote is escaped where it is put
into the page, and the policy of the page would run no script even so.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import polars as pl

from sweep.report.charts.look import save
from sweep.report.claims import FAILS, HOLDS, UNDECIDED, Verdict, check
from sweep.report.figures import KINDS, Figure, figures, timelines
from sweep.report.refused import refused_text
from sweep.report.stats import axis_columns, write_cells
from sweep.report.traffic import traffic_figures
from sweep.report.words import (
    at,
    axis_value,
    main_cell,
    number,
    precision_text,
    sentence,
    verdict_estimate,
    with_interval,
)
from sweep.results import Store, write_whole

MEANS = ("static_steps", "continuous_steps", "static_utilisation", "continuous_utilisation")
OUTCOMES = (FAILS, UNDECIDED, HOLDS)
LONGEST_LINE = 400  # of the study's text, in letters; a little more is shown whole
UNFOLDED = 8  # verdicts that are shown one by one


def write_report(store: Store, cells: pl.DataFrame | None = None) -> Path:
    """The path of report.html, written with cells.parquet and charts/ from what is in the folder alone.

    cells : the summary, where it has just been made.
    """
    cells = write_cells(store) if cells is None else cells
    verdicts = check(store)
    drawn = [*traffic_figures(store.folder, cells), *figures(store, cells, verdicts), *timelines(store.folder)]
    folder = store.folder / "charts"
    pictures = [(figure, save(figure.chart, folder, figure.name)) for figure in drawn]
    _drop_others(folder, {figure.name for figure in drawn})
    source = store.folder / "study.toml"
    study = source.read_text(encoding="utf-8", errors="replace") if source.exists() else ""
    page = store.folder / "report.html"
    write_whole(page, render(store.manifest, cells, verdicts, pictures, study).encode())
    return page


def render(
    manifest: Mapping[str, Any],
    cells: pl.DataFrame,
    verdicts: Sequence[Verdict],
    pictures: Sequence[tuple[Figure, str]],
    study: str,
) -> str:
    """The page as text. pictures : each figure with its SVG; study : the text of the study file."""
    style = _beside("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    question = f'<p class="question">{escape(manifest["question"])}</p>' if manifest["question"] else ""
    return Template(_beside("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        style=style,
        title=escape(manifest["title"]),
        question=question,
        answer=escape(sentence(cells, manifest, verdicts)),
        verdicts=_claims(verdicts),
        figures="\n".join(_figure(figure, svg) for figure, svg in pictures),
        cells=_cell_table(cells, manifest),
        command="sweep run study.toml -o again\nsweep check again",
        provenance=_provenance(manifest, cells),
        study=escape(_cut(study)) or "(there is no study.toml in the folder)",
    )


def _cut(study: str) -> str:
    """The text of a study with very long lines, such as the packed rows of a trace, cut short."""
    lines = study.split("\n")
    cut = (f"{line[:LONGEST_LINE]} ... ({len(line) - LONGEST_LINE:,} letters more in study.toml)" for line in lines)
    return "\n".join(line if len(line) <= 2 * LONGEST_LINE else short for line, short in zip(lines, cut, strict=True))


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _drop_others(folder: Path, names: set[str]) -> None:
    """Removes pictures of an earlier report that this one does not have, and nothing that is not a report's."""
    pattern = re.compile(rf"({'|'.join(KINDS)})(-\d+)?")
    for path in folder.glob("*.*"):
        if path.suffix in (".svg", ".png") and pattern.fullmatch(path.stem) and path.stem not in names:
            path.unlink()


def _figure(figure: Figure, svg: str) -> str:
    """A picture in the page, with words for those who cannot see it."""
    width = int(re.search(r'width="(\d+)"', svg)[1])  # type: ignore[index]
    small = ' class="small"' if width < 544 else ""
    tag = f'<svg role="img" aria-label="{escape(figure.alt)}"{small} '
    picture = re.sub(r'^<svg (.*?)class="marks" ', lambda match: tag + match[1], svg, count=1)
    return f'<figure><div class="scroll">{picture}</div>\n<figcaption>{escape(figure.caption)}</figcaption></figure>'


class _Entry(NamedTuple):
    """A place in a table: how it is set, what it says, and how many columns it takes."""

    kind: str
    text: str
    columns: int = 1


def _claims(verdicts: Sequence[Verdict]) -> str:
    """The verdicts; where they are many, how many of each kind a claim has, and the rest folded away."""
    if not verdicts:
        return ""
    note = "A verdict follows from the interval, never from the estimate alone; undecided: more workloads are needed."
    table = _verdict_table(verdicts)
    if len(verdicts) > UNFOLDED:
        table = f"{_claim_table(verdicts)}<details><summary>Every cell</summary>\n{table}</details>\n"
    return f'<section>\n<h2>Claims</h2>\n{table}<p class="note">{note}</p>\n</section>'


def _claim_table(verdicts: Sequence[Verdict]) -> str:
    found: dict[tuple[str, str], Counter[str]] = {}
    for verdict in verdicts:
        found.setdefault((verdict.text, f"{verdict.metric}: {verdict.condition}"), Counter())[verdict.verdict] += 1
    rows = [
        [_Entry("text", f"{text} ({asked})"), *(_Entry("number", str(counts[outcome])) for outcome in OUTCOMES)]
        for (text, asked), counts in found.items()
    ]
    return _table([_Entry("text", "claim"), *(_Entry("number", f"{outcome} in cells") for outcome in OUTCOMES)], rows)


def _verdict_table(verdicts: Sequence[Verdict]) -> str:
    heads = [_Entry("text", head) for head in ("verdict", "claim", "where")]
    heads += [_Entry("number", "estimate (95 % interval)"), _Entry("text", "worst replicates")]
    rows = [
        [
            _Entry(f"verdict {verdict.verdict}", verdict.verdict),
            _Entry("text", f"{verdict.text} ({verdict.metric}: {verdict.condition})"),
            _Entry("short", at(verdict.axes) or "the one cell"),
            _Entry("number", verdict_estimate(verdict)),
            _Entry("short", ", ".join(map(str, verdict.worst_replicates)) or "none"),
        ]
        for verdict in verdicts
    ]
    return _table(heads, rows)


def _cell_table(cells: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    columns = axis_columns(manifest)
    known = ["cell", *columns, *([] if "slots" in columns else ["slots"]), "replicates"]
    found = ["multiple_mean (95 % interval)", *(f"{metric}_mean" for metric in MEANS)]
    found += ["multiple_p50", "multiple_p05 to p95", "multiple_of_totals", "multiple_adjusted", "limit_multiple"]
    main = main_cell(cells, manifest)
    rows, marks = [], []
    for row in cells.iter_rows(named=True):
        rows.append([*(_Entry("number", axis_value(row[name])) for name in known), *_results(row, len(found))])
        marks.append("main" if row["cell"] == main else "")
    return _table([_Entry("number", head) for head in (*known, *found)], rows, marks)


def _results(row: Mapping[str, Any], columns: int) -> list[_Entry]:
    """What was found in a cell, or in the place of it all why nothing was."""
    if not row["replicates"]:
        return [_Entry("text", f"no result: {row['error'] or 'not simulated yet'}", columns)]
    multiple = (row[f"multiple_{name}"] for name in ("mean", "ci_low", "ci_high"))
    means = [_number(row[f"{metric}_mean"]) for metric in MEANS]
    spread = f"{_number(row['multiple_p05'])} to {_number(row['multiple_p95'])}"
    rest = [_number(row["multiple_p50"]), spread, _number(row["multiple_of_totals"]), _adjusted(row)]
    rest.append(_number(row["limit_multiple"]))
    return [_Entry("number", text) for text in (with_interval(*multiple), *means, *rest)]


def _adjusted(row: Mapping[str, Any]) -> str:
    """The adjusted mean and how many times the workloads it is worth, where that pays."""
    mean, se = row["multiple_adjusted"], row["multiple_adjusted_se"]
    if mean is None:
        return "-"
    gain = f", worth {number(row['multiple_variance_reduction'])} times the workloads" if se else ""
    return f"{with_interval(mean, mean - 1.96 * se, mean + 1.96 * se)}{gain}"


def _number(value: float | None) -> str:
    return "undefined" if value is None else number(value)


def _table(heads: Iterable[_Entry], rows: Iterable[Iterable[_Entry]], marks: Sequence[str] = ()) -> str:
    """An HTML table that scrolls on its own; marks : a class for each row, or none."""
    head = "".join(
        f'<th class="{entry.kind}" scope="col">{escape(entry.text).replace("_", "_<wbr>")}</th>' for entry in heads
    )
    body = []
    for index, row in enumerate(rows):
        mark = f' class="{marks[index]}"' if marks and marks[index] else ""
        body.append(f"<tr{mark}>{''.join(map(_entry, row))}</tr>\n")
    table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(body)}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>\n'


def _entry(entry: _Entry) -> str:
    span = f' colspan="{entry.columns}"' if entry.columns > 1 else ""
    return f'<td class="{entry.kind}"{span}>{escape(entry.text)}</td>'


def _provenance(manifest: Mapping[str, Any], cells: pl.DataFrame) -> str:
    asked = f"{manifest['replicates']} asked for, " if manifest["precision"] is None else ""
    counts = sorted({point["replicates"] for point in manifest["points"]})
    done = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    facts = {
        "seed": manifest["seed"],
        "replicates": f"{asked}{done} simulated",
        **({"precision": precision_text(cells, manifest)} if manifest["precision"] is not None else {}),
        **({"requests": refused} if (refused := refused_text(cells, manifest)) else {}),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "hash": manifest["hash"],
    }
    return f"<dl>{''.join(f'<dt>{key}</dt><dd>{escape(str(value))}</dd>' for key, value in facts.items())}</dl>"

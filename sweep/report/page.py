"""The report: one HTML file that opens from disk, and refers to nothing outside it.

Leaves out estimates, verdicts and pictures, which come ready made, and what the script does (page.js): without it the
page shows all there is, and with it tables sort and the cells of a grid can be looked into. Whatever a user wrote is
escaped where it is put into the page, and the policy of the page runs the one script and no other.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from sweep.report.answer import sentence
from sweep.report.boundary import Boundary, boundaries
from sweep.report.charts.look import save
from sweep.report.claims import Verdict, check
from sweep.report.clock import clock_text
from sweep.report.details import details
from sweep.report.figures import KINDS, Figure, figures, timelines
from sweep.report.markup import (
    UNFOLDED,
    cell_table,
    claims_list,
    data_table,
    escape,
    spelt,
    turns_list,
    verdict_table,
)
from sweep.report.refused import refused_text
from sweep.report.summary import write_cells
from sweep.report.traffic import traffic_figures
from sweep.report.words import plural, precision_text
from sweep.results import Store
from sweep.writing import write_whole

LONGEST_LINE = 400  # of the study's text, in letters; a little more is shown whole
Pictures = Sequence[tuple[Figure, str]]  # each with its SVG


def write_report(store: Store, cells: pl.DataFrame | None = None) -> Path:
    """The path of report.html, written with cells.parquet and charts/ from what is in the folder alone.

    cells : the summary, where it has just been made.
    """
    cells = write_cells(store) if cells is None else cells
    verdicts = check(store)
    drawn = [*traffic_figures(store.folder, cells), *figures(store, cells, verdicts)]
    slots = timelines(store)
    folder = store.folder / "charts"
    pictures, last = ([(one, save(one.chart, folder, one.name)) for one in part] for part in (drawn, slots))
    _drop_others(folder, {figure.name for figure in (*drawn, *slots)})
    source = store.folder / "study.toml"
    study = source.read_text(encoding="utf-8", errors="replace") if source.exists() else ""
    metrics = dict.fromkeys([*(figure.tiles[2] for figure in drawn if figure.tiles), "multiple"])
    told = details(store, cells, verdicts, metrics)
    page = store.folder / "report.html"
    turns = boundaries(store)
    write_whole(page, render(store.manifest, cells, verdicts, pictures, last, told, study, turns).encode())
    return page


def render(
    manifest: Mapping[str, Any],
    cells: pl.DataFrame,
    verdicts: Sequence[Verdict],
    pictures: Pictures,
    slots: Pictures,
    told: Mapping[str, Any],
    study: str,
    turns: Sequence[Boundary],
) -> str:
    """The page as text.

    slots : the pictures of its last part; told : what the script knows; study : the study file; turns : where verdicts
    turn.
    """
    style, script = _beside("page.css"), _beside("page.js")
    allowed = f"style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    shown = [_figure(figure, svg, told) for figure, svg in pictures]
    return Template(_beside("page.html")).substitute(
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        told=_as_data(told),
        title=escape(manifest["title"]),
        question=f'<p class="question">{escape(manifest["question"])}</p>' if manifest["question"] else "",
        answer=escape(sentence(cells, manifest, verdicts)),
        arrivals=f'<p class="note">{escape(clock)}</p>' if (clock := clock_text(cells, manifest)) else "",
        claims=claims_list(verdicts),
        first="".join(shown[:1]),
        figures="\n".join(shown[1:]),
        verdicts=_verdicts(verdicts) + turns_list(turns),
        cells=cell_table(cells, manifest, verdicts),
        study=escape(_cut(study)) or "(there is no study.toml in the folder)",
        provenance=_provenance(manifest, cells),
        command=f"sweep run study.toml -o again{' --keep summary' if manifest['keep'] == 'summary' else ''}",
        slots=_slots([_figure(figure, svg, told) for figure, svg in slots]),
    )


def _digest(text: str) -> str:
    """What a policy calls a script or a style by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_data(told: Mapping[str, Any]) -> str:
    """JSON that ends no script element and opens no comment, whatever is in it."""
    text = json.dumps(_spelt(told), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _spelt(told: Any) -> Any:
    """What the script knows, with the control characters of each text in it spelt out."""
    if isinstance(told, Mapping):
        return {_spelt(key): _spelt(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_spelt(value) for value in told]
    return spelt(told) if isinstance(told, str) else told


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


def _figure(figure: Figure, svg: str, told: Mapping[str, Any]) -> str:
    """A picture in the page with words for those who cannot see it, its caption and its numbers."""
    width = int(re.search(r'width="(\d+)"', svg)[1])  # type: ignore[index]
    small = ' class="small"' if width < 544 else ""
    tag = f'<svg role="img" aria-label="{escape(figure.alt)}"{small} '
    picture = re.sub(r'^<svg (.*?)class="marks" ', lambda match: tag + match[1], svg, count=1)
    return (
        f'<figure{_looked_into(figure, told)}><div class="scroll still">{picture}</div>\n'
        f"<figcaption>{escape(figure.caption)}</figcaption>\n{data_table(figure.data, figure.alt)}</figure>"
    )


def _looked_into(figure: Figure, told: Mapping[str, Any]) -> str:
    """Where a heat map lies over two axes of the grid: which ones they are, for the script."""
    if figure.tiles is None:
        return ""
    column, row, metric = figure.tiles
    axes = {name: place for place, axis in enumerate(told["axes"]) for name in axis["columns"]}
    if not {column, row} <= axes.keys() or axes[column] == axes[row]:
        return ""
    return f' class="tiles" data-x="{axes[column]}" data-y="{axes[row]}" data-metric="{escape(metric)}"'


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    """The verdicts with all that is known of them, folded away where they are many."""
    if not verdicts:
        return ""
    note = "A verdict follows from the interval, never from the estimate alone; undecided: more workloads are needed."
    table = verdict_table(verdicts)
    if len(verdicts) > UNFOLDED:
        table = f"<details><summary>All {plural(len(verdicts), 'verdict')}</summary>\n{table}</details>\n"
    return f'<section id="claims">\n<h2>Claims</h2>\n{table}<p class="note">{note}</p>\n</section>'


def _slots(shown: Sequence[str]) -> str:
    if not shown:
        return ""
    pictures = "\n".join(shown)
    return f'<section id="slots">\n<h2>Two workloads, slot by slot</h2>\n<div class="side">{pictures}</div>\n</section>'


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

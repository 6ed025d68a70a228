"""Tables of the page: verdicts, cells, and the numbers of a picture. Leaves out the page around them.

Whatever a user wrote is escaped here, where it becomes part of the page.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from sweep.report.boundary import Boundary, boundary_text
from sweep.report.claims import FAILS, HOLDS, UNDECIDED, Verdict
from sweep.report.clock import leading, load_text
from sweep.report.figures import worst_verdicts
from sweep.report.stats import axis_columns
from sweep.report.words import at, axis_value, main_cell, number, plural, verdict_estimate, with_interval

OUTCOMES = (FAILS, UNDECIDED, HOLDS)  # the worst first
MEANS = ("static_steps", "continuous_steps", "static_utilisation", "continuous_utilisation")
MOST_ROWS = 400  # of the numbers behind a picture
UNFOLDED = 6  # claims that are shown at once

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline


class Entry(NamedTuple):
    """A place in a table: how it is set, what it says, by what it is sorted, and how many columns it takes."""

    kind: str
    text: str
    value: float | None = None
    columns: int = 1


def escape(text: str) -> str:
    """The text as it can stand in the page: no markup, and control characters spelt out."""
    return html.escape(spelt(text))


def spelt(text: str) -> str:
    """The text with control characters spelt out: a terminal that shows the page's bytes would obey them."""
    return _CONTROL.sub(lambda control: repr(control[0])[1:-1], text)


def claims_list(verdicts: Sequence[Verdict]) -> str:
    """Each claim with what became of it, the worst first; where there are many, the rest folded away."""
    found: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault((verdict.text, f"{verdict.metric}: {verdict.condition}"), []).append(verdict)
    told = sorted(found.items(), key=lambda claim: min(OUTCOMES.index(verdict.verdict) for verdict in claim[1]))
    items = [_claim(text, asked, own) for (text, asked), own in told]
    shown, rest = "".join(items[:UNFOLDED]), "".join(items[UNFOLDED:])
    more = f"<details><summary>{plural(len(items) - UNFOLDED, 'more claim')}</summary><ul>{rest}</ul></details>"
    return f'<div class="claims"><ul>{shown}</ul>{more if rest else ""}</div>' if items else ""


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Every verdict, the worst first, with its estimate and the workloads to look at."""
    heads = [Entry("text", head) for head in ("verdict", "claim", "where")]
    heads += [Entry("number", "estimate (95 % interval)"), Entry("text", "worst replicates")]
    rows = [
        [
            Entry(f"verdict {verdict.verdict}", verdict.verdict),
            Entry("text", f"{verdict.text} ({verdict.metric}: {verdict.condition})"),
            Entry("short", at(verdict.axes) or "the one cell"),
            Entry("number", verdict_estimate(verdict), verdict.estimate),
            Entry("short", ", ".join(map(str, verdict.worst_replicates)) or "none"),
        ]
        for verdict in sorted(verdicts, key=lambda verdict: OUTCOMES.index(verdict.verdict))
    ]
    return table(heads, rows, "Every claim in every cell that it speaks of")


def turns_list(turns: Sequence[Boundary]) -> str:
    """Where along an axis the verdict on a claim turns; folded away where there are many."""
    if not turns:
        return ""
    items = "".join(f"<li>{escape(boundary_text(turn))}</li>\n" for turn in turns[:MOST_ROWS])
    note = "Where a verdict turns, read off straight lines between neighbouring cells, with the 95 % interval of that:"
    told = f'<p class="note">{note}</p>\n<ul>\n{items}</ul>\n'
    return told if len(turns) <= UNFOLDED else f"<details><summary>Where verdicts turn</summary>\n{told}</details>\n"


def cell_table(cells: pl.DataFrame, manifest: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """Every cell: those without a result first, then those where a claim fails, then the others."""
    columns = axis_columns(manifest)
    known = ["cell", *columns, *([] if "slots" in columns else ["slots"]), "replicates"]
    leads = leading(manifest)
    found = [*(name if name == "static_load" else f"{name}_mean (95 % interval)" for name in leads)]
    found += ["multiple_mean (95 % interval)", *(f"{metric}_mean" for metric in MEANS)]
    found += ["multiple_p50", "multiple_p05 to p95", "multiple_of_totals", "multiple_adjusted", "limit_multiple"]
    worst, main = worst_verdicts(verdicts), main_cell(cells, manifest)
    ordered = sorted(cells.iter_rows(named=True), key=lambda row: (row["replicates"] > 0, _rank(worst, row["cell"])))
    rows, marks = [], []
    for row in ordered:
        own = [Entry("number", axis_value(row[name]), _sortable(row[name])) for name in known]
        said = worst.get(row["cell"], "-") if row["replicates"] else "no result"
        claimed = [Entry(f"verdict {said}" if said in OUTCOMES else "short", said, _rank(worst, row["cell"]))]
        rows.append([own[0]._replace(kind="number cell"), *claimed, *own[1:], *_results(row, leads, len(found))])
        marks.append("main" if row["cell"] == main else "")
    heads = [
        Entry("number", "cell"),
        Entry("text", "claims"),
        *(Entry("number", head) for head in (*known[1:], *found)),
    ]
    return table(heads, rows, "Every cell of the grid", marks)


def data_table(frame: pl.DataFrame, caption: str) -> str:
    """The numbers of a picture, folded away; nothing where it has none. The first ones of very many."""
    if frame.is_empty():
        return ""
    heads = [Entry("number" if dtype.is_numeric() else "text", name) for name, dtype in frame.schema.items()]
    rows = [
        [
            Entry(head.kind, "-" if value is None else axis_value(value), _sortable(value))
            for head, value in zip(heads, row, strict=True)
        ]
        for row in frame.head(MOST_ROWS).iter_rows()
    ]
    cut = f", the first {MOST_ROWS:,} of {len(frame):,} rows" if len(frame) > MOST_ROWS else ""
    return f'<details class="data"><summary>The numbers{cut}</summary>{table(heads, rows, caption)}</details>'


def table(heads: Sequence[Entry], rows: Iterable[Iterable[Entry]], caption: str, marks: Sequence[str] = ()) -> str:
    """An HTML table that scrolls on its own; marks : a class for each row, or none."""
    head = "".join(
        f'<th class="{entry.kind}" scope="col">{escape(entry.text).replace("_", "_<wbr>")}</th>' for entry in heads
    )
    body = []
    for index, row in enumerate(rows):
        mark = f' class="{marks[index]}"' if marks and marks[index] else ""
        body.append(f"<tr{mark}>{''.join(map(_entry, row))}</tr>\n")
    whole = f'<table class="rows"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
    return f'<div class="scroll" tabindex="0">{whole}\n<tbody>\n{"".join(body)}</tbody></table></div>\n'


def _entry(entry: Entry) -> str:
    span = f' colspan="{entry.columns}"' if entry.columns > 1 else ""
    value = "" if entry.value is None else f' data-value="{entry.value:.9g}"'
    return f'<td class="{entry.kind}"{span}{value}>{escape(entry.text)}</td>'


def _claim(text: str, asked: str, verdicts: Sequence[Verdict]) -> str:
    """A claim, and what became of it in its one cell or, counted, in many."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    worst = next(outcome for outcome in OUTCOMES if counts[outcome])
    if len(verdicts) == 1:
        where = at(verdicts[0].axes)
        said = f"{verdict_estimate(verdicts[0])}{f' at {where}' if where else ''}"
    elif len(counts) == 1:
        said = f"{worst} in each of {len(verdicts)} cells"
    else:
        said = ", ".join(f"{outcome} in {counts[outcome]}" for outcome in OUTCOMES if counts[outcome])
        said += f" of {len(verdicts)} cells"
    words = f"{escape(text)} <small>{escape(f'{asked}; {said}')}</small>"
    return f'<li class="claim"><b class="badge {worst}">{worst}</b> <span>{words}</span></li>'


def _results(row: Mapping[str, Any], leads: Sequence[str], columns: int) -> list[Entry]:
    """What was found in a cell, or in the place of it all why nothing was."""
    if not row["replicates"]:
        return [Entry("text", f"no result: {row['error'] or 'not simulated yet'}", columns=columns)]
    spread = f"{_number(row['multiple_p05'])} to {_number(row['multiple_p95'])}"
    return [
        *(
            Entry("number", load_text(row), row.get(name)) if name == "static_load" else _estimate(row, name)
            for name in leads
        ),
        _estimate(row, "multiple"),
        *(_figure(row[f"{metric}_mean"]) for metric in MEANS),
        _figure(row["multiple_p50"]),
        Entry("number", spread, row["multiple_p05"]),
        _figure(row["multiple_of_totals"]),
        Entry("number", _adjusted(row), row["multiple_adjusted"]),
        _figure(row["limit_multiple"]),
    ]


def _estimate(row: Mapping[str, Any], metric: str) -> Entry:
    mean, low, high = (row[f"{metric}_{name}"] for name in ("mean", "ci_low", "ci_high"))
    return Entry("number", with_interval(mean, low, high), mean)


def _adjusted(row: Mapping[str, Any]) -> str:
    """The adjusted mean and how many times the workloads it is worth, where that pays."""
    mean, se = row["multiple_adjusted"], row["multiple_adjusted_se"]
    if mean is None:
        return "-"
    gain = f", worth {number(row['multiple_variance_reduction'])} times the workloads" if se else ""
    return f"{with_interval(mean, mean - 1.96 * se, mean + 1.96 * se)}{gain}"


def _rank(worst: Mapping[int, str], cell: int) -> int:
    """The place of a cell in the order of the table: failing, undecided, holding, not spoken of."""
    return OUTCOMES.index(worst[cell]) if cell in worst else len(OUTCOMES)


def _sortable(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _figure(value: float | None) -> Entry:
    return Entry("number", _number(value), value)


def _number(value: float | None) -> str:
    return "undefined" if value is None else number(value)

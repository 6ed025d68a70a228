"""A page of studies: of each its picture, the sentence that answers it and the verdicts on its claims.

Every study is run afresh in a temporary folder, so neither old rows nor a folder of the user's has a part in the page.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from sweep import api
from sweep.errors import InputError
from sweep.report.answer import sentence
from sweep.report.claims import FAILS, HOLDS, UNDECIDED, Verdict
from sweep.report.words import at, plural, verdict_estimate
from sweep.results import Store
from sweep.runner import Watch
from sweep.study import Study, read_study
from sweep.writing import write_whole

PAGE, PICTURES = "README.md", "gallery"
OUTCOMES = (HOLDS, FAILS, UNDECIDED)
HEAD = """# Gallery of studies

Each study with its picture, the sentence that answers its question and the verdicts on its claims. Some claims are
beliefs that fail: a verdict follows from the interval of what was simulated, never from the estimate alone.

Made by `sweep gallery {studies}`, which runs every study afresh; the same studies give the same numbers on any machine.
"""


class Entry(NamedTuple):
    """What the page says of one study."""

    name: str
    path: str
    title: str
    question: str
    answer: str
    finding: str  # the title of its picture
    picture: str  # the whole picture in words
    caption: str
    drawn_from: str
    verdicts: tuple[Verdict, ...]


def make(
    paths: Sequence[Path],
    folder: Path,
    *,
    replicates: int | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
    start: Callable[[Path], None] | None = None,
) -> Path:
    """The page, README.md in the folder, with a picture of each study beside it in gallery/.

    replicates : workloads a cell, instead of each study's. start : told of each study before it runs.
    Raises StudyError, and InputError for two studies of one name.
    """
    names = [path.stem for path in paths]
    for path, name in zip(paths, names, strict=True):
        if names.count(name) > 1:
            raise InputError(f"{path}: two of the studies are called {name}, and would share a picture; rename one")
    studies = [read_study(path, replicates=replicates) for path in paths]
    entries = []
    for path, study in zip(paths, studies, strict=True):
        if start is not None:
            start(path)
        entries.append(_entry(path, study, folder / PICTURES, jobs, watch))
    write_whole(folder / PAGE, page(entries).encode())
    return folder / PAGE


def page(entries: Sequence[Entry]) -> str:
    """The page as Markdown: a table of questions and answers, then a part for each study."""
    head = HEAD.format(studies=_as_given([entry.path for entry in entries]))
    return "\n".join([head, answers(entries), *map(_part, entries)])


def answers(entries: Sequence[Entry]) -> str:
    """A Markdown table with the question and the finding of each study."""
    return _table(
        ("study", "question", "finding"),
        [(f"[{e.name}](#{_anchor(e.title)})", _escaped(e.question), _escaped(e.finding)) for e in entries],
    )


def _entry(path: Path, study: Study, pictures: Path, jobs: int | None, watch: Watch | None) -> Entry:
    """Runs a study and draws its first chart."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        results = api.run(study, folder, jobs=jobs, report=False, watch=watch)
        return _told(path, results, pictures)


def _told(path: Path, results: api.Results, pictures: Path) -> Entry:
    """What a study gave; its picture is drawn."""
    from sweep.report.charts import save  # altair takes most of a second to import
    from sweep.report.figures import figures

    manifest, cells, verdicts = results.manifest, results.cells, results.check()
    figure = figures(Store.open(results.folder), cells, verdicts)[0]
    save(figure.chart, pictures, path.stem)
    counts = {point["replicates"] for point in manifest["points"]}
    workloads = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
    noun = "workload" if counts == {1} else "workloads"
    return Entry(
        name=path.stem,
        path=path.as_posix(),
        title=manifest["title"],
        question=manifest["question"],
        answer=sentence(cells, manifest, verdicts),
        finding=" ".join(figure.chart.to_dict()["title"]["text"]),
        picture=figure.alt,
        caption=figure.caption,
        drawn_from=f"{plural(cells.height, 'cell')}, {workloads} {noun} each, seed {manifest['seed']}",
        verdicts=tuple(verdicts),
    )


def _as_given(paths: Sequence[str]) -> str:
    """The paths as on a command line; all the studies of one folder by a pattern."""
    folder = Path(paths[0]).parent
    whole = sorted(path.as_posix() for path in folder.glob("*.toml")) == sorted(paths)
    return (folder / "*.toml").as_posix() if whole else " ".join(paths)


def _part(entry: Entry) -> str:
    claims = groupby(entry.verdicts, lambda verdict: (verdict.text, verdict.metric, verdict.condition))
    return "\n".join(
        [
            f"## {_escaped(entry.title)}",
            "",
            f"`{entry.path}`: {_escaped(entry.question)}",
            "",
            _escaped(entry.answer),
            "",
            f"![{_escaped(entry.picture)}]({PICTURES}/{entry.name}.svg)",
            "",
            _escaped(entry.caption),
            "",
            _table(("verdict", "claim", "where", "found"), [_claim(list(verdicts)) for _, verdicts in claims]),
            f"{entry.drawn_from[0].upper()}{entry.drawn_from[1:]}: `sweep run {entry.path}`",
            "",
        ]
    )


def _claim(verdicts: Sequence[Verdict]) -> list[str]:
    """What became of one claim, in its one cell or counted over many."""
    first = verdicts[0]
    asked = f"{first.text} ({first.metric}: {first.condition})"
    if len(verdicts) == 1:
        return [_escaped(text) for text in (first.verdict, asked, at(first.axes) or "-", verdict_estimate(first))]
    counts = Counter(verdict.verdict for verdict in verdicts)
    outcome = ", ".join(f"{name} in {counts[name]}" for name in OUTCOMES if counts[name])
    if len(counts) == 1:
        outcome = first.verdict
    known = sorted((v for v in verdicts if v.estimate is not None), key=lambda verdict: verdict.estimate or 0.0)
    ends = [f"{verdict_estimate(end)} at {at(end.axes)}" for end in (known[0], known[-1])] if known else []
    where = f"each of {len(verdicts)} cells" if len(counts) == 1 else f"{len(verdicts)} cells"
    return [_escaped(text) for text in (outcome, asked, where, " to ".join(ends) or "no result")]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of entries that are Markdown already."""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head))]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _escaped(text: str) -> str:
    """The text on one line, with what Markdown would read as its own marks taken literally."""
    return re.sub(r"([\\|`*\[\]]|<(?=[A-Za-z/!]))", r"\\\1", " ".join(text.split()))


def _anchor(title: str) -> str:
    """Where a heading is found on its page: lower case, spaces as dashes, punctuation left out."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()))

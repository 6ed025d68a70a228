import base64
import hashlib
import json
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from folders import claim, from_multiples, write_folder

from sweep.report.answer import sentence
from sweep.report.claims import check
from sweep.report.figures import figures
from sweep.report.markup import claims_list, data_table
from sweep.report.page import write_report
from sweep.report.summary import summarise
from sweep.report.terminal import cells_text, summary_text
from sweep.report.wishes import fitting_charts, wished
from sweep.report.words import main_cell, number, percent, precision_text, share_with_interval, with_interval
from sweep.results import Store

MULTIPLES = np.random.default_rng(5).normal(4.7, 0.4, 1_000).round(4)
ATTACK = "</script><script>alert(1)</script>"
BELL, SPELT = "a\x1b[31m\x07\x85\x7fz", r"a\x1b[31m\x07\x85\x7fz"
FIVE = claim(at_least=5, of={"share": 0.95}, where={"slots": 16}) | {"text": "continuous batching is at least 5x"}


class Tags(HTMLParser):
    """Collects the elements of a page and the attributes by which one refers to anything."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [
            str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")
        ]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def five(folder: Path, **changes: Any) -> Store:
    """Five cells of slots, the third with a claim that fails."""
    steps = [from_multiples(MULTIPLES + shift) for shift in (-2, -1, 0, 0.1, -1)]
    return write_folder(folder, steps, **({"claims": [FIVE], "limits": [2.8, 4.4, 6.3, 7.8, 8.5]} | changes))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the five cells."""
    return write_report(five(tmp_path_factory.mktemp("five"))).read_text(encoding="utf-8")


def answer(store: Store) -> str:
    return sentence(summarise(store), store.manifest, check(store))


def test_the_sentence_gives_mean_share_interval_and_size(tmp_path: Path) -> None:
    store = five(tmp_path)
    (verdict,), row = check(store), summarise(store).row(2, named=True)
    said = answer(store)
    assert said.startswith(f"At slots = 16, static batching takes {row['multiple_mean']:.2f} times the steps")
    assert f"mean multiple of 1,000 workloads, 95 % interval {row['multiple_ci_low']:.2f} to" in said
    assert f"{100 * verdict.estimate:.1f} % ({100 * verdict.ci_low:.1f} to" in said
    assert said.endswith("of workloads reach 5.")
    assert said.isascii()


def test_the_sentence_never_gives_more_than_there_is(tmp_path: Path) -> None:
    assert answer(write_folder(tmp_path / "a", ["nothing fits"])) == "At slots = 4, there is no answer: nothing fits."
    assert "without an interval" in answer(write_folder(tmp_path / "b", [([9], [3])]))
    assert "exactly 1 times" in answer(write_folder(tmp_path / "c", [([9, 9], [9, 9])], axes={}))
    assert "no multiple was simulated" in answer(write_folder(tmp_path / "d", [([], [])]))


def test_the_main_cell_is_the_first_that_a_claim_names_else_the_middle_of_those_that_ran(tmp_path: Path) -> None:
    steps = [([9, 9], [3, 3])] * 3 + ["nothing fits"]
    plain, named = write_folder(tmp_path / "a", steps), write_folder(tmp_path / "b", steps, claims=[FIVE])
    assert main_cell(summarise(plain), plain.manifest) == 1
    assert main_cell(summarise(named), named.manifest) == 2


def test_the_page_says_question_answer_verdicts_cells_study_and_provenance(tmp_path: Path) -> None:
    store = five(tmp_path, source='title = "x" # my own comment\n')
    page = write_report(store).read_text(encoding="utf-8")
    text = " ".join(Tags(page).text)
    for part in (
        "How many times fewer steps",
        answer(store),
        "fails",
        "continuous batching is at least 5x",
        "my own comment",
        "sweep run study.toml",
        "numba 0.61",
        "37",
    ):
        assert part in text
    assert page.count("<figure") == 2


def test_the_page_tells_in_order_answer_verdicts_picture_cells_study_and_the_command(page: str) -> None:
    parts = ('class="answer"', 'class="claims"', "<svg", "All cells", "The study", "provenance", "sweep run study.toml")
    places = [page.index(part) for part in parts if part != "provenance"]
    assert places == sorted(places)


def test_mean_multiple_and_multiple_of_totals_stand_apart_by_name(tmp_path: Path) -> None:
    page = write_report(write_folder(tmp_path, [([90, 400], [30, 80])])).read_text(encoding="utf-8")
    cells = page[page.index("All cells") :]
    assert "multiple_<wbr>mean" in cells
    assert "multiple_<wbr>of_<wbr>totals" in cells
    assert ">4 (-9 to 17)<" in cells
    assert ">4.45<" in cells


def test_what_a_user_wrote_is_text_and_no_markup(tmp_path: Path) -> None:
    steps = [([9, 12], [3, 3]), ([9, 12], [3, 3]), ATTACK]
    store = write_folder(
        tmp_path,
        steps,
        axes={ATTACK: ["a", ATTACK, "c"]},
        claims=[claim(at_least=5) | {"text": ATTACK}],
        title=ATTACK,
        question=ATTACK,
        source=f"# {ATTACK}",
        versions={"sweep": ATTACK},
    )
    page = write_report(store).read_text(encoding="utf-8")
    assert Tags(page).tags.count("script") == page.count("<script") == page.count("</script") == 2  # data and code
    assert "".join(Tags(page).text).count("alert(1)") > 6
    assert told(page)["cells"][2]["reason"] == ATTACK


def test_no_control_character_of_a_user_reaches_the_page(tmp_path: Path) -> None:
    steps = [([9, 12], [3, 3]), ([9, 12], [3, 3]), BELL]
    store = write_folder(
        tmp_path,
        steps,
        axes={"kind": ["a", BELL, "c"]},
        claims=[claim(at_least=5) | {"text": BELL}],
        title=BELL,
        question=BELL,
        source=f"# {BELL}\n\ttab",
        versions={"sweep": BELL},
    )
    page = write_report(store).read_text(encoding="utf-8")
    assert {c for c in page if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    assert page.count(SPELT) > 6
    assert "\ttab" in page
    assert told(page)["cells"][2]["reason"] == SPELT


def test_the_policy_names_the_one_style_and_the_one_script_of_the_page_and_allows_nothing_else(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]  # type: ignore[index]
    code = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,), (css,) = (
        [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts] for texts in (code, style)
    )
    allowed = f"style-src 'sha256-{css}'; script-src 'sha256-{script}'"
    assert policy == f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    assert not re.search(r"\beval\b|innerHTML|new Function|fetch\(|import\(", code[0])
    assert not re.search(r"<[^>]+ (style|on\w+)=", page)


def told(page: str) -> Any:
    """What the script in a page knows."""
    return json.loads(re.search(r'id="told">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]


def test_the_script_knows_of_each_cell_its_place_its_figures_and_a_histogram_of_all_its_workloads(page: str) -> None:
    known = told(page)
    assert known["main"] == 2
    assert known["axes"][0]["values"] == ["4", "8", "16", "32", "64"]
    for place, cell in enumerate(known["cells"]):
        own = cell["metrics"]["multiple"]
        assert cell["at"] == [place]
        assert sum(own["counts"]) == 1_000
        assert len(own["edges"]) == len(own["counts"]) + 1
        assert own["values"][2] == pytest.approx(own["values"][0] - own["values"][1], abs=1e-4)
    assert known["cells"][2]["verdicts"][0]["is"] == "fails"
    assert known["cells"][2]["metrics"]["multiple"]["bounds"] == [5, None]


def test_cells_without_a_result_come_first_then_those_where_a_claim_fails(tmp_path: Path) -> None:
    steps = [([9, 9], [9, 9]), ([9, 9], [3, 3]), "nothing fits", ([9, 9], [9, 9])]
    page = write_report(write_folder(tmp_path, steps, claims=[claim(at_least=2)])).read_text(encoding="utf-8")
    assert re.findall(r'<td class="number cell" data-value="(\d)"', page) == ["2", "0", "3", "1"]


def test_every_picture_has_its_numbers_and_very_many_are_cut(page: str) -> None:
    assert page.count('<details class="data">') == page.count("<figure") == 2
    lines = page[page.index("<details", page.index("<svg", page.index("<figure") + 900)) :]
    assert "multiple_<wbr>ci_<wbr>low" in lines
    many = data_table(pl.DataFrame({"<b>": range(1_000)}), "many")
    assert many.count("<tr>") == 401
    assert "the first 400 of 1,000 rows" in many
    assert "&lt;b&gt;" in many


def test_charts_of_every_kind_come_with_their_numbers(tmp_path: Path) -> None:
    kinds = ({"kind": "heatmap"}, {"kind": "lines", "x": "context"}, {"kind": "memory"}, {"kind": "distribution"})
    charts = [*kinds, {"kind": "distribution", "y": "slots"}]
    axes = {"context": [512, 1_024], "slots": [4, 8]}
    store = write_folder(tmp_path, [([9, 12], [3, 3])] * 4, axes=axes, charts=[{"x": "slots"} | one for one in charts])
    store.manifest["charts"][0]["y"] = "context"
    store.manifest["charts"][2]["x"] = "context"
    del store.manifest["charts"][3]["x"]
    drawn = figures(store, summarise(store), [])
    assert len(drawn) == 5
    assert not any(figure.data.is_empty() for figure in drawn)


def test_a_page_of_200_cells_stays_below_3_megabytes(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(4, 1, 501)
    steps = [from_multiples(values + 0.01 * cell) for cell in range(200)]
    axes = {"output_cv": [0.1 * i for i in range(1, 21)], "slots": [4 * i for i in range(1, 11)]}
    store = write_folder(tmp_path, steps, axes=axes, claims=[claim(at_least=3), claim(at_least=5)])
    assert write_report(store).stat().st_size < 1_500_000


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    assert all(reference.startswith("#") for reference in Tags(page).references)
    assert set(re.findall(r"https?://[^\"<\s]*", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_every_picture_has_words_for_those_who_cannot_see_it(page: str) -> None:
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert len(labels) == page.count("<svg") == 2
    assert all(label.startswith(("Histogram: ", "Line chart: ")) for label in labels)


def test_pictures_in_one_page_do_not_share_ids(page: str) -> None:
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)


def test_captions_say_what_is_estimated_from_how_many_and_what_is_left_out(tmp_path: Path) -> None:
    store = five(tmp_path)
    found = figures(store, summarise(store), check(store))
    for figure in found:
        assert "1,000" in figure.caption
        assert "interval" in figure.caption
        assert "not modelled" in figure.caption


def test_the_charts_follow_from_the_shape_of_the_grid(tmp_path: Path) -> None:
    steps = [([9, 12], [3, 3])]
    shapes: dict[tuple[str, ...], dict[str, Any]] = {
        ("distribution",): {},
        ("lines", "distribution"): {"slots": [4, 8]},
        ("heatmap", "lines", "distribution"): {"slots": [4, 8], "output_cv": [1.0, 2.0]},
    }
    for kinds, axes in shapes.items():
        store = write_folder(tmp_path / kinds[0], steps * 2 ** len(axes), axes=axes)
        assert tuple(chart["kind"] for chart in fitting_charts(store.manifest)) == kinds
        assert [figure.name for figure in figures(store, summarise(store), [])] == list(kinds)


def test_a_study_that_asks_about_one_cell_is_answered_with_its_distribution_first(tmp_path: Path) -> None:
    assert [chart["kind"] for chart in fitting_charts(five(tmp_path).manifest)] == ["distribution", "lines"]


def test_the_charts_of_the_study_come_instead(tmp_path: Path) -> None:
    asked = [
        {"kind": "lines", "x": None, "y": None, "color": None, "metric": "static_utilisation"},
        {"kind": "lines", "x": "slots", "y": None, "color": None, "metric": None},
        {"kind": "heatmap", "x": None, "y": None, "color": None, "metric": None},  # of one axis: cannot be drawn
        {"kind": "lines", "x": "no such column"},
        {"kind": "pie"},
    ]
    store = five(tmp_path, charts=asked)
    assert wished(store.manifest) == [
        {"kind": "lines", "x": "slots", "metric": "static_utilisation"},
        {"kind": "lines", "x": "slots", "metric": "multiple"},
    ]
    assert [figure.name for figure in figures(store, summarise(store), [])] == ["lines", "lines-2"]


def test_an_axis_that_a_study_moves_makes_room_for_the_other_one(tmp_path: Path) -> None:
    axes = {"slots": [4, 8], "output_cv": [1.0, 2.0]}
    asked = [{"kind": "lines", "x": "output_cv"}, {"kind": "heatmap", "y": "slots"}]
    store = write_folder(tmp_path, [([9, 12], [3, 3])] * 4, axes=axes, charts=asked)
    assert wished(store.manifest) == [
        {"kind": "lines", "x": "output_cv", "color": "slots", "metric": "multiple"},
        {"kind": "heatmap", "x": "output_cv", "y": "slots", "metric": "multiple"},
    ]


def test_a_distribution_along_an_axis_has_a_row_for_each_of_its_values(tmp_path: Path) -> None:
    store = five(tmp_path, charts=[{"kind": "distribution", "y": "slots"}])
    (figure,) = figures(store, summarise(store), check(store))
    assert "at slots = 32 of workloads reach 5x" in figure.alt


def test_a_chart_shows_the_main_cells_values_of_the_axes_it_has_no_room_for(tmp_path: Path) -> None:
    axes = {"requests": [50, 200], "output_cv": [1.0, 2.0], "slots": [4, 8]}
    claims = [claim(at_least=1, where={"requests": 200})]
    store = write_folder(tmp_path, [([9, 12], [3, 3])] * 8, axes=axes, claims=claims)
    wish = [{"kind": "heatmap", "x": "slots", "y": "output_cv", "metric": "multiple"}]
    store.manifest["charts"] = wish
    (figure,) = figures(store, summarise(store), check(store))
    assert "requests = 200" in figure.alt


def test_pictures_of_an_earlier_report_go_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    for name in ("heatmap-2.svg", "mine.svg"):
        (tmp_path / "charts" / name).touch()
    write_report(five(tmp_path))
    assert {path.name for path in (tmp_path / "charts").iterdir()} == {
        *(f"{kind}.{ending}" for kind in ("distribution", "lines") for ending in ("svg", "png")),
        "mine.svg",
    }


def test_the_report_made_again_has_the_same_bytes(tmp_path: Path) -> None:
    store = five(tmp_path)
    names = ("report.html", "cells.parquet", "charts/lines.svg")
    found = []
    for _ in range(2):
        write_report(Store.open(store.folder))
        found.append([(tmp_path / name).read_bytes() for name in names])
    assert found[0] == found[1]
    assert pl.read_parquet(tmp_path / "cells.parquet").equals(summarise(store))


def test_hundreds_of_verdicts_are_counted_first_and_folded_away(tmp_path: Path) -> None:
    steps = [([9, 12], [3, 3])] * 12
    page = write_report(write_folder(tmp_path, steps, claims=[claim(at_least=9)])).read_text(encoding="utf-8")
    assert page.index("each of 12 cells") < page.index("All 12 verdicts") < page.index("worst replicates")


def test_claims_are_told_the_failing_ones_first_and_more_than_six_are_folded_away(tmp_path: Path) -> None:
    claims = [claim(at_least=bound) | {"text": f"at least {bound}"} for bound in (1, 2, 1.5, 0.5, 9, 3, 8)]
    told = claims_list(check(write_folder(tmp_path, [([9, 9], [3, 3])] * 2, claims=claims)))
    assert re.findall(r"<span>(at least \S+)", told)[:3] == ["at least 9", "at least 8", "at least 1"]
    assert told.index("1 more claim") < told.index("at least 3")
    assert "fails in each of 2 cells" in told
    assert claims_list([]) == ""


def test_a_folder_where_nothing_ran_has_a_page_that_says_so(tmp_path: Path) -> None:
    store = write_folder(tmp_path, ["nothing fits"] * 4, axes={"slots": [4, 8], "output_cv": [1.0, 2.0]}, claims=[FIVE])
    page = write_report(store).read_text(encoding="utf-8")
    assert "there is no answer: nothing fits" in page
    assert "undecided" in page


def test_a_report_needs_neither_the_model_nor_numba() -> None:
    program = "import sweep.report.page, sys; print([n for n in sys.modules if n.startswith(('numba', 'sweep.model'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.6782, "4.68"),
        (0.2397, "0.240"),
        (32768.0, "32,768"),
        (5.0, "5"),
        (0.5, "0.5"),
        (15.83, "15.8"),
        (0.0, "0"),
        (-1.5, "-1.5"),
    ],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_decimals_follow_the_width_of_the_interval() -> None:
    assert with_interval(4.67745, 4.6684, 4.6866) == "4.677 (4.668 to 4.687)"
    assert with_interval(4.67745, 4.2, 5.1) == "4.7 (4.2 to 5.1)"
    assert with_interval(1.0, 1.0, 1.0) == "1 (1 to 1)"
    assert with_interval(2.0, -0.3, 4.3) == "2 (0 to 4)"
    assert with_interval(3.0, None, None) == "3"
    assert share_with_interval(1.0, 0.9996, 1.0) == "100 % (99.96 to 100 %)"


def test_a_share_is_not_rounded_to_all_or_nothing() -> None:
    assert [percent(share) for share in (0, 0.0002, 0.2397, 0.99996, 1)] == [
        "0 %",
        "0.02 %",
        "24 %",
        "99.99 %",
        "100 %",
    ]


def test_the_rule_of_precision_its_rounds_and_whether_it_was_met_are_in_the_report(tmp_path: Path) -> None:
    rule = {"metric": "multiple", "half_width": 0.1, "confidence": 0.95}
    rule |= {"min_replicates": 512, "max_replicates": 1_024}
    for half_width, says in (
        (0.1, "that was met everywhere"),
        ("0.1 %", "in 1 cell it was not met, at worst with +- 0.0"),
    ):
        store = write_folder(
            tmp_path / str(half_width), [from_multiples(MULTIPLES)], precision=rule | {"half_width": half_width}
        )
        store.manifest["points"][0]["rounds"] = [512, 1_024]
        cells = summarise(store)
        told = precision_text(cells, store.manifest)
        assert f"in rounds (512, 1,024) until the mean of multiple was known to +- {half_width}" in told
        assert says in told
        assert told in summary_text(cells, store.manifest, [])
        page = write_report(store).read_text(encoding="utf-8")
        assert "Workloads were added in rounds" in page
    assert precision_text(cells, store.manifest | {"precision": None}) == ""


def test_where_a_verdict_turns_is_on_the_page(tmp_path: Path) -> None:
    page = write_report(five(tmp_path)).read_text(encoding="utf-8")
    assert "in 95 % of workloads" in page
    assert "Where a verdict turns" not in page
    page = write_report(five(tmp_path / "b", claims=[claim(at_least=4)])).read_text(encoding="utf-8")
    assert "<li>multiple mean &gt;= 4 above slots = " in page
    assert "Where a verdict turns" in page


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "such intervals cover in 92 % of studies or more, not in 95 %"),
        ({"min_replicates": 2_000}, "such intervals cover in 92 % of studies or more, not in 95 %"),
        ({"min_replicates": 64}, "lowers the coverage of such intervals below the 95 % asked for"),
        ({"confidence": 0.99}, "lowers the coverage of such intervals below the 99 % asked for"),
        ({"metric": "static_steps"}, "lowers the coverage of such intervals below the 95 % asked for"),
    ],
    ids=str,
)
def test_the_coverage_of_a_stopping_rule_is_a_number_only_where_it_was_measured(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    rule = {"metric": "multiple", "half_width": 0.1, "confidence": 0.95, "min_replicates": 512, "max_replicates": 4_096}
    store = write_folder(tmp_path, [from_multiples(MULTIPLES)], precision=rule | changes)
    told = precision_text(summarise(store), store.manifest)
    assert says in told
    assert ("92 %" in told) == ("92 %" in says)


@pytest.mark.parametrize("share", [0.0, 1 / 128, 0.03, 0.1234, 0.24, 0.5, 0.95, 127 / 128, 0.9996, 1.0])
@pytest.mark.parametrize("half", [1e-5, 0.001, 0.02, 0.2])
def test_the_headline_rounds_a_share_no_coarser_than_a_title_does(share: float, half: float) -> None:
    low, high = max(0.0, share - half), min(1.0, share + half)
    headline, title = (text.split()[0] for text in (share_with_interval(share, low, high), percent(share)))
    decimals = len(title.partition(".")[2])
    assert f"{float(headline):.{decimals}f}" == title
    assert (headline in ("0", "100")) == (share in (0, 1))


def test_a_small_share_is_the_same_in_the_headline_and_in_the_title_of_its_picture(tmp_path: Path) -> None:
    store = write_folder(tmp_path, [from_multiples([2.5] + [1.5, 1.6] * 63 + [1.4])], claims=[claim(at_least=2)])
    page = write_report(store).read_text(encoding="utf-8")
    assert re.search(r"and 0\.78 % \(0\.\d+ to \d\.\d+ %\) of workloads reach 2", page)
    assert "0.78 % of workloads reach 2" in page


def test_reasons_of_cells_without_results_stand_under_the_table_and_leave_its_columns_narrow(tmp_path: Path) -> None:
    reason = "a request of 4,096 tokens needs 4 GiB, the budget is 1 GiB, and it is the only one that was asked for"
    store = write_folder(tmp_path / "one", [from_multiples([4, 5]), reason])
    table = cells_text(summarise(store), store.manifest).split("\n")
    assert max(map(len, table[:3])) < 140
    assert table[3:] == [f"cell 1 (slots = 8) has no results: {reason}"]
    store = write_folder(tmp_path / "many", [from_multiples([4, 5]), *[reason] * 12])
    table = cells_text(summarise(store), store.manifest).split("\n")
    assert [line.count(reason) for line in table[14:]] == [1] * 10 + [0]
    assert table[-1] == "... and 2 cells more without results"


def arriving(folder: Path, loads: list[float], horizon: str = "steady", **changes: Any) -> Store:
    """Cells of a load each, with the load of static batching six times that and latencies where it is below 1."""
    known = [6 * load < 1 for load in loads]
    n = 20
    latencies = {
        "static_e2e_mean_s": [np.full(n, 8.0) if ok else np.full(n, np.nan) for ok in known],
        "continuous_e2e_mean_s": [np.linspace(1.9, 2.1, n)] * len(loads),
        "e2e_ratio": [np.linspace(3.9, 4.1, n) if ok else np.full(n, np.nan) for ok in known],
    }
    steps = [from_multiples(np.linspace(1.0, 1.2, n).round(4))] * len(loads)
    given = {"axes": {"arrivals_load": loads}, "measured": latencies} | changes
    store = write_folder(folder, steps, **given)
    store.manifest["points"][0] |= {"horizon": horizon, "warm_up": 0.2}
    for cell, load in zip(store.manifest["cells"], loads, strict=True):
        cell |= {"requested_rate_per_s": load, "capacity_per_s": 1.0, "offered_load": load, "static_load": 6 * load}
    return store


def test_where_static_batching_keeps_up_the_answer_is_the_ratio_of_latencies_and_not_the_multiple(
    tmp_path: Path,
) -> None:
    said = answer(arriving(tmp_path, [0.1]))
    assert said.startswith(
        "At load = 0.1, a request takes 4.00 times as long to its last token under static batching as"
    )
    assert "mean e2e_ratio of 20 workloads, 95 % interval 3.97 to 4.03" in said
    assert "the multiple of steps, 1.1, does not show it" in said


def test_a_load_of_static_batching_of_1_or_more_is_said_first_and_then_where_it_keeps_up(tmp_path: Path) -> None:
    store = arriving(tmp_path, [0.1, 0.15, 0.5, 0.8])
    said = answer(store)
    assert said.startswith("At load = 0.5, static batching cannot keep up: its own load is 3, and its queue grows")
    assert "The mean time to the last token is 2.00 s (95 % interval" in said
    assert "Where it keeps up, at load = 0.15, a request takes 4.00 times as long to its last token" in said
    assert "times the steps" not in said
    ended = answer(arriving(tmp_path / "b", [0.5], "terminating"))
    assert "its own load is 3, and its queue grows while requests come. In all, static batching takes 1.1" in ended


def test_the_table_of_a_study_with_arrivals_begins_with_the_load_of_static_batching_and_latencies(
    tmp_path: Path,
) -> None:
    store = arriving(tmp_path, [0.1, 0.5])
    cells = summarise(store)
    head, *lines = cells_text(cells, store.manifest).split("\n")
    assert head.index("static load") < head.index("mean static_e2e_mean_s") < head.index("mean e2e_ratio")
    assert head.index("mean e2e_ratio") < head.index("mean multiple")
    assert "3 (over)" in lines[1]
    assert "(over)" not in lines[0]
    assert "mean static steps" in cells_text(summarise(five(tmp_path / "b")), five(tmp_path / "c").manifest)
    page = write_report(store).read_text(encoding="utf-8")
    assert "e2e_<wbr>ratio_<wbr>mean" in page
    assert ">3 (over)<" in page


def test_which_requests_count_is_said_before_the_first_picture(tmp_path: Path) -> None:
    page = write_report(arriving(tmp_path, [0.1, 0.5])).read_text(encoding="utf-8")
    said = "Steady: the first 20 % of the requests of each workload, by arrival, do not count."
    assert page.count(said) == 1
    assert page.index('class="answer"') < page.index(said) < page.index("<figure")


def test_a_study_with_arrivals_leads_with_a_latency_of_both_schedulers_against_load(tmp_path: Path) -> None:
    both = ["static_e2e_mean_s", "continuous_e2e_mean_s"]
    lines = {"kind": "lines", "x": "arrivals_load", "metric": both, "log": True}
    assert fitting_charts(arriving(tmp_path / "a", [0.1, 0.5]).manifest)[0] == lines
    assert fitting_charts(arriving(tmp_path / "b", [0.01, 0.5]).manifest)[0] == lines | {"log_x": True}
    store = arriving(tmp_path / "c", [0.1, 0.5], charts=[{"kind": "lines"}])
    assert wished(store.manifest) == [{"kind": "lines", "x": "arrivals_load", "metric": "multiple"}]
    del store.manifest["points"][0]["horizon"]
    assert fitting_charts(store.manifest)[0]["metric"] == "multiple"
    found = figures(arriving(tmp_path / "d", [0.1, 0.5]), summarise(arriving(tmp_path / "e", [0.1, 0.5])), [])
    assert {"static_e2e_mean_s_mean", "continuous_e2e_mean_s_mean"} <= set(found[0].data.columns)
    assert "Static batching cannot keep up at load = 0.5" in found[0].alt

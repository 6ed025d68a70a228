"""The page as a reader has it: opened from disk in a browser that has no network."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, executable
from folders import claim, from_multiples, write_folder

from sweep.report.page import write_report

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium is installed")

ATTACK = "</script><script>alert(1)</script>"
NAMED = "\"a.b[0]'s größe"
DRAWS = np.random.default_rng(5)
TILES = "[...document.querySelectorAll('.grid button')]"
ROWS = "[...document.querySelectorAll('#cells tbody tr:not(.open)')].filter(row => !row.hidden)"
SIZES = ((390, 844), (1280, 800), (1920, 1080))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    opened = Browser(str(executable()))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 24 cells on four axes, one cell without a result, with names and a title that are meant to break it."""
    axes = {NAMED: [0.0, 0.5, 1.0], "slots": [4, 8], "kind": ["x", ATTACK], "requests": [50, 200]}
    steps: list[Any] = [workloads(1.5 + 0.1 * cell) for cell in range(24)]
    steps[5] = ATTACK
    changes = {"title": ATTACK, "question": f"日本語 \u2028 {ATTACK}", "limits": [2 + 0.1 * cell for cell in range(24)]}
    claims = [claim(at_least=2.5) | {"text": ATTACK}]
    return write_report(write_folder(tmp_path_factory.mktemp("grid"), steps, axes=axes, claims=claims, **changes))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of five cells on one axis."""
    steps = [workloads(mean) for mean in (2.6, 3.8, 4.7, 4.7, 3.2)]
    claims = [claim(at_least=4), claim(at_least=1, of="every")]
    return write_report(write_folder(tmp_path_factory.mktemp("line"), steps, claims=claims))


def workloads(mean: float, n: int = 300) -> tuple[list[int], list[int]]:
    return from_multiples(DRAWS.normal(mean, 0.1 * mean, n).round(4))


def column(browser: Browser, place: int) -> list[str]:
    """What the rows of the cell table say in a column, from the top."""
    return list(browser.run(f"{ROWS}.map(row => row.cells[{place}].textContent)"))


@pytest.mark.parametrize("name", ["grid", "line"])
def test_a_page_asks_for_nothing_but_itself_and_complains_of_nothing(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(name)
    browser.open(page)
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.complaints == []
    assert browser.run("performance.getEntriesByType('resource').length") == 0


def test_what_a_user_wrote_is_text_even_as_title_axis_value_claim_and_reason(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    assert browser.run("document.title") == browser.run("document.querySelector('h1').textContent") == ATTACK
    assert browser.run("document.scripts.length") == 2
    assert browser.run(f"{TILES}[0].ariaLabel.includes('größe')")
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.run(f"document.body.innerText.split({ATTACK!r}).length") > 20
    assert browser.complaints == []


def test_every_chart_is_drawn_has_its_words_and_its_numbers(browser: Browser, line: Path) -> None:
    browser.open(line)
    size = "const b = svg.getBoundingClientRect(); return b.width > 300 && b.height > 150"
    drawn = browser.run(
        f"[...document.querySelectorAll('figure svg')].map(svg => {{ {size} && svg.ariaLabel.length > 30 }})"
    )
    assert drawn == [True, True]
    assert browser.run("document.querySelectorAll('figure details.data table').length") == 2


def test_a_click_on_a_tile_shows_the_distribution_of_that_cell(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    before = browser.run("document.querySelector('.look svg').ariaLabel")
    browser.click(f"{TILES}.find(tile => tile.ariaPressed === 'false' && !tile.classList.contains('hole'))")
    chosen = browser.run(f"{TILES}.find(tile => tile.ariaPressed === 'true').ariaLabel.split(': ')[0]")
    after = browser.run("document.querySelector('.look svg').ariaLabel")
    assert before != after
    assert chosen in after
    assert browser.run("document.querySelectorAll('.look rect.bar').length") > 5
    assert browser.run("document.querySelector('.look dl').textContent.includes('300 workloads')")


def test_a_tile_tells_its_details_under_the_mouse_and_when_it_has_the_focus(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    browser.hover(f"{TILES}[0]")
    told = browser.run("document.querySelector('.tip').innerText")
    for part in ("slots = ", "95 % interval", "the limit of a queue that never empties", "300 workloads"):
        assert part in told
    browser.press("Escape")
    browser.run("document.activeElement.blur()")
    browser.run(f"{TILES}[1].focus()")
    assert browser.run("document.querySelector('.tip') !== null")


def test_arrow_keys_move_between_tiles_and_enter_chooses(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    browser.run("document.querySelector('.grid button[tabindex=\"0\"]').focus()")
    assert browser.run("document.querySelectorAll('.grid button[tabindex=\"0\"]').length") == 1
    first = browser.run("document.activeElement.dataset.cell")
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    moved = browser.run("document.activeElement.dataset.cell")
    assert moved != first
    browser.press("Enter")
    assert browser.run("document.activeElement.ariaPressed") == "true"
    assert f"Cell {moved}:" in browser.run("document.querySelector('.look h3').textContent")


def test_menus_choose_the_values_of_a_third_and_a_fourth_axis_and_which_lie_across(
    browser: Browser, grid: Path
) -> None:
    browser.open(grid)
    menus = browser.run("[...document.querySelectorAll('.menus select')].map(menu => menu.dataset.menu)")
    assert menus[:2] == ["across", "up"]
    assert set(menus[2:]) == {"kind", "requests", "show"}
    seen = set()
    for kind, requests in itertools.product(range(2), range(2)):
        choose(browser, "kind", kind)
        choose(browser, "requests", requests)
        seen |= set(browser.run(f"{TILES}.map(tile => tile.dataset.cell)"))
    assert len(seen) == 24
    choose(browser, "across", 3)
    assert browser.run("document.querySelector('.grid tfoot').textContent") == "requests waiting at the start"


def test_the_picture_switches_between_simulation_limit_and_difference(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    shown = []
    for view in range(3):
        choose(browser, "show", view)
        tile = f"{TILES}.find(tile => !tile.classList.contains('hole'))"
        shown.append(float(browser.run(f"{tile}.textContent").replace("\u2212", "-")))
    assert shown[0] - shown[1] == pytest.approx(shown[2], abs=0.011)


def test_a_cell_without_a_result_is_hatched_and_says_why(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    for kind, requests in itertools.product(range(2), range(2)):
        choose(browser, "kind", kind)
        choose(browser, "requests", requests)
        if browser.run("document.querySelector('.grid .hole') !== null"):
            break
    browser.click("document.querySelector('.grid .hole')")
    assert browser.run("document.querySelector('.look p').textContent") == f"No result: {ATTACK}"


def choose(browser: Browser, menu: str, place: int) -> None:
    """Picks an entry of a menu of the heat map."""
    found = f"[...document.querySelectorAll('.menus select')].find(menu => menu.dataset.menu === {menu!r})"
    browser.run(f"(() => {{ const menu = {found}; menu.value = {place}; menu.dispatchEvent(new Event('change')) }})()")


def test_a_click_on_a_head_sorts_the_table_and_another_turns_it_round(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    names = browser.run("[...document.querySelectorAll('#cells th')].map(head => head.textContent)")
    place = next(place for place, name in enumerate(names) if name.startswith("multiple_mean"))
    head = f"document.querySelectorAll('#cells th')[{place}]"
    assert column(browser, 1)[0] == "no result"
    for direction, ascending in (("ascending", True), ("descending", False)):
        browser.click(f"{head}.querySelector('button')")
        assert browser.run(f"{head}.ariaSort") == direction
        means = [float(text.split(" ")[0]) for text in column(browser, place)[:-1]]
        assert means == sorted(means, reverse=not ascending)
        assert column(browser, 1)[-1] == "no result"


def test_words_and_conditions_filter_the_table(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    for text, count in (
        ("slots=8", 12),
        ("slots=8 requests<=50", 6),
        ("no result", 1),
        ("slots=8 multiple_mean>99", 0),
    ):
        browser.run(
            f"(() => {{ const field = document.querySelector('.filter input'); field.value = {text!r};"
            " field.dispatchEvent(new Event('input')) })()"
        )
        assert len(column(browser, 0)) == count
        assert browser.run("document.querySelector('.filter [role=status]').textContent") == f"{count} of 24 cells"


def test_a_click_on_a_cell_of_the_table_opens_its_distribution_and_another_closes_it(
    browser: Browser, line: Path
) -> None:
    browser.open(line)
    button = "document.querySelector('#cells td.cell button')"
    browser.click(button)
    assert browser.run("document.querySelectorAll('tr.open .look svg rect').length") > 5
    assert browser.run(f"{button}.ariaExpanded") == "true"
    browser.click(button)
    assert browser.run("document.querySelector('tr.open')") is None


def test_the_page_is_dark_where_the_system_is_and_where_the_button_says_so(browser: Browser, line: Path) -> None:
    def light() -> tuple[float, float]:
        """How light the ground and the writing in a picture are, 0 to 255."""
        ground = "getComputedStyle(document.body).backgroundColor"
        ink = "getComputedStyle(document.querySelector('svg text')).fill"
        mean = "color => color.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + part / 3, 0)"
        first, second = browser.run(f"[{ground}, {ink}].map({mean})")
        return first, second

    browser.open(line)
    browser.prefer("light")
    ground, ink = light()
    assert ground > 200 > 120 > ink
    browser.prefer("dark")
    ground, ink = light()
    assert ground < 60 < 120 < ink
    browser.click("document.querySelector('nav button')")
    ground, ink = light()
    assert ground > 200 > 120 > ink
    browser.prefer("dark", "print")
    assert light()[0] > 200  # paper stays white


def test_a_printed_page_shows_the_still_picture_and_no_button(browser: Browser, grid: Path) -> None:
    browser.open(grid)
    shown = "document.querySelector({!r}).getBoundingClientRect().height > 0"
    asked = ("figure.tiles .still", ".explore", "nav")
    assert [browser.run(shown.format(what)) for what in asked] == [False, True, True]
    browser.prefer("light", "print")
    assert [browser.run(shown.format(what)) for what in asked] == [True, False, False]


def test_without_its_script_the_page_shows_all_there_is(browser: Browser, grid: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(grid)
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
        assert browser.run("document.querySelector('figure.tiles .still svg').getBoundingClientRect().height") > 100
        assert len(column(browser, 0)) == 24
        assert browser.run("document.querySelector('nav button')") is None
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["grid", "line"])
def test_nothing_is_wider_than_the_screen(
    browser: Browser, name: str, size: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), *size)
    assert browser.run("document.documentElement.scrollWidth") <= size[0]


def test_question_answer_verdicts_and_a_picture_are_on_the_first_screen(browser: Browser, line: Path) -> None:
    browser.open(line, 1280, 800)
    for part in (".question", ".answer", ".claims li", "figure svg"):
        box = browser.run(f"(b => [b.top, b.bottom])(document.querySelector({part!r}).getBoundingClientRect())")
        assert 0 <= box[0] < box[1] <= 800


def test_everything_that_can_be_clicked_can_be_reached_by_key(browser: Browser, line: Path) -> None:
    browser.open(line)
    heads = browser.run("document.querySelectorAll('table.rows th').length")
    assert browser.run("document.querySelectorAll('table.rows th > button').length") == heads
    browser.run("document.querySelector('#cells th button').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('#cells th').ariaSort") == "ascending"


def test_one_cell_alone_and_equal_workloads_are_shown(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_report(write_folder(tmp_path, [([9] * 5, [3] * 5)], axes={})))
    assert browser.complaints == []
    browser.click("document.querySelector('#cells td.cell button')")
    assert browser.run("document.querySelectorAll('tr.open rect').length") == 1


def test_200_cells_of_5001_workloads_are_drawn_and_looked_into(browser: Browser, tmp_path: Path) -> None:
    axes = {"output_cv": [0.1 * i for i in range(1, 21)], "slots": [4 * i for i in range(1, 11)]}
    steps = [workloads(2 + 0.01 * cell, 5_001) for cell in range(200)]
    browser.open(write_report(write_folder(tmp_path, steps, axes=axes, claims=[claim(at_least=3)])))
    assert browser.run(f"{TILES}.length") == 200
    browser.click(f"{TILES}[0]")
    assert "5,001 workloads" in browser.run("document.querySelector('.look').innerText")
    assert browser.run(
        "(b => b.top >= 0 && b.top < innerHeight)(document.querySelector('.look').getBoundingClientRect())"
    )
    assert browser.complaints == []


def test_a_point_of_a_line_and_a_bar_of_a_histogram_tell_what_they_are_under_the_mouse(
    browser: Browser, line: Path
) -> None:
    browser.open(line)
    marks = "[...document.querySelectorAll('figure .still svg path[aria-label]')]"
    tip = "document.querySelector('.tip')"
    seen = set()
    for start in ("slots = ", ""):
        mark = f"{marks}.find(mark => /^{start or '[0-9.]+ to '}/.test(mark.getAttribute('aria-label')))"
        for _ in range(2):  # the first time the page may scroll, which hides the tip
            browser.hover(mark)
        told = browser.run(f"[...{tip}.children].map(line => line.textContent).join('; ')")
        assert told == browser.run(f"{mark}.getAttribute('aria-label')")
        assert browser.run(f"{mark}.classList.contains('near')")
        seen.add(told.split(" ")[0])
    assert len(seen) == 2
    browser.hover("document.querySelector('h1')")
    assert browser.run(tip) is None
    assert browser.run("document.querySelector('.near')") is None
    assert browser.complaints == []

"""The pages beside the code: reached from the README, no link leads nowhere, and what they show can be read."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sweep.study import parse_study

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """Where the links and pictures of a page lead, outside of code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [first or second for first, second in LINK.findall(text)]


def anchors(page: Path) -> set[str]:
    """The names by which headings of a page are linked to."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", head.lower())) for head in heads}


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in links(ROOT / "README.md")}
    assert {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_picture_of_twelve_requests_is_what_the_command_beside_it_prints() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    command, printed = re.search(r"```sh\nsweep (replay .+?)\n```\n\n```text\n(.*?)```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    done = subprocess.run([sys.executable, "-m", "sweep", *command.split()], capture_output=True, text=True, check=True)
    assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in printed.splitlines()]


OUTPUT = {"distribution": "lognormal", "mean": 100, "cv": 1}
BASE = {"workload": {"requests": 200, "output": OUTPUT}, "server": {"slots": 4}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_study_and_every_server_or_grid_of_one_that_a_page_shows_can_be_read(page: Path) -> None:
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        tables = tomllib.loads(text)
        if "server" in tables or "grid" in tables:
            parse_study({**BASE, **tables}, page.name)


def test_tests_that_a_page_names_are_there() -> None:
    for page in PAGES:
        for name in re.findall(r"`(?:tests/)?((?:test|reference)\w*\.py)`", page.read_text(encoding="utf-8")):
            assert (ROOT / "tests" / name).exists(), f"{page.name}: {name}"

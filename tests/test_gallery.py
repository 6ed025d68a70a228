"""The gallery: made again for small fresh runs, and the page that is kept in step with the studies."""

import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sweep.commands.gallery import make
from sweep.errors import InputError
from sweep.report.charts.png import smaller
from sweep.report.figures import NOT_MODELLED, not_modelled

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
KEPT = ROOT / "results"
LARGEST_PICTURE = 200_000  # bytes
VERDICT = r"(holds|fails|undecided)"


@pytest.fixture(scope="module", autouse=True)
def at_the_root() -> Iterator[None]:
    """Paths of studies are said as they are given, so all commands start where the project does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, at_the_root: None) -> Path:  # noqa: ARG001
    """A gallery of all studies from small runs."""
    folder = tmp_path_factory.mktemp("gallery")
    return make([path.relative_to(ROOT) for path in STUDIES], folder, replicates=20).parent


def parts(folder: Path) -> dict[str, str]:
    """The part of each study, by the path of its file."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    found = page.split("\n## ")[1:]
    return {re.search(r"^`(.+?)`: ", part, re.M)[1]: part for part in found}  # type: ignore[index]


def table(text: str) -> list[list[str]]:
    """The entries of a Markdown table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |")) for line in lines[2:]]


def skeleton(part: str) -> list[object]:
    """What does not depend on the number of workloads: title, question, picture, claims and where they hold."""
    title, *_ = part.splitlines()
    picture = re.search(r"\]\((gallery/.+?)\)", part)
    return [
        title,
        re.search(r"^`.+?`: (.+)$", part, re.M)[1],  # type: ignore[index]
        picture and picture[1],
        [(claim, re.sub(r"^each of ", "", where)) for _, claim, where, _ in table(part)],
        re.search(r"(\d+ cells?), .*: (`sweep run .+`)$", part, re.M).groups(),  # type: ignore[union-attr]
    ]


def test_every_study_has_its_part_in_the_order_given(fresh: Path) -> None:
    assert list(parts(fresh)) == [path.relative_to(ROOT).as_posix() for path in STUDIES]


def test_a_part_has_the_picture_the_sentence_and_a_verdict_for_each_claim(fresh: Path) -> None:
    for path, part in parts(fresh).items():
        claims = re.findall(r'^text = "(.+)"$', (ROOT / path).read_text(encoding="utf-8"), re.M)
        rows = table(part)
        assert [any(row[1].startswith(claim) for row in rows) for claim in claims] == [True] * len(claims)
        assert all(re.match(rf"{VERDICT}( in \d+(, {VERDICT} in \d+)*)?$", row[0]) for row in rows)
        assert re.search(r"times the steps of continuous batching|[Uu]nder continuous batching", part)
        assert (fresh / re.search(r"\]\((gallery/.+?)\)", part)[1]).exists()  # type: ignore[index]


@pytest.mark.parametrize("folder", ["fresh", "kept"])
def test_the_pictures_are_sound_and_small(folder: str, fresh: Path) -> None:
    pictures = (fresh if folder == "fresh" else KEPT) / "gallery"
    assert {path.name for path in pictures.iterdir()} == {
        f"{p.stem}.{kind}" for p in STUDIES for kind in ("svg", "png")
    }
    for path in pictures.iterdir():
        assert path.stat().st_size < LARGEST_PICTURE
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_page_that_is_kept_tells_of_the_studies_as_they_are(fresh: Path) -> None:
    kept = parts(KEPT)
    assert list(kept) == list(parts(fresh))
    for path, part in parts(fresh).items():
        assert skeleton(kept[path]) == skeleton(part)


def test_the_page_that_is_kept_was_made_from_full_runs() -> None:
    for path, part in parts(KEPT).items():
        replicates = re.search(r"^replicates = ([\d_]+)", (ROOT / path).read_text(encoding="utf-8"), re.M)
        assert replicates is None or f", {int(replicates[1]):,} workload" in part


def test_in_every_study_that_is_kept_a_claim_holds_and_a_belief_fails() -> None:
    for path, part in parts(KEPT).items():
        verdicts = " ".join(row[0] for row in table(part))
        assert "holds" in verdicts, path
        assert "fails" in verdicts, path


def test_the_table_of_the_readme_is_that_of_the_gallery() -> None:
    head, *_ = (KEPT / "README.md").read_text(encoding="utf-8").split("\n## ")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for link, question, finding in table(head):
        assert f"| {link.replace('](#', '](results/README.md#')} | {question} | {finding} |" in readme


def test_every_link_of_the_gallery_leads_to_a_heading() -> None:
    page = (KEPT / "README.md").read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.+)$", page, re.M)
    }
    assert set(re.findall(r"\]\(#(.+?)\)", page)) == headings


def test_of_the_results_only_the_gallery_is_tracked() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a clone and git")
    done = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(re.fullmatch(r"results/(README\.md|gallery/\w+\.(svg|png))", name) for name in done.stdout.splitlines())


def test_the_gallery_is_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    made = [make([Path("studies/control.toml")], tmp_path / name, replicates=5).read_bytes() for name in ("a", "b")]
    assert made[0] == made[1]
    pictures = [(tmp_path / name / "gallery" / "control.svg").read_bytes() for name in ("a", "b")]
    assert pictures[0] == pictures[1]


def test_words_of_a_study_are_shown_as_they_are(tmp_path: Path) -> None:
    study = tmp_path / "odd.toml"
    text = (ROOT / "studies" / "control.toml").read_text(encoding="utf-8")
    study.write_text(
        re.sub(r'^title = ".*"$', 'title = "a | b <script> *c* [d](e)"', text, flags=re.M), encoding="utf-8"
    )
    page = make([study], tmp_path, replicates=5).read_text(encoding="utf-8")
    assert r"## a \| b \<script> \*c\* \[d\](e)" in page


def test_two_studies_of_one_name_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / "control.toml"
    shutil.copy(ROOT / "studies" / "control.toml", copy)
    with pytest.raises(InputError, match="two of the studies are called control"):
        make([ROOT / "studies" / "control.toml", copy], tmp_path)


def test_the_command_makes_the_page_and_says_where(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sweep",
        "gallery",
        "studies/control.toml",
        "--replicates",
        "5",
        "-o",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path / 'README.md'}\n"
    assert "studies/control.toml" in done.stderr
    assert (tmp_path / "gallery" / "control.png").exists()


def test_a_study_that_is_absent_is_one_line_and_status_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sweep", "gallery", "absent.toml", "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "out").exists()


def pixels(png: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The chunks other than pixels, each with a right checksum, and the pixels unpacked."""
    others, packed, place = [], b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        name, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        assert struct.unpack(">I", png[place + 8 + length : place + 12 + length])[0] == zlib.crc32(name + data)
        packed += data if name == b"IDAT" else b""
        others += [] if name == b"IDAT" else [(name, data)]
        place += 12 + length
    return others, zlib.decompress(packed)


def test_a_picture_packed_smaller_has_the_same_pixels() -> None:
    head = struct.pack(">IIBBBBB", 60, 40, 8, 6, 0, 0, 0)
    packed = zlib.compress(b"\0" * (40 * (1 + 4 * 60)), 0)
    chunks = [(b"IHDR", head), (b"IDAT", packed[:500]), (b"IDAT", packed[500:]), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    small = smaller(png)
    assert len(small) < len(png) / 10
    assert pixels(small) == pixels(png)


@pytest.mark.parametrize(
    ("workload", "server", "paths", "words"),
    [
        ({"requests": 9, "output": {}}, {"slots": 4, "step_ms": 20}, ["server.slots"], NOT_MODELLED),
        (
            {"requests": 9, "prompt": {}},
            {"slots": 4},
            ["server.slots"],
            "Not modelled: arrivals after the start and steps that slow down in a fuller batch.",
        ),
        (
            {"requests": 9},
            {"slots": 4},
            ["server.kv.block_size"],
            "Not modelled: prompts, arrivals after the start and steps that slow down in a fuller batch.",
        ),
        ({"prompt": {}, "arrivals": {}}, {"step": {}}, [], ""),
    ],
)
def test_a_caption_leaves_out_what_the_study_models(
    workload: dict[str, object], server: dict[str, object], paths: list[str], words: str
) -> None:
    manifest = {"study": {"workload": workload, "server": server}, "axes": [{"paths": paths}]}
    assert not_modelled(manifest) == words

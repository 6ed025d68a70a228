"""A run may end at any moment and by any cause: what was finished is kept, and the rest comes to the same bytes."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from small import PROGRAM, STUDY, bytes_of, study

import sweep
from sweep.cli import main
from sweep.errors import FolderError
from sweep.grid import points
from sweep.manifest import manifest as manifest_of
from sweep.model import lockstep
from sweep.progress import Silent
from sweep.results import Store
from sweep.shards import Span
from sweep.study import parse_study

LONG = {**STUDY, "replicates": 12_000}
KILLED_IN_A_WRITE = [  # arguments: study, folder, what is written, when, whether to report
    sys.executable,
    "-c",
    """
import json, os, re, signal, sys
from pathlib import Path
import sweep, sweep.runner
from sweep.study import parse_study

given, folder, written, when, report = sys.argv[1:]
fsync, replace, left = os.fsync, Path.replace, [2 if "replicates" in written else 1]

def reached(name):
    left[0] -= bool(re.search(written, name))
    return left[0] == 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def on_fsync(handle):
    name = os.readlink(f"/proc/self/fd/{handle}")
    if when == "half" and name.endswith(".part") and reached(name):
        os.ftruncate(handle, os.fstat(handle).st_size // 2)
        die()
    fsync(handle)

def on_replace(self, target):
    if when == "flushed" and reached(str(target)):
        die()
    replace(self, target)
    if when == "renamed" and reached(str(target)):
        die()

os.fsync, Path.replace = on_fsync, on_replace
sweep.runner.CHUNK_NS = 0.0
sweep.run(parse_study(json.loads(given), "small.toml"), folder, report=report == "True")
""",
]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one block, so that a thousand replicates are several shards and the last is partial."""
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of the study run at once, with its page; and that of the long one."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.runner.CHUNK_NS", 0.0)
        sweep.run(study(), folder / "short")
        sweep.run(study(replicates=LONG["replicates"]), folder / "long", report=False)
    return folder


class Counting(Silent):
    """Counts the chunks that a run has to do, and calls `at` when it has done so many of them."""

    def __init__(self, at=lambda: None, after=3):
        self.planned, self.finished, self.at, self.after = 0, 0, at, after

    def plan(self, chunks):
        self.planned += len(chunks)

    def done(self, _chunk):
        self.finished += 1
        if self.finished == self.after:
            self.at()


def run_cli(monkeypatch, *arguments):
    """Exit status of a command."""
    monkeypatch.setattr("sys.argv", ["sweep", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def whole(folder):
    """Every file that a run and its report leave, by name, but for the lock."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# ---- killed


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_instants_comes_to_the_bytes_of_one_that_was_not(tmp_path, undisturbed, kills):
    instants, folder = random.Random(kills), tmp_path / "killed"
    finished = set()
    for _ in range(kills):
        running = subprocess.Popen([*PROGRAM, json.dumps(LONG), str(folder)])
        manifest = folder / "manifest.json"
        before = manifest.stat().st_mtime_ns if manifest.exists() else 0
        while running.poll() is None and (not manifest.exists() or manifest.stat().st_mtime_ns == before):
            time.sleep(0.002)
        time.sleep(instants.uniform(0, 0.25))
        running.send_signal(signal.SIGKILL)
        running.wait()
        now = set(Store.open(folder).have())
        assert finished <= now  # nothing that was finished is lost
        finished = now
    sweep.run(study(replicates=LONG["replicates"]), folder, report=False)
    assert bytes_of(folder) == bytes_of(undisturbed / "long")


WRITES = ["study.toml", "replicates/", "manifest.json", "cells.parquet", "charts/", "report.html"]
MOMENTS = ["half", "flushed", "renamed"]


@pytest.mark.skipif(sys.platform != "linux", reason="the names of open files are read from /proc")
@pytest.mark.parametrize(
    ("written", "moment"),
    [
        pytest.param(written, moment, marks=() if number % len(MOMENTS) == place else pytest.mark.slow)
        for number, written in enumerate(WRITES)
        for place, moment in enumerate(MOMENTS)
    ],
)
def test_a_run_killed_inside_a_write_comes_to_the_same_files(tmp_path, undisturbed, written, moment):
    report = "report" in written or "charts" in written
    command = [*KILLED_IN_A_WRITE, json.dumps(STUDY), str(tmp_path), written, moment, str(report)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    sweep.run(study(), tmp_path, report=report)
    expected = whole(undisturbed / "short")
    if not report:
        expected = {name: data for name, data in expected.items() if not re.search("report|charts", name)}
    assert whole(tmp_path) == expected


def test_shards_that_the_manifest_does_not_name_yet_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("sweep.results.Store._enter_now_and_then", lambda _: None)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.run(study(), tmp_path, report=False, jobs=1, watch=Counting(stop))
    assert json.loads((tmp_path / "manifest.json").read_text())["shards"] == []
    assert len(Store.open(tmp_path).have()) == 3
    again = Counting()
    sweep.run(study(), tmp_path, report=False, watch=again)
    assert again.planned == 16 - 3


# ---- the disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room, and how to change it."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False, capture_output=True)

    if shutil.which("mount") is None or mount("size=300k").returncode != 0:
        pytest.skip("a file system can be mounted by the superuser alone")
    yield place, lambda options: mount(f"remount,{options}")
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_said_in_one_line_and_costs_only_what_was_in_flight(small_disk, undisturbed):
    disk, change = small_disk
    with pytest.raises(FolderError, match="cannot be written: No space left on device; what was finished is kept"):
        sweep.run(study(replicates=LONG["replicates"]), disk / "run", report=False)
    store = Store.open(disk / "run")
    assert len(store.have()) > 10
    assert store.damaged == []
    change("size=100m")
    again = Counting()
    sweep.run(study(replicates=LONG["replicates"]), disk / "run", report=False, watch=again)
    assert again.planned == 2 * 94 - len(store.have())
    assert bytes_of(disk / "run") == bytes_of(undisturbed / "long")


def test_a_folder_on_a_read_only_disk_can_be_read_but_not_written(small_disk, monkeypatch, capsys):
    disk, change = small_disk
    cells = sweep.run(study(replicates=200), disk / "run", report=False).cells
    change("ro")
    results = sweep.read(disk / "run")
    assert results.cells.equals(cells)
    assert results.replicates.collect().height == 6 * 200
    for command in (["run", disk / "run" / "study.toml", "-o", disk / "run"], ["report", disk / "run"]):
        assert run_cli(monkeypatch, *command) == 2
        assert re.search("Read-only file system.*\n$", capsys.readouterr().err)


def test_a_folder_that_is_removed_while_it_is_written_is_said_in_one_line(tmp_path):
    removing = Counting(lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(FolderError) as error:
        sweep.run(study(), tmp_path / "run", report=False, watch=removing)
    assert error.value.lines == (
        f"{tmp_path / 'run'}: was removed or replaced while this run was writing in it; run it again",
    )


def test_a_run_whose_folder_was_replaced_writes_nothing_into_that_of_the_other_run(tmp_path):
    def replace():
        shutil.rmtree(tmp_path / "run")
        sweep.run(study(seed=1), tmp_path / "run", report=False)

    with pytest.raises(FolderError, match="was removed or replaced"):
        sweep.run(study(), tmp_path / "run", report=False, watch=Counting(replace))
    sweep.run(study(seed=1), tmp_path / "alone", report=False)
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "alone")


# ---- what is damaged


@pytest.mark.parametrize("harm", [b"", b"{", b"[]", b"{}", b"\xff\x00", None, "cut", "changed"])
def test_a_lost_manifest_is_made_again_and_no_shard_is_simulated_twice(tmp_path, undisturbed, harm):
    shutil.copytree(undisturbed / "short", tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    data = manifest.read_bytes()
    manifest.unlink()
    if harm is not None:
        changed = {"cut": data[: len(data) // 2], "changed": data.replace(b'"stop": 128', b'"stop": 129', 1)}
        manifest.write_bytes(changed.get(harm, harm))
        with pytest.raises(FolderError, match=r"manifest.json: is damaged .* run the study again"):
            sweep.read(tmp_path / "run")
    again = Counting()
    sweep.run(study(), tmp_path / "run", report=False, watch=again)
    assert again.planned == 0
    assert whole(tmp_path / "run") == whole(undisturbed / "short")


def test_shards_without_a_manifest_never_mix_with_another_study(tmp_path):
    sweep.run(study(), tmp_path, report=False)
    before = bytes_of(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(FolderError, match="is of another study; use --fresh"):
        sweep.run(study(seed=38), tmp_path, report=False)
    assert bytes_of(tmp_path) == before


def test_damaged_shards_are_named_and_left_out_with_exit_status_1(tmp_path, undisturbed, monkeypatch, capsys):
    shutil.copytree(undisturbed / "short", tmp_path / "run")
    victims = sorted((tmp_path / "run" / "replicates").iterdir())[2:4]
    victims[0].write_bytes(victims[0].read_bytes()[:-10])
    victims[1].write_bytes(b"")
    for command in ("report", "status", "check"):
        assert run_cli(monkeypatch, command, tmp_path / "run") == 1
        said = capsys.readouterr()
        for victim in victims:
            assert victim.name in said.err
    assert sweep.read(tmp_path / "run").cells["replicates"].to_list() == [744, 1000] * 3


def test_shards_cut_by_another_rule_are_replaced_whole(tmp_path, monkeypatch):
    sweep.run(study(), tmp_path / "run", report=False)
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 3e5)
    sweep.run(study(), tmp_path / "run", report=False)
    sweep.run(study(), tmp_path / "once", report=False)
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "once")
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    sweep.run(study(), tmp_path / "run", report=False)
    assert sweep.read(tmp_path / "run").replicates.collect().height == 6000
    assert len(bytes_of(tmp_path / "run")) == 17


# ---- what fails


def failing(monkeypatch, slots, first=0):
    """Makes every chunk from `first` on fail that simulates a server of so many slots."""
    drawn_steps = lockstep.drawn_steps

    def steps(look_up, seed, at, count, requests, some):
        if slots in some and at >= first and requests > 10:
            raise ZeroDivisionError(f"{slots} slots at \x1b[31m{at}")
        return drawn_steps(look_up, seed, at, count, requests, some)

    monkeypatch.setattr("sweep.model.lockstep.drawn_steps", steps)


def test_a_cell_that_fails_is_a_row_with_its_reason_and_the_others_finish(tmp_path, undisturbed, monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch, 16, first=512)
        results = sweep.run(study(), tmp_path, report=False)
    good = pl.read_parquet(undisturbed / "short" / "cells.parquet")
    rows, expected = results.cells.rows(named=True), good.rows(named=True)
    for row, whole_row in zip(rows, expected, strict=True):
        if row["slots"] != 16:
            for name in row:  # the width of simultaneous intervals goes by the number of cells
                assert "simultaneous" in name or row[name] == whole_row[name]
        else:
            assert row["multiple_mean"] is None
            assert row["multiple_of_totals"] is None
            assert row["error"].startswith("ZeroDivisionError: 16 slots at ?[31m512 (replicates 512 to 639")
    assert {failure["cell"] for failure in results.failures} == {2, 3}
    assert len(results.failures) == 2 * 4  # each reason of each cell
    again = Counting()
    sweep.run(study(), tmp_path, report=False, watch=again)
    assert again.planned == 2 * 4
    assert bytes_of(tmp_path) == bytes_of(undisturbed / "short")


def test_of_all_failures_the_first_replicates_are_named_whichever_chunk_came_back_first(tmp_path):
    with Store.writing(tmp_path, manifest_of(study(), points(study())), "") as store:
        for first in (640, 512, 768):
            store.fail(Span(0, first, first + 128), 2, "one reason")
            store.fail(Span(0, first, first + 128), 3, f"reason {first}")
        assert store.failed()[2] == "one reason (replicates 512 to 639 and 2 chunks more)"
        assert store.failed()[3] == "reason 512 (replicates 512 to 639)"


def test_every_failure_is_shown_and_the_exit_status_is_1(tmp_path, monkeypatch, capsys):
    failing(monkeypatch, 16, first=896)
    file = tmp_path / "small.toml"
    file.write_text(study().source)
    assert run_cli(monkeypatch, "run", file, "-o", tmp_path / "run", "--no-report") == 1
    said = capsys.readouterr().err
    assert "cell 2 failed at replicates 896 to 999: ZeroDivisionError" in said
    assert "cell 3 failed at replicates 896 to 999: ZeroDivisionError" in said
    assert "\x1b[31m" not in said


def test_a_study_that_cannot_be_run_does_not_keep_the_others_from_running(tmp_path, monkeypatch, capsys):
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(study(replicates=10).source)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("in the way")
    assert run_cli(monkeypatch, "run", tmp_path / "a.toml", tmp_path / "b.toml", "-o", tmp_path / "out") == 2
    assert "out/a: cannot be written" in capsys.readouterr().err
    assert (tmp_path / "out" / "b" / "report.html").exists()


def test_precision_goes_on_without_the_cells_that_fail(tmp_path, monkeypatch):
    failing(monkeypatch, 16)
    asked = {"metric": "multiple", "half_width": 0.2, "min_replicates": 128, "max_replicates": 2048}
    given = {key: value for key, value in STUDY.items() if key != "replicates"} | {"precision": asked}
    results = sweep.run(parse_study(given, "small.toml"), tmp_path, report=False)
    assert [row is None for row in results.cells["multiple_mean"]] == [False, False, True, True, False, False]


def test_shards_say_by_themselves_what_they_are(undisturbed):
    results = sweep.read(undisturbed / "short")
    for span in results._store.spans_of(1):
        (path,) = (undisturbed / "short" / "replicates").glob(f"p00001-{span.first:012d}-{span.stop:012d}-*")
        metadata = pl.read_parquet_metadata(path)
        assert Span(*(int(metadata[f"sweep.{key}"]) for key in Span._fields)) == span
        assert metadata["sweep.study"] == results.manifest["hash"]
        assert metadata["sweep.seed"] == "37"
        assert set(json.loads(metadata["sweep.versions"])) == set(results.manifest["versions"])


def test_shards_of_several_folders_are_one_table(tmp_path, undisturbed):
    shutil.copytree(undisturbed / "short", tmp_path / "results" / "a")
    sweep.run(study(seed=1, grid={}), tmp_path / "results" / "deeper" / "b", report=False)
    rows = pl.scan_parquet(tmp_path / "results" / "**" / "replicates" / "*.parquet")
    assert rows.select(pl.len()).collect().item() == 7 * 1000


def test_names_of_folders_are_taken_as_they_are(tmp_path):
    folder = tmp_path / "a[b]*?\u202e \x1b[31m"
    results = sweep.run(study(replicates=200), folder)
    assert sweep.read(folder).replicates.collect().height == 6 * 200
    assert results.cells.height == 6


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_keeps_what_was_finished_and_exits_with_130(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.toml").write_text(study(replicates=LONG["replicates"]).source)
    put = Store.put

    def interrupted(self, span, payload, **partial):
        put(self, span, payload, **partial)
        if span.first >= 1280:
            raise KeyboardInterrupt

    monkeypatch.setattr("sweep.results.Store.put", interrupted)
    assert run_cli(monkeypatch, "run", tmp_path / "small.toml", "-o", tmp_path / "run") == 130
    assert "run the same command to go on" in capsys.readouterr().err
    assert len(Store.open(tmp_path / "run").have()) > 10


def test_the_folder_is_free_again_after_a_run_was_killed(tmp_path):
    running = subprocess.Popen([*PROGRAM, json.dumps(LONG), str(tmp_path / "run")])
    while running.poll() is None and not (tmp_path / "run" / "manifest.json").exists():
        time.sleep(0.005)
    with pytest.raises(FolderError, match="another run is writing here"):
        sweep.run(study(replicates=LONG["replicates"]), tmp_path / "run", report=False)
    running.kill()
    running.wait()
    sweep.run(study(replicates=LONG["replicates"]), Path(tmp_path / "run"), report=False)

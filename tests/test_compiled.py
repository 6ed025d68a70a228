"""Compiled code on disk: damaged, stale, for another processor, or nowhere to put it; the answer is right."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small import study

import sweep

PACKAGE = Path(sweep.__file__).parent
ASK = """
import sys, types
import sweep.model
{before}
from sweep.model.compiled import kernel, notes
import question
assert question.doubled(21) == 42, question.doubled(21)
assert question.doubled(0.5) == 1.0
print(question.doubled.stats.cache_hits.total(), question.doubled.stats.cache_misses.total())
print(*notes(), sep="\\n")
"""
QUESTION = """
from sweep.model.compiled import kernel

@kernel
def doubled(x):
    return x + x
"""


def ask(folder, before="", **environment):
    """What a process that doubles a number by a kernel in the folder says: cache hits and misses, then its notes."""
    (folder / "question.py").write_text(QUESTION)
    paths = os.pathsep.join([str(folder), str(PACKAGE.parent)])
    chosen = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "kept"), **environment}
    env = {name: value for name, value in {**os.environ, **chosen}.items() if value is not None}
    command = [sys.executable, "-W", "error", "-c", ASK.format(before=before)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    counts, *notes = done.stdout.strip().splitlines()
    return counts, notes


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder whose kernel is kept."""
    folder = tmp_path_factory.mktemp("warm")
    assert ask(folder) == ("0 2", [])
    return folder


def kept(folder, kind):
    (path,) = sorted((folder / "kept").rglob(f"*.{kind}"))[:1]
    return path


def test_code_is_compiled_once_and_then_loaded(warm):
    assert ask(warm) == ("2 0", [])


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        pytest.param(kind, harm, marks=() if harm == often else pytest.mark.slow)
        for kind, often in (("nbi", "cut"), ("nbc", "flipped"))
        for harm in ("cut", "empty", "noise", "flipped")
    ],
)
def test_damaged_code_is_compiled_again_and_replaced(warm, kind, harm):
    shutil.rmtree(warm / "kept")
    ask(warm)
    path = kept(warm, kind)
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut": data[:middle], "empty": b"", "noise": b"\x80\x05noise", "flipped": flipped}[harm])
    ask(warm)
    assert ask(warm) == ("2 0", [])


@pytest.mark.parametrize("change", ["the kernel it calls", "a number that one names"])
def test_a_kernel_is_compiled_again_when_what_it_calls_has_changed_in_another_file(tmp_path, change):
    """numba alone would go on with the old code: it looks at the file of the outer kernel only."""
    opening = "from sweep.model.compiled import kernel\n"
    question = f"{opening}from answer import twice\n@kernel\ndef doubled(x):\n    return twice(x)\n"
    answer = f"{opening}from numbers_of import TWO\n@kernel\ndef twice(x):\n    return {{}}\n"
    ask_it = "import sweep.model, question; print(question.doubled(21), question.doubled.stats.cache_hits.total())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def said(number, body):
        (tmp_path / "numbers_of.py").write_text(f"TWO = {number}\n")
        (tmp_path / "answer.py").write_text(answer.format(body))
        command = [sys.executable, "-B", "-c", ask_it]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "question.py").write_text(question)
    assert said(2, "x * TWO").split() == ["42", "0"]
    assert said(2, "x * TWO").split() == ["42", "1"]
    number, body = (2, "x * TWO + 1") if change == "the kernel it calls" else (3, "x * TWO")
    assert said(number, body).split() == [str(21 * number + (number == 2)), "0"]


def test_code_for_other_types_or_another_processor_is_not_run(warm):
    first, second = sorted((warm / "kept").rglob("*.nbc"))
    swapped = first.read_bytes(), second.read_bytes()
    first.write_bytes(swapped[1])
    second.write_bytes(swapped[0])
    ask(warm)  # asserts that the answers are right
    other = 'from numba.core.codegen import CPUCodegen; CPUCodegen.magic_tuple = lambda self: ("of", "old")'
    counts, notes = ask(warm, before=other)
    assert (counts, notes) == ("0 2", [])


def test_without_a_folder_to_write_in_code_is_compiled_each_time_and_it_is_said_once(tmp_path):
    nowhere = "import numba.core.caching as c; c._CacheLocator.ensure_cache_path = lambda self: open('/nowhere/x', 'w')"
    counts, (note,) = ask(tmp_path, before=nowhere)
    assert note.startswith("compiled code cannot be kept: no folder for it can be written")
    assert "NUMBA_CACHE_DIR" in note
    assert counts == "0 2"


def test_a_full_disk_while_code_is_kept_is_said_once_and_the_code_is_used(tmp_path):
    full = (
        "import numba.core.caching as c, errno\ndef full(*_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
    )
    _, notes = ask(tmp_path, before=full + "c.IndexDataCacheFile._save_data = full")
    (note,) = notes
    assert note.startswith(f"compiled code cannot be kept in {tmp_path / 'kept'}")
    assert "No space left on device" in note
    assert ask(tmp_path)[1] == []


def test_without_a_home_nothing_is_written_into_a_folder_called_tilde(tmp_path):
    homeless = "import os.path, numba.core.caching as c; os.path.expanduser = lambda path: path\n"
    in_tree = "c.InTreeCacheLocator.ensure_cache_path = lambda self: open('/nowhere/x', 'w')"
    _, (note,) = ask(tmp_path, before=homeless + in_tree, NUMBA_CACHE_DIR=None)
    assert "no folder for it can be written" in note
    assert not (tmp_path / "~").exists()


def test_processes_that_start_cold_together_all_get_it_right(tmp_path):
    with ThreadPoolExecutor(3) as threads:
        assert all(notes == [] for _, notes in threads.map(lambda _: ask(tmp_path), range(3)))
    assert ask(tmp_path)[1] == []


def test_a_read_only_install_without_a_home_runs(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system can be mounted by the superuser alone")
    try:
        shutil.copytree(PACKAGE, disk / "sweep", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        environment = {"PYTHONPATH": str(disk), "HOME": str(disk / "nobody"), "PATH": os.environ["PATH"]}
        asked = "import sweep, sys; print(sweep.__file__, sweep.static_steps([3, 1, 2], 2))"
        command = [sys.executable, "-c", asked]
        done = subprocess.run(command, env=environment, cwd=disk, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(disk / "sweep" / "__init__.py"), "5"]
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
def test_a_command_says_once_on_stderr_that_code_cannot_be_kept(tmp_path):
    (tmp_path / "small.toml").write_text(study(replicates=10).source)
    nowhere = "import numba.core.caching as c; c._CacheLocator.ensure_cache_path = lambda self: open('/nowhere/x', 'w')"
    program = f"{nowhere}\nimport sys\nfrom sweep.cli import main\nsys.argv[:1] = ['sweep']\nmain()"
    command = [sys.executable, "-c", program, "run", "small.toml", "-o", "run", "--no-report"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("compiled code cannot be kept") == 1
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["shards"]

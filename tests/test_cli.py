"""The command line as its users meet it: in a terminal, in a pipe, in a log, and with things that are wrong."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SMALL = """title = "small"
[workload]
requests = 30
output = { distribution = "geometric", mean = 20 }
[server]
slots = 4
[grid]
"server.slots" = [2, 4]
[[claims]]
text = "never slower"
metric = "multiple"
at_least = 1
of = "every"
"""


def sweep(*arguments, **options):
    environment = {**os.environ, **options.pop("env", {})}
    command = [sys.executable, "-m", "sweep", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)


def commands():
    shown = re.sub(r"\x1b\[[0-9;]*m", "", sweep("--help", env={"COLUMNS": "200"}).stdout)
    return re.findall(r"^\W+([a-z][a-z-]*)  +[A-Z]", shown, re.MULTILINE)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_every_command_has_help_that_says_what_it_does_and_a_row_in_the_readme():
    names = commands()
    assert {"run", "report", "check", "multiple", "replay", "lab", "new", "schema"} <= set(names)
    for name in names:
        done = sweep(name, "--help", env={"COLUMNS": "200"})
        assert done.returncode == 0, name
        assert re.search(r"Examples?: sweep ", done.stdout), name
        assert f"`sweep {name}" in README, f"README.md has no row for sweep {name}"


def test_the_script_and_the_module_are_the_same_command():
    script = Path(sys.executable).with_name("sweep")
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert by_script == sweep("--version").stdout
    assert re.fullmatch(r"sweep \d+\.\d+\.\d+\n", by_script)


def test_a_run_puts_results_on_stdout_and_notes_on_stderr(small, tmp_path):
    done = sweep("run", small, "--replicates", 200, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "HOLDS      never slower (slots = 2)" in done.stdout
    assert f"Page: {tmp_path / 'out' / 'report.html'}" in done.stdout
    assert str(small) in done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_quiet_says_nothing_on_stderr_and_no_report_makes_no_page(small, tmp_path):
    done = sweep("run", small, "--replicates", 200, "-o", tmp_path / "out", "--quiet", "--no-report")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "cells.parquet").exists()


def test_a_dry_run_simulates_and_writes_nothing(small, tmp_path):
    done = sweep("run", small, "--dry-run", "-o", tmp_path / "out")
    assert done.returncode == 0
    assert "2 cells" in done.stdout
    assert not (tmp_path / "out").exists()


def test_several_studies_get_a_folder_each_and_results_is_the_default(small, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(SMALL)
    assert sweep("run", small, other, "--replicates", 50, "--no-report", "-o", tmp_path / "all").returncode == 0
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"small", "other"}
    assert sweep("run", small, "--replicates", 50, "--no-report", cwd=tmp_path).returncode == 0
    assert (tmp_path / "results" / "small" / "manifest.json").exists()
    twice = sweep("run", small, small, "-o", tmp_path / "again")
    assert (twice.returncode, len(twice.stderr.splitlines())) == (2, 1)


def test_set_seed_and_replicates_change_the_study_that_is_kept_beside_the_results(small, tmp_path):
    changes = ["--set", "workload.requests=40", "--seed", 9, "--replicates", 64]
    assert sweep("run", small, *changes, "--no-report", "-o", tmp_path / "a").returncode == 0
    kept = tmp_path / "a" / "study.toml"
    assert sweep("run", kept, "--no-report", "-o", tmp_path / "b").returncode == 0
    shards = [sorted((tmp_path / folder / "replicates").glob("*.parquet")) for folder in "ab"]
    assert [path.read_bytes() for path in shards[0]] == [path.read_bytes() for path in shards[1]]


@pytest.mark.parametrize(
    ("bound", "verdict", "status"), [(1, "holds", 0), (2, "undecided", 3), (9, "fails", 1)], ids=str
)
def test_check_exits_by_the_verdicts_and_speaks_json(tmp_path, bound, verdict, status):
    path = tmp_path / "claim.toml"
    of = '"every"' if verdict == "holds" else '"mean"'
    text = SMALL.replace("at_least = 1", f"at_least = {bound}").replace('"every"', of).replace("[2, 4]", "[4]")
    path.write_text(text)
    run = sweep("run", path, "--replicates", 3, "--no-report", "-o", tmp_path / "out")
    assert run.returncode == 0  # run shows verdicts and does not exit by them
    done = sweep("check", tmp_path / "out", "--json")
    (found,) = json.loads(done.stdout)
    assert (found["verdict"], done.returncode) == (verdict, status)
    assert {"text", "metric", "cell", "estimate", "ci_low", "ci_high", "worst_replicates"} <= set(found)
    assert verdict.upper() in sweep("check", tmp_path / "out").stdout


def test_a_cell_that_cannot_run_makes_the_exit_status_1(tmp_path):
    path = tmp_path / "memory.toml"
    path.write_text(
        SMALL.replace("slots = 4", 'slots = "memory"\nmemory = { budget = "1 GiB", kv_per_token = "1 MiB" }').replace(
            '"server.slots" = [2, 4]', '"server.context" = [256, 4096]'
        )
    )
    done = sweep("run", path, "--replicates", 50, "-o", tmp_path / "out")
    assert done.returncode == 1
    reason = "a request of 4,096 tokens needs 4 GiB, the budget is 1 GiB"
    assert reason in done.stdout
    for command in ("status", "report"):
        done = sweep(command, tmp_path / "out")
        assert done.returncode == 1
        assert (done.stdout + done.stderr).count(reason) == 1


def test_one_is_said_in_the_singular(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(SMALL.replace('"server.slots" = [2, 4]', ""))
    done = sweep("run", path, "--dry-run", "--replicates", 1, "-o", tmp_path / "out")
    assert "1 cell of 1 point, 1 replicate each" in done.stdout
    assert "to simulate: 1 chunk, " in done.stdout
    assert not re.search(r"\b1 \w+s\b", done.stdout.replace("1 s ", ""))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "absent.toml"],
        ["run", "."],
        ["report", "absent"],
        ["check", "absent"],
        ["multiple", "--output", "lognormal mean=1"],
        ["multiple", "--output", "geometric mean=9", "--slots", "4,x"],
        ["lab", "--predict", "1", "2", "nan", "4"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_status_2(tmp_path, arguments):
    done = sweep(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_control_characters_in_names_never_reach_the_terminal(tmp_path):
    path = tmp_path / "bad\x1b[31m.toml"
    path.write_text("title = 1")
    done = sweep("run", path)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_title_can_be_printed_in_any_encoding(small, tmp_path, encoding):
    small.write_text(SMALL.replace('"small"', '"größer → ∞"'), encoding="utf-8")
    done = sweep(
        *("run", small, "--replicates", 20, "--no-report", "-o", tmp_path / "out"),
        env={"PYTHONIOENCODING": encoding},
        encoding=encoding,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert ("größer" in done.stdout) == (encoding != "ascii")


@pytest.mark.parametrize("piped", ["schema | true", "list models | true", "--help | true", "lab --seed x 2>&1 | true"])
def test_a_reader_that_leaves_early_ends_a_command_without_a_word_and_with_neither_done_nor_failed(piped):
    program = f"{sys.executable} -m sweep {piped}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 141)


@pytest.mark.skipif(sys.platform != "linux", reason="pipes are made small as Linux does it")
def test_a_reader_that_leaves_after_a_line_ends_a_command_without_a_word():
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # less than is written, so that it cannot all be gone before
    command = [sys.executable, "-m", "sweep", "schema"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        with os.fdopen(reading) as reader:
            assert reader.readline() == "{\n"
        assert process.communicate()[1] == b""
    assert process.returncode == 141


def test_what_is_read_to_its_end_leaves_the_exit_status_as_it_is():
    program = f"{sys.executable} -m sweep schema | cat; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("}\n0\n")


@pytest.mark.parametrize("colour", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_no_bar_is_drawn_where_stderr_is_no_terminal_whatever_the_environment_says(small, tmp_path, colour):
    done = sweep("run", small, "--replicates", 2000, "-o", tmp_path / "out", env=colour)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stderr
    assert len(done.stderr.splitlines()) < 5


def test_list_alone_counts_what_there_is_and_says_how_to_ask():
    done = sweep("list")
    assert (done.returncode, done.stderr) == (0, "")
    asked = re.findall(r"^ *(\d+) .* sweep list (\w+)$", done.stdout, re.MULTILINE)
    assert [word for _, word in asked] == ["models", "gpus", "profiles", "distributions", "metrics"]
    for count, word in asked[:3]:
        table = sweep("list", word).stdout.split("\n\n")[0]
        assert len(table.splitlines()) == int(count) + 1, word
    assert len(sweep("list", "metrics").stdout.splitlines()) == int(asked[4][0]) + 1


def test_an_example_stands_on_one_line_of_a_help_80_columns_wide():
    for command in cli.app.registered_commands:
        name = command.name or command.callback.__name__
        shown = sweep(name, "--help", env={"COLUMNS": "80"}).stdout
        examples = re.findall(r"Example: (sweep .*)", command.callback.__doc__)
        assert examples, name
        assert [example for example in examples if example not in shown] == [], name


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_help_fits_any_width_and_has_no_colour_in_a_pipe(columns):
    done = sweep("run", "--help", env={"COLUMNS": columns})
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= max(int(columns), 80)


def test_an_interrupt_ends_a_run_within_seconds_with_130_and_keeps_what_was_finished(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(SMALL.replace("requests = 30", "requests = 3000"))
    command = [
        sys.executable,
        "-m",
        "sweep",
        "run",
        str(path),
        "--replicates",
        "100000000",
        "-o",
        str(tmp_path / "out"),
    ]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shards = tmp_path / "out" / "replicates"
    for _ in range(1200):
        if shards.exists() and any(shards.glob("*.parquet")):
            break
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, notes = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "what was finished is in" in notes
    assert "Traceback" not in notes
    assert len(list(shards.glob("*.parquet"))) > 0

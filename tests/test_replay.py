import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import continuous_finishes, static_finishes

import sweep
from sweep.commands.replay import drawing, parse_lengths, workload_in
from sweep.errors import InputError
from sweep.model.timeline import continuous_bars, static_bars, steps
from sweep.study import parse_study

LESSON = [40, 3, 25, 5, 60, 4, 18, 6, 33, 2, 50, 8]
STUDY = {
    "seed": 5,
    "replicates": 3,
    "workload": {"requests": 20, "output": {"distribution": "geometric", "mean": 9}},
    "server": {"slots": 3},
    "grid": {"server.slots": [3, 5]},
}

workloads = st.lists(st.integers(0, 20), min_size=1, max_size=40)
checked = settings(deadline=None, derandomize=True)


def sweep_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments], capture_output=True, text=True, check=False, **options
    )


@checked
@given(workloads, st.integers(1, 45))
def test_every_request_ends_in_the_step_of_the_literal_loop(lengths, slots):
    for bars_of, finishes_of in ((static_bars, static_finishes), (continuous_bars, continuous_finishes)):
        total, finishes = finishes_of(lengths, slots)
        bars = bars_of(lengths, slots)
        assert steps(bars) == total
        assert {bar.request: bar.last_step for bar in bars} == {r: step for r, step in enumerate(finishes) if step > 0}
        assert all(bar.last_step - bar.first_step + 1 == lengths[bar.request] for bar in bars)


@checked
@given(workloads, st.integers(1, 45))
def test_a_slot_serves_one_request_at_a_time(lengths, slots):
    for bars in (static_bars(lengths, slots), continuous_bars(lengths, slots)):
        taken = [(bar.slot, step) for bar in bars for step in range(bar.first_step, bar.last_step + 1)]
        assert len(taken) == len(set(taken)) == sum(lengths)
        assert all(0 <= slot < slots for slot, _ in taken)


@checked
@given(workloads, st.integers(1, 6))
def test_no_slot_idles_under_continuous_batching_while_a_request_waits(lengths, slots):
    bars = continuous_bars(lengths, slots)
    last_start = max((bar.first_step for bar in bars), default=0)
    for step in range(1, last_start):
        assert sum(bar.first_step <= step <= bar.last_step for bar in bars) == slots


def test_the_lesson_takes_150_steps_static_and_83_continuous():
    text = drawing(LESSON, 4, 100)
    assert "static: 150 steps" in text
    assert "continuous: 83 steps" in text
    assert "multiple 1.807 (150 / 83 steps)" in text


@pytest.mark.parametrize("width", [20, 60, 83, 300])
def test_a_drawing_is_ascii_as_wide_as_asked_and_holds_every_long_request(width):
    text = drawing(LESSON, 4, width)
    rows = [line for line in text.splitlines() if line.startswith("slot")]
    assert text.isascii()
    assert max(map(len, rows)) <= width
    assert {letter for row in rows for letter in row[7:]} >= set("aegik.")


def test_at_one_column_a_step_a_drawing_shows_each_token():
    rows = [line[7:] for line in drawing(LESSON, 4, 300).splitlines() if line.startswith("slot")]
    for request, length in enumerate(LESSON):
        assert "".join(rows).count("abcdefghijkl"[request]) == 2 * length


def test_a_replicate_of_a_folder_is_drawn_with_the_steps_of_its_row(tmp_path):
    results = sweep.run(parse_study(STUDY, "small.toml"), tmp_path, report=False)
    for row in results.replicates.collect().rows(named=True):
        lengths, slots = workload_in(tmp_path, row["cell"], row["replicate"])
        assert sum(lengths) == row["output_tokens"]
        assert steps(static_bars(lengths, slots)) == row["static_steps"]
        assert steps(continuous_bars(lengths, slots)) == row["continuous_steps"]
    for cell, replicate, says in [(2, 0, "has cells 0 to 1"), (0, 3, "has replicates 0 to 2")]:
        with pytest.raises(InputError, match=says):
            workload_in(tmp_path, cell, replicate)


def test_lengths_are_read_with_commas_or_spaces_and_nothing_else():
    assert parse_lengths("40, 3 25,5\n") == [40, 3, 25, 5]
    for text in ("", "4,x", "1.5", "-3", "4,,5x", "9" * 30):
        with pytest.raises(InputError, match="not a whole number"):
            parse_lengths(text)


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<svg "), ("PNG", b"\x89PNG\r\n")])
def test_a_picture_is_of_the_kind_that_its_ending_says(tmp_path, ending, start):
    file = tmp_path / f"it.{ending}"
    done = sweep_command("replay", "--lengths", "40,3,25,5,60,4", "--slots", "2", "--picture", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"Picture: {file}"
    assert file.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [file]


def test_the_picture_of_a_replicate_says_which_it_is_and_has_the_steps_of_its_row(tmp_path):
    results = sweep.run(parse_study(STUDY, "small.toml"), tmp_path / "out", report=False)
    row = results.replicates.collect().filter(cell=1, replicate=2).row(0, named=True)
    file = tmp_path / "it.svg"
    done = sweep_command("replay", str(results.folder), "--cell", "1", "--replicate", "2", "--picture", str(file))
    assert done.returncode == 0
    shown = file.read_text()
    assert "replicate 2 of cell 1" in shown
    assert f"static batching: {row['static_steps']:,} steps" in shown
    assert f"continuous batching: {row['continuous_steps']:,} steps" in shown


@pytest.mark.parametrize(
    ("lengths", "slots", "file", "problem"),
    [
        ("4,5", 2, "it.gif", "must end in .svg or .png"),
        ("4,5", 2, "picture", "must end in .svg or .png"),
        ("0,0", 2, "it.svg", "no request has a token"),
        (",".join(["1"] * 5_001), 2, "it.svg", "5,001 requests; a picture can show 5,000"),
        ("4,5", 331, "it.svg", "331 slots; a picture can show 330"),
        ("4,5", 2, "absent/it.svg", "No such file"),
    ],
)
def test_a_picture_that_cannot_be_made_is_refused_in_one_line(tmp_path, lengths, slots, file, problem):
    asked = ("--lengths", lengths, "--slots", str(slots), "--picture", str(tmp_path / file))
    done = sweep_command("replay", *asked)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert problem in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_draws_and_refuses_in_one_line(tmp_path):
    done = sweep_command("replay", "--lengths", "40,3,25,5,60,4,18,6,33,2,50,8")
    assert (done.returncode, done.stderr) == (0, "")
    assert "150 / 83 steps" in done.stdout
    for arguments in ([], ["--lengths", "4,x"], [str(tmp_path), "--lengths", "4"], [str(tmp_path / "absent")]):
        done = sweep_command("replay", *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""

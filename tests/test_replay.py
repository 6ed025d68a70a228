import itertools
import math
import re
import subprocess
import sys
import tomllib

import pytest
import reference_arriving as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import continuous_finishes, static_finishes

import sweep
from sweep.commands.replay import drawing, parse_lengths, replay_in, stretch
from sweep.errors import InputError
from sweep.grid import points
from sweep.model.timeline import continuous_bars, static_bars, steps
from sweep.rows.draws import outputs
from sweep.study import parse_study
from sweep.timelines import replay_of

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
    text = drawing(replay_of(LESSON, 4), 100)
    assert "static: 150 steps" in text
    assert "continuous: 83 steps" in text
    assert "multiple 1.807 (150 / 83 steps)" in text


def test_one_step_is_named_as_one():
    assert "static: 1 step, " in drawing(replay_of([1], 2), 80)


@pytest.mark.parametrize("width", [20, 60, 83, 300])
def test_a_drawing_is_ascii_as_wide_as_asked_and_holds_every_long_request(width):
    text = drawing(replay_of(LESSON, 4), width)
    rows = [line for line in text.splitlines() if line.startswith("slot")]
    assert text.isascii()
    assert max(map(len, rows)) <= width
    assert {letter for row in rows for letter in row[7:]} >= set("aegik.")


def test_at_one_column_a_step_a_drawing_shows_each_token():
    rows = [line[7:] for line in drawing(replay_of(LESSON, 4), 300).splitlines() if line.startswith("slot")]
    for request, length in enumerate(LESSON):
        assert "".join(rows).count("abcdefghijkl"[request]) == 2 * length


def test_a_replicate_of_a_folder_is_drawn_with_the_steps_of_its_row(tmp_path):
    results = sweep.run(parse_study(STUDY, "small.toml"), tmp_path, report=False)
    for row in results.replicates.collect().rows(named=True):
        shown = replay_in(tmp_path, row["cell"], row["replicate"])
        assert shown.over == shown.steps
        assert shown.steps == {name: row[f"{name}_steps"] for name in shown.spans}
        for spans in shown.spans.values():
            assert sum(span.finish - span.start for span in spans) == row["output_tokens"]
    for cell, replicate, says in [(2, 0, "has cells 0 to 1"), (0, 3, "has replicates 0 to 2")]:
        with pytest.raises(InputError, match=says):
            replay_in(tmp_path, cell, replicate)


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


CLOCKS = {
    "poisson": {"workload": {"arrivals": {"process": "poisson", "load": 0.8}}, "server": {"step_ms": 20}},
    "poisson in steps": {"workload": {"arrivals": {"process": "poisson", "load": 0.8}}},
    "steady": {
        "workload": {"arrivals": {"process": "gamma", "cv": 2, "load": 0.1, "horizon": "steady"}},
        "server": {"step_ms": 20},
    },
    "clients": {
        "workload": {"arrivals": {"process": "clients", "clients": 7, "think_s": 0.1}},
        "server": {"step_ms": 20, "max_wait_s": 0.3},
    },
    "an order": {"server": {"order": "shortest_first", "prediction_cv": 1}},
    "a line, with prompts": {
        "workload": {
            "prompt": {"distribution": "geometric", "mean": 30},
            "arrivals": {"process": "poisson", "load": 0.5},
        },
        "server": {
            "step": {
                "kind": "affine",
                "ms": 10,
                "us_per_request": 300,
                "us_per_kv_token": 2,
                "us_per_prefill_token": 50,
            }
        },
    },
    "members leave": {"server": {"step": {"kind": "affine", "ms": 10, "us_per_request": 300}, "pads": False}},
}


def with_a_clock(changes, folder):
    study = {
        **STUDY,
        "replicates": 3,
        "workload": {"requests": 60, "output": {"distribution": "geometric", "mean": 9}, **changes.get("workload", {})},
        "server": {"slots": 3, **changes.get("server", {})},
    }
    return sweep.run(parse_study(study, "clock"), folder, report=False)


@pytest.mark.parametrize("kind", CLOCKS)
def test_with_a_clock_no_slot_holds_two_requests_and_bars_come_to_the_row(kind, tmp_path):
    results = with_a_clock(CLOCKS[kind], tmp_path)
    steady = "steady" in kind
    for row in results.replicates.collect().rows(named=True):
        shown = replay_in(tmp_path, row["cell"], row["replicate"])
        assert shown.steps == {name: row[f"{name}_steps"] for name in ("static", "continuous")}
        for name, spans in shown.spans.items():
            assert {span.request for span in spans} == set(range(60))  # a geometric length is at least 1
            assert all(span.arrival <= span.start < span.finish for span in spans)
            by_slot = {slot: [span for span in spans if span.slot == slot] for slot in range(shown.slots)}
            assert sum(map(len, by_slot.values())) == len(spans)
            for mine in by_slot.values():
                assert all(first.finish <= second.start for first, second in itertools.pairwise(mine))
            first = 12 if steady else 0  # the warm-up of a steady study: a fifth of the requests
            start = sorted(span.arrival for span in spans)[first]
            end = max(span.arrival if steady else span.finish for span in spans)
            held = sum(max(0, min(span.finish, end) - max(span.start, start)) for span in spans)
            assert held / (shown.slots * (end - start)) == pytest.approx(row[f"{name}_utilisation"], rel=1e-9)


def test_with_a_clock_bars_are_exactly_the_times_of_the_literal_loop(tmp_path):
    results = with_a_clock(CLOCKS["poisson in steps"], tmp_path)
    point = points(parse_study(tomllib.loads((results.folder / "study.toml").read_text()), "clock"))[0]
    lengths = outputs(point.workload, 1, 1)[0].tolist()
    shown = replay_in(tmp_path, 1, 1)
    arrivals = {span.request: span.arrival for span in shown.spans["static"]}
    for name in ("static", "continuous"):
        requests = [twin.Request(n, length, 0, 0.0, 0.0, arrivals[n]) for n, length in enumerate(lengths)]
        if name == "static":
            twin.static(requests, 0, shown.slots, lambda *_: 1.0, False, 0.0, True)
        else:
            twin.continuous(requests, 0, shown.slots, lambda *_: 1.0, False)
        found = {span.request: (span.start, span.finish) for span in shown.spans[name]}
        assert found == {one.number: (one.start, one.finish) for one in requests}


def test_a_time_axis_has_equal_columns_and_counts_arrivals(tmp_path):
    with_a_clock(CLOCKS["poisson"], tmp_path)
    shown = replay_in(tmp_path, 0, 0)
    for width in (40, 80, 200):
        text = drawing(shown, width)
        static = text.split("\n\n")[0].splitlines()
        assert text.isascii()
        assert max(map(len, static[1:])) <= width
        assert {len(line) for line in static[2:]} == {len(static[2])}
        column = float(re.search(r"1 column is ([\d.e-]+) s", text)[1])
        assert (len(static[2]) - 7) * column == pytest.approx(shown.over["static"], abs=column)
        assert str(column).strip("0.e-")[:1] in "125"
    counted = re.findall(r"\d", drawing(shown, 2_000).splitlines()[1][7:])
    assert sum(map(int, counted)) == 60


def test_a_stretch_of_time_is_drawn_where_it_is_asked_for_or_requests_are_many(tmp_path):
    with_a_clock(CLOCKS["poisson"], tmp_path)
    shown = replay_in(tmp_path, 0, 0)
    over = shown.over["static"]
    assert "--from and --to" not in drawing(shown, 80)
    part = drawing(shown, 80, (over / 2, over))
    assert f"of {over:.3g} s; --from and --to draw another stretch" in part
    assert stretch(None, None, shown) is None
    assert stretch(1.0, None, shown) == stretch(1.0, math.inf, shown) == (1.0, max(shown.over.values()))
    for start, end in ((5.0, 1.0), (over + 1, None), (0.0, 0.0)):
        with pytest.raises(InputError, match="--from, --to: must be a stretch within 0 to"):
            stretch(start, end, shown)
    done = sweep_command("replay", str(tmp_path), "--from", "9", "--to", "4")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_picture_with_a_clock_has_a_time_axis_and_marks_arrivals(tmp_path):
    results = with_a_clock(CLOCKS["poisson"], tmp_path / "out")
    file = tmp_path / "it.svg"
    done = sweep_command("replay", str(results.folder), "--cell", "1", "--replicate", "2", "--picture", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    shown = file.read_text()
    assert ">seconds</text>" in shown
    assert "ticks above: arrivals" in shown
    assert re.search(r"static batching: [\d.]+ s<", shown)

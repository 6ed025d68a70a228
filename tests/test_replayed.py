"""Arrivals that a file says: its times alone, or each row's own with its lengths. They are kept in the study."""

import csv
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sweep
from sweep.cli import app
from sweep.errors import InputError, StudyError
from sweep.grid import points
from sweep.model.arriving import continuous_times, static_times
from sweep.model.steptime import Constant
from sweep.model.times import Requests
from sweep.model.trace_pack import moments_of, packed, packed_times, unpacked, unpacked_times
from sweep.rows.draws import arrivals as drawn_arrivals
from sweep.rows.draws import outputs
from sweep.rows.latencies import span_s
from sweep.study import parse_study, read_study, study_hash_parts

TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.exists(), reason="the real traces are not here")

rng = np.random.default_rng(5)
GAPS = rng.integers(0, 4000, 119) * rng.integers(0, 2, 119) / 1000  # half of them 0
TIMES = [round(second, 3) for second in (7 + np.concatenate([[0.0], np.cumsum(GAPS)])).tolist()]
LENGTHS = [(100 + at, 1 + 7 * at) for at in range(len(TIMES))]  # each request is told by its output
OWN = np.round(np.array(TIMES) - TIMES[0], 3)
MEAN_GAP = OWN[-1] / (len(OWN) - 1)


def write(path, times=TIMES, lengths=LENGTHS):
    head = "prompt_tokens,output_tokens" + (",arrival_s" if times else "")
    ends = [f",{time}" for time in times] if times else [""] * len(lengths)
    rows = (f"{prompt},{output}{end}" for (prompt, output), end in zip(lengths, ends, strict=False))
    path.write_text("\n".join([head, *rows]) + "\n")


def study_text(arrivals, *, trace='{ path = "mine.csv", order = "replay" }', requests=None, more="", output=""):
    lines = [f"requests = {requests}" if requests else "", f"trace = {trace}" if trace else "", output]
    workload = "\n".join([*lines, f"arrivals = {{ {arrivals} }}"])
    return f"replicates = 20\n{more}[workload]\n{workload}\n[server]\nslots = 4\nstep_ms = 20\ncharge_prompts = false\n"


ALONE = {"trace": None, "output": 'output = { distribution = "constant", value = 9 }'}
TRACE, FILE = 'process = "trace"', 'process = "times", path = "mine.csv"'


@pytest.fixture
def study_of(tmp_path):
    """Reads a study beside a trace of 120 requests with times; `times` and `lengths` are other ones for it."""

    def read(arrivals=TRACE, times=TIMES, lengths=LENGTHS, grid="", **parts):
        write(tmp_path / "mine.csv", times, lengths)
        (tmp_path / "study.toml").write_text(study_text(arrivals, **parts) + grid)
        return read_study(tmp_path / "study.toml")

    return read


@pytest.fixture
def refusal_of(study_of):
    def refusal(*given, **parts):
        with pytest.raises(StudyError) as refused:
            study_of(*given, **parts)
        (line,) = refused.value.lines
        return line.split("study.toml: ")[1]

    return refusal


def arrivals_of(study, first=0, count=20):
    """Arrivals and outputs of replicates, in the study's first point."""
    point = points(study)[0]
    workload, timing = point.workload, point.cells[0].timing
    return drawn_arrivals(workload, timing.rate_per_s, first, count), outputs(workload, first, count)


def row_of(output):
    return (output - 1) // 7


def test_replay_gives_each_request_its_own_time_in_every_replicate(study_of):
    arrivals, output = arrivals_of(study_of())
    assert (arrivals == OWN).all()
    assert (output == [output for _, output in LENGTHS]).all()


def test_a_shorter_replay_is_a_stretch_of_the_file_whose_times_count_from_its_first_request(study_of):
    arrivals, output = arrivals_of(study_of(requests=30))
    twice = np.concatenate([OWN, OWN + OWN[-1] + MEAN_GAP])
    starts = row_of(output[:, 0])
    assert len(set(starts.tolist())) > 10
    for start, times in zip(starts, arrivals, strict=True):
        assert times == pytest.approx(twice[start : start + 30] - twice[start], abs=1e-8)


def test_a_longer_replay_goes_on_one_mean_gap_after_the_last_request(study_of):
    arrivals, _ = arrivals_of(study_of(requests=300))
    period = OWN[-1] + MEAN_GAP
    assert arrivals[0] == pytest.approx(np.concatenate([OWN, OWN + period, OWN[:60] + 2 * period]), abs=1e-8)


@pytest.mark.parametrize("order", ['order = "rows"', 'order = "blocks", block = 8'])
def test_a_row_that_is_drawn_brings_the_gap_before_it(study_of, order):
    arrivals, output = arrivals_of(study_of(trace=f'{{ path = "mine.csv", {order} }}', requests=80))
    before = np.concatenate([[MEAN_GAP], np.diff(OWN)])
    assert (arrivals[:, 0] == 0).all()
    assert np.diff(arrivals, axis=1) == pytest.approx(before[row_of(output)][:, 1:], abs=1e-8)


def test_within_a_block_requests_come_as_they_do_in_the_file(study_of):
    arrivals, output = arrivals_of(study_of(trace='{ path = "mine.csv", order = "blocks", block = 10 }', requests=40))
    rows = row_of(output).reshape(20, 4, 10)
    times = arrivals.reshape(20, 4, 10)
    whole = rows[:, :, -1] > rows[:, :, 0]  # blocks that do not go on from the first row
    assert whole.sum() > 40
    assert (times[whole] - times[whole][:, :1]) == pytest.approx(OWN[rows[whole]] - OWN[rows[whole][:, :1]], abs=1e-8)


def test_drawn_rows_come_at_the_rate_of_the_file(study_of):
    """20 workloads of 20,000 gaps; 5 standard errors."""
    arrivals, _ = arrivals_of(study_of(trace='{ path = "mine.csv", order = "rows" }', requests=20_001))
    error = np.diff(OWN).std() / np.sqrt(20_000)
    assert abs(arrivals[:, -1].mean() / 20_000 - MEAN_GAP) < 5 * error / np.sqrt(20)


@pytest.mark.parametrize(("arrivals", "parts"), [(TRACE, {}), (FILE, ALONE)])
def test_a_rate_or_a_load_stretches_all_times_alike(study_of, arrivals, parts):
    own, _ = arrivals_of(study_of(arrivals, **parts))
    for scale in ("rate_per_s = 20.0", "load = 0.7"):
        study = study_of(f"{arrivals}, {scale}", **parts)
        times, output = arrivals_of(study)
        rate = points(study)[0].cells[0].timing.rate_per_s
        assert times == pytest.approx(own / (MEAN_GAP * rate))
        assert (times.argsort(kind="stable") == np.arange(120)).all()
        assert (output == arrivals_of(study_of(arrivals, **parts))[1]).all()


def test_draws_do_not_depend_on_the_pieces_they_are_made_in(study_of):
    study = study_of(trace='{ path = "mine.csv", order = "blocks", block = 7 }', requests=50)
    whole, _ = arrivals_of(study)
    assert (np.concatenate([arrivals_of(study, 0, 13)[0], arrivals_of(study, 13, 7)[0]]) == whole).all()


def test_the_times_of_a_file_go_with_lengths_from_elsewhere(study_of):
    arrivals, output = arrivals_of(study_of(FILE, **ALONE))
    assert (arrivals == OWN).all()
    assert (output == 9).all()
    assert (arrivals_of(study_of(FILE, requests=50, **ALONE))[0] == OWN[:50]).all()


@pytest.mark.parametrize("arrivals", [FILE, 'process = "times", times_s = [1, 1.5, 4]'])
def test_without_a_number_of_requests_there_are_as_many_as_times(study_of, arrivals):
    study = study_of(arrivals, **ALONE)
    assert study.resolved[0].workload.requests == (120 if "path" in arrivals else 3)


def test_an_axis_may_set_the_process_and_the_files(study_of):
    axis = '[grid]\n"workload.arrivals.process" = ["poisson", "trace"]\n'
    drawn, own = points(study_of('process = "poisson", load = 0.5', grid=axis))
    assert drawn.workload.rows == own.workload.rows
    files = f'[grid."workload.arrivals"]\nnames = ["own", "given"]\nvalues = [{{ {TRACE} }}, {{ {FILE} }}]\n'
    for point in points(study_of('process = "at_once"', grid=files)):
        assert (drawn_arrivals(point.workload, point.cells[0].timing.rate_per_s, 0, 2) == OWN).all()


@pytest.mark.parametrize(("arrivals", "parts"), [(TRACE, {}), (FILE, ALONE)])
def test_a_folder_needs_no_file_to_be_run_again_verified_and_reported(study_of, tmp_path, arrivals, parts):
    study_of(arrivals, more='measure = ["static_ttft_mean_s"]\n', **parts)
    folder, call = tmp_path / "results", CliRunner().invoke
    assert call(app, ["run", str(tmp_path / "study.toml"), "-o", str(folder), "--quiet"]).exit_code == 0
    shards = {path: path.stat().st_mtime_ns for path in folder.glob("replicates/*")}
    before = (folder / "cells.parquet").read_bytes()
    (tmp_path / "mine.csv").unlink()
    again = folder.rename(tmp_path / "elsewhere")
    for command in (
        ["run", str(again / "study.toml"), "-o", str(again)],
        ["verify", str(again)],
        ["report", str(again)],
    ):
        done = call(app, command)
        assert done.exit_code == 0, done.output
    assert {folder / path.relative_to(again): path.stat().st_mtime_ns for path in again.glob("replicates/*")} == shards
    assert (again / "cells.parquet").read_bytes() == before


@pytest.mark.parametrize(("arrivals", "parts"), [(TRACE, {}), (FILE, ALONE)])
def test_rows_depend_on_the_times_and_not_on_the_name_of_the_file(study_of, tmp_path, arrivals, parts):
    def digest(**changes):
        return points(study_of(arrivals, **{**parts, **changes}))[0].study

    known = digest()
    assert digest(times=[time + 3 for time in TIMES]) == known  # the first request comes at 0 in any case
    assert digest(times=[*TIMES[:-1], TIMES[-1] + 0.001]) != known
    (tmp_path / "other.csv").write_text((tmp_path / "mine.csv").read_text())
    write(tmp_path / "other.csv")
    text = (tmp_path / "study.toml").read_text().replace("mine.csv", "other.csv")
    (tmp_path / "study.toml").write_text(text)
    assert points(read_study(tmp_path / "study.toml"))[0].study == known


def test_a_study_that_asks_for_no_times_keeps_none_and_depends_on_none(study_of):
    study = study_of('process = "poisson", load = 0.5')
    assert "packed_times" not in study.source
    lengths = unpacked(study.workload["trace"]["rows"]).digest()
    assert study_hash_parts(study)["workload"]["trace"] == {"order": "replay", "rows": lengths}
    assert "files_read" not in study_hash_parts(study)
    other = study_of('process = "poisson", load = 0.5', times=[2 * time for time in TIMES])
    assert points(other)[0].study == points(study)[0].study


def test_rows_that_were_packed_without_times_are_read_by_studies_that_need_none():
    rows = packed(*np.array(LENGTHS).T)

    def read(arrivals):
        trace = {"path": "gone.csv", "rows": rows}
        workload = {"requests": 5, "trace": trace, "arrivals": arrivals}
        return parse_study({"workload": workload, "server": {"slots": 4, "step_ms": 20}}, "kept.toml")

    assert read({"process": "poisson", "load": 0.5}).resolved[0].workload.trace.moments() is None
    with pytest.raises(StudyError, match="was read without times; take rows out, and the file is read again"):
        read({"process": "trace"})


def test_times_that_fall_are_sorted_and_said_to_be(study_of):
    swapped = [*TIMES[:5], TIMES[6] + 1, TIMES[5], *TIMES[7:]]
    for arrivals, parts in ((TRACE, {}), (FILE, ALONE)):
        study = study_of(arrivals, times=swapped, **parts)
        assert (np.diff(arrivals_of(study)[0], axis=1) >= 0).all()
        assert any("at an earlier time" in note and "sorted by time" in note for note in study.notes)
        assert not any("sorted" in note for note in study_of(arrivals, **parts).notes)


def test_what_was_read_is_said_with_its_rate_and_cv(study_of):
    cv = np.diff(OWN).std() / np.diff(OWN).mean()
    said = f"they come at {1 / MEAN_GAP:.4g} a second, with a cv of the gaps of {cv:.4g}"
    assert study_of().notes == (f"mine.csv: 120 requests, read as csv; {said}",)
    assert study_of('process = "poisson", load = 0.5').notes == ("mine.csv: 120 requests, read as csv",)


@pytest.mark.parametrize("scale", ["", ", load = 0.5"])
def test_the_observed_rate_and_cv_stand_beside_those_of_the_file(study_of, scale):
    more = 'measure = ["arrival_rate_per_s", "arrival_gap_cv"]\n'
    cells = sweep.run(study_of(TRACE + scale, more=more), report=False).cells
    assert cells["arrival_rate_per_s_mean"][0] == pytest.approx(cells["requested_rate_per_s"][0])
    assert cells["arrival_gap_cv_mean"][0] == pytest.approx(cells["requested_gap_cv"][0])
    assert cells["requested_gap_cv"][0] == pytest.approx(np.diff(OWN).std() / np.diff(OWN).mean())
    if not scale:
        assert cells["requested_rate_per_s"][0] == pytest.approx(1 / MEAN_GAP)
        assert cells["offered_load"][0] == pytest.approx(1 / MEAN_GAP / cells["capacity_per_s"][0])


@pytest.mark.parametrize(("arrivals", "parts"), [(TRACE, {}), (FILE, ALONE)])
def test_the_largest_rate_that_keeps_an_slo_is_sought_by_stretching_the_times_of_a_file(study_of, arrivals, parts):
    slo = parts.get("output", "") + "\nslo = { ttft_s = 1, share = 0.9 }"
    short = [(1, 1 + at % 30) for at in range(120)]

    def largest(scale):
        more = 'measure = ["continuous_slo_rate_per_s"]\n'
        study = study_of(arrivals + scale, lengths=short, more=more, **{**parts, "output": slo})
        return sweep.run(study, report=False).cells["continuous_slo_rate_per_s_mean"][0]

    own = largest("")
    assert own > 0
    assert [largest(", rate_per_s = 3.0"), largest(", load = 0.9")] == pytest.approx([own, own], rel=0.002)


FAULTS = [
    (FILE, {"times": None, **ALONE}, "workload.arrivals.path: the file has no arrival times"),
    (TRACE, {"times": None}, "workload.trace.path: the file has no arrival times"),
    (
        FILE,
        {"lengths": LENGTHS[:1], **ALONE},
        "workload.arrivals.path: the file has 1 request; arrivals take at least 2",
    ),
    (TRACE, {"lengths": LENGTHS[:1]}, "workload.trace.path: the file has 1 request; arrivals take at least 2"),
    (FILE, {"times": [4] * 120, **ALONE}, "workload.arrivals.path: all 120 requests come at one time; use process"),
    (TRACE, {"times": [4] * 120}, "workload.trace.path: all 120 requests come at one time; use process"),
    (FILE, {"requests": 121, **ALONE}, "workload.requests: 121 requests, and arrivals has 120 times"),
    (FILE.replace("mine", "absent"), ALONE, "workload.arrivals.path: "),
    (FILE.replace("mine", "absent"), {"requests": 500, **ALONE}, "workload.arrivals.path: "),
    (TRACE, {"trace": '{ path = "absent.csv" }'}, "workload.trace.path: "),
    (TRACE, {"requests": 5, **ALONE}, 'workload: arrivals: process = "trace" takes those of [workload.trace]'),
    (FILE + ", times_s = [0, 1]", {"requests": 2, **ALONE}, "needs times_s or path, and not both"),
    ('process = "times"', {"requests": 2, **ALONE}, "needs times_s or path, and not both"),
    (f"{TRACE}, cv = 2", {}, 'cv does not go with process = "trace"'),
    (f"{TRACE}, rate_per_s = 1, load = 1", {}, "rate_per_s and load are both given"),
    ('process = "poisson", load = 1, path = "mine.csv"', {}, 'path does not go with process = "poisson"'),
    (f'{FILE}, packed_times = "abc"', {"requests": 2, **ALONE}, "packed_times: is not what was written"),
    (FILE, {"grid": '[grid]\n"workload.arrivals.path" = ["mine.csv"]', "requests": 2, **ALONE}, "make whole tables"),
    (f'{TRACE}, horizon = "steady", load = 1.5', {}, "the queue would only grow"),
]


@pytest.mark.parametrize(("arrivals", "parts", "words"), FAULTS)
def test_each_fault_of_a_file_with_times_is_one_line(refusal_of, arrivals, parts, words):
    assert words in refusal_of(arrivals, **parts)


def test_times_of_columns_of_any_name_are_read_in_their_unit(study_of, tmp_path):
    (tmp_path / "own.csv").write_text("asked,answered,at\n1,2,500\n3,4,1500\n5,6,1750\n")
    columns = 'prompt_column = "asked", output_column = "answered", time_column = "at", time_unit = "ms"'
    arrivals, output = arrivals_of(study_of(trace=f'{{ path = "own.csv", order = "replay", {columns} }}'))
    assert arrivals[0].tolist() == [0, 1, 1.25]
    assert output[0].tolist() == [2, 4, 6]


def test_times_that_are_not_one_for_each_row_are_refused(study_of, tmp_path):
    text = study_of().source.replace(study_of().workload["trace"]["packed_times"], packed_times(OWN[:50]))
    (tmp_path / "kept.toml").write_text(text)
    with pytest.raises(StudyError, match="packed_times has 50 times, and there are 120 rows"):
        read_study(tmp_path / "kept.toml")


def test_a_trace_that_is_a_list_is_refused_under_an_axis_of_tables_too():
    axis = {"workload.trace": [{"path": 5, "unheard_of": 1}]}
    with pytest.raises(StudyError, match=r'grid\."workload\.trace"'):
        parse_study({"workload": {"trace": ["a"]}, "server": {"slots": 4}, "grid": axis}, "x.toml")


def test_a_trace_at_its_own_times_needs_a_step_time_and_at_a_load_it_does_not(study_of, tmp_path):
    study_of()
    text = study_text(TRACE).replace("step_ms = 20\n", "")
    (tmp_path / "study.toml").write_text(text.replace(TRACE, f"{TRACE}, load = 0.5"))
    assert read_study(tmp_path / "study.toml")
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(StudyError, match=r"workload\.arrivals: is in seconds and needs a step time"):
        read_study(tmp_path / "study.toml")


@pytest.mark.parametrize("unit_s", [1e-9, 1e-7, 1e-3, 3.0])
def test_packed_times_come_back(unit_s):
    seconds = np.cumsum(np.concatenate([[0], np.random.default_rng(2).integers(0, 10**5, 400)])) * unit_s
    exact = np.rint(seconds * 1e9) / 1e9
    assert (unpacked_times(packed_times(exact)).seconds == exact).all()


def test_times_in_whole_steps_of_a_unit_pack_into_a_byte_or_two_each():
    seconds = np.cumsum(np.random.default_rng(2).exponential(0.2, 5_000)).round(3)
    assert len(packed_times(seconds - seconds[0])) < 2 * len(seconds)


@pytest.mark.parametrize("text", ["", "####", "eJwDAAAAAAE=", packed_times(np.zeros(3)), packed_times(np.zeros(1))])
def test_a_text_that_is_no_times_is_refused(text):
    with pytest.raises(InputError, match="is not what was written"):
        unpacked_times(text)


def test_gaps_of_moments_add_up_to_the_time_and_a_mean_gap():
    moments = moments_of((3.0, 3.5, 3.5, 6.0))
    assert moments.gap_ns().tolist() == [1e9, 5e8, 0, 2.5e9]
    assert moments.rate_per_s() == 1.0


def read_by_hand(name):
    """Times from 0, prompts and outputs of a file's requests with output, in order of time."""
    with (TRACES / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {
        "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        "burst": ("Timestamp", "Request tokens", "Response tokens"),
    }[name[:5]]
    found = [[row[column] for column in columns] for row in rows if int(row[columns[2]]) > 0]
    times = [datetime.fromisoformat(time[:26]).timestamp() if ":" in time else float(time) for time, _, _ in found]
    lengths = np.array([[int(prompt), int(output)] for _, prompt, output in found])
    return np.round(np.array(times) - times[0], 6), lengths[:, 0], lengths[:, 1]


@needs_traces
@pytest.mark.parametrize("name", ["azure-llm-2023-code.csv", "azure-llm-2023-conv.csv", "burstgpt-1-first400.csv"])
@pytest.mark.parametrize("scale", [None, 6.5])
def test_a_replay_of_a_real_trace_is_what_the_kernels_make_of_the_file(name, scale):
    times, prompt, output = read_by_hand(name)
    own = (len(times) - 1) / times[-1]
    arrivals = {"process": "trace"} | ({"rate_per_s": scale} if scale else {})
    trace = {"path": str(TRACES / name), "order": "replay"}
    server = {"slots": 16, "step_ms": 20.0}
    measure = ["static_s", "continuous_s", "arrival_rate_per_s", "arrival_gap_cv"]
    document = {"replicates": 1, "workload": {"trace": trace, "arrivals": arrivals}, "server": server}
    study = parse_study({**document, "measure": measure}, "replay.toml")
    assert study.resolved[0].workload.requests == len(times)
    results = sweep.run(study, report=False)
    row = results.replicates.collect().row(0, named=True)

    stretched = times * (own / scale if scale else 1.0)
    assert arrivals_of(study, count=1)[0][0] == pytest.approx(stretched, abs=1e-6)
    one = Requests(stretched[None], output[None], prompt[None], np.zeros((1, len(times))))
    for scheduler, kernel in (("static", static_times), ("continuous", continuous_times)):
        found = kernel(Constant(0.02), one, 16, charged=True)
        assert row[f"{scheduler}_steps"] == found.steps[0]
        assert row[f"{scheduler}_s"] == pytest.approx(span_s(found)[0])
    gaps = np.diff(times)
    assert row["arrival_rate_per_s"] == pytest.approx(scale or own)
    assert row["arrival_gap_cv"] == pytest.approx(gaps.std() / gaps.mean())


@needs_traces
@pytest.mark.parametrize("name", ["azure-llm-2023-code.csv", "mooncake-fast25-conversation-first4000.jsonl"])
def test_the_rate_and_cv_of_a_real_trace_are_the_known_ones_and_its_times_take_few_bytes(name):
    known = json.loads((TRACES / "expected.json").read_text())["files"][name]
    trace = {"path": str(TRACES / name)}
    document = {"workload": {"trace": trace, "arrivals": {"process": "trace"}}, "server": {"slots": 4, "step_ms": 20}}
    spec = parse_study(document, "x.toml").resolved[0].workload.trace
    assert spec.moments().rate_per_s() == pytest.approx(known["arrivals"]["rate_per_s"])
    assert spec.moments().gap_cv() == pytest.approx(known["arrivals"]["interarrival_cv"])
    assert len(spec.packed_times) < 4 * known["rows"]

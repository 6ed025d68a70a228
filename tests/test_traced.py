import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import sweep
from sweep.commands.replay import replay_in
from sweep.errors import InputError, StudyError
from sweep.grid import points
from sweep.manifest import manifest
from sweep.model.trace_pack import packed, unpacked
from sweep.results import Store
from sweep.rows.draws import outputs, workloads
from sweep.study import files, parse_study, read_study
from sweep.verify import verify

HEADER = "prompt_tokens,output_tokens\n"
ROWS = [(100 + at, 1 + at % 50 + 400 * (at // 20 % 2)) for at in range(200)]  # runs of 20 short and 20 long outputs
DRAWN = 'output = { distribution = "trace", path = "mine.csv" }'


def write(path, rows=ROWS):
    path.write_text(HEADER + "".join(f"{prompt},{output}\n" for prompt, output in rows))
    return path


def study_text(workload, grid="", server="slots = 4", requests=50):
    count = f"requests = {requests}\n" if requests else ""
    return f"replicates = 40\n[workload]\n{count}{workload}\n[server]\n{server}\n{grid}"


@pytest.fixture
def study_of(tmp_path):
    """Reads a study beside a trace of 200 requests; `changed` are other rows for it."""

    def read(workload=DRAWN, rows=ROWS, **parts):
        write(tmp_path / "mine.csv", rows)
        (tmp_path / "study.toml").write_text(study_text(workload, **parts))
        return read_study(tmp_path / "study.toml")

    return read


@pytest.fixture
def refusal_of(study_of):
    def refusal(*given, **parts):
        with pytest.raises(StudyError) as refused:
            study_of(*given, **parts)
        return [line.split("study.toml: ")[1] for line in refused.value.lines]

    return refusal


def trace(**keys):
    return (
        "trace = { "
        + ", ".join(f"{key} = {json.dumps(value)}" for key, value in {"path": "mine.csv", **keys}.items())
        + " }"
    )


def test_outputs_are_drawn_from_those_of_a_file_beside_the_study(study_of):
    study = study_of()
    (point,) = points(study)
    assert set(outputs(point.workload, 0, 40).ravel()) <= {output for _, output in ROWS}
    assert study.notes == ("mine.csv: 200 requests, read as csv",)


def test_prompts_can_be_drawn_instead(study_of):
    (point,) = points(study_of('output = { distribution = "trace", path = "mine.csv", of = "prompt" }'))
    assert outputs(point.workload, 0, 40).min() >= 100


def test_a_file_in_a_mixture_and_in_an_axis_is_read_too(study_of):
    mine, other = '{ distribution = "trace", path = "mine.csv" }', '{ distribution = "constant", value = 9999 }'
    half = f'{{ distribution = "mixture", parts = [{mine.replace("{", "{ weight = 0.5,")}, {other}] }}'
    axis = f'[grid."workload.output"]\nnames = ["mine", "half"]\nvalues = [{mine}, {half}]'
    study = study_of(f"output = {other}", grid=axis)
    alone, half = (outputs(point.workload, 0, 40) for point in points(study))
    assert alone.max() < 9999
    assert 0.4 < (half == 9999).mean() < 0.6


def test_a_results_folder_needs_no_file(study_of, tmp_path):
    study = study_of()
    sweep.run(study, tmp_path / "results", report=False)
    shown = replay_in(tmp_path / "results", 0, 3)
    (tmp_path / "mine.csv").unlink()
    moved = shutil.move(tmp_path / "results", tmp_path / "elsewhere")
    assert replay_in(Path(moved), 0, 3) == shown
    assert verify(Store.open(moved), 1).equal == 1
    assert sweep.read(moved).report().exists()


def test_the_study_kept_in_a_folder_gives_the_same_study(study_of, tmp_path):
    for workload in (DRAWN, trace(order="blocks")):
        study = study_of(workload)
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (tmp_path / "elsewhere" / "study.toml").write_text(study.source)
        again = read_study(tmp_path / "elsewhere" / "study.toml")
        assert points(again)[0].study == points(study)[0].study
        assert again.notes == ()


@pytest.mark.parametrize("workload", [DRAWN, trace()])
def test_rows_depend_on_the_lengths_and_not_on_the_name_of_the_file(study_of, tmp_path, workload):
    digest = points(study_of(workload))[0].study
    write(tmp_path / "other.csv")
    assert points(study_of(workload.replace("mine.csv", "other.csv")))[0].study == digest
    assert points(study_of(workload, rows=[*ROWS, (1, 77)]))[0].study != digest


def test_a_study_from_tables_reads_files_from_where_python_is(tmp_path, monkeypatch):
    write(tmp_path / "mine.csv")
    monkeypatch.chdir(tmp_path)
    document = {"workload": {"trace": {"path": "mine.csv"}}, "server": {"slots": 4}}
    study = parse_study(document, "tables")
    assert study.resolved[0].workload.requests == 200
    assert "rows" not in document["workload"]["trace"]


def test_rows_keep_prompt_and_output_together(study_of):
    kv = 'slots = 4\nkv = { policy = "paged", blocks = 4096 }'
    for order in ("rows", "blocks", "replay"):
        (point,) = points(study_of(trace(order=order), server=kv))
        found = workloads(point.workload, 0, 8)
        assert {*zip(found.prompts.ravel().tolist(), found.outputs.ravel().tolist(), strict=True)} <= {*ROWS}


def test_the_name_of_a_file_alone_is_short_for_a_table_with_its_path(study_of, tmp_path):
    long, short = study_of(trace()), study_of('trace = "mine.csv"')
    assert short.workload == long.workload
    assert manifest(short, points(short))["hash"] == manifest(long, points(long))["hash"]
    (tmp_path / "kept.toml").write_text(short.source)
    assert read_study(tmp_path / "kept.toml").workload == long.workload
    assert study_of('trace = "mine.csv"', requests=None).resolved[0].workload.requests == len(ROWS)


@pytest.mark.parametrize("given", ["5", "[]", '""', "true", "{}", '"absent.csv"'])
def test_a_trace_that_is_none_is_refused_in_a_line_of_its_own(refusal_of, given):
    (line,) = refusal_of(f"trace = {given}")
    assert line.startswith("workload.trace")


def test_without_a_number_of_requests_a_workload_is_as_long_as_the_file(study_of):
    assert study_of(trace(), requests=None).resolved[0].workload.requests == 200


def test_replay_of_all_requests_is_the_file_in_its_order_in_every_replicate(study_of):
    (point,) = points(study_of(trace(order="replay"), requests=None))
    assert (outputs(point.workload, 0, 3) == [output for _, output in ROWS]).all()


def test_replay_of_fewer_requests_is_a_stretch_of_the_file_from_any_row(study_of):
    (point,) = points(study_of(trace(order="replay")))
    own = [output for _, output in ROWS] * 2
    stretches = [own[start : start + 50] for start in range(200)]
    drawn = outputs(point.workload, 0, 40).tolist()
    assert all(row in stretches for row in drawn)
    assert len({stretches.index(row) for row in drawn}) > 20


def test_replay_of_more_requests_starts_again(study_of):
    (point,) = points(study_of(trace(order="replay"), requests=300))
    assert outputs(point.workload, 0, 1)[0].tolist() == [output for _, output in [*ROWS, *ROWS[:100]]]


def test_blocks_are_runs_of_rows_of_the_file(study_of):
    (point,) = points(study_of(trace(order="blocks", block=25)))
    own = [output for _, output in ROWS] * 2
    for row in outputs(point.workload, 0, 10):
        for block in (row[:25].tolist(), row[25:].tolist()):
            assert any(own[start : start + 25] == block for start in range(200))


def test_more_replicates_keep_the_earlier_ones_in_any_pieces(study_of):
    (point,) = points(study_of(trace(order="blocks", block=7)))
    whole = outputs(point.workload, 0, 40)
    assert (np.concatenate([outputs(point.workload, 0, 13), outputs(point.workload, 13, 27)]) == whole).all()


def test_neighbours_that_are_alike_spare_static_batching_and_blocks_keep_them_together(study_of, tmp_path):
    orders = '[grid]\n"workload.trace.order" = ["rows", "blocks", "replay"]'
    results = sweep.run(study_of(trace(block=20), grid=orders), tmp_path / "results", report=False)
    rows, blocks, replay = results.cells["multiple_mean"]
    assert rows > 1.2 * blocks
    assert blocks == pytest.approx(replay, rel=0.2)


def test_theory_speaks_of_independent_rows_only(study_of):
    def limits(order):
        study = study_of(trace(order=order))
        return [cell["limit_multiple"] for cell in manifest(study, points(study))["cells"]]

    assert limits("rows")[0] > 1
    assert limits("blocks") == limits("replay") == [None]


@pytest.mark.parametrize(
    ("workload", "line"),
    [
        (DRAWN.replace("mine", "absent"), "workload.output.path: "),
        (trace(path="absent.csv"), "workload.trace.path: "),
        (DRAWN.replace("mine.csv", "study.toml"), "workload.output.path: "),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_at_its_key(refusal_of, workload, line):
    lines = refusal_of(workload)
    assert len(lines) == 1
    assert lines[0].startswith(line)


def test_faults_of_files_stand_beside_the_others(refusal_of):
    lines = refusal_of(DRAWN.replace("mine", "absent"), server="slots = 0")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("workload", "parts", "problem"),
    [
        (trace() + '\noutput = { distribution = "constant", value = 1 }', {}, "leave out output and prompt"),
        (trace() + '\nprompt = { distribution = "constant", value = 1 }', {}, "leave out output and prompt"),
        (trace(order="sorted"), {}, "order: "),
        (trace(block=0), {}, "block: must be at least 1"),
        (trace(rows="abc"), {}, "is not what was written"),
        (trace(first="all"), {}, "first: must be a whole number"),
        (trace(), {"grid": '[grid]\n"workload.trace.path" = ["mine.csv", "study.toml"]'}, "make whole tables"),
        (DRAWN, {"grid": '[grid]\n"workload.output.path" = ["mine.csv", "study.toml"]'}, "make whole tables"),
        (DRAWN.replace(" }", ", values = [] }"), {}, "the file was not read"),
        (DRAWN.replace(" }", ", weights = [1], values = [1, 2] }"), {}, "1 weights for 2 values"),
    ],
)
def test_what_cannot_be_meant_is_refused(refusal_of, workload, parts, problem):
    assert any(problem in line for line in refusal_of(workload, **parts))


def test_a_trace_that_is_too_long_for_a_study_says_how_to_cut_it(refusal_of, monkeypatch):
    monkeypatch.setattr(files, "MOST_ROWS", 100)
    (line,) = refusal_of(trace())
    assert "200 requests; a study holds 100: set first = 100" in line


def test_first_cuts_a_file(study_of):
    assert study_of(trace(first=30), requests=None).resolved[0].workload.requests == 30


def test_packed_requests_come_back():
    rng = np.random.default_rng(1)
    prompt, output = rng.integers(0, 2**31, 100), rng.integers(0, 300, 100)
    found = unpacked(packed(prompt, output))
    assert (found.prompt_tokens == prompt).all()
    assert (found.output_tokens == output).all()


@pytest.mark.parametrize("text", ["", "abc", "eJwDAAAAAAE=", "####"])
def test_a_text_that_is_no_requests_is_refused(text):
    with pytest.raises(InputError):
        unpacked(text)


def test_the_page_cuts_the_packed_rows_short(study_of, tmp_path):
    rng = np.random.default_rng(1)
    rows = [(int(prompt), int(output)) for prompt, output in rng.integers(1, 5000, (800, 2))]
    results = sweep.run(study_of(trace(), rows=rows), tmp_path / "results")
    page = (results.folder / "report.html").read_text()
    assert "letters more in study.toml" in page
    assert results.manifest["study"]["workload"]["trace"]["rows"] not in page

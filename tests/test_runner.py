import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import continuous_finishes, static_finishes
from small import PROGRAM, STUDY, bytes_of, study

import sweep
from sweep.errors import FolderError, InputError
from sweep.grid import points
from sweep.metrics import ALWAYS
from sweep.model.lengths import look_up_of
from sweep.model.lockstep import draw_lengths
from sweep.record import manifest_bytes
from sweep.results import Store
from sweep.runner import BLOCK, MOST_ROWS, chunk_replicates, chunks
from sweep.shards import Span
from sweep.study import parse_study


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of three blocks, so that a thousand replicates are several shards and the last is partial."""
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    monkeypatch.setattr("sweep.runner.BLOCK", 128)


# ---- chunks


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.sets(st.integers(0, 40)))
def test_chunks_cover_each_missing_replicate_once_and_end_at_whole_blocks(want, present):
    (point, *_) = points(study())
    whole = list(chunks([point], (), {0: want}))
    have = [Span(0, chunk.first, chunk.stop) for place, chunk in enumerate(whole) if place in present]
    missing = list(chunks([point], have, {0: want}))
    covered = sorted([*((span.first, span.stop) for span in have), *((chunk.first, chunk.stop) for chunk in missing)])
    assert covered[0][0] == 0
    assert covered[-1][1] == want
    assert all(stop == first for (_, stop), (first, _) in pairwise(covered))
    assert all(chunk.stop % BLOCK == 0 or chunk.stop == want for chunk in missing)


def test_more_replicates_simulate_only_the_last_partial_chunk_again():
    (point, *_) = points(study())
    have = [Span(0, chunk.first, chunk.stop) for chunk in chunks([point], (), {0: 200})]
    again = list(chunks([point], have, {0: 400}))
    assert [(chunk.first, chunk.stop) for chunk in again] == [(128, 256), (256, 384), (384, 400)]


def test_a_chunk_is_at_most_a_million_rows_and_at_least_a_block(monkeypatch):
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 1e18)
    for point in points(study()):
        assert chunk_replicates(point) * len(point.cells) <= MOST_ROWS
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    assert chunk_replicates(point) == BLOCK


# ---- rows


def test_every_row_is_what_the_literal_loop_makes_of_its_workload(tmp_path):
    rows = sweep.run(study(replicates=3), tmp_path).replicates.collect()
    assert rows.select("cell", "replicate").rows() == [(cell, replicate) for cell in range(6) for replicate in range(3)]
    for point in points(study()):
        lengths = draw_lengths(look_up_of(point.workload.output), 37, 0, 3, point.workload.requests).tolist()
        for cell in point.cells:
            for replicate in range(3):
                row = rows.row(
                    by_predicate=(pl.col("cell") == cell.index) & (pl.col("replicate") == replicate), named=True
                )
                static = static_finishes(lengths[replicate], cell.slots)[0]
                continuous = continuous_finishes(lengths[replicate], cell.slots)[0]
                tokens = sum(lengths[replicate])
                assert row == {
                    "cell": cell.index,
                    "replicate": replicate,
                    "output_tokens": tokens,
                    "static_steps": static,
                    "continuous_steps": continuous,
                    "multiple": static / continuous,
                    "static_utilisation": tokens / (static * cell.slots),
                    "continuous_utilisation": tokens / (continuous * cell.slots),
                }


def test_columns_are_counts_and_floats_in_one_schema_with_what_measure_asks_for(tmp_path):
    measure = ["multiple_s", "longest_output_tokens"]
    results = sweep.run(study(measure=measure, replicates=200), tmp_path)
    schema = results.replicates.collect_schema()
    assert list(schema) == ["cell", "replicate", *ALWAYS, *measure]
    counts = {"cell", "replicate", "output_tokens", "static_steps", "continuous_steps", "longest_output_tokens"}
    assert all(kind == (pl.Int64 if name in counts else pl.Float64) for name, kind in schema.items())
    assert {tuple(pl.read_parquet_schema(path).items()) for path in tmp_path.glob("replicates/*")} == {
        tuple(schema.items())
    }
    rows = results.replicates.collect()
    assert np.allclose(rows["multiple_s"], rows["multiple"], rtol=1e-15)


def test_what_is_undefined_is_null(tmp_path):
    empty = {"requests": 5, "output": {"distribution": "constant", "value": 0}}
    results = sweep.run(study(workload=empty, grid={}, replicates=2), tmp_path)
    row = results.replicates.collect().row(0, named=True)
    assert (row["static_steps"], row["continuous_steps"], row["output_tokens"]) == (0, 0, 0)
    assert row["multiple"] is row["static_utilisation"] is row["continuous_utilisation"] is None


def test_a_cell_in_which_nothing_fits_is_a_row_with_a_reason_and_the_others_go_on(tmp_path):
    server = {"slots": "memory", "context": 1, "memory": {"budget": "1 GiB", "kv_per_token": "1 MiB"}}
    results = sweep.run(study(server=server, grid={"server.context": [256, 2048]}, replicates=10), tmp_path)
    fits, fails = results.cells.rows(named=True)
    assert (fits["slots"], fits["replicates"], fits["error"]) == (4, 10, None)
    assert (fails["slots"], fails["replicates"], fails["multiple_mean"]) == (0, 0, None)
    assert fails["error"] == "a request of 2,048 tokens needs 2 GiB, the budget is 1 GiB"
    assert set(results.replicates.collect()["cell"]) == {0}


# ---- the same bytes


def test_bytes_depend_on_neither_threads_nor_processes_nor_the_order_of_work(tmp_path):
    for jobs in (1, 2, 5):
        sweep.run(study(), tmp_path / f"threads{jobs}", jobs=jobs, report=False)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        sweep.run(study(), tmp_path / "processes", executor=executor, report=False)
    subprocess.run([*PROGRAM, json.dumps(STUDY), str(tmp_path / "second")], check=True)
    (first, *others) = [bytes_of(folder) for folder in sorted(tmp_path.iterdir())]
    assert len(first) == 17
    assert all(other == first for other in others)


def test_rows_of_more_replicates_begin_with_those_of_fewer(tmp_path):
    few = sweep.run(study(replicates=300), tmp_path / "few").replicates.collect()
    many = sweep.run(study(replicates=900), tmp_path / "many").replicates
    assert many.filter(pl.col("replicate") < 300).collect().equals(few)


@pytest.mark.parametrize(("before", "after"), [(300, 900), (900, 300), (256, 1000), (1000, 1000)])
def test_a_folder_run_again_with_other_replicates_is_that_of_one_run(tmp_path, before, after):
    sweep.run(study(replicates=before), tmp_path / "twice", report=False)
    again = sweep.run(study(replicates=after), tmp_path / "twice", report=False)
    once = sweep.run(study(replicates=after), tmp_path / "once", report=False)
    assert again.replicates.collect().equals(once.replicates.collect())
    assert bytes_of(tmp_path / "twice")["cells.parquet"] == bytes_of(tmp_path / "once")["cells.parquet"]
    if after >= before:
        assert bytes_of(tmp_path / "twice") == bytes_of(tmp_path / "once")


def test_a_run_that_is_killed_goes_on_to_the_same_bytes(tmp_path):
    long = {**STUDY, "replicates": 60_000}
    command = [*PROGRAM, json.dumps(long), str(tmp_path / "killed")]
    running = subprocess.Popen(command)
    shards = tmp_path / "killed" / "replicates"
    while running.poll() is None and (not shards.exists() or len(list(shards.glob("*.parquet"))) < 20):
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    finished = len(Store.open(tmp_path / "killed").have())
    assert 0 < finished < 2 * -(-60_000 // 128)
    subprocess.run(command, check=True)
    subprocess.run([*command[:-1], str(tmp_path / "whole")], check=True)
    assert bytes_of(tmp_path / "killed") == bytes_of(tmp_path / "whole")


# ---- the folder


def test_a_changed_study_is_refused_with_the_keys_that_differ_unless_fresh(tmp_path):
    sweep.run(study(), tmp_path, report=False)
    with pytest.raises(FolderError) as error:
        sweep.run(study(seed=38, server={"slots": 4, "step_ms": 21}), tmp_path, report=False)
    assert any("seed: 37 there, 38 now" in text for text in error.value.lines)
    assert any("server.step_ms: 20 there, 21 now" in text for text in error.value.lines)
    assert len(error.value.lines) == 3
    again = sweep.run(study(seed=38), tmp_path, fresh=True, report=False)
    assert again.manifest["seed"] == 38


def test_a_folder_from_before_a_change_of_what_rows_mean_is_refused(tmp_path, monkeypatch):
    sweep.run(study(replicates=10), tmp_path, report=False)
    monkeypatch.setattr("sweep.study.SEMANTICS", 1_000_000)
    with pytest.raises(FolderError) as error:
        sweep.run(study(replicates=10), tmp_path, report=False)
    assert any("semantics: " in text and "1000000 now" in text for text in error.value.lines)


def test_title_claims_and_replicates_may_change_in_a_folder(tmp_path):
    sweep.run(study(), tmp_path, report=False)
    claim = {"text": "never slower", "metric": "multiple", "at_least": 1, "of": "every"}
    again = sweep.run(study(title="other", claims=[claim], replicates=1100), tmp_path, report=False)
    assert [verdict.verdict for verdict in again.check()] == ["holds"] * 6


def test_two_runs_cannot_write_in_one_folder(tmp_path):
    nothing = {"shards": [], "hash": "", "points": []}
    with Store.writing(tmp_path, nothing, ""), pytest.raises(FolderError, match="another run is writing here"):
        sweep.run(study(), tmp_path)


@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_damaged_shard_is_simulated_again(tmp_path, harm):
    sweep.run(study(), tmp_path, report=False)
    whole = bytes_of(tmp_path)
    victim = sorted(tmp_path.glob("replicates/*.parquet"))[3]
    data = bytearray(victim.read_bytes())
    if harm == "gone":
        victim.unlink()
    else:
        data[50] ^= 1
        victim.write_bytes(data[: 100 if harm == "cut" else None])
    assert Store.open(tmp_path).damaged == [f"replicates/{victim.name}"]
    sweep.run(study(), tmp_path, report=False)
    assert bytes_of(tmp_path) == whole


def test_stray_files_are_ignored(tmp_path):
    sweep.run(study(), tmp_path / "clean", report=False)
    (tmp_path / "messy" / "replicates").mkdir(parents=True)
    (tmp_path / "messy" / "replicates" / "notes.parquet").write_bytes(b"not ours")
    (tmp_path / "messy" / "replicates" / ".p00000.part").write_bytes(b"half")
    results = sweep.run(study(), tmp_path / "messy", report=False)
    assert results.replicates.collect().equals(sweep.read(tmp_path / "clean").replicates.collect())


def test_a_manifest_cannot_name_a_file_outside_its_folder(tmp_path):
    sweep.run(study(), tmp_path / "a", report=False)
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    victim = tmp_path / "elsewhere.parquet"
    shutil.copy(tmp_path / "a" / manifest["shards"][0]["file"], victim)
    manifest["shards"][0]["file"] = "../elsewhere.parquet"
    del manifest["checksum"]
    (tmp_path / "a" / "manifest.json").write_bytes(manifest_bytes(manifest))
    assert "../elsewhere.parquet" in Store.open(tmp_path / "a").damaged
    sweep.run(study(), tmp_path / "a", report=False)
    assert victim.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderError, match="cannot be written: Permission denied"):
        sweep.run(study(), tmp_path / "new")


def test_a_file_in_place_of_the_folder_is_said_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FolderError, match=r"cannot be written: (Not a directory|File exists)"):
        sweep.run(study(), tmp_path / "taken")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FolderError) as error:
        sweep.read(tmp_path)
    assert len(error.value.lines) == 1
    assert "manifest.json" in error.value.lines[0]


# ---- precision


def test_precision_adds_rounds_until_every_cell_of_a_point_meets_it(tmp_path):
    precision = {"metric": "multiple", "half_width": 0.03, "min_replicates": 256, "max_replicates": 100_000}
    asked = {key: value for key, value in STUDY.items() if key != "replicates"} | {"precision": precision}
    results = sweep.run(parse_study(asked, "small.toml"), tmp_path, report=False)
    half = (results.cells["multiple_ci_high"] - results.cells["multiple_ci_low"]) / 2
    assert (half <= 0.03).all()
    replicates = results.cells["replicates"].to_list()
    assert all(n % 256 == 0 and n < 100_000 for n in replicates)
    for point in results.manifest["points"]:  # one round fewer would not have been enough
        fewer = point["replicates"] // 2
        cells = results.replicates.filter(pl.col("cell").is_in(point["cells"]), pl.col("replicate") < fewer)
        widths = 1.96 * cells.group_by("cell").agg(pl.col("multiple").std() / fewer**0.5).collect()["multiple"]
        assert widths.max() > 0.03


def test_precision_stops_at_its_most_replicates(tmp_path):
    precision = {"metric": "multiple", "half_width": 1e-9, "min_replicates": 100, "max_replicates": 300}
    asked = {key: value for key, value in STUDY.items() if key != "replicates"} | {"precision": precision}
    assert set(sweep.run(parse_study(asked, "small.toml"), tmp_path).cells["replicates"]) == {300}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"jobs": 0}, "jobs: must be a whole number of at least 1, got 0"),
        ({"jobs": 1.5}, "jobs: must be a whole number"),
        ({"keep": "x"}, 'keep: must be "rows" or "summary"'),
        ({"study": None}, "study: must be a Study, the path of a file or a dict of its tables, got None"),
    ],
)
def test_what_run_cannot_use_is_said_in_one_line(wrong, says):
    arguments = {"study": study(), **wrong}
    with pytest.raises(InputError) as error:
        sweep.run(**arguments)
    assert len(error.value.lines) == 1
    assert says in error.value.lines[0]


def test_a_folder_kept_the_other_way_is_said_as_such(tmp_path):
    sweep.run(study(), tmp_path, keep="summary", report=False)
    with pytest.raises(FolderError, match="was kept as summary; go on with --keep summary") as error:
        sweep.run(study(), tmp_path, report=False)
    assert len(error.value.lines) == 1

"""What a folder says of itself: its state, and whether its shards are what its study gives."""

import hashlib
import json
import shutil

import polars as pl
import pytest
from small import study

import sweep
from sweep.errors import FolderError
from sweep.record import manifest_bytes, read_manifest
from sweep.results import Store
from sweep.shards import shard_bytes


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one block, so that a thousand replicates are several shards and the last is partial."""
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished folder."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.runner.CHUNK_NS", 0.0)
        sweep.run(study(), folder, report=False)
    return folder


def changed(folder, number, change):
    """Exchanges a shard for one with other rows, entered in the manifest as if it had been simulated."""
    manifest = read_manifest(folder)
    entry = manifest["shards"][number]
    path = folder / entry["file"]
    metadata = {key: text for key, text in pl.read_parquet_metadata(path).items() if key.startswith("sweep.")}
    data = shard_bytes(*change(pl.read_parquet(path), metadata))
    path.unlink()
    entry["sha256"] = hashlib.sha256(data).hexdigest()
    entry["file"] = f"{entry['file'].rpartition('-')[0]}-{entry['sha256'][:16]}.parquet"
    (folder / entry["file"]).write_bytes(data)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


# ---- manifest.json


def test_a_manifest_is_read_as_it_was_written_and_any_other_byte_is_noticed(tmp_path, whole):
    data = (whole / "manifest.json").read_bytes()
    assert manifest_bytes(read_manifest(whole)) == data
    for place in range(0, len(data), 97):
        (tmp_path / "manifest.json").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(FolderError):
            read_manifest(tmp_path)


# ---- status


def test_status_counts_workloads_done_and_left(tmp_path, whole):
    state = sweep.read(whole).status()
    assert (state["done"], state["left"], state["shards"]) == (2000, 0, 16)
    shutil.copytree(whole, tmp_path / "run")
    victim = next((tmp_path / "run" / "replicates").glob("p00001-000000000128*"))
    victim.write_bytes(b"")
    state = sweep.read(tmp_path / "run").status()
    assert (state["done"], state["left"]) == (2000 - 128, 128)
    assert [point["left"] for point in state["points"]] == [0, 128]
    assert state["damaged"] == [f"replicates/{victim.name}"]
    assert json.loads(json.dumps(state)) == state


def test_status_of_a_run_that_was_killed_at_once_counts_everything_as_left(tmp_path, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.runner.execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(study(), tmp_path, report=False)
    state = sweep.read(tmp_path).status()
    assert (state["done"], state["left"]) == (0, 2000)


def test_status_expects_nothing_of_a_cell_that_cannot_run(tmp_path):
    server = {"slots": "memory", "context": 1, "memory": {"budget": "1 GiB", "kv_per_token": "1 MiB"}}
    results = sweep.run(study(server=server, grid={"server.context": [256, 2048]}), tmp_path, report=False)
    state = results.status()
    assert state["left"] == 0
    assert [cell["cell"] for cell in state["cannot_run"]] == [1]


# ---- verify


def test_shards_simulated_again_have_the_same_bytes(whole):
    found = sweep.read(whole).verify(sample=100)
    assert (found.shards, found.sample, found.equal, found.differences) == (16, 16, 16, ())


def test_verify_chooses_by_its_seed(whole):
    results = sweep.read(whole)
    assert results.verify(3, seed=1) == results.verify(3, seed=1)
    assert results.verify(3).seed != results.verify(3).seed


def test_verify_finds_a_row_that_no_simulation_gave(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    static = pl.col("static_steps")
    wrong = pl.when(pl.col("replicate") == 5, pl.col("cell") == 2).then(static + 1).otherwise(static)
    changed(tmp_path / "run", 0, lambda frame, metadata: (frame.with_columns(static_steps=wrong), metadata))
    assert Store.open(tmp_path / "run").damaged == []
    (difference,) = sweep.read(tmp_path / "run").verify(100).differences
    assert "static_steps differs in 1 rows, first at cell 2, replicate 5" in difference


def test_verify_compares_rows_where_other_versions_wrote_the_shard(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    other = {"sweep.versions": json.dumps({"polars": "0.0.1"})}
    changed(tmp_path / "run", 0, lambda frame, metadata: (frame, metadata | other))
    found = sweep.read(tmp_path / "run").verify(100)
    assert (found.equal, found.equal_rows, found.differences) == (15, 1, ())


def test_verify_refuses_a_study_that_is_not_that_of_the_shards(tmp_path, whole):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "study.toml").write_text(study(seed=5).source)
    with pytest.raises(FolderError, match=r"study.toml: is not the study of the shards"):
        sweep.read(tmp_path / "run").verify()

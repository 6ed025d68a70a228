"""Input from files, at random: used, or refused in lines that can be printed; no traceback, no hang, no memory.

Some 2,000 inputs each time, 100,000 by `pytest -m slow tests/test_fuzz.py`.
"""

import copy
import json
import resource
import shutil
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import STUDY, study
from test_reliability import run_cli

import sweep
from sweep.errors import FolderError, SweepError
from sweep.grid import points
from sweep.manifest import manifest
from sweep.model.models import read_model
from sweep.model.trace_summary import figures, summarise
from sweep.results import Store
from sweep.study import parse_study, read_study

MOST_BYTES = 2**30
SLOWEST = timedelta(seconds=30)
INPUTS = [400, pytest.param(20_000, marks=pytest.mark.slow)]

SERVED = {
    **STUDY,
    "workload": {
        **STUDY["workload"],
        "prompt": {"distribution": "lognormal", "mean": 40, "cv": 1},
        "shared_prefix": {"tokens": 16},
    },
    "server": {"slots": 4, "kv": {"policy": "paged", "block_size": 16, "blocks": 400, "token_budget": 512}},
    "grid": {"server.slots": [4, 16]},
    "claims": [{"text": "c", "metric": "multiple", "at_least": 1, "of": {"share": 0.5}, "where": {"slots": 4}}],
    "measure": ["preemptions"],
}
BY_MEMORY = {
    **STUDY,
    "server": {"slots": "memory", "context": 512, "memory": {"budget": "1 GiB", "kv_per_token": "16 KiB"}},
    "grid": {"server.context": [512, 1024], "workload.output.parts.1.weight": {"start": 0.1, "stop": 0.5, "num": 3}},
    "charts": [{"kind": "lines", "x": "context", "metric": "multiple"}],
}
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
}
TRACE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9,12,0\n"
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "memory", "1 GiB", "\x1b[31m", "../../x", "nan", "trace", "a.b", "1e400", "9" * 400]),
    st.lists(st.integers(-2, 10), max_size=4),
    st.dictionaries(st.sampled_from(["distribution", "value", "low", "high", "path", "x"]), st.integers(), max_size=3),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5), st.binary(max_size=6)), min_size=1, max_size=5)


def edited(data, edits):
    """Bytes with parts exchanged, put in, taken out, doubled, and the end cut off."""
    for place, kind, some in edits:
        at = int(place * len(data))
        ways = (
            data[:at] + some + data[at + len(some) :],
            data[:at] + some + data[at:],
            data[:at] + data[at + 7 :],
            data[:at] + data[at : at + 40] * 2 + data[at + 40 :],
            data[:at],
            data[: max(at - 1, 0)] + bytes(b ^ 1 for b in data[max(at - 1, 0) : at]) + data[at:],
        )
        data = ways[kind]
    return data


@st.composite
def changed(draw, documents):
    """A document in which some values are exchanged for junk, or taken away, or given another name."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        table, key = _somewhere(draw, document)
        how = draw(st.integers(0, 3))
        if how == 0 and isinstance(table, dict):
            table[draw(st.text(max_size=12))] = table.pop(key)
        elif how == 1:
            del table[key]
        else:
            table[key] = draw(JUNK)
        if not document:
            break
    return document


def _somewhere(draw, document):
    table = document
    while True:
        keys = sorted(table, key=str) if isinstance(table, dict) else list(range(len(table)))
        key = draw(st.sampled_from(keys))
        inner = table[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 2)) == 0:
            return table, key
        table = inner


def fuzz(inputs, strategy, use):
    """Uses so many inputs; each is used or refused in printable lines, in time, and all within the memory there is."""

    @settings(
        max_examples=inputs,
        deadline=SLOWEST,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(given_input):
        assert all(line.isprintable() for line in refused(use, given_input))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert grown < MOST_BYTES


def refused(use, given_input):
    """The lines with which an input is refused; none where it is used."""
    try:
        use(given_input)
    except SweepError as error:
        return error.lines
    return ()


def resolved(one):
    """The study as far as a manifest."""
    json.dumps(manifest(one, points(one)))


# ---- study files


@pytest.mark.parametrize("inputs", INPUTS)
def test_bytes_of_a_study_file(tmp_path, inputs):
    seeds = [tomlkit.dumps(document).encode() for document in (STUDY, SERVED, BY_MEMORY)]

    def use(given_input):
        (tmp_path / "study.toml").write_bytes(edited(*given_input))
        resolved(read_study(tmp_path / "study.toml"))

    fuzz(inputs, st.tuples(st.sampled_from(seeds), EDITS), use)


@pytest.mark.parametrize("inputs", INPUTS)
def test_tables_of_a_study(inputs):
    fuzz(inputs, changed([STUDY, SERVED, BY_MEMORY]), lambda document: resolved(parse_study(document, "study.toml")))


# ---- model configurations and traces


@pytest.mark.parametrize("inputs", INPUTS)
def test_model_configurations(tmp_path, inputs):
    path = tmp_path / "config.json"

    def use(given_input):
        path.write_bytes(edited(json.dumps(given_input[0]).encode(), given_input[1]))
        read_model(path)

    fuzz(inputs, st.tuples(changed([CONFIG]), st.one_of(st.just([]), EDITS)), use)


@pytest.mark.parametrize("inputs", INPUTS)
def test_traces(tmp_path, inputs):
    path = tmp_path / "trace.csv"
    rows = json.dumps({"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}).encode() + b"\n"

    def use(given_input):
        path.write_bytes(edited(*given_input))
        figures(summarise(path))

    fuzz(inputs, st.tuples(st.sampled_from([TRACE * 3, rows * 3]), EDITS), use)


# ---- results folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished folder."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.runner.CHUNK_NS", 0.0)
        sweep.run(study(replicates=200, claims=SERVED["claims"]), place, report=False)
    return place


@pytest.mark.parametrize("inputs", INPUTS)
def test_manifests(tmp_path, folder, inputs):
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    data = path.read_bytes()

    def use(given_input):
        document, edits = given_input
        changed_bytes = edited(data if document is None else json.dumps(document).encode(), edits)
        path.write_bytes(changed_bytes)
        if changed_bytes != data:
            with pytest.raises(FolderError) as error:
                Store.open(tmp_path / "run")
            raise error.value
        sweep.read(tmp_path / "run").check()

    documents = st.one_of(st.none(), changed([json.loads(data)]))
    fuzz(inputs, st.tuples(documents, st.one_of(EDITS, st.just([]))), use)


@pytest.mark.parametrize("inputs", [100, pytest.param(20_000, marks=pytest.mark.slow)])
def test_shards(tmp_path, folder, inputs):
    shutil.copytree(folder, tmp_path / "run")
    shards = sorted((tmp_path / "run" / "replicates").iterdir())
    whole = {path: path.read_bytes() for path in shards}

    def use(given_input):
        path, edits = given_input
        path.write_bytes(edited(whole[path], edits))
        results = sweep.read(tmp_path / "run")
        assert results.damaged == ([] if path.read_bytes() == whole[path] else [f"replicates/{path.name}"])
        results.check()
        results.status()
        path.write_bytes(whole[path])

    fuzz(inputs, st.tuples(st.sampled_from(shards), EDITS), use)


# ---- hostile words

TO_TERMINALS = ["\x1b[31mred\x1b]0;title\x07", "\u202eesrever \u2066", "a\nb\r\tc\x00d", "%s%n{0}[red]"]
TO_PAGES = ["<script>alert(1)</script><img src=x onerror=alert(1)>", "../../../outside", "]]>&amp;\"'`$(touch x){{x}}"]


@pytest.mark.parametrize("words", [TO_TERMINALS, TO_PAGES])
def test_hostile_words_stay_in_the_folder_and_reach_neither_page_nor_terminal_as_they_are(
    tmp_path, monkeypatch, capsys, words
):
    word = "".join(words)
    claim = {"text": word, "metric": "multiple", "at_least": 5, "of": "mean"}
    parts = [[{"weight": 1.0, "distribution": "uniform", "low": 1, "high": 9 + n}] for n, _ in enumerate(words)]
    grid = {"workload.output.parts": {"name": "kind", "names": words, "values": parts}, "server.slots": [2, 4]}
    asked = {**STUDY, "title": word, "question": word, "claims": [claim], "grid": grid, "replicates": 10}
    name = word.replace("/", "_").replace("\x00", "")
    inside = tmp_path / "inside" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    Path(f"{name}.toml").write_text(tomlkit.dumps(asked), newline="")
    assert run_cli(monkeypatch, "run", f"{name}.toml") == 0
    for command in ("report", "status", "check", "verify"):
        assert run_cli(monkeypatch, command, f"results/{name}") in (0, 1)
    said = capsys.readouterr()
    assert all(char.isprintable() or char == "\n" for char in said.out + said.err)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in inside.parent.iterdir()] == ["deep"]
    assert {path.name for path in inside.iterdir()} == {f"{name}.toml", "results"}
    page = (inside / "results" / name / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page


@pytest.mark.parametrize("name", ["...toml", "..", "."])
def test_a_study_whose_name_leads_out_of_the_results_needs_a_folder(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    if name.endswith("toml"):
        Path(name).write_text(study(replicates=10).source)
    assert run_cli(monkeypatch, "run", name) == 2
    assert capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()

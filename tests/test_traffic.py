import gzip
import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sweep import api, cli
from sweep.commands import traffic
from sweep.errors import InputError, SweepError
from sweep.model.profiles import built_in_profiles

SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces"
EXPECTED = json.loads((SHARED / "expected.json").read_text()) if SHARED.exists() else {"files": {}}
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")
HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def write(path, outputs, prompt=100):
    rows = "".join(f"{at / 2},{prompt},{tokens}\n" for at, tokens in enumerate(outputs))
    path.write_text(HEADER + rows)
    return path


def shuffled(outputs):
    random.Random(1).shuffle(outputs)
    return outputs


@pytest.fixture
def mixed(tmp_path):
    """A file of short and long requests in no order."""
    return write(tmp_path / "mixed.csv", shuffled([10] * 360 + [300] * 40))


def asked(**given):
    return traffic.Asked(reading={}, **given)


def answer(path, **given):
    return traffic.answer(str(path), asked(**given), Console(file=io.StringIO()))


def sweep(*words, stdin=b""):
    return subprocess.run([sys.executable, "-m", "sweep", *words], capture_output=True, input=stdin, check=False)


def in_process(monkeypatch, *words):
    """The exit status of the command line."""
    monkeypatch.setattr(sys, "argv", ["sweep", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


@needs_shared
def test_json_has_the_steps_that_a_loop_over_steps_takes():
    file = "azure-llm-2023-code.csv"
    done = sweep("trace", str(SHARED / file), "--json", "--first", "2000", "--slots", "16,64")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    keys = ("slots", "static_steps", "continuous_steps")
    expected = [[servers[key] for key in keys] for servers in EXPECTED["files"][file]["golden_first_2000"]["slots"]]
    assert [[row[key] for key in keys] for row in found["in_file_order"]] == expected


@needs_shared
def test_a_data_set_of_servegen_is_refused_by_name():
    done = sweep("trace", str(SHARED / "servegen-m-small-chunk-15-dataset.json"))
    assert done.returncode == 2
    assert b"ServeGen" in done.stderr


def test_json_is_the_figures_of_the_trace_at_16_and_64_slots(mixed):
    found = json.loads(sweep("trace", str(mixed), "--json").stdout)
    assert [row["slots"] for row in found["in_file_order"]] == [16, 64]
    keys = {"format", "rows", "requests", "dropped", "prompt", "output", "arrivals", "in_file_order"}
    assert keys <= found.keys()
    assert "memory" not in found


def test_json_has_the_estimates_of_the_text_for_the_slots_asked_for(mixed):
    found = json.loads(sweep("trace", str(mixed), "--json", "--slots", "4,8").stdout)
    cells = answer(mixed, slots=[4, 8]).drawn.cells
    for resampled, limit, cell in zip(found["resampled"], found["limit"], cells.iter_rows(named=True), strict=True):
        assert resampled["slots"] == limit["slots"] == cell["slots"]
        assert resampled["ci_low"] < resampled["multiple_mean"] < resampled["ci_high"]
        assert [resampled[key] for key in ("multiple_mean", "ci_low", "ci_high")] == [
            cell[f"multiple_{name}"] for name in ("mean", "ci_low", "ci_high")
        ]
        assert limit["multiple"] == cell["limit_multiple"]


def test_the_text_has_lengths_arrivals_and_the_multiple_three_ways(mixed):
    said = traffic.text(answer(mixed))
    for words in ("400 requests", "prompt", "output", "correlation", "arrivals: 2", "busiest minute", "limit"):
        assert words in said
    assert said.count("\n  256 ") == 1


def test_equal_outputs_gain_nothing_in_file_order_drawn_and_in_the_limit(tmp_path):
    found = answer(write(tmp_path / "equal.csv", [50] * 64), slots=[4, 16])
    assert [row["multiple"] for row in found.figures["in_file_order"]] == [1, 1]
    assert found.drawn.cells["multiple_mean"].to_list() == [1, 1]
    assert found.drawn.cells["limit_multiple"].to_list() == [1, 1]


def test_a_shuffled_file_lies_among_the_workloads_drawn_from_it_and_a_sorted_one_below(tmp_path, mixed):
    assert "no more than chance" in traffic.text(answer(mixed, slots=[4, 8]))
    ordered = write(tmp_path / "sorted.csv", sorted([10] * 360 + [300] * 40))
    assert "less than nine in ten of them at 4, 8 slots: neighbours in the file are alike" in traffic.text(
        answer(ordered, slots=[4, 8])
    )


def test_workloads_are_as_long_as_the_file(mixed):
    assert answer(mixed, slots=[4]).drawn.requests == 400


def test_a_model_and_a_gpu_say_how_many_requests_fit_and_one_alone_is_refused(mixed):
    found = answer(mixed, slots=[4], model="Llama-3.1-8B-Instruct", gpu="A100-SXM-80GB")
    assert [fit.tokens for fit in found.memory] == [139, 400, 400, 400]
    counts = [fit.requests_that_fit for fit in found.memory]
    assert counts == sorted(counts, reverse=True)
    assert "fit at once" in traffic.text(found)
    with pytest.raises(InputError, match="give both"):
        answer(mixed, gpu="A100-SXM-80GB")


def test_the_page_shows_lengths_and_multiples_and_is_made_again_without_the_file(tmp_path, mixed):
    folder = tmp_path / "page"
    answer(mixed, slots=[4, 16], folder=folder)
    mixed.unlink()
    page = folder / "report.html"
    before = page.read_bytes()
    assert b"Half of the outputs are at most 10 tokens" in before
    assert b"In file order the multiple reaches" in before
    page.unlink()
    api.read(folder).report()
    assert page.read_bytes() == before


def test_a_second_page_of_a_trace_replaces_the_first_and_never_a_study(tmp_path, mixed):
    folder = tmp_path / "page"
    answer(mixed, slots=[4], folder=folder)
    answer(mixed, slots=[4, 8], folder=folder)
    assert api.read(folder).cells["slots"].to_list() == [4, 8]
    (folder / "trace.json").unlink()
    with pytest.raises(SweepError, match="holds the results of a study"):
        answer(mixed, slots=[4], folder=folder)


def test_a_damaged_trace_json_is_said_in_a_line(tmp_path, mixed):
    folder = tmp_path / "page"
    answer(mixed, slots=[4], folder=folder)
    (folder / "trace.json").write_text("{}")
    with pytest.raises(SweepError, match="damaged"):
        api.read(folder).report()


def test_standard_input_is_read_for_a_dash(mixed):
    done = sweep("trace", "-", "--slots", "4", stdin=mixed.read_bytes())
    assert done.returncode == 0
    assert done.stdout.startswith(b"standard input: 400 rows")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{folder}"], "directory"),
        (["{cut}"], "cut short"),
        (["{junk}"], "neither text nor Parquet"),
        (["{empty}"], "empty"),
        (["{absent}"], "No such file"),
        (["{mixed}", "--output-column", "answer"], 'no column "answer"'),
        (["{mixed}", "--slots", "0"], "must be integers of at least 1"),
        (["{mixed}", "--slots", "a"], "not a list of whole numbers"),
        (["{mixed}", "--slots", "4,4"], "stands twice"),
        (["{mixed}", "--format", "mooncak"], 'did you mean "mooncake"'),
        (["{mixed}", "--model", "Llama-3.1-8B-Instruct"], "give both"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_2(tmp_path, mixed, monkeypatch, capsys, words, problem):
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(mixed.read_bytes())[:-30])
    (tmp_path / "junk.csv").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "empty.csv").touch()
    names = {"folder": ".", "cut": "cut.csv.gz", "junk": "junk.csv", "empty": "empty.csv", "absent": "absent.csv"}
    paths = {key: str(tmp_path / name) for key, name in names.items()} | {"mixed": str(mixed)}
    assert in_process(monkeypatch, "trace", *(word.format(**paths) for word in words)) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert err.count("\n") == 1
    assert out == ""


def test_reading_says_how_far_it_is_now_and_then_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(traffic, "PLAIN_EVERY_S", 0.0)
    said = io.StringIO()
    with traffic.reading(Console(file=said)) as progress:
        progress(50_000_000, 100_000_000)
    assert said.getvalue() == "50 of 100 MB, 50% read\n"


def test_the_answer_in_the_documents_is_the_answer():
    root = Path(__file__).parents[1]
    block = (root / "docs" / "traces.md").read_text().split("```text\n")[1].split("\n...\n```")[0]
    said = traffic.text(answer(root / "studies" / "alike.csv.gz", slots=[4, 16, 64]))
    assert said.startswith(f"{block}\n")


def test_the_made_traffic_is_what_its_recipe_in_the_documents_gives():
    root = Path(__file__).parents[1]
    names = {}
    exec((root / "docs" / "traces.md").read_text().split("```python\n")[1].split("```")[0], names)
    rows = "".join(",".join(map(str, row)) + "\n" for row in names["rows"]())
    kept = gzip.decompress((root / "studies" / "alike.csv.gz").read_bytes()).decode()
    assert kept == f"prompt_tokens,output_tokens,arrival_s\n{rows}"


def test_every_profile_stands_in_the_documents():
    page = (Path(__file__).parents[1] / "docs" / "traces.md").read_text()
    for found in built_in_profiles():
        assert f"| `{found.name}` | {found.requests:,} |" in page

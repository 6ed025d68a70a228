"""Every study of the project runs, asks something, and finds at least one belief that fails."""

import tomllib
from pathlib import Path

import pytest

import sweep
from sweep.api import Results
from sweep.report.wishes import wished
from sweep.study import read_study

STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.toml"))
REPLICATES = 300
NAMES = {
    "burstiness",
    "context",
    "control",
    "distributions",
    "five_x",
    "fp8_kv",
    "gqa",
    "lab",
    "lab_seeds",
    "load",
    "long_share",
    "memory_wall",
    "order",
    "order_of_admission",
    "promise",
    "queue_depth",
    "replay",
    "saturation",
    "slots",
    "slo",
    "step_time",
    "token_budget",
    "traffic",
    "variance",
}

every_study = pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Results]:
    """All studies, run with few workloads; the lab's one workload is all there is of that study."""
    return {path: run_small(path, tmp_path_factory.mktemp(path.stem)) for path in STUDIES}


def run_small(path: Path, folder: Path) -> Results:
    own = read_study(path).replicates or REPLICATES
    return sweep.run(read_study(path, replicates=min(own, REPLICATES)), folder / "results", report=False)


def test_the_studies_that_the_documents_speak_of_are_there() -> None:
    assert {path.stem for path in STUDIES} >= NAMES


@every_study
def test_a_study_opens_with_its_question_in_words(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("title =")[0].splitlines()
    assert all(line.startswith("#") for line in head)
    head = [line for line in head if not line.startswith("#:schema")]
    assert head[0].endswith("?")
    assert len([line for line in head if len(line) > 1]) >= 3  # the question, and what comes out


@every_study
def test_a_study_has_a_title_and_a_question(path: Path) -> None:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    assert document["title"]
    assert document["question"].endswith("?")


@every_study
def test_every_cell_of_a_study_runs(path: Path, results: dict[Path, Results]) -> None:
    cells = results[path].cells
    assert cells["error"].null_count() == len(cells)
    assert cells["multiple_mean"].null_count() == 0


@every_study
def test_every_claim_gets_a_verdict_in_every_cell_it_speaks_of(path: Path, results: dict[Path, Results]) -> None:
    asked = [(claim["text"], cell) for claim in results[path].manifest["claims"] for cell in claim["cells"]]
    assert [(verdict.text, verdict.cell) for verdict in results[path].check()] == asked
    assert asked


@every_study
def test_a_study_has_a_claim_that_holds_and_a_belief_that_fails(path: Path, results: dict[Path, Results]) -> None:
    outcomes: dict[str, set[str]] = {}
    for verdict in results[path].check():
        outcomes.setdefault(verdict.text, set()).add(verdict.verdict)
    assert {"holds"} in outcomes.values()
    assert any("fails" in found for found in outcomes.values())


@every_study
def test_the_charts_that_a_study_asks_for_can_all_be_drawn(path: Path, results: dict[Path, Results]) -> None:
    asked = results[path].manifest["charts"]
    assert len(wished(results[path].manifest)) == len(asked) if asked else wished(results[path].manifest)


def multiples(results: dict[Path, Results], name: str) -> dict[tuple[float | str, ...], float]:
    """The mean multiple of each cell by its axis values."""
    path = next(path for path in STUDIES if path.stem == name)
    means = results[path].cells["multiple_mean"]
    return {tuple(c["axes"].values()): means[c["cell"]] for c in results[path].manifest["cells"]}


def test_the_multiple_is_largest_neither_at_few_slots_nor_at_many(results: dict[Path, Results]) -> None:
    by_slots = multiples(results, "slots")
    assert max(by_slots, key=by_slots.__getitem__) in {(16,), (32,)}
    assert by_slots[1024,] == 1


def test_the_multiple_rises_with_the_depth_of_the_queue(results: dict[Path, Results]) -> None:
    by_requests = list(multiples(results, "queue_depth").values())
    assert by_requests == sorted(by_requests)


def test_the_multiple_peaks_where_one_request_in_ten_is_long(results: dict[Path, Results]) -> None:
    at_16 = {share: mean for (share, slots), mean in multiples(results, "long_share").items() if slots == 16}
    assert max(at_16, key=at_16.__getitem__) == 0.1


def test_the_requests_that_fit_halve_as_the_context_doubles(results: dict[Path, Results]) -> None:
    path = next(path for path in STUDIES if path.stem == "context")
    assert results[path].cells["slots"].to_list() == [256, 128, 64, 32, 16, 8, 4]


def slots_by_axes(results: dict[Path, Results], name: str) -> dict[tuple[float | str, ...], int]:
    """The requests that fit in each cell by its axis values."""
    path = next(path for path in STUDIES if path.stem == name)
    return {tuple(cell["axes"].values()): cell["slots"] for cell in results[path].manifest["cells"]}


def test_the_memory_wall_is_the_arithmetic_of_one_gpu(results: dict[Path, Results]) -> None:
    fit = slots_by_axes(results, "memory_wall")
    left = int(80 * 2**30 * 0.9) - 2 * 6_738_415_616
    by_hand = [left // (context * 512 * 2**10) for context in (2048, 4096, 8192, 16_384, 32_768, 65_536)]
    assert [count for (_, model), count in fit.items() if model == "Llama-2-7b-hf"] == by_hand == [59, 29, 14, 7, 3, 1]
    past = [count for (context, model), count in fit.items() if model == "Mistral-7B-v0.1" and context >= 4096]
    assert past == [117] * 5  # its window is full


def test_fewer_bytes_of_a_token_make_a_larger_batch_but_no_larger_multiple(results: dict[Path, Results]) -> None:
    fit, gained = slots_by_axes(results, "gqa"), multiples(results, "gqa")
    assert list(fit.values()) == sorted(fit.values())
    assert max(gained, key=gained.__getitem__) == ("Mistral-Nemo-Instruct-2407",)
    assert min(gained, key=gained.__getitem__) == ("falcon-7b-instruct",)


def test_eight_bit_weights_make_more_room_than_an_eight_bit_cache(results: dict[Path, Results]) -> None:
    fit = slots_by_axes(results, "fp8_kv")
    at_8192 = {kinds: fit[(*kinds, 8192)] for kinds in [("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "bf16")]}
    assert list(at_8192.values()) == [4, 9, 31]


def test_shapes_of_equal_mean_and_cv_are_drawn_with_that_mean_and_cv(results: dict[Path, Results]) -> None:
    path = next(path for path in STUDIES if path.stem == "distributions")
    cells = results[path].cells
    assert cells["realised_output_mean"].to_list() == pytest.approx([100] * len(cells), abs=0.1)
    assert cells["realised_output_cv"].to_list() == pytest.approx([1.5] * len(cells), abs=0.01)


def test_of_six_published_traces_two_reach_5x_at_16_slots(results: dict[Path, Results]) -> None:
    at_16 = {traffic for (slots, traffic), mean in multiples(results, "traffic").items() if slots == 16 and mean >= 5}
    assert at_16 == {"code", "paper summaries"}


def test_the_order_of_a_trace_spares_static_batching_and_runs_of_its_rows_keep_that(
    results: dict[Path, Results],
) -> None:
    found = multiples(results, "order")
    for slots in (4, 16, 64):
        assert found[slots, "rows"] > 1.05 * found[slots, "replay"]
        assert found[slots, "blocks"] == pytest.approx(found[slots, "replay"], rel=0.03)


def test_requests_wait_longer_at_the_times_at_which_they_came_than_at_random_ones(results: dict[Path, Results]) -> None:
    path = next(path for path in STUDIES if path.stem == "replay")
    cells = results[path].cells
    rows = cells.select("order", "arrivals", "continuous_wait_mean_s_mean").rows()
    waits = {(order, arrivals): wait for order, arrivals, wait in rows}
    assert waits["replay", "own times"] > 4 * waits["replay", "Poisson"] > 16 * waits["rows", "Poisson"]
    assert waits["replay", "own times x 0.8"] > 2 * waits["replay", "Poisson"]
    assert cells["arrival_gap_cv_mean"].max() < 1.3

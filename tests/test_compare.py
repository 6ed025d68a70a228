import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from folders import from_multiples, write_folder
from typer.testing import CliRunner

import sweep
from sweep.cli import app
from sweep.errors import InputError
from sweep.metrics import COUNTS, EXTRA
from sweep.report.compare import as_json, compare, comparisons, lacking, text
from sweep.report.intervals import ratio_of_means
from sweep.study import parse_study

RNG = np.random.default_rng(12)
OTHER = RNG.normal(4, 0.5, 300).round(4)
MINE = (OTHER * 1.1 + RNG.normal(0, 0.05, 300)).round(4)
SMALL = {
    "seed": 3,
    "replicates": 400,
    "workload": {"requests": 60, "output": {"distribution": "geometric", "mean": 30}},
    "server": {"slots": 4},
    "grid": {"server.slots": [4, 8]},
}


def study(**changes):
    return parse_study({**SMALL, **changes}, "small.toml")


def test_cells_of_a_folder_are_compared_workload_by_workload(tmp_path: Path) -> None:
    write_folder(tmp_path, [from_multiples(OTHER), from_multiples(MINE)])
    (found,) = comparisons(tmp_path, None, [1, 0], "multiple")
    expected = scipy.stats.ttest_rel(MINE, OTHER).confidence_interval()
    assert (found.paired, found.replicates) == (True, 300)
    assert found.difference == pytest.approx((MINE - OTHER).mean())
    assert (found.difference_ci_low, found.difference_ci_high) == pytest.approx(tuple(expected))
    assert found.ratio_of_means == pytest.approx(MINE.mean() / OTHER.mean())
    assert found.ratio_ci_low < found.ratio_of_means < found.ratio_ci_high
    assert found.variance_reduction == pytest.approx(
        (MINE.var(ddof=1) + OTHER.var(ddof=1)) / (MINE - OTHER).var(ddof=1)
    )


def test_folders_of_other_seeds_are_independent_samples(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", [from_multiples(MINE)])
    write_folder(tmp_path / "b", [from_multiples(OTHER[:200])], seed=38)
    (found,) = comparisons(tmp_path / "a", tmp_path / "b", [], "multiple")
    expected = scipy.stats.ttest_ind(MINE, OTHER[:200], equal_var=False).confidence_interval()
    assert (found.paired, found.why) == (False, "the seeds are 37 and 38")
    assert (found.difference_ci_low, found.difference_ci_high) == pytest.approx(tuple(expected))
    assert found.ratio_ci_low < found.ratio_of_means < found.ratio_ci_high
    assert found.variance_reduction is None
    assert "Unpaired: the seeds are 37 and 38." in text([found])


def test_folders_of_one_seed_are_paired_whatever_was_changed_between_them(tmp_path: Path) -> None:
    output = {"distribution": "lognormal", "mean": 30, "cv": 1.2}
    sweep.run(study(), tmp_path / "a", report=False)
    sweep.run(study(workload={"requests": 60, "output": output}, replicates=300), tmp_path / "b", report=False)
    found = comparisons(tmp_path / "a", tmp_path / "b", [], "multiple")
    assert [(one.a.cell, one.b.cell, one.paired, one.replicates) for one in found] == [
        (0, 0, True, 300),
        (1, 1, True, 300),
    ]
    assert all(one.variance_reduction > 1.5 for one in found)  # the same numbers drew both


def test_a_paired_ratio_covers_as_often_as_it_says(tmp_path: Path) -> None:
    # 400 repetitions of 128 workloads against the mean of 51,200; 92 to 98 % is 2.8 standard errors: one false alarm
    # in 180 seeds
    sweep.run(study(replicates=51_200), tmp_path, report=False)
    rows = sweep.read(tmp_path).replicates.collect()
    x, y = (rows.filter(cell=cell)["continuous_steps"].to_numpy().reshape(400, 128) for cell in (0, 1))
    truth, covers = x.mean() / y.mean(), 0
    for one, other in zip(x, y, strict=True):
        ratio, se = ratio_of_means(one, other)
        covers += abs(ratio - truth) <= 1.979 * se
    assert 0.92 <= covers / 400 <= 0.98


def test_what_cannot_be_compared_is_said_in_a_line(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", [from_multiples(OTHER), from_multiples(MINE)])
    write_folder(tmp_path / "b", [from_multiples(OTHER)] * 2, axes={"slots": [5, 6]})
    for arguments, says in (
        ((tmp_path / "a", None, [], "multiple"), "name two cells of the folder"),
        ((tmp_path / "a", None, [1], "multiple"), "takes two cells"),
        ((tmp_path / "a", None, [0, 2], "multiple"), "has cells 0 to 1, got 2"),
        ((tmp_path / "a", None, [0, 1], "tokens"), "--metric: must be one of output_tokens, static_steps, "),
        ((tmp_path / "a", tmp_path / "b", [], "multiple"), "no cell has the same axis values"),
    ):
        with pytest.raises(InputError, match=r"^[^\n]*$") as refused:
            comparisons(*arguments)
        assert says in str(refused.value)


def test_of_many_metrics_only_the_closest_are_named(tmp_path: Path) -> None:
    measured = {name: [MINE] * 2 for name in EXTRA if name not in COUNTS}
    write_folder(tmp_path, [from_multiples(OTHER), from_multiples(MINE)], measured=measured)
    listed = rf"must be one of {6 + len(measured)} metrics, such as multiple or multiple_s \(.*\), got \"multipel\"$"
    with pytest.raises(InputError, match=listed):
        comparisons(tmp_path, None, [0, 1], "multipel")


def test_a_cell_that_could_not_run_is_refused_with_its_reason_in_a_line_and_status_2(tmp_path: Path) -> None:
    write_folder(tmp_path, [from_multiples(OTHER), "nothing fits"])
    for cells in ("0,1", "1,0"):
        for more in ([], ["--json"]):
            status, printed, said = sweep_compare(tmp_path, "--cells", cells, *more)
            assert (status, printed) == (2, "")
            assert said == f"cell 1 of {tmp_path} has no results: nothing fits\n"


def test_a_cell_whose_workloads_failed_or_are_not_simulated_yet_lacks_results_for_that_reason(tmp_path: Path) -> None:
    failure = {"cell": 1, "error": "no memory", "chunks": 1, "point": 0, "first": 0, "stop": 300}
    store = write_folder(tmp_path / "a", [from_multiples(OTHER)] * 2)
    store.manifest["failures"] = [failure]
    told = lacking(compare(store, store.manifest["cells"][0], store, store.manifest["cells"][1], "multiple"))
    assert told == f"cell 1 of {tmp_path / 'a'} has no results: no memory (replicates 0 to 299)"
    sweep.run(study(replicates=20), tmp_path / "b", report=False)
    for shard in (tmp_path / "b" / "replicates").iterdir():
        shard.unlink()
    with pytest.raises(InputError, match="none of its workloads is simulated yet"):
        comparisons(tmp_path / "b", None, [0, 1], "multiple")


def test_of_two_folders_the_cells_that_ran_are_compared_and_the_others_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", [from_multiples(MINE), "nothing fits"])
    write_folder(tmp_path / "b", [from_multiples(OTHER)] * 2)
    status, printed, _ = sweep_compare(tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert printed.endswith(f"\ncell 1 of {tmp_path / 'a'} has no results: nothing fits\n")
    found = comparisons(tmp_path / "a", tmp_path / "b", [], "multiple")
    assert found[0].difference == pytest.approx((MINE - OTHER).mean())
    assert (found[1].a.mean, found[1].difference, found[1].ratio_of_means) == (None, None, None)
    json.dumps(as_json(found), allow_nan=False)


def test_a_folder_of_sums_is_refused_because_rows_are_needed(tmp_path: Path) -> None:
    sweep.run(study(), tmp_path / "sums", report=False, keep="summary")
    sweep.run(study(), tmp_path / "rows", report=False)
    for arguments in (["sums", "--cells", "0,1"], ["rows", "sums"], ["sums", "rows"]):
        paths = [tmp_path / word if word in ("sums", "rows") else word for word in arguments]
        status, printed, said = sweep_compare(*paths)
        assert (status, printed, said.count("\n")) == (2, "", 1)
        assert "a comparison needs a row for each workload" in said


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    write_folder(tmp_path, [from_multiples(OTHER), from_multiples(MINE)])
    table = CliRunner().invoke(app, ["compare", str(tmp_path), "--cells", "1,0"])
    assert table.exit_code == 0
    assert "Paired: both are drawn from seed 37; pairing is worth" in table.output
    found = json.loads(CliRunner().invoke(app, ["compare", str(tmp_path), "--cells", "1,0", "--json"]).output)
    assert found[0]["difference"] == pytest.approx((MINE - OTHER).mean())
    assert found[0]["a"]["axes"] == {"slots": 8}


def sweep_compare(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "sweep", "compare", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import claim, from_multiples, write_folder

from sweep.report.claims import Verdict, as_json, check, exit_status
from sweep.report.stats import mean_interval, percentile_interval, wilson

MULTIPLES = np.random.default_rng(5).normal(4.7, 0.4, 1_000).round(4)
MEAN_LOW, MEAN_HIGH = mean_interval(MULTIPLES)


def judge(folder: Path, multiples: Any, **one: Any) -> Verdict:
    return check(write_folder(folder, [from_multiples(multiples)], claims=[claim(**one)]))[0]


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ({"at_least": MEAN_LOW - 0.001}, "holds"),
        ({"at_least": (MEAN_LOW + MEAN_HIGH) / 2}, "undecided"),
        ({"at_least": MEAN_HIGH + 0.001}, "fails"),
        ({"at_most": MEAN_HIGH + 0.001}, "holds"),
        ({"at_most": MEAN_LOW + 0.001}, "undecided"),
        ({"at_most": MEAN_LOW - 0.001}, "fails"),
        ({"between": [MEAN_LOW - 0.001, MEAN_HIGH + 0.001]}, "holds"),
        ({"between": [MEAN_LOW + 0.001, 9]}, "undecided"),
        ({"between": [MEAN_HIGH + 0.001, 9]}, "fails"),
        ({"equals": 4.7, "within": 0.2}, "holds"),
        ({"equals": 4.7, "within": 0.001}, "undecided"),
        ({"equals": 5, "within": 0.1}, "fails"),
    ],
)
def test_a_mean_is_judged_by_its_interval(tmp_path: Path, bound: dict[str, Any], verdict: str) -> None:
    found = judge(tmp_path, MULTIPLES, **bound)
    assert found.verdict == verdict
    assert (found.estimate, found.ci_low, found.ci_high) == pytest.approx((MULTIPLES.mean(), MEAN_LOW, MEAN_HIGH))


def test_a_share_is_judged_by_its_wilson_interval(tmp_path: Path) -> None:
    met = int((MULTIPLES >= 5).sum())
    low, high = wilson(met, 1_000)
    for number, (share, verdict) in enumerate([(low - 0.001, "holds"), (met / 1_000, "undecided"), (0.95, "fails")]):
        found = judge(tmp_path / str(number), MULTIPLES, at_least=5, of={"share": share})
        assert (found.verdict, found.estimate, found.ci_low, found.ci_high) == (verdict, met / 1_000, low, high)


def test_a_percentile_is_judged_by_its_order_statistics(tmp_path: Path) -> None:
    low, high = percentile_interval(MULTIPLES, 5)
    for number, (bound, verdict) in enumerate([(low, "holds"), ((low + high) / 2, "undecided"), (5, "fails")]):
        found = judge(tmp_path / str(number), MULTIPLES, at_least=bound, of={"percentile": 5})
        assert (found.verdict, found.ci_low, found.ci_high) == (verdict, low, high)
        assert found.estimate == pytest.approx(np.percentile(MULTIPLES, 5))


def test_a_percentile_of_too_few_workloads_is_undecided(tmp_path: Path) -> None:
    found = judge(tmp_path, MULTIPLES[:50], at_least=1, of={"percentile": 5})
    assert (found.verdict, found.ci_low, found.ci_high) == ("undecided", None, None)
    assert found.estimate is not None


def test_every_fails_at_one_counter_example_and_names_it(tmp_path: Path) -> None:
    multiples = np.full(1_000, 2.0)
    multiples[617] = 0.5
    found = judge(tmp_path, multiples, at_least=1, of="every")
    assert (found.verdict, found.estimate, found.worst_replicates[0]) == ("fails", 0.999, 617)


def test_every_holds_while_no_simulated_workload_violates_it(tmp_path: Path) -> None:
    found = judge(tmp_path, MULTIPLES, at_least=1, of="every")
    assert (found.verdict, found.estimate, found.ci_low, found.ci_high) == ("holds", 1.0, *wilson(1_000, 1_000))


def test_equals_without_a_width_is_exact(tmp_path: Path) -> None:
    assert judge(tmp_path / "a", [1, 1, 1], equals=1, of="every").verdict == "holds"
    assert judge(tmp_path / "b", [1, 1, 1.0001], equals=1, of="every").verdict == "fails"


def test_workloads_that_all_agree_decide(tmp_path: Path) -> None:
    assert judge(tmp_path / "a", [1, 1], equals=1, within=0).verdict == "holds"
    assert judge(tmp_path / "b", [1, 1], at_least=1.0001).verdict == "fails"


def test_the_mean_of_one_workload_decides_nothing(tmp_path: Path) -> None:
    found = judge(tmp_path, [9.0], at_least=5)
    assert (found.verdict, found.estimate, found.ci_low, found.ci_high) == ("undecided", 9.0, None, None)


def test_a_cell_that_cannot_run_is_undecided_with_nothing_said(tmp_path: Path) -> None:
    store = write_folder(
        tmp_path, ["nothing fits", ([9, 9], [3, 3])], claims=[claim(at_least=1), claim(equals=1, of="every")]
    )
    for found in check(store)[::2]:
        assert (found.cell, found.verdict, found.replicates, found.worst_replicates) == (0, "undecided", 0, [])
        assert (found.estimate, found.ci_low, found.ci_high, found.share) == (None, None, None, None)


def test_the_worst_workloads_lie_furthest_in_the_direction_that_hurts(tmp_path: Path) -> None:
    multiples = [4, 1, 5, 9, 1, 7]
    assert judge(tmp_path / "a", multiples, at_least=5).worst_replicates == [1, 4, 0]  # ties by number
    assert judge(tmp_path / "b", multiples, at_most=5).worst_replicates == [3, 5, 2]
    assert judge(tmp_path / "c", multiples, between=[3, 6]).worst_replicates == [3, 1, 4]
    assert judge(tmp_path / "d", [5, 4], equals=5, within=0.1).worst_replicates == [1, 0]


def test_an_undefined_metric_counts_as_a_miss_and_not_as_a_value(tmp_path: Path) -> None:
    steps = ([0, 90, 150], [0, 30, 30])  # the first workload has no multiple
    claims = [claim(at_least=1, of="every"), claim(at_least=1, of={"share": 0.5}), claim(at_least=1)]
    every, share, mean = check(write_folder(tmp_path, [steps], claims=claims))
    assert (every.verdict, every.worst_replicates) == ("fails", [0, 1, 2])
    assert share.estimate == pytest.approx(2 / 3)
    assert (mean.estimate, mean.worst_replicates) == (4.0, [1, 2])


def test_a_claim_speaks_of_the_cells_it_names(tmp_path: Path) -> None:
    claims = [claim(at_least=1, where={"slots": 8}), claim("static_steps", at_most=9)]
    found = check(write_folder(tmp_path, [([9, 9], [3, 3])] * 3, claims=claims))
    assert [(verdict.metric, verdict.cell) for verdict in found] == [
        ("multiple", 1),
        *(("static_steps", cell) for cell in range(3)),
    ]
    assert found[0].axes == {"slots": 8}


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (claim(at_least=5, of={"share": 0.95}), ">= 5 in 95 % of workloads"),
        (claim(at_most=2.5, of={"percentile": 5}), "5th percentile <= 2.5"),
        (claim(between=[1, 2]), "mean between 1 and 2"),
        (claim(equals=1, of="every"), "= 1 in every workload"),
        (claim(equals=1, within=0.1, of={"percentile": 92}), "92nd percentile = 1 within 0.1"),
    ],
)
def test_a_condition_reads_as_a_phrase(tmp_path: Path, one: dict[str, Any], text: str) -> None:
    assert check(write_folder(tmp_path, [([9, 9], [3, 3])], claims=[one]))[0].condition == text


def test_the_share_that_meets_the_bound_is_known_whatever_the_claim_is_of(tmp_path: Path) -> None:
    found = judge(tmp_path, [4, 5, 6, 7], at_least=5)
    assert (found.share, found.share_low, found.share_high) == (0.75, *wilson(3, 4))


def test_the_exit_status_is_that_of_the_worst_verdict(tmp_path: Path) -> None:
    holds, undecided, fails = (
        judge(tmp_path / str(number), MULTIPLES, at_least=bound)
        for number, bound in enumerate([1, MULTIPLES.mean(), 9])
    )
    assert exit_status([]) == exit_status([holds, holds]) == 0
    assert exit_status([holds, undecided]) == 3
    assert exit_status([holds, undecided, fails]) == 1


def test_verdicts_are_plain_json(tmp_path: Path) -> None:
    one = json.loads(json.dumps(as_json([judge(tmp_path, MULTIPLES, at_least=5)]), allow_nan=False))[0]
    assert list(one) == [
        *("text", "metric", "cell", "verdict", "estimate", "ci_low", "ci_high", "worst_replicates"),
    ]
    assert (one["verdict"], len(one["worst_replicates"])) == ("fails", 3)

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import claim, from_multiples, write_folder

import sweep
from sweep.commands.replay import replay_in
from sweep.errors import InputError
from sweep.report.claims import Verdict, as_json, check, difference, exit_status
from sweep.report.intervals import mean_interval, percentile_ends, wilson
from sweep.report.stats import Column
from sweep.report.terminal import replay_text
from sweep.report.words import verdict_estimate
from sweep.study import parse_study

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
    low, high = percentile_ends(np.sort(MULTIPLES), 5)
    for number, (bound, verdict) in enumerate([(low, "holds"), ((low + high) / 2, "undecided"), (5, "fails")]):
        found = judge(tmp_path / str(number), MULTIPLES, at_least=bound, of={"percentile": 5})
        assert (found.verdict, found.ci_low, found.ci_high) == (verdict, low, high)
        assert found.estimate == pytest.approx(np.percentile(MULTIPLES, 5))


def test_a_percentile_of_too_few_workloads_is_undecided(tmp_path: Path) -> None:
    found = judge(tmp_path, MULTIPLES[:50], at_least=1, of={"percentile": 5})
    assert (found.verdict, found.ci_low) == ("undecided", None)
    assert found.estimate is not None
    one = judge(tmp_path / "one", MULTIPLES[:1], at_least=9, of={"percentile": 5})
    assert (one.verdict, one.ci_low, one.ci_high) == ("undecided", None, None)


@pytest.mark.parametrize(
    ("p", "bound", "verdict"),
    [
        (5, {"at_least": 5}, "fails"),
        (5, {"at_most": 5}, "holds"),
        (5, {"between": [5, 9]}, "fails"),
        (5, {"at_least": 3}, "undecided"),
        (5, {"at_most": 4}, "undecided"),
        (5, {"between": [0, 9]}, "undecided"),
        (95, {"at_most": 4.5}, "fails"),
        (95, {"at_least": 4.5}, "holds"),
        (95, {"between": [1, 4.5]}, "fails"),
        (95, {"at_most": 6}, "undecided"),
    ],
)
def test_the_one_end_that_few_workloads_give_a_percentile_settles_what_it_can(
    tmp_path: Path, p: int, bound: dict[str, Any], verdict: str
) -> None:
    few = MULTIPLES[:30]
    found = judge(tmp_path, few, **bound, of={"percentile": p})
    ordered = np.sort(few)
    # of 30 workloads 5 and more lie below the 5th percentile in 1.6 % of cases, and none in 21 %
    ends = (None, ordered[4]) if p == 5 else (ordered[-5], None)
    assert (found.verdict, found.ci_low, found.ci_high) == (verdict, *ends)
    assert found.interval_needs == 72
    said = verdict_estimate(found)
    assert f"({'at most' if p == 5 else 'at least'} {ends[p == 5]:.2f})" in said
    assert "an interval takes 72 workloads" in said


def test_of_sums_the_one_end_settles_the_same(tmp_path: Path) -> None:
    claims = [
        {"text": "at least", "metric": "multiple", "at_least": bound, "of": {"percentile": 5}} for bound in (1, 2, 9)
    ]
    document = {
        "replicates": 40,
        "workload": {"requests": 100, "output": {"distribution": "geometric", "mean": 50}},
        "server": {"slots": 8},
        "claims": claims,
    }
    rows, sums = (
        sweep.run(parse_study(document, "x"), tmp_path / keep, keep=keep, report=False).check()
        for keep in ("rows", "summary")
    )
    assert [found.verdict for found in sums] == [found.verdict for found in rows] == ["undecided", "undecided", "fails"]
    for one, other in zip(rows, sums, strict=True):
        assert other.ci_low is one.ci_low is None
        assert 0 <= other.ci_high - one.ci_high <= 0.01  # a place of the grid


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
    assert (every.known, share.known, mean.known) == (None, None, 2)
    assert "(-9 to 17); over the 2 of 3 workloads in which it is defined;" in verdict_estimate(mean)


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
        *("axes", "condition", "minus", "replicates", "known", "replicates_needed", "interval_needs"),
    ]
    assert (one["verdict"], len(one["worst_replicates"])) == ("fails", 3)


# ---- what it would take


@pytest.mark.parametrize(
    "one",
    [
        {"at_least": 4.71},
        {"at_most": 4.68},
        {"between": [4.69, 4.75]},
        {"equals": 4.7, "within": 0.02},
        {"at_least": 4.7, "of": {"share": 0.5}},
        {"at_least": 4.09, "of": {"percentile": 5}},
    ],
)
def test_the_replicates_needed_decide_when_the_truth_is_what_was_estimated(tmp_path: Path, one: dict[str, Any]) -> None:
    # as many copies of the workloads as are needed keep mean, shares and percentiles as they are
    found = judge(tmp_path / "few", MULTIPLES, **one)
    assert found.verdict == "undecided"
    assert found.replicates_needed is not None
    assert found.replicates_needed > 1_000
    copies = -(-found.replicates_needed // 1_000)
    assert judge(tmp_path / "enough", np.tile(MULTIPLES, copies + 1), **one).verdict != "undecided"
    if copies > 3:
        assert judge(tmp_path / "half", np.tile(MULTIPLES, copies // 2), **one).verdict == "undecided"


def test_an_estimate_on_the_bound_is_decided_by_no_number(tmp_path: Path) -> None:
    found = judge(tmp_path / "a", [4, 6] * 50, at_least=5)
    assert (found.verdict, found.replicates_needed) == ("undecided", None)
    found = judge(tmp_path / "b", [4, 6] * 50, at_least=5, of={"share": 0.5})
    assert (found.verdict, found.replicates_needed) == ("undecided", None)


def test_a_withheld_interval_says_how_many_workloads_it_takes(tmp_path: Path) -> None:
    found = judge(tmp_path / "a", MULTIPLES[:50], at_least=1, of={"percentile": 5})
    assert (found.verdict, found.interval_needs) == ("undecided", 72)
    assert 72 <= found.replicates_needed <= 100
    assert judge(tmp_path / "b", MULTIPLES[:72], at_least=1, of={"percentile": 5}).verdict == "holds"
    found = judge(tmp_path / "c", [9.0], at_least=5)
    assert (found.interval_needs, found.replicates_needed) == (2, 2)
    assert "an interval takes 2 workloads; about 2 workloads would decide it" in verdict_estimate(found)


def test_a_decided_claim_needs_nothing(tmp_path: Path) -> None:
    found = judge(tmp_path, MULTIPLES, at_least=1)
    assert (found.replicates_needed, found.interval_needs) == (None, None)


# ---- differences


def test_a_difference_is_taken_workload_by_workload(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    other = rng.normal(4, 1, 400).round(4)
    mine = (other + rng.normal(0.05, 0.1, 400)).round(4)  # surer together than apart
    one = claim(at_least=0.02, where={"slots": 8}, minus={"slots": 4}) | {"cells": [1], "minus_cells": [0]}
    store = write_folder(tmp_path, [from_multiples(other), from_multiples(mine)], claims=[one])
    (found,) = check(store)
    assert (found.verdict, found.minus, found.cell) == ("holds", 0, 1)
    assert (found.ci_low, found.ci_high) == pytest.approx(mean_interval(mine - other))
    assert found.condition == "mean minus that at slots = 4 >= 0.02"
    assert found.worst_replicates[0] == int(np.argmin(mine - other))


def test_a_difference_is_of_the_workloads_that_both_cells_have() -> None:
    one = Column(np.array([0, 2, 3]), np.array([1.0, 3.0, 9.0]))
    other = Column(np.array([0, 1, 3]), np.array([0.5, 7.0, np.nan]))
    found = difference(one, other)
    assert found.replicates.tolist() == [0, 3]
    assert found.values.tolist() == pytest.approx([0.5, np.nan], nan_ok=True)


def test_a_claim_on_a_difference_is_simulated_and_judged(tmp_path: Path) -> None:
    document = {
        "replicates": 500,
        "workload": {"requests": 100, "output": {"distribution": "geometric", "mean": 50}},
        "server": {"slots": 4},
        "grid": {"server.slots": [2, 4, 8]},
        "claims": [
            {"text": "8 slots gain more", "metric": "multiple", "at_least": 0.1, "minus": {"slots": 4}},
            {
                "text": "never more steps",
                "metric": "continuous_steps",
                "at_most": 0,
                "of": "every",
                "where": {"slots": 8},
                "minus": {"slots": 2},
            },
        ],
    }
    two, eight, every = sweep.run(parse_study(document, "x"), tmp_path, report=False).check()
    assert (two.cell, two.verdict, eight.cell, eight.verdict) == (0, "fails", 2, "holds")
    assert (every.verdict, every.share) == ("holds", 1.0)


def test_the_worst_workload_of_a_claim_that_fails_is_ready_for_replay(tmp_path: Path) -> None:
    claims = [claim(at_least=1), claim(at_least=5, where={"slots": 8})]
    store = write_folder(tmp_path, [from_multiples([6, 7] * 20), from_multiples([4, 3] * 20)], claims=claims)
    told = replay_text(tmp_path, store.manifest, check(store))
    assert told == f"Look into one: sweep replay {tmp_path} --cell 1 --replicate 1"
    assert replay_text(tmp_path, store.manifest, []) == ""


@pytest.mark.parametrize(
    ("workload", "server", "drawn"),
    [
        ({}, {}, True),
        ({}, {"static_slots": 2}, False),
        ({"arrivals": {"process": "poisson", "rate_per_s": 2.0}}, {"step_ms": 20}, True),
        ({"arrivals": {"process": "poisson", "rate_per_s": 2.0}}, {"step_ms": 20, "kv": {"tokens": 400}}, False),
    ],
    ids=["slots alone", "a server model", "a clock", "a clock and memory"],
)
def test_a_workload_is_offered_for_replay_exactly_where_replay_draws_it(
    tmp_path: Path, workload: dict[str, Any], server: dict[str, Any], drawn: bool
) -> None:
    document = {
        "replicates": 30,
        "workload": {"requests": 20, "output": {"distribution": "geometric", "mean": 9}, **workload},
        "server": {"slots": 4, **server},
        "claims": [{"text": "far", "metric": "multiple", "at_least": 9}],
    }
    results = sweep.run(parse_study(document, "x"), tmp_path, report=False)
    (found,) = results.check()
    told = replay_text(tmp_path, results.manifest, [found])
    if drawn:
        assert told.endswith(f"--cell 0 --replicate {found.worst_replicates[0]}")
        replay_in(tmp_path, 0, found.worst_replicates[0])
        return
    assert (told, found.verdict) == ("", "fails")
    with pytest.raises(InputError, match="--cell"):
        replay_in(tmp_path, 0, found.worst_replicates[0])


def test_no_replay_is_offered_where_the_manifest_does_not_say_what_is_drawn(tmp_path: Path) -> None:
    store = write_folder(tmp_path, [from_multiples([4, 3] * 20)], claims=[claim(at_least=5)])
    del store.manifest["cells"][0]["drawn"]
    assert replay_text(tmp_path, store.manifest, check(store)) == ""

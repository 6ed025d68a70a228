import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import claim, from_multiples, write_folder

import sweep
from sweep.report.boundary import boundaries, boundaries_text, check_json
from sweep.report.claims import check
from sweep.results import Store

SPREAD = np.random.default_rng(2).normal(0, 0.2, 200)
SPREAD = SPREAD - SPREAD.mean()


def line(folder: Path, means: list[float], axes: dict[str, Any], *claims: Any) -> Store:
    """Cells with these mean multiples, all with the same spread."""
    return write_folder(folder, [from_multiples(mean + SPREAD) for mean in means], axes=axes, claims=claims)


def test_the_mean_passes_its_bound_where_the_line_between_the_cells_does(tmp_path: Path) -> None:
    (found,) = boundaries(line(tmp_path, [4, 6, 8], {"requests": [100, 200, 300]}, claim(at_least=5.5)))
    half = 1.972 * SPREAD.std(ddof=1) / np.sqrt(200)
    assert found.value == pytest.approx(175, abs=0.01)
    assert (found.ci_low, found.ci_high) == pytest.approx((175 - 50 * half, 175 + 50 * half), abs=0.02)
    assert (found.between, found.holds, found.axis) == ((100.0, 200.0), "above", "requests")


def test_an_axis_that_is_spaced_by_a_factor_is_logarithmic(tmp_path: Path) -> None:
    (found,) = boundaries(line(tmp_path, [4, 6, 8], {"slots": [4, 16, 64]}, claim(at_least=5)))
    assert found.value == pytest.approx(8, rel=1e-4)


def test_a_rise_and_a_fall_turn_twice(tmp_path: Path) -> None:
    rise, fall = boundaries(line(tmp_path, [4, 6, 4], {"slots": [4, 16, 64]}, claim(at_least=5)))
    assert (rise.holds, fall.holds) == ("above", "below")
    assert (rise.value, fall.value) == pytest.approx((8, 32), rel=1e-4)


def test_a_bound_from_above_holds_on_the_other_side(tmp_path: Path) -> None:
    (found,) = boundaries(line(tmp_path, [4, 6], {"slots": [4, 16]}, claim(at_most=5)))
    assert found.holds == "below"


def test_the_interval_is_open_where_no_cell_is_sure(tmp_path: Path) -> None:
    (found,) = boundaries(line(tmp_path, [4.99, 6], {"slots": [4, 16]}, claim(at_least=5)))
    assert found.ci_low is None
    assert found.ci_high is not None
    assert "(95 % below to" in boundaries_text([found])


def test_shares_and_percentiles_turn_too(tmp_path: Path) -> None:
    claims = [claim(at_least=5, of={"share": 0.5}), claim(at_least=5, of={"percentile": 50})]
    share, percentile = boundaries(line(tmp_path, [4.9, 5.1], {"slots": [4, 16]}, *claims))
    assert 4 < share.ci_low < share.value < share.ci_high < 16
    assert 4 < percentile.ci_low < percentile.value < percentile.ci_high < 16


def test_a_claim_about_one_cell_turns_on_the_lines_through_it_and_on_no_others(tmp_path: Path) -> None:
    axes = {"output_cv": [0.5, 1.0], "slots": [4, 8]}
    (found,) = boundaries(line(tmp_path, [4, 6, 3, 4], axes, claim(at_least=5, where={"output_cv": 0.5, "slots": 4})))
    assert (found.axis, found.fixed, found.cells) == ("slots", {"output_cv": 0.5}, [0, 1])


def test_one_condition_turns_once_however_many_claims_have_it(tmp_path: Path) -> None:
    claims = [
        claim(at_least=5, where={"slots": 4}),
        claim(at_least=5, where={"slots": 16}),
        claim(at_least=1, of="every"),
    ]
    store = line(tmp_path, [4, 6], {"slots": [4, 16]}, *claims)
    assert len(boundaries(store)) == 1
    first, second, *every = check_json(check(store), boundaries(store))
    assert len(first["boundaries"]) == len(second["boundaries"]) == 1
    assert [one["boundaries"] for one in every] == [[], []]
    json.dumps([first, second, *every], allow_nan=False)


def test_a_terminal_shows_the_first_of_many(tmp_path: Path) -> None:
    (found,) = boundaries(line(tmp_path, [4, 6], {"slots": [4, 16]}, claim(at_least=5)))
    told = boundaries_text([found] * 25).splitlines()
    assert (len(told), told[-1]) == (21, "... and 5 more, in --json")


def test_names_and_cells_without_results_have_no_boundary(tmp_path: Path) -> None:
    assert boundaries(line(tmp_path / "a", [4, 6], {"shape": ["flat", "wild"]}, claim(at_least=5))) == []
    steps = [from_multiples(4 + SPREAD), "nothing fits", from_multiples(6 + SPREAD)]
    (found,) = boundaries(write_folder(tmp_path / "b", steps, axes={"slots": [4, 8, 16]}, claims=[claim(at_least=5)]))
    assert found.between == (4.0, 16.0)


def test_a_boundary_covers_the_crossing_of_the_straight_lines_at_least_as_often_as_it_says(tmp_path: Path) -> None:
    # 300 repetitions of two cells of 100 workloads, 5 lies midway, where the band of two independent cells is wider
    # than need be; 92 % is 2.4 standard errors below 95 %: a false alarm in 120 seeds at most
    rng, covers = np.random.default_rng(6), 0
    for number in range(300):
        noise = rng.normal(0, 0.5, (2, 100))
        steps = [from_multiples(4.5 + noise[0]), from_multiples(5.5 + noise[1])]
        folder = tmp_path / str(number)
        (found,) = boundaries(write_folder(folder, steps, axes={"requests": [100, 200]}, claims=[claim(at_least=5)]))
        covers += found.ci_low <= 150 <= found.ci_high
    assert covers / 300 >= 0.92


@pytest.mark.slow
def test_queue_depth_finds_how_many_requests_it_takes_for_a_mean_of_5(tmp_path: Path) -> None:
    study = Path(__file__).parents[1] / "studies" / "queue_depth.toml"
    results = sweep.run(study, tmp_path, report=False)
    found = next(one for one in results.boundaries() if one.condition == "mean >= 5")
    assert 225 < found.ci_low < found.value < found.ci_high < 300

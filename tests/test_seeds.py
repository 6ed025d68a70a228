"""Workloads are independent of each other, and of those of other seeds; and the known study finds what is known."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

import sweep
from sweep.model.distributions import Distribution
from sweep.model.lengths import look_up_of
from sweep.model.lockstep import OUTPUTS, PREFIXES, draw_lengths
from sweep.study import parse_study

COUNT, REQUESTS = 5_000, 200  # a million draws
REFERENCE = {
    "distribution": "mixture",
    "parts": [
        {"weight": 0.9, "distribution": "uniform", "low": 8, "high": 40},
        {"weight": 0.1, "distribution": "uniform", "low": 400, "high": 700},
    ],
}
FLAT = look_up_of(TypeAdapter(Distribution).validate_python({"distribution": "uniform", "low": 0, "high": 2**20}))


def draws(seed, first=0, stream=OUTPUTS):
    return draw_lengths(FLAT, seed, first, COUNT, REQUESTS, stream)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (draws(37), draws(38)),
        (draws(0), draws(1)),
        (draws(2**32 - 1), draws(2**32)),  # the seed's two words
        (draws(37), draws(37, first=1)),  # a replicate and the next one
        (draws(37), draws(37, stream=PREFIXES)),
        (draws(37)[:, 1:], draws(37)[:, :-1]),  # a request and the next one
        (draws(37), draws(38, first=1)),
    ],
    ids=["seeds", "first seeds", "words", "replicates", "streams", "requests", "seed and replicate"],
)
def test_neighbouring_draws_are_uncorrelated(one, other):
    # a million pairs, 5 standard errors: each of the seven a false alarm in 1.7 million generators
    found = np.corrcoef(one.ravel(), other.ravel())[0, 1]
    assert abs(found) < 5 / np.sqrt(one.size)


def test_steps_of_neighbouring_seeds_are_uncorrelated(tmp_path):
    # 20,000 workloads, 5 standard errors
    columns = []
    for seed in (37, 38):
        document = {
            "seed": seed,
            "replicates": 20_000,
            "workload": {"requests": 50, "output": REFERENCE},
            "server": {"slots": 16},
        }
        results = sweep.run(parse_study(document, "x"), tmp_path / str(seed), report=False)
        columns.append(results.replicates.collect()["multiple"].to_numpy())
    assert abs(np.corrcoef(*columns)[0, 1]) < 5 / np.sqrt(20_000)


def test_the_main_study_finds_the_mean_the_share_and_the_spread_that_are_known(tmp_path):
    # values from 400,000 workloads made elsewhere; each of the intervals misses in 5 % of seeds, this seed is fixed
    results = sweep.run(Path(__file__).parents[1] / "studies" / "five_x.toml", tmp_path, report=False)
    row = results.cells.filter(slots=16).row(0, named=True)
    assert row["multiple_ci_low"] <= 4.677 <= row["multiple_ci_high"]
    share = next(verdict for verdict in results.check() if verdict.condition == ">= 5 in 95 % of workloads")
    assert share.ci_low <= 0.2397 <= share.ci_high
    assert abs(row["multiple_adjusted"] - 4.677) <= 2 * row["multiple_adjusted_se"]
    values = results.replicates.collect().filter(cell=row["cell"])["multiple"]
    assert ((values >= 3.92) & (values <= 5.44)).mean() == pytest.approx(0.90, abs=0.009)  # 3 standard errors
    assert row["multiple_p05_ci_low"] <= 3.92 <= row["multiple_p05_ci_high"]
    assert row["multiple_p95_ci_low"] <= 5.44 <= row["multiple_p95_ci_high"]

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from folders import write_folder

import sweep
from sweep.report.adjusted import Adjusted, Control, adjusted
from sweep.report.summary import summarise
from sweep.study import parse_study

SMALL = {
    "seed": 5,
    "workload": {"requests": 40, "output": {"distribution": "geometric", "mean": 30, "max_tokens": 200}},
    "server": {"slots": 4},
}


def sample(n, seed=1):
    """A metric that is 2 + 3 a - b with noise, and both controls with their true means."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(10, 2, n), rng.normal(-1, 1, n)
    values = 2 + 3 * a - b + rng.normal(0, 0.5, n)
    return values, [Control("a", a, 10.0), Control("b", b, -1.0)]


def test_the_adjusted_mean_is_the_intercept_of_the_regression_on_centred_controls():
    values, controls = sample(500)
    found = adjusted("m", values, controls)
    design = np.column_stack([np.ones(500), controls[0].values - 10.0, controls[1].values + 1.0])
    coefficients, (residuals,), *_ = np.linalg.lstsq(design, values)
    covariance = residuals / (500 - 3) * np.linalg.inv(design.T @ design)
    assert found.adjusted == pytest.approx(coefficients[0], rel=1e-12)
    assert found.adjusted_se == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-12)


def test_the_variance_reduction_is_how_many_times_the_workloads_the_plain_mean_would_need():
    values, controls = sample(20_000)
    found = adjusted("m", values, controls)
    plain_se = values.std(ddof=1) / np.sqrt(len(values))
    assert found.variance_reduction == pytest.approx((plain_se / found.adjusted_se) ** 2)
    assert found.variance_reduction == pytest.approx((9 * 4 + 1 + 0.25) / 0.25, rel=0.05)  # of all variance, the noise


def test_95_per_cent_intervals_of_adjusted_means_cover_the_true_mean():
    # 2,000 repetitions of 100 workloads; t is 1.985. Within 93.5 to 96.5 %: 3 standard errors, 3 in 1,000 seeds.
    covers = 0
    for seed in range(2_000):
        values, controls = sample(100, seed)
        found = adjusted("m", values, controls)
        covers += abs(found.adjusted - (2 + 30 + 1)) <= 1.985 * found.adjusted_se
    assert 0.935 <= covers / 2_000 <= 0.965


def test_nothing_is_adjusted_where_it_does_not_pay():
    values, controls = sample(500)
    unrelated = [Control("c", np.random.default_rng(9).normal(0, 1, 500), 0.0)]
    with_a_gap = np.where(np.arange(500) == 7, np.nan, values)
    for metric, given, known in (
        ("m", values[:63], [c._replace(values=c.values[:63]) for c in controls]),
        ("m", values, []),
        ("m", values, unrelated),
        ("m", with_a_gap, controls),
        ("m", np.full(500, 4.0), controls),
        ("a", values, controls),
    ):
        assert adjusted(metric, given, known) == Adjusted()


def test_controls_that_say_the_same_are_taken_once():
    values, controls = sample(500)
    twice = [*controls, Control("d", 2 * controls[0].values, 20.0), Control("e", np.full(500, 3.0), 3.0)]
    assert adjusted("m", values, twice) == adjusted("m", values, controls)


def test_adjusted_means_of_a_study_are_surer_and_agree_with_many_more_workloads(tmp_path):
    # 4 standard errors of the difference: a false alarm in 16,000 seeds
    few = sweep.run(parse_study({**SMALL, "replicates": 1_000}, "x"), tmp_path / "few", report=False).cells.row(
        0, named=True
    )
    many = sweep.run(
        parse_study({**SMALL, "seed": 6, "replicates": 200_000}, "x"), tmp_path / "many", report=False
    ).cells
    assert few["multiple_variance_reduction"] > 2
    error = np.hypot(few["multiple_adjusted_se"], many["multiple_se"].item())
    assert abs(few["multiple_adjusted"] - many["multiple_mean"].item()) < 4 * error
    assert few["static_steps_adjusted"] is few["output_tokens_adjusted"] is None  # their expectations are exact


def test_a_folder_without_exact_expectations_has_plain_means_only(tmp_path: Path):
    frame = summarise(write_folder(tmp_path, [(list(range(100, 200)), list(range(50, 150)))]))
    assert frame["multiple_adjusted"].item() is frame["multiple_variance_reduction"].item() is None


def test_bytes_of_cells_do_not_depend_on_the_threads_of_a_blas(tmp_path):
    program = (
        "import sys, json, sweep; from sweep.study import parse_study;"
        "sweep.run(parse_study(json.loads(sys.argv[1]), 'x'), sys.argv[2], report=False)"
    )
    digests = set()
    for threads in ("1", "2"):
        folder = tmp_path / threads
        arguments = [sys.executable, "-c", program, json.dumps({**SMALL, "replicates": 3_000}), str(folder)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads}
        subprocess.run(arguments, check=True, env=environment)
        digests.add(hashlib.sha256((folder / "cells.parquet").read_bytes()).hexdigest())
    assert len(digests) == 1

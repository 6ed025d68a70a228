"""Theory against simulation: what long queues tend to, and what shared uniforms do for differences."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

import sweep
from sweep.study import parse_study

REQUESTS = 20_000


def run(tmp_path: Any, output: dict[str, Any], grid: dict[str, Any], *, requests: int, replicates: int) -> Any:
    document = {
        "title": "limits",
        "seed": 20,
        "replicates": replicates,
        "workload": {"requests": requests, "output": output},
        "server": {"slots": 16},
        "grid": grid,
    }
    return sweep.run(parse_study(document, "limits.toml"), tmp_path / "results", report=False)


def limits(tmp_path: Any, output: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of four numbers of slots."""
    results = run(tmp_path, output, {"server.slots": [2, 4, 8, 16]}, requests=REQUESTS, replicates=64)
    return list(results.cells.iter_rows(named=True))


def test_long_queues_of_uniform_lengths_come_to_2m_over_m_plus_1(tmp_path: Any) -> None:
    # Graham's bound: the drain of m slots costs at most (m - 1) / m of the longest request, twice the mean, which is
    # 2 (m - 1) / requests of the steps. 5 standard errors beside that: a false alarm in a million seeds.
    for row in limits(tmp_path, {"distribution": "uniform", "low": 1, "high": 2000}):
        m = row["slots"]
        limit = 2 * m / (m + 1)
        assert row["limit_multiple"] == pytest.approx(limit, rel=1e-3)
        drain = limit * 2 * (m - 1) / REQUESTS
        assert limit * (1 - 1e-3) - drain - 5 * row["multiple_se"] < row["multiple_mean"]
        assert row["multiple_mean"] < limit * (1 + 1e-3) + 5 * row["multiple_se"]


def test_long_queues_of_geometric_lengths_come_to_the_harmonic_number(tmp_path: Any) -> None:
    # When the queue runs dry all m remaining times are geometric again, the longest of mean H(m) times the mean length:
    # the drain costs at most m H(m) / requests of the steps. 5 standard errors as above.
    output = {"distribution": "geometric", "mean": 1000, "max_tokens": 65_536}
    for row in limits(tmp_path, output):
        m = row["slots"]
        limit = sum(1 / i for i in range(1, m + 1))
        assert row["limit_multiple"] == pytest.approx(limit, rel=1e-3)
        drain = limit * m * limit / REQUESTS
        assert limit * (1 - 1e-3) - drain - 5 * row["multiple_se"] < row["multiple_mean"]
        assert row["multiple_mean"] < limit * (1 + 1e-3) + 5 * row["multiple_se"]


@pytest.mark.parametrize(("cv", "next_cv"), [(0.5, 0.55), (1.0, 1.1), (2.0, 2.2)])
def test_shared_uniforms_make_differences_between_neighbouring_cv_sharper(
    cv: float, next_cv: float, tmp_path: Any
) -> None:
    output = {"distribution": "lognormal", "mean": 100, "cv": 1, "max_tokens": 32_768}
    results = run(tmp_path, output, {"workload.output.cv": [cv, next_cv]}, requests=200, replicates=4_000)
    rows = results.replicates.select("cell", "replicate", "multiple").collect()
    first, second = (rows.filter(pl.col("cell") == cell).sort("replicate")["multiple"].to_numpy() for cell in (0, 1))
    paired = float(np.std(second - first, ddof=1)) / math.sqrt(len(first))
    unpaired = math.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / len(first))
    ratio = paired / unpaired
    print(f"cv {cv} and {next_cv}: standard error of the difference paired / unpaired = {ratio:.3f}")
    assert ratio < 0.2, f"paired {paired:.5f}, unpaired {unpaired:.5f}, ratio {ratio:.3f}"
    assert (second - first).mean() > 5 * paired > 0  # seen when paired, and lost when not

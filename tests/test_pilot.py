import pytest

import sweep
from sweep.api import plan
from sweep.grid import points
from sweep.pilot import Forecast, forecast, text
from sweep.shards import Span
from sweep.study import parse_study

SMALL = {
    "seed": 3,
    "replicates": 2_000,
    "workload": {"requests": 60, "output": {"distribution": "lognormal", "mean": 60, "cv": 1}},
    "server": {"slots": 4},
    "grid": {"workload.output.cv": [0.5, 1, 2], "server.slots": [2, 8]},
}
PRECISE = {"metric": "multiple", "half_width": "1 %", "min_replicates": 128, "max_replicates": 20_000}


def study(**changes):
    document = {key: value for key, value in (SMALL | changes).items() if value is not None}
    return parse_study(document, "small.toml")


def test_a_fixed_number_of_replicates_is_forecast_as_such_and_its_bytes_nearly(tmp_path):
    found = forecast(points(study()), (), [2_000], None)
    results = sweep.run(study(), tmp_path, report=False)
    real = sum(shard["bytes"] for shard in results.manifest["shards"])
    assert found.replicates == dict.fromkeys(range(3), 2_000)
    assert found.bytes == pytest.approx(real, rel=0.3)
    assert found.tried == 3


def test_where_sums_are_kept_their_bytes_are_forecast_and_said(tmp_path):
    found = forecast(points(study()), (), [2_000], None, keep="summary")
    results = sweep.run(study(), tmp_path / "run", report=False, keep="summary")
    assert found.bytes == pytest.approx(sum(shard["bytes"] for shard in results.manifest["shards"]), rel=0.3)
    assert plan(study(), tmp_path / "new", "summary").endswith(" of sums")


def test_a_precision_is_forecast_to_within_a_round(tmp_path):
    # a deviation from 2,000 workloads is sure to 2 %, so the forecast is one of the two rounds around the truth
    precise = study(replicates=None, precision=PRECISE)
    rounds = [128 * 2**k for k in range(8)] + [20_000]
    found = forecast(points(precise), (), rounds, precise.precision).replicates
    results = sweep.run(precise, tmp_path, report=False)
    for point in results.manifest["points"]:
        assert abs(rounds.index(found[point["point"]]) - rounds.index(point["replicates"])) <= 1
        assert point["rounds"] == rounds[: rounds.index(point["replicates"]) + 1]


def test_what_is_there_already_takes_nothing():
    whole = [Span(point, 0, 2_000) for point in range(3)]
    assert forecast(points(study()), whole, [2_000], None)[1:3] == (0.0, 0)


def test_a_dry_run_says_what_to_expect_and_writes_nothing(tmp_path):
    told = plan(study(), tmp_path / "new")
    assert "to expect, from a pilot of 3 points: 2,000 replicates of each cell" in told
    assert list(tmp_path.iterdir()) == []


def test_a_forecast_reads_as_a_line():
    said = text(Forecast({0: 512, 1: 4_096}, 83.0, 123_456_789, 2), jobs=1)
    assert said.startswith("to expect, from a pilot of 2 points: 512 to 4,096 replicates of each cell, ")
    assert said.endswith("about 83 s on 1 core, 123 MB of rows")
    assert "about 120 s on 1 core" in text(Forecast({0: 512}, 123.4, 1, 1), jobs=1)

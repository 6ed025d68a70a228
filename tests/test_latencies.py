"""Studies with arrivals, orders and step times: what is measured, what is refused, what is flagged."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

import sweep
from sweep.errors import StudyError
from sweep.grid import points
from sweep.report.answer import sentence
from sweep.report.charts.curves import lines
from sweep.report.clock import clock_text
from sweep.report.terminal import cells_text
from sweep.report.words import metric_name, number, with_interval
from sweep.rows import arriving
from sweep.rows.arriving import _drawn, _largest_rate, _requests
from sweep.rows.latencies import Window, meets, percentiles
from sweep.rows.schedulers import run_on
from sweep.study import parse_study

MEASURED = Path(__file__).parents[2] / "shared" / "data" / "step_times"
CASES = json.loads((MEASURED / "reference_workload.json").read_text())["cases"] if MEASURED.exists() else []
needs_tables = pytest.mark.skipif(not CASES, reason="the measured step times are not here")

LAB = {
    "distribution": "mixture",
    "parts": [
        {"weight": 0.9, "distribution": "uniform", "low": 8, "high": 40},
        {"weight": 0.1, "distribution": "uniform", "low": 400, "high": 700},
    ],
}
ALL = Window(0, steady=False)
AFFINE = {"step": {"kind": "affine", "ms": 10.0, "us_per_request": 500.0}}
POISSON = {"process": "poisson", "load": 0.5}


def document(*, arrivals=POISSON, measure=(), grid=None, requests=150, server=None, workload=None, claims=()):
    return {
        "seed": 37,
        "replicates": 40,
        "measure": list(measure),
        "workload": {"requests": requests, "output": LAB, "arrivals": arrivals, **(workload or {})},
        "server": {"slots": 8, "step_ms": 20.0, **(server or {})},
        "grid": grid or {},
        "claims": list(claims),
    }


def without(table, *keys):
    return {key: value for key, value in table.items() if key not in keys}


def run(**changes):
    return sweep.run(parse_study(document(**changes), "x.toml"), report=False)


def rows(results, cell=0):
    frame = results.replicates.collect()
    return frame.filter(frame["cell"] == cell)


LATENCIES = [f"{s}_{m}_mean_s" for s in ("static", "continuous") for m in ("wait", "ttft", "tpot", "e2e")]


def test_every_latency_is_at_least_its_floor() -> None:
    frame = rows(run(measure=LATENCIES))
    for scheduler in ("static", "continuous"):
        wait, ttft, tpot, e2e = (frame[f"{scheduler}_{m}_mean_s"].to_numpy() for m in ("wait", "ttft", "tpot", "e2e"))
        assert (wait >= 0).all()
        assert ttft == pytest.approx(wait + 0.02)
        assert ttft.min() >= 0.02
        assert tpot == pytest.approx(np.full(40, 0.02))
        assert (e2e >= ttft).all()


def test_utilisation_is_within_0_and_1_in_every_cell_and_is_the_load_below_saturation() -> None:
    arrivals = {"process": "poisson", "load": 0.5, "horizon": "steady"}
    results = run(arrivals=arrivals, requests=2000, grid={"workload.arrivals.load": [0.05, 0.5, 0.9]})
    frame = results.replicates.collect()
    for name in ("static_utilisation", "continuous_utilisation"):
        assert frame[name].is_between(0, 1).all()
    for cell, load in enumerate([0.05, 0.5]):
        assert results.cells["continuous_utilisation_mean"][cell] == pytest.approx(load, rel=0.1)


def test_all_at_once_a_study_with_a_clock_gives_the_steps_of_one_without() -> None:
    timed = rows(run(arrivals={"process": "at_once"}))
    plain = document()
    plain["workload"] = without(plain["workload"], "arrivals")
    untimed = rows(sweep.run(parse_study(plain, "x.toml"), report=False))
    for name in ("static_steps", "continuous_steps", "multiple", "output_tokens"):
        assert (timed[name] == untimed[name]).all()
    for name in ("static_utilisation", "continuous_utilisation"):
        assert timed[name].to_numpy() == pytest.approx(untimed[name].to_numpy(), rel=1e-12)


def test_below_saturation_makespans_meet_and_latencies_part() -> None:
    frame = rows(run(arrivals={"process": "poisson", "load": 0.05}, measure=["multiple_s", "e2e_ratio"], requests=400))
    assert frame["multiple_s"].mean() == pytest.approx(1, abs=0.05)
    assert frame["e2e_ratio"].mean() > 1.5


def test_the_observed_rate_and_cv_stand_beside_the_requested_ones() -> None:
    arrivals = {"process": "gamma", "rate_per_s": 3.0, "cv": 2.0}
    results = run(arrivals=arrivals, requests=3000, measure=["arrival_rate_per_s", "arrival_gap_cv"])
    assert results.cells["arrival_rate_per_s_mean"][0] == pytest.approx(3, rel=0.05)
    assert results.cells["arrival_gap_cv_mean"][0] == pytest.approx(2, rel=0.1)
    assert results.cells["requested_rate_per_s"][0] == 3.0
    assert results.cells["requested_gap_cv"][0] == 2.0
    assert results.cells["static_load"][0] > results.cells["offered_load"][0] > 0


def test_a_percentile_of_too_few_requests_is_null() -> None:
    names = [f"continuous_ttft_p{p}_s" for p in (50, 90, 95, 99)]
    results = run(measure=names, requests=100)
    assert [results.cells[f"{name}_mean"][0] is None for name in names] == [False, False, False, True]


def test_percentiles_are_numpys_over_the_defined_values() -> None:
    values = np.random.default_rng(1).random((5, 700))
    values[2, :650] = np.nan
    found = percentiles(values, [50, 90, 99])
    for row in (0, 1, 3, 4):
        assert [column[row] for column in found] == pytest.approx(np.percentile(values[row], [50, 90, 99]))
    assert found[0][2] == pytest.approx(np.percentile(values[2, 650:], 50))
    assert math.isnan(found[2][2])


def test_requests_of_one_token_have_no_time_per_token() -> None:
    one = {"output": {"distribution": "constant", "value": 1}}
    results = run(workload=one, measure=["continuous_tpot_mean_s", "continuous_ttft_mean_s"])
    assert results.cells["continuous_tpot_mean_s_mean"][0] is None
    assert results.cells["continuous_ttft_mean_s_mean"][0] >= 0.02


def test_shortest_first_lowers_the_mean_wait_and_errors_of_prediction_give_it_back() -> None:
    grid = {"server.order": ["first_come", "shortest_first"]}
    both = run(grid=grid, arrivals={"process": "at_once"}, measure=["continuous_wait_mean_s"])
    first_come, shortest = both.cells["continuous_wait_mean_s_mean"]
    guessed = run(
        arrivals={"process": "at_once"},
        server={"order": "shortest_first", "prediction_cv": 2.0},
        measure=["continuous_wait_mean_s"],
    ).cells["continuous_wait_mean_s_mean"][0]
    assert shortest < guessed < first_come


def test_urgent_requests_go_first_and_are_as_many_as_asked_for() -> None:
    """Of 6,000 requests 20 % are urgent, give or take 5 standard errors."""
    work = {"priorities": [0.2, 0.8]}
    study = parse_study(
        document(workload=work, server={"order": "priority"}, arrivals={"process": "at_once"}), "x.toml"
    )
    point = points(study)[0]
    cell = point.cells[0]
    work = _drawn(point, 0, 40)
    requests = _requests(point, cell.timing, work, 0, 40)
    urgent = requests.rank == 0
    assert abs(urgent.mean() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 6000)
    for scheduler in ("static", "continuous"):
        start = run_on(cell, scheduler, work, requests).times.start
        assert (np.where(urgent, start, 0).max(axis=1) <= np.where(urgent, np.inf, start).min(axis=1)).all()


def test_clients_keep_at_most_their_number_of_requests_here() -> None:
    arrivals = {"process": "clients", "clients": 4, "think_s": 1.0}
    frame = rows(run(arrivals=arrivals, measure=["continuous_wait_mean_s", "arrival_rate_per_s"]))
    assert (frame["continuous_wait_mean_s"] == 0).all()  # four clients on eight slots
    assert (frame["continuous_utilisation"] <= 0.5 + 1e-9).all()


def test_static_batching_above_its_load_is_withheld_in_a_steady_study_and_flagged_in_any() -> None:
    steady = {"process": "poisson", "load": 0.7, "horizon": "steady"}
    results = run(arrivals=steady, measure=["static_wait_mean_s", "continuous_wait_mean_s", "e2e_ratio"])
    assert results.cells["static_load"][0] > 1
    assert results.cells["static_wait_mean_s_mean"][0] is None
    assert results.cells["e2e_ratio_mean"][0] is None
    assert results.cells["continuous_wait_mean_s_mean"][0] is not None


def test_the_largest_rate_of_static_batching_does_not_depend_on_a_load_at_which_it_is_not_sought() -> None:
    measure = ["static_slo_rate_per_s", "static_wait_mean_s"]
    steady = {"process": "poisson", "load": 0.1, "horizon": "steady"}
    slo = {"slo": {"ttft_s": 30.0, "share": 0.9}}
    grid = {"workload.arrivals.load": [0.1, 0.7]}
    results = run(arrivals=steady, measure=measure, workload=slo, grid=grid, requests=400)
    low, high = (rows(results, cell)["static_slo_rate_per_s"].to_numpy() for cell in (0, 1))
    assert results.cells["static_load"][1] > 1
    assert rows(results, 1)["static_wait_mean_s"].null_count() == 40
    assert np.isfinite(high).all()
    assert high == pytest.approx(low, rel=1e-3)


def test_a_steady_cell_with_a_load_of_1_or_more_is_flagged_and_the_others_run() -> None:
    steady = {"process": "poisson", "load": 0.7, "horizon": "steady"}
    results = run(arrivals=steady, grid={"workload.arrivals.load": [0.5, 1.0, 2.0]})
    errors = results.cells["error"].to_list()
    assert errors[0] is None
    assert all("needs a load below 1" in error for error in errors[1:])


SLO = {"slo": {"ttft_s": 6.0, "share": 0.9}}
RATES = ["static_slo_rate_per_s", "continuous_slo_rate_per_s"]


def test_the_largest_rate_keeps_the_slo_and_under_continuous_batching_a_little_more_does_not() -> None:
    """Under static batching more may do again: a group that starts sooner is another group."""
    study = parse_study(document(workload=SLO, measure=RATES), "x.toml")
    point = points(study)[0]
    cell, slo = point.cells[0], point.workload.demand.slo
    work = _drawn(point, 0, 20)
    requests = _requests(point, cell.timing, work, 0, 20)
    for scheduler, factors in (("static", (1.0,)), ("continuous", (0.9, 1.0, 1.01, 1.1))):
        rates = _largest_rate(cell, scheduler, work, requests, slo, ALL)
        assert np.isfinite(rates).all()
        for factor in factors:
            gaps = (cell.timing.rate_per_s / (rates * factor))[:, None]
            stretched = requests._replace(arrival_s=requests.arrival_s * gaps)
            times = run_on(cell, scheduler, work, stretched).times
            met = meets(times, requests.output, ALL, slo)
            assert ((met.mean(axis=1) >= 0.9) == (factor <= 1)).all()


def test_continuous_batching_keeps_an_slo_at_higher_rates() -> None:
    results = run(workload=SLO, measure=RATES)
    static, continuous = (results.cells[f"{name}_mean"][0] for name in RATES)
    assert continuous > 2 * static
    assert results.cells["continuous_slo_rate_per_s_ci_low"][0] < continuous


def test_an_slo_that_nothing_can_meet_is_null_and_does_not_hang() -> None:
    results = run(workload={"slo": {"ttft_s": 0.001}}, measure=[*RATES, "continuous_slo_share"])
    assert results.cells["continuous_slo_rate_per_s_mean"][0] is None
    assert results.cells["continuous_slo_share_mean"][0] == 0


@needs_tables
@pytest.mark.parametrize("pads", [True, False])
@pytest.mark.parametrize("charged", [True, False])
def test_a_study_of_the_reference_workload_gives_the_seconds_found_elsewhere(pads: bool, charged: bool) -> None:
    case = next(case for case in CASES if (case["slots"], case["prompt_tokens"]) == (16, 512))
    name = "a100-80gb--llama-2-7b--tp1"
    right = case["seconds"][name]
    study = {
        "replicates": 1,
        "measure": ["static_s", "continuous_s", "multiple_s"],
        "workload": {
            "requests": 200,
            "output": {"distribution": "lab", "first_seed": 37},
            "prompt": {"distribution": "constant", "value": 512},
        },
        "server": {
            "slots": 16,
            "pads": pads,
            "charge_prompts": charged,
            "step": {"kind": "table", "path": str((MEASURED / f"{name}.csv").resolve())},
        },
    }
    frame = rows(sweep.run(parse_study(study, "x.toml"), report=False))
    prompts = right["prompts"] if charged else 0
    static_s = right["table"]["static_padded" if pads else "static"] + prompts
    assert frame["static_s"][0] == pytest.approx(static_s, abs=2e-6)
    assert frame["continuous_s"][0] == pytest.approx(right["table"]["continuous"] + prompts, abs=2e-6)
    assert (frame["static_steps"][0], frame["continuous_steps"][0]) == (5797, 1148)


def test_the_load_of_an_affine_step_is_what_fills_the_slots() -> None:
    """Far above saturation the server gives what its capacity says, up to the idle end of the run."""
    step = {"kind": "affine", "ms": 10.0, "us_per_request": 200.0, "us_per_kv_token": 0.5}
    study = document(arrivals={"process": "poisson", "load": 3.0}, requests=3000, measure=["continuous_s"])
    study["server"] = {"slots": 8, "step": step}
    study["replicates"] = 10
    results = sweep.run(parse_study(study, "x.toml"), report=False)
    served_per_s = 3000 / results.cells["continuous_s_mean"][0]
    assert served_per_s == pytest.approx(results.cells["capacity_per_s"][0], rel=0.03)


def test_more_replicates_keep_the_earlier_rows() -> None:
    study = document(measure=LATENCIES)
    few = rows(sweep.run(parse_study({**study, "replicates": 20}, "x.toml"), report=False))
    many = rows(sweep.run(parse_study(study, "x.toml"), report=False))
    assert many.head(20).equals(few)


FAULTS = [
    ({"arrivals": {"process": "poisson"}}, "needs rate_per_s or load"),
    ({"arrivals": {"process": "poisson", "rate_per_s": 0.0}}, "rate_per_s: must be above 0"),
    ({"arrivals": {"process": "poisson", "rate_per_s": -1.0}}, "rate_per_s: must be above 0"),
    ({"arrivals": {"process": "poisson", "rate_per_s": math.nan}}, "rate_per_s: must be a finite number"),
    ({"arrivals": {"process": "poisson", "rate_per_s": 1e-16}}, "rate_per_s: must be at least 1e-09, got 1e-16"),
    ({"arrivals": {"process": "poisson", "load": 1e-300}}, "load: must be at least 1e-09, got 1e-300"),
    ({"arrivals": {"process": "poisson", "load": 0.5, "warm_up": 0.3}}, "warm_up goes with horizon"),
    ({"arrivals": {"process": "phases", "load": 1.0, "phases": []}}, "phases: must have 1 or more values, got 0"),
    ({"arrivals": {"process": "poisson", "rate_per_s": 1.0, "load": 1.0}}, "both given"),
    ({"arrivals": {"process": "gamma", "load": 1.0}}, "needs cv"),
    ({"arrivals": {"process": "gamma", "load": 1.0, "cv": 0.0}}, "cv: must be at least 0.01"),
    ({"arrivals": {"process": "poisson", "load": 1.0, "cv": 2.0}}, "cv does not go with"),
    ({"arrivals": {"process": "at_once", "horizon": "steady"}}, "requests that keep coming"),
    ({"arrivals": {"process": "clients", "load": 0.5, "clients": 3}}, "load does not go with"),
    ({"arrivals": {"process": "times", "times_s": [0.0, 2.0, 1.0]}}, "times_s.2: must not fall, got 1 after 2"),
    ({"arrivals": {"process": "times", "times_s": [0.0, 2.0]}}, "150 requests, and arrivals has 2 times"),
    ({"arrivals": {"process": "phases", "load": 1.0, "phases": [{"seconds": 1.0, "factor": 0.0}]}}, "nobody"),
    ({"server": {"step": {"kind": "constant", "ms": 3.0}}}, "step and step_ms are both given"),
    ({"server": {"order": "priority"}}, "workload.priorities: missing"),
    ({"server": {"prediction_cv": 1.0}}, "shortest_first"),
    ({"workload": {"slo": {}}}, "needs ttft_s, tpot_s or e2e_s"),
    ({"measure": ["continuous_slo_share"]}, "needs a workload.slo"),
    (
        {"workload": SLO, "arrivals": {"process": "at_once"}, "measure": ["static_slo_rate_per_s"]},
        "needs arrivals with a rate",
    ),
    (
        {"arrivals": {"process": "poisson", "load": 1.5, "horizon": "steady"}},
        "no cell can run: horizon",
    ),
]


@pytest.mark.parametrize(("changes", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_what_cannot_be_simulated_is_refused_in_words(changes, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse_study(document(**changes), "x.toml")
    assert any(words in line for line in caught.value.lines), caught.value.lines


def test_faults_of_the_parts_of_a_list_are_not_one_of_its_length() -> None:
    phases = [{"seconds": 0.0, "factor": 1.0}, {"seconds": 2.0, "factor": -1.0}]
    with pytest.raises(StudyError) as caught:
        parse_study(document(arrivals={"process": "phases", "load": 1.0, "phases": phases}), "x.toml")
    assert [line.split(": ")[1] for line in caught.value.lines] == [
        "workload.arrivals.phases.0.seconds",
        "workload.arrivals.phases.1.factor",
    ]


def test_measured_steps_can_stand_in_the_study_itself() -> None:
    measured = [[1, 100, 0, 5.0], [1, 1000, 0, 6.0], [8, 800, 0, 8], [8, 8000, 0, 9.0]]  # as TOML gives them
    study = document(measure=["continuous_tpot_mean_s"])
    study["server"] = {"slots": 8, "step": {"kind": "table", "rows": measured}}
    tpot_s = sweep.run(parse_study(study, "x.toml"), report=False).cells["continuous_tpot_mean_s_mean"][0]
    assert 0.005 < tpot_s < 0.009
    study["server"]["step"]["rows"][2] = [8, 800, 0]
    with pytest.raises(StudyError, match=r"server\.step\.rows\.2\.3: missing"):
        parse_study(study, "x.toml")


def test_what_is_served_a_second_stands_beside_the_rates() -> None:
    for keep in ("rows", "summary"):
        study = parse_study(document(grid={"workload.arrivals.load": [0.3, 3.0]}), "x.toml")
        results = sweep.run(study, report=False, keep=keep)
        cells = results.cells
        for scheduler in ("static", "continuous"):
            seconds = 40 * cells[f"{scheduler}_s_mean"].to_numpy()
            tokens = 40 * cells["output_tokens_mean"].to_numpy()
            assert cells[f"{scheduler}_tokens_per_s"].to_numpy() == pytest.approx(tokens / seconds, rel=1e-12)
            assert cells[f"{scheduler}_requests_per_s"].to_numpy() == pytest.approx(40 * 150 / seconds, rel=1e-12)
        assert cells["continuous_tokens_per_s"][1] > cells["continuous_tokens_per_s"][0]


def test_all_at_once_rates_are_those_of_a_study_without_a_clock() -> None:
    plain = document()
    plain["workload"] = without(plain["workload"], "arrivals")
    untimed = sweep.run(parse_study(plain, "x.toml"), report=False).cells
    timed = run(arrivals={"process": "at_once"}).cells
    for name in (
        "static_tokens_per_s",
        "continuous_tokens_per_s",
        "static_requests_per_s",
        "continuous_requests_per_s",
    ):
        assert timed[name][0] == pytest.approx(untimed[name][0], rel=1e-12)


def test_arrivals_in_seconds_need_a_step_time_and_loads_do_not() -> None:
    study = document(measure=["continuous_waited_share", "e2e_ratio"])
    study["server"] = {"slots": 8}
    assert parse_study(study, "x.toml")
    study["workload"]["arrivals"] = {"process": "poisson", "rate_per_s": 2.0}
    with pytest.raises(StudyError, match="needs a step time"):
        parse_study(study, "x.toml")
    with pytest.raises(StudyError, match="needs a step time"):
        parse_study(document(server={"step_ms": None}, measure=["continuous_ttft_p95_s"]), "x.toml")


def test_the_lab_is_drawn_the_same_with_arrivals() -> None:
    rng = random.Random(37)
    tokens = sum(rng.randint(400, 700) if rng.random() < 0.10 else rng.randint(8, 40) for _ in range(200))
    lab = {"output": {"distribution": "lab", "first_seed": 37}}
    frame = rows(run(workload=lab, requests=200))
    assert frame["output_tokens"][0] == tokens


def test_a_study_says_which_requests_count_and_where_static_batching_cannot_keep_up() -> None:
    steady = {"process": "poisson", "load": 0.5, "horizon": "steady"}
    results = run(arrivals=steady, grid={"workload.arrivals.load": [0.1, 0.5, 0.7]})
    said = clock_text(results.cells, results.manifest)
    assert said.startswith("Steady: the first 20 % of the requests")
    assert "cannot keep up in 2 cells" in said
    assert "all requests count" in clock_text(*_folder(run()))
    assert clock_text(*_folder(run(arrivals={"process": "at_once"}))) == ""


def test_a_largest_rate_says_over_how_many_workloads_it_is_and_whether_a_server_could_keep_it_up() -> None:
    measure = ["static_slo_rate_per_s", "continuous_slo_rate_per_s"]
    asked = {"slo": {"ttft_s": 30, "share": 0.99}}
    results = run(measure=measure, workload=asked, grid={"workload.slo.ttft_s": [0.05, 30.0]})
    cells, said = results.cells, clock_text(results.cells, results.manifest)
    found = [rows(results, cell)[name].drop_nulls().len() for name in measure for cell in (0, 1)]
    assert [cells[f"{name}_n"][cell] for name in measure for cell in (0, 1)] == found
    assert found[0] < 40
    assert cells["continuous_slo_rate_per_s_mean"][1] > cells["capacity_per_s"][1]
    assert "Under static batching no largest rate was found in" in said
    assert "the largest rate of continuous batching is more than it can serve in the long run" in said
    never = run(measure=measure, workload={"slo": {"ttft_s": 0.001}})
    assert "largest rate within the SLO is undefined in all of 40 workloads." in sentence(*_folder(never), [])
    lost = {"ttft_s": 0.05, "share": 0.99}
    partly = run(measure=measure[:1], workload={"slo": lost})
    n = partly.cells["static_slo_rate_per_s_n"][0]
    assert f"mean of {n} of 40 workloads, in which there is one" in sentence(*_folder(partly), [])


def test_the_observed_rate_and_cv_are_said_beside_those_asked_for() -> None:
    measure = ["arrival_rate_per_s", "arrival_gap_cv"]
    gaps = {"process": "gamma", "load": 0.5, "cv": 1.0}
    results = run(measure=measure, arrivals=gaps, grid={"workload.arrivals.cv": [0.5, 8.0]})
    cells, said = results.cells, clock_text(*_folder(results))
    apart = "was asked for, where they are furthest apart."
    for observed, asked in zip(measure, ("requested_rate_per_s", "requested_gap_cv"), strict=True):
        assert f"is {number(cells[f'{observed}_mean'][1])} and {number(cells[asked][1])} {apart}" in said
    assert "furthest" not in clock_text(*_folder(run(measure=measure)))
    assert "asked for" not in clock_text(*_folder(run()))


def test_a_percentile_that_is_withheld_is_said_with_what_it_takes() -> None:
    results = run(measure=["continuous_ttft_p95_s", "continuous_ttft_p99_s"], requests=150)
    said = clock_text(*_folder(results))
    assert "p99 is withheld in 1 cell: it takes 500 requests that count" in said
    assert "p95" not in said
    enough = run(measure=["continuous_ttft_p99_s"], requests=500)
    assert enough.cells["continuous_ttft_p99_s_mean"][0] is not None
    assert "withheld" not in clock_text(*_folder(enough))
    assert run(measure=["continuous_ttft_p99_s"], requests=499).cells["continuous_ttft_p99_s_mean"][0] is None


def test_the_multiple_in_time_stands_beside_that_of_steps() -> None:
    table = cells_text(*_folder(run(measure=["multiple_s"]))).splitlines()[0]
    assert table.index("mean multiple_s (95 %)") < table.index("mean multiple (95 %)")
    results = run(
        measure=["multiple_s"], arrivals={"process": "at_once"}, server={"pads": False, "step_ms": None, **AFFINE}
    )
    assert "mean multiple_s (95 %)" in cells_text(*_folder(results)).splitlines()[0]
    said = with_interval(*(results.cells[f"multiple_s_{part}"][0] for part in ("mean", "ci_low", "ci_high")))
    assert f", and {said} times the seconds." in sentence(*_folder(results), [])
    assert "times the seconds" not in sentence(*_folder(run()), [])


def _folder(results):
    return results.cells, results.manifest


def test_a_logarithmic_axis_is_one_and_zero_has_no_place_on_it() -> None:
    results = run(grid={"workload.arrivals.load": [0.1, 0.5, 0.7]}, measure=["static_wait_mean_s"])
    drawn = lines(results.cells, "arrivals_load", metric="static_wait_mean_s", log=True).to_dict()
    assert '"type": "log"' in json.dumps(drawn)
    zero = results.cells.with_columns(static_wait_mean_s_mean=0.0 * results.cells["static_wait_mean_s_mean"])
    drawn = lines(zero, "arrivals_load", metric="static_wait_mean_s", log=True).to_dict()
    assert '"domain": [0' in json.dumps(drawn) or '"type": "log"' not in json.dumps(drawn["layer"])


def test_latencies_are_spoken_of_in_words() -> None:
    assert (
        metric_name("continuous_ttft_p95_s").title == "95th percentile of the time to the first token, continuous (s)"
    )
    assert metric_name("static_e2e_mean_s").subject == "The mean time to the last token under static batching"


def test_with_a_constant_step_seconds_are_steps_times_the_step_to_the_last_bit() -> None:
    names = ["static_s", "continuous_s", "continuous_ttft_p50_s", "static_e2e_p50_s"]
    step_s = 0.0173
    frame = rows(run(server={"step_ms": 17.3}, measure=names, requests=151))  # the median is one request's
    for name in names:
        seconds = frame[name].to_numpy()
        assert (seconds == np.rint(seconds / step_s) * step_s).all()
    at_once = rows(run(server={"step_ms": 17.3}, measure=names, requests=151, arrivals={"process": "at_once"}))
    assert (at_once["static_s"].to_numpy() == at_once["static_steps"].to_numpy() * step_s).all()


def test_rows_do_not_depend_on_the_pieces_they_are_simulated_in(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"measure": LATENCIES, "server": {"order": "shortest_first", "prediction_cv": 1.0}}
    whole = rows(run(**changes))
    monkeypatch.setattr(arriving, "MOST_SIMULATED", 400)  # two workloads at a time
    monkeypatch.setattr(arriving, "MOST_DRAWN", 1000)  # and four are drawn
    assert rows(run(**changes)).equals(whole)


def test_goodput_is_the_share_within_the_slo_of_what_is_served() -> None:
    names = ["continuous_slo_share", "continuous_goodput_per_s", "continuous_s"]
    frame = rows(run(workload=SLO, measure=names))
    served_per_s = 150 / frame["continuous_s"].to_numpy()
    assert frame["continuous_goodput_per_s"].to_numpy() == pytest.approx(
        frame["continuous_slo_share"].to_numpy() * served_per_s
    )


def test_a_study_that_waits_for_full_groups_serves_fewer_of_them() -> None:
    results = run(grid={"server.max_wait_s": [0.0, 60.0]}, arrivals={"process": "poisson", "load": 0.05})
    at_once, patient = results.cells["static_steps_mean"]
    assert patient < at_once

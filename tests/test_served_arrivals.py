"""Studies with a clock on the server model: requests that arrive over time, and memory, prefixes and a token budget."""

import numpy as np
import polars as pl
import pytest
from small import bytes_of

import sweep
from sweep.errors import StudyError
from sweep.grid import points
from sweep.metrics import ON_SERVER
from sweep.model.times import in_units
from sweep.report.clock import clock_text
from sweep.rows import arriving
from sweep.rows.arriving import _drawn, _requests
from sweep.rows.backlog import growth_share
from sweep.rows.latencies import Window
from sweep.rows.schedulers import run_on
from sweep.study import parse_study
from sweep.study.capacity import _kinds
from sweep.study.server_rules import rules_of

PROMPT = {"distribution": "lognormal", "mean": 60, "cv": 1, "max_tokens": 300}
OUTPUT = {"distribution": "lognormal", "mean": 80, "cv": 1, "max_tokens": 400}
KV = {"policy": "paged", "block_size": 16, "blocks": 120, "token_budget": 128}
POISSON = {"process": "poisson", "load": 0.6}
LATENCIES = [f"{s}_{m}_mean_s" for s in ("static", "continuous") for m in ("wait", "ttft", "tpot", "e2e")]
AFFINE = {"kind": "affine", "ms": 10.0, "us_per_request": 50.0, "us_per_kv_token": 0.3, "us_per_prefill_token": 20.0}


def document(*, workload=None, server=None, arrivals=POISSON, measure=(), grid=None, replicates=12, **changes):
    base = {"requests": 120, "prompt": PROMPT, "output": OUTPUT, "arrivals": arrivals}
    return {
        "seed": 37,
        "replicates": replicates,
        "measure": list(measure),
        "workload": {key: value for key, value in (base | (workload or {})).items() if value is not None},
        "server": {"slots": 16, "step_ms": 20.0, "kv": KV} | (server or {}),
        "grid": grid or {},
        **changes,
    }


def parsed(**changes):
    study = document(**changes)
    study["server"] = {key: value for key, value in study["server"].items() if value is not None}
    return parse_study(study, "x.toml")


def run(**changes):
    return sweep.run(parsed(**changes), report=False)


def rows(results, cell=0):
    return results.replicates.filter(pl.col("cell") == cell).collect()


def test_every_row_is_a_run_of_the_server_on_the_arrivals_that_were_drawn() -> None:
    grid = {"server.kv.blocks": [40, 120, 600]}
    prefix = {"shared_prefix": {"tokens": 40, "groups": 3}}
    study = parsed(
        grid=grid, workload=prefix, server={"kv": {**KV, "prefix_caching": True}}, measure=[*ON_SERVER, *LATENCIES]
    )
    results = sweep.run(study, report=False)
    for point in points(study):
        work = _drawn(point, 0, 12)
        for cell in point.cells:
            frame = rows(results, cell.index)
            steps = in_units(_requests(point, cell.timing, work, 0, 12).arrival_s, cell.timing.step_time)
            for replicate, row in enumerate(frame.iter_rows(named=True)):
                direct = sweep.serve(
                    work.prompts[replicate],
                    work.outputs[replicate],
                    arrival_step=steps[replicate].astype(np.int64),
                    prefix_tokens=np.full(120, 40),
                    prefix_group=work.groups[replicate],
                    slots=16,
                    block_size=16,
                    blocks=cell.axes[0][1],
                    token_budget=128,
                    prefix_caching=True,
                )
                served = direct.last_token_step > 0
                assert row["continuous_steps"] == direct.engine_steps
                assert row["refused_requests"] == direct.refused == (~served).sum()
                assert row["prefix_hit_tokens"] == direct.prefix_hit_tokens_first
                for name in ("preemptions", "scheduled_tokens", "recomputed_tokens", "max_blocks", "mean_batch"):
                    assert row[name] == getattr(direct, name)
                waited = (direct.first_token_step - steps[replicate])[served]
                assert row["continuous_ttft_mean_s"] == pytest.approx(0.02 * waited.mean(), rel=1e-12)
                span = direct.makespan_steps - steps[replicate][served].min()
                assert row["continuous_s"] == span * 0.02
    assert results.cells["preemptions_mean"][0] > 0


@pytest.mark.parametrize("order", ["first_come", "shortest_first", "priority"])
@pytest.mark.parametrize("prompt", [None, PROMPT])
def test_with_memory_without_limit_and_prompts_in_one_step_rows_are_those_of_slots_alone(order, prompt) -> None:
    """A step that computes a whole prompt gives the first token, as does a first step where prompts are for nothing."""
    changes = {
        "workload": {"prompt": prompt, "priorities": [0.3, 0.7]},
        "server": {"order": order, "max_wait_s": 0.5, "kv": None, "charge_prompts": False},
        "arrivals": {"process": "poisson", "rate_per_s": 6.0},
        "measure": [*LATENCIES, "continuous_ttft_p95_s", "static_waited_share", "wait_ratio", "multiple_s"],
    }
    alone = rows(run(**changes))
    changes["server"] |= {"kv": {"policy": "slots", "token_budget": 1_000_000}, "charge_prompts": True}
    served = rows(run(**changes))
    assert (served["refused_requests"] == 0).all()
    assert served.select(alone.columns).equals(alone)


def test_with_a_constant_step_seconds_are_steps_times_the_step_to_the_last_bit() -> None:
    names = ["continuous_ttft_p50_s", "static_e2e_p50_s"]
    frame = rows(run(server={"step_ms": 17.3}, measure=names, workload={"requests": 121}))  # one request's
    for name in ("static_s", "continuous_s", *names):
        seconds = frame[name].to_numpy()
        assert (seconds == np.rint(seconds / 0.0173) * 0.0173).all()
    at_once = rows(run(server={"step_ms": 17.3}, arrivals={"process": "at_once"}))
    for scheduler in ("static", "continuous"):
        steps = at_once[f"{scheduler}_steps"].to_numpy()
        assert (at_once[f"{scheduler}_s"].to_numpy() == steps * 0.0173).all()


def test_all_at_once_a_study_with_a_clock_gives_the_steps_and_the_cache_of_one_without() -> None:
    shares = ("used_share", "reserved_share", "lost_share", "free_share")
    kinds = [KV, {**KV, "policy": "reserve"}, {**KV, "policy": "reserve", "reserve": "oracle"}]
    for kv in kinds:
        timed = rows(run(server={"kv": kv}, arrivals={"process": "at_once"}, measure=ON_SERVER))
        plain = document(server={"kv": kv}, measure=ON_SERVER)
        del plain["workload"]["arrivals"]
        untimed = rows(sweep.run(parse_study(plain, "x.toml"), report=False))
        for name in ("output_tokens", "static_steps", "continuous_steps", "multiple", *ON_SERVER):
            assert timed[name].equals(untimed[name]), (kv, name)
        assert (timed.select(pl.sum_horizontal(shares)).to_series() - 1).abs().max() < 1e-12


def test_steps_of_a_line_take_what_runs_in_them() -> None:
    """c0 for each step, and the costs of all decoding, reading and prompts, however they are spread over steps."""
    at_once = {"process": "at_once"}
    names = ["scheduled_tokens", "prompt_tokens", "recomputed_tokens", "preemptions"]
    plenty = {"policy": "slots", "token_budget": 128}
    for key, ms in (("us_per_request", 3.0), ("us_per_prefill_token", 2.0)):
        step = {"kind": "affine", "ms": 10.0, key: ms * 1000}
        frame = rows(run(server={"step": step, "step_ms": None, "kv": plenty}, arrivals=at_once, measure=names))
        prompts = frame["prompt_tokens"].to_numpy()
        decoded = frame["scheduled_tokens"].to_numpy() - prompts
        seconds = 0.01 * frame["continuous_steps"].to_numpy() + ms / 1000 * (prompts if "prefill" in key else decoded)
        assert frame["continuous_s"].to_numpy() == pytest.approx(seconds, rel=1e-9)


CELLS = {
    "paged": {},
    "cached": {"kv": {**KV, "prefix_caching": True}},
    "reserve": {"kv": {**KV, "policy": "reserve", "reserve": "power_of_two"}},
    "whole prompts": {"kv": {**KV, "chunked_prefill": False, "token_budget": 768}},
    "ahead": {"refill_delay": 1},
    "groups": {"static_slots": 5, "pads": False},
    "line": {"step": AFFINE, "step_ms": None},
    "roofline": {"step": {"kind": "roofline", "model": "Llama-2-7b-hf", "gpu": "A100-80GB"}, "step_ms": None},
    "shortest": {"order": "shortest_first", "prediction_cv": 1.0},
    "patient": {"max_wait_s": 2.0},
}
PROCESSES = {
    "at_once": {"process": "at_once"},
    "poisson": POISSON,
    "flood": {"process": "poisson", "load": 5.0},
    "steady": {"process": "gamma", "cv": 2.0, "load": 0.5, "horizon": "steady"},
    "clients": {"process": "clients", "clients": 30, "think_s": 0.5},
}


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("server", CELLS)
def test_what_cannot_be_otherwise_holds_in_every_row(server: str, process: str) -> None:
    measure = [*ON_SERVER, *LATENCIES, "static_waited_share", "continuous_waited_share"]
    prefix = {"shared_prefix": {"tokens": 32, "groups": 2}}
    frame = rows(run(server=CELLS[server], arrivals=PROCESSES[process], measure=measure, workload=prefix, replicates=4))
    for scheduler in ("static", "continuous"):
        assert frame[f"{scheduler}_utilisation"].is_between(0, 1).all()
        if process == "steady" and scheduler == "static" and frame["static_wait_mean_s"].null_count():
            continue  # overloaded, and withheld
        assert frame[f"{scheduler}_waited_share"].is_between(0, 1).all()
        wait, ttft, tpot, e2e = (frame[f"{scheduler}_{m}_mean_s"].to_numpy() for m in ("wait", "ttft", "tpot", "e2e"))
        assert (wait >= 0).all()
        assert (ttft > wait).all()
        assert (tpot > 0).all()
        assert (e2e > ttft).all()
    assert (frame["refused_requests"] == 0).all()
    assert (frame["peak_batch"] <= 16).all()
    if server != "reserve" and server != "cached":
        assert (frame["max_blocks"] <= 120).all()
    useful = frame["prompt_tokens"] + frame["output_tokens"] - 120
    found = frame["prefix_hit_tokens"] + frame["resumed_hit_tokens"]
    assert (frame["scheduled_tokens"] == useful + frame["recomputed_tokens"] - found).all()


def test_no_server_passes_its_capacity_and_one_that_slots_limit_reaches_it() -> None:
    flood = {"process": "poisson", "load": 4.0}
    many = {"requests": 1_500}
    for name, server in CELLS.items():
        results = run(server=server, arrivals=flood, workload=many, replicates=3)
        served = 1_500 / results.cells["continuous_s_mean"][0]
        assert 0.4 < served / results.cells["capacity_per_s"][0] < 1.03, name
    slots = {"kv": {"policy": "slots", "token_budget": 4_096}}
    results = run(server=slots, arrivals=flood, workload=many, replicates=3)
    assert 1_500 / results.cells["continuous_s_mean"][0] == pytest.approx(results.cells["capacity_per_s"][0], rel=0.06)


@pytest.mark.parametrize(
    "kv",
    [
        {**KV, "blocks": 20},
        {**KV, "chunked_prefill": False},
        {"policy": "slots", "chunked_prefill": False, "token_budget": 64},
        {"policy": "reserve", "reserve": "oracle", "tokens": 150, "token_budget": 64, "chunked_prefill": False},
    ],
)
def test_a_capacity_knows_how_many_requests_are_refused_and_how_long_the_other_prompts_are(kv) -> None:
    """Of 15,000 requests, within 4 standard errors and within 3 %."""
    workload = {"requests": 3_000, "shared_prefix": {"tokens": 10}}
    study = parsed(
        server={"kv": kv}, workload=workload, arrivals={"process": "at_once"}, measure=ON_SERVER, replicates=5
    )
    kinds = _kinds(study.resolved[0].workload, rules_of(study.resolved[0]))
    frame = rows(sweep.run(study, report=False))
    share = 1 - frame["refused_requests"].sum() / 15_000
    known = kinds.weight.sum()
    assert 0 < known < 1
    assert abs(share - known) < 4 * np.sqrt(known * (1 - known) / 15_000)
    mean = frame["prompt_tokens"].sum() / (15_000 * share)
    assert mean == pytest.approx((kinds.weight * kinds.prompt).sum() / known, rel=0.03)


def test_a_load_where_no_request_takes_a_step_is_no_rate() -> None:
    nothing = {"output": {"distribution": "constant", "value": 0}}
    for server in ({}, {"kv": None}):
        with pytest.raises(StudyError, match="there is no limit to that: no request takes a step"):
            parsed(workload=nothing, server=server)
    assert run(workload=nothing, arrivals={"process": "poisson", "rate_per_s": 2.0}).cells["error"][0] is None


def test_requests_that_can_never_fit_are_counted_and_in_no_other_figure() -> None:
    workload = {
        "prompt": {"distribution": "empirical", "values": [20, 900], "weights": [3, 1]},
        "slo": {"ttft_s": 99.0},
    }
    names = [
        "continuous_slo_share",
        "static_slo_share",
        "continuous_goodput_per_s",
        "continuous_waited_share",
        *LATENCIES,
    ]
    small = {"kv": {**KV, "blocks": 56}}  # 896 tokens
    arrivals = {"process": "poisson", "load": 0.05}
    results = run(workload=workload, server=small, arrivals=arrivals, measure=names)
    frame = rows(results)
    refused = frame["refused_requests"].to_numpy()
    assert (refused > 0).all()
    study = parsed(workload=workload, server=small, arrivals=arrivals, measure=names)
    work = _drawn(points(study)[0], 0, 12)
    fits = work.prompts < 900
    assert (refused == (~fits).sum(axis=1)).all()
    assert (frame["output_tokens"].to_numpy() == np.where(fits, work.outputs, 0).sum(axis=1)).all()
    for scheduler in ("static", "continuous"):
        assert (frame[f"{scheduler}_slo_share"] == 1).all()
        assert frame[f"{scheduler}_utilisation"].is_between(0, 1).all()
    goodput = (120 - refused) / frame["continuous_s"].to_numpy()
    assert frame["continuous_goodput_per_s"].to_numpy() == pytest.approx(goodput)
    per_s = results.cells["continuous_requests_per_s"][0]
    assert per_s == pytest.approx((12 * 120 - refused.sum()) / frame["continuous_s"].sum())


def test_a_server_that_falls_behind_below_its_capacity_is_said_to() -> None:
    """Requests that are preempted are computed again, which no capacity knows of."""
    steady = {"process": "poisson", "load": 0.9, "horizon": "steady"}
    small, loads = {"slots": 64, "kv": {**KV, "blocks": 60}}, {"workload.arrivals.load": [0.3, 0.9]}
    results = run(server=small, arrivals=steady, workload={"requests": 600}, grid=loads, replicates=10)
    growth = results.cells["continuous_growth_share_mean"]
    assert growth[0] < 0.01 < 0.05 < growth[1]
    said = clock_text(results.cells, results.manifest)
    assert "Continuous batching fell behind in 1 cell: its queue grew by" in said


def test_clients_send_no_request_that_would_be_refused_and_their_rate_is_that_of_the_others() -> None:
    workload = {"prompt": {"distribution": "empirical", "values": [20, 900], "weights": [3, 1]}}
    clients = {"process": "clients", "clients": 4, "think_s": 1.0}
    names = ["arrival_rate_per_s", "continuous_wait_mean_s"]
    frame = rows(run(workload=workload, server={"kv": {**KV, "blocks": 56}}, arrivals=clients, measure=names))
    sent = 120 - frame["refused_requests"].to_numpy()
    assert (sent < 120).all()
    last_s = (sent - 1) / frame["arrival_rate_per_s"].to_numpy()
    assert (last_s < frame["continuous_s"].to_numpy()).all()
    assert (last_s > 0.5 * frame["continuous_s"].to_numpy()).all()


def test_a_rate_is_an_axis_by_its_own_name() -> None:
    results = run(arrivals={"process": "poisson"}, grid={"workload.arrivals.rate_per_s": [1.0, 4.0]}, replicates=3)
    assert results.cells["arrivals_rate_per_s"].to_list() == results.cells["requested_rate_per_s"].to_list() == [1, 4]


def test_the_queue_grows_by_what_comes_and_is_not_served() -> None:
    study = parsed(arrivals={"process": "poisson", "load": 3.0, "horizon": "terminating"})
    point = points(study)[0]
    cell = point.cells[0]
    work = _drawn(point, 0, 12)
    times = run_on(cell, "continuous", work, _requests(point, cell.timing, work, 0, 12)).times
    share = growth_share(times, Window(0, steady=False))
    last = times.arrival[:, -1:]
    by_hand = (times.start > last).sum(axis=1) / 120  # nobody waits when the first comes
    assert share == pytest.approx(by_hand)


def test_a_load_of_1_or_more_is_no_steady_state_and_the_other_cells_run() -> None:
    steady = {"process": "poisson", "load": 0.5, "horizon": "steady"}
    results = run(arrivals=steady, grid={"workload.arrivals.load": [0.3, 1.0, 2.0]})
    errors = results.cells["error"].to_list()
    assert errors[0] is None
    assert all("needs a load below 1" in error for error in errors[1:])
    assert results.cells["continuous_steps_mean"].null_count() == 2


def test_all_cells_give_the_same_columns_whichever_of_them_has_memory() -> None:
    grid = {"server.refill_delay": [0, 1]}
    results = run(server={"kv": None}, grid=grid, measure=["preemptions", "mean_batch", "continuous_ttft_mean_s"])
    assert results.cells["mean_batch_mean"].null_count() == 0
    assert results.cells["continuous_steps_mean"][1] >= results.cells["continuous_steps_mean"][0]


SLO = {"slo": {"ttft_s": 3.0, "share": 0.9}}
RATES = ["static_slo_rate_per_s", "continuous_slo_rate_per_s"]


def test_the_largest_rate_keeps_the_slo_on_a_server_with_memory() -> None:
    results = run(workload=SLO, measure=RATES, replicates=6)
    static, continuous = (results.cells[f"{name}_mean"][0] for name in RATES)
    assert 0 < static < continuous


def test_less_memory_lowers_the_largest_rate() -> None:
    rates = run(workload=SLO, measure=RATES[1:], replicates=6, grid={"server.kv.blocks": [50, 600]}).cells
    small, large = rates["continuous_slo_rate_per_s_mean"]
    assert small < 0.8 * large


def test_an_slo_that_nothing_can_meet_is_null_and_does_not_hang() -> None:
    results = run(workload={"slo": {"ttft_s": 0.001}}, measure=[*RATES, "continuous_slo_share"], replicates=3)
    assert results.cells["continuous_slo_rate_per_s_mean"][0] is None
    assert results.cells["continuous_slo_share_mean"][0] == 0


def test_rows_do_not_depend_on_the_pieces_they_are_simulated_in(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"measure": [*LATENCIES, *ON_SERVER], "server": {"order": "shortest_first", "prediction_cv": 1.0}}
    whole = rows(run(**changes))
    monkeypatch.setattr(arriving, "MOST_DRAWN", 300)  # two workloads at a time
    assert rows(run(**changes)).equals(whole)


def test_bytes_do_not_depend_on_threads_and_are_the_same_when_simulated_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    changes = {"replicates": 300, "workload": {"requests": 20}, "measure": LATENCIES}
    for jobs in (1, 3):
        sweep.run(parsed(**changes), tmp_path / str(jobs), jobs=jobs, report=False)
    assert bytes_of(tmp_path / "1") == bytes_of(tmp_path / "3")
    assert sweep.read(tmp_path / "3").verify().equal > 1


def test_more_replicates_keep_the_earlier_rows() -> None:
    few, many = (rows(run(replicates=n, measure=LATENCIES)) for n in (5, 12))
    assert many.head(5).equals(few)


def test_sums_say_what_rows_say() -> None:
    study = parsed(measure=["continuous_ttft_mean_s", "preemptions"])
    kept, summed = (sweep.run(study, report=False, keep=keep).cells for keep in ("rows", "summary"))
    for name in ("continuous_ttft_mean_s_mean", "preemptions_mean", "continuous_tokens_per_s", "multiple_of_totals"):
        assert summed[name][0] == pytest.approx(kept[name][0], rel=1e-12)


DECODING = [[1.0, 100.0, 0.0, 5.0], [1.0, 1000.0, 0.0, 6.0], [16.0, 1600.0, 0.0, 8.0], [16.0, 16000.0, 0.0, 9.0]]
FAULTS = [
    ({"server": {"charge_prompts": False}}, "server.charge_prompts: prompts always take steps"),
    (
        {"server": {"step": {"kind": "table", "rows": DECODING}, "step_ms": None}},
        "server.step: has no rows of prompts alone",
    ),
    ({"server": {"kv": {**KV, "token_budget": 8}}}, "token_budget: must be at least the slots"),
    (
        {"server": {"kv": {**KV, "blocks": 2}}, "workload": {"prompt": {"distribution": "constant", "value": 99}}},
        "server.kv: no cell can run: a request takes at least",
    ),
    ({"server": {"order": "priority"}}, "workload.priorities: missing"),
    ({"server": {"step_ms": None}, "measure": ["continuous_ttft_p95_s"]}, "needs a step time"),
    ({"server": {"kv": None}, "measure": ["preemptions"]}, "measure.0: needs a [server.kv] in a study with a clock"),
    ({"arrivals": {"process": "poisson", "load": 1.5, "horizon": "steady"}}, "no cell can run: horizon"),
]


@pytest.mark.parametrize(("changes", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_what_cannot_be_simulated_is_refused_in_a_line(changes, words: str) -> None:
    with pytest.raises(StudyError) as caught:
        parsed(**changes)
    assert len(caught.value.lines) == 1, caught.value.lines
    assert words in caught.value.lines[0]


def test_a_step_table_with_prompts_serves_up_to_the_batch_it_was_measured_with() -> None:
    alone = [[0.0, 0.0, 64.0, 4.0], [0.0, 0.0, 512.0, 12.0]]
    table = {"kind": "table", "rows": [*DECODING, *alone]}
    results = run(server={"step": table, "step_ms": None}, grid={"server.slots": [8, 16, 32]})
    assert [error is None for error in results.cells["error"]] == [True, True, False]
    assert "measured up to a batch of 16" in results.cells["error"][2]

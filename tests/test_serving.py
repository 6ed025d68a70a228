"""Studies whose servers have prompts and memory: every row is a run of the server model, with the usual guarantees."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small import STUDY, bytes_of, study

import sweep
from sweep.commands.replay import replay_in
from sweep.errors import StudyError, SweepError
from sweep.grid import points
from sweep.model.distributions import Given
from sweep.model.lengths import integer_lengths, moments
from sweep.rows.draws import workloads
from sweep.runner import chunk_replicates
from sweep.study import parse_study
from sweep.study.server_cache import KvSpec

PUBLISHED = json.loads((Path(__file__).parent / "golden" / "published.json").read_text(encoding="utf-8"))["caps"]
ALL = (
    "prompt_tokens",
    "scheduled_tokens",
    "preemptions",
    "recomputed_tokens",
    "prefix_hit_tokens",
    "resumed_hit_tokens",
    "refused_requests",
    "max_blocks",
    "mean_blocks",
    "peak_batch",
    "mean_batch",
    "tokens_per_step",
    "used_share",
    "reserved_share",
    "lost_share",
    "free_share",
)
WORKLOAD = {
    **STUDY["workload"],
    "prompt": {"distribution": "lognormal", "mean": 60, "cv": 1, "max_tokens": 300},
    "shared_prefix": {"tokens": 40, "groups": 3},
}
KV = {"policy": "paged", "block_size": 16, "blocks": 120, "token_budget": 256, "prefix_caching": True}
SERVED = {"workload": WORKLOAD, "server": {"slots": 16, "kv": KV}, "replicates": 20, "measure": list(ALL)}


def served(**changes):
    return study(**{**SERVED, "grid": {"server.kv.blocks": [60, 120, 600]}, **changes})


def rows_of(parsed) -> pl.DataFrame:
    results = sweep.run(parsed, report=False)  # its folder goes with it
    return results.replicates.collect()


def test_every_row_is_a_run_of_the_server_on_the_drawn_workload():
    rows = rows_of(served(replicates=5))
    (point,) = points(served())
    work = workloads(point.workload, 0, 5)
    for cell in point.cells:
        for replicate in range(5):
            run = sweep.serve(
                work.prompts[replicate],
                work.outputs[replicate],
                prefix_tokens=np.full(50, 40),
                prefix_group=work.groups[replicate],
                slots=16,
                block_size=16,
                blocks=cell.axes[0][1],
                token_budget=256,
                prefix_caching=True,
            )
            row = rows.row(by_predicate=(pl.col("cell") == cell.index) & (pl.col("replicate") == replicate), named=True)
            assert row["continuous_steps"] == run.engine_steps
            assert row["prefix_hit_tokens"] == run.prefix_hit_tokens_first
            assert row["resumed_hit_tokens"] == run.prefix_hit_tokens_resumed
            ours = {
                name: getattr(run, name)
                for name in ("preemptions", "scheduled_tokens", "recomputed_tokens", "max_blocks", "mean_blocks")
            }
            assert {name: row[name] for name in ours} == ours
            assert (row["mean_batch"], row["peak_batch"]) == (run.mean_batch, run.max_batch)
            assert row["refused_requests"] == run.refused
            assert row["used_share"] == pytest.approx(run.mean_cached_tokens / (16 * cell.axes[0][1]), rel=1e-12)
    assert rows["preemptions"].sum() > 0
    assert rows["prefix_hit_tokens"].sum() > 0


def test_tokens_and_the_cache_are_accounted_for_in_every_row():
    policies = [KV, {**KV, "prefix_caching": False}, {**KV, "policy": "reserve", "prefix_caching": False}]
    axis = {"name": "policy", "names": ["shared", "paged", "reserve"], "values": policies}
    rows = rows_of(served(server={"slots": 16}, grid={"server.kv": axis}))
    useful = rows["prompt_tokens"] + rows["output_tokens"] - (50 - rows["refused_requests"])
    hits = rows["prefix_hit_tokens"] + rows["resumed_hit_tokens"]
    assert (rows["scheduled_tokens"] == useful + rows["recomputed_tokens"] - hits).all()
    whole = rows.select(pl.sum_horizontal("used_share", "reserved_share", "lost_share", "free_share")).to_series()
    assert (whole - 1).abs().max() < 1e-12
    assert (rows["max_blocks"] <= 120).all()
    assert (rows["peak_batch"] <= 16).all()


def test_utilisation_is_slot_steps_that_gave_a_token():
    server = {"slots": 16, "static_slots": 5, "kv": KV}
    rows = rows_of(served(server=server, grid={}))
    assert (rows["continuous_utilisation"] == rows["output_tokens"] / (rows["continuous_steps"] * 16)).all()
    assert (rows["static_utilisation"] == rows["output_tokens"] / (rows["static_steps"] * 5)).all()
    assert (rows["tokens_per_step"] == rows["output_tokens"] / rows["continuous_steps"]).all()


@pytest.mark.parametrize("kv", [{"policy": "slots"}, {"blocks": 100_000}, {"policy": "slots", "prefix_caching": True}])
def test_without_prompts_and_with_plenty_of_memory_a_study_gives_the_rows_of_lockstep(kv):
    server = {"slots": 4, "step_ms": 20, "kv": kv}
    ideal = rows_of(study(replicates=150, measure=["longest_output_tokens", "static_s"]))
    ours = rows_of(study(replicates=150, measure=["longest_output_tokens", "static_s"], server=server))
    assert ours.drop("refused_requests").equals(ideal)
    assert ours["refused_requests"].sum() == 0


def test_prompts_of_one_token_change_nothing_either():
    one = {**STUDY["workload"], "prompt": {"distribution": "constant", "value": 1}}
    ideal, ours = rows_of(study(replicates=150)), rows_of(study(replicates=150, workload=one))
    assert ours.drop("refused_requests").equals(ideal)


def test_a_delay_costs_the_steps_that_an_engine_which_plans_ahead_shows():
    lengths = {"requests": 200, "output": {"distribution": "lab", "first_seed": 37}}
    grid = {"server.slots": [4, 8, 16, 32, 64]}
    rows = rows_of(study(workload=lengths, server={"refill_delay": 1}, grid=grid, replicates=1))
    assert rows["continuous_steps"].to_list() == [3607, 1996, 1157, 703, 661]
    assert rows["static_steps"].to_list()[2] == 5797


def test_the_same_prompts_are_met_whatever_the_outputs_and_the_server():
    (short,) = points(served())
    (other,) = points(served(workload={**WORKLOAD, "output": {"distribution": "constant", "value": 9}}))
    one, two = workloads(short.workload, 3, 4), workloads(other.workload, 0, 9)
    assert (one.prompts == two.prompts[3:7]).all()
    assert (one.groups == two.groups[3:7]).all()
    assert set(np.unique(two.groups)) == {0, 1, 2}


def test_bytes_depend_on_neither_threads_nor_on_how_many_are_drawn_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    for jobs in (1, 3):
        sweep.run(served(replicates=300), tmp_path / f"threads{jobs}", jobs=jobs, report=False)
    monkeypatch.setattr("sweep.rows.serving.MOST_DRAWN", 50 * 7)
    sweep.run(served(replicates=300), tmp_path / "pieces", report=False)
    monkeypatch.setattr("sweep.rows.serving.MOST_DRAWN", 1)
    sweep.run(served(replicates=300), tmp_path / "single", report=False)
    first, *others = [bytes_of(folder) for folder in sorted(tmp_path.iterdir())]
    assert len(first) == 4
    assert all(other == first for other in others)


def test_a_study_goes_on_where_it_was_and_ends_with_the_bytes_of_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)
    sweep.run(served(replicates=150), tmp_path / "twice", report=False)
    sweep.run(served(replicates=300), tmp_path / "twice", report=False)
    sweep.run(served(replicates=300), tmp_path / "once", report=False)
    assert bytes_of(tmp_path / "twice") == bytes_of(tmp_path / "once")


def test_chunks_of_a_server_are_smaller_and_those_of_slots_alone_are_as_ever():
    (slots,) = points(study(grid={}))
    (server,) = points(served(grid={}))
    assert chunk_replicates(server) < chunk_replicates(slots) / 10
    assert chunk_replicates(server) % 128 == 0


@pytest.mark.parametrize("cap", PUBLISHED)
def test_the_published_benchmark_is_a_study_with_its_exact_figures(cap):
    figures = PUBLISHED[cap]
    kinds = {
        "same slots": {"policy": "slots", "token_budget": 8192},
        "reserved": {
            "policy": "reserve",
            "reserve": "asked",
            "tokens": figures["reserved_tokens"],
            "token_budget": 8192,
        },
    }
    kinds |= {
        f"paged {pool['usable_blocks']}": {"blocks": pool["usable_blocks"], "token_budget": pool["token_budget"]}
        for pool in figures["paged"]
    }
    slots = [figures["static_slots"], *[256] * (len(kinds) - 1)]
    paired = {"server.kv": {"name": "how", "names": list(kinds), "values": list(kinds.values())}, "server.slots": slots}

    def rows(least: int) -> pl.DataFrame:
        lengths = [max(length, least) for length in figures["lengths"]]
        workload = {
            "requests": 1000,
            "output": {"distribution": "given", "values": lengths},
            "prompt": {"distribution": "constant", "value": 512},
        }
        server = {"static_slots": figures["static_slots"]}
        measure = ["preemptions", "mean_batch"]
        return rows_of(
            study(workload=workload, server=server, grid={"paired": [paired]}, replicates=1, measure=measure)
        )

    zeros, ones = rows(0), rows(1)  # a length of 0 is no request in the first figures, and a token in those of paging
    assert zeros["static_steps"].to_list() == [figures["static_steps"]] * 4
    expected = [figures["continuous_steps_same_slots"], figures["continuous_steps_reserved"]]
    assert zeros["continuous_steps"].to_list()[:2] == expected
    assert zeros["mean_batch"].to_list()[1] == figures["mean_batch_reserved"]
    for place, pool in enumerate(figures["paged"], 2):
        row = ones.row(place, named=True)
        assert (row["continuous_steps"], row["preemptions"]) == (pool["engine_steps"], pool["preemptions"])
        assert row["mean_batch"] == pool["mean_batch"]


def test_given_lengths_are_met_in_their_order_and_start_again_at_the_end():
    lengths = {"requests": 7, "output": {"distribution": "given", "values": [5, 1, 3]}}
    results = sweep.run(study(workload=lengths, server={"slots": 2}, grid={}, replicates=3), report=False)
    assert results.replicates.collect()["output_tokens"].to_list() == [5 + 1 + 3 + 5 + 1 + 3 + 5] * 3
    assert results.replicates.collect()["static_steps"].to_list() == [5 + 5 + 3 + 5] * 3
    assert results.cells["exact_static_steps"].to_list() == [None]
    assert moments(integer_lengths(Given(values=(5, 1, 3)))).mean == 3


def test_theory_is_given_where_it_applies_and_null_elsewhere():
    kinds = {"name": "kind", "names": ["slots", "paged"], "values": [{"policy": "slots"}, {"blocks": 200}]}
    cells = sweep.run(study(grid={"server.kv": kinds}, replicates=5), report=False).cells
    ideal = sweep.run(study(grid={}, replicates=5), report=False).cells
    assert cells["exact_static_steps"].to_list() == [*ideal["exact_static_steps"], None]
    assert cells["limit_multiple"].to_list() == [*ideal["limit_multiple"], None]


def test_blocks_come_from_memory_where_none_are_given():
    server = {"slots": 16, "memory": {"budget": "1 GiB", "kv_per_token": "512 KiB"}, "kv": {"block_size": 16}}
    (point,) = points(study(server=server, grid={}))
    assert point.cells[0].rules.blocks == 1024 // 8
    assert point.cells[0].rules.cache_tokens == 2048


def test_requests_that_can_never_fit_are_refused_counted_and_said(tmp_path):
    results = sweep.run(served(grid={"server.kv.blocks": [20, 600]}), tmp_path)
    refused = results.cells["refused_requests_mean"].to_list()
    assert refused[0] > 1
    assert refused[1] == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"Refused, since they could never fit, and counted in no other figure: {refused[0]:.3g} of 50" in page


def test_requests_a_second_are_those_that_were_served():
    cells = sweep.run(
        served(server={"slots": 16, "step_ms": 20, "kv": KV}, grid={"server.kv.blocks": [20]}), report=False
    ).cells
    row = cells.row(0, named=True)
    seconds = row["continuous_steps_mean"] * 0.02
    assert row["continuous_requests_per_s"] == pytest.approx((50 - row["refused_requests_mean"]) / seconds, rel=1e-9)


def test_a_cell_in_which_nothing_ever_fits_has_a_reason_and_the_others_go_on():
    workload = {**STUDY["workload"], "prompt": {"distribution": "constant", "value": 100}}
    results = sweep.run(served(workload=workload, grid={"server.kv.blocks": [6, 600]}), report=False)
    errors = results.cells["error"].to_list()
    assert errors == ["a request takes at least 107 tokens, the cache holds 96", None]
    assert results.cells["multiple_mean"].null_count() == 1


def test_a_context_that_never_fits_is_a_reason_where_the_maximum_is_reserved():
    server = {"slots": 4, "context": 5_000, "kv": {"policy": "reserve", "tokens": 4_096}}
    with pytest.raises(StudyError) as refusal:
        study(server=server, grid={})
    line = "small.toml: server.kv: no cell can run: a request takes at least 5,000 tokens, the cache holds 4,096"
    assert list(refusal.value.lines) == [line]


def test_what_a_claim_or_a_chart_names_is_measured():
    claim = {"text": "nobody", "metric": "preemptions", "at_most": 0}
    chart = {"kind": "lines", "x": "kv_blocks", "metric": "lost_share"}
    assert served(measure=[], claims=[claim], charts=[chart]).measure == (
        "preemptions",
        "refused_requests",
        "lost_share",
    )


def test_a_workload_cannot_be_drawn_slot_by_slot(tmp_path):
    sweep.run(served(replicates=2), tmp_path, report=False)
    with pytest.raises(SweepError, match="only servers that slots alone limit are drawn"):
        replay_in(tmp_path, 0, 0)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"measure": ["mean_batch"]},
            'measure.0: needs prompts or a [server.kv], got "mean_batch"; set workload.prompt or server.kv',
        ),
        (
            {"server": {"slots": 4, "kv": {}}},
            'server: kv: policy = "paged" needs blocks or tokens there, or [server.memory]',
        ),
        (
            {"server": {"slots": 4, "kv": {"blocks": 9, "tokens": 144}}},
            "server.kv: blocks and tokens are both given; keep one of them",
        ),
        (
            {"server": {"slots": 64, "kv": {"blocks": 900, "token_budget": 63}}},
            "server: kv.token_budget: must be at least the slots, 64, so that all of them can produce a token, got 63",
        ),
        (
            {"server": {"slots": 4, "kv": {"policy": "reserve", "tokens": 9_000, "prefix_caching": True}}},
            'server.kv: prefix_caching needs policy = "paged" or "slots": contiguous pieces are not shared',
        ),
        (
            {"server": {"slots": 4, "kv": {"policy": "pages"}}},
            'server.kv.policy: must be one of slots, reserve, paged, got "pages"; did you mean "paged"?',
        ),
        ({"server": {"slots": 4, "refill_delay": 2}}, "server.refill_delay: must be at most 1, got 2"),
        ({"workload": {**WORKLOAD, "prompt": {"distribution": "lab"}}}, 'workload: prompt: "lab" has outputs only'),
        (
            {"workload": {**STUDY["workload"], "prompt": {"distribution": "uniform", "low": 0, "high": 9}}},
            "workload: a prompt has at least 1 token, and these may have none",
        ),
        (
            {"workload": {**WORKLOAD, "shared_prefix": {"tokens": 10, "groups": 0}}},
            "workload.shared_prefix.groups: must be at least 1, got 0",
        ),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(changes, line):
    with pytest.raises(StudyError) as refusal:
        parse_study({**STUDY, "grid": {}, **changes}, "s.toml")
    assert list(refusal.value.lines) == [f"s.toml: {line}"]


def test_hostile_servers_come_to_an_end():
    workload = {"requests": 1000, "output": {"distribution": "uniform", "low": 1, "high": 30}}
    hostile = [{"blocks": 1, "block_size": 1, "token_budget": 64}, {"blocks": 2, "block_size": 16, "token_budget": 64}]
    hostile += [
        {"blocks": 30, "block_size": 1, "token_budget": 64, "prefix_caching": caching} for caching in (False, True)
    ]
    axis = {"name": "kv", "names": ["one", "two", "thrash", "shared"], "values": hostile}
    rows = rows_of(
        study(workload=workload, server={"slots": 64}, grid={"server.kv": axis}, replicates=2, measure=["preemptions"])
    )
    assert rows.filter(cell=0)["refused_requests"].min() > 900
    assert rows.filter(cell=1)["refused_requests"].max() == 0
    assert rows.filter(cell=2)["preemptions"].min() > 1000
    assert (rows.filter(cell=2)["refused_requests"] == 0).all()


def test_the_document_of_the_server_names_every_metric_and_key_and_its_study_is_one():
    text = (Path(__file__).parents[1] / "docs" / "server.md").read_text(encoding="utf-8")
    missing = [word for word in (*ALL, *KvSpec.model_fields, "refill_delay", "static_slots") if word not in text]
    assert missing == []
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    assert parse_study(tomllib.loads(toml), "server.md").measure == ("refused_requests",)

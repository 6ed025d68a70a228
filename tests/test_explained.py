import itertools
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from folders import from_multiples, write_folder
from scipy.special import stdtrit

import sweep
from sweep.report import charts
from sweep.report.attribution import Factor, attribution, factors
from sweep.report.charts.approach import of_approach
from sweep.report.explained import approach_frame, waterfall_figure
from sweep.report.figures import figures
from sweep.report.intervals import mean_interval
from sweep.report.stats import estimates
from sweep.report.summary import _widen, summarise
from sweep.study import parse_study

AXES = {"lengths": ["alike", "unequal"], "slots": [4, 16]}
NOISE = np.random.default_rng(4).normal(0, 0.3, 300)
SPREAD = (NOISE - NOISE.mean()).round(4)


def folder(path: Path, means=(1, 1, 3, 5), limits=(1.0, 1.0, 4.0, 7.0), axes=AXES, **changes):
    steps = [from_multiples(mean + SPREAD * (mean > 1)) for mean in means]
    return write_folder(path, steps, axes=axes, limits=list(limits), **changes)


def words(chart):
    title = chart.to_dict()["title"]
    return " ".join([*title["text"], *title["subtitle"]])


def test_parts_add_up_from_the_first_cell_to_the_limit_and_with_the_drain_to_the_simulated_mean(tmp_path):
    found = attribution(folder(tmp_path))
    assert found.start == 1
    assert found.start + sum(part.value for part in found.parts) == pytest.approx(7)
    assert found.limit + found.drain.value == pytest.approx(found.end.value) == pytest.approx(5)
    assert 1 + sum(part.value for part in found.simulated) == pytest.approx(5)


def test_a_part_is_the_mean_over_both_orders(tmp_path):
    lengths, slots = attribution(folder(tmp_path)).parts
    assert lengths.value == pytest.approx(((4 - 1) + (7 - 1)) / 2)
    assert slots.value == pytest.approx(((1 - 1) + (7 - 4)) / 2)
    assert (lengths.name, lengths.interval) == ("lengths: alike to unequal", None)


def test_simulated_parts_have_the_interval_of_their_paired_values(tmp_path):
    found = attribution(folder(tmp_path))
    lengths = ((3 + SPREAD - 1) + (5 + SPREAD - 1)) / 2  # workload by workload
    assert found.simulated[0].interval == pytest.approx(mean_interval(lengths), abs=1e-3)
    slots = ((3 + SPREAD) * 0 + (5 + SPREAD) - (3 + SPREAD)) / 2  # what both share cancels out
    assert found.simulated[1].interval == pytest.approx(mean_interval(slots), abs=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_are_shapley_values_of_any_game(tmp_path, count):
    rng = np.random.default_rng(count)
    worth = {levels: float(rng.uniform(1, 9)) for levels in itertools.product((False, True), repeat=count)}
    axes = {f"axis{place}": [0, 1] for place in range(count)}
    store = folder(tmp_path, [2] * 2**count, list(worth.values()), axes)
    expected = np.zeros(count)
    for order in itertools.permutations(range(count)):
        levels = [False] * count
        for place in order:
            before = worth[tuple(levels)]
            levels[place] = True
            expected[place] += (worth[tuple(levels)] - before) / math.factorial(count)
    assert [part.value for part in attribution(store).parts] == pytest.approx(expected.tolist())


def test_axes_of_more_than_two_values_are_no_factors(tmp_path):
    assert factors(folder(tmp_path / "a").manifest) == [Factor("lengths", "alike", "unequal"), Factor("slots", 4, 16)]
    store = folder(tmp_path / "b", (2, 3, 4), (3.0, 4.0, 5.0), {"slots": [4, 8, 16]})
    assert factors(store.manifest) == []
    assert attribution(store) is None
    chart, caption, _ = waterfall_figure(store, "multiple")
    assert "every axis needs two values" in caption
    assert "every axis needs two values" in words(chart)


def test_a_folder_of_sums_says_that_it_lacks_the_rows(tmp_path):
    output = {"distribution": "geometric", "mean": 20}
    grid = {"server.slots": [2, 8]}
    document = {"replicates": 50, "workload": {"requests": 30, "output": output}, "server": {"slots": 2}, "grid": grid}
    charts_asked = {"charts": [{"kind": "waterfall"}, {"kind": "approach"}]}
    study = parse_study(document | charts_asked, "x")
    page = sweep.run(study, tmp_path, keep="summary").folder / "report.html"
    assert "and rows kept" in page.read_text(encoding="utf-8")


def test_without_limits_the_parts_are_those_of_the_simulated_means(tmp_path):
    found = attribution(folder(tmp_path, limits=(None,) * 4))
    assert found.drain is None
    assert found.parts == found.simulated
    assert found.start + sum(part.value for part in found.parts) == pytest.approx(found.end.value)


def test_the_waterfall_begins_each_bar_where_the_last_one_ended(tmp_path):
    chart, caption, data = waterfall_figure(folder(tmp_path), "multiple")
    (rows,) = [rows for rows in chart.to_dict()["datasets"].values() if "name" in rows[0]]
    assert [row["name"] for row in rows][-2:] == ["drain: the last requests", "simulated"]
    ends = [row["stop"] for row in rows]
    assert [row["x"] for row in rows[1:3]] == pytest.approx(ends[:2])
    assert ends[-3:] == pytest.approx([7, 5, 5])
    assert "Most comes from lengths: alike to unequal (+ 4.50); the drain takes 2.00 of 7.00 away" in words(chart)
    assert "the simulated mean less that limit, -2.00 (-2.0" in caption
    assert data["adds"].to_list() == pytest.approx([4.5, 1.5, -2, 5])


def test_a_study_may_ask_for_both_pictures(tmp_path):
    store = folder(tmp_path, charts=[{"kind": "waterfall"}, {"kind": "approach"}])
    cells = summarise(store)
    drawn = figures(store, cells, [])
    assert [figure.name for figure in drawn] == ["waterfall", "approach"]
    for figure in drawn:
        charts.save(figure.chart, tmp_path / "charts", figure.name)
        assert "300" in figure.caption
        assert "not modelled" in figure.caption


def test_the_approach_is_the_share_of_the_limit_by_requests_per_slot(tmp_path):
    store = folder(tmp_path)
    frame = approach_frame(summarise(store), store.manifest)
    assert frame["series"].to_list() == ["slots = 4, lengths = unequal", "slots = 16, lengths = unequal"]
    assert frame["requests_per_slot"].to_list() == [50.0, 12.5]  # of 200 requests
    assert frame["share"].to_list() == pytest.approx([3 / 4, 5 / 7])
    assert (frame["low"] < frame["share"]).all()
    assert "nowhere reaches 95 % of its limit" in of_approach(frame)
    near = pl.DataFrame({"requests_per_slot": [1.0, 10.0, 100.0], "series": ["a"] * 3, "share": [0.5, 0.9, 1.0]})
    assert of_approach(near) == "It takes some 32 requests per slot to come within 5 % of the limit"


def test_the_multiple_approaches_its_limit_like_one_over_the_requests_per_slot(tmp_path):
    # what is left is a drain of about the same length whatever waits: the gap times the requests per slot settles.
    # 2,000 workloads a cell make the product sure to 1 to 2 %; within a fifth is many standard errors
    output = {"distribution": "geometric", "mean": 40, "max_tokens": 400}
    workload = {"requests": 80, "output": output}
    grid = {"workload.requests": [320, 640, 1_280]}
    document = {"seed": 2, "replicates": 2_000, "workload": workload, "server": {"slots": 4}, "grid": grid}
    results = sweep.run(parse_study(document, "x"), tmp_path, report=False)
    frame = approach_frame(results.cells, results.manifest)
    left = (1 - frame["share"]) * frame["requests_per_slot"]
    assert left.to_list() == pytest.approx([left[2]] * 3, rel=0.2)


def test_mean_continuous_steps_are_drawn_between_their_bounds(tmp_path):
    output = {"distribution": "geometric", "mean": 20}
    grid = {"server.slots": [2, 4, 8]}
    document = {"replicates": 200, "workload": {"requests": 30, "output": output}, "server": {"slots": 2}, "grid": grid}
    cells = sweep.run(parse_study(document, "x"), tmp_path, report=False).cells
    chart = charts.lines(cells, "slots", metric="continuous_steps")
    (rows,) = [rows for rows in chart.to_dict()["datasets"].values() if "least" in rows[0]]
    assert all(row["least"] < row["value"] < row["most"] for row in rows)
    assert "dotted: Graham's bounds on the mean" in words(chart)


def test_captions_of_several_means_say_how_many_intervals_miss_by_chance(tmp_path):
    axes = {"requests": [100, 200], "slots": [4, 16]}
    store = folder(tmp_path, (2, 3, 4, 5), axes=axes, charts=[{"kind": "heatmap", "x": "slots", "y": "requests"}])
    cells = summarise(store)
    (figure,) = figures(store, cells, [])
    assert "n = 300 in a cell" in figure.caption
    assert "Of 4 such intervals 0.2 miss their mean by chance" in figure.caption
    assert "multiple_simultaneous_low and _high hold for all cells" in figure.caption
    wide = cells["multiple_simultaneous_high"] - cells["multiple_simultaneous_low"]
    alone = cells["multiple_ci_high"] - cells["multiple_ci_low"]
    assert (wide / alone).to_list() == pytest.approx([stdtrit(299, 1 - 0.05 / 8) / stdtrit(299, 0.975)] * 4)


def test_simultaneous_intervals_hold_all_together_as_often_as_they_say():
    # 1,000 repetitions of 6 cells of 60 independent workloads; Bonferroni keeps 95 % or a little more, 93 % is 2.9
    # standard errors below: a false alarm in 500 seeds at most
    together = 0
    for cells in np.random.default_rng(8).normal(4, 0.4, (1_000, 6, 60)):
        found = [estimates(cell) for cell in cells]
        rows = [{"m_mean": one.mean, "m_se": one.se, "m_n": 60} for one in found]
        _widen(rows, "m")
        together += all(row["m_simultaneous_low"] <= 4 <= row["m_simultaneous_high"] for row in rows)
    assert together / 1_000 >= 0.93

import pickle

import pytest

from sweep.errors import StudyError
from sweep.grid import points
from sweep.study import parse_study


def study(server=None, grid=None, **changes):
    document = {
        "title": "small",
        "seed": 7,
        "workload": {"requests": 20, "output": {"distribution": "geometric", "mean": 50}},
        "server": {"slots": 4} if server is None else server,
        "grid": grid or {},
    }
    return parse_study({**document, **changes}, "small.toml")


def memory(budget, **more):
    return {"slots": "memory", "memory": {"budget": budget, "kv_per_token": "512 KiB"}, **more}


def test_a_study_without_a_grid_is_one_cell_of_one_point():
    (point,) = points(study())
    (cell,) = point.cells
    assert (point.index, point.workload.seed, point.workload.requests) == (0, 7, 20)
    assert cell == (0, (), 4, None, None, None, None, None)


def test_servers_that_meet_the_same_workload_share_its_point():
    grid = {"server.slots": [4, 8], "workload.requests": [10, 20], "server.step_ms": [1, 2]}
    found = points(study(grid=grid))
    assert [point.workload.requests for point in found] == [10, 20]
    assert [[cell.index for cell in point.cells] for point in found] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_workloads_are_shared_by_value_and_not_by_how_they_are_written():
    same = [{"distribution": "constant", "value": 3}, {"distribution": "constant", "value": 3, "beyond": "clip"}]
    grid = {"workload.output": {"values": same, "names": ["short", "long"]}}
    (point,) = points(study(grid=grid))
    assert [dict(cell.axes) for cell in point.cells] == [{"output": "short"}, {"output": "long"}]


def test_cells_are_numbered_row_major_and_hold_the_columns_of_all_axes():
    grid = {
        "server.slots": [4, 8],
        "paired": [{"server.context": [10, 20], "server.step_ms": {"values": [5, 6], "name": "step"}}],
    }
    (point,) = points(study(grid=grid))
    assert [cell.axes for cell in point.cells] == [
        (("slots", slots), ("context", context), ("step", step))
        for slots in (4, 8)
        for context, step in ((10, 5), (20, 6))
    ]
    assert [(cell.slots, cell.context, cell.step_ms) for cell in point.cells[1:3]] == [(4, 20, 6.0), (8, 10, 5.0)]


def test_requests_that_fit_halve_when_context_doubles():
    grid = {"server.context": {"start": 512, "stop": 32768, "factor": 2}}
    (point,) = points(study(memory("64 GiB"), grid))
    assert [cell.slots for cell in point.cells] == [256, 128, 64, 32, 16, 8, 4]
    assert all(cell.error is None for cell in point.cells)


def test_a_cell_in_which_nothing_fits_has_no_slots_and_says_why():
    (point,) = points(study(memory("1 GiB"), {"server.context": [2048, 2049]}))
    fits, too_long = point.cells
    assert (fits.slots, fits.error) == (1, None)
    assert (too_long.slots, too_long.error) == (0, "a request of 2,049 tokens needs 1 GiB, the budget is 1 GiB")


def test_a_study_in_which_no_cell_can_run_is_refused():
    with pytest.raises(StudyError, match=r"small\.toml: server\.slots: no cell can run: a request of 4,096 tokens"):
        points(study(memory("1 GiB"), {"server.context": [4096, 8192]}))


def test_more_slots_than_can_be_simulated_are_refused():
    with pytest.raises(StudyError, match="2,097,152 requests fit in memory, more than 1,000,000 slots"):
        study(memory("1 TiB", context=1))


def test_points_carry_what_a_worker_process_needs():
    found = points(study(server={"slots": 4, "step_ms": 20}, measure=["static_s"]))
    assert pickle.loads(pickle.dumps(found)) == found
    assert found[0].measure == ("static_s",)
    assert found[0].study == points(study(server={"slots": 4, "step_ms": 20}, measure=["static_s"], title="b"))[0].study
    assert found[0].study != points(study(server={"slots": 5, "step_ms": 20}, measure=["static_s"]))[0].study

import pytest
from rich.console import Console
from small import study

from sweep.grid import points
from sweep.progress import Reporter
from sweep.runner import chunks


@pytest.mark.parametrize(("slots", "says"), [([4], "simulating 1 cell"), ([4, 8], "simulating 2 cells")])
def test_a_bar_counts_the_cells_that_are_simulated_one_in_the_singular(slots: list[int], says: str) -> None:
    reporter = Reporter(Console(quiet=True))
    reporter.plan(list(chunks(points(study(grid={"server.slots": slots})), frozenset(), {0: 100})))
    assert reporter._bar.tasks[0].description == says

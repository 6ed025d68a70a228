import ast
import json
from pathlib import Path

STUDIES = Path(__file__).parents[1] / "studies"


def run_cell(source, names):
    """Runs a cell and gives the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_tour_runs_from_top_to_bottom_and_every_cell_shows_something(monkeypatch):
    monkeypatch.chdir(STUDIES)
    notebook = json.loads((STUDIES / "tour.ipynb").read_text())
    names, shown = {}, []
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == []  # results are made, not kept
        if cell["cell_type"] == "code":
            shown.append(run_cell("".join(cell["source"]), names))
    assert shown[0] == (150, 83)
    assert all(value is not None for value in shown)
    charts = [value for value in shown if hasattr(value, "to_dict") and "altair" in type(value).__module__]
    assert len(charts) == 3
    assert all(chart.to_dict() for chart in charts)

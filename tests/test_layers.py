"""The arrows of the design, read from the imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sweep"
LAYERS = [  # a module, or a folder of them, imports only from its own line or one above
    ["errors", "units", "tables", "pipes", "metrics"],
    ["model"],
    ["study"],
    ["grid"],
    ["record", "shards", "writing"],
    ["results", "sums"],
    ["manifest", "executors", "rows", "runner", "progress", "status", "verify"],
    ["report"],
    ["api", "lab", "pilot", "timelines", "commands"],
    ["cli"],
    ["__main__", "__init__"],
]
FOLDERS = {"model", "study", "rows", "executors", "report", "commands"}
NEVER = {
    "results": {"model", "study", "grid"},
    "shards": {"model", "study", "grid"},
    "writing": {"model", "study", "grid"},
    "report": {"model", "study", "grid", "rows", "runner", "manifest"},
    "model": {"report", "results"},
}


def modules():
    return sorted(path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))


def part(module):
    return module.parts[0] if module.parts[0] in FOLDERS else module.name


def imported(module):
    """Parts of the package that a module imports anywhere, except under TYPE_CHECKING in the lazy front door."""
    tree = ast.parse((PACKAGE / module).with_suffix(".py").read_text())
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name == "sweep" and isinstance(node, ast.ImportFrom):
                yield from (alias.name for alias in node.names)
            elif name.startswith("sweep."):
                yield name.split(".")[1]


@pytest.mark.parametrize("module", modules(), ids=str)
def test_a_module_imports_only_from_its_own_layer_or_lower_ones(module):
    height = {name: level for level, names in enumerate(LAYERS) for name in names}
    assert part(module) in height, f"{module} has no layer yet"
    for other in imported(module):
        assert height[other] <= height[part(module)], f"{module} imports {other}"
        assert other not in NEVER.get(part(module), set()), f"{module} imports {other}"


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import sweep.cli", ["numba", "numpy", "polars", "altair", "pydantic"]),
        ("import sweep.report.page", ["numba", "sweep.model", "pydantic"]),
        ("import sweep.results", ["numba", "altair", "pydantic"]),
        ("import sweep.grid", ["numba", "polars", "altair"]),
    ],
)
def test_a_door_loads_only_what_it_needs(program, absent):
    found = f"{program}; import sys; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

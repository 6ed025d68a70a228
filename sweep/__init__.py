"""How much continuous batching buys over static batching, how sure that is, and where it stops holding.

    import sweep
    results = sweep.run("studies/five_x.toml")
    results.cells                                  # one row for each cell, as a polars frame
    sweep.static_steps([40, 3, 25, 5], slots=2)    # steps of one workload

Names are imported when they are first used, so that `import sweep` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sweep.errors import SweepError

if TYPE_CHECKING:
    from sweep.api import Results, read, run
    from sweep.model.lockstep import continuous_steps, static_steps
    from sweep.model.server import Served, serve
    from sweep.study import Study, read_study

__all__ = [
    "Results",
    "Served",
    "Study",
    "SweepError",
    "continuous_steps",
    "read",
    "read_study",
    "run",
    "serve",
    "static_steps",
]

_HOME = {
    "Results": "sweep.api",
    "Served": "sweep.model.server",
    "Study": "sweep.study",
    "continuous_steps": "sweep.model.lockstep",
    "read": "sweep.api",
    "read_study": "sweep.study",
    "run": "sweep.api",
    "serve": "sweep.model.server",
    "static_steps": "sweep.model.lockstep",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("batch-sweep")
    if name not in _HOME:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

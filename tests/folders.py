"""Small results folders made from arrays by hand, so that a report can be tested without a simulation."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sweep.results import Store
from sweep.shards import Span, to_parquet


def write_folder(
    folder: Path,
    steps: Sequence[tuple[Sequence[int], Sequence[int]] | str],
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> Store:
    """A folder with one point: for each cell its (static, continuous) steps by replicate, or why it has none.

    axes : column -> values; the cells are their product, row-major. None: `slots`, one value for each cell.
    changes : of the manifest; `measured` gives columns of `measure`, name -> one array for each cell, and `limits`
        the limit multiple of each cell.
    """
    axes = {"slots": [2 ** (2 + i) for i in range(len(steps))]} if axes is None else axes
    cells = _cells(steps, axes, changes.pop("step_ms", None), changes.pop("limits", None))
    measured = changes.pop("measured", {})
    n = max((len(cell[0]) for cell in steps if not isinstance(cell, str)), default=0)
    manifest = _manifest(axes, cells, [_claim(claim, cells) for claim in claims], n, list(measured)) | changes
    source = changes.pop("source", f"title = {json.dumps(manifest['title'])}\n")
    manifest.pop("source", None)
    with Store.writing(folder, manifest, source) as store:
        if n:
            store.put(Span(0, 0, n), to_parquet(_columns(steps, measured), list(measured), {}))
    return Store.open(folder)


def from_multiples(multiples: Sequence[float], continuous: int = 10_000) -> tuple[list[int], list[int]]:
    """Steps of workloads that have these multiples, to four decimals."""
    return [round(multiple * continuous) for multiple in multiples], [continuous] * len(multiples)


def claim(metric: str = "multiple", of: Any = "mean", **bound: Any) -> dict[str, Any]:
    """A claim as a manifest holds it, of all cells unless `where` is given."""
    return {"text": "a claim", "metric": metric, "of": of, "where": {}, **bound}


def _cells(steps: Sequence[Any], axes: Mapping[str, Sequence[Any]], step_ms: Any, limits: Any) -> list[dict[str, Any]]:
    values = list(product(*axes.values())) if axes else [()]
    assert len(values) == len(steps)
    cells = []
    for index, (value, cell) in enumerate(zip(values, steps, strict=True)):
        at = dict(zip(axes, value, strict=True))
        slots = 0 if isinstance(cell, str) else at.get("slots", 16)
        own = {"cell": index, "point": 0, "axes": at, "slots": slots, "context": at.get("context"), "step_ms": step_ms}
        theory = {"exact_static_steps": None, "limit_multiple": limits[index] if limits else None}
        error = cell if isinstance(cell, str) else None
        cells.append({**own, "error": error, "drawn": error is None, **theory})
    return cells


def _claim(claim: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    where = claim.get("where", {})
    spoken_of = [cell["cell"] for cell in cells if all(cell["axes"][key] == value for key, value in where.items())]
    return {"text": "a claim", "where": where, "cells": spoken_of, **claim}


def _columns(steps: Sequence[Any], measured: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    ran = [(index, cell) for index, cell in enumerate(steps) if not isinstance(cell, str)]
    static = np.concatenate([np.asarray(cell[0], np.int64) for _, cell in ran])
    continuous = np.concatenate([np.asarray(cell[1], np.int64) for _, cell in ran])
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.where(continuous > 0, static / continuous, np.nan)
        utilisation = np.where(static > 0, continuous / (2.0 * static), np.nan)
    return {
        "cell": np.concatenate([np.full(len(cell[0]), index) for index, cell in ran]),
        "replicate": np.concatenate([np.arange(len(cell[0])) for _, cell in ran]),
        "output_tokens": continuous * 8,
        "static_steps": static,
        "continuous_steps": continuous,
        "multiple": multiple,
        "static_utilisation": utilisation,
        "continuous_utilisation": np.where(continuous > 0, 0.5, np.nan),
        **{name: np.concatenate([np.asarray(arrays[i]) for i, _ in ran]) for name, arrays in measured.items()},
    }


def _manifest(
    axes: Mapping[str, Sequence[Any]], cells: Sequence[Any], claims: Sequence[Any], n: int, measure: Sequence[str]
) -> dict[str, Any]:
    output = {"distribution": "uniform", "low": 1, "high": 9}
    point = {"point": 0, "requests": 200, "output": output, "replicates": n, "cells": [c["cell"] for c in cells]}
    return {
        "format": 1,
        "hash": "0" * 64,
        "depends": {},
        "versions": {"sweep": "0.1.0", "python": "3.11.9", "numpy": "2.2", "numba": "0.61", "polars": "1.30"},
        "keep": "rows",
        "title": "Is it really 5x?",
        "question": "How many times fewer steps does continuous batching take?",
        "seed": 37,
        "replicates": n,
        "precision": None,
        "measure": list(measure),
        "study": {"workload": {"requests": 200, "output": output}, "server": {"slots": 16}, "grid": {}},
        "axes": [
            {
                "columns": [column],
                "paths": [f"server.{column}"],
                "values": [[value] for value in values],
                "labels": None,
            }
            for column, values in axes.items()
        ],
        "points": [point | {"output_mean": 5.0, "output_cv": 0.5, "output_at_cap": 0.0}],
        "cells": list(cells),
        "claims": list(claims),
        "charts": [],
        "shards": [],
    }

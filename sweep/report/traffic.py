"""Pictures of the requests that a results folder was made from, where `sweep trace` left them in trace.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sweep.errors import FolderError
from sweep.report.charts.look import Chart
from sweep.report.charts.traffic import SIDES, fitted, lengths, multiples
from sweep.report.figures import NOT_MODELLED, Figure

NAME = "trace.json"


def traffic_figures(folder: Path, cells: pl.DataFrame) -> list[Figure]:
    """What trace.json says of the requests; nothing for folders without it."""
    path = folder / NAME
    if not path.exists():
        return []
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return list(_figures(found, cells))
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path}: is damaged ({error}); run sweep trace again") from error


def _figures(found: dict[str, Any], cells: pl.DataFrame) -> Iterator[Figure]:
    """The lengths, then the families where they were fitted, else the multiple in file order and drawn."""
    chart = lengths(found["quantiles"])
    counted = f"{found['figures']['requests']:,} requests of the file, each counted once."
    shares = np.linspace(0, 1, len(found["quantiles"]["output"]))
    tokens = {f"{side} tokens": found["quantiles"][side] for side in SIDES}
    data = pl.DataFrame({"share of requests": shares, **tokens}, strict=False)
    yield Figure("requests", chart, _alternative(chart), counted, data)
    if "fits" in found:
        chart = fitted(found["fits"], found["name"])
        judged = "Families are judged by their likelihood on whole numbers, and pay for their parameters (Akaike)."
        rows = [(fit["name"], *pair) for fit in found["fits"] for pair in fit["quantiles"]]
        schema = {"family": pl.String, "tokens in the file": pl.Float64, "tokens in the family": pl.Float64}
        data = pl.DataFrame(rows, schema=schema, orient="row", strict=False)
        words = f"{judged} Lengths end at the longest of the file."
        yield Figure("quantiles", chart, _alternative(chart), words, data)
    else:
        chart = multiples(cells, found["figures"]["in_file_order"])
        drawn = "The workloads are drawn from the requests of the file with replacement, so their order is lost."
        own = {row["slots"]: row["multiple"] for row in found["figures"]["in_file_order"]}
        data = cells.select(
            "slots", "multiple_mean", "multiple_p05", "multiple_p95", "limit_multiple",
            pl.Series("multiple in file order", [own.get(slots) for slots in cells["slots"]], dtype=pl.Float64),
        )  # fmt: skip
        yield Figure("order", chart, _alternative(chart), f"{drawn} {NOT_MODELLED}", data)


def _alternative(chart: Chart) -> str:
    title = chart.to_dict()["title"]
    return f"Line chart: {' '.join(title['text'])}. {' '.join(title['subtitle'])}"

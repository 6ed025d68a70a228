"""Pictures of the requests that a results folder was made from, where `sweep trace` left them in trace.json."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from sweep.errors import FolderError
from sweep.report.charts.look import Chart
from sweep.report.charts.traffic import lengths, multiples
from sweep.report.figures import NOT_MODELLED, Figure

NAME = "trace.json"


def traffic_figures(folder: Path, cells: pl.DataFrame) -> list[Figure]:
    """The lengths of the requests, and their multiple in file order and drawn; nothing for other folders."""
    path = folder / NAME
    if not path.exists():
        return []
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        drawn = lengths(found["quantiles"]), multiples(cells, found["figures"]["in_file_order"])
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path}: is damaged ({error}); run sweep trace again") from error
    of_lengths = f"{found['figures']['requests']:,} requests of the file, each counted once."
    of_multiples = "The workloads are drawn from the requests of the file with replacement, so their order is lost."
    return [
        Figure("requests", drawn[0], _alternative(drawn[0]), of_lengths),
        Figure("order", drawn[1], _alternative(drawn[1]), f"{of_multiples} {NOT_MODELLED}"),
    ]


def _alternative(chart: Chart) -> str:
    title = chart.to_dict()["title"]
    return f"Line chart: {' '.join(title['text'])}. {' '.join(title['subtitle'])}"

"""Which charts a results folder gets: those that its study asks for, or else those that fit the shape of its grid.

Leaves out what is drawn and said of each (`figures`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.report.clock import latencies_of
from sweep.report.stats import axis_columns
from sweep.shards import metrics

NEEDS: dict[str, set[str]] = {"distribution": set(), "approach": set(), "waterfall": set()}  # axes, by kind
NEEDS |= {"heatmap": {"x", "y"}, "lines": {"x"}, "memory": {"x"}}
OF_LOAD = ("arrivals_load", "arrivals_rate_per_s", "arrivals_clients")  # columns that say how much comes
DECADES = 20  # values that span this factor have a logarithmic axis


def wished(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The charts that a study asks for, with their axes filled in, or else those that fit the shape of its grid."""
    fitting = fitting_charts(manifest)
    own = [{key: value for key, value in chart.items() if value is not None} for chart in manifest["charts"]]
    if not own:
        return fitting
    axes = [{key: chart[key] for key in ("kind", "x", "y", "color") if key in chart} for chart in fitting]
    defaults = {str(chart["kind"]): chart for chart in reversed(axes)}
    filled = [{"metric": "multiple", **_filled(chart, defaults.get(str(chart["kind"]), {}))} for chart in own]
    return [chart for chart in filled if _can_be_drawn(chart, manifest)]


def _filled(chart: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """A chart with what it leaves open as in the fitting one; an axis that it moved makes room for the other one."""
    filled = {**default, **chart}
    for other in ("y", "color"):
        if other in default and filled[other] == filled["x"]:
            moved = other if "x" in chart else "x"
            filled[moved] = default["x"] if moved == other else default[other]
    return filled


def fitting_charts(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One cell: its distribution. One axis: lines too. Two and more: a heat map of the two that matter most."""
    numbers, names = _varied(manifest)
    if "slots" in numbers:
        numbers = [name for name in numbers if name != "slots"] + ["slots"]  # along the horizontal axis, as is usual
    metric = {"metric": "multiple"}
    across = numbers[-1:] or names[-1:]
    other = [name for name in (*numbers, *names) if name not in across][:1]
    lines = [{"kind": "lines", "x": across[0], **({"color": other[0]} if other else {}), **metric}] if across else []
    tiles = [{"kind": "heatmap", "x": across[0], "y": other[0], **metric}] if other else []
    lines_of = next((axis["columns"][0] for axis in manifest["axes"] if _is_of_memory(axis)), None)
    by_line = {"color": lines_of} if lines_of in (*numbers, *names) else {}
    memory = [{"kind": "memory", "x": "context", **by_line}] if _fits_by_context(manifest) else []
    distribution = [{"kind": "distribution", **metric}]
    latencies = _latency_lines(manifest, [*across, *other])
    if not other and any(claim["where"] for claim in manifest["claims"]):
        return [*latencies, *distribution, *lines, *memory]  # the study asks about one cell
    return [*latencies, *tiles, *lines, *memory, *distribution]


def _latency_lines(manifest: Mapping[str, Any], axes: Sequence[str]) -> list[dict[str, Any]]:
    """The first latency that is measured against load, of both schedulers; none where all wait from the start.

    Below saturation both schedulers end with the last arrivals: the multiple is then near 1, and says nothing.
    """
    found = latencies_of(manifest)
    if not axes or not found:
        return []
    x = next((column for column in OF_LOAD if column in axes), axes[0])
    color = next((column for column in axes if column != x), None)
    values = [cell["axes"][x] for cell in manifest["cells"]]
    wide = all(isinstance(value, int | float) for value in values) and 0 < DECADES * min(values) <= max(values)
    metric = found[0][0] if len(found[0]) == 1 else list(found[0])
    line = {"kind": "lines", "x": x, **({"color": color} if color else {}), "metric": metric, "log": True}
    return [line | ({"log_x": True} if wide else {})]


def _varied(manifest: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The first column of each axis with several values: those of numbers, and those of names."""
    numbers: list[str] = []
    names: list[str] = []
    for axis in manifest["axes"]:
        values = {str(cell["axes"][axis["columns"][0]]) for cell in manifest["cells"]}
        kinds = {type(cell["axes"][axis["columns"][0]]) for cell in manifest["cells"]}
        if len(values) > 1:
            (numbers if kinds <= {int, float} else names).append(axis["columns"][0])
    return numbers, names


def _fits_by_context(manifest: Mapping[str, Any]) -> bool:
    by_memory = manifest["study"]["server"].get("slots") == "memory"
    return by_memory and len({cell["context"] for cell in manifest["cells"]}) > 1 and "context" in _varied(manifest)[0]


def _is_of_memory(axis: Mapping[str, Any]) -> bool:
    """Whether an axis sets what the memory is, such as the model or the GPU."""
    return any(path.startswith("server.memory.") for path in axis["paths"])


def _can_be_drawn(chart: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Whether a chart has the axes it needs, and the folder its columns; a grid without axes has no heat map."""
    needs = NEEDS.get(str(chart["kind"]))
    columns = {chart[key] for key in ("x", "y", "color") if key in chart}
    known = set(metrics_of(chart)) <= set(metrics(manifest["measure"]))
    return needs is not None and needs <= chart.keys() and columns <= {*axis_columns(manifest), "slots"} and known


def metrics_of(chart: Mapping[str, Any]) -> list[str]:
    """The metrics of a chart: one, or those of a list."""
    given = chart.get("metric", "multiple")
    return [given] if isinstance(given, str) else list(given)

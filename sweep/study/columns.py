"""The columns of a study's cells, and what claims and charts say with them: columns, values and metrics by name.

The checks take the tables of a file as they are, so that one bad field hides no other fault.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from sweep.metrics import IN_SECONDS, METRICS, OF_SLO, OF_SLO_RATE, ON_SERVER, TIMED, WITHOUT_SECONDS, unit_of
from sweep.study.axes import Axis, canonical, entries
from sweep.study.faults import Fault, Path, metric_choice, shown, unknown
from sweep.study.schema import Claim, Setting, has_clock, has_step_time, is_served_study, slots_of

VALUES_LISTED = 10


def columns(axes: tuple[Axis, ...], resolved: tuple[Setting, ...]) -> dict[str, list[Any]]:
    """Values of each column, cell by cell; none where there are no cells."""
    if not resolved:
        return {}
    names = [column for axis in axes for column in axis.columns]
    rows = [[value for row in cell for value in row] for cell in product(*map(entries, axes))]
    by_name = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    return by_name if "slots" in by_name else {**by_name, "slots": [slots_of(setting.server) for setting in resolved]}


def matching(where: dict[str, Any], by_name: dict[str, list[Any]]) -> list[int]:
    """The cells whose columns have the values asked for, or one of them."""
    cells = list(range(len(by_name["slots"])))
    for column, wanted in where.items():
        allowed = {canonical(value) for value in (wanted if isinstance(wanted, list) else [wanted])}
        cells = [cell for cell in cells if canonical(by_name[column][cell]) in allowed]
    return cells


def claimed(claim: Claim, axes: tuple[Axis, ...], by_name: dict[str, list[Any]]) -> list[tuple[int, int | None]]:
    """The cells that a claim speaks of, each with the one that is taken from it; a cell is not taken from itself."""
    cells = matching(claim.where, by_name)
    if not claim.minus:
        return [(cell, None) for cell in cells]
    others = _minus(cells, claim.minus, axes, by_name)
    return [(cell, other) for cell, other in zip(cells, others, strict=True) if other is not None and other != cell]


def _minus(
    cells: list[int], minus: dict[str, Any], axes: tuple[Axis, ...], by_name: dict[str, list[Any]]
) -> list[int | None]:
    """For each cell the one that has the values of `minus` and otherwise its own; columns of an axis move together."""
    named = {column: canonical(value) for column, value in minus.items()}
    kept = [column for axis in axes for column in axis.columns if not set(axis.columns) & named.keys()]
    places: dict[tuple[Any, ...], int] = {}
    for other in range(len(by_name["slots"])):
        if all(canonical(by_name[column][other]) == value for column, value in named.items()):
            places.setdefault(tuple(canonical(by_name[column][other]) for column in kept), other)
    return [places.get(tuple(canonical(by_name[column][cell]) for column in kept)) for cell in cells]


def metric_faults(document: dict[str, Any], resolved: tuple[Setting, ...]) -> Iterator[Fault]:
    """Faults of the metrics that the tables name: unknown ones, and those that the study's servers do not give."""
    measure = document.get("measure")
    asked = [item for item in measure if isinstance(item, str)] if isinstance(measure, list) else []
    timed = all(map(has_step_time, resolved))
    served = not resolved or is_served_study(resolved)
    for path, metric in [*((("measure", at), item) for at, item in enumerate(asked)), *_metrics_named(document)]:
        if metric in TIMED and (fault := _clock_fault(metric, resolved)):
            yield Fault(path, fault, shown(metric))
        elif (metric in IN_SECONDS or (metric in TIMED and metric not in WITHOUT_SECONDS)) and not timed:
            yield Fault(path, "needs a step time in every cell", shown(metric), "set server.step_ms")
        elif metric in ON_SERVER and not served:
            yield _server_fault(path, metric, timed=any(map(has_clock, resolved)))
        elif path[0] == "measure" and metric in asked[: int(path[1])]:
            yield Fault(path, "stands twice", shown(metric))
        elif path[0] != "measure" and metric not in METRICS:
            yield metric_choice(path, metric, METRICS)
    yield from _unit_faults(document)


def _unit_faults(document: dict[str, Any]) -> Iterator[Fault]:
    """Faults of charts whose metrics have several units, and so no axis in common."""
    given = document.get("charts")
    for at, table in enumerate(given if isinstance(given, list) else ()):
        named = table.get("metric") if isinstance(table, dict) else None
        known = [metric for metric in named if metric in METRICS] if isinstance(named, list) else []
        units = {unit_of(metric): metric for metric in reversed(known)}
        if len(units) > 1:
            listed = ", ".join(f"{metric} ({unit or 'a ratio'})" for unit, metric in reversed(units.items()))
            yield Fault(("charts", at, "metric"), f"metrics of one chart have one unit, got {listed}")


def _server_fault(path: Path, metric: str, *, timed: bool) -> Fault:
    """That a metric is one of the server model, which a study with a clock takes for memory and not for prompts."""
    if timed:
        hint = 'set server.kv; its policy = "slots" is a cache without limit'
        return Fault(path, "needs a [server.kv] in a study with a clock", shown(metric), hint)
    return Fault(path, "needs prompts or a [server.kv]", shown(metric), "set workload.prompt or server.kv")


def _clock_fault(metric: str, resolved: tuple[Setting, ...]) -> str:
    """What a metric of arrivals and latencies lacks; nothing if it has all it needs."""
    if resolved and not any(map(has_clock, resolved)):
        return "needs workload.arrivals, a server.order or a server.step"
    if metric in OF_SLO and not all(setting.workload.slo is not None for setting in resolved):
        return "needs a workload.slo in every cell"
    own, rated = ("times", "trace"), ("poisson", "gamma", "weibull")
    arrivals = [setting.workload.arrivals for setting in resolved]
    if metric in OF_SLO_RATE and not all(
        spec is not None and (spec.process in own or (spec.process in rated and (spec.rate_per_s or spec.load)))
        for spec in arrivals
    ):
        return f"needs arrivals with a rate: process = one of {', '.join((*rated, *own))}"
    return ""


def column_faults(document: dict[str, Any], axes: tuple[Axis, ...], resolved: tuple[Setting, ...]) -> Iterator[Fault]:
    """Faults of the columns and values that claims and charts name."""
    known = _values_known(axes, resolved)
    by_name = columns(axes, resolved)
    for key in ("claims", "charts"):
        given = document.get(key)
        for at, table in enumerate(given if isinstance(given, list) else ()):
            if not isinstance(table, dict):
                continue
            if key == "claims" and isinstance(table.get("where"), dict):
                yield from _where_faults((key, at, "where"), table["where"], known, by_name)
            if key == "claims" and isinstance(table.get("minus"), dict):
                yield from _minus_faults((key, at, "minus"), table, known, axes, by_name)
            for role in ("x", "y", "color") if key == "charts" else ():
                word = table.get(role)
                if isinstance(word, str) and word not in known and word not in METRICS:
                    yield metric_choice((key, at, role), word, METRICS, known)


def _where_faults(
    path: Path, where: dict[str, Any], known: dict[str, list[Any]], by_name: dict[str, list[Any]]
) -> Iterator[Fault]:
    whole = True
    for column, wanted in where.items():
        if column not in known:
            yield unknown((*path, column), "column", list(known))
            whole = False
            continue
        there = {canonical(value) for value in known[column]}
        for value in wanted if isinstance(wanted, list) and wanted else [wanted]:
            if there and canonical(value) not in there:
                listed = ", ".join(map(shown, known[column][:VALUES_LISTED]))
                more = ", ..." if len(known[column]) > VALUES_LISTED else ""
                yield Fault((*path, column), f"no cell has {shown(value)}; there are {listed}{more}")
                whole = False
    if whole and by_name and not matching(where, by_name):
        yield Fault(path, "no cell has all of these values")


def _minus_faults(
    path: Path,
    claim: dict[str, Any],
    known: dict[str, list[Any]],
    axes: tuple[Axis, ...],
    by_name: dict[str, list[Any]],
) -> Iterator[Fault]:
    """Faults of what is taken away: the cells of a claim, but for those themselves, must each have one other cell."""
    minus, where = claim["minus"], claim.get("where")
    faults = [
        Fault((*path, column), "takes one value of a column", shown(value))
        for column, value in minus.items()
        if isinstance(value, list)
    ]
    faults += _where_faults(path, minus, known, by_name) if not faults else []
    yield from faults
    axis_columns = {column for axis in axes for column in axis.columns}
    if faults or not by_name or not minus or not isinstance(where, dict | None):
        return
    if derived := minus.keys() - axis_columns:
        yield Fault((*path, *sorted(derived)[:1]), "is no axis of the grid; name the axis that it follows from")
        return
    if where and list(_where_faults(path, where, known, by_name)):
        return
    cells = matching(where or {}, by_name)
    others = _minus(cells, minus, axes, by_name)
    if None in others:
        cell = cells[others.index(None)]
        at = ", ".join(f"{column} = {shown(by_name[column][cell])}" for column in sorted(axis_columns))
        yield Fault(path, f"there is no cell to take from the one at {at}")
    elif cells == others:
        yield Fault(path, "takes a cell from itself; name values that where does not have")


def _metrics_named(document: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Where metrics are named, and which, as far as the tables have the right shape."""
    tables: list[tuple[Path, Any]] = [(("precision",), document.get("precision"))]
    for key in ("claims", "charts"):
        given = document.get(key)
        tables += [((key, at), table) for at, table in enumerate(given)] if isinstance(given, list) else []
    for path, table in tables:
        named = table.get("metric") if isinstance(table, dict) else None
        for place, metric in enumerate(named if isinstance(named, list) else [named]):
            if isinstance(metric, str) and metric:
                yield (*path, "metric", *([place] if isinstance(named, list) else [])), metric


def _values_known(axes: tuple[Axis, ...], resolved: tuple[Setting, ...]) -> dict[str, list[Any]]:
    """The values of each column that a claim can name, each once; none for slots that are not known yet."""
    known = {}
    for axis in axes:
        for at, column in enumerate(axis.columns):
            known[column] = list({canonical(row[at]): row[at] for row in entries(axis)}.values())
    known.setdefault("slots", list(dict.fromkeys(slots_of(setting.server) for setting in resolved)))
    return known

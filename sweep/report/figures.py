"""The pictures of a results folder, each with its alternative text and its caption.

A chart over fewer axes than the grid has shows the main cell's values of the others, and says so. Leaves out which
charts there are (`wishes`) and how they are drawn (`charts`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from sweep.metrics import SCHEDULERS
from sweep.report import charts
from sweep.report.charts.histogram import counted
from sweep.report.charts.look import Chart
from sweep.report.charts.timeline import amount, middle, moments
from sweep.report.claims import FAILS, HOLDS, UNDECIDED, Verdict
from sweep.report.clock import overloaded
from sweep.report.explained import approach_figure, waterfall_figure
from sweep.report.findings import THEORY, workloads_text
from sweep.report.intervals import Values
from sweep.report.stats import NO_VALUES, values_to_draw
from sweep.report.wishes import metrics_of, wished
from sweep.report.words import at, axis_value, main_cell, number, plural, share_with_interval, with_interval
from sweep.results import Store

KINDS = {"distribution": "Histogram", "heatmap": "Heat map", "lines": "Line chart", "memory": "Line chart"}
KINDS |= {"timeline": "Timeline", "approach": "Line chart", "waterfall": "Waterfall chart"}
NOT_MODELLED = (
    "One step gives each running request one token and all requests wait from the start: prompts, later arrivals and"
    " steps that slow down in a fuller batch are not modelled."
)


Drawn: TypeAlias = tuple[Chart, str, pl.DataFrame]  # a picture, its caption and the numbers in it


class Figure(NamedTuple):
    """A picture with what is said about it; `name` is that of its files."""

    name: str
    chart: Chart
    alt: str
    caption: str
    data: pl.DataFrame = pl.DataFrame()  # the numbers in the picture, under names for readers
    tiles: tuple[str, str, str] | None = None  # of a heat map: the columns across and up, and the metric


def figures(store: Store, cells: pl.DataFrame, verdicts: Sequence[Verdict]) -> list[Figure]:
    """The pictures of a folder in the order of the page."""
    found: list[Figure] = []
    for wish in wished(store.manifest):
        kind = str(wish["kind"])
        chart, caption, data = _DRAWN[kind](store, cells, verdicts, wish)
        before = sum(figure.name.split("-")[0] == kind for figure in found)
        name = kind if before == 0 else f"{kind}-{before + 1}"
        tiles = (str(wish["x"]), str(wish["y"]), str(wish["metric"])) if kind == "heatmap" else None
        found.append(Figure(name, chart, _alternative(kind, chart), caption, data, tiles))
    return found


def timelines(store: Store) -> list[Figure]:
    """Slots against time for the workloads in timelines.parquet, the worst and the median one of the main cell."""
    path = store.folder / "timelines.parquet"
    if not path.exists():
        return []
    frame = pl.read_parquet(path, glob=False)
    return [
        _timeline(store.manifest, frame.filter(role=role), role, f"timeline-{place}" if place > 1 else "timeline")
        for place, role in enumerate(frame["role"].unique(maintain_order=True), 1)
    ]


def _timeline(manifest: Mapping[str, Any], bars: pl.DataFrame, role: str, name: str) -> Figure:
    unit, drawn = moments(bars)
    of = {scheduler: drawn.filter(scheduler=scheduler) for scheduler in SCHEDULERS}
    over = {scheduler: float(own["finish"].max()) for scheduler, own in of.items()}  # type: ignore[arg-type]
    took = {scheduler: float((own["finish"] - own["arrival"]).mean()) for scheduler, own in of.items()}  # type: ignore[arg-type]
    arrives = bool(drawn["arrival"].max())
    cell, slots, replicate = bars.select("cell", "slots", "replicate").row(0)
    if overloaded(manifest["cells"][cell]):
        title = f"In the {role} workload static batching falls behind while requests come"
    else:
        title = f"In the {role} workload {_compared(took if arrives else over, unit, arrives=arrives)}"
    window = middle(of["continuous"]["arrival"].to_list(), SHOWN_ARRIVALS) if arrives else None
    note = f"Shown are {number(window[0])} to {amount(window[1], unit)}" if window else ""
    chart = charts.timeline(bars, slots, title, note, window)
    means = f", {_against(took, unit)} from arrival to last token on average" if arrives else ""
    caption = (
        f"Replicate {replicate:,} of cell {cell}, the one with the {_ROLES[role]} multiple: {_against(over, unit)}"
        f"{means}. In a terminal: sweep replay DIR --cell {cell} --replicate {replicate}"
    )
    data = bars.drop("cell", "slots", "replicate", "role")
    return Figure(name, chart, _alternative("timeline", chart), caption, data)


def _compared(times: Mapping[str, float], unit: str, *, arrives: bool) -> str:
    """How many times the steps, or the time, static batching takes; of requests that arrive, one of them."""
    times_as = f"{number(times['static'] / times['continuous'], 2)} times"
    if arrives:
        return f"a request takes {times_as} as long under static batching"
    return f"static batching takes {times_as} {'the steps' if unit == 'steps' else 'as long'}"


def _against(times: Mapping[str, float], unit: str) -> str:
    """Both schedulers' figures, such as "5,797 against 1,148 steps"."""
    static, continuous = (amount(times[scheduler], unit) for scheduler in SCHEDULERS)
    return f"{static.removesuffix(f' {unit}')} against {continuous}"


SHOWN_ARRIVALS = 120  # of a workload whose requests keep coming
_ROLES = {"worst": "smallest", "median": "middle"}


def not_modelled(manifest: Mapping[str, Any]) -> str:
    """What the numbers of a study leave out, as far as its workload and its server do not speak of it."""
    study = manifest["study"]
    told = {f"{name}.{key}" for name in ("workload", "server") for key in study[name]}
    told |= {".".join(path.split(".")[:2]) for axis in manifest["axes"] for path in axis["paths"]}
    prompts = told & {"workload.prompt", "workload.trace"}
    arrivals, step = (told & {key, f"{key}s"} for key in ("workload.arrival", "server.step"))
    if not (prompts or arrivals or step or "server.kv" in told):
        return NOT_MODELLED
    missing = [] if prompts else ["prompts"]
    missing += [] if arrivals else ["arrivals after the start"]
    missing += [] if step else ["steps that slow down in a fuller batch"]
    listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
    return f"Not modelled: {listed}." if missing else ""


def _distribution(store: Store, cells: pl.DataFrame, verdicts: Sequence[Verdict], wish: Mapping[str, Any]) -> Drawn:
    column = wish.get("y") or wish.get("color") or wish.get("x")
    if column:
        return _distributions(store, cells, str(column), str(wish["metric"]))
    cell, metric = store.manifest["cells"][main_cell(cells, store.manifest)], str(wish["metric"])
    claim = claim_on(metric, store.manifest, {cell["cell"]})
    values, one_in = values_to_draw(store, cell["point"], metric).get(cell["cell"], (NO_VALUES.values, 1))
    where = at(cell["axes"]) + (f", one in {one_in:,} of those simulated" if one_in > 1 else "")
    chart = charts.distribution(values, metric=metric, where=where, claim=claim)
    row = cells.row(by_predicate=pl.col("cell") == cell["cell"], named=True)
    if row[f"{metric}_mean"] is None:
        return chart, f"No workload of this cell has a result: {row['error'] or 'not simulated yet'}.", pl.DataFrame()
    low, high = row[f"{metric}_ci_low"], row[f"{metric}_ci_high"]
    mean = with_interval(row[f"{metric}_mean"], low, high, "95 % t interval ")
    n = plural(row["replicates"], "workload")
    caption = f"Each bar counts workloads, {n} in all, by their {metric}; the dark rule is its mean, {mean}."
    met = next((v for v in verdicts if claim and v.cell == cell["cell"] and v.text == claim["text"]), None)
    if met is not None:
        share = share_with_interval(met.share, met.share_low, met.share_high, "95 % Wilson interval ")
        caption += f" It is {met.bound} in {share} of the workloads."
    return chart, f"{caption} {not_modelled(store.manifest)}", _bins(values, metric, claim)


def _distributions(store: Store, cells: pl.DataFrame, column: str, metric: str) -> Drawn:
    """A row for each value of an axis, of the cells that agree with the main one otherwise."""
    shown, fixed = _slice(cells, store.manifest, [column])
    claim = claim_on(metric, store.manifest, set(shown["cell"]))
    values = {}
    for row in shown.iter_rows(named=True):
        point = store.manifest["cells"][row["cell"]]["point"]
        found = values_to_draw(store, point, metric).get(row["cell"], (NO_VALUES.values, 1))
        values[axis_value(row[column])] = found[0]
    chart = charts.distributions(values, column, metric=metric, claim=claim, note=fixed)
    caption = f"Each row counts the workloads of one cell by their {metric}; bars are relative to the highest of a row."
    bins = [_bins(cell, metric, claim).insert_column(0, pl.lit(label).alias(column)) for label, cell in values.items()]
    return chart, f"{caption} {_of_means(shown, [metric])} {not_modelled(store.manifest)}", pl.concat(bins)


def _heatmap(store: Store, cells: pl.DataFrame, verdicts: Sequence[Verdict], wish: Mapping[str, Any]) -> Drawn:
    x, y, metric = str(wish["x"]), str(wish["y"]), str(wish["metric"])
    shown, fixed = _slice(cells, store.manifest, [x, y])
    told = [verdict for verdict in verdicts if verdict.metric == metric]
    notes = [fixed, _corners(told)]
    chart = charts.heatmap(
        shown, x, y, metric=metric, verdicts=worst_verdicts(told), note="; ".join(note for note in notes if note)
    )
    return chart, f"{_of_means(shown, [metric])} {not_modelled(store.manifest)}", _means(shown, [y, x], [metric])


def _lines(store: Store, cells: pl.DataFrame, _: Sequence[Verdict], wish: Mapping[str, Any]) -> Drawn:
    x, color, metrics = str(wish["x"]), wish.get("color"), metrics_of(wish)
    shown, fixed = _slice(cells, store.manifest, [x, *([color] if color else [])])
    claims = (claim_on(metric, store.manifest, set(shown["cell"])) for metric in metrics)
    claim = next((claim for claim in claims if claim is not None), None)
    log, log_x = bool(wish.get("log")), wish.get("log_x")
    chart = charts.lines(shown, x, color=color, metric=metrics, claim=claim, note=fixed, log=log, log_x=log_x)
    columns = [str(color), x] if color else [x]
    return chart, f"{_of_means(shown, metrics)} {not_modelled(store.manifest)}", _means(shown, columns, metrics)


def _memory(store: Store, cells: pl.DataFrame, _: Sequence[Verdict], wish: Mapping[str, Any]) -> Drawn:
    x, color = str(wish["x"]), wish.get("color")
    shown, fixed = _slice(cells, store.manifest, [x, *([color] if color else [])])
    memory = store.manifest["study"]["server"].get("memory") or {}
    given = ", ".join(f"{name} = {value}" for name, value in memory.items())
    caption = (
        f"Computed, not simulated: the memory for keys and values ({given}), divided by what a request of that context"
        " may come to need, rounded down. Room is kept for the whole context of each request; memory that is lost in"
        " pieces is not modelled."
    )
    data = shown.select(*dict.fromkeys((*([str(color)] if color else []), x, "slots", "error")))
    return charts.requests_that_fit(shown, x, color=color, note=fixed), caption, data


def _waterfall(store: Store, _: pl.DataFrame, __: Sequence[Verdict], wish: Mapping[str, Any]) -> Drawn:
    chart, caption, data = waterfall_figure(store, str(wish["metric"]))
    return chart, f"{caption} {not_modelled(store.manifest)}", data


def _approach(store: Store, cells: pl.DataFrame, _: Sequence[Verdict], __: Mapping[str, Any]) -> Drawn:
    chart, caption, data = approach_figure(cells, store.manifest)
    return chart, f"{caption} {not_modelled(store.manifest)}", data


_DRAWN: dict[str, Callable[..., Drawn]] = {
    "distribution": _distribution,
    "heatmap": _heatmap,
    "lines": _lines,
    "memory": _memory,
}
_DRAWN |= {"approach": _approach, "waterfall": _waterfall}


def _slice(cells: pl.DataFrame, manifest: Mapping[str, Any], used: Sequence[str]) -> tuple[pl.DataFrame, str]:
    """The cells that agree with the main cell on every axis that is not used, and what those are fixed at."""
    main = manifest["cells"][main_cell(cells, manifest)]["axes"]
    groups = [axis["columns"] for axis in manifest["axes"] if not set(axis["columns"]) & set(used)]
    fixed = {column: main[column] for columns in groups for column in columns}
    if not set(used) <= set(main):
        fixed = {}  # a column that follows from other axes, such as the slots that a context leaves
    kept = [c["cell"] for c in manifest["cells"] if all(c["axes"][column] == value for column, value in fixed.items())]
    return cells.filter(pl.col("cell").is_in(kept)), at(fixed)


def claim_on(metric: str, manifest: Mapping[str, Any], shown: set[int]) -> Mapping[str, Any] | None:
    """The first claim on a metric that speaks of a cell that is shown."""
    own = (claim for claim in manifest["claims"] if claim["metric"] == metric and not claim.get("minus"))
    return next((claim for claim in own if shown & set(claim["cells"])), None)


def worst_verdicts(verdicts: Sequence[Verdict]) -> dict[int, str]:
    """The worst verdict on each cell."""
    found: dict[int, str] = {}
    for verdict in verdicts:
        found[verdict.cell] = max(found.get(verdict.cell, HOLDS), verdict.verdict, key=_SEVERITY.index)
    return found


_SEVERITY = (HOLDS, UNDECIDED, FAILS)


def _corners(verdicts: Sequence[Verdict]) -> str:
    """What the marked corners of a heat map mean; nothing where every claim holds."""
    outcomes = {verdict.verdict for verdict in verdicts}
    claims = list(dict.fromkeys((verdict.text, verdict.condition) for verdict in verdicts))
    named = f'"{claims[0][0]}" ({claims[0][1]})' if len(claims) == 1 else "a claim"
    filled = f"filled corner: {named} fails" if FAILS in outcomes else ""
    opened = f"open corner: {'undecided' if filled else f'{named} is undecided'}" if UNDECIDED in outcomes else ""
    return ", ".join(part for part in (filled, opened) if part)


def _means(cells: pl.DataFrame, columns: Sequence[str], metrics: Sequence[str]) -> pl.DataFrame:
    """The numbers of a chart of means: where, over how many workloads, each mean with its interval, and theory."""
    names = [f"{metric}_{name}" for metric in metrics for name in ("mean", "ci_low", "ci_high")]
    theory = [THEORY[metric] for metric in metrics if metric in THEORY and cells[THEORY[metric]].count()]
    failed = ["error"] if cells["error"].count() else []
    return cells.select(*columns, "replicates", *names, *theory, *failed)


def _bins(values: Values, metric: str, claim: Mapping[str, Any] | None) -> pl.DataFrame:
    """How many workloads lie from one edge to the next."""
    edges, counts = counted(values, claim)
    return pl.DataFrame({f"{metric} from": edges[:-1], f"{metric} to": edges[1:], "number of workloads": counts})


def _of_means(cells: pl.DataFrame, metrics: Sequence[str]) -> str:
    """The estimand of a chart of means, how many workloads, and how wide the intervals are."""
    what = " and ".join(f"{metric}_mean" for metric in metrics)
    halves = [half for metric in metrics if (half := _widest(cells, metric, "ci")) is not None]
    widest = f"; the widest 95 % t interval is ± {max(halves):.2g}" if halves else ""
    own = f"the mean over workloads of each workload's own {metrics[0] if len(metrics) == 1 else 'value'}"
    n = workloads_text(cells, metrics)
    return f"Each value is {what}, {own} (n = {n} in a cell{widest}).{_together(cells, metrics)}"


def _together(cells: pl.DataFrame, metrics: Sequence[str]) -> str:
    """How many of several intervals miss by chance, and how wide those are that hold for all cells together."""
    unsure = {metric: cells.filter(pl.col(f"{metric}_se") > 0) for metric in metrics}
    several = sum(map(len, unsure.values()))
    if several < 2:
        return ""
    halves = [half for metric in metrics if (half := _widest(unsure[metric], metric, "simultaneous")) is not None]
    wide = f": the widest is then ± {max(halves):.2g}" if halves else ""
    names = " and ".join(f"{metric}_simultaneous_low" for metric in metrics)
    return (
        f" Of {several} such intervals {0.05 * several:.2g} miss their mean by chance; those of"
        f" {names} and _high hold for all cells of the study together{wide}."
    )


def _widest(cells: pl.DataFrame, metric: str, kind: str) -> float | None:
    """Half the width of a metric's widest interval of a kind; None where there is none."""
    half = ((cells[f"{metric}_{kind}_high"] - cells[f"{metric}_{kind}_low"]) / 2).max()
    return half if isinstance(half, float) else None


def _alternative(kind: str, chart: Chart) -> str:
    """The picture in words: its kind, its title and its subtitle."""
    title = chart.to_dict()["title"]
    return f"{KINDS[kind]}: {' '.join(title['text'])}. {' '.join(title['subtitle'])}".strip()

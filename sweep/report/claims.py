"""Verdicts on the claims of a study, from the intervals of what was simulated and never from the estimates alone.

A claim bounds a metric, and says of what: the mean over workloads, a percentile, a share of the workloads, or every
one. All four become an interval that is set against the bounds: inside, the claim holds; outside, it fails; across
an edge, more workloads are needed and it is undecided. Few workloads give a percentile one end of an interval and not
the other; where that end settles a claim, it is settled.

A claim with `minus` is on the difference to another cell, taken workload by workload: both meet the same ones.

A workload whose metric is undefined has no value to average or to rank, so means and percentiles are over the others.
It does not satisfy a bound either: in a share it counts as a workload that misses, and under "every" it is a
counter-example.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sweep.report import tallied
from sweep.report.intervals import (
    Ends,
    Interval,
    Values,
    defined,
    mean_interval,
    percentile_ends,
    percentile_needs,
    wilson,
)
from sweep.report.needed import mean_decides, percentile_decides, share_decides
from sweep.report.stats import NO_VALUES, Column, columns_by_cell, estimates
from sweep.results import Store
from sweep.sums import Tally, tallies

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
WORST = 3


class Verdict(NamedTuple):
    """What the simulated workloads of one cell say about one claim; None where there are too few, or none."""

    text: str
    metric: str
    cell: int
    verdict: str
    estimate: float | None  # of the mean, the percentile or the share that the claim speaks of
    ci_low: float | None
    ci_high: float | None
    worst_replicates: list[int]  # at most three, the workloads that speak most against the claim
    axes: dict[str, Any]
    replicates: int
    condition: str
    bound: str  # the condition without what it is of, such as ">= 5"
    share: float | None  # of workloads within the claim's bounds, whatever the claim is of
    share_low: float | None
    share_high: float | None
    note: str = ""  # why there is no estimate, where rows would have given one
    replicates_needed: int | None = (
        None  # that would decide it, if the estimate is true; None: decided, or by no number
    )
    interval_needs: int | None = None  # workloads from which on there is an interval, where it is withheld
    minus: int | None = None  # the cell that is taken from this one, where the claim is on a difference
    known: int | None = None  # workloads that a mean or a percentile is over: those in which the metric is defined


def check(store: Store) -> list[Verdict]:
    """A verdict for each claim and each cell it speaks of, in the order of the study; 95 % intervals."""
    return judge(store, store.manifest["claims"])


def judge(store: Store, claims: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """The verdicts on claims as a manifest holds them, each with its `cells`, from what is in a folder."""
    manifest = store.manifest
    cells = {cell["cell"]: cell for cell in manifest["cells"]}
    found: dict[tuple[int, int], Verdict] = {}
    for point in manifest["points"]:
        if store.keeps == "summary":
            known = tallies(store, point["point"])
            for number, claim in enumerate(claims):
                for cell in set(claim["cells"]) & set(point["cells"]):
                    found[number, cell] = verdict_of_sums(claim, cells[cell], known.get(cell))
            continue
        plain = [claim for claim in claims if "minus_cells" not in claim]
        for metric in _metrics_claimed(plain, point["cells"]):
            columns = columns_by_cell(store, point["point"], metric)
            for number, claim in enumerate(claims):
                if claim["metric"] != metric or "minus_cells" in claim:
                    continue
                for cell in set(claim["cells"]) & set(point["cells"]):
                    found[number, cell] = verdict(claim, cells[cell], columns.get(cell, NO_VALUES))
    for number, claim in enumerate(claims):
        found |= {(number, one.cell): one for one in _verdicts_on_differences(store, claim, cells)}
    return [found[number, cell] for number, claim in enumerate(claims) for cell in claim["cells"]]


def difference(column: Column, other: Column) -> Column:
    """What is left of a metric when another cell's is taken away, for the workloads that both have met."""
    common, mine, theirs = np.intersect1d(column.replicates, other.replicates, assume_unique=True, return_indices=True)
    return Column(common, np.asarray(column.values[mine] - other.values[theirs], np.float64))


def verdict(claim: Mapping[str, Any], cell: Mapping[str, Any], column: Column) -> Verdict:
    """The verdict on one claim in one cell, from that cell's values of the claimed metric."""
    low, high = bounds(claim)
    of = claim["of"]
    met = int(((column.values >= low) & (column.values <= high)).sum())
    estimate, ends = _estimate(of, column.values, met)
    share, share_interval = _share(met, len(column.values))
    if of == "every":
        outcome = (FAILS if share < 1 else HOLDS) if share is not None else UNDECIDED
    elif isinstance(of, dict) and "share" in of:
        outcome = _outcome(ends, of["share"], math.inf)
    else:
        outcome = _outcome(ends, low, high)
    share_low, share_high = share_interval or (None, None)
    needed = _decides(of, column.values, met, low, high) if outcome == UNDECIDED else None
    return Verdict(
        replicates_needed=max(needed, len(column.values) + 1) if needed is not None else None,
        interval_needs=_interval_needs(of) if None in ends and len(column.values) else None,
        text=claim["text"],
        metric=claim["metric"],
        cell=cell["cell"],
        verdict=outcome,
        estimate=estimate,
        ci_low=ends[0],
        ci_high=ends[1],
        worst_replicates=_worst(column, low, high, counts_undefined=_is_of_workloads(of)),
        axes=dict(cell["axes"]),
        replicates=len(column.values),
        condition=condition(claim),
        bound=bound_text(claim),
        share=share,
        share_low=share_low,
        share_high=share_high,
        known=None if _is_of_workloads(of) else int(np.isfinite(column.values).sum()),
    )


def verdict_of_sums(claim: Mapping[str, Any], cell: Mapping[str, Any], tally: Tally | None) -> Verdict:
    """The verdict on one claim in one cell of a folder that keeps sums; undecided, with a note, if they cannot tell."""
    if tally is None:
        return verdict(claim, cell, NO_VALUES)
    (low, high), of, metric = bounds(claim), claim["of"], claim["metric"]
    within = tallied.met(tally, metric, low, high)
    share, share_interval = tallied.share_interval(tally, within)
    estimate, ends = _estimate_of_sums(of, tally, metric, (share, share_interval or (None, None)))
    if of == "every":
        known = within.least == tally.replicates or within.most < tally.replicates
        outcome = (HOLDS if within.least == tally.replicates else FAILS) if known else UNDECIDED
    elif _is_of_workloads(of):
        outcome = _outcome(ends, of["share"], math.inf)
    else:
        outcome = _outcome(ends, low, high)
    unknown = estimate is None and tally.sums[metric].n > 0
    share_low, share_high = share_interval or (None, None)
    return Verdict(
        text=claim["text"],
        metric=metric,
        cell=cell["cell"],
        verdict=outcome,
        estimate=estimate,
        ci_low=ends[0],
        ci_high=ends[1],
        worst_replicates=tallied.worst(tally, metric, low, high),
        axes=dict(cell["axes"]),
        replicates=tally.replicates,
        condition=condition(claim),
        bound=bound_text(claim),
        share=share,
        share_low=share_low,
        share_high=share_high,
        note="" if not unknown else tallied.NO_ROWS if outcome == UNDECIDED else tallied.TO_A_PLACE,
        known=None if _is_of_workloads(of) else tally.sums[metric].n,
    )


def bounds(claim: Mapping[str, Any]) -> Interval:
    """The values that a claim allows, both ends included; infinite where it leaves a side open."""
    if "at_least" in claim:
        return float(claim["at_least"]), math.inf
    if "at_most" in claim:
        return -math.inf, float(claim["at_most"])
    if "between" in claim:
        return float(claim["between"][0]), float(claim["between"][1])
    within = claim.get("within") or 0.0
    return float(claim["equals"] - within), float(claim["equals"] + within)


def condition(claim: Mapping[str, Any]) -> str:
    """What a claim asks for, such as ">= 5 in 95 % of workloads", in ASCII for any terminal."""
    of, minus = claim["of"], claim.get("minus")
    less = f"minus that at {', '.join(f'{column} = {value}' for column, value in minus.items())} " if minus else ""
    if of == "every":
        return f"{less}{bound_text(claim)} in every workload"
    if of == "mean":
        return f"mean {less}{bound_text(claim)}"
    if "share" in of:
        return f"{less}{bound_text(claim)} in {100 * of['share']:g} % of workloads"
    return f"{ordinal(of['percentile'])} percentile {less}{bound_text(claim)}"


def bound_text(claim: Mapping[str, Any]) -> str:
    """The bound of a claim alone, such as ">= 5"."""
    if "at_least" in claim:
        return f">= {claim['at_least']:g}"
    if "at_most" in claim:
        return f"<= {claim['at_most']:g}"
    if "between" in claim:
        return f"between {claim['between'][0]:g} and {claim['between'][1]:g}"
    return f"= {claim['equals']:g}" + (f" within {claim['within']:g}" if claim.get("within") else "")


def ordinal(p: float) -> str:
    """The number of a percentile as it is read: 1 gives "1st", 50 "50th", 2.5 "2.5th"."""
    endings = {1.0: "st", 2.0: "nd", 3.0: "rd"}
    return f"{p:g}{'th' if p in (11, 12, 13) else endings.get(p % 10, 'th')}"


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """0 when all hold, 1 when one fails, 3 when none fails but one is undecided."""
    outcomes = {verdict.verdict for verdict in verdicts}
    return 1 if FAILS in outcomes else 3 if UNDECIDED in outcomes else 0


def as_json(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The verdicts as plain data for `check --json`; undefined is None."""
    more = ("axes", "condition", "minus", "replicates", "known", "replicates_needed", "interval_needs")
    names = (*Verdict._fields[:8], *more)
    return [{name: getattr(verdict, name) for name in names} for verdict in verdicts]


def _verdicts_on_differences(
    store: Store, claim: Mapping[str, Any], cells: Mapping[int, Mapping[str, Any]]
) -> Iterator[Verdict]:
    """The verdicts of a claim on a difference; none of another claim."""
    metric, pairs = claim["metric"], list(zip(claim["cells"], claim.get("minus_cells", ()), strict=False))
    columns = lru_cache(maxsize=2)(lambda point: columns_by_cell(store, point, metric))  # of the points of a pair
    for pair in pairs:
        if store.keeps == "summary":
            yield verdict(claim, cells[pair[0]], NO_VALUES)._replace(note=tallied.NO_ROWS, minus=pair[1])
            continue
        mine, theirs = (columns(cells[cell]["point"]).get(cell, NO_VALUES) for cell in pair)
        yield verdict(claim, cells[pair[0]], difference(mine, theirs))._replace(minus=pair[1])


def _metrics_claimed(claims: Sequence[Mapping[str, Any]], cells: Iterable[int]) -> list[str]:
    """The metrics that are claimed in some of these cells, each once."""
    here = set(cells)
    return list(dict.fromkeys(claim["metric"] for claim in claims if here & set(claim["cells"])))


def _is_of_workloads(of: Any) -> bool:
    """Whether a claim counts workloads (a share, or every one) and so meets the undefined ones too."""
    return of == "every" or (isinstance(of, dict) and "share" in of)


def _estimate(of: Any, values: Values, met: int) -> tuple[float | None, Ends]:
    """What the claim speaks of, with the ends of its 95 % interval: t, Wilson, or order statistics."""
    if _is_of_workloads(of):
        share, interval = _share(met, len(values))
        return share, interval or (None, None)
    values = defined(values)
    if len(values) == 0:
        return None, (None, None)
    if of == "mean":
        return estimates(values).mean, mean_interval(values) or (None, None)
    p = of["percentile"]
    return float(np.percentile(values, p)), percentile_ends(np.sort(values), p)


def _estimate_of_sums(
    of: Any, tally: Tally, metric: str, share: tuple[float | None, Ends]
) -> tuple[float | None, Ends]:
    """What the claim speaks of as far as sums know it, with its 95 % interval, which is none too narrow."""
    if _is_of_workloads(of):
        return share
    if of == "mean":
        sums = tally.sums[metric]
        return (sums.mean if sums.n else None), tallied.mean_interval(sums) or (None, None)
    ranked = tallied.percentile(tally, of["percentile"]) if metric == "multiple" else None
    return (ranked.value, ranked.ends) if ranked else (None, (None, None))


def _share(met: int, n: int) -> tuple[float | None, Interval | None]:
    return (met / n if n else None), wilson(met, n)


def _decides(of: Any, values: Values, met: int, low: float, high: float) -> int | None:
    """How many workloads would decide a claim that these do not."""
    if of == "every":
        return 1
    if of == "mean":
        return mean_decides(values, low, high)
    if "share" in of:
        return share_decides(met, len(values), of["share"])
    return percentile_decides(values, of["percentile"], low, high)


def _interval_needs(of: Any) -> int:
    """The fewest defined values that give an interval for what a claim is of."""
    if isinstance(of, dict) and "percentile" in of:
        return percentile_needs(of["percentile"])
    return 2 if of == "mean" else 1


def _outcome(ends: Ends, low: float, high: float) -> str:
    """The verdict on bounds, one of which is finite, by an interval that is open where an end is withheld."""
    least, most = -math.inf if ends[0] is None else ends[0], math.inf if ends[1] is None else ends[1]
    if low <= least and most <= high:
        return HOLDS
    return FAILS if most < low or least > high else UNDECIDED


def _worst(column: Column, low: float, high: float, *, counts_undefined: bool) -> list[int]:
    """The replicates furthest out of the bounds, or nearest to leaving them; ties by number, undefined ones first."""
    room = np.minimum(column.values - low, high - column.values)  # nan where undefined
    undefined = np.isnan(room)
    keep = ~undefined | counts_undefined
    order = np.lexsort((column.replicates[keep], np.where(undefined, -math.inf, room)[keep]))[:WORST]
    return [int(replicate) for replicate in column.replicates[keep][order]]

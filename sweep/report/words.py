"""Names and numbers in plain words, shared by the charts, the page and the terminal. ASCII throughout."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from sweep.metrics import parted
from sweep.report.claims import Verdict
from sweep.report.intervals import t_interval


class Name(NamedTuple):
    """How a metric is spoken of."""

    subject: str  # begins a sentence
    title: str  # of an axis, with its unit


METRIC_NAMES = {
    "multiple": Name("The multiple", "multiple (static steps / continuous steps)"),
    "multiple_s": Name("The multiple in time", "multiple in time (static seconds / continuous seconds)"),
    "static_steps": Name("The number of static steps", "static batching (steps)"),
    "continuous_steps": Name("The number of continuous steps", "continuous batching (steps)"),
    "static_s": Name("The time under static batching", "static batching (s)"),
    "continuous_s": Name("The time under continuous batching", "continuous batching (s)"),
    "static_utilisation": Name("Utilisation under static batching", "utilisation, static (busy / all slot-steps)"),
    "continuous_utilisation": Name(
        "Utilisation under continuous batching", "utilisation, continuous (busy / all slot-steps)"
    ),
    "static_waited_share": Name("The share that waits under static batching", "requests that wait, static (share)"),
    "continuous_waited_share": Name(
        "The share that waits under continuous batching", "requests that wait, continuous (share)"
    ),
    "static_slo_share": Name("The share within the SLO under static batching", "within the SLO, static (share)"),
    "continuous_slo_share": Name(
        "The share within the SLO under continuous batching", "within the SLO, continuous (share)"
    ),
    "static_goodput_per_s": Name("The goodput of static batching", "goodput, static (requests/s)"),
    "continuous_goodput_per_s": Name("The goodput of continuous batching", "goodput, continuous (requests/s)"),
    "wait_ratio": Name("The ratio of mean waits", "wait, static / continuous"),
    "ttft_ratio": Name("The ratio of mean times to the first token", "time to the first token, static / continuous"),
    "e2e_ratio": Name("The ratio of mean times to the last token", "time to the last token, static / continuous"),
    "static_growth_share": Name(
        "The growth of the queue under static batching", "queue growth, static (share of the requests)"
    ),
    "continuous_growth_share": Name(
        "The growth of the queue under continuous batching", "queue growth, continuous (share of the requests)"
    ),
    "arrival_rate_per_s": Name("The rate of arrivals as it came out", "arrivals observed (requests/s)"),
    "arrival_gap_cv": Name("The cv of the gaps as it came out", "cv of the gaps observed"),
    "static_slo_rate_per_s": Name("The largest rate that static batching serves", "largest rate, static (requests/s)"),
    "continuous_slo_rate_per_s": Name(
        "The largest rate that continuous batching serves", "largest rate, continuous (requests/s)"
    ),
    "output_tokens": Name("The number of output tokens", "output of a workload (tokens)"),
    "longest_output_tokens": Name("The longest output", "longest output of a workload (tokens)"),
    "prompt_tokens": Name("The number of prompt tokens", "prompts of a workload (tokens)"),
    "scheduled_tokens": Name("The number of tokens computed", "computed in a workload (tokens)"),
    "preemptions": Name("The number of preemptions", "preemptions in a workload"),
    "recomputed_tokens": Name("The number of tokens computed again", "computed again after preemptions (tokens)"),
    "prefix_hit_tokens": Name("The number of tokens found in the cache", "found in the cache at first (tokens)"),
    "resumed_hit_tokens": Name("The number of tokens found again", "found in the cache after preemptions (tokens)"),
    "refused_requests": Name("The number of refused requests", "refused in a workload (requests)"),
    "max_blocks": Name("The most blocks in use", "most blocks in use"),
    "mean_blocks": Name("The mean number of blocks in use", "blocks in use in a step"),
    "peak_batch": Name("The most requests running", "most requests running"),
    "mean_batch": Name("The mean number of requests running", "requests running in a step"),
    "tokens_per_step": Name("The output of a step", "output of a step, continuous (tokens)"),
    "used_share": Name("The share of the cache in use", "cache in use (share)"),
    "reserved_share": Name("The share reserved and empty", "cache reserved and empty (share)"),
    "lost_share": Name("The share lost in last blocks", "cache lost in last blocks (share)"),
    "free_share": Name("The free share of the cache", "cache free (share)"),
}
AXIS_TITLES = {
    "slots": "slots (requests running at once)",
    "requests": "requests waiting at the start",
    "context": "context (tokens)",
    "block_size": "block size (tokens)",
    "kv_block_size": "block size (tokens)",
    "blocks": "blocks of the KV cache",
    "kv_blocks": "blocks of the KV cache",
    "token_budget": "tokens a step (at most)",
    "kv_token_budget": "tokens a step (at most)",
    "step_ms": "step time (ms)",
    "arrivals_load": "load (of what continuous batching can serve)",
    "arrivals_rate_per_s": "arrivals (requests/s)",
    "arrivals_cv": "cv of the gaps between arrivals",
    "slo_ttft_s": "limit on the time to the first token (s)",
    "slo_tpot_s": "limit on the time per later token (s)",
    "slo_e2e_s": "limit on the time to the last token (s)",
    "prediction_cv": "error of the predicted output (deviation / output)",
    "output_mean": "mean output length (tokens)",
    "output_cv": "cv of the output length",
    "output_max_tokens": "cap on the output length (tokens)",
}
OF_BOTH = {  # what is measured of each scheduler, without its name
    "steps": Name("The number of steps", "steps of a workload"),
    "s": Name("The time of a workload", "time of a workload (s)"),
    "utilisation": Name("Utilisation", "utilisation (busy / all slot-steps)"),
    "waited_share": Name("The share that waits", "requests that wait (share)"),
    "slo_share": Name("The share within the SLO", "within the SLO (share)"),
    "goodput_per_s": Name("The goodput", "goodput (requests/s)"),
    "slo_rate_per_s": Name("The largest rate within the SLO", "largest rate within the SLO (requests/s)"),
}
FIRST_ROUND_MEASURED = 512  # workloads; of smaller rounds it was not measured how often a stopped interval covers
SHORT = {
    "output_cv": "cv",
    "output_mean": "mean length",
    "output_max_tokens": "cap",
    "arrivals_load": "load",
    "arrivals_rate_per_s": "requests/s",
    "arrivals_cv": "gap cv",
}

LATENCIES = {
    "wait": "wait",
    "ttft": "time to the first token",
    "tpot": "time per later token",
    "e2e": "time to the last token",
}


def metric_name(metric: str) -> Name:
    """How a metric is spoken of; one that is not known goes by its column."""
    return METRIC_NAMES.get(metric) or _latency_name(metric) or Name(metric, metric)


def both_name(measured: str) -> Name:
    """How what is measured of both schedulers is spoken of, such as "ttft_p95_s", without either's name."""
    known = _latency(measured)
    if known is None:
        return OF_BOTH.get(measured) or Name(measured, measured)
    words, spoken = known
    return Name(f"The {spoken}", f"{words} (s)")


def short_metric(metric: str) -> str:
    """A metric at the end of a line, such as "static ttft p95"; one that is no latency goes by its column."""
    is_latency = _latency(metric) or _latency_name(metric)
    return metric.removesuffix("_s").replace("_", " ") if is_latency else metric


def _latency_name(metric: str) -> Name | None:
    """How a latency of one scheduler is spoken of, such as continuous_ttft_p95_s; None for other metrics."""
    scheduler, measured = parted(metric)
    known = _latency(measured) if scheduler else None
    if known is None:
        return None
    words, spoken = known
    return Name(f"The {spoken} under {scheduler} batching", f"{words}, {scheduler} (s)")


def _latency(measured: str) -> tuple[str, str] | None:
    """A latency in words, on an axis of means and in a sentence; None for what is no latency."""
    known = re.fullmatch(r"(wait|ttft|tpot|e2e)_(mean|p\d\d)_s", measured)
    if known is None:
        return None
    latency, part = known.groups()
    words = LATENCIES[latency] if part == "mean" else f"{part[1:]}th percentile of the {LATENCIES[latency]}"
    return words, f"mean {words}" if part == "mean" else words


def axis_title(column: str) -> str:
    """The title of a chart's axis for a column of the grid, with its unit where that is known."""
    return AXIS_TITLES.get(column, column)


def at(axes: Mapping[str, Any]) -> str:
    """Where in the grid, such as "slots = 16, cv = 0.5"; nothing for a study without axes."""
    return ", ".join(f"{SHORT.get(column, column)} = {axis_value(value)}" for column, value in axes.items())


def axis_value(value: Any) -> str:
    """An axis value as it is read: 32768 gives "32,768"; text stays as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float, decimals: int | None = None) -> str:
    """A number with thousands grouped, to about three significant digits unless the decimals are given."""
    if decimals is None:
        if value == 0 or not 1e-4 <= abs(value) < 1e15:  # nor what is not finite
            return f"{value:.3g}"
        decimals = max(0, 2 - math.floor(math.log10(abs(value))))
        if value == round(value, min(decimals, 1)):
            decimals = 0 if value == round(value) else 1
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def decimals_for(low: float, high: float) -> int | None:
    """Decimals that show the first digit of an interval's half-width; None for one without a width."""
    half = (high - low) / 2
    return min(9, max(0, math.ceil(-math.log10(half)))) if half > 0 else None


def with_interval(estimate: float | None, low: float | None, high: float | None, what: str = "") -> str:
    """An estimate with its interval, such as "4.677 (4.668 to 4.686)"; alone where there is none, not even an end.

    what : the kind of interval, put before its ends.
    """
    if estimate is None:
        return "undefined"
    if low is None or high is None:
        return number(estimate) + _one_end(low, high, what)
    decimals = decimals_for(low, high)
    return f"{number(estimate, decimals)} ({what}{number(low, decimals)} to {number(high, decimals)})"


def _one_end(low: float | None, high: float | None, what: str) -> str:
    """The end of an interval that is there; nothing where neither is."""
    if high is not None:
        return f" ({what}at most {number(high)})"
    return "" if low is None else f" ({what}at least {number(low)})"


def verdict_estimate(verdict: Verdict) -> str:
    """The estimate of a verdict with its interval; a share of the workloads in per cent. Then what it would take."""
    if verdict.estimate is None:
        return verdict.note or "no result"
    shown = share_with_interval if "workload" in verdict.condition else with_interval
    return shown(verdict.estimate, verdict.ci_low, verdict.ci_high) + _more(verdict)


def _more(verdict: Verdict) -> str:
    """Over how many workloads it is where not all know the metric; what an undecided claim would need, and why there is
    no interval.
    """
    more = ""
    if verdict.known is not None and verdict.known < verdict.replicates:
        more += f"; over the {verdict.known:,} of {plural(verdict.replicates, 'workload')} in which it is defined"
    if verdict.interval_needs is not None:
        more += f"; an interval takes {plural(verdict.interval_needs, 'workload')}"
    if verdict.replicates_needed is not None:
        more += f"; about {_rounded_up(verdict.replicates_needed):,} workloads would decide it, if this is the truth"
    return more


def _rounded_up(n: int) -> int:
    """A whole number with two significant digits that is not below n."""
    unit = int(10 ** max(0, len(str(n)) - 2))
    return -(-n // unit) * unit


def share_with_interval(share: float | None, low: float | None, high: float | None, what: str = "") -> str:
    """A share with its interval in per cent, such as "24.0 % (23.1 to 24.8 %)"; none and all are said exactly."""
    if share is None or low is None or high is None:
        return "undefined"
    decimals = max(decimals_for(100 * low, 100 * high) or 0, _decimals_of_percent(share))
    shown, first, last = (number(100 * part, 0 if part in (0, 1) else decimals) for part in (share, low, high))
    return f"{shown} % ({what}{first} to {last} %)"


def _decimals_of_percent(share: float) -> int:
    """Decimals that `percent` shows of a share, and enough to tell it from none and from all."""
    if share in (0, 1):
        return 0
    least = math.ceil(-math.log10(100 * min(share, 1 - share)))
    return min(9, max(0, least, len(percent(share).split()[0].partition(".")[2])))


def precision_text(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> str:
    """By which rule workloads were added, in which rounds, and whether it was met; nothing for a fixed number."""
    precision = manifest["precision"]
    if precision is None:
        return ""
    metric, asked, confidence = precision["metric"], precision["half_width"], precision["confidence"]
    rounds = sorted({n for point in manifest["points"] for n in point.get("rounds", ())})
    wide = [(half, row["replicates"]) for row in frame.iter_rows(named=True) if (half := _too_wide(row, precision))]
    met = "that was met everywhere"
    if wide:
        half, n = max(wide)
        met = f"in {plural(len(wide), 'cell')} it was not met, at worst with +- {half:.2g} after {n:,}"
    return (
        f"Workloads were added in rounds ({', '.join(f'{n:,}' for n in rounds)}) until the mean of {metric} was known"
        f" to +- {asked} ({100 * confidence:g} % interval) in every cell of a point;"
        f" {met}. {_coverage(precision)}"
    )


def _coverage(precision: Mapping[str, Any]) -> str:
    """What looking between rounds costs; as a number only where that was measured."""
    measured = precision["metric"] == "multiple" and precision["confidence"] == 0.95
    if measured and precision["min_replicates"] >= FIRST_ROUND_MEASURED:
        return "Looking between rounds costs a little: such intervals cover in 92 % of studies or more, not in 95 %."
    return (
        "Looking between rounds lowers the coverage of such intervals below the"
        f" {100 * precision['confidence']:g} % asked for."
    )


def _too_wide(row: Mapping[str, Any], precision: Mapping[str, Any]) -> float | None:
    """The half width of a cell's interval where it is wider than was asked for."""
    mean, se = row[f"{precision['metric']}_mean"], row[f"{precision['metric']}_se"]
    if mean is None or se is None:
        return None
    low, high = t_interval(mean, se, row["replicates"] - 1, precision["confidence"])
    asked = precision["half_width"]
    most = abs(mean) * float(asked.rstrip("% ")) / 100 if isinstance(asked, str) else asked
    half = (high - low) / 2
    return half if half > most * (1 + 1e-9) else None


def percent(share: float) -> str:
    """A share in per cent; never rounded to all or nothing."""
    shown = f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.3g}"
    if shown == "100" and share < 1:
        shown = f"{math.floor(1e4 * share) / 100:.2f}"
    return f"{shown} %"


def plural(n: int, noun: str) -> str:
    """A count with its noun: "1 workload", "10,000 workloads"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def main_cell(frame: pl.DataFrame, manifest: Mapping[str, Any]) -> int:
    """The cell that the answer is about: the first that a claim picks by `where`, else the middle of those that ran."""
    for claim in manifest["claims"]:
        if claim["where"] and claim["cells"]:
            return int(claim["cells"][0])
    cells = frame.filter(pl.col("replicates") > 0)["cell"] if frame["replicates"].sum() else frame["cell"]
    return int(cells[len(cells) // 2])

"""Names of all metrics, by what a study must have to give them, and which are counts: said here and nowhere else.

The unit is in the name. "ttft" is the time to the first token and "tpot" that per token after the first, "e2e" is from
arrival to last token; percentiles are over the requests of one workload. How each is found is in `rows`, and how it is
called in print in `report.words`.
"""

from typing import Literal, get_args

_COUNTS_ALWAYS = ("output_tokens", "static_steps", "continuous_steps")
ALWAYS = (*_COUNTS_ALWAYS, "multiple", "static_utilisation", "continuous_utilisation")

LongestOutput = Literal["longest_output_tokens"]
InSeconds = Literal["static_s", "continuous_s", "multiple_s"]  # need a step time
ServerCount = Literal[
    "prompt_tokens",
    "scheduled_tokens",
    "preemptions",
    "recomputed_tokens",
    "prefix_hit_tokens",
    "resumed_hit_tokens",
    "refused_requests",
    "max_blocks",
]
PeakBatch = Literal["peak_batch"]
OnServer = Literal[  # need a study on the server model: prompts, [server.kv] or a delay
    ServerCount,
    "mean_blocks",
    PeakBatch,
    "mean_batch",
    "tokens_per_step",
    "used_share",
    "reserved_share",
    "lost_share",
    "free_share",
]
Timed = Literal[  # need a clock: arrivals, an order of admission or a step time that varies
    "static_wait_mean_s", "static_wait_p50_s", "static_wait_p90_s", "static_wait_p95_s", "static_wait_p99_s",
    "static_ttft_mean_s", "static_ttft_p50_s", "static_ttft_p90_s", "static_ttft_p95_s", "static_ttft_p99_s",
    "static_tpot_mean_s", "static_tpot_p50_s", "static_tpot_p90_s", "static_tpot_p95_s", "static_tpot_p99_s",
    "static_e2e_mean_s", "static_e2e_p50_s", "static_e2e_p90_s", "static_e2e_p95_s", "static_e2e_p99_s",
    "static_waited_share", "static_slo_share", "static_goodput_per_s", "static_slo_rate_per_s",
    "continuous_wait_mean_s", "continuous_wait_p50_s", "continuous_wait_p90_s", "continuous_wait_p95_s",
    "continuous_wait_p99_s",
    "continuous_ttft_mean_s", "continuous_ttft_p50_s", "continuous_ttft_p90_s", "continuous_ttft_p95_s",
    "continuous_ttft_p99_s",
    "continuous_tpot_mean_s", "continuous_tpot_p50_s", "continuous_tpot_p90_s", "continuous_tpot_p95_s",
    "continuous_tpot_p99_s",
    "continuous_e2e_mean_s", "continuous_e2e_p50_s", "continuous_e2e_p90_s", "continuous_e2e_p95_s",
    "continuous_e2e_p99_s",
    "continuous_waited_share", "continuous_slo_share", "continuous_goodput_per_s", "continuous_slo_rate_per_s",
    "wait_ratio", "ttft_ratio", "e2e_ratio", "static_growth_share", "continuous_growth_share",
    "arrival_rate_per_s", "arrival_gap_cv",
]  # fmt: skip
Measured = Literal[LongestOutput, InSeconds, OnServer, Timed]  # what `measure` may ask for, in this order
Count = Literal[LongestOutput, ServerCount, PeakBatch]

IN_SECONDS: tuple[str, ...] = get_args(InSeconds)
ON_SERVER: tuple[str, ...] = get_args(OnServer)
TIMED: tuple[str, ...] = get_args(Timed)
OF_SLO = tuple(name for name in TIMED if "_slo_" in name or "goodput" in name)
OF_SLO_RATE = tuple(name for name in TIMED if name.endswith("slo_rate_per_s"))
WITHOUT_SECONDS = ("static_waited_share", "continuous_waited_share", "wait_ratio", "ttft_ratio", "e2e_ratio",
                   "static_growth_share", "continuous_growth_share", "arrival_gap_cv")  # fmt: skip
EXTRA: tuple[str, ...] = get_args(Measured)
COUNTS: tuple[str, ...] = (*_COUNTS_ALWAYS, *get_args(Count))
METRICS = (*ALWAYS, *EXTRA)

SCHEDULERS = ("static", "continuous")
_UNITS = {  # by the end of the name, the longer ends first
    "_per_s": "requests/s",
    "_ratio": "",
    "multiple_s": "",
    "_s": "s",
    "_steps": "steps",
    "_tokens": "tokens",
    "tokens_per_step": "tokens",
    "_requests": "requests",
    "_batch": "requests",
    "_blocks": "blocks",
    "_utilisation": "share",
    "_share": "share",
}


def unit_of(metric: str) -> str:
    """The unit of a metric, as its name tells; "" for ratios and plain numbers."""
    return next((unit for end, unit in _UNITS.items() if metric.endswith(end)), "")


def parted(metric: str) -> tuple[str, str]:
    """The scheduler that a metric is of, "" where it is not of one, and what is measured of it."""
    scheduler, _, rest = metric.partition("_")
    return (scheduler, rest) if scheduler in SCHEDULERS else ("", metric)

"""Names of the metrics of a study with a clock: arrivals, an order of admission or a step time that varies.

The unit is in the name. "ttft" is the time to the first token and "tpot" that per token after the first, "e2e" is from
arrival to last token; percentiles are over the requests of one workload. What they are exactly is in `latencies`.
"""

from typing import Literal, get_args

Timed = Literal[
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
    "wait_ratio", "ttft_ratio", "e2e_ratio",
    "arrival_rate_per_s", "arrival_gap_cv",
]  # fmt: skip
TIMED: tuple[str, ...] = get_args(Timed)
OF_SLO = tuple(name for name in TIMED if "_slo_" in name or "goodput" in name)
OF_SLO_RATE = tuple(name for name in TIMED if name.endswith("slo_rate_per_s"))
WITHOUT_SECONDS = ("static_waited_share", "continuous_waited_share", "wait_ratio", "ttft_ratio", "e2e_ratio",
                   "arrival_gap_cv")  # fmt: skip

"""The figures of the reference lab: memory, both schedulers, and what they make of the workload of one lucky seed.

Each number is computed when it is asked for: the memory table from the shape of a model, steps by the kernels that
studies use. The lesson around them is in `commands.lab_text`, what thousands of seeds say in the study `lab_seeds`.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sweep.errors import SettingError
from sweep.model.lengths import LAB_LONG, LAB_LONG_SHARE, LAB_SHORT, lab_lengths
from sweep.model.lockstep import continuous_steps, given_steps, static_steps
from sweep.model.memory import requests_that_fit

Figures: TypeAlias = dict[str, Any]

MIB, GIB = 2**20, 2**30
LAYERS, KV_HEADS, HEAD_DIM, BYTES_PER_VALUE = 32, 32, 128, 2
BYTES_PER_TOKEN = LAYERS * KV_HEADS * HEAD_DIM * 2 * BYTES_PER_VALUE  # a key and a value
GPU_GIB, WEIGHTS_AND_OVERHEAD_GIB = 80, 16
BUDGET_GIB = GPU_GIB - WEIGHTS_AND_OVERHEAD_GIB
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
PREDICTED_CONTEXTS = 2048, 8192

REQUESTS, SLOTS, STEP_MS = 200, 16, 20
CONTROL_TOKENS = 100
OTHER_SEEDS = 10_000
FAMOUS_MULTIPLE = 5

CHAT_PROMPT, CHAT_OUTPUT = 2000, 500
ROOM = (20, 20, 20, 20, 20, 20, 20, 500)  # lengths of a batch, one to a slot
SHARING, SHARED_PREFIX = 1000, 1500

MAX_SEED = 2**63 - 1


def figures(seed: int) -> Figures:
    """Every number of the lesson, and the sums over seeds 0 to 9999, ready for JSON; "115.9" is text as printed.

    Raises SettingError.
    """
    work = work_of(check_seed(seed))
    return {**own_figures(work), "other_seeds": _other_seeds(work)}


class Work(NamedTuple):
    """The workload of a seed, (REQUESTS,) lengths in tokens, and the steps of both schedulers."""

    seed: int
    lengths: list[int]
    static: int
    continuous: int

    @property
    def tokens(self) -> int:
        """Of all requests together."""
        return sum(self.lengths)

    @property
    def long(self) -> int:
        """Long requests, of the two kinds that the lab draws."""
        return sum(length >= LAB_LONG[0] for length in self.lengths)

    @property
    def multiple(self) -> float:
        """Static steps / continuous steps."""
        return self.static / self.continuous

    def utilisation(self, steps: int) -> float:
        """Share of the slot-steps of a scheduler with so many steps in which a token was made."""
        return self.tokens / (steps * SLOTS)


def work_of(seed: int) -> Work:
    """The workload of a seed, run by both schedulers."""
    lengths = lab_lengths(seed, 0, 1, REQUESTS)[0]
    return Work(seed, lengths.tolist(), static_steps(lengths, SLOTS), continuous_steps(lengths, SLOTS))


def check_seed(seed: int) -> int:
    """The seed, if the lab can have it. Raises SettingError."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise SettingError("seed", f"must be an integer from 0 to 2^63 - 1, got {seed!r}")
    return seed


def own_figures(work: Work) -> Figures:
    """All figures but those of the other seeds, which take longer than the lesson."""
    return {
        "about": f"Lengths are drawn with random.Random({work.seed}): for each of {REQUESTS} requests in turn, "
        f"randint{LAB_LONG} when random() < {LAB_LONG_SHARE:.2f}, and randint{LAB_SHORT} otherwise.",
        "kv_cache": _kv_cache(),
        "workload": {
            "requests": REQUESTS,
            "short": REQUESTS - work.long,
            "long": work.long,
            "output_tokens": work.tokens,
            "longest": max(work.lengths),
            "slots": SLOTS,
            "step_ms": STEP_MS,
        },
        "control": _control(),
        "static": _scheduler(work, work.static),
        "continuous": _scheduler(work, work.continuous),
        "multiple": {"exact": f"{work.static}/{work.continuous}", "printed": f"{work.multiple:.1f}"},
        "scoreboard": [
            {"id": f"P{number}", "what": what, "actual": f"{actual:.1f}"}
            for number, (what, actual) in enumerate(predicted(work), 1)
        ],
        "drills": _drills(),
    }


def fit(tokens: int) -> int:
    """Requests of so many tokens that fit in the budget."""
    return requests_that_fit(BUDGET_GIB * GIB, tokens, BYTES_PER_TOKEN)


def _kv_cache() -> Figures:
    return {
        "layers": LAYERS,
        "kv_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "bytes_per_value": BYTES_PER_VALUE,
        "bytes_per_token": BYTES_PER_TOKEN,
        "gpu_gib": GPU_GIB,
        "weights_and_overhead_gib": WEIGHTS_AND_OVERHEAD_GIB,
        "budget_gib": BUDGET_GIB,
        "table": [
            {"tokens": tokens, "mib_per_request": tokens * BYTES_PER_TOKEN // MIB, "requests_that_fit": fit(tokens)}
            for tokens in CONTEXTS
        ],
    }


def _control() -> Figures:
    equal = [CONTROL_TOKENS] * REQUESTS
    static, continuous = static_steps(equal, SLOTS), continuous_steps(equal, SLOTS)
    return {
        "lengths": f"{REQUESTS} x {CONTROL_TOKENS} tokens",
        "static_steps": static,
        "continuous_steps": continuous,
        "multiple": f"{static / continuous:.2f}",
    }


def _scheduler(work: Work, steps: int) -> Figures:
    seconds = steps * STEP_MS / 1000
    return {
        "steps": steps,
        "seconds": f"{seconds:.1f}",
        "requests_per_s": f"{REQUESTS / seconds:.1f}",
        "utilisation": f"{work.utilisation(steps):.1%}",
    }


def predicted(work: Work) -> list[tuple[str, float]]:
    """What P1 to P4 ask for, and the actual values, not rounded."""
    return [
        *((f"requests held at {tokens:,} tokens each", float(fit(tokens))) for tokens in PREDICTED_CONTEXTS),
        ("static steps / continuous steps", work.multiple),
        ("% of slot-steps that static fills", 100 * work.utilisation(work.static)),
    ]


def _drills() -> Figures:
    held = CHAT_PROMPT + CHAT_OUTPUT
    slots, useful, steps = len(ROOM), sum(ROOM), static_steps(ROOM, len(ROOM))
    return {
        "D1": {
            "prompt_tokens": CHAT_PROMPT,
            "output_tokens": CHAT_OUTPUT,
            "tokens_held": held,
            "mib_held": held * BYTES_PER_TOKEN // MIB,
            "budget_gib": BUDGET_GIB,
            "requests_that_fit": fit(held),
        },
        "D2": {"context_doubles": "half as many requests fit"},
        "D3": {
            "slots": slots,
            "lengths": list(ROOM),
            "static_steps": steps,
            "useful_slot_steps": useful,
            "slot_steps": slots * steps,
            "wasted_slot_steps": slots * steps - useful,
            "utilisation": useful / (slots * steps),
        },
        "D4": {"same_slots_deep_queue": _refill()},
        "D5": {
            "requests": SHARING,
            "shared_prefix": "the prefix is computed and kept a single time for as long as requests share it; "
            "what follows it is computed and kept for each request",
        },
    }


def _refill() -> str:
    short = [length for length in ROOM if length < max(ROOM)]
    leave = continuous_steps(short, len(short))
    refilled = continuous_steps([*short, *[1] * len(short)], len(short))  # when the next ones emit a first token
    return (
        f"the {len(short)} short requests end with step {leave}; the next in the queue take their slots, "
        f"and step {refilled} runs full"
    )


def passing() -> tuple[int, int]:
    """Requests as short as the shortest of ROOM that pass the longest under continuous batching, and its last step."""
    short, longest = min(ROOM), max(ROOM)
    more = (len(ROOM) - 1) * (longest - short) // short
    return more, continuous_steps([*ROOM, *[short] * more], len(ROOM))


def fit_sharing() -> int:
    """Chat requests that fit where the start of their prompts is held once for all."""
    left = BUDGET_GIB * GIB - SHARED_PREFIX * BYTES_PER_TOKEN
    return requests_that_fit(left, CHAT_PROMPT - SHARED_PREFIX + CHAT_OUTPUT, BYTES_PER_TOKEN)


def _other_seeds(work: Work) -> Figures:
    """Sums and counts over the first seeds; shares are counted on integers, so that no rounding decides."""
    tokens, _, (static,), (continuous,) = given_steps(lab_lengths(0, 0, OTHER_SEEDS, REQUESTS), [SLOTS])
    multiple = static / continuous
    low, high = int(multiple.argmin()), int(multiple.argmax())
    return {
        "about": f"Drawn in the same way for seeds 0 to {OTHER_SEEDS - 1}, on {SLOTS} slots.",
        "first_five": np.column_stack([static, continuous, tokens])[:5].tolist(),
        "first_five_columns": ["static_steps", "continuous_steps", "output_tokens"],
        "sum_of_static_steps": int(static.sum()),
        "sum_of_continuous_steps": int(continuous.sum()),
        f"seeds_with_multiple_at_least_{FAMOUS_MULTIPLE}": int((static >= FAMOUS_MULTIPLE * continuous).sum()),
        f"seeds_with_multiple_at_least_that_of_{work.seed}": int(
            (static * work.continuous >= work.static * continuous).sum()
        ),
        "smallest": {"seed": low, "multiple": float(multiple[low])},
        "largest": {"seed": high, "multiple": float(multiple[high])},
        "mean_multiple": math.fsum(multiple) / OTHER_SEEDS,
        "median_multiple": float(np.median(multiple)),
    }

"""The reference lab: a lesson in the terminal on memory, queueing and one lucky seed.

Each number is computed when it is shown: the memory table from the shape of a model, steps by the kernels that studies
use, and what they mean from the workload of the seed. `figures` holds the numbers and `text` the lesson around them.
Left out: what thousands of seeds say, beyond the figures; that is the study `lab_seeds`.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sweep.errors import InputError
from sweep.model.lengths import LAB_LONG, LAB_LONG_SHARE, LAB_SHORT, lab_lengths
from sweep.model.lockstep import continuous_steps, given_steps, static_steps
from sweep.model.memory import requests_that_fit

Figures: TypeAlias = dict[str, Any]
Predictions: TypeAlias = tuple[float, float, float, float]

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

CLOSE = 0.10  # a prediction this near to the actual value, relative to it, is a good one
MAX_SEED = 2**63 - 1
WIDEST, NARROWEST = 80, 40


def text(seed: int, predictions: Predictions | None, width: int) -> str:
    """The lesson in ASCII, prose in lines of `width` (40 to 80); tables are at most 80 wide. Raises InputError.

    predictions : P1 to P4 as the lesson asks for them, to be scored; None shows the answers alone.
    """
    _check(seed, predictions)
    work = _work(seed)
    shown = _lesson(work)
    sections = [
        _opening(seed, predictions is not None),
        _memory_section(shown["kv_cache"]),
        _control_section(shown["control"]),
        _comparison_section(work, shown),
        _meaning_section(work),
        _scoreboard_section(work, shown["scoreboard"], predictions),
        _drills_section(shown["drills"]),
    ]
    columns = min(max(width, NARROWEST), WIDEST)
    return "\n\n".join(_wrapped(block, columns) for section in sections for block in section) + "\n"


def figures(seed: int) -> Figures:
    """Every number of the lesson, and the sums over seeds 0 to 9999, ready for JSON; "115.9" is text as printed.

    Raises InputError.
    """
    _check(seed, None)
    work = _work(seed)
    return {**_lesson(work), "other_seeds": _other_seeds(work)}


class _Work(NamedTuple):
    """The workload of a seed, (REQUESTS,) lengths in tokens, and the steps of both schedulers."""

    seed: int
    lengths: list[int]
    static: int
    continuous: int

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def long(self) -> int:
        return sum(length >= LAB_LONG[0] for length in self.lengths)

    @property
    def multiple(self) -> float:
        return self.static / self.continuous

    def utilisation(self, steps: int) -> float:
        return self.tokens / (steps * SLOTS)


def _work(seed: int) -> _Work:
    lengths = lab_lengths(seed, 0, 1, REQUESTS)[0]
    return _Work(seed, lengths.tolist(), static_steps(lengths, SLOTS), continuous_steps(lengths, SLOTS))


def _check(seed: int, predictions: Predictions | None) -> None:
    faults = []
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        faults.append(f"seed: must be an integer from 0 to 2^63 - 1, got {seed!r}")
    for number, prediction in enumerate(predictions or (), 1):
        if not (math.isfinite(prediction) and prediction > 0):
            faults.append(f"predict: P{number} must be a number above 0, got {prediction!r}")
    if faults:
        raise InputError(*faults)


def _lesson(work: _Work) -> Figures:
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
            for number, (what, actual) in enumerate(_predicted(work), 1)
        ],
        "drills": _drills(),
    }


def _fit(tokens: int) -> int:
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
            {"tokens": tokens, "mib_per_request": tokens * BYTES_PER_TOKEN // MIB, "requests_that_fit": _fit(tokens)}
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


def _scheduler(work: _Work, steps: int) -> Figures:
    seconds = steps * STEP_MS / 1000
    return {
        "steps": steps,
        "seconds": f"{seconds:.1f}",
        "requests_per_s": f"{REQUESTS / seconds:.1f}",
        "utilisation": f"{work.utilisation(steps):.1%}",
    }


def _predicted(work: _Work) -> list[tuple[str, float]]:
    """What P1 to P4 ask for, and the actual values, not rounded."""
    return [
        *((f"requests held at {tokens:,} tokens each", float(_fit(tokens))) for tokens in PREDICTED_CONTEXTS),
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
            "requests_that_fit": _fit(held),
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


def _other_seeds(work: _Work) -> Figures:
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


# The lesson itself: each section is blocks of text. Prose is one long line; what is indented or has lines is laid out.


def _opening(seed: int, predicted: bool) -> list[str]:
    title = f"The reference lab, seed {seed}"
    about = (
        "An LLM server is limited twice. Each token of each running request occupies memory, so the context sets how "
        "many requests run at once; and requests end at different times, so a batch can wait for its slowest member. "
        "This lab works out both, on one model and one workload."
    )
    if predicted:
        return [_headed(title), about]
    ask = (
        f"Before you read on, write down four numbers: (P1) how many requests fit at {PREDICTED_CONTEXTS[0]:,} tokens "
        f"each and (P2) at {PREDICTED_CONTEXTS[1]:,}, given part 1's model and memory; (P3) how many times as many "
        "steps static batching takes as continuous on part 3's workload; (P4) what percentage of its slot-steps "
        "static batching fills with tokens. To have them scored:"
    )
    return [_headed(title), about, ask, _scoring(seed)]


def _memory_section(kv: Figures) -> list[str]:
    first, last = kv["table"][0], kv["table"][-1]
    return [
        _headed("1. Memory: what a token costs"),
        f"Attention looks back at every earlier token, so each layer keeps a key and a value of it for each KV head: "
        f"{kv['layers']} layers x {kv['kv_heads']} KV heads x {kv['head_dim']} numbers x 2 (key and value) x "
        f"{kv['bytes_per_value']} bytes = {kv['bytes_per_token']:,} bytes a token. A GPU of {kv['gpu_gib']} GiB that "
        f"gives {kv['weights_and_overhead_gib']} GiB to weights and overhead has {kv['budget_gib']} GiB left for this "
        f"KV cache:",
        _table(
            ("tokens a request", "MiB a request", f"requests in {kv['budget_gib']} GiB"),
            [(f"{row['tokens']:,}", f"{row['mib_per_request']:,}", row["requests_that_fit"]) for row in kv["table"]],
            left=0,
        ),
        f"Each doubling of the context halves the requests that fit: {first['requests_that_fit']} at "
        f"{first['tokens']:,} tokens, {last['requests_that_fit']} at {last['tokens']:,}.",
    ]


def _control_section(control: Figures) -> list[str]:
    return [
        _headed("2. Control: equal lengths"),
        "Static batching starts a group of requests and runs it until its longest ends. Continuous batching gives a "
        "slot to the next request in the step after it became free. In one step every running request emits a token. "
        f"Where all requests are equally long the two must agree, and on {SLOTS} slots they do: {control['lengths']} "
        f"take {control['static_steps']:,} steps under static batching and {control['continuous_steps']:,} under "
        f"continuous batching, a multiple of {control['multiple']}. Any gain has to come from unequal lengths.",
    ]


def _comparison_section(work: _Work, shown: Figures) -> list[str]:
    load, static, continuous = shown["workload"], shown["static"], shown["continuous"]
    rows = ("steps", "seconds", "requests/s", "utilisation")
    return [
        _headed("3. The workload: static against continuous"),
        f"{shown['about']} This gives {load['short']} short and {load['long']} long requests, "
        f"{load['output_tokens']:,} tokens in all, the longest of {load['longest']:,}. They all wait at the start for "
        f"{load['slots']} slots, and a step takes {load['step_ms']} ms.",
        _table(
            ("", "static", "continuous"),
            [
                (name, _with_commas(of_static), _with_commas(of_continuous))
                for name, of_static, of_continuous in zip(rows, static.values(), continuous.values(), strict=True)
            ],
        ),
        f"The multiple is {shown['multiple']['exact']} = {shown['multiple']['printed']}: static batching takes that "
        f"many times the steps of continuous batching. Utilisation is the share of slot-steps (steps x slots) in which "
        f"a token was made; both make the same {work.tokens:,} tokens.",
    ]


def _meaning_section(work: _Work) -> list[str]:
    floor = max(math.ceil(work.tokens / SLOTS), max(work.lengths))
    reaches = "reaches" if work.static >= FAMOUS_MULTIPLE * work.continuous else "does not reach"
    return [
        _headed("4. What it means"),
        _groups_told(work),
        f"Under continuous batching no slot is idle while a request waits. Its idle slot-steps, "
        f"{1 - work.utilisation(work.continuous):.1%} of them, all come at the end, once the queue is empty and the "
        f"last requests run out. No schedule could take fewer than {floor:,} steps, which is "
        f"{_floor_told(work)}; continuous batching takes {work.continuous / floor:.2f} times that.",
        f"With more decimals the multiple is {work.multiple:.4f}, so this seed {reaches} {FAMOUS_MULTIPLE}x. But it is "
        f"one workload of one seed: another draws other lengths in another order, and gets another multiple. To see "
        f"what {OTHER_SEEDS:,} seeds say, and how many of them reach {FAMOUS_MULTIPLE}x:",
        "    sweep run studies/lab_seeds.toml",
    ]


def _groups_told(work: _Work) -> str:
    """What static batching made of the order in which the requests came."""
    longest = [max(work.lengths[first : first + SLOTS]) for first in range(0, REQUESTS, SLOTS)]
    waiting = [steps for steps in longest if steps >= LAB_LONG[0]]
    idle = f"{1 - work.utilisation(work.static):.1%}"
    if not waiting:
        return (
            f"No request of this seed is long, so none of the {len(longest)} groups waits more than "
            f"{max(longest)} steps, and static batching leaves {idle} of its slot-steps idle: what there is to gain "
            f"comes from the spread of the short requests alone."
        )
    return (
        f"{work.long / REQUESTS:.1%} of the requests {'is' if work.long == 1 else 'are'} long ({work.long} of "
        f"{REQUESTS}), but {len(waiting)} of the {len(longest)} groups of static batching "
        f"{'has' if len(waiting) == 1 else 'have'} a long member, and such a group runs until its longest has ended. "
        f"{sum(waiting):,} of the {work.static:,} steps ({sum(waiting) / work.static:.1%}) pass like this, and {idle} "
        f"of all slot-steps are idle: the request in the slot has ended, or the last group is too small to fill it."
    )


def _floor_told(work: _Work) -> str:
    even = f"{work.tokens:,} tokens / {SLOTS} slots, rounded up"
    return even if work.tokens > SLOTS * max(work.lengths) else "the length of the longest request"


def _scoreboard_section(work: _Work, scoreboard: Sequence[Figures], predictions: Predictions | None) -> list[str]:
    if predictions is None:
        rows = [(row["id"], row["what"], row["actual"]) for row in scoreboard]
        return [
            _headed("5. Predictions"),
            _table(("", "", "actual"), rows, left=2),
            "To put yours beside them:",
            _scoring(work.seed),
        ]
    actual = [value for _, value in _predicted(work)]
    table = _table(
        ("", "", "yours", "actual", "how far off"),
        [
            (row["id"], row["what"], f"{prediction:.4g}", row["actual"], _how_far_off(prediction, value))
            for row, prediction, value in zip(scoreboard, predictions, actual, strict=True)
        ],
        left=2,
    )
    close = sum(_is_close(prediction, value) for prediction, value in zip(predictions, actual, strict=True))
    return [_headed("5. Predictions"), table, f"{close} of {len(predictions)} within {CLOSE:.0%}."]


def _is_close(prediction: float, actual: float) -> bool:
    return f"{prediction:.1f}" == f"{actual:.1f}" or round(abs(prediction / actual - 1), 9) <= CLOSE


def _how_far_off(prediction: float, actual: float) -> str:
    if f"{prediction:.1f}" == f"{actual:.1f}":
        return "spot on"
    if _is_close(prediction, actual):
        return f"within {CLOSE:.0%} ({prediction / actual - 1:+.1%})"
    factor, side = (prediction / actual, "high") if prediction > actual else (actual / prediction, "low")
    return f"{factor:.3g}x too {side}" if factor < 1000 else f"over 1000x too {side}"


def _drills_section(drills: Figures) -> list[str]:
    d1, d3 = drills["D1"], drills["D3"]
    return [
        _headed("6. Drills"),
        f"D1. A request has a prompt of {d1['prompt_tokens']:,} tokens and writes {d1['output_tokens']:,}. How many "
        f"such requests fit in {d1['budget_gib']} GiB? Each holds {d1['tokens_held']:,} tokens in the end, "
        f"{d1['mib_held']:,} MiB, so {d1['requests_that_fit']} fit.",
        f"D2. The context doubles. What becomes of the batch? Memory a request doubles, so "
        f"{drills['D2']['context_doubles']}: {_fit(CONTEXTS[0])} at {CONTEXTS[0]:,} tokens, {_fit(CONTEXTS[1])} at "
        f"{CONTEXTS[1]:,}.",
        f"D3. {d3['slots']} slots run one static group with outputs of {', '.join(map(str, d3['lengths']))} tokens. "
        f"How much of it is useful? It takes {d3['static_steps']:,} steps, {d3['slot_steps']:,} slot-steps. "
        f"{d3['useful_slot_steps']:,} make a token and {d3['wasted_slot_steps']:,} are wasted: a utilisation of "
        f"{d3['utilisation']:.2f}.",
        f"D4. The same slots and requests under continuous batching, with a deep queue behind them. What changes? "
        f"{drills['D4']['same_slots_deep_queue'].capitalize()}. {_passing_told()}",
        f"D5. {drills['D5']['requests']:,} requests start with the same prefix. What does it cost? "
        f"{drills['D5']['shared_prefix'].capitalize()}. {_sharing_told()}",
    ]


def _passing_told() -> str:
    short, longest = min(ROOM), max(ROOM)
    more = (len(ROOM) - 1) * (longest - short) // short
    steps = continuous_steps([*ROOM, *[short] * more], len(ROOM))
    return f"By step {steps}, when the long one ends, {more} more requests of {short} tokens have come and gone."


def _sharing_told() -> str:
    tail = CHAT_PROMPT - SHARED_PREFIX
    left = BUDGET_GIB * GIB - SHARED_PREFIX * BYTES_PER_TOKEN
    return (
        f"Say it is {SHARED_PREFIX:,} of the {CHAT_PROMPT:,} prompt tokens of D1: then "
        f"{SHARED_PREFIX + SHARING * tail:,} prompt tokens are computed, not {SHARING * CHAT_PROMPT:,}, and "
        f"{requests_that_fit(left, tail + CHAT_OUTPUT, BYTES_PER_TOKEN)} such requests fit at once, not "
        f"{_fit(CHAT_PROMPT + CHAT_OUTPUT)}."
    )


def _scoring(seed: int) -> str:
    return f"    sweep lab --seed {seed} --predict P1 P2 P3 P4"


def _headed(title: str) -> str:
    return f"{title}\n{'-' * len(title)}"


def _with_commas(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value


def _table(header: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """Lines with aligned columns: the first `left` to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def _wrapped(block: str, width: int) -> str:
    if "\n" in block or block.startswith(" "):
        return block
    return textwrap.fill(block, width, break_long_words=False, break_on_hyphens=False)

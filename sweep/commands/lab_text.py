"""The lesson of `sweep lab`: the figures of the reference lab with the prose around them, and predictions scored.

Sections are blocks of text. Prose is one long line until it is wrapped; what is indented or has lines is laid out.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import TypeAlias

from sweep.errors import InputError, SettingError
from sweep.lab import (
    CHAT_OUTPUT,
    CHAT_PROMPT,
    CONTEXTS,
    FAMOUS_MULTIPLE,
    OTHER_SEEDS,
    PREDICTED_CONTEXTS,
    REQUESTS,
    ROOM,
    SHARED_PREFIX,
    SHARING,
    SLOTS,
    Figures,
    Work,
    check_seed,
    fit,
    fit_sharing,
    own_figures,
    passing,
    predicted,
    work_of,
)
from sweep.model.lengths import LAB_LONG

Predictions: TypeAlias = tuple[float, float, float, float]

CLOSE = 0.10  # a prediction this near to the actual value, relative to it, is a good one
WIDEST, NARROWEST = 80, 40


def text(seed: int, predictions: Predictions | None, width: int) -> str:
    """The lesson in ASCII, prose in lines of `width` (40 to 80); tables are at most 80 wide. Raises InputError.

    predictions : P1 to P4 as the lesson asks for them, to be scored; None shows the answers alone.
    """
    _check(seed, predictions)
    work = work_of(seed)
    shown = own_figures(work)
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


def _check(seed: int, predictions: Predictions | None) -> None:
    """Raises InputError with a line for each number that cannot be."""
    faults = []
    try:
        check_seed(seed)
    except SettingError as error:
        faults.append(f"--{error.setting}: {error.reason}")
    for number, prediction in enumerate(predictions or (), 1):
        if not (math.isfinite(prediction) and prediction > 0):
            faults.append(f"--predict: P{number} must be a number above 0, got {prediction!r}")
    if faults:
        raise InputError(*faults)


def _opening(seed: int, scored: bool) -> list[str]:
    title = f"The reference lab, seed {seed}"
    about = (
        "An LLM server is limited twice. Each token of each running request occupies memory, so the context sets how "
        "many requests run at once; and requests end at different times, so a batch can wait for its slowest member. "
        "This lab works out both, on one model and one workload."
    )
    if scored:
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


def _comparison_section(work: Work, shown: Figures) -> list[str]:
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


def _meaning_section(work: Work) -> list[str]:
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


def _groups_told(work: Work) -> str:
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


def _floor_told(work: Work) -> str:
    even = f"{work.tokens:,} tokens / {SLOTS} slots, rounded up"
    return even if work.tokens > SLOTS * max(work.lengths) else "the length of the longest request"


def _scoreboard_section(work: Work, scoreboard: Sequence[Figures], predictions: Predictions | None) -> list[str]:
    if predictions is None:
        rows = [(row["id"], row["what"], row["actual"]) for row in scoreboard]
        return [
            _headed("5. Predictions"),
            _table(("", "", "actual"), rows, left=2),
            "To put yours beside them:",
            _scoring(work.seed),
        ]
    actual = [value for _, value in predicted(work)]
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
        f"{drills['D2']['context_doubles']}: {fit(CONTEXTS[0])} at {CONTEXTS[0]:,} tokens, {fit(CONTEXTS[1])} at "
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
    more, steps = passing()
    return f"By step {steps}, when the long one ends, {more} more requests of {min(ROOM)} tokens have come and gone."


def _sharing_told() -> str:
    tail = CHAT_PROMPT - SHARED_PREFIX
    return (
        f"Say it is {SHARED_PREFIX:,} of the {CHAT_PROMPT:,} prompt tokens of D1: then "
        f"{SHARED_PREFIX + SHARING * tail:,} prompt tokens are computed, not {SHARING * CHAT_PROMPT:,}, and "
        f"{fit_sharing()} such requests fit at once, not {fit(CHAT_PROMPT + CHAT_OUTPUT)}."
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

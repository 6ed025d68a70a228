"""How long a step takes, from what runs in it: a constant, a line, a roofline, or a measured table.

A step time is one of four values: `Constant`, `Affine`, `Roofline` (from `roofline(model, gpu)`) or a `StepTable` (from
`read_step_table(path)`). A step is described by three counts: `batch`, requests that emit a token in it; `kv_tokens`,
tokens of KV cache that these read together (a request reads its prompt and its output so far, the token being computed
included); `prefill_tokens`, prompt tokens computed in it, from an empty cache. A later chunk of a long prompt may count
the earlier ones as `kv_tokens`; a table has no rows for that and leaves them out.

For a kernel, `packed` lays any of the four out in one array of float64, so one compiled kernel serves all kinds; the
function that reads it, and batching in seconds, are in `stepseconds`. This module loads no compiler, so a study can be
checked with it: `packed` refuses a step time that cannot be used, `computes_prompts` and `largest_batch` say what it
covers.

Between the rows of a table
---------------------------
- Decoding: at each of the two batches of the table around the batch, linear in the KV tokens of one request; before
  the first and past the last row on along the two rows at that end. Then linear in the batch, past its ends likewise.
- A batch with one row takes the cost of a KV token from the closest batch that has several.
- A prompt alone: linear in its tokens, past the ends likewise.
- Both in a step: the requests that decode pass through the weights with the prompt, so start from a prompt of
  prefill_tokens + batch alone. What the step takes beyond that is measured in the rows that have both; where the prompt
  is of 0 tokens it is decoding's own time beyond the shortest row, in which little more than the weights is read.
  Linear between these lengths of a prompt, past the last as there. Where both were measured and such rows were hidden,
  this came out 8 to 11 % off on average, mostly too short; the sum of the two steps 26 to 31 %, mostly too long.
- No step is shorter than the shortest row. Rows with the same counts are averaged.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sweep.errors import InputError, ModelError
from sweep.model.roofline import Roofline
from sweep.model.steptable import F64, StepTable

CONSTANT, AFFINE, ROOFLINE, TABLE = 0, 1, 2, 3  # the first number of a packed step time; compiled into kernels


class Constant(NamedTuple):
    """Every step takes the same time, whatever runs in it."""

    step_s: float


class Affine(NamedTuple):
    """c0 + a cost for each running request, for each KV token that is read, and for each prompt token computed."""

    c0_s: float
    per_request_s: float = 0.0
    per_kv_token_s: float = 0.0
    per_prefill_token_s: float = 0.0


StepTime = Constant | Affine | Roofline | StepTable


def packed(step_time: StepTime) -> F64:
    """The step time as one array, its kind first, for kernels; read-only. Raises InputError or ModelError."""
    match step_time:
        case Constant(step_s):
            if not 0 < step_s < math.inf:
                raise InputError(f"step time: must be above 0 seconds, got {step_s}")
            code = [CONSTANT, step_s]
        case Affine():
            _check_affine(step_time)
            code = [AFFINE, *step_time]
        case Roofline():
            _check_roofline(step_time)
            code = [ROOFLINE, *step_time]
        case StepTable():
            code = _packed_table(step_time)
    array = np.array(code, np.float64)
    array.setflags(write=False)
    return array


def computes_prompts(step_time: StepTime) -> bool:
    """Whether the step time knows what a prompt costs; if not, steps with one are nan."""
    return not isinstance(step_time, StepTable) or bool((step_time.batch == 0).any())


def largest_batch(step_time: StepTime) -> int | None:
    """The largest batch that was measured, past which a table only goes on in a line; None where any batch will do."""
    return int(step_time.batch.max()) if isinstance(step_time, StepTable) else None


def _check_affine(affine: Affine) -> None:
    """A negative cost would make some steps shorter than nothing, and a clock run backwards."""
    for name, value in affine._asdict().items():
        if not 0 <= value < math.inf:
            raise InputError(f"step time: {name} must be 0 or more seconds, got {value}")
    if affine.c0_s + affine.per_request_s + affine.per_kv_token_s <= 0:
        raise InputError("step time: a step of one request must take more than 0 seconds; raise c0_s or per_request_s")


def _check_roofline(roofline: Roofline) -> None:
    speeds = ("bytes_per_s", "flops_per_s")
    for name, value in roofline._asdict().items():
        if not value >= 0 or (value == math.inf and name not in speeds):
            raise InputError(f"step time: {name} must be 0 or more, got {value}")
    for name in ("weight_bytes", *speeds):
        if getattr(roofline, name) == 0:
            raise InputError(f"step time: {name} must be above 0, got 0")


# ---- a table as an array, in seconds
#
# table    TABLE, shortest step, where its line of prompts is, where its surface of decoding alone is,
#          how many surfaces of both, their prefill_tokens, where they are
# surface  how many batches, the batches, where their lines are
# line     how many points (0, or two and more), where they are, their seconds
#
# "Where" is an index into the whole array. Lines of a surface are over the KV tokens of one request. Surfaces of both
# hold what a step takes beyond a prompt of prefill_tokens + batch alone; the first is for 0 prompt tokens.

Line = Mapping[float, float]
Surface = Mapping[int, Line]
Seconds = Mapping[tuple[int, int, int], float]  # by (batch, kv_tokens, prefill_tokens)


def _packed_table(table: StepTable) -> list[float]:
    shortest = float(table.ms.min()) / 1000
    seconds = _mean_seconds(table)
    prompts = {float(prefill): step_s for (batch, _, prefill), step_s in seconds.items() if batch == 0}
    if len(prompts) == 1:
        raise ModelError(f"{table.name}: one row of a prompt alone is no line; give rows of two lengths, or none")
    decoding = _decoding(table, seconds)
    both = {0: _lowered(decoding, shortest), **_both(table, seconds, prompts, decoding)}
    code = [TABLE, shortest, 0.0, 0.0, len(both), *both, *[0.0] * len(both)]
    code[2] = _append_line(code, prompts)
    code[3] = _append_surface(code, decoding)
    for index, surface in enumerate(both.values()):
        code[5 + len(both) + index] = _append_surface(code, surface)
    return code


def _mean_seconds(table: StepTable) -> Seconds:
    """Seconds by counts, in rising order; the mean of rows with the same counts."""
    rows: dict[tuple[int, int, int], list[float]] = {}
    counts = zip(table.batch.tolist(), table.kv_tokens.tolist(), table.prefill_tokens.tolist(), strict=True)
    for key, ms in zip(counts, table.ms.tolist(), strict=True):
        rows.setdefault(key, []).append(ms)
    return {key: math.fsum(rows[key]) / len(rows[key]) / 1000 for key in sorted(rows)}


def _decoding(table: StepTable, seconds: Seconds) -> Surface:
    """Seconds of steps without a prompt, by batch, then by KV tokens of a request."""
    surface: dict[int, dict[float, float]] = {}
    for (batch, kv_tokens, prefill), step_s in seconds.items():
        if prefill == 0:
            surface.setdefault(batch, {})[kv_tokens / batch] = step_s
    if len(surface) < 2:
        raise ModelError(f"{table.name}: decoding is measured at {len(surface)} batches; give rows of two or more")
    if all(len(line) < 2 for line in surface.values()):
        raise ModelError(f"{table.name}: no batch has rows at two lengths of the KV cache, so its cost is unknown")
    return _with_slopes(surface, surface)


def _both(table: StepTable, seconds: Seconds, prompts: Line, decoding: Surface) -> dict[int, Surface]:
    """What steps with both take beyond a prompt of all their tokens, by prompt tokens, then as a surface."""
    points: dict[int, dict[int, dict[float, float]]] = {}
    for (batch, kv_tokens, prefill), step_s in seconds.items():
        if batch and prefill and not prompts:
            raise ModelError(f"{table.name}: rows with batch and prefill_tokens need rows of prompts alone, of batch 0")
        if batch and prefill:
            beyond = step_s - _line_at(prompts, prefill + batch)
            points.setdefault(prefill, {}).setdefault(batch, {})[kv_tokens / batch] = beyond
    return {prefill: _with_slopes(points[prefill], decoding) for prefill in sorted(points)}


def _lowered(surface: Surface, by_s: float) -> Surface:
    return {batch: {at: step_s - by_s for at, step_s in line.items()} for batch, line in surface.items()}


def _with_slopes(surface: Surface, decoding: Surface) -> dict[int, Line]:
    """The surface with a second point for each batch that has one row, along the closest batch that has several."""
    steep = surface if any(len(line) > 1 for line in surface.values()) else decoding
    per_kv_token = {
        batch: (line[max(line)] - line[min(line)]) / (max(line) - min(line)) / batch
        for batch, line in steep.items()
        if len(line) > 1
    }
    whole: dict[int, Line] = {}
    for batch, line in surface.items():
        closest = min(per_kv_token, key=lambda other: (abs(other - batch), other))
        further = {at + 1: value + per_kv_token[closest] * batch for at, value in line.items()}
        whole[batch] = line if len(line) > 1 else {**line, **further}
    return whole


def _line_at(line: Line, at: float) -> float:
    """The value of a line of two or more points, going on past its ends."""
    places, values = list(line), list(line.values())
    low = max(0, min(int(np.searchsorted(places, at, "right")), len(places) - 1) - 1)
    rise = (values[low + 1] - values[low]) / (places[low + 1] - places[low])
    return values[low] + rise * (at - places[low])


def _append_surface(code: list[float], surface: Surface) -> int:
    start, count = len(code), len(surface)
    code += [count, *surface, *[0.0] * count]
    for index, line in enumerate(surface.values()):
        code[start + 1 + count + index] = _append_line(code, line)
    return start


def _append_line(code: list[float], line: Line) -> int:
    start = len(code)
    code += [len(line), *line, *line.values()]
    return start

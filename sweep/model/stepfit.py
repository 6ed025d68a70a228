"""Straight lines through measured step times, how far off they are, and what share of a GPU's peaks the steps reach.

Errors are in shares of the measured time, fit / measured - 1, over the rows that were fitted. A line through all rows
of a table with long prompts is a poor one: attention inside a prompt grows with the square of its length.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from sweep.errors import InputError, ModelError
from sweep.model.roofline import Roofline
from sweep.model.steptable import COLUMNS, F64, StepTable
from sweep.model.steptime import Affine

Rows = Literal["decode", "prefill", "all"]

LONG_PROMPT_TOKENS = 512  # from here on the time of a prompt is close to a line; below, weights cost more than tokens


class Fit(NamedTuple):
    """c0 + c1 batch + c2 kv_tokens + c3 prefill_tokens, in ms; None for what the fitted rows do not have.

    r2: 1 - squares of what is left / squares around the mean. Errors: sizes of fit / measured - 1.
    """

    c0_ms: float
    c1_ms_per_request: float | None
    c2_ms_per_kv_token: float | None
    c3_ms_per_prefill_token: float | None
    r2: float
    max_relative_error: float
    mean_relative_error: float
    rows: int


class Shares(NamedTuple):
    """What steps reach of the peaks, (rows,) each: bandwidth, arithmetic, and measured time over that at the peaks."""

    bandwidth: F64  # often called MBU
    arithmetic: F64  # often called MFU
    over_roofline: F64


def fit_affine(table: StepTable, rows: Rows = "decode", *, relative: bool = False) -> Fit:
    """The line through the rows of a table by least squares. Raises ModelError where they do not settle one.

    rows: "decode", steps without a prompt, on batch and kv_tokens; "prefill", prompts alone of 512 tokens or more, on
    prefill_tokens; "all", every row, on all three.
    relative: least squares of errors relative to the measured time, in place of errors in ms: short steps then count
    as much as long ones.
    """
    fitted, names = _rows_of(table, rows)
    columns = np.column_stack([np.ones(len(fitted.ms)), *(getattr(fitted, name) for name in names)])
    scale = np.abs(columns).max(axis=0, initial=1e-300)
    weights = 1 / fitted.ms if relative else np.ones(len(fitted.ms))
    scaled = columns / scale * weights[:, None]
    if len(fitted.ms) < columns.shape[1] or np.linalg.matrix_rank(scaled) < columns.shape[1]:
        raise ModelError(f"{table.name}: {_too_few(rows, len(fitted.ms))}")
    found = np.linalg.lstsq(scaled, fitted.ms * weights)[0] / scale
    by_name = dict(zip(names, map(float, found[1:]), strict=True))
    per_request, per_kv_token, per_prompt_token = (by_name.get(name) for name in COLUMNS[:3])
    errors = _errors(columns @ found, fitted.ms)
    return Fit(float(found[0]), per_request, per_kv_token, per_prompt_token, *errors, len(fitted.ms))


def affine(decode: Fit, prefill: Fit | None = None) -> Affine:
    """The step time of a fit over decoding or all rows; prompt tokens at what a second fit says, if one is given.

    Without either, prompt tokens cost nothing. The c0 of the second fit is left out: each step has the first one's.
    """
    per_prompt_token = prefill.c3_ms_per_prefill_token if prefill else decode.c3_ms_per_prefill_token
    given = (decode.c0_ms, decode.c1_ms_per_request, decode.c2_ms_per_kv_token, per_prompt_token)
    return Affine(*((coefficient or 0.0) / 1000 for coefficient in given))


def shares(table: StepTable, roofline: Roofline) -> Shares:
    """What each step of a table reaches of the peaks of a roofline, whose overhead is left out."""
    measured_s = table.ms / 1000
    bytes_s = roofline.read_bytes(table.kv_tokens) / roofline.bytes_per_s
    flops_s = roofline.flops(table.batch, table.kv_tokens, table.prefill_tokens) / roofline.flops_per_s
    return Shares(bytes_s / measured_s, flops_s / measured_s, measured_s / np.maximum(bytes_s, flops_s))


def ridge_batch(roofline: Roofline) -> float:
    """The batch at which the arithmetic of the weights takes as long as reading them, both at the peaks."""
    per_request = roofline.flops_per_token + roofline.flops_per_output
    return roofline.weight_bytes / roofline.bytes_per_s / (per_request / roofline.flops_per_s)


def knee_batch(decode: Fit, prefill: Fit) -> float:
    """The batch whose arithmetic, at the speed of a long prompt, takes as long as an empty step; nan if prompts don't.

    decode: best a relative fit, whose c0 is closer to a small batch.
    """
    per_token = prefill.c3_ms_per_prefill_token
    return decode.c0_ms / per_token if per_token and per_token > 0 else float("nan")


def fit_answer(table: StepTable) -> dict[str, Any]:
    """All that `sweep fit-step --json` prints; a fit that the rows do not settle is None."""
    fits = {
        "fit_decode": _fit_or_none(table, "decode"),
        "fit_decode_relative": _fit_or_none(table, "decode", relative=True),
        "fit_prefill": _fit_or_none(table, "prefill"),
        "fit_all": _fit_or_none(table, "all"),
    }
    decode, prefill = fits["fit_decode_relative"], fits["fit_prefill"]
    knee = knee_batch(decode, prefill) if decode and prefill else float("nan")
    counts = {"decode": table.decoding(), "prefill": table.prompts(), "both": table.both()}
    return {
        "table": table.name,
        "rows": {what: len(rows.ms) for what, rows in counts.items()},
        **{name: fit and _given(fit) for name, fit in fits.items()},
        "knee_batch": knee if np.isfinite(knee) else None,
    }


def _rows_of(table: StepTable, rows: Rows) -> tuple[StepTable, tuple[str, ...]]:
    match rows:
        case "decode":
            return table.decoding(), ("batch", "kv_tokens")
        case "prefill":
            prompts = table.prompts()
            return prompts.where(prompts.prefill_tokens >= LONG_PROMPT_TOKENS), ("prefill_tokens",)
        case "all":
            return table, ("batch", "kv_tokens", "prefill_tokens")
    raise InputError(f'rows: must be one of {", ".join(get_args(Rows))}, got "{rows}"')


def _too_few(rows: Rows, count: int) -> str:
    needed = {
        "decode": "decoding rows whose batch and kv_tokens vary apart, three or more",
        "prefill": f"rows of batch 0 with prompts of {LONG_PROMPT_TOKENS} tokens or more, two or more lengths",
        "all": "rows whose batch, kv_tokens and prefill_tokens all vary apart, four or more",
    }
    return f"its {count} rows settle no line; a fit of these needs {needed[rows]}"


def _errors(fitted: F64, measured: F64) -> tuple[float, float, float]:
    """R squared, and the largest and the mean size of the relative error."""
    left = float(((fitted - measured) ** 2).sum())
    around_mean = float(((measured - measured.mean()) ** 2).sum())
    relative: npt.NDArray[np.float64] = np.abs(fitted / measured - 1)
    r2 = 1 - left / around_mean if around_mean > 0 else float("nan")
    return r2, float(relative.max()), float(relative.mean())


def _fit_or_none(table: StepTable, rows: Rows, *, relative: bool = False) -> Fit | None:
    try:
        return fit_affine(table, rows, relative=relative)
    except ModelError:
        return None


def _given(fit: Fit) -> dict[str, float | None]:
    """The fit without the coefficients it has not; what is undefined is None, as JSON has no nan."""
    known = {name: value for name, value in fit._asdict().items() if value is not None}
    return {name: value if np.isfinite(value) else None for name, value in known.items()}

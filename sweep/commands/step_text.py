"""What `sweep fit-step` prints: lines through measured step times, and how far off they are, in words or as JSON."""

import json
from collections.abc import Mapping
from typing import Any

from sweep.model.stepfit import LONG_PROMPT_TOKENS


def as_json(answer: Mapping[str, Any]) -> str:
    """The answer for machines."""
    return json.dumps(answer, indent=1, allow_nan=False)


def text(answer: Mapping[str, Any]) -> str:
    """The fits in words, a paragraph each."""
    rows, knee = answer["rows"], answer["knee_batch"]
    titles = {
        "fit_decode": "decoding, errors in ms",
        "fit_decode_relative": "decoding, relative errors",
        "fit_prefill": f"prompts alone, {LONG_PROMPT_TOKENS} tokens and more",
        "fit_all": "all rows",
    }
    lines = [
        f"{answer['table']}: {rows['decode']} rows of decoding, {rows['prefill']} of a prompt, {rows['both']} of both"
    ]
    for name, title in titles.items():
        lines += ["", f"{title}: {_formula(answer[name]) if answer[name] else 'too few different rows for a line'}"]
        lines += [_error_words(answer[name])] if answer[name] else []
    if knee is not None:
        lines += ["", f"From a batch of {knee:.0f} on, arithmetic takes longer than an empty step."]
    return "\n".join(lines)


def _formula(fit: dict[str, float]) -> str:
    words = {
        "c1_ms_per_request": "batch",
        "c2_ms_per_kv_token": "kv_tokens",
        "c3_ms_per_prefill_token": "prefill_tokens",
    }
    terms = [f"{'-' if fit[key] < 0 else '+'} {abs(fit[key]):.4g} {word}" for key, word in words.items() if key in fit]
    return " ".join([f"ms = {fit['c0_ms']:.4g}", *terms])


def _error_words(fit: dict[str, float]) -> str:
    r2 = "" if fit["r2"] is None else f", R2 {fit['r2']:.4f}"
    mean, largest = 100 * fit["mean_relative_error"], 100 * fit["max_relative_error"]
    return f"  off by {mean:.1f} % on average and {largest:.1f} % at most over {fit['rows']} rows{r2}"

"""KV-cache bytes of a request, from a model's layers, and how many requests fit in a budget.

Bytes are of keys and values alone: what a server rounds up to whole blocks, scales of fp8 and fixed states of other
layers are not counted.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from sweep.errors import InputError, SettingError
from sweep.model.gpus import UTILISATION, Budget, Gpu, budget, check_gpus
from sweep.model.layers import LayerGroup
from sweep.model.models import PLAIN_WEIGHTS, WEIGHT_BITS, Model, model_by_hand, weight_bytes
from sweep.units import format_bytes

KV_DTYPES = {"fp16": 2, "bf16": 2, "fp8": 1}  # bytes of a number
CONTEXTS = tuple(512 * 2**power for power in range(9))
MOST_TOKENS = 2**40


class Holding(NamedTuple):
    """How a server holds the tokens of its requests: as what numbers, on how many GPUs, and which of them."""

    kv_dtype: str = "fp16"
    gpus: int = 1
    shared_prefix: int = 0  # tokens at the start of every request, held once for all
    trim_windows: bool = True  # whether a layer with a window drops what has left it


APART = Holding()  # each request by itself, on one GPU


def kv_bytes(model: Model, tokens: int, kv_dtype: str = "fp16", gpus: int = 1, trim_windows: bool = True) -> int:
    """Bytes that one request of `tokens` tokens keeps, on all GPUs together.

    trim_windows: a layer with a window keeps the last `window` tokens; without, it keeps all of them.
    """
    size = KV_DTYPES[check_kv_dtype(kv_dtype)]
    if not 0 <= tokens <= MOST_TOKENS:
        raise InputError(f"tokens: must be from 0 to {MOST_TOKENS}, got {tokens}")
    if model.kv_bytes_by_hand is not None:
        return tokens * model.kv_bytes_by_hand
    return sum(
        _values(group, gpus) * size * (min(tokens, group.window) if group.window and trim_windows else tokens)
        for group in model.groups
    )


def bytes_per_token(model: Model, kv_dtype: str = "fp16", gpus: int = 1) -> int:
    """Bytes that one more token takes while no window is full, on all GPUs together."""
    return kv_bytes(model, 1, kv_dtype, gpus)


def bytes_per_token_windows_full(model: Model, kv_dtype: str = "fp16", gpus: int = 1) -> int:
    """Bytes that one more token takes once every window is full: those of the layers without one."""
    full = model._replace(groups=tuple(group for group in model.groups if group.window is None))
    return kv_bytes(full, 1, kv_dtype, gpus)


def held_bytes(model: Model, requests: int, context_tokens: int, held: Holding = APART) -> int:
    """Bytes of `requests` requests of `context_tokens` tokens each, on all GPUs together.

    A layer with a window keeps the end of the prefix too, for the requests still to come.
    """
    prefix = held.shared_prefix
    if not 0 <= prefix < check_context(context_tokens):
        raise SettingError(
            "shared_prefix", f"must be from 0 to less than the context {context_tokens:,}, got {prefix:,}"
        )
    once, each = (
        kv_bytes(model, tokens, held.kv_dtype, held.gpus, held.trim_windows)
        for tokens in (prefix, context_tokens - prefix)
    )
    return once + requests * each


def fit(model: Model, budget_bytes: int, context_tokens: int, held: Holding = APART) -> int:
    """The most requests whose `held_bytes` do not exceed the budget."""
    prefix = held_bytes(model, 0, context_tokens, held)
    one = held_bytes(model, 1, context_tokens, held) - prefix
    return max(0, (budget_bytes - prefix) // one)


def requests_that_fit(budget_bytes: int, context_tokens: int, bytes_per_token: int) -> int:
    """Requests of `context_tokens` tokens that fit in the budget, where each token takes the same bytes."""
    return fit(model_by_hand(bytes_per_token), budget_bytes, context_tokens)


def explain(model: Model, kv_dtype: str = "fp16", gpus: int = 1, trim_windows: bool = True) -> tuple[str, ...]:
    """The bytes per token as a product, a line for each group of layers, and the layers that are not in it."""
    if model.kv_bytes_by_hand is not None:
        return (f"{model.kv_bytes_by_hand:,} bytes per token, given by hand",)
    lines = [_product(group, KV_DTYPES[check_kv_dtype(kv_dtype)], gpus) for group in model.groups]
    if len(model.groups) > 1:
        lines.append(f"together {bytes_per_token(model, kv_dtype, gpus):,} bytes per token")
    if any(group.window for group in model.groups):
        past = bytes_per_token_windows_full(model, kv_dtype, gpus)
        trimmed = f"windows are trimmed: {past:,} bytes per token once every window is full"
        lines.append(trimmed if trim_windows else "windows are not trimmed: every layer keeps every token")
    lines += [f"{count} {what} layers: nothing for each token" for count, what in model.without_kv]
    return tuple(lines)


def check_kv_dtype(kv_dtype: str) -> str:
    """The type, if keys and values can be of it. Raises SettingError."""
    if kv_dtype not in KV_DTYPES:
        raise SettingError("kv_dtype", f'must be one of {", ".join(KV_DTYPES)}, got "{kv_dtype}"')
    return kv_dtype


def check_context(tokens: int) -> int:
    """The tokens, if a request can have so many. Raises SettingError."""
    if not 1 <= tokens <= MOST_TOKENS:
        raise SettingError("context", f"must be from 1 to {MOST_TOKENS:,} tokens, got {tokens:,}")
    return tokens


def clashes(given: Collection[str], *, budget_needed: bool, called: Callable[[str], str] = str) -> list[str]:
    """What cannot stand together, or is missing, among the settings that are given by name; each in words.

    budget_needed : whether one of budget and gpu has to be there. called : how the caller writes a setting's name.
    """
    has = set(given).__contains__
    faults = [
        f"give {called(one)} or {called(other)}, {'not both' if has(one) else 'one of them is needed'}"
        for one, other, needed in (("model", "kv_per_token", True), ("gpu", "budget", budget_needed))
        if has(one) == has(other) and (needed or has(one))
    ]
    idle = {
        "kv_per_token": ("kv_dtype", "trim_windows"),
        "budget": ("overhead", "utilisation", "weights", "weight_dtype"),
    }
    for by_hand, others in idle.items():
        names = ", ".join(called(name) for name in others if has(name))
        if has(by_hand) and names:
            faults.append(f"{called(by_hand)} is given by hand, so {names} would have no effect")
    terms = ", ".join(called(name) for name in ("overhead", "utilisation") if has(name))
    if terms and not (budget_needed or has("gpu") or has("budget")):
        faults.append(f"without {called('gpu')}, {terms} would have no effect")
    if has("kv_per_token") and has("budget") and has("gpus"):
        faults.append(f"{called('gpus')} would have no effect, both memories are given by hand")
    if has("weights") and has("weight_dtype"):
        faults.append(f"give {called('weights')} or {called('weight_dtype')}, not both")
    return faults


def memory_answer(
    model: Model,
    gpu: Gpu | None = None,
    held: Holding = APART,
    *,
    contexts: Sequence[int] = CONTEXTS,
    utilisation: float = UTILISATION,
    overhead_bytes: int = 0,
    budget_bytes: int | None = None,
    weights: int | None = None,
    weight_dtype: str | None = None,
) -> dict[str, Any]:
    """All that `sweep memory --json` prints; `requests_that_fit` is None without a budget or where weights are unknown.

    weights: bytes by hand, in place of what the parameters give. budget_bytes: for keys and values, in place of a GPU.
    Bytes are on all GPUs together, but for `bytes_per_token` and `bytes_per_token_windows_full`: those of one copy.
    """
    if not contexts:
        raise InputError("contexts: give one or more")
    known = weight_bytes(model, weight_dtype) if weights is None else weights
    terms = None
    if gpu is not None and budget_bytes is None and known is not None:
        terms = budget(gpu, held.gpus, known, utilisation, overhead_bytes)
    left = terms.kv_bytes if terms else budget_bytes
    about = _about_weights(model, known, weights, weight_dtype)
    return {
        "model": model.name,
        "bytes_per_token": bytes_per_token(model, held.kv_dtype),
        "bytes_per_token_windows_full": bytes_per_token_windows_full(model, held.kv_dtype),
        "bytes_per_token_on_all_gpus": bytes_per_token(model, held.kv_dtype, held.gpus),
        "bytes_per_token_windows_full_on_all_gpus": bytes_per_token_windows_full(model, held.kv_dtype, held.gpus),
        "parameters": model.parameters,
        "weight_bytes": known,
        "gpu": gpu.name if gpu else None,
        **held._asdict(),
        "budget_bytes": left,
        "budget_terms": terms._asdict() if terms else None,
        "layer_groups": [group._asdict() for group in model.groups],
        "explanation": list(explain(model, held.kv_dtype, held.gpus, held.trim_windows)),
        "budget_explanation": _budget_lines(terms, budget_bytes, gpu),
        "keys_read": list(model.keys_read),
        "assumed": [*model.assumed, *([about] if budget_bytes is None else [])],
        "table": [_row(model, left, context, held) for context in contexts],
    }


def _row(model: Model, left: int | None, context: int, held: Holding) -> dict[str, int | None]:
    unshared = held._replace(shared_prefix=0)
    row = {
        "context": context,
        "bytes_per_request": held_bytes(model, 1, context, unshared),
        "requests_that_fit": None if left is None else fit(model, left, context, held),
    }
    if held.shared_prefix:
        row["requests_that_fit_without_sharing"] = None if left is None else fit(model, left, context, unshared)
    return row


def _budget_lines(terms: Budget | None, by_hand: int | None, gpu: Gpu | None) -> list[str]:
    if terms:
        return list(terms.lines())
    if by_hand is not None:
        return [f"{format_bytes(by_hand)} for keys and values, given by hand"]
    return ["unknown, as the weights are"] if gpu else ["unknown without a GPU or a budget"]


def _about_weights(model: Model, known: int | None, by_hand: int | None, weight_dtype: str | None) -> str:
    if by_hand is not None:
        return f"weights of {by_hand:,} bytes, given by hand"
    if known is not None:
        bits = WEIGHT_BITS[weight_dtype or PLAIN_WEIGHTS]
        return f"weights of {known:,} bytes: {model.parameters:,} parameters of {bits} bits"
    if model.quantised and model.parameters:
        return f"the weights are packed ({model.quantised:.40}), their bytes unknown; give --weights or --weight-dtype"
    return "the weights are unknown: the tensor shapes of this model are not known here; give --weights"


def _values(group: LayerGroup, gpus: int) -> int:
    """Numbers that a token leaves in a group's layers on all GPUs: KV heads are split evenly, or copied to several."""
    check_gpus(gpus)
    heads = group.kv_heads
    if heads % gpus and gpus % heads:
        even = f"take a divisor of {heads}, or a multiple of it"
        raise SettingError("gpus", f"{heads} KV heads cannot be split evenly over {gpus} GPUs; {even}")
    return group.layers * max(heads, gpus) * (group.key_dim + group.value_dim)


def _product(group: LayerGroup, size: int, gpus: int) -> str:
    copies = max(group.kv_heads, gpus) // group.kv_heads
    factors = [
        f"{group.layers} layers" if group.kind in ("full", "mla") else f"{group.layers} {group.kind} layers",
        *([f"{group.kv_heads} KV {'head' if group.kv_heads == 1 else 'heads'}"] if group.kind != "mla" else []),
        *([f"{copies} copies"] if copies > 1 else []),
        f"({group.key_dim} + {group.value_dim}) values",
        f"{size} {'byte' if size == 1 else 'bytes'}",
    ]
    everywhere = f" on {gpus} GPUs together" if gpus > 1 else ""
    window = f", of the last {group.window:,} tokens" if group.window else ""
    return f"{' x '.join(factors)} = {_values(group, gpus) * size:,} bytes per token{everywhere}{window}"

"""Models by name, by file or by hand: the few numbers that memory needs to know of one."""

import difflib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from sweep.errors import ModelError, SettingError
from sweep.model.configs import Config, MissingKeyError, read_config
from sweep.model.layers import LayerGroup, read_layers
from sweep.model.parameters import parameters
from sweep.units import format_bytes

WEIGHT_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}
PLAIN_WEIGHTS = "bf16"
MOST_BYTES_PER_TOKEN = 2**40
LIKE_ENOUGH = 0.7  # of 1: what a slip of the pen leaves of a name


class Model(NamedTuple):
    """What memory needs to know of a model. `parameters` is None where they cannot be derived.

    without_kv: (how many layers, what they are) of those that keep nothing for a token. quantised: the method by which
    the published weights are packed, None if they are plain. kv_bytes_by_hand: bytes per token, in place of groups.
    """

    name: str
    groups: tuple[LayerGroup, ...]
    without_kv: tuple[tuple[int, str], ...] = ()
    parameters: int | None = None
    quantised: str | None = None
    keys_read: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    kv_bytes_by_hand: int | None = None
    organisation: str = ""


def read_model(name_or_path: str | Path) -> Model:
    """The built-in model of this name, or the one that a `config.json` describes. Raises ModelError."""
    text = str(name_or_path)
    exact = _named(text, whole=True)
    if exact:
        return exact[0]
    if is_config_path(text):
        return _from_config(read_config(text))
    found = _named(text, whole=False)
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f'model "{text}" may be several: {", ".join(model.name for model in found)}; name one')
    near = _near(text)
    hint = f"did you mean {near}?" if near else "give the path of a config.json, or a name that `sweep list models` has"
    raise ModelError(f'model "{text[:80]}" is neither a file nor known; {hint}')


def is_config_path(name_or_path: str) -> bool:
    """Whether this is read as a path: it ends so or is one, and no built-in model has this name."""
    is_path = name_or_path.endswith(".json") or _exists(name_or_path)
    return is_path and not _named(name_or_path, whole=True)


def model_by_hand(bytes_per_token: int) -> Model:
    """A model of which only the KV bytes of a token are known, on all GPUs together and in the type kept."""
    if not 1 <= bytes_per_token <= MOST_BYTES_PER_TOKEN:
        raise SettingError(
            "kv_per_token", f"must be from 1 B to {format_bytes(MOST_BYTES_PER_TOKEN)}, got {bytes_per_token} B"
        )
    return Model(f"{format_bytes(bytes_per_token)} per token", (), kv_bytes_by_hand=bytes_per_token)


@cache
def built_in_models() -> tuple[Model, ...]:
    """The models of the package, in the order of its file."""
    listed = json.loads(files("sweep.model").joinpath("data/models.json").read_text("utf-8"))
    return tuple(
        Model(
            entry["name"],
            tuple(LayerGroup(*group) for group in entry["groups"]),
            tuple((count, what) for count, what in entry.get("without_kv", ())),
            entry["parameters"],
            entry.get("quantised"),
            organisation=entry["organisation"],
        )
        for entry in listed["models"]
    )


def weight_bytes(model: Model, weight_dtype: str | None = None) -> int | None:
    """Bytes of the weights, at 16 bits each unless told otherwise; None where unknown.

    Unknown are weights whose parameters could not be derived, and those that are published packed, in a mixture of
    types and with scales, unless the type is given.
    """
    if weight_dtype is not None:
        check_weight_dtype(weight_dtype)
    if model.parameters is None or (weight_dtype is None and model.quantised):
        return None
    return -(-model.parameters * WEIGHT_BITS[weight_dtype or PLAIN_WEIGHTS] // 8)


def check_weight_dtype(weight_dtype: str) -> str:
    """The type, if weights can be of it. Raises SettingError."""
    if weight_dtype not in WEIGHT_BITS:
        raise SettingError("weight_dtype", f'must be one of {", ".join(WEIGHT_BITS)}, got "{weight_dtype}"')
    return weight_dtype


def _from_config(config: Config) -> Model:
    layers = read_layers(config)
    try:
        count = parameters(config, layers.kinds)
    except MissingKeyError:
        count = None
    packed = config.outer.get("quantization_config") or config.keys.get("quantization_config")
    method = packed.get("quant_method") if isinstance(packed, dict) else None
    return Model(
        config.where,
        layers.groups,
        layers.without_kv,
        count,
        (method if isinstance(method, str) else "quantization_config") if packed else None,
        tuple(config.read),
        tuple(config.assumed),
    )


def _named(text: str, whole: bool) -> list[Model]:
    """Built-in models of this name, with or without its organisation; or, if not `whole`, whose names begin with it."""
    organisation, _, name = text.lower().replace("--", "/").rpartition("/")
    return [
        model
        for model in built_in_models()
        if organisation in ("", model.organisation.lower())
        and (model.name.lower() == name if whole else model.name.lower().startswith(f"{name}-"))
    ]


def _near(text: str) -> str | None:
    """The built-in name that begins most like this one, if any does."""
    asked = text.lower().replace("--", "/").rpartition("/")[2][:100]

    def likeness(model: Model) -> float:
        return difflib.SequenceMatcher(None, asked, model.name.lower()[: len(asked) + 1]).ratio()

    nearest = max(built_in_models(), key=likeness)
    return nearest.name if likeness(nearest) > LIKE_ENOUGH else None


def _exists(text: str) -> bool:
    try:
        return text != "" and Path(text).exists()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False

"""A Hugging Face `config.json`, read with care: an object of keys that says what was read, assumed, missing or wrong.

What the keys mean is left to `layers` (which layers hold keys and values) and `parameters` (how many weights).
"""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.errors import ModelError

LARGEST_FILE_BYTES = 4 * 2**20  # the longest published files, with long tables of labels or blocks, stay under 1 MiB
TEXT_PARTS = ("text_config", "llm_config", "language_config")
BY_HAND = "or give the cache by hand with --kv-per-token (and the weights with --weights)"

# Every name under which published files give the same number; the first one is used in messages.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim")
WIDTH = ("hidden_size", "n_embd", "n_embed", "d_model")
VOCABULARY = ("vocab_size", "padded_vocab_size")
MLP_WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")

SIZES = (LAYERS[0], HEADS[0], WIDTH[0], VOCABULARY[0], MLP_WIDTH[0])

# Above these a number is a slip of the pen, not a model.
MOST = {LAYERS[0]: 10_000, HEADS[0]: 65_536, KV_HEADS[0]: 65_536, "sliding_window": 2**40}
MOST_OTHERWISE = 2**30


class MissingKeyError(ModelError):
    """A key is not in the file; what only it could tell is unknown."""


class Config:
    """The keys of the part of a file that describes the language model.

    `read` and `assumed` grow while keys are asked for: the keys that were used, and in words what was taken in place of
    missing ones. `defaults` are those of the model's family, for keys that are absent (not null).
    """

    def __init__(self, where: str, keys: Mapping[str, Any], outer: Mapping[str, Any], part: str = "") -> None:
        self.where = where
        self.keys = keys
        self.outer = outer
        self.part = part
        self.defaults: Mapping[str, int] = {}
        self.read: dict[str, None] = {}
        self.assumed: list[str] = []

    def fault(self, problem: str) -> ModelError:
        """A ModelError of this file."""
        return ModelError(f"{self.where}: {problem}")

    def value(self, *names: str) -> Any:
        """The value under the first of the names that is not null; None if there is none. Raises if two disagree."""
        found = {name: self.keys[name] for name in names if self.keys.get(name) is not None}
        for name in found:
            self.read[self.part + name] = None
        if len({shown(value) for value in found.values()}) > 1:
            listed = ", ".join(f"{name} {shown(value)}" for name, value in found.items())
            raise self.fault(f"{listed} should be the same number; mend the file {BY_HAND}")
        return next(iter(found.values()), None)

    def whole(self, *names: str, least: int = 1) -> int | None:
        """The whole number under one of the names; if all are absent, the family's default or None."""
        value = self.value(*names)
        if value is None:
            return self._default(names)
        name = next(name for name in names if self.keys.get(name) is not None)
        return self.checked(name, value, least, MOST.get(names[0], MOST_OTHERWISE))

    def checked(self, name: str, value: Any, least: int = 1, most: int = MOST_OTHERWISE) -> int:
        """The value, if it is a whole number within the limits. Raises otherwise."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.fault(f"{self.part}{name}: must be a whole number from {least} to {most:,}, got {shown(value)}")
        return value

    def needed(self, *names: str) -> int:
        """As `whole`, but what is missing is refused."""
        number = self.whole(*names)
        if number is None:
            other = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise MissingKeyError(
                f"{self.where}: {self.part}{names[0]}{other} is missing; add it to the file {BY_HAND}"
            )
        return number

    def flag(self, name: str, default: bool) -> bool:
        """The truth value under the name, or the default if it is missing or null. Raises for anything else."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fault(f"{self.part}{name}: must be true or false, got {shown(value)}")
        return value

    def sequence(self, name: str, length: int | None = None) -> list[Any] | None:
        """The list under the name, or None. Raises if it is no list, or not of the given length."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.fault(f"{self.part}{name}: must be a list, got {shown(value)}")
        if length is not None and len(value) != length:
            raise self.fault(
                f"{self.part}{name}: has {len(value)} entries for {length} layers; mend the file {BY_HAND}"
            )
        return value

    def section(self, name: str) -> "Config":
        """The keys of an object inside this one; no keys if it is missing or null. Raises if it is no object."""
        value = self.value(name)
        if value is not None and not isinstance(value, dict):
            raise self.fault(f"{self.part}{name}: must be an object, got {shown(value)}")
        inner = Config(self.where, value or {}, self.outer, f"{self.part}{name}.")
        inner.read, inner.assumed = self.read, self.assumed
        return inner

    def assume(self, words: str) -> None:
        """Keep in mind, once, that something was taken as given."""
        if words not in self.assumed:
            self.assumed.append(words)

    @property
    def model_type(self) -> str:
        """The family's name in the file; empty if there is none."""
        value = self.value("model_type")
        return value if isinstance(value, str) else ""

    def _default(self, names: tuple[str, ...]) -> int | None:
        name = names[0]
        absent = not any(each in self.keys for each in names)
        # A whole file without its size is broken; a part of one may hold only what differs from its family.
        if not absent or name not in self.defaults or (name in SIZES and not self.part):
            return None
        self.assume(f"{self.part}{name} = {self.defaults[name]}, the default of model_type {self.model_type}")
        return self.defaults[name]


def read_config(path: str | Path) -> Config:
    """The language model's part of a `config.json`. Raises ModelError, in one line, for any other content."""
    whole = _json_object(Path(path))
    where = str(path)
    parts = [name for name in TEXT_PARTS if isinstance(whole.get(name), dict)]
    if len(parts) > 1:
        raise ModelError(f"{where}: {' and '.join(parts)} both describe a language model; keep one {BY_HAND}")
    if not parts:
        return Config(where, whole, whole)
    inner = dict(whole[parts[0]])
    if "model_type" not in inner and "model_type" in whole:
        inner["model_type"] = whole["model_type"]
    for names in (
        LAYERS,
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        WIDTH,
    ):  # files of two generations in one may contradict themselves
        for name in names:
            if whole.get(name) is not None and inner.get(name, whole[name]) != whole[name]:
                raise ModelError(f"{where}: {name} and {parts[0]}.{name} differ; mend the file {BY_HAND}")
    return Config(where, inner, whole, f"{parts[0]}.")


def shown(value: Any) -> str:
    """A value as JSON has it, cut to a few characters, for a message."""
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(
            _bytes(path).decode("utf-8-sig")
        )  # takes a bare Infinity or NaN, which published files have
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ModelError(f"{path}: is nested too deeply for a config.json") from None
    except ValueError:  # bytes that are no UTF-8, text that is no JSON, a whole number of thousands of digits
        raise ModelError(f"{path}: is not JSON; expected a Hugging Face config.json") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: must hold a JSON object, as a Hugging Face config.json does")
    return content


def _bytes(path: Path) -> bytes:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a null byte in the name
        raise ModelError(f"{path}: there is no such file") from None
    if stat.S_ISDIR(found.st_mode):
        raise ModelError(f"{path}: is a directory; give the path of the config.json in it")
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{path}: is not a file; give the path of a config.json")
    if found.st_size > LARGEST_FILE_BYTES:
        raise ModelError(f"{path}: has {found.st_size:,} bytes; a config.json has no more than {LARGEST_FILE_BYTES:,}")
    return path.read_bytes()

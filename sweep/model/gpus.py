"""Memory of GPUs, and what of it is left for keys and values: the budget, with every term of the sum."""

import difflib
import json
import math
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from sweep.errors import InputError, ModelError, SettingError
from sweep.units import format_bytes, parse_bytes

UTILISATION = 0.9  # the share of a GPU's memory that servers take by default
MOST_GPUS = 1024


class Gpu(NamedTuple):
    """One GPU. Bandwidth is decimal and peak, operations are dense; None where unknown or not supported.

    memory_bytes: what the driver reports. vendor_gb: the number in the product's name, now GB, now GiB.
    """

    name: str
    memory_bytes: int | None
    vendor_gb: float | None = None
    bandwidth_gb_per_s: float | None = None
    dense_fp16_tflops: float | None = None
    dense_bf16_tflops: float | None = None
    dense_fp8_tflops: float | None = None
    source: str = "given by hand"


class Budget(NamedTuple):
    """Bytes for keys and values on all GPUs: usable - weights - overhead, below 0 if the weights do not fit."""

    gpus: int
    memory_bytes: int  # of one GPU
    utilisation: float
    usable_bytes: int  # gpus * memory * utilisation
    weight_bytes: int
    overhead_bytes: int
    kv_bytes: int

    def lines(self) -> tuple[str, ...]:
        """The sum in words, a line for each term."""
        return (
            f"{self.gpus} x {format_bytes(self.memory_bytes)} x {self.utilisation:g}"
            f" = {format_bytes(self.usable_bytes)} usable",
            f"- {format_bytes(self.weight_bytes)} weights",
            f"- {format_bytes(self.overhead_bytes)} overhead",
            f"= {format_bytes(self.kv_bytes)} for keys and values"
            if self.kv_bytes > 0
            else "= nothing for keys and values",
        )


@cache
def built_in_gpus() -> tuple[Gpu, ...]:
    """The GPUs of the package, in the order of its file."""
    listed = json.loads(files("sweep.model").joinpath("data/gpus.json").read_text("utf-8"))
    return tuple(_gpu(**entry) for entry in listed["gpus"])


def read_gpu(name_or_size: str) -> Gpu:
    """The built-in GPU of this name, or of an unambiguous part of it, or one of a size such as "80 GiB"."""
    text = name_or_size.strip()
    if text[:1].isdigit():
        return Gpu(text, _size(text))
    asked = _words(text)
    exact = [gpu for gpu in built_in_gpus() if _words(gpu.name) == asked]
    found = exact or [gpu for gpu in built_in_gpus() if asked and set(asked) <= set(_words(gpu.name))]
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f'GPU "{text}" may be {" or ".join(gpu.name for gpu in found)}; name one')
    names = [gpu.name for gpu in built_in_gpus()]
    near = difflib.get_close_matches(text.upper()[:60], names, 1)
    hint = f"did you mean {near[0]}? Or" if near else f"use one of {', '.join(names)}, or"
    raise ModelError(f'GPU "{text[:60]}" is not known; {hint} give a size, such as "80 GiB"')


def budget(gpu: Gpu, gpus: int, weight_bytes: int, utilisation: float = UTILISATION, overhead_bytes: int = 0) -> Budget:
    """What is left for keys and values on `gpus` GPUs that share a model. Raises SettingError if a size is unknown."""
    check_gpus(gpus)
    check_utilisation(utilisation)
    if overhead_bytes < 0 or weight_bytes < 0:
        raise InputError(f"weights and overhead: must be 0 or more bytes, got {weight_bytes} and {overhead_bytes}")
    if gpu.memory_bytes is None:
        unknown = f"the memory that the driver of {gpu.name} reports is unknown"
        raise SettingError("gpu", f'{unknown}; give a size, such as "{gpu.vendor_gb:g} GB"')
    usable = math.floor(gpus * gpu.memory_bytes * utilisation)
    left = usable - weight_bytes - overhead_bytes
    return Budget(gpus, gpu.memory_bytes, utilisation, usable, weight_bytes, overhead_bytes, left)


def check_gpus(gpus: int) -> int:
    """The number, if there can be so many GPUs. Raises SettingError."""
    if not 1 <= gpus <= MOST_GPUS:
        raise SettingError("gpus", f"must be from 1 to {MOST_GPUS}, got {gpus}")
    return gpus


def check_utilisation(share: float) -> float:
    """The share, if it can be one of a GPU's memory. Raises SettingError."""
    if not 0 < share <= 1:
        raise SettingError("utilisation", f"must be above 0 and at most 1, got {share:g}")
    return share


def _gpu(memory_gib: float | None, **rest: object) -> Gpu:
    return Gpu(memory_bytes=None if memory_gib is None else round(memory_gib * 2**30), **rest)  # type: ignore[arg-type]


def _size(text: str) -> int:
    size = parse_bytes(text)
    if not 0 < size <= 2**50:
        raise InputError(f'GPU memory: must be above 0 and at most 1024 TiB, got "{text}"')
    return size


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", name.lower()))

"""What is built in, for `sweep list`: models, GPUs, profiles, distributions and metrics, from the code's own tables."""

import textwrap
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sweep.errors import InputError
from sweep.metrics import ALWAYS, METRICS
from sweep.model.distributions import Distribution
from sweep.model.gpus import built_in_gpus
from sweep.model.memory import bytes_per_token, bytes_per_token_windows_full
from sweep.model.models import built_in_models
from sweep.model.profiles import Facts, built_in_profiles
from sweep.report.words import metric_name
from sweep.study.faults import closest, shown
from sweep.tables import aligned

WIDTH = 110


def text(what: str) -> str:
    """The table of what is asked for. Raises InputError where there is none."""
    tables = {"models": _models, "gpus": _gpus, "profiles": _profiles, "distributions": _distributions}
    tables["metrics"] = _metrics
    if what not in tables:
        near = closest(what, tables)
        hint = f'; did you mean "{near}"?' if near else ""
        raise InputError(f'list: must be one of {", ".join(tables)}, got "{what}"{hint}')
    return tables[what]()


def overview() -> str:
    """How many there are of each kind, and how to ask for them."""
    kinds = get_args(get_args(Distribution)[0])
    counted = (
        (len(built_in_models()), "models, for memory", "models"),
        (len(built_in_gpus()), "GPUs, for memory and step times", "gpus"),
        (len(built_in_profiles()), "profiles of real traffic", "profiles"),
        (len(kinds), "distributions of lengths", "distributions"),
        (len(METRICS), "metrics that claims and charts speak of", "metrics"),
    )
    return "\n".join(
        aligned(
            ("", "what", "list with"), [(f"{n}", what, f"sweep list {word}") for n, what, word in counted], words=(1, 2)
        )
    )


def _models() -> str:
    header = ("model", "organisation", "KiB a token", "windows full", "parameters", "packed")
    rows = [
        (
            model.name,
            model.organisation,
            f"{bytes_per_token(model) / 1024:,.4g}",
            f"{bytes_per_token_windows_full(model) / 1024:,.4g}",
            f"{model.parameters:,}" if model.parameters else "unknown",
            model.quantised or "-",
        )
        for model in built_in_models()
    ]
    note = "KV cache in fp16: before any sliding window is full, and once all are. Packed: the weights as published."
    return "\n".join([*aligned(header, rows, words=(0, 1)), "", note])


def _gpus() -> str:
    header = ("GPU", "GiB", "named GB", "GB/s", "fp16", "bf16", "fp8", "source")
    rows = [
        (
            gpu.name,
            _number(None if gpu.memory_bytes is None else gpu.memory_bytes / 2**30),
            *map(_number, (gpu.vendor_gb, gpu.bandwidth_gb_per_s)),
            *map(_number, (gpu.dense_fp16_tflops, gpu.dense_bf16_tflops, gpu.dense_fp8_tflops)),
            gpu.source,
        )
        for gpu in built_in_gpus()
    ]
    note = "GiB: what the driver reports. fp16, bf16, fp8: 10^12 dense operations a second. -: unknown, or not there."
    return "\n".join([*aligned(header, rows, words=(0, len(header) - 1)), "", note])


def _profiles() -> str:
    header = ("profile", "requests", "output mean", "cv", "max", "prompt mean", "cv", "max", "from")
    rows = [
        (
            found.name,
            f"{found.requests:,}",
            *_facts(found.output_facts),
            *_facts(found.prompt_facts),
            f"{found.source} ({found.licence})",
        )
        for found in built_in_profiles()
    ]
    note = "Tokens, of the files themselves; a profile is within 0.2 % of a file's distribution: docs/traces.md."
    return "\n".join([*aligned(header, rows, words=(0, 8)), "", note])


def _facts(facts: Facts) -> tuple[str, str, str]:
    return f"{facts.mean:,.0f}", f"{facts.cv:.2f}", f"{facts.max:,}"


def _distributions() -> str:
    kinds = get_args(get_args(Distribution)[0])
    return "\n".join(_distribution(kind) for kind in kinds)


def _distribution(kind: type[BaseModel]) -> str:
    """A line with the name and the parameters, then what it is."""
    fields = {name: field for name, field in kind.model_fields.items() if name != "distribution"}
    (name,) = get_args(kind.model_fields["distribution"].annotation)
    needed = [key for key, field in fields.items() if field.is_required()]
    others = [_with_default(key, field) for key, field in fields.items() if not field.is_required()]
    signature = f"{name}({', '.join([*needed, *others])})"
    about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return textwrap.fill(f"{signature}: {about}", WIDTH, subsequent_indent="    ")


def _with_default(key: str, field: FieldInfo) -> str:
    default = field.default
    return f"[{key}]" if default is None else f"{key} = {shown(default)}"


def _metrics() -> str:
    rows = [(metric, metric_name(metric).title, "" if metric in ALWAYS else "when asked for") for metric in METRICS]
    return "\n".join(aligned(("metric", "what it is", ""), rows, words=range(3)))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.5g}"

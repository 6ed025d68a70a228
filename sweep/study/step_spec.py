"""[server] step of a study: how long a step takes. What the kinds mean is in `model.steptime` and `model.roofline`.

A table is small and stands in the study, or in a file by its absolute path.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from sweep.errors import SweepError
from sweep.model.gpus import MOST_GPUS, read_gpu
from sweep.model.models import read_model
from sweep.model.roofline import roofline
from sweep.model.steptable import COLUMNS, StepTable, read_step_table, step_table
from sweep.model.steptime import Affine, Constant, StepTime, packed
from sweep.study.server_memory import known_gpu, known_model
from sweep.study.strict import Strict

Cost = Annotated[float, Field(ge=0, le=1e9)]
Row = Annotated[tuple[float, float, float, float], Field(strict=False)]  # TOML and JSON have lists

_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # needed, and beside them allowed
    "constant": (("ms",), ()),
    "affine": (("ms",), ("us_per_request", "us_per_kv_token", "us_per_prefill_token")),
    "roofline": (
        ("model", "gpu"),
        ("gpus", "weight_dtype", "kv_dtype", "overhead_ms", "bandwidth_share", "arithmetic_share"),
    ),
    "table": ((), ("rows", "path")),
}


class StepSpec(Strict):
    """How long a step takes: always the same, a line, a roofline of model and GPU, or what was measured."""

    kind: Literal["constant", "affine", "roofline", "table"]
    """"constant": `ms`. "affine": `ms`, and a cost for each running request, each KV token that is read and each prompt
    token. "roofline": bytes or arithmetic of a model on GPUs, whichever takes longer. "table": measured steps."""
    ms: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Milliseconds of a step, or what every step takes beside the costs."""
    us_per_request: Cost | None = None
    """Microseconds for each running request."""
    us_per_kv_token: Cost | None = None
    """Microseconds for each token of KV cache that is read."""
    us_per_prefill_token: Cost | None = None
    """Microseconds for each prompt token that is computed."""
    model: Annotated[str, AfterValidator(known_model)] | None = None
    """A built-in model (`sweep list models`), or the absolute path of a config.json."""
    gpu: Annotated[str, AfterValidator(known_gpu)] | None = None
    """A built-in GPU (`sweep list gpus`)."""
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)] | None = None
    """GPUs that share bytes and arithmetic evenly; left out: 1."""
    weight_dtype: Literal["fp16", "bf16", "fp8", "int8", "int4"] | None = None
    """Type of the weights; left out: 16 bits, or as published."""
    kv_dtype: Literal["fp16", "bf16", "fp8"] | None = None
    """Type of the KV cache; left out: 16 bits."""
    overhead_ms: Cost | None = None
    """Milliseconds of each step beside bytes and arithmetic."""
    bandwidth_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the peak bandwidth that is reached; left out: all of it."""
    arithmetic_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the peak arithmetic that is reached; left out: all of it."""
    rows: Annotated[tuple[Row, ...], Field(strict=False, min_length=1)] | None = None
    """Measured steps: batch, kv_tokens, prefill_tokens and milliseconds of each."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """A CSV file of measured steps, by its absolute path, in place of `rows`."""
    _step_time: StepTime = PrivateAttr(Constant(1.0))

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        needed, allowed = _KEYS[self.kind]
        given = [key for key in type(self).model_fields if key != "kind" and getattr(self, key) is not None]
        if missing := [key for key in needed if key not in given]:
            raise ValueError(f'kind = "{self.kind}" needs {" and ".join(missing)}')
        if extra := [key for key in given if key not in (*needed, *allowed)]:
            raise ValueError(f'{extra[0]} does not go with kind = "{self.kind}"')
        try:
            self._step_time = self._made()
            packed(self._step_time)
        except SweepError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def step_time(self) -> StepTime:
        """The step time for the kernels."""
        return self._step_time

    def digest(self) -> str | None:
        """What stands for the rows of a file, which may change while its name does not; None without a file."""
        if self.path is None:
            return None
        assert isinstance(self._step_time, StepTable)
        return hashlib.sha256(b"".join(column.tobytes() for column in self._step_time[1:])).hexdigest()

    def _made(self) -> StepTime:
        match self.kind:
            case "constant":
                assert self.ms is not None
                return Constant(self.ms / 1000)
            case "affine":
                assert self.ms is not None
                costs = (self.us_per_request, self.us_per_kv_token, self.us_per_prefill_token)
                return Affine(self.ms / 1e3, *((cost or 0.0) / 1e6 for cost in costs))
            case "roofline":
                return roofline(
                    read_model(str(self.model)),
                    read_gpu(str(self.gpu)),
                    self.gpus or 1,
                    weight_dtype=self.weight_dtype,
                    kv_dtype=self.kv_dtype or "fp16",
                    overhead_s=(self.overhead_ms or 0.0) / 1000,
                    bandwidth_share=self.bandwidth_share or 1.0,
                    arithmetic_share=self.arithmetic_share or 1.0,
                )
            case "table":
                return self._table()

    def _table(self) -> StepTable:
        if (self.rows is None) == (self.path is None):
            raise ValueError('kind = "table" needs rows or path, and not both')
        if self.rows is not None:
            lines = [",".join(COLUMNS), *(",".join(f"{value:.17g}" for value in row) for row in self.rows)]
            return step_table("rows", "\n".join(lines) + "\n")
        if not Path(str(self.path)).is_absolute():
            raise ValueError("path: must be absolute: a study is read again from its results folder")
        return _read(str(self.path))


@lru_cache(maxsize=16)
def _read(path: str) -> StepTable:
    return read_step_table(path)

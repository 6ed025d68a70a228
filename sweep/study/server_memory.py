"""[server.memory] of a study: what the KV cache of a request takes and what there is for it, hence requests that fit.

A model and a GPU by name, or bytes by hand for either. Names and combinations are checked here; bytes are counted in
`model.memory`. The path of a config.json must be absolute: a study is read again from its results folder, where a
relative one would lead elsewhere.
"""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from sweep.errors import ModelError, SweepError
from sweep.model.gpus import MOST_GPUS, UTILISATION, Budget, budget, read_gpu
from sweep.model.memory import Holding, bytes_per_token, clashes, fit, held_bytes
from sweep.model.models import Model, is_config_path, model_by_hand, read_model, weight_bytes
from sweep.study.strict import Bytes, BytesOrNone, Strict
from sweep.units import format_bytes, parse_bytes


def known_model(name: str) -> str:
    """The name, if there is such a model. Raises ValueError."""
    if is_config_path(name) and not Path(name).is_absolute():
        raise ValueError("in a study, the path of a config.json must be absolute: its results folder is elsewhere")
    try:
        read_model(name)
    except ModelError as error:
        raise ValueError(str(error)) from None
    return name


def known_gpu(name: str) -> str:
    """The name, if there is such a GPU. Raises ValueError."""
    try:
        read_gpu(name)
    except SweepError as error:
        raise ValueError(str(error)) from None
    return name


class _Memory(NamedTuple):
    """A table as numbers; `terms` are those of the budget, None where it was given by hand."""

    model: Model
    terms: Budget | None
    budget_bytes: int
    held: Holding


class MemorySpec(Strict):
    """Memory for the KV cache, and what a request takes of it: a model and a GPU, or bytes by hand for either."""

    budget: Bytes | None = None
    """Memory for the KV cache of all running requests, such as "64 GiB", in place of a GPU."""
    kv_per_token: Bytes | None = None
    """KV cache of one token, such as "512 KiB", in place of a model."""
    model: Annotated[str, AfterValidator(known_model)] | None = None
    """A built-in model (`sweep list models`), or the absolute path of a config.json."""
    gpu: Annotated[str, AfterValidator(known_gpu)] | None = None
    """A built-in GPU (`sweep list gpus`), or the memory of one such as "80 GiB"."""
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    """GPUs that share the model; KV heads are split over them, and copied where there are more GPUs than heads."""
    kv_dtype: Literal["fp16", "bf16", "fp8"] = "fp16"
    """Type of the keys and values that are kept."""
    utilisation: Annotated[float, Field(gt=0, le=1)] = UTILISATION
    """Share of a GPU's memory that the server takes."""
    overhead: BytesOrNone = "0 B"
    """Memory on all GPUs together for what is neither weights nor KV cache."""
    weights: Bytes | None = None
    """Memory of the weights; needed where the model's are unknown."""
    weight_dtype: Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"] | None = None
    """Type of the weights; left out: 16 bits, where the model is not published packed."""
    shared_prefix: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Tokens at the start of every request that are the same, and held once for all."""
    trim_windows: bool = True
    """Whether layers with a sliding window drop what has left it."""
    _memory: _Memory = PrivateAttr()

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        given = {key for key in self.model_fields_set if getattr(self, key) is not None}
        wrong = clashes(given, budget_needed=True)
        if wrong:
            raise ValueError("; ".join(wrong))
        model = read_model(self.model) if self.model else model_by_hand(parse_bytes(self.kv_per_token or ""))
        terms = self._terms(model) if self.gpu else None
        bytes_per_token(model, self.kv_dtype, self.gpus)  # refuses heads that cannot be split
        left = terms.kv_bytes if terms else parse_bytes(self.budget or "")
        held = Holding(self.kv_dtype, self.gpus, self.shared_prefix, self.trim_windows)
        self._memory = _Memory(model, terms, left, held)
        return self

    def _terms(self, model: Model) -> Budget:
        known = parse_bytes(self.weights) if self.weights else weight_bytes(model, self.weight_dtype)
        if known is None:
            packed = f'are packed ({model.quantised}): give weight_dtype = "fp8" or the like, or'
            how = packed if model.quantised and model.parameters else "are unknown: give"
            raise ValueError(f"the weights of {model.name} {how} weights, or budget in place of gpu")
        assert self.gpu is not None
        return budget(read_gpu(self.gpu), self.gpus, known, self.utilisation, parse_bytes(self.overhead))

    def requests(self, context_tokens: int) -> int:
        """Requests of this many tokens that fit; raises InputError where the shared prefix is not shorter."""
        memory = self._memory
        return fit(memory.model, memory.budget_bytes, context_tokens, memory.held)

    def why_none(self, context_tokens: int) -> str:
        """Why not even one request of this many tokens fits."""
        memory = self._memory
        terms = memory.terms
        if terms and terms.kv_bytes <= 0:
            also = f" and {format_bytes(terms.overhead_bytes)} overhead" if terms.overhead_bytes else ""
            weights = f"{format_bytes(terms.weight_bytes)} weights{also} of {memory.model.name}"
            return f"{weights} leave nothing of the {format_bytes(terms.usable_bytes)} that are usable"
        needed = held_bytes(memory.model, 1, context_tokens, memory.held)
        there = self.budget or format_bytes(memory.budget_bytes)
        return f"a request of {context_tokens:,} tokens needs {format_bytes(needed)}, the budget is {there}"

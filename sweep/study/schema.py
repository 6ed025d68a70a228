"""What may stand in a study file: its tables and fields, with their meaning, units and limits.

Axes are in `axes`; what ties the tables of a file together (a claim and the columns it names) is in `study`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, PlainValidator, PrivateAttr, Tag, model_validator
from pydantic_core import PydanticCustomError

from sweep.metrics import Measured
from sweep.model.distributions import Distribution, Lab
from sweep.model.lengths import integer_lengths
from sweep.study.arrival_spec import ArrivalSpec, SloSpec
from sweep.study.server_cache import KvSpec, PrefixSpec
from sweep.study.server_memory import MemorySpec
from sweep.study.step_spec import StepSpec
from sweep.study.strict import LARGEST_INTEGER, Strict
from sweep.study.traced import TraceOrPath, outputs_of

MOST_REQUESTS = 100_000_000
MOST_SLOTS = 1_000_000
MOST_REPLICATES = 1_000_000_000

Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Replicates = Annotated[int, Field(ge=1, le=MOST_REPLICATES)]


def _slots(value: Any) -> int | str:
    if value == "memory" or (type(value) is int and 1 <= value <= MOST_SLOTS):
        return value  # type: ignore[no-any-return]
    raise PydanticCustomError("slots", f'must be a whole number from 1 to {MOST_SLOTS:,}, or "memory"')


def _half_width(value: Any) -> int | float | str:
    percent = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    number = float(percent[1]) if percent else value
    if type(number) in (int, float) and number > 0:
        return value  # type: ignore[no-any-return]
    raise PydanticCustomError("half_width", 'must be a number above 0, or a share of the mean such as "1 %"')


class WorkloadSpec(Strict):
    """What arrives: how many requests, how long their prompts and outputs are, and when they come."""

    requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)]
    """Requests of one workload."""
    output: Distribution
    """Output lengths, in tokens."""
    prompt: Distribution | None = None
    """Prompt lengths in tokens, without a shared prefix; left out: prompts take no time and no memory."""
    shared_prefix: PrefixSpec | None = None
    """Text in front of the prompts that many of them share."""
    trace: TraceOrPath | None = None
    """Rows of a file in place of `output` and `prompt`: the prompts count only where [server.kv] takes them. The file
    alone, as text, is short for a table with its path."""
    arrivals: ArrivalSpec | None = None
    """When requests come; left out: all wait from the start."""
    slo: SloSpec | None = None
    """What users ask of a request."""
    priorities: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(strict=False, min_length=1)] | None = None
    """Shares of the requests in each class, the most urgent first; for server.order = "priority"."""

    @model_validator(mode="before")
    @classmethod
    def _outputs_are_those_of_the_trace(cls, data: Any) -> Any:
        """With a trace, `output` is the distribution of its outputs: what theory and limits go by."""
        if not isinstance(data, dict) or data.get("trace") is None:
            return data
        if isinstance(data.get("output"), dict) or "prompt" in data:
            raise ValueError("trace has the outputs and the prompts; leave out output and prompt")
        trace = data["trace"]  # one that is no table is refused, and the outputs are not said to be missing
        return {**data, "output": outputs_of(trace.get("rows") if isinstance(trace, dict) else None)}

    @model_validator(mode="after")
    def _a_trace_has_the_times_asked_for(self) -> Self:
        if self.arrivals is None or self.arrivals.process != "trace":
            return self
        if self.trace is None:
            raise ValueError('arrivals: process = "trace" takes those of [workload.trace]; name a file there')
        if self.trace.packed_times is None:
            raise ValueError("trace.rows: was read without times; take rows out, and the file is read again")
        return self

    @model_validator(mode="after")
    def _prompts_are_not_empty(self) -> Self:
        if isinstance(self.prompt, Lab):
            raise ValueError('prompt: "lab" has outputs only')
        prefix = self.shared_prefix.tokens if self.shared_prefix is not None else 0
        if self.prompt is not None and prefix + shortest(self.prompt) < 1:
            raise ValueError("a prompt has at least 1 token, and these may have none")
        return self


class ServerSpec(Strict):
    """What serves: places in the running batch, memory, who goes first, and how long a step takes."""

    slots: Annotated[int | Literal["memory"], PlainValidator(_slots, json_schema_input_type=int | Literal["memory"])]
    """Requests that run at a time; "memory": as many as fit in [server.memory] at `context` tokens each."""
    max_slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] | None = None
    """With slots = "memory": no more requests than this run, whatever fits."""
    context: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Tokens that each request reserves in the KV cache: the longest that a request may be."""
    step_ms: Annotated[float, Field(gt=0)] | None = None
    """Length of a step in milliseconds; without it nothing is measured in seconds."""
    memory: MemorySpec | None = None
    """Needed for slots = "memory", and for a [server.kv] that does not say how much it holds."""
    kv: KvSpec | None = None
    """How the KV cache is filled; without it slots alone are the limit."""
    refill_delay: Annotated[int, Field(ge=0, le=1)] = 0
    """Steps for which a request that has ended keeps its place: 1 for an engine that plans a step ahead."""
    static_slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] | None = None
    """Requests in a group of static batching, where it is not `slots` and what fits in memory."""
    step: StepSpec | None = None
    """How long a step takes, where it is not always `step_ms`."""
    pads: bool = True
    """Whether members of a static group that are done go on computing until the longest is; if not, they leave."""
    charge_prompts: bool = True
    """Whether prompts take time, each in a step of its own; only in studies with arrivals, an order or a `step`. With
    [server.kv] they always do."""
    max_wait_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """A static group that is not full starts when its oldest request has waited so long."""
    order: Literal["first_come", "shortest_first", "priority"] = "first_come"
    """Who is admitted next, under both schedulers: who came first, the shortest output, or the most urgent class."""
    prediction_cv: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Deviation of the error of a predicted output, relative to it, for order = "shortest_first"; 0: known exactly."""
    _fit: int = PrivateAttr(0)

    @model_validator(mode="after")
    def _memory_is_known(self) -> Self:
        if self.slots == "memory":
            missing = [key for key in ("context", "memory") if getattr(self, key) is None]
            if missing:
                raise ValueError(f'slots = "memory" needs {" and ".join(missing)} here')
            assert self.memory is not None
            assert self.context is not None
            fit = self.memory.requests(self.context)
            self._fit = fit if self.max_slots is None else min(fit, self.max_slots)
            if self._fit > MOST_SLOTS:
                raise ValueError(f"{self._fit:,} requests fit in memory, more than {MOST_SLOTS:,} slots")
        elif self.max_slots is not None:
            raise ValueError('max_slots goes with slots = "memory" only')
        return self

    @model_validator(mode="after")
    def _step_is_said_once(self) -> Self:
        if self.step is not None and self.step_ms is not None:
            raise ValueError("step and step_ms are both given; keep one of them")
        if self.prediction_cv > 0 and self.order != "shortest_first":
            raise ValueError('prediction_cv goes with order = "shortest_first" only')
        return self

    @model_validator(mode="after")
    def _kv_is_known(self) -> Self:
        if self.kv is None:
            return self
        if self.kv.needs_memory and self.memory is None:
            raise ValueError(f'kv: policy = "{self.kv.policy}" needs blocks or tokens there, or [server.memory]')
        if self.kv.needs_memory and self.memory is not None and self.memory.shared_prefix:
            raise ValueError("memory.shared_prefix does not go with kv; workload.shared_prefix takes its place")
        if self.kv.token_budget is not None and self.kv.token_budget < slots_of(self):
            rule = f"must be at least the slots, {slots_of(self):,}, so that all of them can produce a token"
            raise ValueError(f"kv.token_budget: {rule}, got {self.kv.token_budget:,}")
        return self


class Setting(Strict):
    """A cell's workload and server, with the cell's axis values in them."""

    workload: WorkloadSpec
    server: ServerSpec


class Precision(Strict):
    """How sure the mean of a metric must be: replicates are added until its interval is this narrow in every cell."""

    metric: Text
    """The metric whose mean is meant."""
    half_width: Annotated[int | float | str, PlainValidator(_half_width, json_schema_input_type=float | str)]
    """Half the width of the confidence interval: in the metric's unit, or relative to the mean such as "1 %"."""
    confidence: Share = 0.95
    """Confidence of the interval."""
    min_replicates: Annotated[int, Field(ge=2, le=MOST_REPLICATES)] = 512
    """Replicates before the first look."""
    max_replicates: Annotated[int, Field(ge=2, le=MOST_REPLICATES)] = 1_000_000
    """Replicates after which it ends in any case."""

    @model_validator(mode="after")
    def _min_is_not_above_max(self) -> Self:
        if self.min_replicates > self.max_replicates:
            raise ValueError(f"min_replicates {self.min_replicates:,} is above max_replicates {self.max_replicates:,}")
        return self

    def half_width_of(self, mean: float) -> float:
        """The half width that is asked for at this mean, in the metric's unit."""
        if isinstance(self.half_width, str):
            return abs(mean) * float(self.half_width.rstrip("% ")) / 100
        return self.half_width


class OfShare(Strict):
    """A share of the workloads."""

    share: Share
    """Share of workloads that must be within the bound."""


class OfPercentile(Strict):
    """A percentile over workloads."""

    percentile: Annotated[float, Field(gt=0, lt=100)]
    """Which percentile, in percent."""


def _of_what(value: Any) -> str | None:
    if isinstance(value, str):
        return "words"
    keys = value.keys() if isinstance(value, dict) else [f"{type(value).__name__}"[2:].lower()]
    return next((key for key in ("share", "percentile") if key in keys), None)


Of = Annotated[
    Annotated[Literal["mean", "every"], Tag("words")]
    | Annotated[OfShare, Tag("share")]
    | Annotated[OfPercentile, Tag("percentile")],
    Discriminator(
        _of_what,
        custom_error_type="of",
        custom_error_message='must be "mean", "every", { share = 0.95 } or { percentile = 5 }',
    ),
]
CONDITIONS = ("at_least", "at_most", "between", "equals")


class Claim(Strict):
    """A sentence about the results that can be checked: a metric, a bound, and what of the metric is bounded."""

    text: Text
    """The claim in words."""
    metric: Text
    """The metric it speaks of."""
    at_least: float | None = None
    """The lowest value that agrees with the claim."""
    at_most: float | None = None
    """The highest value that agrees with the claim."""
    between: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """The lowest and the highest value that agree with the claim."""
    equals: float | None = None
    """The value claimed, give or take `within`."""
    within: Annotated[float, Field(gt=0)] | None = None
    """How far from `equals` a value may be; left out: not at all, which only of = "every" can mean."""
    of: Of = "mean"
    """What is bounded: the mean over workloads, every workload, a share of them, or a percentile."""
    where: dict[str, Any] = Field({})
    """Column = value, or a list of values: the cells it speaks of. Left out: all, a verdict for each."""
    minus: dict[str, Any] = Field({})
    """Column = value: the claim is on the difference, workload by workload, to the cell with these values instead."""

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        given = [name for name in CONDITIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs one of {', '.join(CONDITIONS)}; got {' and '.join(given) or 'none'}")
        if self.within is not None and self.equals is None:
            raise ValueError("within goes with equals only")
        if self.equals is not None and self.within is None and self.of != "every":
            raise ValueError('equals needs within here; only of = "every" can be exact')
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"between goes from low to high, got {self.between[0]:g} to {self.between[1]:g}")
        return self


def _metric_or_several(value: Any) -> str | tuple[str, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    if several and all(isinstance(one, str) and one for one in several) and len(set(several)) == len(several):
        return value if isinstance(value, str) else tuple(several)
    raise PydanticCustomError("metrics", "must be a metric, or a list of metrics, each once")


class Chart(Strict):
    """A picture of the results."""

    kind: Literal["distribution", "heatmap", "lines", "memory", "approach", "waterfall"]
    """What is drawn."""
    x: Text | None = None
    """Column along the horizontal axis."""
    y: Text | None = None
    """Column along the vertical axis."""
    color: Text | None = None
    """Column that tells lines or bars apart."""
    metric: Annotated[Any, PlainValidator(_metric_or_several, json_schema_input_type=Text | tuple[Text, ...])] = None
    """Metric that is drawn. For kind = "lines" also a list of metrics in one unit, each with its own lines:
    ["static_e2e_mean_s", "continuous_e2e_mean_s"] has both schedulers on one axis."""
    log: bool | None = None
    """For kind = "lines": whether the vertical axis is logarithmic."""
    log_x: bool | None = None
    """For kind = "lines": whether the horizontal axis is logarithmic; left out: where its values are spaced so."""

    @model_validator(mode="after")
    def _several_metrics_are_lines(self) -> Self:
        if isinstance(self.metric, tuple) and self.kind != "lines":
            raise ValueError(f'a list of metrics goes with kind = "lines" only, got kind = "{self.kind}"')
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it names."""
        return self.metric if isinstance(self.metric, tuple) else (self.metric,) if self.metric is not None else ()


class StudyFile(Strict):
    """The tables of a study file; a workload and a server may leave to the grid what an axis gives."""

    title: str = ""
    """What the study is called."""
    question: str = ""
    """The question it answers."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)] = 0
    """Where the random numbers start: the same seed gives the same workloads."""
    replicates: Replicates | None = None
    """Workloads of each cell; 1,000 when neither this nor `precision` is given."""
    precision: Precision | None = None
    """How sure to be, instead of a number of replicates."""
    measure: Annotated[tuple[Measured, ...], Field(strict=False)] = ()
    """Metrics to keep beside those of every study."""
    workload: dict[str, Any] = Field({})
    """What arrives."""
    server: dict[str, Any] = Field({})
    """What serves."""
    grid: dict[str, Any] = Field({})
    """Dotted path into the study = values: the cells are the product of all axes."""
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()
    """Sentences to check."""
    charts: Annotated[tuple[Chart, ...], Field(strict=False)] = ()
    """Pictures to draw."""


def slots_of(server: ServerSpec) -> int:
    """The slots there are; with slots = "memory" the requests that fit, 0 when not even one does."""
    return server.slots if isinstance(server.slots, int) else server._fit


def has_clock(setting: Setting) -> bool:
    """Whether requests have a time of arrival, an order or an SLO, or steps a time of their own."""
    workload, server = setting.workload, setting.server
    own = server.step is not None or server.order != "first_come" or server.max_wait_s > 0
    return own or workload.arrivals is not None or workload.slo is not None


def has_step_time(setting: Setting) -> bool:
    """Whether it is known how many seconds a step takes."""
    return setting.server.step is not None or setting.server.step_ms is not None


def is_served_study(resolved: Iterable[Setting]) -> bool:
    """Whether a study runs on the server model: some cell needs it. With a clock prompts alone do not, each of which
    then has a step of its own.
    """
    cells = list(resolved)
    return any(map(is_limited if any(map(has_clock, cells)) else is_served, cells))


def is_served(setting: Setting) -> bool:
    """Whether it takes the server model: slots are not the only limit, or prompts are not for nothing."""
    return setting.workload.prompt is not None or is_limited(setting)


def is_limited(setting: Setting) -> bool:
    """Whether a server has more to it than slots: memory, prefixes, a delay, or groups of another size."""
    workload, server = setting.workload, setting.server
    given = workload.shared_prefix is not None or server.kv is not None or server.static_slots is not None
    return given or server.refill_delay > 0


def shortest(lengths: Distribution) -> int:
    """The shortest length there can be."""
    return int(integer_lengths(lengths).values[0])


def longest(lengths: Distribution) -> int:
    """The longest length there can be."""
    return int(integer_lengths(lengths).values[-1])


def no_slot(server: ServerSpec) -> str:
    """Why not even one request fits in memory."""
    assert server.memory is not None
    assert server.context is not None
    return server.memory.why_none(server.context)

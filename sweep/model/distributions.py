"""Distributions of output lengths as a study file names them, each with P(X <= k) and P(X > k) in double precision.

X is the length before rounding up and before any cap. What becomes of it (exact integer distribution, moments,
look-up table) is in `lengths`; a file of requests is read in `traces` before it comes here.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from scipy.special import gammainc, gammaincc, gammaln, ndtr

from sweep.model.profiles import Side, Table, profile
from sweep.model.profiles import cdf as profile_cdf

F64: TypeAlias = NDArray[np.float64]
I64: TypeAlias = NDArray[np.int64]
Item = TypeVar("Item")

MAX_TOKENS = 1 << 24  # the longest request there can be
DEFAULT_CAP = 4096  # tokens; holds where a distribution has no end of its own
MIN_CV = 1e-3  # below it, lengths of any ordinary mean round to one or two values
WEIGHT_TOLERANCE = 1e-9


def _wide_enough(cv: float) -> float:
    if cv < MIN_CV:
        raise ValueError(f'cv {cv:g} is below {MIN_CV:g}; for equal lengths use distribution = "constant"')
    return cv


def _known_profile(name: str) -> str:
    profile(name)  # raises InputError, a ValueError
    return name


def _not_empty(items: tuple[Item, ...]) -> tuple[Item, ...]:
    if not items:
        raise ValueError("must not be empty")
    return items


Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Cap = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Beyond = Literal["clip", "redraw"]
Mean = Annotated[float, Field(gt=0, description="Mean in tokens, before rounding up and before the cap.")]
Cv = Annotated[
    float,
    Field(gt=0, le=1000, description="Standard deviation / mean, before rounding up and before the cap."),
    AfterValidator(_wide_enough),
]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[float, Field(ge=0)]


def _tag_first(schema: dict[str, Any]) -> None:
    schema["required"] = ["distribution", *schema.get("required", [])]  # has a default in Python, not in a file


class Spec(BaseModel):
    """What all distributions share: unknown keys, quoted numbers, booleans for numbers, nan and inf are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra=_tag_first
    )


class Capped(Spec):
    """A distribution that can be cut at a number of tokens."""

    max_tokens: Cap | None = Field(None, description="No request is longer, in tokens; left out: no cap.")
    beyond: Beyond = Field(
        "clip",
        description='What becomes of longer requests: "clip" ends them at max_tokens, "redraw" draws them again '
        "until they fit.",
    )

    @property
    def cap(self) -> int | None:
        """Tokens at which lengths are cut, None for nowhere."""
        return self.max_tokens

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        fault = self._fault() or self._redraw_fault()
        if fault is not None:
            raise ValueError(fault)
        return self

    def _fault(self) -> str | None:
        """What is wrong between parameters, each of them allowed on its own."""
        return None

    def _redraw_fault(self) -> str | None:
        if self.beyond == "redraw" and self.cap is None:
            return 'beyond = "redraw" needs max_tokens here'
        if self.beyond == "redraw" and self.cap is not None and not self.reaches(self.cap):
            return f'no length is at most max_tokens {self.cap}, so beyond = "redraw" would never end'
        return None

    def reaches(self, tokens: int) -> bool:
        """Whether lengths of at most `tokens` have a probability above 0."""
        raise NotImplementedError


class Family(Capped, ABC):
    """A distribution with a CDF of its own."""

    @abstractmethod
    def cdf(self, tokens: I64) -> F64:
        """P(X <= tokens), with small values relatively exact."""

    def survival(self, tokens: I64) -> F64:
        """P(X > tokens); overridden where 1 - cdf would lose small values."""
        return 1.0 - self.cdf(tokens)

    @abstractmethod
    def possible(self, limit: int) -> I64:
        """Lengths up to `limit` that can occur, ascending; some may have probability 0."""

    def reaches(self, tokens: int) -> bool:
        """Whether P(X <= tokens) is above 0."""
        return bool(self.cdf(np.array([tokens]))[0] > 0)


class Unbounded(Family):
    """A distribution without an end: cut at 4096 tokens if nothing else is asked for."""

    max_tokens: Cap | None = Field(DEFAULT_CAP, description="No request is longer, in tokens.")

    @property
    def cap(self) -> int | None:
        """Tokens at which lengths are cut."""
        return DEFAULT_CAP if self.max_tokens is None else self.max_tokens

    def possible(self, limit: int) -> I64:
        """Lengths of at least 1, leaving out those where the CDF is exactly 0, and all after it is exactly 1.

        So a mean of 100 costs a few thousand values, also under a cap of millions.
        """
        lengths = range(1, limit + 1)
        first = bisect_left(lengths, True, key=lambda k: bool(self.cdf(np.array([k]))[0] > 0))
        last = bisect_left(lengths, True, key=lambda k: bool(self.cdf(np.array([k]))[0] == 1))
        return np.arange(first + 1, min(last + 1, limit) + 1, dtype=np.int64)


class Constant(Family):
    """Every request has the same length."""

    distribution: Literal["constant"] = "constant"
    value: Tokens = Field(description="Length of every request in tokens; 0 is allowed.")

    def cdf(self, tokens: I64) -> F64:
        """0 below the value, 1 from it on."""
        return np.where(tokens >= self.value, 1.0, 0.0)

    def possible(self, limit: int) -> I64:
        """The value."""
        return np.array([self.value] if self.value <= limit else [], dtype=np.int64)


class Uniform(Family):
    """Every whole number from low to high is equally likely."""

    distribution: Literal["uniform"] = "uniform"
    low: Tokens = Field(description="Shortest length in tokens; 0 is allowed.")
    high: Tokens = Field(description="Longest length in tokens, itself included.")

    def _fault(self) -> str | None:
        return f"low {self.low} is above high {self.high}" if self.low > self.high else None

    def cdf(self, tokens: I64) -> F64:
        """Share of low..high that is at most `tokens`."""
        count = self.high - self.low + 1
        return np.asarray(np.clip(tokens - self.low + 1, 0, count) / count, dtype=np.float64)

    def possible(self, limit: int) -> I64:
        """All of low..high."""
        return np.arange(self.low, min(self.high, limit) + 1, dtype=np.int64)


class Weighted(Family):
    """Lengths in a list, each drawn in proportion to its weight."""

    values: tuple[Tokens, ...]
    weights: tuple[Count, ...] | None = Field(
        None, strict=False, description="A weight for each value, not all 0; left out: all the same."
    )

    def _fault(self) -> str | None:
        if self.weights is not None and len(self.weights) != len(self.values):
            return f"{len(self.weights)} weights for {len(self.values)} values"
        if self.weights is not None and not 0 < sum(self.weights) < math.inf:
            return f"weights sum to {sum(self.weights):g}; the sum must be above 0 and finite"
        return None

    def _merged(self) -> tuple[I64, F64]:
        values, place = np.unique(np.array(self.values, dtype=np.int64), return_inverse=True)
        weights = None if self.weights is None else np.array(self.weights, dtype=np.float64)
        total = np.cumsum(np.bincount(place, weights))
        return values, total / total[-1]

    def cdf(self, tokens: I64) -> F64:
        """Share of the weight on values of at most `tokens`."""
        values, cdf = self._merged()
        return np.concatenate([[0.0], cdf])[np.searchsorted(values, tokens, side="right")]

    def possible(self, limit: int) -> I64:
        """The values, each once."""
        values, _ = self._merged()
        return values[values <= limit]


class Empirical(Weighted):
    """Given lengths, each drawn in proportion to its weight, with replacement."""

    distribution: Literal["empirical"] = "empirical"
    values: Annotated[tuple[Tokens, ...], AfterValidator(_not_empty)] = Field(
        strict=False,
        json_schema_extra={"minItems": 1},
        description="Lengths in tokens; one that is listed twice counts twice.",
    )


class Trace(Weighted):
    """Lengths of the requests in a file, drawn with replacement; read once, when the study is."""

    distribution: Literal["trace"] = "trace"
    path: str = Field(min_length=1, description="The file, seen from the folder of the study file.")
    of: Side = Field("output", description="Which lengths are meant.")
    format: str | None = Field(None, description="Format of the file; left out: what its columns say.")
    prompt_column: str | None = Field(None, description="Column of the prompts, where no format says.")
    output_column: str | None = Field(None, description="Column of the outputs, where no format says.")
    first: int | None = Field(None, ge=1, description="Rows to read, and no more.")
    values: tuple[Tokens, ...] = Field(
        (), strict=False, description="The lengths that were read, each once; filled in, not written by hand."
    )
    weights: tuple[Count, ...] | None = Field(
        None, strict=False, description="How many requests have each; filled in, not written by hand."
    )

    def _fault(self) -> str | None:
        if not self.values:
            return "the file was not read; to compare files, make whole tables the values of an axis, with names"
        return super()._fault()


class Profile(Family):
    """Lengths of a published trace from a table in the package, within 0.2 % of the file's distribution."""

    distribution: Literal["profile"] = "profile"
    name: Annotated[str, AfterValidator(_known_profile)] = Field(description="Which trace; see `sweep list profiles`.")
    of: Side = Field("output", description="Which lengths are meant.")

    def _table(self) -> Table:
        found = profile(self.name)
        return found.prompt if self.of == "prompt" else found.output

    def cdf(self, tokens: I64) -> F64:
        """Share of requests of at most `tokens`, linear between the points of the table."""
        return profile_cdf(self._table(), tokens)

    def possible(self, limit: int) -> I64:
        """All lengths from the shortest to the longest."""
        ends = self._table().tokens
        return np.arange(ends[0], min(int(ends[-1]), limit) + 1, dtype=np.int64)


class Geometric(Unbounded):
    """Tokens until an end that is equally likely after each: shortest 1, without memory."""

    distribution: Literal["geometric"] = "geometric"
    mean: float = Field(ge=1, description="Mean in tokens, before the cap.")

    def _log_survival(self, tokens: I64) -> F64:
        log_goes_on = math.log1p(-1 / self.mean) if self.mean > 1 else -math.inf
        return np.multiply(tokens, log_goes_on, dtype=np.float64)

    def cdf(self, tokens: I64) -> F64:
        """1 - (1 - 1/mean)^tokens."""
        return -np.expm1(self._log_survival(tokens))

    def survival(self, tokens: I64) -> F64:
        """(1 - 1/mean)^tokens."""
        return np.exp(self._log_survival(tokens))


class Exponential(Unbounded):
    """The continuous form of geometric; cv is 1."""

    distribution: Literal["exponential"] = "exponential"
    mean: Mean

    def cdf(self, tokens: I64) -> F64:
        """1 - exp(-tokens / mean)."""
        with np.errstate(over="ignore"):
            return -np.expm1(-tokens / self.mean)

    def survival(self, tokens: I64) -> F64:
        """exp(-tokens / mean)."""
        with np.errstate(over="ignore"):
            return np.exp(-tokens / self.mean)


class Lognormal(Unbounded):
    """The logarithm of the length is normal: a long right tail, as in chat traffic."""

    distribution: Literal["lognormal"] = "lognormal"
    mean: Mean
    cv: Cv

    def _z(self, tokens: I64) -> F64:
        variance = math.log1p(self.cv**2)
        return (np.log(tokens) - (math.log(self.mean) - variance / 2)) / math.sqrt(variance)

    def cdf(self, tokens: I64) -> F64:
        """Normal CDF of the standardised logarithm."""
        return np.asarray(ndtr(self._z(tokens)), dtype=np.float64)

    def survival(self, tokens: I64) -> F64:
        """Normal CDF of minus the standardised logarithm."""
        return np.asarray(ndtr(-self._z(tokens)), dtype=np.float64)


class Gamma(Unbounded):
    """Gamma with shape 1/cv^2: cv = 1 is exponential, a lower cv is nearer to a bell."""

    distribution: Literal["gamma"] = "gamma"
    mean: Mean
    cv: Cv

    def _scaled(self, tokens: I64) -> F64:
        with np.errstate(over="ignore"):
            return tokens / self.mean / self.cv**2

    def cdf(self, tokens: I64) -> F64:
        """Regularised lower incomplete gamma function."""
        return np.asarray(gammainc(self.cv**-2, self._scaled(tokens)), dtype=np.float64)

    def survival(self, tokens: I64) -> F64:
        """Regularised upper incomplete gamma function."""
        return np.asarray(gammaincc(self.cv**-2, self._scaled(tokens)), dtype=np.float64)


class Weibull(Unbounded):
    """Weibull: a stretched exponential for cv above 1, nearly symmetric around cv = 0.3."""

    distribution: Literal["weibull"] = "weibull"
    mean: Mean
    cv: Cv

    def _hazard(self, tokens: I64) -> F64:
        inverse_shape = _inverse_weibull_shape(self.cv)
        log_scale = math.log(self.mean) - float(gammaln(1 + inverse_shape))
        with np.errstate(over="ignore"):
            return np.exp((np.log(tokens) - log_scale) / inverse_shape)

    def cdf(self, tokens: I64) -> F64:
        """1 - exp(-(tokens / scale)^shape)."""
        return -np.expm1(-self._hazard(tokens))

    def survival(self, tokens: I64) -> F64:
        """exp(-(tokens / scale)^shape)."""
        return np.exp(-self._hazard(tokens))


class Pareto(Unbounded):
    """Pareto of type I: a shortest length and a power law above it; the heaviest tail here."""

    distribution: Literal["pareto"] = "pareto"
    mean: Mean
    cv: Cv

    def _log_survival(self, tokens: I64) -> F64:
        alpha = 1 + math.sqrt(1 + self.cv**-2)  # from cv^2 = 1 / (alpha (alpha - 2))
        log_shortest = math.log(self.mean) + math.log1p(-1 / alpha)
        return np.minimum(0.0, alpha * (log_shortest - np.log(tokens)))

    def cdf(self, tokens: I64) -> F64:
        """1 - (shortest / tokens)^alpha, 0 below the shortest."""
        return -np.expm1(self._log_survival(tokens))

    def survival(self, tokens: I64) -> F64:
        """(shortest / tokens)^alpha, 1 below the shortest."""
        return np.exp(self._log_survival(tokens))


class Part(Capped):
    """What a distribution has besides its own parameters when it is a part of a mixture."""

    weight: Share | None = Field(None, description="Share of requests from this part; the last part's may be left out.")
    max_tokens: Cap | None = Field(
        None, description="No request of this part is longer, in tokens; the mixture's max_tokens holds as well."
    )

    @property
    def cap(self) -> int | None:
        """Tokens at which this part alone is cut, None where only the mixture's cap holds."""
        return self.max_tokens


class ConstantPart(Part, Constant):
    """A part of a mixture whose requests have the same length."""


class UniformPart(Part, Uniform):
    """A part of a mixture, uniform from low to high."""


class EmpiricalPart(Part, Empirical):
    """A part of a mixture, drawn from given lengths."""


class TracePart(Part, Trace):
    """A part of a mixture, drawn from a file."""


class ProfilePart(Part, Profile):
    """A part of a mixture, of a published trace."""


class GeometricPart(Part, Geometric):
    """A part of a mixture, geometric."""


class ExponentialPart(Part, Exponential):
    """A part of a mixture, exponential."""


class LognormalPart(Part, Lognormal):
    """A part of a mixture, lognormal."""


class GammaPart(Part, Gamma):
    """A part of a mixture, gamma."""


class WeibullPart(Part, Weibull):
    """A part of a mixture, Weibull."""


class ParetoPart(Part, Pareto):
    """A part of a mixture, Pareto."""


MixturePart: TypeAlias = Annotated[
    ConstantPart
    | UniformPart
    | EmpiricalPart
    | TracePart
    | ProfilePart
    | GeometricPart
    | ExponentialPart
    | LognormalPart
    | GammaPart
    | WeibullPart
    | ParetoPart,
    Field(discriminator="distribution"),
]


class Mixture(Capped):
    """Each request comes from one of several distributions, chosen by weight."""

    distribution: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[MixturePart, ...], AfterValidator(_not_empty)] = Field(
        strict=False,
        json_schema_extra={"minItems": 1},
        description="The distributions, each with its weight; no mixture or lab among them.",
    )
    max_tokens: Cap | None = Field(
        None,
        description="No request is longer, in tokens; left out: 4096 if a part has neither an end nor a cap "
        "of its own, else no cap.",
    )

    @property
    def cap(self) -> int | None:
        """Tokens at which the whole is cut, None for nowhere."""
        endless = any(isinstance(part, Unbounded) and part.cap is None for part in self.parts)
        return DEFAULT_CAP if self.max_tokens is None and endless else self.max_tokens

    @property
    def weights(self) -> tuple[float, ...]:
        """Share of each part; the last gets what is left where its weight was left out. They sum to 1."""
        given = [part.weight for part in self.parts if part.weight is not None]
        if len(given) < len(self.parts):
            return (*given, max(0.0, 1.0 - math.fsum(given)))
        return tuple(weight / math.fsum(given) for weight in given)

    def _fault(self) -> str | None:
        for index, part in enumerate(self.parts[:-1]):
            if part.weight is None:
                return f"parts.{index} has no weight; only the last part's may be left out"
        total = math.fsum(part.weight for part in self.parts if part.weight is not None)
        if self.parts[-1].weight is None and total > 1 + WEIGHT_TOLERANCE:
            return f"weights before the last sum to {total:.10g}, above 1"
        if self.parts[-1].weight is not None and abs(total - 1) > WEIGHT_TOLERANCE:
            return f"weights sum to {total:.10g}, not 1"
        return None

    def reaches(self, tokens: int) -> bool:
        """Whether any part with a weight above 0 has lengths of at most `tokens`."""
        return any(
            weight > 0 and ((part.cap is not None and part.cap <= tokens) or part.reaches(tokens))
            for weight, part in zip(self.weights, self.parts, strict=True)
        )


class Given(Spec):
    """The lengths as they are listed: request i of every replicate has the i-th; after the last comes the first."""

    distribution: Literal["given"] = "given"
    values: Annotated[tuple[Tokens, ...], AfterValidator(_not_empty)] = Field(
        strict=False,
        json_schema_extra={"minItems": 1},
        description="Lengths in tokens, in the order of the requests.",
    )


class Lab(Spec):
    """The reference lab's own generator: replicate r is its workload with seed first_seed + r."""

    distribution: Literal["lab"] = "lab"
    first_seed: int = Field(0, ge=0, le=2**63 - 1, description="The lab's seed of replicate 0.")


Distribution: TypeAlias = Annotated[
    Constant
    | Uniform
    | Geometric
    | Exponential
    | Lognormal
    | Gamma
    | Weibull
    | Pareto
    | Mixture
    | Empirical
    | Trace
    | Profile
    | Given
    | Lab,
    Field(discriminator="distribution"),
]


@lru_cache(maxsize=64)
def _inverse_weibull_shape(cv: float) -> float:
    """1 / shape of the Weibull distribution with this cv, from log(1 + cv^2) = lnG(1 + 2/shape) - 2 lnG(1 + 1/shape).

    The right side rises with 1/shape from 0, and is above log(1 + 1000^2) at 100.
    """
    target = math.log1p(cv**2)
    low, high = 0.0, 100.0
    while low < (middle := (low + high) / 2) < high:
        if float(gammaln(1 + 2 * middle) - 2 * gammaln(1 + middle)) < target:
            low = middle
        else:
            high = middle
    return high

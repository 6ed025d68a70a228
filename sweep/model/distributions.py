"""Distributions of output lengths as a study file names them: single ones, mixtures of them, and given workloads.

Single ones are in `listed` and `tails`; what becomes of the lengths that they give is in `lengths`.
"""

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from sweep.model.capped import DEFAULT_CAP, Cap, Capped, Share, Spec, Tokens, Unbounded, not_empty
from sweep.model.listed import Constant, Empirical, Profile, Trace, Uniform
from sweep.model.tails import Exponential, Gamma, Geometric, Lognormal, Pareto, Weibull

WEIGHT_TOLERANCE = 1e-9


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
    parts: Annotated[tuple[MixturePart, ...], AfterValidator(not_empty)] = Field(
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
    values: Annotated[tuple[Tokens, ...], AfterValidator(not_empty)] = Field(
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

"""What distributions of lengths have in common: limits of their parameters, P(X <= k), and a cap on what they give.

X is the length before rounding up and before any cap. The distributions themselves are in `listed`, `tails` and
`distributions`; what becomes of X (exact integer distribution, moments, look-up table) is in `lengths`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

F64: TypeAlias = NDArray[np.float64]
I64: TypeAlias = NDArray[np.int64]
Item = TypeVar("Item")

MAX_TOKENS = 1 << 24  # the longest request there can be
DEFAULT_CAP = 4096  # tokens; holds where a distribution has no end of its own
MIN_CV = 1e-3  # below it, lengths of any ordinary mean round to one or two values


def _wide_enough(cv: float) -> float:
    if cv < MIN_CV:
        raise ValueError(f'cv {cv:g} is below {MIN_CV:g}; for equal lengths use distribution = "constant"')
    return cv


def not_empty(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items, if there are any. Raises ValueError."""
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

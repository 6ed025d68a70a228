"""Lengths that are listed one by one: equal ones, a range, given ones, those of a file or of a published trace.

A file of requests is read in `traces` before it comes here.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from sweep.model.capped import F64, I64, Count, Family, Tokens, not_empty
from sweep.model.profiles import Side, Table, profile
from sweep.model.profiles import cdf as profile_cdf


def _known_profile(name: str) -> str:
    profile(name)  # raises InputError, a ValueError
    return name


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
    values: Annotated[tuple[Tokens, ...], AfterValidator(not_empty)] = Field(
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

"""Lengths by a formula that has no end, each with P(X <= k) and P(X > k) in double precision far into its tail."""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import gammainc, gammaincc, gammaln, ndtr

from sweep.model.capped import F64, I64, Cv, Mean, Unbounded


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

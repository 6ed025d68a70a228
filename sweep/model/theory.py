"""What is known without simulation: static steps exactly, the multiple of a queue that never empties, bounds.

Lengths of different requests are independent here, as in every study of drawn lengths. Nothing exact is said about
continuous steps: for several slots they have no closed form, only bounds. Sums are numpy's own, never a dot product,
whose last digit would depend on the BLAS of the machine.
"""

from typing import NamedTuple

import numpy as np

from sweep.model.capped import F64, I64
from sweep.model.lengths import IntegerLengths, moments

CHEAP_ENTRIES = 2**21  # of the table that a convolution works on: some tenths of a second


class StepsDistribution(NamedTuple):
    """An exact distribution of steps: P(steps <= first + i) is cdf[i]; the last is 1."""

    first: int
    cdf: F64

    def quantile(self, share: float) -> int:
        """The fewest steps that this share of the workloads does not exceed."""
        return self.first + int(np.searchsorted(self.cdf, share))


def exact_static_steps(lengths: IntegerLengths, requests: int, slots: int) -> float:
    """Expected steps of static batching: whole groups of `slots` requests, then a smaller one with the rest."""
    whole_groups, rest = divmod(requests, slots)
    steps = whole_groups * mean_longest(lengths, slots) if whole_groups else 0.0
    return steps + (mean_longest(lengths, rest) if rest else 0.0)


def static_steps_sd(lengths: IntegerLengths, requests: int, slots: int) -> float:
    """Standard deviation of the steps of static batching over workloads; groups are independent."""
    whole_groups, rest = divmod(requests, slots)
    variance = whole_groups * _variance_longest(lengths, slots) if whole_groups else 0.0
    return float(np.sqrt(variance + (_variance_longest(lengths, rest) if rest else 0.0)))


def static_steps_distribution(
    lengths: IntegerLengths, requests: int, slots: int, most_entries: int = CHEAP_ENTRIES
) -> StepsDistribution | None:
    """The exact distribution of the steps of static batching; None where its table has too many entries to be cheap.

    The sum of the longest of each group, so the convolution of their distributions: a product of their transforms.
    """
    whole_groups, rest = divmod(requests, slots)
    groups = whole_groups + (rest > 0)
    least, most = int(lengths.values[0]), int(lengths.values[-1])
    if (entries := groups * (most - least) + 1) > most_entries:
        return None
    size = 1 << (entries - 1).bit_length()
    transform = np.fft.rfft(_longest_table(lengths, slots), size) ** whole_groups if whole_groups else 1.0
    if rest:
        transform = transform * np.fft.rfft(_longest_table(lengths, rest), size)
    chances = np.fft.irfft(transform, size)[:entries] if size > 1 else np.ones(1)
    cdf = np.cumsum(np.maximum(chances, 0.0))  # a transform leaves zeros within a rounding error of zero
    return StepsDistribution(groups * least, cdf / cdf[-1])


def limit_multiple(lengths: IntegerLengths, slots: int) -> float:
    """The multiple that long queues tend to: E[longest of `slots` lengths] / E[length]; nan if all lengths are 0.

    Continuous batching then has every slot busy, so a step serves `slots` tokens.
    """
    mean = mean_longest(lengths, 1)
    return mean_longest(lengths, slots) / mean if mean > 0 else float("nan")


def mean_continuous_bounds(lengths: IntegerLengths, requests: int, slots: int) -> tuple[float, float]:
    """Bounds on the expected steps of continuous batching: those of Graham, of the expectations.

    The expectation of the larger of two is at least the larger expectation; the upper bound is linear.
    """
    work, longest = requests * moments(lengths).mean / slots, mean_longest(lengths, requests)
    return max(work, longest), work + (1 - 1 / slots) * longest


def graham_bounds(tokens: I64, longest: I64, slots: int) -> tuple[I64, F64]:
    """Least and most steps that continuous batching can take for workloads of these totals and longest requests.

    tokens, longest : same shape, tokens. List scheduling keeps all slots busy until the last request to finish starts
    (Graham, 1969: tokens / slots + (1 - 1 / slots) longest); no schedule beats the work or the longest request.
    """
    least = np.maximum(-(-np.asarray(tokens) // slots), longest)
    most = np.asarray(tokens) / slots + (1 - 1 / slots) * np.asarray(longest)
    return least, most


def mean_longest(lengths: IntegerLengths, count: int) -> float:
    """E[longest of `count`] = sum over k of P(longest > k), constant between values of the support."""
    return float(lengths.values[0] + (np.diff(lengths.values) * _some_longer(lengths, count)).sum())


def _some_longer(lengths: IntegerLengths, count: int) -> F64:
    """P(longest of `count` > value) for each value but the last: 1 - cdf^count, also where cdf is close to 1."""
    return np.asarray(-np.expm1(count * np.log(lengths.cdf[:-1])))


def _chances_longest(lengths: IntegerLengths, count: int) -> F64:
    """P(longest of `count` = value) for each value."""
    return np.asarray(-np.diff(_some_longer(lengths, count), prepend=1.0, append=0.0))


def _variance_longest(lengths: IntegerLengths, count: int) -> float:
    mean = mean_longest(lengths, count)
    return float((_chances_longest(lengths, count) * (lengths.values - mean) ** 2).sum())


def _longest_table(lengths: IntegerLengths, count: int) -> F64:
    """P(longest of `count` = least + i) for each i, with zeros where there is no such length."""
    least = int(lengths.values[0])
    table = np.zeros(int(lengths.values[-1]) - least + 1)
    table[lengths.values - least] = _chances_longest(lengths, count)
    return table

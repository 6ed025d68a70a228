"""What is known without simulation: expected static steps, the multiple of a queue that never empties, bounds.

Lengths of different requests are independent here, as in every study of drawn lengths. Nothing is said about the mean
of continuous steps: for several slots it has no closed form, only bounds.
"""

import numpy as np

from sweep.model.lengths import F64, I64, IntegerLengths


def exact_static_steps(lengths: IntegerLengths, requests: int, slots: int) -> float:
    """Expected steps of static batching: whole groups of `slots` requests, then a smaller one with the rest."""
    whole_groups, rest = divmod(requests, slots)
    steps = whole_groups * _mean_longest(lengths, slots) if whole_groups else 0.0
    return steps + (_mean_longest(lengths, rest) if rest else 0.0)


def limit_multiple(lengths: IntegerLengths, slots: int) -> float:
    """The multiple that long queues tend to: E[longest of `slots` lengths] / E[length]; nan if all lengths are 0.

    Continuous batching then has every slot busy, so a step serves `slots` tokens.
    """
    mean = _mean_longest(lengths, 1)
    return _mean_longest(lengths, slots) / mean if mean > 0 else float("nan")


def graham_bounds(tokens: I64, longest: I64, slots: int) -> tuple[I64, F64]:
    """Least and most steps that continuous batching can take for workloads of these totals and longest requests.

    tokens, longest : same shape, tokens. List scheduling keeps all slots busy until the last request to finish starts
    (Graham, 1969: tokens / slots + (1 - 1 / slots) longest); no schedule beats the work or the longest request.
    """
    least = np.maximum(-(-np.asarray(tokens) // slots), longest)
    most = np.asarray(tokens) / slots + (1 - 1 / slots) * np.asarray(longest)
    return least, most


def _mean_longest(lengths: IntegerLengths, count: int) -> float:
    """E[longest of `count`] = sum over k of P(longest > k), constant between values of the support."""
    values, cdf = lengths.values, lengths.cdf[:-1]
    some_longer = -np.expm1(count * np.log(cdf))  # 1 - cdf^count, also where cdf is close to 1
    return float(values[0] + np.diff(values) @ some_longer)

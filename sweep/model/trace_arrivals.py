"""How requests come: their rate, the cv of the gaps between them and the busiest minute, from times in order.

Times come a part at a time, and those of the last minute alone are kept. Sums are of whole nanoseconds, hence exact.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.model.counted import cv, product_sum

I64 = NDArray[np.int64]

MINUTE_NS = 60 * 10**9


class Arrivals:
    """What is known of the arrivals so far."""

    def __init__(self) -> None:
        self._first_ns = self._last_ns = 0
        self._rows = self._same = self._longest_ns = self._squares = self._most = 0
        self._recent: I64 = np.zeros(0, np.int64)  # times of the minute before the last one

    def add(self, times_ns: I64) -> None:
        """Counts these too, (n,), n > 0: ascending, and none before the last one."""
        if self._rows == 0:
            self._first_ns = self._last_ns = int(times_ns[0])
            gaps = np.diff(times_ns)
        else:
            gaps = np.diff(times_ns, prepend=self._last_ns)
        self._same += len(gaps) - int(np.count_nonzero(gaps))
        self._longest_ns = max(self._longest_ns, int(gaps.max(initial=0)))
        self._squares += product_sum(gaps, gaps)
        self._count_minutes(times_ns)
        self._rows += len(times_ns)
        self._last_ns = int(times_ns[-1])

    def figures(self) -> dict[str, Any]:
        """Rate and cv of the gaps, and how they come in bursts; None where there are no gaps, or all are 0."""
        gaps, span_ns = self._rows - 1, self._last_ns - self._first_ns
        return {
            "rate_per_s": gaps / (span_ns / 1e9) if span_ns else None,
            "cv": cv(gaps, span_ns, self._squares),
            "span_s": span_ns / 1e9,
            "longest_gap_s": self._longest_ns / 1e9 if gaps else None,
            "same_time": self._same,
            "busiest_minute": self._most,
        }

    def _count_minutes(self, times_ns: I64) -> None:
        """Counts the arrivals of the minute that ends with each one: the most that any minute has."""
        times = np.concatenate([self._recent, times_ns])
        before = np.searchsorted(times, times_ns - MINUTE_NS, side="right")
        self._most = max(self._most, int((np.arange(len(self._recent) + 1, len(times) + 1) - before).max()))
        self._recent = times[before[-1] :].copy()

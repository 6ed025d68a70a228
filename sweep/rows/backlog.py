"""Whether a server kept up with what came: by how much its queue grew from the first request that counts to the last.

Where slots alone are the limit, a load says so beforehand. With memory it does not: preemptions and text computed again
take of the capacity, and how much is known only from what happened.
"""

import numpy as np
from numpy.typing import NDArray

from sweep.model.times import AnyTimes
from sweep.rows.latencies import Window, ratio

F64 = NDArray[np.float64]


def growth_share(times: AnyTimes, window: Window) -> F64:
    """Requests that wait for a slot at the last arrival, less those at the first that counts, over all that count.

    Around 0 for a server that keeps up; below by how much it falls short, whatever the length of the run.
    """
    counted = times.arrival[:, window.first :]
    first, last = np.fmin.reduce(counted, axis=1), np.fmax.reduce(counted, axis=1)
    came = np.isfinite(counted).sum(axis=1)
    return ratio(_waiting(times, last) - _waiting(times, first), came)


def _waiting(times: AnyTimes, moment: F64) -> NDArray[np.int64]:
    """Requests that have come and have no slot yet."""
    at = moment[:, None]
    return np.asarray(((times.arrival <= at) & (times.start > at)).sum(axis=1))

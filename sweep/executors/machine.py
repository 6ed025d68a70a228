"""What this process may use of the machine: cores, by its affinity and by the quota of its container."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that this process may use, which in a container are often fewer than the machine has; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_cores(CGROUP)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _quota_cores(cgroup: Path) -> float | None:
    """Processor time a second that the container's group may take (cgroup v2, then v1); None where it is unlimited."""
    try:
        v2 = cgroup / "cpu.max"
        if v2.exists():
            quota, period = v2.read_text().split()
        else:
            quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cores = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number: no limit
        return None
    return cores if cores > 0 else None

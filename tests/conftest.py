"""Each test process keeps compiled kernels in a folder of its own, so that none reads what another half wrote."""

import os
from pathlib import Path

_worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".numba_cache" / _worker))

"""An executor whose workers are those of a Dask cluster, and with it of SLURM, Kubernetes, SSH or the cloud.

A worker gets a chunk and gives back the bytes of its shard; only this process writes. The scheduler gives the chunks of
a worker that is lost to another one. Left out: starting a cluster, for which there are dask-jobqueue, the Kubernetes
operator and `dask ssh`; docs/scaling.md shows how.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

from sweep.errors import InputError

ANSWER_S = 30  # that a scheduler has to answer
INSTALL = 'pip install "batch-sweep[distributed]"'


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of a running Dask cluster, by its scheduler's address or the path of its scheduler file.

    Raises InputError where dask.distributed is not installed, or no scheduler answers.
    """
    try:
        from dask.distributed import Client
    except ImportError:
        raise InputError(f"--dask: dask.distributed is not installed; {INSTALL}") from None
    where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = Client(**where, timeout=ANSWER_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:  # a timeout is an OSError
        reason = f"no scheduler answers there ({error or type(error).__name__})"
        raise InputError(f"--dask {address}: {reason}; start one, see docs/scaling.md") from error
    with client:
        yield client.get_executor(pure=False)  # type: ignore[no-untyped-call]

"""How a results folder is written: each file whole or not at all, and by one run at a time.

So a reader, and a crash at any moment, meets the old content of a file or the new one; what the system refuses is said
in a line.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sweep.errors import FolderError


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that a reader, or a crash at any moment, meets the old content or the new one, never a part."""
    beside = path.with_name(f".{path.name}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise FolderError(f"{path}: cannot be written: {error.strerror or error}; what was finished is kept") from error


def _flush_folder(folder: Path) -> None:
    """A rename survives a power cut only when its folder is flushed too. Windows cannot open folders, nor needs it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def lock_file(folder: Path) -> Path:
    """The file whose lock says that a run is writing here."""
    return folder / ".lock"


def locked(folder: Path, shards: str) -> FileLock:
    """The lock of the folder, which is made where there is none; the system lets go of it when a run is killed."""
    lock = FileLock(lock_file(folder))
    try:
        with said(folder):
            (folder / shards).mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
    except Timeout:
        raise FolderError(f"{folder}: another run is writing here; wait for it, or choose another -o") from None
    return lock


@contextmanager
def said(folder: Path) -> Iterator[None]:
    """What the system refuses inside, as a FolderError; a timeout of the lock is an OSError too, and passes."""
    try:
        yield
    except Timeout:
        raise
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FolderError(f"{folder}: cannot be written: {reason}") from error

"""What becomes of a command whose reader leaves early, as in `sweep schema | head -2`. Leaves out what is printed.

It ends at once and says nothing, with the status that shells give to programs which a closed pipe ends: not 0, since
`sweep check` may not have got to a verdict, and not 1, which says that something failed.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO, cast

READER_LEFT = 141  # 128 and the number of SIGPIPE


@contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """Ends the process with status 141 when what runs inside prints and nobody reads it any more."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Watched(stream)) for stream in streams)
    try:
        yield
    finally:
        try:
            with suppress(OSError):  # a full disk: Python meets it again when it exits, and says so
                sys.stdout.flush()
        finally:
            sys.stdout, sys.stderr = streams


class _Watched:
    """A text stream; writing to a closed pipe ends the process, before any library has a status of its own for it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Characters written."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._end()

    def flush(self) -> None:
        """Writes out what is waiting."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._end()

    def _end(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # what is waiting has to go somewhere
        raise SystemExit(READER_LEFT)

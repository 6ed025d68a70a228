"""The bytes of a file of requests, from a path or standard input, unpacked, a block of whole lines at a time.

A file may be larger than memory: no more than a block or two is held. What the lines say is left to others.
"""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from sweep.errors import TraceError

Progress = Callable[[int, int | None], None]  # bytes of the file read so far, and its size where that is known

BLOCK_BYTES = 4 * 2**20  # larger ones are no faster and take more memory, some 15 bytes for each
LONGEST_RECORD_BYTES = 64 * 2**20
BOM = b"\xef\xbb\xbf"

_GZIP = b"\x1f\x8b"
_NO_TEXT = {  # what files that are no text start with
    b"\x1f\x8b": "packed by gzip twice",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ\x00": "packed by xz",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


class Source(NamedTuple):
    """An opened file: its name for messages, whether it is packed, its first bytes, and what follows them."""

    name: str
    path: Path | None
    gzipped: bool
    head: bytes
    rest: BinaryIO


class Block(NamedTuple):
    """Whole lines, and the number of the first of them in the file, from 1."""

    line: int
    data: bytes


@contextmanager
def open_source(path: str | Path, progress: Progress | None = None) -> Iterator[Source]:
    """The file, unpacked where it is packed by gzip, "-" being standard input. Raises TraceError."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        stream = sys.stdin.buffer if str(path) == "-" else Path(path).open("rb")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:
        raise TraceError(f"{name}: cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    with _closing(stream):
        counted = io.BufferedReader(_Counted(stream, progress), 2**18)
        with _readable(name):
            gzipped = counted.peek(2)[:2] == _GZIP
        unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=counted) if gzipped else counted)
        with _readable(name):
            head = unpacked.read(BLOCK_BYTES)
        if not head:
            raise TraceError(f"{name}: the file is empty")
        yield Source(name, None if str(path) == "-" else Path(path), gzipped, head, unpacked)


def check_text(source: Source) -> None:
    """Raises TraceError for a file that starts as no text does, and says what it is where that is known."""
    for start, what in _NO_TEXT.items():
        if source.head.startswith(start):
            raise TraceError(f"{source.name}: {what}; give it as text in UTF-8, plain or packed once by gzip")
    if b"\0" in source.head[:4096]:
        raise TraceError(f"{source.name}: neither text nor Parquet; expected CSV, JSON lines or Parquet")


def start_of_text(source: Source) -> bytes:
    """The first bytes without a byte-order mark and blank lines."""
    return source.head.removeprefix(BOM).lstrip()


def blocks(source: Source, *, quoted: bool) -> Iterator[Block]:
    """The file from its start in whole lines; with `quoted`, a line end within quotation marks ends no line."""
    line, pending, more = 1, source.head.removeprefix(BOM), True
    while pending:
        with _readable(source.name):
            read = source.rest.read(BLOCK_BYTES) if more else b""
        more = bool(read)
        end = _end_of_lines(pending, quoted) if more else len(pending)
        if end:
            yield Block(line, pending[:end])
            line += pending.count(b"\n", 0, end)
        elif len(pending) > LONGEST_RECORD_BYTES:
            raise TraceError(
                f"{source.name}: line {line}: no end in {len(pending)} bytes; is a quotation mark left open?"
            )
        pending = pending[end:] + read


def whole(source: Source) -> bytes:
    """All bytes of the file."""
    with _readable(source.name):
        return source.head + source.rest.read()


def _end_of_lines(data: bytes, quoted: bool) -> int:
    """Where the last line ends that leaves no quotation mark open; 0 if there is none."""
    end = data.rfind(b"\n") + 1
    marks = data.count(b'"', 0, end) if quoted else 0
    while end and marks % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        marks -= data.count(b'"', before, end)
        end = before
    return end


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise TraceError(f"{name}: the gzip data end too early; the file is cut short, so fetch it again") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{name}: the gzip data are damaged: {error}") from None
    except OSError as error:
        raise TraceError(f"{name}: cannot be read: {error.strerror or error}") from None


@contextmanager
def _closing(stream: BinaryIO) -> Iterator[None]:
    """Closes a file at the end, but not standard input, which is not ours."""
    try:
        yield
    finally:
        if stream is not sys.stdin.buffer:
            stream.close()


class _Counted(io.RawIOBase):
    """A stream that says how far it is."""

    def __init__(self, stream: BinaryIO, progress: Progress | None) -> None:
        self._stream, self._progress, self._done = stream, progress, 0
        try:
            self._size = os.fstat(stream.fileno()).st_size or None
        except (OSError, ValueError):
            self._size = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._done += len(data)
        if self._progress and data:
            self._progress(self._done, self._size)
        return len(data)

"""The requests of a trace as text and back, so that a study holds the rows that it draws from, and when they came.

Text, since a study is TOML and its manifest JSON; packed, since a list of 20,000 rows would bury the rest. Times are a
text of their own: a study that does not ask for them does not keep them.
"""

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError

I64: TypeAlias = NDArray[np.int64]
F64: TypeAlias = NDArray[np.float64]

MOST_ROWS = 2**20  # a few MB of text

_NS = 10**9  # in a second
_NOT_WRITTEN = "is not what was written; take it out, and the file is read again"


@dataclass(frozen=True, eq=False)  # equal only to itself: arrays have no equality of their own
class Requests:
    """Prompt and output tokens of requests in the order of their file, (rows,) each, read-only."""

    prompt_tokens: I64
    output_tokens: I64

    def digest(self) -> str:
        """SHA-256 of the lengths."""
        both = np.stack([self.prompt_tokens, self.output_tokens]).astype("<i8")
        return hashlib.sha256(both.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Moments:
    """When at least two requests came: seconds since the first, (rows,), never falling, the last above 0, read-only."""

    seconds: F64

    def rate_per_s(self) -> float:
        """Gaps over the time they take."""
        return (len(self.seconds) - 1) / float(self.seconds[-1])

    def gap_cv(self) -> float:
        """Standard deviation / mean of the gaps."""
        gaps = np.diff(self.seconds)
        return float(gaps.std() / gaps.mean())

    def gap_ns(self) -> F64:
        """From the request before to each, (rows,); the first comes one mean gap after the last, as if all began again.

        Whole numbers, whose sums are exact up to 104 days.
        """
        ns = np.rint(self.seconds * _NS)
        return np.diff(ns, prepend=-np.rint(ns[-1] / (len(ns) - 1)))

    def digest(self) -> str:
        """SHA-256 of the times."""
        return hashlib.sha256(self.seconds.astype("<f8").tobytes()).hexdigest()


def packed(prompt_tokens: NDArray[np.integer], output_tokens: NDArray[np.integer]) -> str:
    """The requests as text. Bytes of equal weight stand together, which is what packs well."""
    words = np.stack([prompt_tokens, output_tokens]).astype("<u4")
    planes = words.view(np.uint8).reshape(2, -1, 4).transpose(0, 2, 1)
    return _text(planes)


@lru_cache(maxsize=16)
def unpacked(text: str) -> Requests:
    """The requests of a text, the same object for the same text. Raises InputError for a text that is none."""
    planes = _planes(text, (2, 4, -1))
    words = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u4")[..., 0].astype(np.int64)
    words.flags.writeable = False
    if not words.size:
        raise InputError("has no requests")
    return Requests(words[0], words[1])


def packed_times(seconds: F64) -> str:
    """Times from 0 on as text: the largest unit that all gaps are multiples of, in nanoseconds, then the gaps in it."""
    whole = np.floor(seconds)
    gaps = np.diff(whole.astype(np.int64) * _NS + np.rint((seconds - whole) * _NS).astype(np.int64))
    unit = max(int(np.gcd.reduce(gaps)), 1)
    words = np.concatenate([[unit], gaps // unit]).astype("<u8")
    return _text(words.view(np.uint8).reshape(-1, 8).T)


@lru_cache(maxsize=16)
def unpacked_times(text: str) -> Moments:
    """The times of a text, the same object for the same text. Raises InputError for a text that is none."""
    words = np.ascontiguousarray(_planes(text, (8, -1)).T).view("<u8")[..., 0]
    if len(words) < 2 or not 0 < float(words[0]) * words[1:].sum(dtype=np.float64) < 2**63:
        raise InputError(_NOT_WRITTEN)
    ns = np.cumsum(words[1:].astype(np.int64)) * int(words[0])
    return moments_of((0.0, *(ns / _NS).tolist()))


@lru_cache(maxsize=16)
def moments_of(times_s: tuple[float, ...]) -> Moments:
    """The same object for the same times, which need not start at 0."""
    seconds = np.array(times_s) - times_s[0]
    seconds.flags.writeable = False
    return Moments(seconds)


def _text(planes: NDArray[np.uint8]) -> str:
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def _planes(text: str, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), np.uint8).reshape(shape)
    except (ValueError, binascii.Error, zlib.error):
        raise InputError(_NOT_WRITTEN) from None

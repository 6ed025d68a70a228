"""The requests of a trace as one line of text and back, so that a study holds the rows that it draws from.

Text, since a study is TOML and its manifest JSON; packed, since a list of 20,000 rows would bury the rest.
"""

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError

I64: TypeAlias = NDArray[np.int64]

MOST_ROWS = 2**20  # a few MB of text


@dataclass(frozen=True, eq=False)  # equal only to itself: arrays have no equality of their own
class Requests:
    """Prompt and output tokens of requests in the order of their file, (rows,) each, read-only."""

    prompt_tokens: I64
    output_tokens: I64

    def digest(self) -> str:
        """SHA-256 of the lengths."""
        both = np.stack([self.prompt_tokens, self.output_tokens]).astype("<i8")
        return hashlib.sha256(both.tobytes()).hexdigest()


def packed(prompt_tokens: NDArray[np.integer], output_tokens: NDArray[np.integer]) -> str:
    """The requests as text. Bytes of equal weight stand together, which is what packs well."""
    words = np.stack([prompt_tokens, output_tokens]).astype("<u4")
    planes = words.view(np.uint8).reshape(2, -1, 4).transpose(0, 2, 1)
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


@lru_cache(maxsize=16)
def unpacked(text: str) -> Requests:
    """The requests of a text, the same object for the same text. Raises InputError for a text that is none."""
    try:
        data = zlib.decompress(base64.b64decode(text, validate=True))
        planes = np.frombuffer(data, np.uint8).reshape(2, 4, -1)
    except (ValueError, binascii.Error, zlib.error):
        raise InputError("is not what was written; take it out, and the file is read again") from None
    words = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u4")[..., 0].astype(np.int64)
    words.flags.writeable = False
    if not words.size:
        raise InputError("has no requests")
    return Requests(words[0], words[1])

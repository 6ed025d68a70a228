"""The lane kernel in C++, compiled here, where a compiler is: `lanes.cpp` with the look-up table of the project."""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sweep.model import lockstep
from sweep.model.lengths import LookUp

SOURCE = Path(__file__).with_name("lanes.cpp")
FLAGS = ("-O3", "-march=native")


def compiler() -> str | None:
    """The C++ compiler that there is."""
    return shutil.which("g++") or shutil.which("clang++")


def drawn_steps(look_up: LookUp, seed: int, first: int, count: int, requests: int, slots: Sequence[int]) -> Any:
    """What `lockstep.drawn_steps` gives, for servers with a queue whose times fit 16 bits, from the C++ twin."""
    table = lockstep._tables(look_up, np.uint16)
    assert lockstep._lane_type(int(look_up.values[-1]), requests, slots) == (np.uint16, 64)
    assert all(places < requests for places in slots)
    servers = np.array(slots, np.uint64)
    steps = lockstep.Steps(
        *(np.empty(count, np.int64) for _ in range(2)), *(np.empty((len(slots), count), np.int64) for _ in range(2))
    )
    numbers = (ctypes.c_uint64(number) for number in (first, count, requests))
    arrays = (_pointer(array) for array in (table.direct, table.guide, table.last_word, table.values, servers))
    _library().drawn(
        ctypes.c_uint32(seed & 0xFFFFFFFF),
        ctypes.c_uint32(seed >> 32),
        *numbers,
        *arrays,
        ctypes.c_uint64(len(slots)),
        *map(_pointer, steps),
    )
    return steps


def _pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@cache
def _library() -> ctypes.CDLL:
    found = compiler()
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "lanes.so"
        subprocess.run([found, *FLAGS, "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))

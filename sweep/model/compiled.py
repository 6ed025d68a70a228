"""Functions as machine code, kept on disk where that can be done, and never at the price of a wrong or a broken run.

numba keeps code by itself, but stops at an index that was cut short, trusts the bytes it finds, and lets two processes
that start cold at the same time give one file two contents. Here a file carries its checksum and the processor it is
for, and what does not fit, these or the types, is compiled again. numba also looks at changes in a kernel's own file
only; here a kernel is compiled again when one that it calls, or a number that any of them names, has changed in another
file. Where nothing can be written, nothing is kept, and `notes` says why.
"""

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numba.core import caching, sigutils
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

F = TypeVar("F", bound=Callable[..., Any])

_NOTES: dict[str, None] = {}  # in the order in which they came up, each once in a process
_COSTS = "so every process compiles anew, some 10 s; set NUMBA_CACHE_DIR to a folder that can be written"


def kernel(function: F) -> F:
    """The function compiled at its first call, kept on disk where it can be, and free of the interpreter's lock."""
    compiled: Any = njit(nogil=True)(function)
    try:
        compiled._cache = _Kept(function)
    except (RuntimeError, OSError):  # numba found no folder to write in
        _NOTES[f"compiled code cannot be kept: no folder for it can be written, {_COSTS}"] = None
    return cast(F, compiled)


def notes() -> list[str]:
    """What is to be said of compiled code that could not be kept; each line is given out once."""
    said = list(_NOTES)
    _NOTES.clear()
    return said


class _Checked(caching.CompileResultCacheImpl):
    """Code as bytes with their checksum and the processor they are for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if Path(os.path.expanduser("~")) == Path("~"):  # noqa: PTH111 - Path raises where there is no home
            self._locator_classes = [cls for cls in self._locator_classes if cls is not caching.UserWideCacheLocator]
        super().__init__(function)

    def reduce(self, result: Any) -> tuple[bytes, bytes]:
        processor = result.target_context.codegen().magic_tuple()
        data = dumps((processor, super().reduce(result)))
        return hashlib.sha256(data).digest(), data

    def rebuild(self, target_context: Any, kept: tuple[bytes, bytes]) -> Any:
        digest, data = kept
        if hashlib.sha256(data).digest() != digest:
            raise ValueError("compiled code is damaged")
        processor, reduced = pickle.loads(data)
        if processor != target_context.codegen().magic_tuple():
            raise ValueError("compiled code is for another processor")
        return super().rebuild(target_context, reduced)


class _Kept(caching.FunctionCache):
    """The code of one function on disk; whatever is wrong with it, it is as if it were not there."""

    _impl_class = _Checked

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _digest(self._py_func))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            result = super().load_overload(sig, target_context)
        except Exception:  # any error at all can come of unpickling what is damaged
            with suppress(OSError):
                self.flush()
            return None
        fits = result is None or tuple(result.signature.args) == tuple(sigutils.normalize_signature(sig)[0])
        return result if fits else None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            reason = getattr(error, "strerror", None) or error
            _NOTES[f"compiled code cannot be kept in {self.cache_path}: {reason}, {_COSTS}"] = None


def _digest(function: Callable[..., Any]) -> str:
    """SHA-256 of a kernel and of all that it calls, with the numbers that they name; all are defined by its first call.

    Arrays that are named, and what is not a number, do not count.
    """
    reached: dict[tuple[str, str], tuple[Any, ...]] = {}
    todo = [function]
    while todo:
        one = todo.pop()
        place, code = (one.__module__, one.__qualname__), one.__code__
        if place in reached:
            continue
        named = {name: one.__globals__.get(name) for name in code.co_names}
        numbers = [(name, repr(value)) for name, value in named.items() if isinstance(value, int | float | np.generic)]
        constants = [getattr(value, "co_code", value) for value in code.co_consts]  # a nested code has no fixed text
        reached[place] = code.co_code, constants, code.co_names, numbers
        todo += [value.py_func for value in named.values() if isinstance(value, Dispatcher)]
    return hashlib.sha256(repr(sorted(reached.items())).encode()).hexdigest()

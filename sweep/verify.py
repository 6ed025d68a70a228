"""Whether a folder's shards are what its study gives: a random sample is simulated again and compared byte by byte."""

import hashlib
import io
import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from sweep.errors import FolderError
from sweep.executors.machine import usable_cores
from sweep.grid import Chunk, Point, points
from sweep.manifest import versions
from sweep.results import Store
from sweep.runner import simulate
from sweep.shards import Span
from sweep.study import read_study


class Verification(NamedTuple):
    """Of how many shards how many were simulated again, by which seed they were chosen, and what differed."""

    shards: int
    sample: int
    seed: int
    equal: int  # byte by byte
    equal_rows: int  # written by other versions, whose bytes may differ
    differences: tuple[str, ...]


def verify(store: Store, sample: int, seed: int | None = None) -> Verification:
    """Simulates `sample` shards again, chosen at random, and compares them with those that are there.

    Raises FolderError where the folder's study.toml is not the study of its shards, StudyError where it is none.
    """
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    cells = _points(store)
    have = sorted(store.have())
    chosen = sorted(random.Random(seed).sample(have, min(sample, len(have))))
    with ThreadPoolExecutor(usable_cores()) as pool:
        found = list(pool.map(partial(_compare, store, cells), chosen))
    differences = tuple(text for _, texts in found for text in texts)
    kinds = [kind for kind, _ in found]
    return Verification(len(have), len(chosen), seed, kinds.count("bytes"), kinds.count("rows"), differences)


def text(found: Verification) -> str:
    """The verification in a line, and a line for each difference."""
    rows = f", {found.equal_rows:,} in every row though other versions wrote them" if found.equal_rows else ""
    head = (
        f"{found.sample:,} of {found.shards:,} shards simulated again (--seed {found.seed}): "
        f"{found.equal:,} equal byte by byte{rows}, {len(found.differences):,} different"
    )
    return "\n".join([head, *found.differences])


def _points(store: Store) -> Mapping[int, Point]:
    path = store.folder / "study.toml"
    cells = points(read_study(path))
    if cells[0].study != store.manifest["hash"]:
        raise FolderError(f"{path}: is not the study of the shards beside it; it was changed since they were simulated")
    return {point.index: point for point in cells}


def _compare(store: Store, cells: Mapping[int, Point], span: Span) -> tuple[str, tuple[str, ...]]:
    """How a shard agrees with its chunk simulated again, "bytes", "rows" or "", and in which words it does not."""
    path = store.path_of(span)
    kept = path.read_bytes()
    again = simulate(Chunk(cells[span.point], span.first, span.stop), store.keeps)
    if hashlib.sha256(kept).digest() == hashlib.sha256(again).digest():
        return "bytes", ()
    differing = list(_differing(pl.read_parquet(kept), pl.read_parquet(again)))
    written_by = json.loads(pl.read_parquet_metadata(io.BytesIO(kept)).get("sweep.versions", "null"))
    if not differing and written_by != versions():
        return "rows", ()
    return "", (f"{path}: {'; '.join(differing) or 'the same rows in other bytes'}",)


def _differing(kept: pl.DataFrame, again: pl.DataFrame) -> Iterator[str]:
    if kept.schema != again.schema or kept.height != again.height:
        yield f"{kept.height:,} rows of {kept.width} columns, simulated again {again.height:,} of {again.width}"
        return
    for name in kept.columns:
        places = kept[name].ne_missing(again[name]).arg_true()
        if len(places):
            yield _first(kept, again, name, places[0], len(places))


def _first(kept: pl.DataFrame, again: pl.DataFrame, name: str, place: int, count: int) -> str:
    at: dict[str, Any] = {key: kept[key][place] for key in ("cell", "replicate") if key in kept.columns}
    where = ", ".join(f"{key} {value}" for key, value in at.items())
    return f"{name} differs in {count:,} rows, first at {where}: {kept[name][place]}, again {again[name][place]}"

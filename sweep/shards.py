"""One shard: the columns that it has, its bytes, and the file that says by itself whose it is and whether it is whole.

Its name carries its span and the start of its checksum, its metadata say of which study it is and how many cells it
has. The folder that shards are in, and which of them count, is up to `results`; what a row means to `study.schema`.
"""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from sweep.metrics import ALWAYS, COUNTS

FOLDERS = {"rows": "replicates", "summary": "summaries"}  # where the shards are, by what is kept
_SHARD = re.compile(r"p([0-9]{5,10})-([0-9]{12})-([0-9]{12})-([0-9a-f]{16})\.parquet")


class Span(NamedTuple):
    """Replicates `first` up to `stop` (not included) of one point, for all its cells: what one shard holds."""

    point: int
    first: int
    stop: int


def metrics(measure: Sequence[str]) -> tuple[str, ...]:
    """Names of the metric columns of a folder, in order: the six of every study, then what its `measure` asks for."""
    return (*ALWAYS, *(name for name in measure if name not in ALWAYS))


def schema(measure: Sequence[str]) -> dict[str, pl.DataType]:
    """Columns of every shard of a folder, in order: counts are Int64, the rest Float64, undefined is null."""
    kinds = {name: pl.Int64() if name in COUNTS else pl.Float64() for name in metrics(measure)}
    return {"cell": pl.Int64(), "replicate": pl.Int64(), **kinds}


def to_parquet(columns: Mapping[str, np.ndarray[Any, Any]], measure: Sequence[str], metadata: dict[str, str]) -> bytes:
    """Bytes of a shard with these columns, each (rows,), sorted by cell and replicate; nan becomes null."""
    frame = pl.DataFrame({name: columns[name] for name in schema(measure)}, schema=schema(measure), nan_to_null=True)
    return shard_bytes(frame, metadata)


def shard_bytes(frame: pl.DataFrame, metadata: dict[str, str]) -> bytes:
    """Bytes of a shard: the frame with the metadata that say where it belongs."""
    sink = io.BytesIO()
    frame.write_parquet(sink, compression="zstd", compression_level=1, metadata=metadata)
    return sink.getvalue()


def span_of(entry: Mapping[str, Any]) -> Span:
    """What the shard of an entry of the manifest holds."""
    return Span(entry["point"], entry["first"], entry["stop"])


def shard_name(span: Span, digest: str) -> str:
    """The file name of a shard with this checksum."""
    return f"p{span.point:05d}-{span.first:012d}-{span.stop:012d}-{digest[:16]}.parquet"


def is_whole(folder: Path, shards: str, entry: Mapping[str, Any]) -> bool:
    """Whether the shard is where its span says, with the bytes that were entered. A strange name is never opened."""
    if entry["file"] != f"{shards}/{shard_name(span_of(entry), entry['sha256'])}":
        return False
    return bool(_digest(folder / entry["file"]) == entry["sha256"])


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is a shard, or says that it is."""
    return _SHARD.fullmatch(name) is not None


def shard_files(folder: Path, shards: str) -> list[Path]:
    """The files in a folder that are shards by their names, in order; none where it cannot be read."""
    try:
        return sorted(path for path in (folder / shards).iterdir() if is_shard_name(path.name))
    except OSError:
        return []


def self_described(path: Path) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The entry and the metadata of a shard whose bytes are those its name speaks of; else None, and it is not read."""
    point, first, stop, start = _SHARD.fullmatch(path.name).groups()  # type: ignore[union-attr]
    digest = _digest(path)
    if digest is None or not digest.startswith(start):
        return None
    span = Span(int(point), int(first), int(stop))
    return {**span._asdict(), "bytes": path.stat().st_size, "sha256": digest}, pl.read_parquet_metadata(path)

"""A results folder, the waist of the project: simulation writes it, analysis reads it, and neither knows the other.

    study.toml  manifest.json  replicates/*.parquet  cells.parquet  report.html  charts/

A shard holds the rows of one chunk. It is written beside its name, flushed to disk and renamed, and only then entered
in the manifest with its checksum, so a run that is killed loses what was in flight and nothing else. What a row means
is in `schema`; what a cell, a point and a claim are is in the manifest, so a report needs nothing but the folder.
"""

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from filelock import FileLock, Timeout

from sweep.errors import FolderError

FORMAT = 1
COUNTS = ("output_tokens", "static_steps", "continuous_steps", "longest_output_tokens")
METRICS = (
    "output_tokens",
    "static_steps",
    "continuous_steps",
    "multiple",
    "static_utilisation",
    "continuous_utilisation",
)
_ABSENT = object()
_SHAPE = {"hash": str, "title": str, "depends": dict}
_SHAPE |= dict.fromkeys(("measure", "axes", "points", "cells", "claims", "shards"), list)
_ENTRY = {"file": str, "point": int, "first": int, "stop": int, "sha256": str}
_SHARD_NAME = re.compile(r"replicates/p(\d{5,})-(\d{12})-(\d{12})\.parquet")


class Span(NamedTuple):
    """Replicates `first` up to `stop` (not included) of one point, for all its cells: what one shard holds."""

    point: int
    first: int
    stop: int


def metrics(measure: Sequence[str]) -> tuple[str, ...]:
    """Names of the metric columns of a folder, in order: the six of every study, then what its `measure` asks for."""
    return (*METRICS, *(name for name in measure if name not in METRICS))


def schema(measure: Sequence[str]) -> dict[str, pl.DataType]:
    """Columns of every shard of a folder, in order: counts are Int64, the rest Float64, undefined is null."""
    kinds = {name: pl.Int64() if name in COUNTS else pl.Float64() for name in metrics(measure)}
    return {"cell": pl.Int64(), "replicate": pl.Int64(), **kinds}


def to_parquet(columns: Mapping[str, np.ndarray[Any, Any]], measure: Sequence[str], metadata: dict[str, str]) -> bytes:
    """Bytes of a shard with these columns, each (rows,), sorted by cell and replicate; nan becomes null."""
    frame = pl.DataFrame({name: columns[name] for name in schema(measure)}, schema=schema(measure), nan_to_null=True)
    sink = io.BytesIO()
    frame.write_parquet(sink, compression="zstd", compression_level=1, metadata=metadata)
    return sink.getvalue()


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


class Store:
    """One results folder. `Store.open` reads it; `Store.writing` also locks it and accepts shards."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.damaged: list[str] = []
        self._spans: dict[Span, dict[str, Any]] = {}
        self._entered_at = -np.inf
        self._entering_s = 0.0
        for entry in manifest["shards"]:
            span = Span(entry["point"], entry["first"], entry["stop"])
            if _is_whole(folder, entry, span):
                self._spans[span] = entry
            else:
                self.damaged.append(str(entry["file"]))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The folder as it is. Raises FolderError where there is none, or one of another format."""
        return cls(Path(folder), _read_manifest(Path(folder)))

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, manifest: dict[str, Any], source: str, *, fresh: bool = False) -> Iterator[Self]:
        """The folder, locked, with the shards it has of this very study; `fresh` drops them first.

        Raises FolderError where another run writes here, or where the folder holds a different study.
        """
        try:
            (folder / "replicates").mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / ".lock")
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderError(f"{folder}: another run is writing here; wait for it, or choose another -o") from None
        except OSError as error:
            raise FolderError(f"{folder}: cannot be written: {error.strerror or error}") from error
        try:
            if fresh:
                _clear(folder)
            elif (folder / "manifest.json").exists():
                before = _read_manifest(folder)
                _refuse_another_study(folder, before, manifest)
                manifest = {**manifest, "shards": before["shards"]}
            store = cls(folder, manifest)
            write_whole(folder / "study.toml", source.encode())
            store.enter()
            yield store
            store.enter()
        finally:
            lock.release()

    def resolved(self) -> dict[str, Any]:
        """The manifest: the study as it was resolved, its points, cells and claims, and the shards there are."""
        return self.manifest

    def have(self) -> frozenset[Span]:
        """The spans of replicates whose shards are here, whole and with the checksum that they were entered with."""
        return frozenset(self._spans)

    def put(self, span: Span, payload: bytes) -> None:
        """Keeps the shard of a span, in place of any shard that it overlaps (the partial one of a shorter run)."""
        name = _name(span)
        write_whole(self.folder / name, payload)
        replaced = [old for old in self._spans if old.point == span.point and span.first <= old.first < span.stop]
        for old in replaced:
            del self._spans[old]
        digest = hashlib.sha256(payload).hexdigest()
        self._spans[span] = {"file": name, **span._asdict(), "bytes": len(payload), "sha256": digest}
        if not replaced:
            self._enter_now_and_then()
            return
        self.enter()  # before the old file goes: what the manifest names is always there
        for old in replaced:
            if old != span:
                (self.folder / _name(old)).unlink(missing_ok=True)

    def enter(self) -> None:
        """Writes the manifest with all shards there are."""
        started = time.monotonic()
        self.manifest["shards"] = [self._spans[span] for span in sorted(self._spans)]
        write_whole(self.folder / "manifest.json", json.dumps(self.manifest, indent=1, ensure_ascii=False).encode())
        self._entered_at = time.monotonic()
        self._entering_s = self._entered_at - started

    def _enter_now_and_then(self) -> None:
        """Enters at once while the manifest is small; with many thousand shards, at most a tenth of the time."""
        if time.monotonic() - self._entered_at >= 10 * self._entering_s:
            self.enter()

    def shards_of(self, point: int) -> list[Path]:
        """The point's shards in order of replicates."""
        return [self.folder / self._spans[span]["file"] for span in sorted(self._spans) if span.point == point]

    def rows(self) -> pl.LazyFrame:
        """All rows of the folder, sorted by cell and replicate."""
        frames = [self._scan(point["point"]) for point in self.manifest["points"]]
        return pl.concat(frames).sort("cell", "replicate")

    def point_rows(self, point: int, columns: Sequence[str]) -> pl.DataFrame:
        """Rows of one point with `cell`, `replicate` and these columns, sorted by cell and replicate."""
        return self._scan(point).select("cell", "replicate", *columns).sort("cell", "replicate").collect()

    def _scan(self, point: int) -> pl.LazyFrame:
        shards = self.shards_of(point)
        if not shards:
            return pl.LazyFrame(schema=schema(self.manifest["measure"]))
        wanted = self.manifest["points"][point]["replicates"]
        return pl.scan_parquet(shards).filter(pl.col("replicate") < wanted)


def _name(span: Span) -> str:
    return f"replicates/p{span.point:05d}-{span.first:012d}-{span.stop:012d}.parquet"


def _is_whole(folder: Path, entry: dict[str, Any], span: Span) -> bool:
    """Whether the shard is where its span says, with the bytes that were entered. A strange name is never opened."""
    if entry["file"] != _name(span):
        return False
    try:
        with (folder / entry["file"]).open("rb") as file:
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"])
    except OSError:
        return False


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror or error}; is {folder} a results folder?") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: is damaged ({error}); run the study with --fresh") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise FolderError(f"{path}: format {found!r}, while this version reads {FORMAT}; use --fresh or another -o")
    for key, kind in _SHAPE.items():
        if not isinstance(manifest.get(key), kind):
            raise FolderError(f"{path}: is damaged ({key} is not what it should be); run the study with --fresh")
    for entry in manifest["shards"]:
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), kind) for key, kind in _ENTRY.items()):
            raise FolderError(f"{path}: is damaged (an entry of a shard is not whole); run the study with --fresh")
    return manifest


def _refuse_another_study(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    old, new = dict(_flat(before["depends"])), dict(_flat(now["depends"]))
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    if differing:
        changed = [f"  {key}: {_shown(old, key)} there, {_shown(new, key)} now" for key in differing]
        raise FolderError(
            f"{folder}: holds another study; use --fresh to drop it, or another -o. It differs in", *changed
        )


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of plain data, so that two studies can be compared key by key."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _shown(flat: dict[str, Any], key: str) -> str:
    return json.dumps(flat[key], ensure_ascii=True)[:80] if key in flat else "absent"


def _clear(folder: Path) -> None:
    """Drops what a run made, and nothing else that may lie in the folder."""
    for shard in (folder / "replicates").iterdir():
        if _SHARD_NAME.fullmatch(f"replicates/{shard.name}"):
            shard.unlink()
    for name in ("manifest.json", "cells.parquet", "report.html"):
        (folder / name).unlink(missing_ok=True)

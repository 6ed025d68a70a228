"""A results folder, the waist of the project: simulation writes it, analysis reads it, and neither knows the other.

    study.toml  manifest.json  replicates/*.parquet  cells.parquet  report.html  charts/

A shard holds the rows of one chunk, or their sums in summaries/. It is written whole or not at all (`writing`) and says
by itself whose it is (`shards`). So a run that is killed loses what was in flight and nothing else: what the manifest
does not name yet, or no longer, is found by itself. What a cell, a point and a claim are is in the manifest (`record`).
"""

import hashlib
import os
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from sweep.errors import FolderError
from sweep.record import NAME, DamagedManifestError, manifest_bytes, read_manifest, refuse_another_study
from sweep.shards import (
    FOLDERS,
    Span,
    is_shard_name,
    is_whole,
    schema,
    self_described,
    shard_files,
    shard_name,
    span_of,
)
from sweep.writing import lock_file, locked, said, write_whole

ENTER_EVERY_S = 0.5  # at least, between two writings of the manifest while shards come in


class Store:
    """One results folder. `Store.open` reads it; `Store.writing` also locks it and accepts shards.

    damaged : the files that are not what was written, by name; they are simulated again by the next run.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.damaged: list[str] = []
        self._by_point: defaultdict[int, dict[int, dict[str, Any]]] = defaultdict(dict)  # first replicate -> entry
        self._firsts: defaultdict[int, list[int]] = defaultdict(list)  # the same, sorted
        self._lock: os.stat_result | None = None
        self._entered_at = -np.inf
        self._entering_s = 0.0
        self._read_entries(manifest["shards"])
        self._adopt()

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The folder as it is. Raises FolderError where there is none, or one of another format."""
        return cls(Path(folder), read_manifest(Path(folder)))

    @classmethod
    @contextmanager
    def writing(cls, folder: Path, manifest: dict[str, Any], source: str, *, fresh: bool = False) -> Iterator[Self]:
        """The folder, locked, with the shards it has of this very study; `fresh` drops them first.

        Raises FolderError where another run writes here, or where the folder holds a different study.
        """
        lock = locked(folder, FOLDERS[manifest.get("keep", "rows")])
        try:
            with said(folder):
                if fresh:
                    _clear(folder)
                store = cls(folder, {**manifest, "failures": [], "shards": _shards_before(folder, manifest)})
                store._lock = lock_file(folder).stat()
                store._sweep_up()
                write_whole(folder / "study.toml", source.encode())
                store.enter()
            yield store
            store._forget_damaged()
            store.enter()
        finally:
            lock.release()

    def resolved(self) -> dict[str, Any]:
        """The manifest: the study as it was resolved, its points, cells and claims, and the shards there are."""
        return self.manifest

    def have(self) -> frozenset[Span]:
        """The spans of replicates whose shards are here, whole and with every cell that can run."""
        return frozenset(span_of(entry) for entry in self._entries() if not entry.get("partial"))

    def put(self, span: Span, payload: bytes, *, partial: bool = False) -> None:
        """Keeps the shard of a span, in place of any shard that it overlaps (such as that of a shorter run).

        partial : a cell is missing from it, so the next run simulates it again.
        """
        self._refuse_another_owner()
        digest = hashlib.sha256(payload).hexdigest()
        name = f"{self._shards}/{shard_name(span, digest)}"
        write_whole(self.folder / name, payload)
        replaced = self._overlapped(span)
        entry = {"file": name, **span._asdict(), "bytes": len(payload), "sha256": digest}
        self._keep({**entry, "partial": True} if partial else entry)
        self.damaged = [file for file in self.damaged if file != name]
        gone = [old["file"] for old in replaced if old["file"] != name]
        if gone:
            self.enter()  # before the old file goes: what the manifest names is always there
            for file in gone:
                (self.folder / file).unlink(missing_ok=True)
        else:
            self._enter_now_and_then()

    def fail(self, span: Span, cell: int, reason: str) -> None:
        """Notes that a cell has no rows for a span, and why; once for each cell and reason, with the chunks it met.

        Whichever comes back first, the first of the replicates are named.
        """
        for known in self.manifest["failures"]:
            if (known["cell"], known["error"]) == (cell, reason):
                known["chunks"] += 1
                if span.first < known["first"]:
                    known |= {"first": span.first, "stop": span.stop}
                return
        at = {"point": span.point, "first": span.first, "stop": span.stop}
        self.manifest["failures"].append({"cell": cell, "error": reason, "chunks": 1, **at})

    def failed(self) -> dict[int, str]:
        """Why cells lack rows that were asked for, by cell; all they have is left out of estimates and verdicts."""
        reasons: dict[int, str] = {}
        for failure in sorted(self.manifest.get("failures", ()), key=lambda failure: failure["first"]):
            others = failure["chunks"] - 1
            more = f" and {others:,} chunk{'' if others == 1 else 's'} more" if others else ""
            where = f"replicates {failure['first']:,} to {failure['stop'] - 1:,}{more}"
            reasons.setdefault(failure["cell"], f"{failure['error']} ({where})")
        return reasons

    def enter(self) -> None:
        """Writes the manifest with all whole shards there are."""
        self._refuse_another_owner()
        started = time.monotonic()
        self.manifest["shards"] = sorted(self._entries(), key=span_of)
        write_whole(self.folder / NAME, manifest_bytes(self.manifest))
        self._entered_at = time.monotonic()
        self._entering_s = self._entered_at - started

    def _enter_now_and_then(self) -> None:
        """Enters now and then, for at most a twentieth of the time: a shard that is not entered is found by itself."""
        if time.monotonic() - self._entered_at >= max(ENTER_EVERY_S, 20 * self._entering_s):
            self.enter()

    def shards_of(self, point: int) -> list[Path]:
        """The point's shards in order of replicates."""
        return [self.folder / self._by_point[point][first]["file"] for first in self._firsts[point]]

    def path_of(self, span: Span) -> Path:
        """The shard of a span that is here."""
        return self.folder / str(self._by_point[span.point][span.first]["file"])

    def spans_of(self, point: int) -> list[Span]:
        """What the point's shards hold, in order of replicates, those that lack a cell included."""
        return [span_of(self._by_point[point][first]) for first in self._firsts[point]]

    def rows(self) -> pl.LazyFrame:
        """All rows of the folder, sorted by cell and replicate. Raises FolderError where only sums were kept."""
        frames = [self._scan(point["point"]) for point in self.manifest["points"]]
        return pl.concat(frames).sort("cell", "replicate")

    def point_rows(self, point: int, columns: Sequence[str]) -> pl.DataFrame:
        """Rows of one point with `cell`, `replicate` and these columns, sorted by cell and replicate."""
        frame = self._scan(point).select("cell", "replicate", *columns).collect()
        # Each shard is sorted and they come in order of replicates, so at most a stable sort by cell is left to do.
        return frame if frame["cell"].is_sorted() else frame.sort("cell", maintain_order=True)

    def _scan(self, point: int) -> pl.LazyFrame:
        if self.keeps == "summary":
            raise FolderError(f"{self.folder}: holds sums and no rows; run the study into another folder to keep rows")
        shards = self.shards_of(point)
        if not shards:
            return pl.LazyFrame(schema=schema(self.manifest["measure"]))
        wanted = self.manifest["points"][point]["replicates"]
        return pl.scan_parquet(shards, glob=False).filter(pl.col("replicate") < wanted)

    @property
    def keeps(self) -> str:
        """What the shards hold: rows, or summary."""
        return str(self.manifest.get("keep", "rows"))

    @property
    def _shards(self) -> str:
        return FOLDERS[self.keeps]

    def _entries(self) -> Iterator[dict[str, Any]]:
        return (entry for shards in self._by_point.values() for entry in shards.values())

    def _keep(self, entry: dict[str, Any]) -> None:
        for old in self._overlapped(span_of(entry)):
            del self._by_point[entry["point"]][old["first"]]
            self._firsts[entry["point"]].remove(old["first"])
        self._by_point[entry["point"]][entry["first"]] = entry
        insort(self._firsts[entry["point"]], entry["first"])

    def _overlapped(self, span: Span) -> list[dict[str, Any]]:
        """The entries of the shards that hold a replicate of this span."""
        firsts, shards = self._firsts[span.point], self._by_point[span.point]
        place = bisect_left(firsts, span.first)
        near = firsts[max(place - 1, 0) : bisect_left(firsts, span.stop)]
        return [shards[first] for first in near if shards[first]["stop"] > span.first]

    def _read_entries(self, entries: Iterable[dict[str, Any]]) -> None:
        for entry in entries:
            if is_whole(self.folder, self._shards, entry):
                self._keep(entry)
            else:
                self.damaged.append(entry["file"])

    def _adopt(self) -> None:
        """Takes in the whole shards of this study that the manifest does not name: it is written now and then."""
        named = {entry["file"] for entry in self.manifest["shards"]}
        for path in shard_files(self.folder, self._shards):
            name = f"{self._shards}/{path.name}"
            if name in named:
                continue
            if (found := self_described(path)) is None:
                self.damaged.append(name)
                continue
            entry, metadata = found
            cells = sum(cell["error"] is None for cell in self._cells_of(entry["point"]))
            ours = {"sweep.study": self.manifest["hash"], "sweep.keep": self.keeps, "sweep.cells": str(cells)}
            longer = all(old["stop"] < entry["stop"] for old in self._overlapped(span_of(entry)))
            if ours.items() <= metadata.items() and longer:
                self._keep({"file": name, **entry})

    def _cells_of(self, point: int) -> list[dict[str, Any]]:
        return [cell for cell in self.manifest["cells"] if cell["point"] == point]

    def _sweep_up(self) -> None:
        """Drops what killed runs left: files half written, and shards that a later one replaced."""
        kept = {entry["file"] for entry in self._entries()} | set(self.damaged)
        for path in shard_files(self.folder, self._shards):
            if f"{self._shards}/{path.name}" not in kept:
                path.unlink(missing_ok=True)
        for path in (self.folder / self._shards).glob(".*.part"):
            if is_shard_name(path.name[1 : -len(".part")]):
                path.unlink(missing_ok=True)

    def _forget_damaged(self) -> None:
        """Drops damaged files of replicates that are no longer asked for; the others were simulated again."""
        for file in self.damaged:
            shards, _, name = file.rpartition("/")
            if shards == self._shards and is_shard_name(name):
                (self.folder / file).unlink(missing_ok=True)
        self.damaged = []

    def _refuse_another_owner(self) -> None:
        """A folder that was removed, and perhaps made anew by another run, is not ours to write in."""
        with suppress(OSError):
            if self._lock is None or os.path.samestat(self._lock, lock_file(self.folder).stat()):
                return
        raise FolderError(f"{self.folder}: was removed or replaced while this run was writing in it; run it again")


def _shards_before(folder: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The shards that the folder's manifest names; none where it is lost, when they are found by themselves.

    Raises FolderError where the folder holds another study.
    """
    try:
        if (folder / NAME).exists():
            before = read_manifest(folder)
            refuse_another_study(folder, before, manifest)
            return list(before["shards"])
    except DamagedManifestError:
        pass
    for shards in FOLDERS.values():
        for path in shard_files(folder, shards):
            found = self_described(path)
            if found is not None and found[1].get("sweep.study") != manifest["hash"]:
                raise FolderError(f"{path}: is of another study; use --fresh to drop it, or another -o")
    return []


def _clear(folder: Path) -> None:
    """Drops what a run made, and nothing else that may lie in the folder."""
    for shards in FOLDERS.values():
        for path in shard_files(folder, shards):
            path.unlink()
    for name in (NAME, "cells.parquet", "report.html"):
        (folder / name).unlink(missing_ok=True)

"""manifest.json as a file: its bytes, which carry their own checksum, and what tells two studies apart.

What stands in a manifest is decided in `manifest`; when it is written, in `results`.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.errors import FolderError

FORMAT = 1
NAME = "manifest.json"
_ABSENT = object()
_ZEROS = "0" * 64  # stands for the checksum while it is computed
_SHAPE = {"hash": str, "title": str, "depends": dict}
_SHAPE |= dict.fromkeys(("measure", "axes", "points", "cells", "claims", "shards"), list)
_ENTRY = {"file": str, "point": int, "first": int, "stop": int, "sha256": str}


class DamagedManifestError(FolderError):
    """The manifest is not one that was written here, or no longer; the shards beside it may be whole."""


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """The file of a manifest. `checksum` is the SHA-256 of the file with zeros in its place."""
    text = json.dumps({"checksum": _ZEROS, **manifest}, indent=1, ensure_ascii=False)
    data = text.encode(errors="surrogatepass")
    return data.replace(_ZEROS.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder as it was given to `manifest_bytes`.

    Raises DamagedManifestError where it is not whole, FolderError where there is none or one of another format.
    """
    path = folder / NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror or error}; is {folder} a results folder?") from error
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        raise _damaged(path, "is not JSON") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise _damaged(path, "says no format")
    if manifest["format"] != FORMAT:
        found = str(manifest["format"])[:40]
        raise FolderError(f"{path}: format {found}, while this version reads {FORMAT}; use --fresh or another -o")
    if not _is_as_written(data, manifest.pop("checksum", None)):
        raise _damaged(path, "its checksum does not match")
    if wrong := _misshapen(manifest):
        raise _damaged(path, wrong)
    return manifest


def _damaged(path: Path, why: str) -> DamagedManifestError:
    again = f"run the study again (such as sweep run {path.parent / 'study.toml'} -o {path.parent})"
    return DamagedManifestError(f"{path}: is damaged ({why}); {again}: the shards that are whole are kept")


def _is_as_written(data: bytes, checksum: Any) -> bool:
    if not isinstance(checksum, str) or len(checksum) != len(_ZEROS):
        return False
    blank = data.replace(checksum.encode(errors="replace"), _ZEROS.encode(), 1)
    return hashlib.sha256(blank).hexdigest() == checksum


def _misshapen(manifest: dict[str, Any]) -> str:
    for key, kind in _SHAPE.items():
        if not isinstance(manifest.get(key), kind):
            return f"{key} is not what it should be"
    for entry in manifest["shards"]:
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), kind) for key, kind in _ENTRY.items()):
            return "an entry of a shard is not whole"
    return ""


def refuse_another_study(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises FolderError with the keys that differ where two manifests are of studies with different rows."""
    old, new = dict(_flat(before["depends"])), dict(_flat(now["depends"]))
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    if differing == ["keep"]:
        raise FolderError(f"{folder}: was kept as {old['keep']}; go on with --keep {old['keep']}, or take another -o")
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

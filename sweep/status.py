"""What is done in a results folder and what is left, from the folder alone: nothing is simulated or written."""

from collections import defaultdict
from typing import Any

from sweep.results import Store
from sweep.shards import Span


def status(store: Store) -> dict[str, Any]:
    """The state of a folder as plain data: workloads done and left point by point, what failed and what is damaged.

    Where a precision was asked for, `left` counts to the end of the round that was going on: whether another follows
    is known only then.
    """
    able = {cell["point"] for cell in store.manifest["cells"] if cell["error"] is None}
    have: defaultdict[int, list[Span]] = defaultdict(list)
    for span in store.have():
        have[span.point].append(span)
    points = [
        _point(point, store.manifest["replicates"] if point["point"] in able else 0, have[point["point"]])
        for point in store.manifest["points"]
    ]
    return {
        "folder": str(store.folder),
        "title": store.manifest["title"],
        "keep": store.keeps,
        "cells": len(store.manifest["cells"]),
        "shards": sum(len(store.shards_of(point["point"])) for point in points),
        "done": sum(point["done"] for point in points),
        "left": sum(point["left"] for point in points),
        "points": points,
        "cannot_run": [
            {"cell": cell["cell"], "error": cell["error"]} for cell in store.manifest["cells"] if cell["error"]
        ],
        "failures": list(store.manifest.get("failures", ())),
        "damaged": list(store.damaged),
    }


def text(state: dict[str, Any]) -> str:
    """The state in a few lines."""
    whole = state["done"] + state["left"]
    share = f" ({state['done'] / whole:.1%})" if whole else ""
    cells, points = _count(state["cells"], "cell"), _count(len(state["points"]), "point")
    lines = [
        f"{state['title']}: {cells} of {points} in {state['folder']}",
        f"{state['done']:,} of {_count(whole, 'workload')} simulated{share}, in {_count(state['shards'], 'shard')}",
    ]
    unfinished = [point for point in state["points"] if point["left"]]
    if unfinished:
        where = _count(len(unfinished), "point")
        lines.append(f"{_count(state['left'], 'workload')} of {where} left; run the study again to go on")
    lines += [f"cell {cell['cell']} cannot run: {cell['error']}" for cell in state["cannot_run"]]
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _point(point: dict[str, Any], asked: int | None, have: list[Span]) -> dict[str, Any]:
    wanted = point["replicates"] if asked is None else asked
    done = sum(max(0, min(span.stop, wanted) - span.first) for span in have)
    return {"point": point["point"], "cells": point["cells"], "wanted": wanted, "done": done, "left": wanted - done}

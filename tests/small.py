"""A study that is simulated in a blink, in many small shards, and what a test of its folder needs."""

import hashlib
import sys
from pathlib import Path

from sweep.study import parse_study

STUDY = {
    "title": "small",
    "seed": 37,
    "replicates": 1000,
    "workload": {
        "requests": 50,
        "output": {
            "distribution": "mixture",
            "parts": [
                {"weight": 0.9, "distribution": "uniform", "low": 8, "high": 40},
                {"weight": 0.1, "distribution": "uniform", "low": 400, "high": 700},
            ],
        },
    },
    "server": {"slots": 4, "step_ms": 20},
    "grid": {"server.slots": [4, 16, 100], "workload.requests": [50, 51]},
}

PROGRAM = [  # runs the study of its first argument into the folder of its second, in small chunks
    sys.executable,
    "-c",
    """
import json, sys, sweep, sweep.runner
from sweep.study import parse_study
sweep.runner.CHUNK_NS = 0.0
sweep.run(parse_study(json.loads(sys.argv[1]), "small.toml"), sys.argv[2], report=False)
""",
]


def study(**changes):
    return parse_study({**STUDY, **changes}, "small.toml")


def bytes_of(folder):
    """Every file that results are, by name."""
    paths = [*sorted(Path(folder).glob("replicates/*.parquet")), Path(folder) / "cells.parquet"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

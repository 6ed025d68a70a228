"""What a measurement was made on, and how it is written down."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sweep.executors.machine import usable_cores

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"


def machine() -> dict[str, Any]:
    """Processor, cores, how busy they are, and the versions that matter."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in ("numba", "numpy", "polars")},
        "compiler": _compiler(),
        "date": date.today().isoformat(),
    }


def in_words(of: Mapping[str, Any]) -> str:
    """The machine in one sentence."""
    versions = ", ".join(f"{name} {of[name]}" for name in ("numba", "numpy", "polars"))
    return (
        f"Measured on {of['date']}: {of['processor']}, {of['cores']} cores, {of['system']}, Python {of['python']}, "
        f"{versions}{', ' if of['compiler'] else ''}{of['compiler'] or ''}. Processes that wanted a core, this one's "
        f"included, in the last minute: {of['load']}."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_section(name: str, text: str) -> None:
    """Puts a text between the marks of its name on the page about speed."""
    page = PAGE.read_text()
    before, rest = page.split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- end of {name} -->")[1]
    PAGE.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- end of {name} -->{after}")


def _processor() -> str:
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor()


def _compiler() -> str | None:
    from twin import compiler

    found = compiler()
    if found is None:
        return None
    return subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]

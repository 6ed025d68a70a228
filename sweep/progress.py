"""What a run says on stderr while it works: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sweep.grid import Chunk

PLAIN_EVERY_S = 10.0  # between two lines where there is no terminal, as in a CI log
COMPILING_AFTER_S = 1.5  # a warm cache is loaded sooner than this


class Silent:
    """Says nothing."""

    def compiling(self) -> AbstractContextManager[None]:
        """Says nothing of what runs inside."""
        return nullcontext()

    def plan(self, chunks: Sequence[Chunk]) -> None:
        """Takes note of nothing."""

    def done(self, chunk: Chunk) -> None:
        """Takes note of nothing."""


def scheduled_requests(chunk: Chunk) -> int:
    """Requests that a chunk schedules: replicates x requests x servers."""
    servers = sum(cell.error is None for cell in chunk.point.cells)
    return (chunk.stop - chunk.first) * chunk.point.workload.requests * servers


class Reporter:
    """Says how many chunks and requests are done, how many requests a second that was, and how long it may yet take."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._said = time.monotonic()
        self._planned = self._requests = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("simulating", total=None, rate="")

    def __enter__(self) -> "Reporter":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()  # which would leave an empty line where there is no bar

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Says so, once, when what runs inside takes as long as only a first compilation does."""
        timer = threading.Timer(COMPILING_AFTER_S, self._console.print, ["compiling the kernels once, some 10 s ..."])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def plan(self, chunks: Sequence[Chunk]) -> None:
        """Adds the chunks of a round to what is to be done."""
        self._planned += sum(map(scheduled_requests, chunks))
        cells = sum(len(point.cells) for point in {chunk.point.index: chunk.point for chunk in chunks}.values())
        count = f"{cells:,} cell{'' if cells == 1 else 's'}"
        self._bar.update(self._task, total=self._planned, description=f"simulating {count}")

    def done(self, chunk: Chunk) -> None:
        """Counts a chunk that is kept."""
        self._requests += scheduled_requests(chunk)
        elapsed = time.monotonic() - self._started
        rate = f"{self._requests / elapsed / 1e6:,.3g} M requests/s"
        self._bar.update(self._task, completed=self._requests, rate=rate)
        if not self._console.is_terminal and time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._said = time.monotonic()
            left = elapsed * (self._planned / self._requests - 1)
            self._console.print(f"{self._requests / self._planned:.0%} simulated, {rate}, {left:,.0f} s left")


def stderr_console(*, quiet: bool = False) -> Console:
    """The console that notes go to; a terminal only where stderr is one, whatever FORCE_COLOR says of colours."""
    terminal = sys.stderr.isatty()
    return Console(stderr=True, quiet=quiet, highlight=False, force_terminal=terminal, soft_wrap=not terminal)

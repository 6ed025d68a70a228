"""What is in a file of requests, and the steps that both schedulers take for them, in little memory.

Lengths are counted, so memory grows with how much they differ; times and outputs pass by in order of time and are let
go. A file whose times run backward is read twice: first to see how far back they go, which says how many rows have to
be held. Of what cannot be read twice, such as standard input, all times and outputs are held. Reading the requests
themselves is left to `traces`.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sweep.errors import InputError, TraceError
from sweep.model.counted import Counted, Counter, cv, percentiles, product_sum
from sweep.model.trace_arrivals import Arrivals
from sweep.model.trace_files import Progress, open_source
from sweep.model.trace_formats import Layout
from sweep.model.trace_notes import Oddities, no_requests, sentences
from sweep.model.trace_order import TimeOrder
from sweep.model.trace_records import Rows, taken
from sweep.model.trace_rows import open_table
from sweep.model.traces import names_of

I64 = NDArray[np.int64]


class Summary(NamedTuple):
    """The requests of a file as counts, those without output left out unless kept.

    rows : how many were read. context : prompt and output of a request together. products : the sum of prompt x output.
    arrivals : of all rows; None where the file has no times. in_file_order : steps of both schedulers at each number of
    slots. notes : what is odd about the file, a sentence each.
    """

    format: str
    rows: int
    prompt: Counted
    output: Counted
    context: Counted
    products: int
    arrivals: dict[str, Any] | None
    in_file_order: list[dict[str, Any]]
    notes: tuple[str, ...]


def summarise(
    path_or_dash: str | Path,
    slots: Sequence[int] = (16, 64),
    *,
    keep_zero_outputs: bool = False,
    first: int | None = None,
    progress: Progress | None = None,
    **columns: str | None,
) -> Summary:
    """What is in a file, or in standard input for "-". Arguments and errors are those of `read_trace`.

    slots : at which the steps are counted of all requests waiting at step 0, in order of arrival.
    """
    for places in slots:
        if isinstance(places, bool) or not isinstance(places, int | np.integer) or places < 1:
            raise InputError(f"slots: must be integers of at least 1, got {places!r}")
    names = names_of(first, **columns)
    allowed_ns = 0 if str(path_or_dash) != "-" and Path(path_or_dash).is_file() else None
    while True:
        totals = _Totals(slots, keep_zero_outputs, allowed_ns)
        with open_source(path_or_dash, progress) as source:
            layout, parts = open_table(source, names, first)
            for part in parts:
                totals.add(part)
            name = source.name
        late_ns = totals.late_ns()
        if late_ns is None:
            return totals.summary(name, layout)
        if allowed_ns:
            raise TraceError(f"{name}: has changed while it was read; try again when it is complete")
        allowed_ns = late_ns


def figures(found: Summary) -> dict[str, Any]:
    """The same as numbers and texts that JSON can hold; null is what is undefined.

    cv is by the population's deviation; percentiles interpolate linearly.
    """
    return {
        "format": found.format,
        "rows": found.rows,
        "requests": found.output.n,
        "dropped": found.rows - found.output.n,
        "prompt": _lengths(found.prompt),
        "output": _lengths(found.output),
        "correlation": _correlation(found),
        "arrivals": found.arrivals,
        "in_file_order": found.in_file_order,
        "oddities": list(found.notes),
    }


class _Totals:
    """What is known of the rows so far."""

    def __init__(self, slots: Sequence[int], keep_zero_outputs: bool, allowed_ns: int | None) -> None:
        from sweep.model.file_order import FileOrder  # reading a trace needs no kernels

        self._slots, self._keep = slots, keep_zero_outputs
        self._order, self._served, self._arrivals = TimeOrder(allowed_ns), FileOrder(slots), Arrivals()
        self._prompt, self._output, self._context = Counter(), Counter(), Counter()
        self._rows = self._products = self._backward = self._equal = 0
        self._timed = False
        self._last_read: I64 = np.zeros(0, np.int64)  # the time of the last request, as read
        self._last_served = self._last_read  # and as served

    def add(self, part: Rows) -> None:
        """Counts these rows too."""
        kept = part if self._keep else taken(part, part.output_tokens > 0)
        self._rows += len(part.output_tokens)
        self._prompt.add(kept.prompt_tokens)
        self._output.add(kept.output_tokens)
        self._context.add(kept.prompt_tokens + kept.output_tokens)
        self._products += product_sum(kept.prompt_tokens, kept.output_tokens)
        if part.arrival_ns is None or kept.arrival_ns is None:
            self._served.add(kept.output_tokens)
            return
        self._timed = True
        times, self._last_read = _after(self._last_read, kept.arrival_ns)
        self._backward += int(np.count_nonzero(times[1:] < times[:-1]))
        self._order.add(part.arrival_ns, part.output_tokens)
        self._serve()

    def late_ns(self) -> int | None:
        """How much too early rows came for what was allowed; None where all are in order."""
        return self._order.late_ns if self._order.is_lost else None

    def summary(self, name: str, layout: Layout) -> Summary:
        """All of it, after the last row. Raises TraceError where there is no request."""
        prompt, output, context = self._prompt.counted(), self._output.counted(), self._context.counted()
        if not len(output.values):
            raise no_requests(name, self._rows)
        self._order.end()
        self._serve()
        without = (int(side.counts[side.values == 0].sum()) for side in (output, prompt))
        odd = Oddities(self._backward, self._equal, self._rows - output.n, *without)
        return Summary(
            layout.format,
            self._rows,
            prompt,
            output,
            context,
            self._products,
            self._arrivals.figures() if self._timed else None,
            self._multiples(),
            (*layout.notes, *sentences(odd)),
        )

    def _serve(self) -> None:
        """Passes on the rows whose turn it is."""
        for arrival_ns, output_tokens in self._order.ready():
            self._arrivals.add(arrival_ns)
            kept = slice(None) if self._keep else output_tokens > 0
            self._served.add(output_tokens[kept])
            times, self._last_served = _after(self._last_served, arrival_ns[kept])
            self._equal += int(np.count_nonzero(times[1:] == times[:-1]))

    def _multiples(self) -> list[dict[str, Any]]:
        return [
            {
                "slots": int(places),
                "static_steps": static,
                "continuous_steps": continuous,
                "multiple": static / continuous if continuous else None,
            }
            for places, (static, continuous) in zip(self._slots, self._served.steps(), strict=True)
        ]


def _after(last: I64, times: I64) -> tuple[I64, I64]:
    """Times with the last one before them, where there is one, and their own last."""
    joined = np.concatenate([last, times])
    return joined, joined[-1:].copy()


def _lengths(tokens: Counted) -> dict[str, Any]:
    n, total = tokens.n, tokens.total
    squares = product_sum(tokens.values, tokens.values * tokens.counts)
    p50, p95, p99 = percentiles(tokens, (50, 95, 99))
    return {
        "mean": total / n,
        "cv": cv(n, total, squares),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": int(tokens.values[-1]),
        "sum": total,
    }


def _correlation(found: Summary) -> float | None:
    """Pearson's r of both lengths, None where one of them never varies."""
    n, x, y = found.output.n, found.prompt.total, found.output.total
    x_spread, y_spread = (
        n * product_sum(side.values, side.values * side.counts) - side.total**2 for side in (found.prompt, found.output)
    )
    return (n * found.products - x * y) / math.sqrt(x_spread * y_spread) if x_spread and y_spread else None

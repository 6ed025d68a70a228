"""Rows of a file of real requests as a study holds them: which file, in which order they are drawn, and the rows.

Reading the file, once and with the study, is in `files`; drawing is in `rows.draws`.
"""

from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sweep.errors import SweepError
from sweep.model.listed import Empirical
from sweep.model.trace_pack import MOST_ROWS, Moments, Requests, unpacked, unpacked_times
from sweep.study.strict import Strict

Text = Annotated[str, Field(min_length=1)]

UNREAD = "the file was not read; to compare files, make whole tables the values of an axis, with names"


def _unpackable(text: str) -> str:
    if text:
        unpacked(text)  # raises InputError, a ValueError
    return text


def _times_unpackable(text: str) -> str:
    unpacked_times(text)  # raises InputError, a ValueError
    return text


PackedTimes = Annotated[str, AfterValidator(_times_unpackable)]


class TraceSpec(Strict):
    """Rows of a file of real requests, prompt and output together."""

    path: Text
    """The file, seen from the folder of the study file."""
    order: Literal["rows", "blocks", "replay"] = "rows"
    """"rows": single rows, drawn with replacement; "blocks": runs of `block` rows, which keeps what neighbours have in
    common; "replay": the file's own order, from its start, or from a random row where a workload is shorter than it."""
    block: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 64
    """Rows in a run, for order = "blocks"."""
    format: Text | None = None
    """Format of the file; left out: what its columns say."""
    prompt_column: Text | None = None
    """Column of the prompts, where no format says."""
    output_column: Text | None = None
    """Column of the outputs, where no format says."""
    time_column: Text | None = None
    """Column of the times, where no format says; for arrivals with process = "trace"."""
    time_unit: Text | None = None
    """Unit of times that are numbers, such as "ms", where no format says."""
    first: Annotated[int, Field(ge=1)] | None = None
    """Rows to read, and no more."""
    rows: Annotated[str, AfterValidator(_unpackable)] = ""
    """The requests that were read, packed; filled in, not written by hand."""
    packed_times: PackedTimes | None = None
    """When they came, packed; filled in where arrivals have process = "trace"."""

    @model_validator(mode="after")
    def _file_was_read(self) -> Self:
        if not self.rows:
            raise ValueError(UNREAD)
        times, there = self.moments(), len(self.requests().output_tokens)
        if times is not None and len(times.seconds) != there:
            raise ValueError(f"packed_times has {len(times.seconds):,} times, and there are {there:,} rows")
        return self

    def requests(self) -> Requests:
        """The rows that there are to draw from."""
        return unpacked(self.rows)

    def moments(self) -> Moments | None:
        """When they came; None where that was not read."""
        return None if self.packed_times is None else unpacked_times(self.packed_times)

    def lengths(self, side: Literal["prompt", "output"]) -> Empirical:
        """The prompts or the outputs on their own, as a distribution."""
        return _lengths(self.rows, side)


def as_table(trace: Any) -> Any:
    """The name of a file as the table that it is short for."""
    return {"path": trace} if isinstance(trace, str) else trace


TraceOrPath = Annotated[TraceSpec, BeforeValidator(as_table, json_schema_input_type=TraceSpec | Text)]


def outputs_of(rows: Any) -> Empirical:
    """The outputs of packed rows as a distribution; for what is not packed rows, which is refused elsewhere, any."""
    try:
        return _lengths(rows, "output")
    except (SweepError, TypeError):
        return Empirical(values=(1,))


@lru_cache(maxsize=16)
def _lengths(rows: str, side: Literal["prompt", "output"]) -> Empirical:
    requests = unpacked(rows)
    tokens = requests.prompt_tokens if side == "prompt" else requests.output_tokens
    values, counts = np.unique(tokens, return_counts=True)
    return Empirical(values=tuple(values.tolist()), weights=tuple(counts.tolist()))

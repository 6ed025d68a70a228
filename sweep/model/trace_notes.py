"""What is odd about the rows of a trace, counted, and how it is said."""

from typing import NamedTuple

from sweep.errors import TraceError


class Oddities(NamedTuple):
    """Counts of what may surprise. backward, equal : requests earlier than, or as late as, the one before.

    dropped : rows left out since they have no output. no_output, no_prompt : requests without such tokens.
    """

    backward: int = 0
    equal: int = 0
    dropped: int = 0
    no_output: int = 0
    no_prompt: int = 0


def sentences(odd: Oddities) -> tuple[str, ...]:
    """What there is to say, nothing of what did not occur."""
    before = _counted(odd.backward, "request comes", "requests come")
    as_before = _counted(odd.equal, "request has", "requests have")
    said = {
        f"{before} at an earlier time than the one before it in the file; requests are sorted by time": odd.backward,
        f"{as_before} the same time as the one before; such requests keep the order of the file": odd.equal,
        f"{_counted(odd.dropped, 'row', 'rows')} without output tokens dropped (--keep-zero-outputs keeps them)": (
            odd.dropped
        ),
        f"{_counted(odd.no_output, 'request has', 'requests have')} no output tokens": odd.no_output,
        f"{_counted(odd.no_prompt, 'request has', 'requests have')} no prompt tokens": odd.no_prompt,
    }
    return tuple(sentence for sentence, count in said.items() if count)


def no_requests(name: str, rows: int) -> TraceError:
    """What is wrong with a file that has rows, and no request among them, or no rows."""
    if rows:
        return TraceError(f"{name}: none of the {rows:,} rows has output tokens; --keep-zero-outputs keeps them")
    return TraceError(f"{name}: there are columns and no rows")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"

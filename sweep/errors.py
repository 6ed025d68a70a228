"""The kinds of `SweepError`: what a user can mend. The command line prints the lines and exits with status 2."""


class SweepError(Exception):
    """Something the user can mend; `lines` says what, where and what to do, a line for each fault."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines

    def __reduce__(self) -> tuple[type["SweepError"], tuple[str, ...]]:
        return type(self), self.lines  # the default would hand back the joined text as one line


class InputError(SweepError, ValueError):
    """A value given to a public function or on the command line is not usable."""


class StudyError(SweepError):
    """A study file, or a change made to it, is not usable."""


class ModelError(SweepError):
    """A model configuration or a GPU is not understood."""


class TraceError(SweepError):
    """A file of requests cannot be read."""


class FolderError(SweepError):
    """A results folder cannot be written, read or continued."""


class WorkerError(SweepError):
    """The workers of an executor cannot do the work that they are given."""

"""The kinds of `SweepError`: what a user can mend. The command line prints the lines and exits with status 2."""


class SweepError(Exception):
    """Something the user can mend; `lines` says what, where and what to do, a line for each fault.

    Control characters are spelt out: much of a line comes from files, and terminals obey what is printed.
    """

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(_printable(line) for line in lines)
        super().__init__("\n".join(self.lines))

    def __reduce__(self) -> tuple[type["SweepError"], tuple[str, ...]]:
        return type(self), self.lines  # the default would hand back the joined text as one line


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


class InputError(SweepError, ValueError):
    """A value given to a public function or on the command line is not usable."""


class SettingError(InputError):
    """A value is not usable; `setting` is its name, for callers that write it otherwise, and `reason` the rest."""

    def __init__(self, setting: str, reason: str) -> None:
        self.setting = setting
        self.reason = reason
        super().__init__(f"{setting}: {reason}")

    def __reduce__(self) -> tuple[type["SweepError"], tuple[str, ...]]:
        return type(self), (self.setting, self.reason)


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

"""What is wrong with a command line, in one line: the option or argument, what was given, and where help is.

The parser's own words are kept where they name no option that could be put in front. Its kinds of error but one are not
public, so they are told apart by their names.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any

import typer

LONGEST_SHOWN = 60
LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
}
_NO_CHOICE = re.compile(r"Value error, .* is not one of ('.*)\.", re.DOTALL)


def usage_line(error: typer.TyperException) -> str:
    """The line for an error of the parser; empty where it has shown the help instead, as for `sweep` alone."""
    command, option = _command(error), getattr(error, "option_name", None)
    match type(error).__name__:
        case "NoArgsIsHelpError":
            return ""
        case "NoSuchOption":
            line = f"{option}: unknown option{_nearest(error)}"
        case "BadOptionUsage":
            line = f"{option}: {_own_words(error.message.removeprefix(f'Option {option!r} '))}"
        case "MissingParameter":
            line = f"{_parameter(error)}: missing"
        case "BadParameter":
            line = f"{_parameter(error)}: {_reason(error)}"
        case _:
            line = f"{command}: {_own_words(error.message)}"
    return f"{line} See {command} --help" if line.endswith("?") else f"{line}; see {command} --help"


def _command(error: typer.TyperException) -> str:
    """The command as it was called; where the parser does not say, the first word that is no option."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    return f"sweep {next((word for word in sys.argv[1:] if not word.startswith('-')), '')}".rstrip()


def _nearest(error: typer.TyperException) -> str:
    near = getattr(error, "possibilities", None)
    return f"; did you mean {near[0]}?" if near else ""


def _parameter(error: typer.TyperException) -> str:
    """An option with its dashes, or an argument as the help calls it."""
    parameter = getattr(error, "param", None)
    if parameter is None:
        return "a value"
    return str(parameter.get_error_hint()).replace("'", "")


def _reason(error: typer.TyperException) -> str:
    """Why a value is refused, with what was given."""
    faults = getattr(error.__cause__, "errors", None)
    if faults is None:
        return _own_words(error.message)
    fault: Mapping[str, Any] = faults()[0]
    kind, given = fault["type"], str(fault["input"])
    shown = given if len(given) <= LONGEST_SHOWN else f"{given[:LONGEST_SHOWN]}..."
    if kind in LIMITS:
        limits = {
            name: f"{limit:g}" if isinstance(limit, float) else f"{limit:,}" for name, limit in fault["ctx"].items()
        }
        return f"{LIMITS[kind].format(**limits)}, got {shown}"
    if kind.startswith(("int_", "float_", "finite_")):
        return f'must be a {"whole " if kind.startswith("int_") else ""}number, got "{shown}"'
    if choices := _NO_CHOICE.fullmatch(fault["msg"]):
        return f'must be one of {choices[1].replace(chr(39), "")}, got "{shown}"'
    return f'{_own_words(fault["msg"].removeprefix("Value error, "))}, got "{shown}"'


def _own_words(message: str) -> str:
    return (message[:1].lower() + message[1:]).replace(". Did you mean", "; did you mean").rstrip(".")

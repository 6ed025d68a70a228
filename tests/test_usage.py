"""What is wrong with a command line is one line on stderr, for every command, with exit status 2."""

import sys

import pytest
import typer

from sweep import cli

COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
NEEDS = {  # what a command cannot do without
    "run": "STUDY...",
    "report": "folder",
    "status": "folder",
    "verify": "folder",
    "check": "folder",
    "compare": "folder",
    "gallery": "STUDY...",
    "multiple": "--output",
    "trace": "file",
    "fit": "file",
    "fit-step": "file",
}


@pytest.fixture
def refusal(monkeypatch, capsys):
    """The line by which a command line is refused."""

    def of(*arguments):
        monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        done = capsys.readouterr()
        assert (ended.value.code, done.out) == (2, "")
        (line,) = done.err.splitlines()
        return line

    return of


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_a_command_does_not_have_is_named(refusal, command):
    assert refusal(command, "--nonesuch") == f"--nonesuch: unknown option; see sweep {command} --help"


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_needs_is_named_where_it_is_missing(refusal, command):
    if command in NEEDS:
        assert refusal(command) == f"{NEEDS[command]}: missing; see sweep {command} --help"
    else:
        line = refusal(command, *["x"] * 9)
        assert line.startswith(f"sweep {command}: got unexpected extra argument")
        assert line.endswith(f"; see sweep {command} --help")


def numbers():
    """Every option that is a number: its command, its name, whether it is whole, and its lower limit or None."""
    kinds = {int: True, int | None: True, float: False, float | None: False}
    built = typer.main.get_command(cli.app).commands
    options = {(called, each.name): each.opts[-1] for called in COMMANDS for each in built[called].params}
    return [
        (called, options[called, name], kinds[typed.__origin__], typed.__metadata__[0].min)
        for command, called in zip(cli.app.registered_commands, COMMANDS, strict=True)
        for name, typed in command.callback.__annotations__.items()
        if getattr(typed, "__origin__", None) in kinds
    ]


@pytest.mark.parametrize(("command", "option", "whole", "least"), numbers(), ids=str)
def test_a_number_that_is_none_or_too_small_is_named_with_what_was_given(refusal, command, option, whole, least):
    needed = ["--output", "x"] if command == "multiple" else ["x"] if command in NEEDS else []
    rule = "must be a whole number" if whole else "must be a number"
    assert refusal(command, *needed, option, "1x") == f'{option}: {rule}, got "1x"; see sweep {command} --help'
    if least is not None:
        expected = f"{option}: must be at least {least}, got {least - 1}; see sweep {command} --help"
        assert refusal(command, *needed, option, str(least - 1)) == expected


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "x", "--keep", "row"], '--keep: must be one of rows, summary, got "row"; see sweep run --help'),
        (["run", "x", "--job", "3"], "--job: unknown option; did you mean --jobs? See sweep run --help"),
        (["run", "x", "--jobs"], "--jobs: requires an argument; see sweep run --help"),
        (["run", "x", "--fresh=yes"], "--fresh: does not take a value; see sweep run --help"),
        (["lab", "--predict", "1", "2", "3"], "--predict: requires 4 arguments; see sweep lab --help"),
        (["lab", "--predict", "1", "2", "3", "x"], '--predict: must be a number, got "x"; see sweep lab --help'),
        (["rnu"], "sweep: no such command 'rnu'; did you mean 'run'? See sweep --help"),
        (["--jobs", "3", "run"], "--jobs: unknown option; see sweep --help"),
        (["run", "x", "--jobs", "\x1b[31m"], '--jobs: must be a whole number, got "\\x1b[31m"; see sweep run --help'),
        (["run", "x", "--keep", "a\nb"], '--keep: must be one of rows, summary, got "a\\nb"; see sweep run --help'),
    ],
    ids=repr,
)
def test_other_slips_are_one_line_too(refusal, arguments, line):
    assert refusal(*arguments) == line


def test_a_value_of_thousands_of_characters_is_cut(refusal):
    assert len(refusal("run", "x", "--jobs", "9x" * 5000)) < 150


def test_an_end_of_input_and_an_interrupt_keep_their_exit_status(monkeypatch, capsys):
    for raised, status in ((EOFError, 1), (KeyboardInterrupt, 130)):

        def command(*_, raised=raised):
            raise raised

        monkeypatch.setattr("sweep.study.describe.new_study", command)
        monkeypatch.setattr(sys, "argv", ["sweep", "new"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == status
        assert "Traceback" not in capsys.readouterr().err

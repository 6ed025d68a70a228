"""The command line. Each command imports what it needs when it runs, so `sweep --help` is quick.

Results go to stdout, progress and notes to stderr. Exit status: 0 done; 1 some cells could not run, or a claim fails;
2 bad input; 3 a claim is undecided; 130 interrupted.
"""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweep.errors import InputError, SweepError

if TYPE_CHECKING:
    from rich.console import Console

    from sweep.api import Results
    from sweep.study import Study

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How much continuous batching buys over static batching, how sure that is, and where it stops holding.",
)

Folder = Annotated[Path, typer.Argument(help="A results folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def main() -> None:
    """Runs the command line; what a user can mend is said in a line each, with exit status 2."""
    try:
        app()
    except SweepError as error:
        for line in error.lines:
            print(_printable(line), file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        import sweep

        print(f"sweep {sweep.__version__}")
        raise typer.Exit


@app.command()
def run(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Study files.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Results folder, results/NAME unless given; of several studies, their parent."
        ),
    ] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="Workloads a cell, instead of the study's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the study's.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a key of the study, as in --set server.slots=8."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads; one for each usable core unless given.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop what the folder holds and start again.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write rows and summary, but no page.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be simulated, and write nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
) -> None:
    """Simulate studies, going on with what is there, then summarise and report.

    Example: sweep run studies/five_x.toml --replicates 2000 -o /tmp/five_x
    """
    from sweep.progress import stderr_console
    from sweep.study import read_study

    console = stderr_console(quiet=quiet)
    read = [read_study(path, changes=changes or [], seed=seed, replicates=replicates) for path in studies]
    folders = _folders(studies, out)
    failed = False
    for study, path, folder in zip(read, studies, folders, strict=True):
        if dry_run:
            from sweep.api import plan

            print(_printable(plan(study, folder)))
            continue
        results = _run_one(study, path, folder, console, jobs=jobs, fresh=fresh, report=not no_report)
        failed |= results.cells["error"].is_not_null().any()
    raise typer.Exit(int(failed))


def _folders(studies: list[Path], out: Path | None) -> list[Path]:
    """Where each study's results go; two studies of one name would meet in one folder."""
    if out is not None and len(studies) == 1:
        return [out]
    folders = [(out or Path("results")) / path.stem for path in studies]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InputError(
                f"{folder}: two of the studies would write here; run them one by one, each with its own -o"
            )
    return folders


def _run_one(
    study: "Study", path: Path, folder: Path, console: "Console", *, jobs: int | None, fresh: bool, report: bool
) -> "Results":
    from sweep import api
    from sweep.progress import Reporter

    console.print(f"{path} -> {folder}", *study.notes, sep="\n", style="dim", markup=False)
    try:
        with Reporter(console) as reporter:
            results = api.run(study, folder, jobs=jobs, fresh=fresh, report=report, watch=reporter)
    except KeyboardInterrupt:
        console.print(f"interrupted; what was finished is in {folder}, run the same command to go on", markup=False)
        raise typer.Exit(130) from None
    _print_results(results, report)
    return results


def _print_results(results: "Results", report: bool) -> None:
    from sweep.report.terminal import summary_text

    print(_printable(summary_text(results.cells, results.manifest, results.check())))
    if report:
        print(f"Page: {_printable(str(results.folder / 'report.html'))}")


@app.command()
def report(folder: Folder) -> None:
    """Make the summary, the charts and the page again, from a results folder alone."""
    from sweep import api

    print(_printable(str(api.read(folder).report())))


@app.command()
def check(folder: Folder, json: Json = False) -> None:
    """Give the verdict on each claim of a results folder: holds, fails or undecided.

    Exit status 0 when all hold, 1 when one fails, 3 when none fails but one is undecided.
    """
    from sweep import api
    from sweep.report.claims import as_json, exit_status
    from sweep.report.terminal import verdicts_text

    verdicts = api.read(folder).check()
    print(as_json(verdicts) if json else _printable(verdicts_text(verdicts)))
    raise typer.Exit(exit_status(verdicts))


@app.command()
def multiple(
    output: Annotated[
        str,
        typer.Option(
            help='A distribution, as in "lognormal mean=100 cv=1", or a file of output lengths.', show_default=False
        ),
    ],
    slots: Annotated[str, typer.Option(help="Numbers of slots, with commas.")] = "4,16,64",
    requests: Annotated[int, typer.Option(min=1, help="Requests of a workload.")] = 200,
    replicates: Annotated[int, typer.Option(min=2, help="Workloads to simulate.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the workloads.")] = 0,
) -> None:
    """Give a quick answer without a study file: the multiple for one kind of output on a few servers.

    Example: sweep multiple --output "lognormal mean=100 cv=1" --slots 4,16,64
    """
    from sweep.multiple import text

    print(_printable(text(output, _whole_numbers(slots, "--slots"), requests, replicates, seed)))


@app.command()
def replay(
    folder: Annotated[Path | None, typer.Argument(help="A results folder.", show_default=False)] = None,
    cell: Annotated[int, typer.Option(min=0, help="Cell of the folder.")] = 0,
    replicate: Annotated[int, typer.Option(min=0, help="Replicate of the cell.")] = 0,
    lengths: Annotated[str | None, typer.Option(help="Output lengths instead of a folder, as in 40,3,25,5.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Slots for --lengths.")] = 4,
) -> None:
    """Draw one workload slot by slot, static batching above continuous.

    Examples: sweep replay results/five_x --cell 2 --replicate 219; sweep replay --lengths 40,3,25,5,60,4 --slots 2
    """
    from sweep.replay import drawing, parse_lengths, workload_in

    if (folder is None) == (lengths is None):
        raise InputError("give a results folder, or --lengths; not both")
    work = (parse_lengths(lengths), slots) if lengths is not None else workload_in(Path(folder or ""), cell, replicate)
    print(drawing(*work, shutil.get_terminal_size().columns))


@app.command()
def lab(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the workload.")] = 37,
    predict: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            metavar="P1 P2 P3 P4",
            help="Your guesses: requests that fit at 2,048 and at 8,192 tokens, the multiple, the percentage of "
            "slot-time that static batching uses.",
        ),
    ] = None,
) -> None:
    """Walk through the reference lab: memory, both schedulers, and what they make of one workload."""
    from sweep.lab import text

    width = min(shutil.get_terminal_size().columns, 80)
    print(text(seed, predict, width), end="")


def _whole_numbers(text: str, option: str) -> list[int]:
    """The numbers of an option that takes a list with commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f'{option}: "{text}" is not a list of whole numbers such as 4,16,64') from None


def _printable(text: str) -> str:
    """The text with control characters spelt out, in characters that stdout can show: names come from files."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)


if __name__ == "__main__":
    main()

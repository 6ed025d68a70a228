"""The command line. Each command imports what it needs when it runs, so `sweep --help` is quick.

Results go to stdout, progress and notes to stderr. Exit status: 0 done; 1 some cells could not run, or a claim fails;
2 bad input; 3 a claim is undecided; 130 interrupted; 141 the reader of a pipe left before all was
printed, as in `sweep schema | head -2` (`pipes`).
"""

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sweep.errors import InputError, SweepError
from sweep.pipes import ending_with_the_reader

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

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

STUDIES, QUICK = "Studies and their results", "Answers without a study"

Folder = Annotated[Path, typer.Argument(help="A results folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def main() -> None:
    """Runs the command line; what a user can mend is said in a line each, with exit status 2."""
    with ending_with_the_reader():
        try:
            sys.exit(app(standalone_mode=False))  # the status of typer.Exit, None for a command that came to its end
        except typer.TyperException as error:
            _say(*_usage_lines(error))
            sys.exit(2)
        except typer.Abort:  # what the parser makes of an input that ends too early
            _say("aborted")
            sys.exit(1)
        except SweepError as error:
            _say(*error.lines)
            sys.exit(2)
        except OSError as error:
            _say(f"{error.filename or 'sweep'}: {error.strerror or error}")
            sys.exit(2)
        finally:
            _say(*_notes_on_compiled_code())


def _usage_lines(error: typer.TyperException) -> tuple[str, ...]:
    """What is wrong with the command line itself; nothing where the help was shown instead."""
    from sweep.commands.usage import usage_line

    line = usage_line(error)
    return InputError(line).lines if line else ()


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        import sweep

        print(f"sweep {sweep.__version__}")
        raise typer.Exit


@app.command(rich_help_panel=STUDIES)
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
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            envvar="SWEEP_DASK",
            help="Simulate on a Dask cluster: its scheduler, as in tcp://10.0.0.1:8786, or its scheduler file.",
        ),
    ] = None,
    keep: Annotated[
        Literal["rows", "summary"],
        typer.Option(help="Keep a row for each workload, or only sums and a histogram where those would be too many."),
    ] = "rows",
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop what the folder holds and start again.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write rows and summary, but no page.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be simulated, and write nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
) -> None:
    """Simulate studies, going on with what is there, then summarise and report.

    Example: sweep run studies/five_x.toml --replicates 2000 -o five_x_again
    """
    from sweep.progress import stderr_console
    from sweep.study import read_study

    console = stderr_console(quiet=quiet)
    read = [read_study(path, changes=changes or [], seed=seed, replicates=replicates) for path in studies]
    folders = _folders(studies, out)
    if dry_run:
        from sweep.api import plan

        for study, folder in zip(read, folders, strict=True):
            print(_printable(plan(study, folder, keep)))
        raise typer.Exit
    status = 0
    with _workers(dask) as executor:
        how = {"executor": executor, "jobs": jobs, "fresh": fresh, "keep": keep, "report": not no_report}
        for study, path, folder in zip(read, studies, folders, strict=True):
            try:
                results = _run_one(study, path, folder, console, **how)
                status = max(status, int(results.cells["error"].is_not_null().any()))
            except SweepError as error:  # the other studies go on
                _say(*error.lines)
                status = 2
    raise typer.Exit(status)


def _workers(dask: str | None) -> "AbstractContextManager[Executor | None]":
    """The executor of a cluster; none where there is no address, and the threads of this process do the work."""
    if not dask:
        return nullcontext()
    from sweep.executors.cluster import dask_executor

    return dask_executor(dask)


def _folders(studies: list[Path], out: Path | None) -> list[Path]:
    """Where each study's results go; two studies of one name would meet in one folder."""
    if out is not None and len(studies) == 1:
        return [out]
    for path in studies:
        if path.stem in ("", "..", "."):
            raise InputError(f"{path}: its name gives no results folder of its own; give one with -o")
    folders = [(out or Path("results")) / path.stem for path in studies]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InputError(
                f"{folder}: two of the studies would write here; run them one by one, each with its own -o"
            )
    return folders


def _run_one(study: "Study", path: Path, folder: Path, console: "Console", **how: Any) -> "Results":
    from sweep import api
    from sweep.progress import Reporter

    console.print(_printable(f"{path} -> {folder}"), *study.notes, sep="\n", style="dim", markup=False)
    try:
        with Reporter(console) as reporter:
            results = api.run(study, folder, watch=reporter, **how)
    except KeyboardInterrupt:
        kept = _printable(f"interrupted; what was finished is in {folder}, run the same command to go on")
        console.print(kept, markup=False)
        raise typer.Exit(130) from None
    for note in _notes_on_compiled_code():
        console.print(note, markup=False)
    _print_results(results, how["report"])
    _say_what_is_amiss(results)
    return results


def _print_results(results: "Results", report: bool) -> None:
    from sweep.report.terminal import summary_text

    print(_printable(summary_text(results.cells, results.manifest, results.check())))
    if report:
        print(f"Page: {_printable(str(results.folder / 'report.html'))}")


def _say_what_is_amiss(results: "Results") -> bool:
    """Says on stderr what failed and which shards are damaged; whether there was anything to say."""
    for failure in results.failures:
        met = f"replicates {failure['first']:,} to {failure['stop'] - 1:,}"
        others = failure["chunks"] - 1
        more = f" and {others:,} chunk{'' if others == 1 else 's'} more" if others else ""
        _say(f"cell {failure['cell']} failed at {met}{more}: {failure['error']}")
    for name in results.damaged:
        _say(f"{results.folder / name}: is damaged and left out; run the study again to simulate it again")
    return bool(results.failures or results.damaged)


def _notes_on_compiled_code() -> list[str]:
    """Why code was compiled that had been before, where any was needed; each line is given out once."""
    compiled = sys.modules.get("sweep.model.compiled")
    return compiled.notes() if compiled is not None else []


def _say(*lines: str) -> None:
    """Prints lines on stderr, as it can show them."""
    for line in lines:
        print(_printable(line), file=sys.stderr)


@app.command(rich_help_panel=STUDIES)
def report(folder: Folder) -> None:
    """Make the summary, the charts and the page again, from a results folder alone.

    Exit status 1 where a cell cannot run, something failed or is damaged.

    Example: sweep report results/five_x
    """
    from sweep import api

    results = api.read(folder)
    print(_printable(str(results.report())))
    amiss = _say_what_is_amiss(results)
    cannot_run = results.status()["cannot_run"]
    _say(*(f"cell {cell['cell']} cannot run: {cell['error']}" for cell in cannot_run))
    raise typer.Exit(int(amiss or bool(cannot_run)))


@app.command(rich_help_panel=STUDIES)
def status(folder: Folder, json: Json = False) -> None:
    """Say what a results folder holds, what is left to simulate, and what failed or is damaged.

    Exit status 1 where a cell cannot run, something failed or is damaged.

    Example: sweep status results/five_x --json
    """
    from json import dumps

    from sweep import api
    from sweep.status import text

    results = api.read(folder)
    state = results.status()
    print(dumps(state, indent=1) if json else _printable(text(state)))
    amiss = _say_what_is_amiss(results)
    raise typer.Exit(int(amiss or bool(state["cannot_run"])))


@app.command(rich_help_panel=STUDIES)
def verify(
    folder: Folder,
    sample: Annotated[int, typer.Option(min=1, help="Shards to simulate again, chosen at random.")] = 8,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the choice; another each time unless given.")] = None,
) -> None:
    """Simulate some shards of a results folder again and compare them byte by byte.

    Exit status 1 where one differs or is damaged.

    Example: sweep verify results/five_x --sample 20
    """
    from sweep import api
    from sweep.verify import text

    results = api.read(folder)
    found = results.verify(sample, seed)
    print(_printable(text(found)))
    amiss = _say_what_is_amiss(results)
    raise typer.Exit(int(amiss or bool(found.differences)))


@app.command(rich_help_panel=STUDIES)
def check(folder: Folder, json: Json = False) -> None:
    """Give the verdict on each claim of a results folder: holds, fails or undecided.

    Exit status 0 when all hold, 1 when one fails, 3 when none fails but one is undecided; 1 where shards are damaged.

    Example: sweep check results/five_x --json
    """
    from json import dumps

    from sweep import api
    from sweep.report.boundary import boundaries_text, check_json
    from sweep.report.claims import exit_status
    from sweep.report.terminal import replay_text, verdicts_text

    results = api.read(folder)
    verdicts, turns = results.check(), results.boundaries()
    parts = (verdicts_text(verdicts), boundaries_text(turns), replay_text(folder, results.manifest, verdicts))
    told = "\n".join(part for part in parts if part)
    print(dumps(check_json(verdicts, turns), indent=1) if json else _printable(told))
    amiss = _say_what_is_amiss(results)
    raise typer.Exit(1 if amiss else exit_status(verdicts))


@app.command(rich_help_panel=STUDIES)
def compare(
    folder: Folder,
    other: Annotated[Path | None, typer.Argument(help="Another results folder.", show_default=False)] = None,
    cells: Annotated[str | None, typer.Option(help="Two cells, as in 2,3; one of each of two folders.")] = None,
    metric: Annotated[str, typer.Option(help="The metric whose means are compared.")] = "multiple",
    json: Json = False,
) -> None:
    """Give the difference and the ratio of two cells' means, paired where both met the same workloads.

    Exit status 1 where some cells of two folders could not be compared, 2 where none could.

    Example: sweep compare results/five_x --cells 3,2

    Example: sweep compare results/a results/b
    """
    from json import dumps

    from sweep.report.compare import as_json, comparisons, lacking, text

    found = comparisons(folder, other, _whole_numbers(cells, "--cells") if cells is not None else [], metric)
    print(dumps(as_json(found), indent=1) if json else _printable(text(found)))
    raise typer.Exit(int(any(map(lacking, found))))


@app.command(rich_help_panel=STUDIES)
def gallery(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Study files.", show_default=False)],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder of the page, README.md, and of gallery/ with the pictures.")
    ] = Path("results"),
    replicates: Annotated[int | None, typer.Option(min=1, help="Workloads a cell, instead of the studies'.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads; one for each usable core unless given.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")] = False,
) -> None:
    """Run studies afresh and make a page of them: the picture, the answer and the verdicts of each.

    Example: sweep gallery studies/*.toml
    """
    from sweep.commands.gallery import make
    from sweep.progress import Reporter, stderr_console

    console = stderr_console(quiet=quiet)
    with Reporter(console) as reporter:
        page = make(
            studies,
            out,
            replicates=replicates,
            jobs=jobs,
            watch=reporter,
            start=lambda path: console.print(_printable(str(path)), style="dim", markup=False),
        )
    print(_printable(str(page)))


@app.command(rich_help_panel=QUICK)
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
    from sweep.commands.multiple import text

    print(_printable(text(output, _whole_numbers(slots, "--slots"), requests, replicates, seed)))


@app.command(rich_help_panel=QUICK)
def replay(
    folder: Annotated[Path | None, typer.Argument(help="A results folder.", show_default=False)] = None,
    cell: Annotated[int, typer.Option(min=0, help="Cell of the folder.")] = 0,
    replicate: Annotated[int, typer.Option(min=0, help="Replicate of the cell.")] = 0,
    lengths: Annotated[str | None, typer.Option(help="Output lengths instead of a folder, as in 40,3,25,5.")] = None,
    slots: Annotated[int, typer.Option(min=1, help="Slots for --lengths.")] = 4,
    start: Annotated[
        float | None, typer.Option("--from", min=0, help="Draw from here on: seconds, or steps.", show_default=False)
    ] = None,
    end: Annotated[float | None, typer.Option("--to", min=0, help="Draw up to here.", show_default=False)] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a picture, as .svg or .png.", show_default=False)
    ] = None,
) -> None:
    """Draw one workload slot by slot, static batching above continuous.

    Example: sweep replay results/five_x --cell 2 --replicate 219

    Example: sweep replay --lengths 40,3,25,5,60,4 --slots 2 --picture it.svg
    """
    from sweep.commands.replay import drawing, parse_lengths, replay_in, stretch
    from sweep.timelines import replay_of

    if (folder is None) == (lengths is None):
        raise InputError("give a results folder, or --lengths; not both")
    if lengths is not None:
        shown = replay_of(parse_lengths(lengths), slots)
    else:
        shown = replay_in(Path(folder or ""), cell, replicate)
    if picture is not None:
        from sweep.commands.replay_picture import write_picture

        title = f"{folder}: replicate {replicate:,} of cell {cell}" if folder else f"{shown.requests:,} requests"
        write_picture(picture, shown, title, stretch(start, end, shown))
    print(drawing(shown, shutil.get_terminal_size().columns, stretch(start, end, shown)))
    if picture is not None:
        print(f"Picture: {_printable(str(picture))}")


@app.command(rich_help_panel=STUDIES)
def new(
    file: Annotated[
        Path | None, typer.Argument(help="File to write; printed unless given.", show_default=False)
    ] = None,
) -> None:
    """Write a commented study to start from.

    Example: sweep new my_study.toml
    """
    from sweep.study.describe import new_study, write_new

    if file is None:
        print(new_study(), end="")
    else:
        write_new(file)
        print(_printable(f"{file} and its schema are written; next: sweep run {file}"))


@app.command(rich_help_panel=STUDIES)
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/study.md instead.")] = False,
) -> None:
    """Print the JSON schema of study files, for editors.

    Example: sweep schema > study.schema.json
    """
    import json

    from sweep.study import describe

    print(describe.markdown() if markdown else json.dumps(describe.json_schema(), indent=2))


@app.command(rich_help_panel=QUICK)
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
    """Walk through the reference lab: memory, both schedulers, and what they make of one workload.

    Example: sweep lab --predict 60 15 4 20
    """
    from sweep.commands.lab_text import text

    width = min(shutil.get_terminal_size().columns, 80)
    print(text(seed, predict, width), end="")


@app.command(rich_help_panel=QUICK)
def memory(
    model: Annotated[
        str | None, typer.Option(metavar="NAME|config.json", help="A built-in model, or a configuration file.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME|SIZE", help='A built-in GPU, or the memory of one such as "80 GiB".')
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs that share the model, 1 unless given; KV heads are split over them.")
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(help="Type of keys and values: fp16, bf16 or fp8; fp16 unless given.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Tokens of a request, with commas; 512 to 131,072 unless given.")
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option(help="Share of a GPU's memory that the server takes, 0.9 unless given.")
    ] = None,
    overhead: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for other things, on all GPUs; none unless given.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help='Memory for keys and values, such as "64 GiB", instead of --gpu.')
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of the weights, instead of what the parameters give.")
    ] = None,
    weight_dtype: Annotated[
        str | None, typer.Option(help="Type of the weights: fp32, fp16, bf16, fp8, int8 or int4.")
    ] = None,
    kv_per_token: Annotated[
        str | None, typer.Option(metavar="SIZE", help='KV cache of a token, such as "512 KiB", instead of --model.')
    ] = None,
    shared_prefix: Annotated[
        int, typer.Option(help="Tokens at the start of every request that are the same, held once for all.")
    ] = 0,
    no_trim_windows: Annotated[
        bool, typer.Option("--no-trim-windows", help="Layers with a sliding window keep every token all the same.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what the KV cache of a request takes, and how many requests fit beside the weights.

    Example: sweep memory --model Llama-3.1-8B-Instruct --gpu A100-SXM-80GB
    """
    from sweep.commands.memory_text import Asked, answer, as_json, text

    contexts = _whole_numbers(context, "--context") if context is not None else None
    found = answer(
        Asked(
            model=model,
            kv_per_token=kv_per_token,
            gpu=gpu,
            gpus=gpus,
            budget=budget,
            kv_dtype=kv_dtype,
            context=contexts,
            utilisation=utilisation,
            overhead=overhead,
            weights=weights,
            weight_dtype=weight_dtype,
            shared_prefix=shared_prefix,
            no_trim_windows=no_trim_windows,
        )
    )
    print(as_json(found) if json else _printable(text(found, shutil.get_terminal_size().columns)))


@app.command(rich_help_panel=QUICK)
def trace(
    file: Annotated[Path, typer.Argument(help="A file of requests, - for standard input.", show_default=False)],
    json: Json = False,
    first: Annotated[
        int | None, typer.Option(min=1, help="Read that many rows and no more, counted before any is dropped.")
    ] = None,
    slots: Annotated[
        str | None, typer.Option(help="Numbers of slots, with commas; 4 to 256 unless given, 16,64 with --json.")
    ] = None,
    format: Annotated[  # noqa: A002 - the word that users write
        str | None, typer.Option(help="Format such as mooncake or azure-2023-csv, in place of what the columns say.")
    ] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of the prompts' tokens.")] = None,
    output_column: Annotated[str | None, typer.Option(help="Column of the outputs' tokens.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Column of the arrivals.")] = None,
    time_unit: Annotated[
        str | None, typer.Option(help="Unit of arrivals that are numbers: ns, us, ms, s, min or h.")
    ] = None,
    keep_zero_outputs: Annotated[
        bool, typer.Option("--keep-zero-outputs", help="Keep rows without output, which are dropped otherwise.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Also say how many requests fit: a model, with --gpu.")] = None,
    gpu: Annotated[str | None, typer.Option(help="A GPU, with --model.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Make a page with charts.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the page, results/NAME unless given.")
    ] = None,
) -> None:
    """Say what is in a file of real requests, and what continuous batching is worth on them.

    Example: sweep trace requests.csv --slots 16,64

    Example: sweep trace requests.csv --prompt-column in --output-column out
    """
    from sweep.commands import traffic
    from sweep.progress import stderr_console

    wanted = traffic.Asked(
        slots=_whole_numbers(slots, "--slots") if slots is not None else traffic.SLOTS_OF_JSON if json else None,
        model=model,
        gpu=gpu,
        folder=out or Path("results") / traffic.stem(file) if report or out else None,
        reading={
            "first": first,
            "format": format,
            "prompt_column": prompt_column,
            "output_column": output_column,
            "time_column": time_column,
            "time_unit": time_unit,
            "keep_zero_outputs": keep_zero_outputs,
        },
    )
    answer = traffic.answer(str(file), wanted, stderr_console())
    print(traffic.as_json(answer) if json else _printable(traffic.text(answer)))


@app.command(rich_help_panel=QUICK)
def fit(
    file: Annotated[Path, typer.Argument(help="A file of requests, - for standard input.", show_default=False)],
    json: Json = False,
    first: Annotated[int | None, typer.Option(min=1, help="Read that many rows and no more.")] = None,
    slots: Annotated[str, typer.Option(help="Numbers of slots, with commas.")] = "4,16,64",
    format: Annotated[  # noqa: A002 - the word that users write
        str | None, typer.Option(help="Format such as mooncake or azure-2023-csv, in place of what the columns say.")
    ] = None,
    prompt_column: Annotated[str | None, typer.Option(help="Column of the prompts' tokens.")] = None,
    output_column: Annotated[str | None, typer.Option(help="Column of the outputs' tokens.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Make a page with charts.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the page, results/NAME_fit unless given.")
    ] = None,
) -> None:
    """Fit the distributions of a study to the outputs of a file, and say whether they give its multiple.

    Example: sweep fit requests.csv --report
    """
    from sweep.commands import fit_text, traffic
    from sweep.progress import stderr_console

    asked = traffic.Asked(
        slots=_whole_numbers(slots, "--slots"),
        folder=out or Path("results") / f"{traffic.stem(file)}_fit" if report or out else None,
        reading={
            "first": first,
            "format": format,
            "prompt_column": prompt_column,
            "output_column": output_column,
        },
    )
    answer = fit_text.answer(str(file), asked, stderr_console())
    print(fit_text.as_json(answer) if json else _printable(fit_text.text(answer)))


@app.command("fit-step", rich_help_panel=QUICK)
def fit_step(
    file: Annotated[
        Path, typer.Argument(help="A CSV file of measured steps, - for standard input.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Fit lines to measured step times, and say how far off they are.

    The file has the columns batch, kv_tokens, prefill_tokens and ms. Example: sweep fit-step steps.csv
    """
    from sweep.commands.step_text import as_json, text
    from sweep.model.stepfit import fit_answer
    from sweep.model.steptable import read_step_table

    answer = fit_answer(read_step_table(file))
    print(as_json(answer) if json else _printable(text(answer)))


@app.command("list", rich_help_panel=QUICK)
def list_built_in(
    what: Annotated[
        str | None, typer.Argument(metavar="models|gpus|profiles|distributions|metrics", show_default=False)
    ] = None,
) -> None:
    """List what is built in: models and GPUs, profiles of real traffic, distributions, metrics.

    Without a word: how many there are of each.

    Example: sweep list models
    """
    from sweep.commands.listing import overview, text

    print(_printable(overview() if what is None else text(what)))


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

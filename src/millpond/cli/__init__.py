"""The command line: ``millpond``. Each group of commands has a module; options and messages live here.

The work of a command lives in modules that it imports when it runs, so that ``millpond --help`` answers at once and
needs no Spark.

Exit codes, of every command::

    0  done, and all is right
    1  done, and something is not right; or what it needed could not be read or written
    2  the command line, an option or an installation makes no sense; nothing was touched
    3  an error that nobody expected
    130  Ctrl-C
    143  SIGTERM, of millpond bench and advise, which clean up first, and of the screen of millpond top
"""

import sys
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli import (
    backends,
    backups,
    cleaning,
    doctor,
    editing,
    explaining,
    imports,
    inspecting,
    monitoring,
    own_process,
    reshaping,
    state,
    upkeep,
    warming,
)
from millpond.cli.bench import advise
from millpond.cli.bench import commands as bench
from millpond.cli.terminal import answers, completing, ending
from millpond.cli.terminal.answers import AsJson, say_object
from millpond.cli.terminal.teaching import lesson, let_paragraphs_flow
from millpond.errors import MissingPackageError

BEGIN = "To begin with"
OTHERS = "Other systems"
"""The panels of the help, in the order in which a newcomer needs them."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=lesson(
        "millpond demo  # a year of real flights, in some minutes",
        "millpond state list CHECKPOINT --state-dir STATE  # what a query of yours has",
        "millpond state get --help  # how any command is used",
        read="docs/command-line.md",
    ),
)
app.add_typer(backends.app, name="backends", rich_help_panel=BEGIN)
state.app.add_typer(inspecting.app)
state.app.add_typer(upkeep.app)
state.app.add_typer(cleaning.app)
state.app.add_typer(backups.app)
state.app.add_typer(reshaping.app)
state.app.add_typer(editing.app)
state.app.add_typer(warming.app)
app.add_typer(state.app, name="state", rich_help_panel=state.STATE)
app.add_typer(monitoring.app)
app.add_typer(doctor.app)
app.add_typer(imports.app, name="import", rich_help_panel=OTHERS)
app.add_typer(advise.app)
app.add_typer(bench.app, name="bench", rich_help_panel=advise.MEASURE)


def main() -> None:
    """Run the console script. Errors are printed as messages, with their trace only if ``--debug`` asks for it."""
    own_process.begin()
    ending.escape_what_cannot_be_written()
    answers.expect_text()
    try:
        app(prog_name="millpond")
    except Exception as error:
        if _debugging:
            ending.trace_without_secrets()
            raise
        told = dumps(ending.to_dict(error)) if answers.wants_json() else f"millpond: {ending.told(error)}"
        typer.echo(told, err=True)
        sys.exit(ending.exit_code(error))


_debugging = False
"""True if errors keep their traces, as with ``--debug``."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from millpond.releases import RELEASE

        typer.echo(f"millpond {RELEASE}")
        raise typer.Exit


@app.callback()
def millpond(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the release and exit")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="show the trace of an error; stands before the command")
    ] = False,
) -> None:
    """Pluggable, typed, versioned state stores for Spark streams, and the stream processors that use them.

    Exit codes: 0 all is right, 1 something is not, 2 what was asked for makes no sense, 3 an unexpected error.
    """
    global _debugging
    _debugging = debug


@app.command(
    rich_help_panel=BEGIN,
    epilog=lesson(
        "millpond demo",
        "millpond demo --backend lmdb --max-batches 4  # a part; the same command goes on from there",
        "millpond demo --out demo-out --json",
        codes="1 if a row is not right",
        read="README.md",
    ),
)
def demo(
    backend: Annotated[
        str,
        typer.Option(
            metavar="BACKEND",
            autocompletion=completing.backend_names,
            help="rocksdb, lmdb, memory, or a URL such as lmdb://?sync=true",
        ),
    ] = "rocksdb",
    out: Annotated[Path, typer.Option(metavar="DIR", help="where the outputs go")] = Path("demo-out"),
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where Spark's checkpoints go; OUT/checkpoint by default")
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="where durable state goes, a path or URL; OUT/state by default"),
    ] = None,
    batch_rows: Annotated[int, typer.Option(metavar="ROWS", min=1, help="flights per micro-batch")] = 25_000,
    max_batches: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="stop after this many micro-batches")
    ] = None,
    json: AsJson = False,
) -> None:
    """Join a year of real flights, each with the weather of its hour, on Spark, with the state in the BACKEND."""
    try:
        from rich.console import Console

        from millpond.demo import job, report
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("millpond"):
            raise
        raise MissingPackageError(f"the demo needs {error.name}: pip install 'millpond[demo]'") from error
    options = job.Options(
        backend=backend,
        out=out,
        checkpoint=checkpoint or out / "checkpoint",
        state_dir=state_dir or str(out / "state"),
        batch_rows=batch_rows,
        max_batches=max_batches,
    )
    summary = report.run(options, Console(stderr=True) if json else None)
    if json:
        say_object(summary.to_dict())
    if not summary.right:
        raise typer.Exit(1)


app.command("explain", rich_help_panel=BEGIN, epilog=explaining.LESSON)(explaining.explain)
let_paragraphs_flow(app)

"""The command line: ``millpond``. Each group of commands has a module; options and messages live here.

What a command does lives in what it imports, and it imports that when it runs, so that ``millpond --help`` answers at
once and needs no Spark.

Exit codes, of every command::

    0  done, and all is right
    1  done, and something is not right; or what it needed could not be read or written
    2  the command line, an option or an installation makes no sense; nothing was touched
    3  an error that nobody expected
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli import advise, backends, bench, cleaning, imports, looking, own_process, state, watching
from millpond.errors import ConfigurationError, MillpondError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(advise.app)
app.add_typer(backends.app, name="backends")
app.add_typer(bench.app, name="bench")
state.app.add_typer(looking.app)
state.app.add_typer(cleaning.app)
app.add_typer(state.app, name="state")
app.add_typer(imports.app, name="import")
app.add_typer(watching.app)


def main() -> None:
    """The console script. Errors are printed as messages, with their trace only if ``--debug`` asks for it."""
    own_process.begin()
    try:
        app()
    except Exception as error:
        if _debugging:
            raise
        typer.echo(f"millpond: {_message(error)}", err=True)
        sys.exit(_exit_code(error))


def _message(error: Exception) -> str:
    if isinstance(error, MillpondError):
        return str(error)
    return (
        f"an error that nobody expected: {type(error).__name__}: {error}\n"
        "To see where it happened, give --debug before the command: millpond --debug ..."
    )


def _exit_code(error: Exception) -> int:
    if isinstance(error, MillpondError):
        return 2 if isinstance(error, ConfigurationError) else 1
    return 3


_debugging = False
"""Whether errors keep their traces, as ``--debug`` says."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from millpond.stores.releases import RELEASE

        typer.echo(f"millpond {RELEASE}")
        raise typer.Exit


@app.callback()
def millpond(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the release and exit")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show the trace of an error")] = False,
) -> None:
    """Pluggable, typed, versioned state stores for Spark streams, and the stream processors that use them.

    Exit codes: 0 all is right, 1 something is not, 2 what was asked for makes no sense, 3 an unexpected error.
    """
    global _debugging
    _debugging = debug


@app.command()
def demo(
    backend: Annotated[str, typer.Option(help="rocksdb, lmdb, memory, or a URL such as lmdb://?sync=true")] = "rocksdb",
    out: Annotated[Path, typer.Option(help="where the outputs go")] = Path("demo-out"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="where Spark's checkpoints go; OUT/checkpoint by default")
    ] = None,
    state_dir: Annotated[
        str | None, typer.Option(help="where durable state goes, a path or URL; OUT/state by default")
    ] = None,
    batch_rows: Annotated[int, typer.Option(help="flights per micro-batch")] = 25_000,
    max_batches: Annotated[int | None, typer.Option(help="stop after this many micro-batches")] = None,
) -> None:
    """A year of real flights, each joined with the weather of its hour, on Spark, with the state in the BACKEND."""
    try:
        from millpond.demo import job, report
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("millpond"):
            raise
        raise ConfigurationError(f"the demo needs {error.name}: pip install 'millpond[demo]'") from error
    options = job.Options(
        backend=backend,
        out=out,
        checkpoint=checkpoint or out / "checkpoint",
        state_dir=state_dir or str(out / "state"),
        batch_rows=batch_rows,
        max_batches=max_batches,
    )
    if not report.run(options):
        raise typer.Exit(1)

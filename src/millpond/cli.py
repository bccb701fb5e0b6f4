"""The command line: ``millpond``. Options and messages live here; what a command does lives where it imports it from.

A command imports what it needs when it runs, so that ``millpond --help`` answers at once and needs no Spark.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from millpond.errors import ConfigurationError, MillpondError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def main() -> None:
    """The console script. What Millpond raises on purpose is printed as its message; anything else keeps its trace."""
    try:
        app()
    except MillpondError as error:
        typer.echo(f"millpond: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millpond {version('millpond')}")
        raise typer.Exit


@app.callback()
def millpond(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """Pluggable, typed, versioned state stores for Spark streams, and the stream processors that use them."""


@app.command()
def demo(
    backend: Annotated[str, typer.Option(help="rocksdb, lmdb, memory, or a URL such as lmdb://?sync=true")] = "rocksdb",
    out: Annotated[Path, typer.Option(help="where the outputs go")] = Path("demo-out"),
    checkpoint: Annotated[Path | None, typer.Option(help="Spark's checkpoints; OUT/checkpoint unless given")] = None,
    state_dir: Annotated[str | None, typer.Option(help="the durable state, also a URL; OUT/state unless given")] = None,
    batch_rows: Annotated[int, typer.Option(help="flights per micro-batch")] = 25_000,
    max_batches: Annotated[int | None, typer.Option(help="stop after so many micro-batches")] = None,
) -> None:
    """A year of real flights, each joined with the weather of its hour, on Spark, with the state in the BACKEND."""
    try:
        from millpond.demo import job, report
    except ImportError as error:
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

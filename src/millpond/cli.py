"""The command line: ``millpond``. Options and messages live here; what a command does lives where it imports it from.

A command imports what it needs when it runs, so that ``millpond --help`` answers at once and needs no Spark.
"""

import sys
from importlib.metadata import version
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

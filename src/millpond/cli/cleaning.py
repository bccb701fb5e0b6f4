"""``millpond state clean``: list the leftovers of state and local copies, and delete them.

Rule of this module: options and messages live here; ``millpond.adapters.inspect.cleaning`` decides what may go.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millpond.cli.state import KEEP, Workers
from millpond.cli.terminal import durations
from millpond.cli.terminal.answers import AsJson
from millpond.cli.terminal.teaching import lesson
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.stores.cleaning.leftover import Leftover

_WITH_YES: Final = (
    "; with --yes it goes, unless this host's clock, by which it is old, is apart from the one that dates the files"
)

app = typer.Typer()


@app.command(
    "clean",
    rich_help_panel=KEEP,
    epilog=lesson(
        "millpond state clean --state-dir STATE --checkpoint CHECKPOINT  # only say what may go",
        'millpond state clean --local-dir /mnt/millpond --older-than "3 days" --yes',
        codes="1 if something that may go could not be deleted, or a checkpoint cannot be read, so that nothing goes",
        read="docs/operating.md",
    ),
)
def state_clean(
    state_dir: Annotated[str | None, typer.Option(metavar="PLACE", help="jobs' state_dir, a path or URL")] = None,
    local_dir: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="a job's local_dir on this machine; may be repeated")
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKPOINT", help="the checkpointLocation of a query with state there; may be repeated"),
    ] = None,
    application: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="an application, or a pattern such as 'flights.*', of which no checkpoint but those that are given "
            "has state; may be repeated",
        ),
    ] = None,
    older_than: Annotated[
        str, typer.Option(metavar=durations.DURATION, help="how long nobody may have written to what goes")
    ] = "7 days",
    workers: Workers = 4,
    yes: Annotated[bool, typer.Option("--yes", help="delete it; without, it is only said")] = False,
    json: AsJson = False,
) -> None:
    """List durable files and local copies that nobody needs, and delete them with --yes; queries may be running."""
    from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
    from millpond.adapters.inspect.cleaning import Cleaning
    from millpond.adapters.inspect.row_texts import cells, line_of
    from millpond.stores.durability import Storage

    cleaning = Cleaning(
        None if state_dir is None else Storage.from_uri(state_dir),
        [SparkCheckpoint.at(location, workers) for location in checkpoint or ()],
        local_dir or (),
        application or (),
        durations.millis("--older-than", older_than),
    )
    found = cleaning.found()
    sizes: dict[str, int] = {}
    for number, (leftover, verdict) in enumerate(_treated(found.leftovers, yes)):
        row = leftover.to_dict(verdict)
        if not (json or number):
            typer.echo("\t".join(row))
        typer.echo(line_of(row) if json else "\t".join(cells(row)))
        sizes[verdict] = sizes.get(verdict, 0) + leftover.size
    told = ", ".join(f"{verdict}: {size:,} bytes" for verdict, size in sorted(sizes.items()))
    typer.echo((told or "nothing was found") + (_WITH_YES if "may go" in sizes else ""), err=True)
    if found.fault is not None:
        typer.echo(f"nothing goes: {found.fault}", err=True)
    if "failed" in sizes or found.fault is not None:
        raise typer.Exit(1)


def _treated(leftovers: "list[Leftover]", yes: bool) -> "Iterator[tuple[Leftover, str]]":
    """Yield each leftover with its treatment."""
    for leftover in leftovers:
        if leftover.delete is None:
            yield leftover, "stays"
        elif not yes:
            yield leftover, "may go"
        else:
            try:
                leftover.delete()
            except MillpondError as error:
                yield leftover.kept(str(error)), "failed"
            else:
                yield leftover, "deleted"

"""``millpond state backup``, ``backups``, ``restore`` and ``clone``.

Rule of this module: options and messages live here; ``millpond.adapters.backup`` decides what is copied.
"""

from typing import Annotated

import typer

from millpond.cli.state import BatchNumber, CheckpointPlace, StateDir
from millpond.cli.terminal.answers import AsJson, say, say_object
from millpond.cli.terminal.teaching import lesson

BACK_UP = "Back it up, without Spark"
"""The panel of the help."""

Directory = Annotated[
    str, typer.Argument(metavar="BACKUPS", help="the directory with the backups, a path or URL", show_default=False)
]
NewCheckpoint = Annotated[str, typer.Option("--checkpoint", metavar="PLACE", help="the checkpointLocation to make")]
NewStateDir = Annotated[
    str, typer.Option("--state-dir", metavar="PLACE", help="the state_dir; no state of the job may be there")
]

app = typer.Typer()


@app.command(
    "backup",
    rich_help_panel=BACK_UP,
    epilog=lesson(
        "millpond state backup CHECKPOINT BACKUPS --state-dir STATE",
        "millpond state backup CHECKPOINT s3://bucket/backups --state-dir s3://bucket/state --keep 7",
        read="docs/operating.md, backing up",
    ),
)
def state_backup(
    checkpoint: CheckpointPlace,
    backups: Directory,
    state_dir: StateDir,
    batch: BatchNumber = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="keep so many backups, and delete older ones; all by default"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Copy the checkpoint and the state of a query into a directory of backups. The query may be running."""
    from millpond.adapters.backup.backups import Backups
    from millpond.adapters.backup.query_copy import QueryPlace

    say(Backups.at(backups).make(QueryPlace(checkpoint, state_dir), batch, keep=keep), json)


@app.command(
    "backups",
    rich_help_panel=BACK_UP,
    epilog=lesson("millpond state backups BACKUPS", codes="1 if one is damaged", read="docs/operating.md, backing up"),
)
def state_backups(backups: Directory, json: AsJson = False) -> None:
    """List the backups of a directory that are complete, the oldest one first, and those that are damaged."""
    from millpond.adapters.backup.backups import Backups

    found = Backups.at(backups)
    for backup in found.all():
        say(backup, json)
    damaged = found.damaged()
    for name, error in damaged.items():
        say_object({"name": name, "damaged": str(error)}) if json else typer.echo(f"{name}  {error}")
    if damaged:
        raise typer.Exit(1)


@app.command(
    "restore",
    rich_help_panel=BACK_UP,
    epilog=lesson(
        "millpond state restore BACKUPS --checkpoint CHECKPOINT --state-dir STATE",
        "millpond state restore BACKUPS --backup 20261129T203000.125Z --checkpoint CHECKPOINT --state-dir STATE",
        read="docs/operating.md, backing up",
    ),
)
def state_restore(
    backups: Directory,
    checkpoint: NewCheckpoint,
    state_dir: NewStateDir,
    backup: Annotated[str | None, typer.Option(metavar="NAME", help="the backup; the last one by default")] = None,
    json: AsJson = False,
) -> None:
    """Put a query back as a backup has it; it goes on from there. Nothing of it may be at these places."""
    from millpond.adapters.backup.backups import Backups
    from millpond.adapters.backup.query_copy import QueryPlace

    copy = Backups.at(backups).restore(QueryPlace(checkpoint, state_dir), backup)
    say_object(copy.to_dict()) if json else typer.echo(f"restored {copy}")


@app.command(
    "clone",
    rich_help_panel=BACK_UP,
    epilog=lesson(
        "millpond state clone CHECKPOINT --state-dir STATE --into /data/clone",
        "millpond state clone CHECKPOINT --state-dir STATE --into /data/clone --application-id flights-b",
        read="docs/operating.md, clones",
    ),
)
def state_clone(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    into: Annotated[
        str, typer.Option(metavar="PLACE", help="where the clone gets checkpoint/ and state/, a path or URL")
    ],
    batch: BatchNumber = None,
    application_id: Annotated[
        str | None, typer.Option(metavar="ID", help="the application_id of its job; the same by default")
    ] = None,
    json: AsJson = False,
) -> None:
    """Make another query that begins where this one is, with an id, a checkpoint and a state_dir of its own."""
    from millpond.adapters.backup.query_copy import QueryPlace, copy_query

    place, clone = QueryPlace(checkpoint, state_dir), QueryPlace.below(into)
    copy = copy_query(place, clone, batch, same=False, application_id=application_id)
    say_object(copy.to_dict()) if json else typer.echo(f"cloned {copy}")

"""``millpond state verify`` and ``repair``.

Rule of this module: options and messages live here; ``millpond.adapters.spark.copies.upkeep`` verifies and repairs.
"""

from typing import Annotated

import typer

from millpond.cli.state import (
    KEEP,
    BatchNumber,
    CheckpointPlace,
    LocalDir,
    StateDir,
    TopologyName,
    Workers,
    query_state,
    topology_named,
)
from millpond.cli.terminal.answers import AsJson, say, say_object
from millpond.cli.terminal.teaching import lesson

app = typer.Typer()


@app.command(
    "verify",
    rich_help_panel=KEEP,
    epilog=lesson(
        "millpond state verify CHECKPOINT --state-dir STATE",
        "millpond state verify CHECKPOINT --state-dir STATE --local-dir /mnt/millpond --topology jobs:flights",
        "millpond state verify CHECKPOINT --state-dir s3://bucket/state --batch 41 --json > report.json",
        codes="1 if something has to be done",
        read="docs/running-on-spark.md, looking after state",
    ),
)
def state_verify(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: LocalDir = None,
    batch: BatchNumber = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: AsJson = False,
) -> None:
    """Verify durable state, and local copies, to the last byte and row. Changes nothing; the query may be running."""
    with query_state(checkpoint, state_dir, local_dir, workers) as query:
        report = query.verify(batch, topology_named(topology))
    say(report, json)
    if not report.sound:
        raise typer.Exit(1)


@app.command(
    "repair",
    rich_help_panel=KEEP,
    epilog=lesson(
        "millpond state repair CHECKPOINT --state-dir STATE --local-dir /mnt/millpond  # only say what can be done",
        "millpond state repair CHECKPOINT --state-dir STATE --local-dir /mnt/millpond --yes",
        codes="1 if something remains to be done",
        read="docs/operating.md",
    ),
)
def state_repair(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: LocalDir = None,
    batch: BatchNumber = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="also delete durable files that no retained micro-batch needs")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without, it is only said")] = False,
    json: AsJson = False,
) -> None:
    """Verify, say what can be done, and do it with --yes: delete local copies that do not hold, and garbage.

    For durable files that are broken, it says to which micro-batch the query can go back, and how.
    """
    with query_state(checkpoint, state_dir, local_dir, workers) as query:
        report = query.verify(batch, topology_named(topology))
        if not json:
            say(report, json)
        repairs = []
        for repair in query.repairs(report, orphans=orphans):
            typer.echo(f"{'doing' if yes else 'with --yes'}: {repair.what}", err=json)
            if yes:
                repair.do()
            repairs.append({"what": repair.what, "done": yes})
        way_back = None if report.intact else query.way_back(batch)
    if json:
        say_object({**report.to_dict(), "repairs": repairs, "way_back": way_back})
    elif way_back is not None:
        typer.echo(way_back)
    if way_back is not None or not (yes or report.sound):
        raise typer.Exit(1)

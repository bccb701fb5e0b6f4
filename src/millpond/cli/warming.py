"""``millpond state warm``.

Rule of this module: options and messages live here; ``millpond.adapters.spark`` warms.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.state import CHANGE, CheckpointPlace, SinkName, StateDir, Workers, query_state, topology_named
from millpond.cli.terminal import completing, durations
from millpond.cli.terminal.answers import AsJson, say
from millpond.cli.terminal.teaching import lesson
from millpond.errors import ArgumentConflictError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millpond.adapters.spark.copies.copy_formats import CopyFormats
    from millpond.adapters.spark.copies.standby import Round, Standby
    from millpond.adapters.spark.copies.warm_query import WarmQuery
    from millpond.adapters.spark.copies.warming import Warmth
    from millpond.stores.durability import Manifest

app = typer.Typer()

_JOB = "As the job will have it"
_STANDBY = "For executors that are lost"


@app.command(
    "warm",
    rich_help_panel=CHANGE,
    epilog=lesson(
        "millpond state warm CHECKPOINT --state-dir STATE --local-dir /mnt/new --backend lmdb --once",
        "millpond state warm CHECKPOINT --state-dir STATE --local-dir /mnt/new --topology jobs:flights",
        "millpond state warm CHECKPOINT --state-dir STATE --local-dir /mnt/millpond --standby --share 1/3",
        read="docs/upgrading.md, and docs/operating.md for --standby",
    ),
)
def state_warm(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="the local_dir with which the query is to be restarted, or its own with --standby"
        ),
    ],
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            rich_help_panel=_JOB,
            help="the topology with which the query is to be restarted, if stores will be of another kind, or have a "
            "backend or checksums of their own, of which the state knows nothing",
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="BACKEND",
            rich_help_panel=_JOB,
            autocompletion=completing.backend_names,
            help="rocksdb, lmdb, or a URL; without --topology, for all stores",
        ),
    ] = "rocksdb",
    checksums: Annotated[
        bool,
        typer.Option(
            "--checksums", rich_help_panel=_JOB, help="if the job will have them; without --topology, for all stores"
        ),
    ] = False,
    sink: SinkName = None,
    workers: Workers = 4,
    interval: Annotated[
        str, typer.Option(metavar=durations.DURATION, help="how long to wait before the copies catch up again")
    ] = "5 seconds",
    once: Annotated[bool, typer.Option("--once", help="end when the copies stand at the last micro-batch")] = False,
    nice: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=19, help="give way to the query on the same cores, as nice(1) has it; 0 for not"
        ),
    ] = 10,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            rich_help_panel=_STANDBY,
            help="keep warm copies in the local_dir of the job itself, of tasks that other machines run now; the other "
            "options are as the job has them. Needs no Spark",
        ),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="I/N",
            rich_help_panel=_STANDBY,
            help="the part of the tasks to keep; may be repeated; all by default",
        ),
    ] = None,
    lag: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=_STANDBY,
            help="how many micro-batches a copy may be behind before it catches up, up to 15",
        ),
    ] = 0,
    json: AsJson = False,
) -> None:
    """Warm local copies on this machine beside a running query, in the formats that its next restart asks for.

    Without a topology, it warms all that the query runs, verbs included, with the stores that its state has.

    With --standby, for executors that are lost instead of a restart: run it on each machine that may get tasks.

    Says each time how far they are, and goes on until it is interrupted. It changes nothing but LOCAL_DIR.
    """
    from millpond.stores.backend.registry import supplier

    if not standby and (share or lag):
        raise ArgumentConflictError("--share and --lag are for --standby; give that, too, or leave them out")
    found, pause = topology_named(topology), durations.millis("--interval", interval) / 1000
    os.nice(nice)  # before Spark starts, whose JVM inherits it
    if standby:
        from millpond.adapters.spark.copies.copy_formats import CopyFormats

        formats = CopyFormats(found, sink, supplier(backend), checksums)
        _say(_standby(checkpoint, state_dir, local_dir, formats, share or [], lag, workers).follow(pause), json, once)
        return
    with query_state(checkpoint, state_dir, local_dir, workers) as query:
        _say(query.warming(found, sink, supplier(backend), checksums=checksums).follow(pause), json, once)


def _say(passes: "Iterable[Warmth | Round]", json: bool, once: bool) -> None:
    """Print the copies of each pass, after the first or until there are no more passes."""
    for done in passes:
        say(done, json)
        if once:
            break


def _standby(
    checkpoint: str, state_dir: str, local_dir: Path, formats: "CopyFormats", shares: list[str], lag: int, workers: int
) -> "Standby":
    from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
    from millpond.adapters.spark.copies.standby import Share, Standby
    from millpond.stores.durability import Storage

    found, storage = SparkCheckpoint.at(checkpoint, workers), Storage.from_uri(state_dir)

    def queries(manifests: "Collection[Manifest]") -> "list[WarmQuery]":
        return formats.queries(checkpoint, storage, str(local_dir), manifests)

    return Standby(found, queries, [Share.parsed(share) for share in shares], lag, workers)

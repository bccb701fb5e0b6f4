"""``millpond state``: look after the state of a query on Spark."""

import os
import sys
from contextlib import contextmanager
from importlib import import_module
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from millpond.adapters.spark.evolution.copy_formats import CopyFormats
    from millpond.adapters.spark.evolution.reshaping import Reshaping
    from millpond.adapters.spark.evolution.warm_query import WarmQuery
    from millpond.adapters.spark.evolution.warming import Warmth
    from millpond.adapters.spark.standby import Round, Standby
    from millpond.adapters.spark.upkeep import QueryState
    from millpond.processors import Topology
    from millpond.stores.durability import Manifest

app = typer.Typer(no_args_is_help=True, help="Look after the state of a query on Spark.")

CheckpointPlace = Annotated[str, typer.Argument(help="the query's checkpointLocation")]
StateDir = Annotated[str, typer.Option(help="the job's state_dir, a path or URL")]
LocalDir = Annotated[Path | None, typer.Option(help="the job's local_dir, to compare the local copies of this machine")]
BatchNumber = Annotated[int | None, typer.Option(help="the state after this micro-batch; the last one by default")]
Workers = Annotated[int, typer.Option(min=1, help="files that are read at the same time")]
TopologyName = Annotated[
    str | None, typer.Option(help="MODULE:NAME of a topology whose stores' rows are to be read with their serdes")
]
SinkName = Annotated[str | None, typer.Option(help="the sink that the query writes, if its application has several")]


@app.command("verify")
def state_verify(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: LocalDir = None,
    batch: BatchNumber = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    json: Annotated[Path | None, typer.Option(help="also write the report to this file")] = None,
) -> None:
    """Verify durable state, and local copies, to the last byte and row. Changes nothing; the query may be running.

    Exit code 1: something has to be done.
    """
    with _query_state(checkpoint, state_dir, local_dir, workers) as query:
        report = query.verify(batch, topology_named(topology))
    for line in report.lines():
        typer.echo(line)
    if json is not None:
        json.write_text(dumps(report.to_dict(), indent=1) + "\n")
    if not report.sound:
        raise typer.Exit(1)


@app.command("repair")
def state_repair(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: LocalDir = None,
    batch: BatchNumber = None,
    topology: TopologyName = None,
    workers: Workers = 4,
    orphans: Annotated[bool, typer.Option(help="also delete durable files that no retained micro-batch needs")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without, it is only said")] = False,
) -> None:
    """Verify, say what can be done, and do it with --yes: delete local copies that do not hold, and garbage.

    For durable files that are broken, it says to which micro-batch the query can go back, and how. Exit code 1:
    something remains to be done.
    """
    with _query_state(checkpoint, state_dir, local_dir, workers) as query:
        report = query.verify(batch, topology_named(topology))
        for line in report.lines():
            typer.echo(line)
        for repair in query.repairs(report, orphans=orphans):
            typer.echo(f"{'doing' if yes else 'with --yes'}: {repair.what}")
            if yes:
                repair.do()
        broken = not report.intact
        if broken:
            typer.echo(query.way_back(batch))
    if broken or not (yes or report.sound):
        raise typer.Exit(1)


@app.command("repartition")
def state_repartition(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    partitions: Annotated[int, typer.Option(min=1, help="how many tasks each sub-topology or verb gets")],
    sink: SinkName = None,
    workers: Workers = 4,
) -> None:
    """Carry the state of a query that is not running over to another number of partitions, verbs included.

    The job then has to give that number, or none. Where the state has it already, nothing is done.
    """
    with _reshaping(checkpoint, state_dir, sink, workers) as reshaping:
        for line in reshaping.repartition(partitions):
            typer.echo(line)


@app.command("evolve")
def state_evolve(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    topology: Annotated[str, typer.Option(help="MODULE:NAME of the topology that is to run")],
    partitions: Annotated[int | None, typer.Option(min=1, help="as many as the state has by default")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="OLD=NEW, a store's names; may be repeated")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="a store that is gone; may be repeated")] = None,
    convert: Annotated[
        list[str] | None, typer.Option(help="STORE=KIND, the kind of one that was of another; may be repeated")
    ] = None,
    valid_from: Annotated[
        list[str] | None,
        typer.Option(help="STORE=TIME (ISO 8601 with zone, or milliseconds), of versions whose time is unknown"),
    ] = None,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="lose what the new kinds do not keep")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be done and lost")] = False,
    sink: SinkName = None,
    workers: Workers = 4,
) -> None:
    """Carry the state of a query that is not running over to a changed topology.

    It does what evolution=Evolution(...) does when the job is started. Where the state fits, nothing is done.
    """
    from millpond.stores.evolution.matching import Declared
    from millpond.stores.times import time_in, to_instant

    found = topology_named(topology)
    assert found is not None
    with _reshaping(checkpoint, state_dir, sink, workers) as reshaping:
        declared = Declared(
            _pairs("--rename", rename, "OLD=NEW, as in --rename counts=totals"),
            drop or [],
            _pairs("--convert", convert, "STORE=KIND, as in --convert prices=versioned"),
            {
                store: to_instant(time_in(text, "--valid-from"), "--valid-from")
                for store, text in _pairs("--valid-from", valid_from, "STORE=TIME").items()
            },
            accept_loss,
        )
        for line in reshaping.evolve(found, partitions, declared, dry_run=dry_run):
            typer.echo(line)


def _pairs(option: str, pairs: list[str] | None, form: str) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs or []]
    if not all(name and value for name, _, value in split):
        raise ConfigurationError(f"{option} is {pairs}; give {form}")
    return {name: value for name, _, value in split}


@app.command("warm")
def state_warm(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    local_dir: Annotated[
        Path, typer.Option(help="the local_dir with which the query is to be restarted, or its own with --standby")
    ],
    topology: Annotated[
        str | None,
        typer.Option(
            help="MODULE:NAME of the topology with which the query is to be restarted, if stores will be of another "
            "kind, or have a backend or checksums of their own, of which the state knows nothing"
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="rocksdb, lmdb, or a URL, as the job will have it; without TOPOLOGY, for all stores")
    ] = "rocksdb",
    checksums: Annotated[
        bool, typer.Option("--checksums", help="if the job will have them; without TOPOLOGY, for all stores")
    ] = False,
    sink: SinkName = None,
    workers: Workers = 4,
    interval: Annotated[str, typer.Option(help="how long to wait before the copies catch up again")] = "5 seconds",
    once: Annotated[bool, typer.Option("--once", help="end when the copies stand at the last micro-batch")] = False,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="give way to the query on the same cores, as nice(1) has it; 0 for not")
    ] = 10,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="keep warm copies in the local_dir of the job itself, of tasks that other machines run now; the other "
            "options are as the job has them. Needs no Spark",
        ),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(help="with --standby: I/N, the part of the tasks to keep; may be repeated; all by default"),
    ] = None,
    lag: Annotated[
        int,
        typer.Option(help="with --standby: how many micro-batches a copy may be behind before it catches up, up to 15"),
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="print JSON, a line each time")] = False,
) -> None:
    """Warm local copies on this machine beside a running query, in the formats that its next restart asks for.

    Without a topology, those of all that the query runs, verbs included, with the stores that its state has.

    With --standby, for executors that are lost instead of a restart: run it on each machine that may get tasks.

    Says each time how far they are, and goes on until it is interrupted. It changes nothing but LOCAL_DIR.
    """
    from millpond.stores.registry import supplier
    from millpond.stores.times import to_length

    if not standby and (share or lag):
        raise ConfigurationError("--share and --lag are for --standby; give that, too, or leave them out")
    found, pause = topology_named(topology), to_length(interval, "interval") / 1000
    os.nice(nice)  # before Spark starts, whose JVM inherits it
    if standby:
        from millpond.adapters.spark.evolution.copy_formats import CopyFormats

        formats = CopyFormats(found, sink, supplier(backend), checksums)
        _say(_standby(checkpoint, state_dir, local_dir, formats, share or [], lag, workers).follow(pause), json, once)
        return
    with _query_state(checkpoint, state_dir, local_dir, workers) as query:
        _say(query.warming(found, sink, supplier(backend), checksums=checksums).follow(pause), json, once)


def _say(passes: "Iterable[Warmth | Round]", json: bool, once: bool) -> None:
    """Say after each pass what it has done, after the first or until there is no more."""
    for done in passes:
        for line in [dumps(done.to_dict())] if json else done.lines():
            typer.echo(line)
        if once:
            break


def _standby(
    checkpoint: str, state_dir: str, local_dir: Path, formats: "CopyFormats", shares: list[str], lag: int, workers: int
) -> "Standby":
    from millpond.adapters.looking.spark_checkpoint import SparkCheckpoint
    from millpond.adapters.spark.standby import Share, Standby
    from millpond.stores.durability import Storage

    found, storage = SparkCheckpoint.at(checkpoint, workers), Storage.from_uri(state_dir)

    def queries(manifests: "Collection[Manifest]") -> "list[WarmQuery]":
        return formats.queries(checkpoint, storage, str(local_dir), manifests)

    return Standby(found, queries, [Share.parsed(share) for share in shares], lag, workers)


@contextmanager
def _reshaping(checkpoint: str, state_dir: str, sink: str | None, workers: int) -> "Iterator[Reshaping]":
    with _query_state(checkpoint, state_dir, None, workers) as query:
        from millpond.adapters.spark.evolution.reshaping import Reshaping

        yield Reshaping(query.checkpoint, query.storage, sink, workers)


@contextmanager
def _query_state(checkpoint: str, state_dir: str, local_dir: Path | None, workers: int) -> "Iterator[QueryState]":
    """The state of a query, with a Spark on this machine to read the checkpoint."""
    from millpond.adapters.looking.retained_batches import no_checkpoint
    from millpond.demo import session

    if "://" not in checkpoint and not Path(checkpoint.removeprefix("file:")).exists():
        raise no_checkpoint(checkpoint)  # before Spark starts, which takes seconds
    with TemporaryDirectory(prefix="millpond-") as directory:
        spark = session.start("millpond state", Path(directory), partitions=1)

        from millpond.adapters.spark.checkpoint import Checkpoint
        from millpond.adapters.spark.upkeep import QueryState
        from millpond.stores.durability import Storage

        yield QueryState(Checkpoint(spark, checkpoint), Storage.from_uri(state_dir), local_dir, workers)


def topology_named(name: str | None) -> "Topology | None":
    """The topology that MODULE:NAME means; None for none.

    Raises:
        ConfigurationError: there is no such topology.
    """
    if name is None:
        return None
    from millpond.processors import Topology

    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"there is no topology {name!r}: {error}; give MODULE:NAME, as in jobs:flights"
        ) from error
    if not isinstance(found, Topology):
        raise ConfigurationError(f"{name!r} is of type {type(found).__name__}; give what StreamsBuilder.build returned")
    return found

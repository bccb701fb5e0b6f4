"""The command line: ``millpond``. Options and messages live here; what a command does lives in what it imports.

A command imports what it needs when it runs, so that ``millpond --help`` answers at once and needs no Spark.
"""

import sys
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from millpond import cli_import
from millpond.errors import ConfigurationError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond.adapters.spark.evolution.reshaping import Reshaping
    from millpond.adapters.spark.upkeep import QueryState
    from millpond.processors import Topology
    from millpond.stores.specs import StoreKind

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
bench = typer.Typer(no_args_is_help=True, help="Measure, always beside a peer in the same run.")
app.add_typer(bench, name="bench")
state = typer.Typer(no_args_is_help=True, help="Look after the state of a query on Spark.")
app.add_typer(state, name="state")
app.add_typer(cli_import.app, name="import")

JsonFile = Annotated[Path | None, typer.Option("--json", help="also write the figures to this file")]
CheckpointPlace = Annotated[str, typer.Argument(help="the query's checkpointLocation")]
StateDir = Annotated[str, typer.Option(help="the job's state_dir, a path or URL")]
LocalDir = Annotated[Path | None, typer.Option(help="the job's local_dir, to compare the local copies of this machine")]
BatchNumber = Annotated[int | None, typer.Option(help="the state after this micro-batch; the last one by default")]
Workers = Annotated[int, typer.Option(min=1, help="files that are read at the same time")]
TopologyName = Annotated[
    str | None, typer.Option(help="MODULE:NAME of a topology whose stores' rows are to be read with their serdes")
]

SinkName = Annotated[str | None, typer.Option(help="the sink that the query writes, if its application has several")]


def main() -> None:
    """The console script. Errors that Millpond raises on purpose are printed as messages; others keep their trace."""
    try:
        app()
    except MillpondError as error:
        typer.echo(f"millpond: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        from millpond.stores.releases import RELEASE

        typer.echo(f"millpond {RELEASE}")
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


@bench.command("stores")
def bench_stores(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; all three by default")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="a store kind, such as versioned; may be repeated")] = None,
    keys: Annotated[int, typer.Option(help="keys in each store")] = 1_000_000,
    restore: Annotated[bool, typer.Option(help="also measure the restore from durable files")] = True,
    checksums: Annotated[bool, typer.Option(help="also measure what checksums of rows cost")] = True,
    growth: Annotated[str, typer.Option(help="also measure at these numbers of keys, such as 10000,10000000")] = "",
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Every operation of every store kind beside the raw engine, memory and disk, restore, checksums, growth."""
    from rich.console import Console

    from millpond.bench import checksums as checking
    from millpond.bench import report, store_tables, stores
    from millpond.bench import restore as restoring
    from millpond.stores.specs import StoreKind

    backends = backend or ["memory", "lmdb", "rocksdb"]
    figures = stores.run(
        backends, [_kind(name) for name in kind or [k.value for k in StoreKind]], keys, directory=directory
    )
    if restore:
        figures["restore"] = restoring.run(backends, keys, directory=directory)
    if checksums:
        figures["checksums"] = checking.run(backends, keys, directory=directory)
    if growth:
        figures["growth"] = stores.growth(backends, [int(size) for size in growth.split(",")], directory=directory)
    store_tables.print_results(Console(width=max(Console().width, 130)), figures)
    if json is not None:
        report.write_json(json, "stores", figures)


@bench.command("restore")
def bench_restore(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; all three by default")] = None,
    rows: Annotated[int, typer.Option(help="rows of a task")] = 400_000,
    stores: Annotated[list[int] | None, typer.Option(help="in how many stores; may be repeated; 1, 2, 4")] = None,
    latency: Annotated[float, typer.Option(help="milliseconds until the far storage answers")] = 20,
    bandwidth: Annotated[float, typer.Option(help="megabytes a second from the far storage to each reader")] = 100,
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Restoring all stores of a task from its durable files, nearby and far away."""
    from rich.console import Console

    from millpond.bench import report, task_restore

    figures = task_restore.run(
        backend or ["memory", "lmdb", "rocksdb"],
        rows,
        stores or [1, 2, 4],
        task_restore.Distance(latency / 1e3, bandwidth * 1e6),
        directory=directory,
    )
    task_restore.print_results(Console(), figures)
    if json is not None:
        report.write_json(json, "restore", figures)


@bench.command("processors")
def bench_processors(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; memory and lmdb by default")] = None,
    records: Annotated[int, typer.Option(help="records through each topology")] = 200_000,
    keys: Annotated[int, typer.Option(help="distinct keys among them")] = 20_000,
    profile: Annotated[bool, typer.Option(help="also show which functions take the time")] = True,
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Records per second through joins and counts in this process, on one core, beside the same work on dicts."""
    from rich.console import Console

    from millpond.bench import processors, report

    figures = processors.run(
        backend or ["memory", "lmdb"], records=records, keys=keys, profile=profile, directory=directory
    )
    processors.print_results(Console(width=max(Console().width, 110)), figures)
    if json is not None:
        report.write_json(json, "processors", figures)


@bench.command("evolution")
def bench_evolution(
    keys: Annotated[int, typer.Option(min=1, help="keys of the store")] = 1_000_000,
    partitions: Annotated[str, typer.Option(help="the numbers of partitions, one after the other")] = "4,16,4",
    rounds: Annotated[int, typer.Option(min=1, help="how often each step is measured")] = 3,
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Time and memory to carry durable state over to other numbers of partitions, beside copying it."""
    from rich.console import Console

    from millpond.bench import evolution, report

    way = [int(number) for number in partitions.split(",")]
    figures = evolution.run(keys, way, rounds=rounds, directory=directory)
    evolution.print_results(Console(width=max(Console().width, 80)), figures)
    if json is not None:
        report.write_json(json, "evolution", figures)


@bench.command("upgrade")
def bench_upgrade(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; all three by default")] = None,
    upgrade: Annotated[list[str] | None, typer.Option(help="timestamped or checksums; may be repeated; both")] = None,
    keys: Annotated[int, typer.Option(min=1, help="keys of the store")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="updates of a micro-batch")] = 20_000,
    batches: Annotated[int | None, typer.Option(min=1, help="micro-batches of each phase; 30, with --spark 20")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="a query on Spark instead of a bare task")] = False,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores, and tasks of the query")] = 2,
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Micro-batches of a task before, while and after its local copy gets a new format, in each way there is."""
    from rich.console import Console

    from millpond.bench import report
    from millpond.bench import upgrade as upgrading

    backends, upgrades = backend or ["memory", "lmdb", "rocksdb"], upgrade or list(upgrading.UPGRADES)
    console = Console(width=max(Console().width, 175))
    if spark:
        with _benchmark_extra():
            from millpond.bench.spark import upgrade as on_spark
        figures = on_spark.run(
            backends,
            keys,
            upgrades=upgrades,
            rows=rows,
            batches=batches or on_spark.BATCHES,
            cores=cores,
            directory=directory,
        )
        upgrading.print_results(console, figures, "add_batch")
    else:
        figures = upgrading.run(
            backends, keys, upgrades=upgrades, rows=rows, batches=batches or upgrading.BATCHES, directory=directory
        )
        upgrading.print_results(console, figures)
    if json is not None:
        report.write_json(json, "spark-upgrade" if spark else "upgrade", figures)


@bench.command("spark")
def bench_spark(
    workload: Annotated[
        str,
        typer.Option(
            help="count, temporal-join, table-join, stream-join, stream-join-left, window, session, foreign-key or "
            "exchange"
        ),
    ] = "count",
    rows: Annotated[
        int, typer.Option(min=1, help="rows per micro-batch; 1000 shows what a small one costs")
    ] = 1_000_000,
    keys: Annotated[
        int | None, typer.Option(min=1, help="distinct keys; 200,000 by default, with --growth 10,000,000 in the end")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="whose ratios to the peers are shown; the others are measured as well")
    ] = "lmdb",
    batches: Annotated[
        int | None, typer.Option(min=1, help="micro-batches of each query that are measured; 4, with --growth 50")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    files: Annotated[
        int | None, typer.Option(min=1, help="files of each topic in a micro-batch; as many as cores by default")
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(
            help="measure only these; may be repeated: a backend, verbs, transform_with_state or spark_jvm (whichever "
            "does this work), map_in_arrow (a pass-through), empty_transform_with_state (an operator that does "
            "nothing); with --growth the backend, spark_jvm and map_in_arrow by default"
        ),
    ] = None,
    growth: Annotated[
        bool, typer.Option("--growth", help="let keys grow, and hold the last ten micro-batches against the first ten")
    ] = False,
    directory: Annotated[Path | None, typer.Option(help="where the files go, on the file system to measure")] = None,
    json: JsonFile = None,
) -> None:
    """Time of a micro-batch and memory of a worker, on each backend and by the best that Spark has, in one run."""
    from rich.console import Console

    with _benchmark_extra():
        from millpond.bench import report
        from millpond.bench.spark import growth as growing
        from millpond.bench.spark import measure, tables
        from millpond.bench.spark.contest import Contest
    console = Console(width=max(Console().width, 140))
    way, show = (growing, tables.print_growth) if growth else (measure, tables.print_results)
    contest = Contest(
        workload, keys or way.KEYS, batches or way.BATCHES, rows, backend, cores, files, contender, directory, console
    )
    figures = way.run(contest)
    show(console, figures)
    if json is not None:
        report.write_json(json, "spark-growth" if growth else "spark", figures)


@bench.command("damage")
def bench_damage(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; lmdb and rocksdb by default")] = None,
    flips: Annotated[int, typer.Option(help="at most so many in each file; 0 flips every bit")] = 200,
    directory: Annotated[Path | None, typer.Option(help="where the files go")] = None,
    json: JsonFile = None,
) -> None:
    """What becomes of single-bit flips in every file of a small state: harmless, healed, refused or silent."""
    from rich.console import Console

    from millpond.bench import damage, report

    figures = damage.run(backend or ["lmdb", "rocksdb"], flips, directory=directory)
    damage.print_results(Console(width=max(Console().width, 110)), figures)
    if json is not None:
        report.write_json(json, "damage", figures)
    if any(row.get("silent") for row in figures["files"]):
        raise typer.Exit(1)


@state.command("verify")
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
        report = query.verify(batch, _topology(topology))
    for line in report.lines():
        typer.echo(line)
    if json is not None:
        json.write_text(dumps(report.to_dict(), indent=1) + "\n")
    if not report.sound:
        raise typer.Exit(1)


@state.command("repair")
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
        report = query.verify(batch, _topology(topology))
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


@state.command("repartition")
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


@state.command("evolve")
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

    found = _topology(topology)
    assert found is not None
    with _reshaping(checkpoint, state_dir, sink, workers) as reshaping:
        declared = Declared(
            _pairs("--rename", rename, "OLD=NEW, as in --rename counts=totals"),
            drop or [],
            _pairs("--convert", convert, "STORE=KIND, as in --convert prices=versioned"),
            {store: _time(text) for store, text in _pairs("--valid-from", valid_from, "STORE=TIME").items()},
            accept_loss,
        )
        for line in reshaping.evolve(found, partitions, declared, dry_run=dry_run):
            typer.echo(line)


def _pairs(option: str, pairs: list[str] | None, form: str) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs or []]
    if not all(name and value for name, _, value in split):
        raise ConfigurationError(f"{option} is {pairs}; give {form}")
    return {name: value for name, _, value in split}


def _time(text: str) -> int:
    """Milliseconds, or a time in the form of ISO 8601, as milliseconds.

    >>> _time("1970-01-01T00:00:01+00:00"), _time("-5")
    (1000, -5)
    """
    from millpond.stores.times import to_instant

    try:
        time = int(text) if text.removeprefix("-").isdecimal() else datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"--valid-from has the time {text!r}; give one such as 2026-01-31T00:00:00+00:00, or milliseconds"
        ) from error
    return to_instant(time, "--valid-from")


@state.command("warm")
def state_warm(
    checkpoint: CheckpointPlace,
    state_dir: StateDir,
    topology: Annotated[str, typer.Option(help="MODULE:NAME of the topology with which the query is to be restarted")],
    local_dir: Annotated[Path, typer.Option(help="the local_dir with which the query is to be restarted")],
    backend: Annotated[str, typer.Option(help="rocksdb, lmdb, or a URL, as the job will have it")] = "rocksdb",
    checksums: Annotated[bool, typer.Option("--checksums", help="if the job will have them")] = False,
    sink: SinkName = None,
    workers: Workers = 4,
    interval: Annotated[str, typer.Option(help="how long to wait before the copies catch up again")] = "5 seconds",
    once: Annotated[bool, typer.Option("--once", help="end when the copies stand at the last micro-batch")] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON, a line each time")] = False,
) -> None:
    """Warm local copies on this machine beside a running query, in the formats that its next restart asks for.

    Says each time how far they are, and goes on until it is interrupted. It changes nothing but LOCAL_DIR.
    """
    from millpond.stores.registry import supplier
    from millpond.stores.times import to_length

    found, pause = _topology(topology), to_length(interval, "interval") / 1000
    assert found is not None
    with _query_state(checkpoint, state_dir, local_dir, workers) as query:
        for warmth in query.warming(found, sink, supplier(backend), checksums=checksums).follow(pause):
            for line in [dumps(warmth.to_dict())] if json else warmth.lines():
                typer.echo(line)
            if once:
                break


@contextmanager
def _benchmark_extra() -> "Iterator[None]":
    """What is imported in here may need a package that does not come with the bare library."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("millpond"):
            raise
        raise ConfigurationError(f"this benchmark needs {error.name}: pip install 'millpond[bench]'") from error


@contextmanager
def _reshaping(checkpoint: str, state_dir: str, sink: str | None, workers: int) -> "Iterator[Reshaping]":
    with _query_state(checkpoint, state_dir, None, workers) as query:
        from millpond.adapters.spark.evolution.reshaping import Reshaping

        yield Reshaping(query.checkpoint, query.storage, sink, workers)


@contextmanager
def _query_state(checkpoint: str, state_dir: str, local_dir: Path | None, workers: int) -> "Iterator[QueryState]":
    """The state of a query, with a Spark on this machine to read the checkpoint."""
    from millpond.demo import session

    with TemporaryDirectory(prefix="millpond-") as directory:
        spark = session.start("millpond state", Path(directory), partitions=1)

        from millpond.adapters.spark.checkpoint import Checkpoint
        from millpond.adapters.spark.upkeep import QueryState
        from millpond.stores.durability import Storage

        yield QueryState(Checkpoint(spark, checkpoint), Storage.from_uri(state_dir), local_dir, workers)


def _topology(name: str | None) -> "Topology | None":
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


def _kind(name: str) -> "StoreKind":
    from millpond.stores.specs import StoreKind

    try:
        return StoreKind(name)
    except ValueError:
        known = ", ".join(kind.value for kind in StoreKind)
        raise ConfigurationError(f"there is no store kind {name!r}; the kinds are {known}") from None

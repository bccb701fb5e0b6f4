"""``millpond bench``: measure, always beside a peer in the same run."""

from functools import partial
from typing import Annotated

import typer

from millpond.cli.bench import history, results
from millpond.cli.bench.advise import free_on, half_of_memory, parsed_count, parsed_size
from millpond.cli.bench.engines import bench_engines
from millpond.cli.bench.latency import bench_latency
from millpond.cli.bench.nexmark import bench_nexmark
from millpond.cli.bench.options import Backends, Directory, JsonFile, Repeat, Seed, benchmark_extra, report
from millpond.cli.bench.processors import bench_processors
from millpond.cli.bench.spark import bench_spark
from millpond.cli.bench.stores import bench_stores
from millpond.cli.terminal import ending
from millpond.cli.terminal.teaching import lesson

_FAILED = "1 if a contender failed; the others are measured all the same"

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bench(context: typer.Context) -> None:
    """Measure, always beside a peer in the same run."""
    context.with_resource(ending.in_order())


app.command(
    "engines",
    epilog=lesson(
        "millpond bench engines --backend lmdb --backend rocksdb --workload readrandom --json engines.json",
        "millpond bench engines --peer sqlite3 --records 1000000 --cache-ratio 8 --html engines.html",
        codes=_FAILED,
        read="bench/README.md",
    ),
)(bench_engines)
app.command(
    "processors",
    epilog=lesson(
        "millpond bench processors --backend lmdb --workload count --no-profile --html processors.html",
        codes=_FAILED,
        read="bench/README.md",
    ),
)(bench_processors)
app.command(
    "stores",
    epilog=lesson(
        "millpond bench stores --backend lmdb --workload upsert --workload 'session churn'",
        "millpond bench stores --keys 10000 --keys 1000000 --workload 'versioned get, as of' --html stores.html",
        codes=_FAILED,
        read="bench/README.md",
    ),
)(bench_stores)
app.command(
    "spark",
    epilog=lesson(
        "millpond bench spark --workload count --backend lmdb --rows 200000 --html spark.html",
        codes=_FAILED,
        read="bench/README.md",
    ),
)(bench_spark)
app.command(
    "nexmark",
    epilog=lesson(
        "millpond bench nexmark --query q5 --query q18",
        "millpond bench nexmark --events 200000 --rate 2000 --backend rocksdb --json nexmark.json",
        codes="1 if a contender failed, or answered wrongly; the others are measured all the same",
        read="docs/nexmark.md",
    ),
)(bench_nexmark)
app.command(
    "latency",
    epilog=lesson(
        "millpond bench latency --workload count --rate 1000 --seconds 60",
        "millpond bench latency --json latency.json --html latency.html",
        codes="1 if a contender failed; one that falls behind has not, and is told",
        read="bench/README.md",
    ),
)(bench_latency)
app.add_typer(results.app)
app.add_typer(history.app, name="history")


@app.command(
    "restore",
    epilog=lesson(
        "millpond bench restore --backend lmdb --rows 100000",
        "millpond bench restore --latency 50 --bandwidth 20 --json restore.json",
        read="bench/README.md",
    ),
)
def bench_restore(
    backend: Backends = None,
    rows: Annotated[int, typer.Option(min=1, help="rows of a task")] = 400_000,
    stores: Annotated[
        list[int] | None, typer.Option(min=1, help="in how many stores; may be repeated; 1, 2, 4")
    ] = None,
    latency: Annotated[float, typer.Option(min=0, metavar="MILLISECONDS", help="until the far storage answers")] = 20,
    bandwidth: Annotated[
        float, typer.Option(min=0.001, metavar="MB/S", help="from the far storage to each reader")
    ] = 100,
    repeat: Repeat = 5,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure the restore of all stores of a task from its durable files, nearby and far away."""
    from millpond.bench.durability import restore

    figures = restore.run(
        backend or ["memory", "lmdb", "rocksdb"],
        rows,
        stores or [1, 2, 4],
        restore.Distance(latency / 1e3, bandwidth * 1e6),
        rounds=repeat,
        directory=directory,
    )
    report("restore", figures, restore.print_results, json=json, width=80)


@app.command(
    "evolution", epilog=lesson("millpond bench evolution --keys 100000 --partitions 4,16", read="bench/README.md")
)
def bench_evolution(
    keys: Annotated[int, typer.Option(min=1, help="keys of the store")] = 1_000_000,
    partitions: Annotated[str, typer.Option(help="the numbers of partitions, one after the other")] = "4,16,4",
    repeat: Repeat = 3,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure time and memory to carry durable state over to other numbers of partitions, beside copying it."""
    from millpond.bench.durability import evolution

    figures = evolution.run(keys, evolution.parse_way(partitions), rounds=repeat, directory=directory)
    report("evolution", figures, evolution.print_results, json=json, width=80)


@app.command(
    "upgrade",
    epilog=lesson(
        "millpond bench upgrade --backend lmdb --upgrade checksums --keys 100000",
        "millpond bench upgrade --spark --cores 2 --json upgrade.json",
        read="bench/README.md",
    ),
)
def bench_upgrade(
    backend: Backends = None,
    upgrade: Annotated[list[str] | None, typer.Option(help="timestamped or checksums; may be repeated; both")] = None,
    keys: Annotated[int, typer.Option(min=1, help="keys of the store")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=1, help="updates of a micro-batch")] = 20_000,
    batches: Annotated[int | None, typer.Option(min=1, help="micro-batches of each phase; 30, with --spark 20")] = None,
    spark: Annotated[bool, typer.Option("--spark", help="a query on Spark instead of a bare task")] = False,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores, and tasks of the query")] = 2,
    seed: Seed = 1,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure micro-batches of a task before, while and after its local copy gets a new format, in each way."""
    from millpond.bench.durability import upgrade as upgrading

    backends, upgrades = backend or ["memory", "lmdb", "rocksdb"], upgrade or list(upgrading.UPGRADES)
    if spark:
        with benchmark_extra():
            from millpond.bench.spark import upgrade as on_spark
        figures = on_spark.run(
            backends,
            keys,
            upgrades=upgrades,
            rows=rows,
            batches=batches or on_spark.BATCHES,
            cores=cores,
            seed=seed,
            directory=directory,
        )
    else:
        figures = upgrading.run(
            backends,
            keys,
            upgrades=upgrades,
            rows=rows,
            batches=batches or upgrading.BATCHES,
            seed=seed,
            directory=directory,
        )
    show = partial(upgrading.print_results, way="add_batch") if spark else upgrading.print_results
    report("spark-upgrade" if spark else "upgrade", figures, show, json=json, width=175)


@app.command(
    "scale",
    epilog=lesson("millpond bench scale --backend rocksdb --keys 1000000 --partitions 4", read="bench/README.md"),
)
def bench_scale(
    backend: Annotated[str, typer.Option(help="the backend of the store")] = "lmdb",
    keys: Annotated[int, typer.Option(min=10, help="keys of the store")] = 10_000_000,
    partitions: Annotated[int, typer.Option(min=1, help="tasks of the query")] = 16,
    rows: Annotated[int, typer.Option(min=1, help="updates of a micro-batch")] = 100_000,
    batches: Annotated[int, typer.Option(min=2, help="how many of these")] = 50,
    small_rows: Annotated[int, typer.Option(min=1, help="updates of a small micro-batch")] = 1_000,
    small_batches: Annotated[int, typer.Option(min=2, help="how many of these")] = 300,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    seed: Seed = 1,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Run a query on Spark with much state: micro-batches, restart, restore, files and look-ups."""
    with benchmark_extra():
        from millpond.bench.spark import scale
    figures = scale.run(
        backend,
        keys,
        partitions=partitions,
        rows=rows,
        batches=batches,
        small_rows=small_rows,
        small_batches=small_batches,
        cores=cores,
        seed=seed,
        directory=directory,
    )
    report("spark-scale", figures, scale.print_results, json=json, width=120)


@app.command(
    "overhead",
    epilog=lesson("millpond bench overhead --backend lmdb --rows 1000 --json overhead.json", read="bench/README.md"),
)
def bench_overhead(
    backend: Annotated[str, typer.Option(help="the backend of the stores")] = "lmdb",
    records: Annotated[int, typer.Option(min=1, help="records through each topology in this process")] = 100_000,
    rows: Annotated[
        list[int] | None, typer.Option(min=1, help="rows of a micro-batch; may be repeated; 1000 and 200000")
    ] = None,
    keys: Annotated[int, typer.Option(min=1, help="distinct keys")] = 20_000,
    batches: Annotated[int, typer.Option(min=1, help="micro-batches of each query that are measured")] = 8,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    seed: Seed = 1,
    repeat: Repeat = 2,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure the cost of headers, ticks and metrics to a record and a micro-batch, in this process and on Spark."""
    from rich.console import Console

    with benchmark_extra():
        from millpond.bench.spark import overhead
    figures = overhead.run(
        backend,
        records=records,
        sizes=sorted(rows or overhead.SIZES),
        keys=keys,
        batches=batches,
        repeat=repeat,
        cores=cores,
        seed=seed,
        directory=directory,
        console=Console(stderr=True),
    )
    report("overhead", figures, overhead.print_results, json=json, width=110)


@app.command("order", epilog=lesson("millpond bench order --rows 100000 --json order.json", read="bench/README.md"))
def bench_order(
    backend: Annotated[str, typer.Option(help="the backend of the stores")] = "lmdb",
    rows: Annotated[int, typer.Option(min=1, help="rows of a micro-batch")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="distinct keys")] = 200_000,
    batches: Annotated[int, typer.Option(min=1, help="micro-batches of each query that are measured")] = 6,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    seed: Seed = 1,
    repeat: Repeat = 2,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure the cost of taking the rows of a micro-batch in the order of time."""
    from rich.console import Console

    with benchmark_extra():
        from millpond.bench.spark import order
    figures = order.run(
        backend,
        rows=rows,
        keys=keys,
        batches=batches,
        repeat=repeat,
        cores=cores,
        seed=seed,
        directory=directory,
        console=Console(stderr=True),
    )
    report("order", figures, order.print_results, json=json, width=110)


@app.command("looking", epilog=lesson("millpond bench looking --backend lmdb --keys 100000", read="bench/README.md"))
def bench_looking(
    backend: Annotated[str, typer.Option(help="the backend of the store")] = "lmdb",
    keys: Annotated[int, typer.Option(min=10, help="keys of the store")] = 1_000_000,
    partitions: Annotated[int, typer.Option(min=1, help="tasks of the query")] = 4,
    in_range: Annotated[int, typer.Option("--range", min=1, help="keys of a range that is scanned")] = 1_000,
    repeat: Repeat = 5,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    seed: Seed = 1,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Measure looking at the state of a query: whole millpond state commands, and the same by DataFrames of Spark."""
    with benchmark_extra():
        from millpond.bench.spark import inspecting
    figures = inspecting.run(
        backend,
        keys,
        partitions=partitions,
        in_range=in_range,
        looks=repeat,
        cores=cores,
        seed=seed,
        directory=directory,
    )
    report("looking", figures, inspecting.print_results, json=json, width=100)


@app.command(
    "advice",
    epilog=lesson(
        "millpond bench advice --keys 5M",
        "millpond bench advice --keys 200k --seconds 20 --backend lmdb --backend rocksdb --json advice.json",
        codes="1 if a job is against its advice",
        read="docs/choosing.md",
    ),
)
def bench_advice(
    backend: Backends = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="hot and small, many and large, or windows that expire; may be repeated; all by default"),
    ] = None,
    keys: Annotated[str, typer.Option(help="of many and large, such as 5M")] = "5M",
    rows: Annotated[int, typer.Option(min=1, help="rows of a micro-batch, or more if the keys need them")] = 200_000,
    batches: Annotated[int, typer.Option(min=1, help="micro-batches of each run that are measured")] = 5,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    memory: Annotated[
        str | None, typer.Option(help="what state may take of this machine's memory; half of it by default")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="about how long to measure for each advice")] = 60,
    repeat: Repeat = 3,
    seed: Seed = 1,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Check that millpond advise orders backends as a job on Spark does that runs on each of them.

    Two backends are told apart if all runs on one are quicker than those on the other, and the medians by more than
    the noise. A pair that advice and job both tell apart has to be in the same order.
    """
    from millpond.bench.advice.measuring import Effort

    with benchmark_extra():
        from millpond.bench.spark import advised
    asked = advised.Asked(
        backends=backend or ["rocksdb", "lmdb", "memory"],
        profiles=profile or list(advised.PROFILES),
        keys=parsed_count(keys, "--keys"),
        rows=rows,
        batches=batches,
        repeat=repeat,
        cores=cores,
        memory_bytes=half_of_memory() if memory is None else parsed_size(memory, "--memory"),
        disk_bytes=free_on(directory),
        effort=Effort(seconds, repeat, seed, directory),
    )
    figures = advised.run(asked)
    report("advice", figures, advised.print_results, json=json, width=110)
    if not advised.agrees(figures):
        raise typer.Exit(1)


@app.command(
    "damage",
    epilog=lesson(
        "millpond bench damage --backend rocksdb --flips 50",
        "millpond bench damage --flips 0 --json -  # every bit",
        codes="1 if a flip was silent",
        read="bench/README.md",
    ),
)
def bench_damage(
    backend: Annotated[list[str] | None, typer.Option(help="may be repeated; lmdb and rocksdb by default")] = None,
    flips: Annotated[int, typer.Option(min=0, help="at most so many in each file; 0 flips every bit")] = 200,
    directory: Directory = None,
    json: JsonFile = None,
) -> None:
    """Flip single bits in every file of a small state, and count the flips: harmless, healed, refused or silent."""
    from millpond.bench.durability import damage

    figures = damage.run(backend or ["lmdb", "rocksdb"], flips, directory=directory)
    report("damage", figures, damage.print_results, json=json, width=110)
    if any(row.get("silent") for row in figures["files"]):
        raise typer.Exit(1)

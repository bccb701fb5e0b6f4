"""``millpond bench engines``."""

from typing import Annotated

import typer

from millpond.cli.bench.options import Backends, Directory, HtmlFile, JsonFile, Repeat, Seed, Timeout, report


def bench_engines(
    backend: Backends = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="rocksdict, lmdb, sortedcontainers, sqlite3, diskcache or quixstreams, the last two from the "
            "extra peers; may be repeated; none by default"
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="fillseq, fillrandom, overwrite, readrandom, readseq, readreverse, seekrandom, deleterandom, "
            "turnover, or ycsb-a to ycsb-f; may be repeated; all by default"
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="rows of the store; a fill writes so many")] = 100_000,
    operations: Annotated[int, typer.Option(min=1, help="operations of every other workload")] = 20_000,
    key_size: Annotated[int, typer.Option(min=1, help="bytes of a key")] = 16,
    value_size: Annotated[int, typer.Option(min=0, help="bytes of a value, which do not compress")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="rows of a write or deletion; YCSB's are of one row")] = 1,
    cache_ratio: Annotated[
        float | None,
        typer.Option(help="how many times larger the data is than each cache that can be set; as they come by default"),
    ] = None,
    durability: Annotated[
        str, typer.Option(help="none, or synced: each write on the disk when it returns, where the engine can do that")
    ] = "none",
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="operations before those that are measured; a tenth of OPERATIONS")
    ] = None,
    seed: Seed = 1,
    repeat: Repeat = 3,
    timeout: Timeout = None,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Run the workloads of db_bench and YCSB on backends, beside the engines under them and other peers.

    Each run has a process of its own; all of them take some minutes.
    """
    from rich.console import Console

    from millpond.bench.engines import run, tables
    from millpond.bench.engines.workloads import Sizes
    from millpond.bench.runs.tables import progress

    sizes = Sizes(
        records=records,
        operations=operations,
        key_bytes=key_size,
        value_bytes=value_size,
        batch=batch,
        warm_up=operations // 10 if warm_up is None else warm_up,
        seed=seed,
    )
    contest = run.Contest(
        backend or ["memory", "lmdb", "rocksdb"],
        peer or [],
        workload or [],
        sizes,
        repeat=repeat,
        cache_ratio=cache_ratio,
        durability=durability,
        directory=directory,
        timeout_s=timeout,
    )
    with progress(Console(stderr=True), run.runs(contest, contest.taking_part())) as watch:
        figures = run.run(contest, watch)
    report("engines", figures, tables.print_results, json=json, width=190, html=html)
    if run.broken(figures):
        raise typer.Exit(1)

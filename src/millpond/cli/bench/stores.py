"""``millpond bench stores``."""

from typing import Annotated

import typer

from millpond.cli.bench.options import Backends, Directory, HtmlFile, JsonFile, Repeat, Seed, Timeout, report


def bench_stores(
    backend: Backends = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="upsert, put, get, put_many, get_many, scan, 'versioned put', 'versioned put, late', "
            "'versioned get', 'versioned get, as of', 'versioned get_many, as of', 'window churn', 'session churn', "
            "'join churn', restore or upgrade; may be repeated; all by default"
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="operations of each workload")] = 100_000,
    keys: Annotated[
        list[int] | None,
        typer.Option(min=1, help="rows of the store before; may be repeated, to see what growth costs; 100000"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="operations of a commit")] = 1_000,
    checksums: Annotated[bool, typer.Option("--checksums", help="also each backend with checksums of rows")] = False,
    cache_ratio: Annotated[
        float | None,
        typer.Option(help="how many times larger the data is than each cache that can be set; as they come by default"),
    ] = None,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="operations before those that are measured; a tenth of RECORDS")
    ] = None,
    seed: Seed = 1,
    repeat: Repeat = 3,
    timeout: Timeout = None,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Run the work of streams on their state stores, on backends and beside the engines under them.

    Upserts, versions in order, late and as of a time, windows and sessions that expire, restore, upgrade. Each run has
    a process of its own and checks in the end what the store holds; all of them take some minutes.
    """
    from rich.console import Console

    from millpond.bench.runs.tables import progress
    from millpond.bench.stores import run, tables
    from millpond.bench.stores.sizes import Sizes

    several = keys or [100_000]
    warming = records // 10 if warm_up is None else warm_up
    contest = run.Contest(
        backend or run.BACKENDS,
        workload or [],
        Sizes(several[0], records, batch, warming, seed),
        growth=several if len(several) > 1 else [],
        checksums=checksums,
        repeat=repeat,
        cache_ratio=cache_ratio,
        directory=directory,
        timeout_s=timeout,
    )
    with progress(Console(stderr=True), run.runs(contest, contest.taking_part())) as watch:
        figures = run.run(contest, watch)
    report("stores", figures, tables.print_results, json=json, width=225, html=html)
    if run.broken(figures):
        raise typer.Exit(1)

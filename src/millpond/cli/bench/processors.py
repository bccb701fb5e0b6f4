"""``millpond bench processors``."""

from typing import Annotated

import typer

from millpond.cli.bench.options import Backends, Directory, HtmlFile, JsonFile, Repeat, Seed, Timeout, report


def bench_processors(
    backend: Backends = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="a topology, such as count or 'stream-table join, versioned'; may be repeated; all by default"
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="records through each topology")] = 100_000,
    keys: Annotated[int, typer.Option(min=1, help="distinct keys among them")] = 20_000,
    batch: Annotated[
        int, typer.Option(min=1, help="records of a micro-batch; of a run of fewer than 100 there are no latencies")
    ] = 1_000,
    warm_up: Annotated[
        int | None, typer.Option(min=0, help="records before those that are measured; a tenth of RECORDS")
    ] = None,
    profile: Annotated[bool, typer.Option(help="also show which functions take the time, in one more run")] = True,
    seed: Seed = 1,
    repeat: Repeat = 3,
    timeout: Timeout = None,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Measure records per second through joins and counts in one process, on one core, beside the same work on dicts.

    Each run has a process of its own; all of them take some minutes.
    """
    from rich.console import Console

    from millpond.bench.processors import run, tables
    from millpond.bench.processors.inputs import Sizes
    from millpond.bench.runs.tables import progress

    sizes = Sizes(records, keys, batch, records // 10 if warm_up is None else warm_up, seed)
    contest = run.Contest(
        backend or run.BACKENDS,
        workload or [],
        sizes,
        repeat=repeat,
        profile=profile,
        directory=directory,
        timeout_s=timeout,
    )
    with progress(Console(stderr=True), run.runs(contest, contest.taking_part())) as watch:
        figures = run.run(contest, watch)
    report("processors", figures, tables.print_results, json=json, width=190, html=html)
    if figures["failures"]:
        raise typer.Exit(1)

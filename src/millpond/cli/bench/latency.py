"""``millpond bench latency``."""

from typing import Annotated

import typer

from millpond.cli.bench.options import Directory, HtmlFile, JsonFile, Seed, Tuned, benchmark_extra, report


def bench_latency(
    rate: Annotated[
        list[int] | None,
        typer.Option(min=1, help="rows per second; may be repeated; 1000, 10000 and 100000 by default"),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="how long each contender runs at each rate")] = 600,
    warm_up: Annotated[
        float,
        typer.Option(min=0, help="seconds before, from the end of the first micro-batch on, whose rows do not count"),
    ] = 60,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="one of bench spark whose rows have their results at once: count, temporal-join, table-join, "
            "stream-join, foreign-key, multi-join, feed-aggregate, wide-join or hot-keys; may be repeated; count, "
            "temporal-join and stream-join by default"
        ),
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(
            help="measure only these, where a workload has them; may be repeated: verbs, the backend (the words of "
            "Kafka Streams on it), or a peer as in bench spark; verbs and the best that Spark has by default"
        ),
    ] = None,
    backend: Annotated[str, typer.Option(help="the backend of verbs: a name or a URL")] = "lmdb",
    keys: Annotated[int, typer.Option(min=1, help="distinct keys")] = 10_000,
    trigger: Annotated[
        float,
        typer.Option(min=0, help="seconds from a micro-batch to the next; by default as soon as one has ended"),
    ] = 0,
    patience: Annotated[
        float, typer.Option(min=1, help="stop a contender, after its warm-up, that lets a row wait for more seconds")
    ] = 60,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    tuned: Tuned = False,
    seed: Seed = 1,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Measure how long a row waits for its result while rows come at a fixed rate: verbs, and the best that Spark has.

    Rows come into being by the clock. A latency is that of a row, from then to the commit of its micro-batch. A
    contender that falls behind has none, and is told with the reason. The exit code is 1 if one failed.
    """
    with benchmark_extra():
        from millpond.bench.latency.document import document_of
        from millpond.bench.latency.fixed_rate import RATES, USUAL, fixed_rates
        from millpond.bench.latency.run import run
        from millpond.bench.latency.tables import print_results
        from millpond.bench.spark.document import check_backends
        from millpond.bench.spark.queries import session_when_needed
    from rich.console import Console

    from millpond.bench.runs.asked import check_directory
    from millpond.bench.runs.tables import progress

    check_backends([backend])
    check_directory(directory)
    chosen = fixed_rates(
        workload or USUAL,
        rate or RATES,
        contenders=contender,
        seconds=seconds,
        warm_up=warm_up,
        patience=patience,
        trigger=trigger,
        keys=keys,
        backend=backend,
        cores=cores,
        tuned=tuned,
        directory=directory,
        seed=seed,
    )
    runs = sum(len(one.chosen) for one in chosen)
    with session_when_needed(cores, tuned=tuned) as spark, progress(Console(stderr=True), runs) as watch:
        measured = [run(one, spark, watch) for one in chosen]
    report("latency", document_of(measured), print_results, json=json, width=150, html=html)
    if any(one.failed for one in measured):
        raise typer.Exit(1)

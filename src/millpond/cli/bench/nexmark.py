"""``millpond bench nexmark``."""

from typing import Annotated

import typer

from millpond.cli.bench.options import Directory, FlinkPython, HtmlFile, JsonFile, Seed, Tuned, benchmark_extra, report


def bench_nexmark(
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="q3, q4, q5, q7, q8, q9, q11, q12, q16, q17, q18, q19 or q20; may be repeated; all by default"
        ),
    ] = None,
    events: Annotated[
        int, typer.Option(min=1, help="persons, auctions and bids of a run that counts, over all its micro-batches")
    ] = 1_000_000,
    batches: Annotated[int, typer.Option(min=1, help="micro-batches of a run that are measured")] = 10,
    rate: Annotated[int, typer.Option(min=1, help="events in a second of event time, as in the suite")] = 10_000,
    out_of_order: Annotated[
        int, typer.Option(min=1, help="so many events in a row are emitted in another order; 1 for events in order")
    ] = 1_000,
    backend: Annotated[str, typer.Option(help="the backend of verbs: a name or a URL")] = "lmdb",
    contender: Annotated[
        list[str] | None,
        typer.Option(
            help="measure only these, where a query has them; may be repeated: verbs, spark_jvm (Spark's own "
            "operators), transform_with_state (q9, q18 and q19), flink_heap or flink_rocksdb (Flink SQL)"
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="read the events from topics on this broker of Kafka, which are made and deleted; from files by "
            "default. Needs Spark's connector, by --packages",
        ),
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(
            metavar="COORDINATES",
            help="what Spark gets from Maven, as of spark-submit: org.apache.spark:spark-sql-kafka-0-10_2.13:RELEASE",
        ),
    ] = None,
    flink_python: FlinkPython = None,
    cores: Annotated[int, typer.Option(min=1, help="Spark cores")] = 2,
    files: Annotated[
        int | None,
        typer.Option(
            "--files",
            "--partitions",
            min=1,
            help="files of each kind in a micro-batch, or partitions of each topic; as many as cores by default",
        ),
    ] = None,
    tuned: Tuned = False,
    seed: Seed = 1,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="how often each query runs, in order and in reverse")
    ] = 2,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Run the queries of Nexmark in verbs, beside Spark's best and Flink SQL: events/s, cores x time, and state.

    Each contender first answers each query in a run of its own, and DuckDB answers it from all events. A contender that
    answers wrongly fails, is shown with the difference, and is not measured; the exit code is then 1.
    """
    with benchmark_extra():
        from millpond.bench.nexmark.events import Site
        from millpond.bench.nexmark.suite import nexmark_contests
        from millpond.bench.nexmark.tables import print_results
        from millpond.bench.nexmark.topics import check_broker, even_rows
        from millpond.bench.spark import measure
        from millpond.bench.spark.document import check_backends, document_of
        from millpond.bench.spark.queries import session_when_needed
    from rich.console import Console

    from millpond.bench.runs.tables import progress

    check_backends([backend])
    site, rows = Site(rate, out_of_order, seed), -(-events // batches)
    if kafka is not None:
        check_broker(kafka)
        rows = even_rows(rows, site, files or cores)
    chosen = nexmark_contests(
        query or [],
        contenders=contender,
        batches=batches,
        rows=rows,
        backends=[backend],
        cores=cores,
        files=files,
        directory=directory,
        seed=seed,
        repeat=repeat,
        tuned=tuned,
        site=site,
        kafka=kafka,
        flink=flink_python,
    )
    runs = sum(map(len, (turn for one in chosen for turn in measure.rounds(list(one.chosen), one.repeat))))
    with (
        session_when_needed(cores, tuned=tuned, packages=packages) as spark,
        progress(Console(stderr=True), runs) as watch,
    ):
        figures = document_of([measure.run(one, spark, watch) for one in chosen])
    report("nexmark", figures, print_results, json=json, width=140, html=html)
    if figures["failures"]:
        raise typer.Exit(1)

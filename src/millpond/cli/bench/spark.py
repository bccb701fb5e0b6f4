"""``millpond bench spark``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.bench.options import (
    Backends,
    Directory,
    FlinkPython,
    HtmlFile,
    JsonFile,
    Seed,
    Tuned,
    benchmark_extra,
    report,
)
from millpond.errors import ArgumentConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.bench.spark.contest import Contest


def bench_spark(
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="count, temporal-join, table-join, stream-join, stream-join-left, window, session, foreign-key, "
            "multi-join (three tables), lookup-join (a table in files), feed-aggregate (of a change feed), "
            "window-aggregates and session-aggregates (six functions on four types), skewed-key (99 of 100 rows "
            "have one key), wide-join (20 columns), hot-keys (60 keys, whatever --keys says), chain (one to three "
            "verbs) or exchange; may be repeated, for all of them in one session; count by default"
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="rows per micro-batch; 1000 shows what a small one costs")
    ] = 1_000_000,
    keys: Annotated[
        int | None, typer.Option(min=1, help="distinct keys; 200,000 by default, with --growth 10,000,000 in the end")
    ] = None,
    backend: Backends = None,
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
            help="measure only these; may be repeated: verbs, a backend (the words of Kafka Streams on it), "
            "transform_with_state, transform_with_state_in_pandas or spark_jvm (whichever does this work), two_verbs, "
            "three_verbs and two_spark_jvm (of a chain), spark_jvm_format_4 (of a stream join), static_sql (of a "
            "temporal join), one_by_one (of a skewed key), map_in_arrow (a pass-through), empty_transform_with_state "
            "(an operator that does nothing), flink_heap or flink_rocksdb; with --growth verbs, the backends, "
            "spark_jvm and map_in_arrow by default"
        ),
    ] = None,
    flink_python: FlinkPython = None,
    tuned: Tuned = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="let keys grow, and hold the last ten micro-batches against the first ten")
    ] = False,
    seed: Seed = 1,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            min=1,
            help="how often each query runs, in order and in reverse; once with --growth",
        ),
    ] = 2,
    directory: Directory = None,
    json: JsonFile = None,
    html: HtmlFile = None,
) -> None:
    """Measure micro-batches and workers' memory: verbs, each backend, the best that Spark has, and Flink SQL.

    Verbs are on the first backend; with --growth there is lmdb alone by default. A run is a micro-batch, and with 100
    of them or more there are latencies. A contender that fails is told with its reason, and the others are measured;
    the exit code is then 1.
    """
    with benchmark_extra():
        from millpond.bench.spark import growth as growing
        from millpond.bench.spark import measure
        from millpond.bench.spark.contest import contests
        from millpond.bench.spark.document import check_backends
        from millpond.bench.spark.workloads import BACKENDS
    way = growing if growth else measure
    backends = backend or (BACKENDS[:1] if growth else BACKENDS)
    check_backends(backends)
    chosen = contests(
        workload or ["count"],
        contenders=contender,
        keys=keys or way.KEYS,
        batches=batches or way.BATCHES,
        rows=rows,
        backends=backends,
        cores=cores,
        files=files,
        directory=directory,
        seed=seed,
        repeat=repeat,
        flink=flink_python,
        tuned=tuned,
    )
    if growth:
        _growth(chosen, json, html)
    else:
        _measure(chosen, json, html)


def _measure(chosen: "Sequence[Contest]", json: Path | None, html: Path | None) -> None:
    from rich.console import Console

    from millpond.bench.runs.tables import progress
    from millpond.bench.spark import measure, tables
    from millpond.bench.spark.document import document_of
    from millpond.bench.spark.queries import session_when_needed

    queries = sum(map(len, (turn for one in chosen for turn in measure.rounds(list(one.chosen), one.repeat))))
    with (
        session_when_needed(chosen[0].cores, tuned=chosen[0].tuned) as spark,
        progress(Console(stderr=True), queries) as watch,
    ):
        figures = document_of([measure.run(one, spark, watch) for one in chosen])
    report("spark", figures, tables.print_results, json=json, width=140, html=html)
    if figures["failures"]:
        raise typer.Exit(1)


def _growth(chosen: "Sequence[Contest]", json: Path | None, html: Path | None) -> None:
    from rich.console import Console

    from millpond.bench.runs.tables import progress
    from millpond.bench.spark import growth, tables
    from millpond.bench.spark.queries import session_when_needed

    if len(chosen) > 1:
        raise ArgumentConflictError("growth is measured of one workload at a time; give --workload once")
    if html is not None:
        raise ArgumentConflictError("there is no page of growth; leave out --html")
    (contest,) = chosen
    queries = len(contest.contenders or growth.default(contest))
    with (
        session_when_needed(contest.cores, tuned=contest.tuned) as spark,
        progress(Console(stderr=True), queries) as watch,
    ):
        figures = growth.run(contest, spark, watch)
    report("spark-growth", figures, tables.print_growth, json=json, width=140)
    if "failed" in figures:
        raise typer.Exit(1)

"""``millpond bench spark``: rows per second of a micro-batch on each backend, beside Spark's own ways, in one run.

Every contender reads the same files, one per micro-batch, in a query of its own, and writes to Spark's ``noop`` sink.
They run in turn, in three rounds: one to warm up, one in order and one in reverse. The first micro-batches of a query,
in which processes start, do not count; the median of the others does.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from millpond.adapters.spark import configure
from millpond.bench.spark.jobs import (
    SCHEMAS,
    TOPOLOGIES,
    Job,
    map_in_arrow,
    millpond_job,
    spark_jvm,
    transform_with_state,
    verbs,
)
from millpond.errors import ConfigurationError

WARM_UP: Final = 2
"""Micro-batches that do not count."""

TABLE_SHARE: Final = 10
"""In the temporal join, one row in this many belongs to the table."""

PEERS: Final = ("transform_with_state", "spark_jvm", "map_in_arrow")
VERBS: Final = "verbs"
"""The same work by a verb on DataFrames, on the backend whose ratios are reported."""

BACKENDS: Final = ("lmdb", "rocksdb", "memory")


def run(
    workload: str = "count",
    *,
    rows: int = 1_000_000,
    keys: int = 200_000,
    backend: str = "lmdb",
    batches: int = 4,
    cores: int = 2,
    contenders: Sequence[str] | None = None,
    directory: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Measure one workload.

    Args:
        workload: ``count`` or ``temporal-join``.
        rows: rows per micro-batch.
        keys: distinct keys.
        backend: the one whose ratios to the peers are reported; the other built-in backends are measured as well.
        batches: how many micro-batches of each query are measured; one of ``transform_with_state``, which is slow.
        cores: Spark cores.
        contenders: measure only these of the backends, ``VERBS`` and ``PEERS``.
        directory: where input and state go, on the file system to measure.
        console: where to report what is being measured.

    Raises:
        ConfigurationError: the workload or a contender is unknown.
    """
    wanted = _wanted(workload, backend, contenders)
    seconds: dict[str, list[float]] = {name: [] for name in wanted}
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as place, _session(cores) as spark:
        _write_inputs(Path(place), workload, rows, keys, WARM_UP + batches)
        for number, names in enumerate(_rounds(wanted)):
            for name in names:
                if console is not None:
                    console.print(f"{'warming up with' if number == 0 else 'measuring'} {name} ...")
                slow, warming = name == "transform_with_state", number == 0
                skipped, counted = (1, 1) if slow else (WARM_UP, 0 if warming else batches)
                times = _measure(spark, Path(place), workload, name, backend, skipped + counted)
                seconds[name] += times[skipped:]
    per_second = {name: rows / median(times) for name, times in seconds.items()}
    return {
        "workload": workload,
        "rows": rows,
        "keys": keys,
        "cores": cores,
        "backend": backend,
        "batch_seconds": seconds,
        "rows_per_second": per_second,
        "ratios": {
            peer: per_second[backend] / per_second[peer] for peer in PEERS if {peer, backend} <= set(per_second)
        },
    }


def print_results(console: Console, results: Mapping[str, Any]) -> None:
    """The figures as a table: one row per contender, with its rows per second, also in relation to each peer's."""
    table = Table(title=f"{results['workload']}: {results['rows']:,} rows per micro-batch, {results['keys']:,} keys")
    for column in ("contender", "rows/s", "s/micro-batch", *(f"x {peer}" for peer in PEERS)):
        table.add_column(column, justify="left" if column == "contender" else "right")
    per_second = results["rows_per_second"]
    for name, rate in per_second.items():
        compared = [f"{rate / per_second[peer]:.2f}" if peer in per_second else "" for peer in PEERS]
        table.add_row(name, f"{rate:,.0f}", f"{results['rows'] / rate:.2f}", *compared)
    console.print(table)


def _rounds(wanted: Sequence[str]) -> list[list[str]]:
    """Who runs when: all to warm up the JVM, then all, then all in reverse, so that nobody gains from its position.

    ``transform_with_state`` takes as long as all the others together, and runs once.
    """
    quick = [name for name in wanted if name != "transform_with_state"]
    return [quick, list(wanted), quick[::-1]]


def _wanted(workload: str, backend: str, contenders: Sequence[str] | None) -> list[str]:
    if workload not in TOPOLOGIES:
        raise ConfigurationError(f"there is no workload {workload!r}; give one of {', '.join(TOPOLOGIES)}")
    known = [*dict.fromkeys([backend, *BACKENDS]), VERBS, *PEERS]
    unknown = sorted(set(contenders or ()) - set(known))
    if unknown:
        raise ConfigurationError(f"there are no contenders {unknown}; give some of {', '.join(known)}")
    return [name for name in known if contenders is None or name in contenders]


@contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    """A session in which Spark's own state store and its exchange with Python are at their best."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    }
    builder = configure(SparkSession.builder.master(f"local[{cores}]").appName("millpond-bench"))
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def _write_inputs(place: Path, workload: str, rows: int, keys: int, files: int) -> None:
    """Files of random keys and rising times, for each topic one per micro-batch."""
    rng = np.random.default_rng(7)
    table_rows = rows // TABLE_SHARE if workload == "temporal-join" else 0
    sizes = {"events": rows - table_rows, "rates": table_rows}
    for topic, size in sizes.items():
        if not size:
            continue
        (place / topic).mkdir()
        column, values = ("amount", rng.integers(0, 100, size)) if topic == "events" else ("rate", rng.random(size))
        for number in range(files):
            drawn = rng.integers(0, keys, size)
            at = number * rows + np.sort(rng.integers(0, rows, size))
            names = pa.array([f"user-{key:08d}" for key in drawn])
            table = pa.table({"key": names, "at": pa.array(at), column: pa.array(values)})
            path = place / topic / f"{number:03d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def _measure(spark: SparkSession, place: Path, workload: str, name: str, backend: str, batches: int) -> list[float]:
    """The seconds of each of the first ``batches`` micro-batches."""
    own = tempfile.mkdtemp(prefix="contender-", dir=place)
    inputs = {
        topic: _read(spark, place / topic, schema, batches)
        for topic, schema in SCHEMAS.items()
        if (place / topic).exists()
    }
    query = (
        _job(workload, name, backend, own)(inputs)
        .writeStream.format("noop")
        .outputMode(
            "update" if name == "spark_jvm" or (name, workload) == ("transform_with_state", "count") else "append"
        )
        .option("checkpointLocation", f"{own}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    return [report["durationMs"]["triggerExecution"] / 1000 for report in reports if report["numInputRows"]]


def _read(spark: SparkSession, directory: Path, schema: str, files: int) -> DataFrame:
    names = ",".join(f"{number:03d}" for number in range(files))
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.option("pathGlobFilter", f"{{{names}}}.parquet").parquet(str(directory))


def _job(workload: str, name: str, backend: str, directory: str) -> Job:
    if name == "spark_jvm":
        return spark_jvm
    if name == "map_in_arrow":
        return map_in_arrow
    if name == "transform_with_state":
        return transform_with_state(workload)
    if name == VERBS:
        return verbs(workload, backend, directory)
    return millpond_job(workload, name, directory)

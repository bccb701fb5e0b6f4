"""The demo's Spark job: two streaming queries over the same files, each with its own state and its own output.

Given again after a kill, the same command continues from Spark's checkpoints, and its outputs are those of an
undisturbed run. A query's micro-batch is one file of each topic that it reads, whatever happens in between.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet

from millpond.demo import data, session, topologies
from millpond.demo.meter import Meter, Pace
from millpond.processors import Topology
from millpond.stores.backend.registry import try_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    Attributes:
        backend: the name or URL of the state backend.
        out: the directory of the outputs.
        checkpoint: the directory of Spark's checkpoints, the input files, the local state and the log.
        state_dir: the place of the durable state: a directory or a URL.
        batch_rows: flights per micro-batch.
        max_batches: stop after this many; None for all.
    """

    backend: str
    out: Path
    checkpoint: Path
    state_dir: str
    batch_rows: int
    max_batches: int | None = None


@dataclass(frozen=True)
class Query:
    """A query: a topology, the topics that it reads, and the names of its sink's columns in the output."""

    name: str
    topology: Callable[[], Topology]
    topics: tuple[str, ...]
    columns: Mapping[str, str]


QUERIES = (
    Query("flights_weather", topologies.flights_weather, ("flights", "weather"), {}),
    Query("carrier_counts", topologies.carrier_counts, ("flights",), {"key": "carrier", "value": "count"}),
)


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        arrived: the number of flights that have arrived and were processed, in this run and those before.
        cut: the flights altogether, and their files.
        outputs: the committed rows of each query, this run's and those of the runs before.
        paces: the speed of each query.
    """

    arrived: int
    cut: data.Cut
    outputs: Mapping[str, pa.Table]
    paces: Mapping[str, Pace]


Progress = Callable[[str, int], None]
"""A function of a query's name and the number of flights that it has processed, in this run and those before."""


def prepare(options: Options) -> data.Inputs:
    """Return the input of the run, with all files that it is to process arrived.

    Raises:
        ConfigurationError: an option is invalid, or something that the demo needs is not installed.
    """
    check(options)
    inputs = data.prepare(options.checkpoint / "input", options.batch_rows)
    inputs.arrive(options.max_batches)
    return inputs


def run(options: Options, inputs: data.Inputs, progress: Progress) -> Result:
    """Run the queries until everything that has arrived is processed."""
    spark = session.start("millpond demo", options.checkpoint, PARTITIONS)
    try:
        running = {query.name: Meter(_start(spark, options, inputs, query), inputs.cut) for query in QUERIES}
        paces = _watch(running, inputs.arrived_rows, progress)
        written = {query.name: _committed(spark, options.out / query.name) for query in QUERIES}
    finally:
        spark.stop()
    inputs.mark_processed()
    return Result(inputs.arrived_rows, inputs.cut, written, paces)


def check(options: Options) -> None:
    """Refuse impossible options before anything is written or started."""
    try_out(options.backend)
    session.check_pyspark()
    session.check_java()


def _start(spark: "SparkSession", options: Options, inputs: data.Inputs, query: Query) -> "StreamingQuery":
    from millpond.adapters.spark import SparkStreams

    streams = SparkStreams(
        query.topology(),
        application_id=query.name,
        state_dir=options.state_dir,
        local_dir=str(options.checkpoint / "local"),
        partitions=PARTITIONS,
        backend=options.backend,
    )
    rows = streams.transform({topic: _read(spark, inputs.arrived(topic)) for topic in query.topics})
    return (
        rows.withColumnsRenamed(dict(query.columns))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(options.checkpoint / query.name))
        .queryName(query.name)
        .trigger(availableNow=True)
        .start(str(options.out / query.name))
    )


def _watch(running: dict[str, Meter], arrived: int, progress: Progress) -> dict[str, Pace]:
    """Report the progress of the queries until all have ended."""
    paces: dict[str, Pace] = {}
    while len(paces) < len(running):
        for name in running.keys() - paces.keys():
            ended = running[name].ended
            progress(name, arrived if ended else running[name].rows_so_far)
            if ended:
                paces[name] = running[name].pace()
        time.sleep(0.1)
    return {name: paces[name] for name in running}


def _read(spark: "SparkSession", directory: Path) -> "DataFrame":
    """Return the files of a topic, one per micro-batch, oldest first."""
    schema = spark.read.parquet(str(directory)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def _committed(spark: "SparkSession", directory: Path) -> pa.Table:
    """Return the rows of an output; delete files left by an interrupted batch. No query may be writing.

    Spark's file sink writes each file under a name of its own and then names it in its log; readers that know the log
    see only committed files. A kill leaves files that no log names, and a reader that does not know the log sees their
    rows twice. So a run ends by deleting them.
    """
    names = {Path(unquote(urlparse(uri).path)).name for uri in spark.read.parquet(str(directory)).inputFiles()}
    for path in directory.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
    for checksum in directory.glob(".*.parquet.crc"):
        if checksum.name[1:].removesuffix(".crc") not in names:
            checksum.unlink()
    return pa.concat_tables(pyarrow.parquet.read_table(directory / name) for name in sorted(names))

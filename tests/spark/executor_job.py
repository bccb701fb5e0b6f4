"""A whole job on two executors, one of which is killed between two micro-batches: ``executor_job.py DIRECTORY``.

``DIRECTORY/progress`` has a line of JSON for each micro-batch: its number, and how many copies were filled anew.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams, configure
from millpond.adapters.spark.monitoring.measured import measured_in
from millpond.metrics import StoreMetric
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.stores.durability import DurabilityPolicy

KEYS = 2_000
BATCHES = 12
KILLED_AFTER = 3
"""The micro-batch after which an executor is killed; the next one may have begun."""

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def counts() -> Topology:
    """Return the number of records of each key."""
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("int64", "int64", key="key", value="value", timestamp="at"))
    counted = numbers.group_by_key().count(Materialized("counts")).to_stream()
    counted.to("counts", Produced(schema="key long, value long"))
    return builder.build()


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Number, parent and command of each process of this one's group."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent, group = map(int, (place / "stat").read_text().rpartition(")")[2].split()[1:3])
            if group == os.getpgid(0):
                yield int(place.name), parent, (place / "cmdline").read_bytes()
        except OSError:
            continue


def kill_executor() -> None:
    """Kill the first executor, with all that it has started."""
    found = list(_processes())
    (first, *_) = sorted(number for number, _, command in found if _EXECUTOR in command)
    victims = [first]
    for victim in victims:
        victims += [number for number, parent, _ in _processes() if parent == victim]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)


class Watcher(StreamingQueryListener):
    """Notes what each micro-batch has restored, and kills an executor once."""

    def __init__(self, directory: Path) -> None:
        self.batch = -1
        self._notes = directory / "progress"

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        measured = measured_in(progress.observedMetrics)
        full = sum(one.figure(StoreMetric.RESTORE_FULL) or 0 for one in measured)
        with self._notes.open("a") as notes:
            notes.write(json.dumps([progress.batchId, full]) + "\n")
        if progress.batchId == KILLED_AFTER:
            kill_executor()
        self.batch = progress.batchId

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Note nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note nothing: there was no micro-batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note nothing: all micro-batches have been noted."""


def main(directory: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        configure(SparkSession.builder.master("local-cluster[2,2,1024]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        .getOrCreate()
    )
    ddl = "key long, value long, at timestamp"
    for number in range(BATCHES):
        # Only the first micro-batch has all keys, so a delta has far fewer rows than a snapshot.
        keys = spark.range(KEYS if number == 0 else KEYS // 50).selectExpr(
            "id key", "id value", "timestamp_seconds(id) at"
        )
        keys.coalesce(1).write.parquet(str(directory / "in" / f"{number:03d}"))
    watcher = Watcher(directory)
    spark.streams.addListener(watcher)
    streams = SparkStreams(
        counts(),
        application_id="counts",
        state_dir=str(directory / "state"),
        backend="rocksdb",
        policy=DurabilityPolicy(max_deltas=3),
    )
    files = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(f"{directory}/in/*")
    query = (
        streams.transform({"numbers": files})
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    query.awaitTermination()
    while watcher.batch < BATCHES - 1:
        time.sleep(0.1)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

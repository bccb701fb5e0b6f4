"""A whole job on two executors, which dies where it is told to: ``mortal_job.py DIRECTORY``.

Its only task has a store on each backend, so that each death leaves all of them behind at once.

What is due lies in ``DIRECTORY/due``: files named ``<number>.<moment>.<victim>``. Whoever comes first to the moment of
the first of them takes it away and kills the victim.
"""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams, configure
from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology
from millpond.stores.durability import Storage
from millpond.stores.registry import supplier
from millpond.stores.testing import FaultPlan, FaultyStorage, FaultySupplier, Step
from tests.spark.orders import read_files

MOMENTS = (
    "before its file",
    "in the middle of its file",
    "with its file complete",
    "with one local copy written",
    "with its manifest handed to Spark",
)
"""When, in a commit, somebody dies."""

VICTIMS = ("worker", "executor", "driver")

_MOMENTS = {
    Step.FILE_CREATE: MOMENTS[0],
    Step.FILE_WRITE: MOMENTS[1],
    Step.BACKEND_WRITE: MOMENTS[2],
    Step.BACKEND_WRITTEN: MOMENTS[3],
}


@dataclass
class Deaths:
    """The deaths that are still due. Travels to the workers.

    Attributes:
        directory: where they lie.
        driver: the driver's process, and the process group of its JVM and all executors.
    """

    directory: Path
    driver: int
    committing: bool = False

    def at_step(self, step: Step) -> None:
        """What a plan asks. Backends are also written to before a commit, to catch up."""
        if step in (Step.BACKEND_OPEN, Step.FILE_READ):
            self.committing = False
        if step is Step.FILE_WRITE:
            self.committing = True
        if step in _MOMENTS and (self.committing or step is Step.FILE_CREATE):
            self.at(_MOMENTS[step])

    def at(self, now: str) -> None:
        """Kill whoever is due at the moment ``now``."""
        first = min(self.directory.iterdir(), default=None)
        if first is None or os.getpid() == self.driver:
            return
        _, moment, victim = first.name.split(".")
        if moment != now:
            return
        try:
            first.unlink()
        except FileNotFoundError:
            return  # somebody else was faster
        if victim == "driver":
            os.killpg(self.driver, signal.SIGKILL)
        if victim == "executor":
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def spending() -> Topology:
    """For each customer the number of orders (RocksDB), their amount (LMDB), and the rate of each (memory)."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        Consumed("string", "msgpack", key="who", timestamp="at"),
        Materialized.versioned("rates", history_retention=10_000, backend="memory"),
    )
    orders = builder.stream("orders", Consumed("string", "msgpack", key="customer", timestamp="at"))
    rated = orders.left_join(rates, lambda order, rate: order["amount"] * (0 if rate is None else rate["rate"] > 0.5))
    amounts = orders.group_by_key(Grouped("string", "msgpack")).aggregate(
        lambda: 0, lambda _, order, total: total + order["amount"], Materialized("amounts", value_serde="int64")
    )
    counts = orders.group_by_key(Grouped("string", "msgpack")).count(Materialized("counts", backend="rocksdb"))
    results = [
        stream.map_values(lambda value, what=what: {"what": what, "amount": int(value)}, value_serde="msgpack")
        for what, stream in (("rated", rated), ("amount", amounts.to_stream()), ("count", counts.to_stream()))
    ]
    results[0].merge(results[1]).merge(results[2]).to(
        "spending", Produced(schema="key string, what string, amount long, timestamp long")
    )
    return builder.build()


def _parent(process: int) -> int:
    """The parent of a process: an executor starts the daemon that forks its workers."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main(directory: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        configure(SparkSession.builder.master("local-cluster[2,1,1024]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.task.maxFailures", "16")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        .getOrCreate()
    )
    deaths = Deaths(directory / "due", os.getpgid(0))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    plan = FaultPlan(deaths.at_step)
    streams = SparkStreams(
        spending(),
        application_id="mortal",
        state_dir=str(directory / "state"),
        local_dir=str(directory / "local"),
        backend=FaultySupplier(supplier("lmdb"), plan),
    )
    storage = FaultyStorage.over(Storage.from_uri(directory / "state"), plan)
    streams._job = replace(streams._job, storage=storage)

    def last(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from frames
        deaths.at(MOMENTS[-1])

    rows = streams.transform(read_files(spark, directory / "in"), sink="spending")
    query = (
        rows.mapInPandas(last, rows.schema)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

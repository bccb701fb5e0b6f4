"""A whole job on two executors, which dies or hangs where it is told to: ``mortal_job.py DIRECTORY [MASTER]``.

Its only task has a store on each backend, so that each death leaves all of them behind at once.

Deaths that are due lie in ``DIRECTORY/due``: files named ``<number>.<micro-batch>.<moment>.<victim>``. The first
process to reach the moment of the first of them, in that micro-batch or later, takes it away and kills the victim. A
straggler, which is always a first attempt, is not killed, but hangs until its twin is done; that needs the master of a
cluster of two hosts. No process is killed either where the local directory goes, or the storage fails. The hosts that
began to commit are in ``DIRECTORY/commits``: files named ``<micro-batch>.<host>``.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams, configure
from millpond.processors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Topology
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage
from millpond.stores.testing import Fault, FaultPlan, FaultyStorage, FaultySupplier, Step
from tests.spark.orders import read_files
from tests.spark.two_hosts import this_host

MOMENTS = (
    "before its file",
    "in the middle of its file",
    "with its file complete",
    "with one local copy written",
    "with its manifest handed to Spark",
)
"""When, in a commit, somebody dies."""

VICTIMS = ("worker", "executor", "driver")
COPIES = "copies"
"""The worker, too, after the data of all local copies has been damaged."""
LOCAL_DIR = "local directory"
"""It is deleted below a task that goes on."""
STORAGE = "storage"
"""Its next requests fail, whosever they are."""
FAILURES = 3
"""How many of them."""
STRAGGLER = "straggler"
HANGS_FOR = 60.0
"""Longer than a twin takes; Spark ends who hangs as soon as the twin is done."""

_MOMENTS = {
    Step.FILE_CREATE: MOMENTS[0],
    Step.FILE_WRITE: MOMENTS[1],
    Step.BACKEND_WRITE: MOMENTS[2],
    Step.BACKEND_WRITTEN: MOMENTS[3],
}
_OF_STORAGE = {Step.FILE_CREATE, Step.FILE_WRITE, Step.FILE_FINISH, Step.FILE_READ, Step.FILE_LIST, Step.FILE_DELETE}
_DATA = {".mdb", ".sst", ".log"}


@dataclass
class Deaths:
    """The deaths that are still due. Travels to the workers.

    Attributes:
        directory: of the job.
        driver: the driver's process, and the process group of its JVM and all executors.
    """

    directory: Path
    driver: int
    committing: bool = False

    def at_step(self, step: Step) -> Fault | None:
        """Return the fault that a plan asks for. Backends are also written to before a commit, to catch up."""
        if step in (Step.BACKEND_OPEN, Step.FILE_READ):
            self.committing = False
        if step is Step.FILE_CREATE:
            self.note_commit()
        if step is Step.FILE_WRITE:
            self.committing = True
        if step in _MOMENTS and (self.committing or step is Step.FILE_CREATE):
            self.at(_MOMENTS[step])
        return Fault.ERROR if step in _OF_STORAGE and self._storage_fails() else None

    def at(self, now: str) -> None:
        """Kill the victim that is due at the moment ``now``."""
        first = min((self.directory / "due").iterdir(), default=None)
        if first is None or os.getpid() == self.driver:
            return
        _, batch, moment, victim = first.name.split(".")
        if moment != now or int(batch) > _batch() or (victim == STRAGGLER and _attempt() > 0):
            return
        if victim == COPIES and not self._data_of_copies():
            return
        if taken(first):
            self._happen(victim)

    def _happen(self, victim: str) -> None:
        if victim == STRAGGLER:
            return time.sleep(HANGS_FOR)
        if victim == LOCAL_DIR:
            return shutil.rmtree(self.directory / "local", ignore_errors=True)
        if victim == STORAGE:
            for number in range(FAILURES):
                (self.directory / "failures" / str(number)).touch()
            return None
        if victim == COPIES:
            for path in self._data_of_copies():
                damage(path)
        if victim == "driver":
            os.killpg(self.driver, signal.SIGKILL)
        if victim == "executor":
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def note_commit(self) -> None:
        """Leave a trace of an attempt that commits."""
        if TaskContext.get() is not None:
            (self.directory / "commits" / f"{_batch()}.{this_host()}").touch()

    def _storage_fails(self) -> bool:
        failures = sorted((self.directory / "failures").iterdir())
        return os.getpid() != self.driver and any(map(taken, failures))

    def _data_of_copies(self) -> list[Path]:
        found = (self.directory / "local").rglob("*")
        return [path for path in found if path.suffix in _DATA and path.name != "lock.mdb" and path.stat().st_size]


def taken(path: Path) -> bool:
    """Take a file away; whether nobody was faster."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def damage(path: Path) -> None:
    """Change bytes in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        old = file.read(64)
        file.seek(-len(old), os.SEEK_CUR)
        file.write(bytes(byte ^ 0xFF for byte in old))


def _batch() -> int:
    """Return the micro-batch that a worker is at."""
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)


def _attempt() -> int:
    """Return which attempt at a Spark task this is."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


def spending() -> Topology:
    """Return each customer's number of orders (RocksDB), their amount (LMDB), and the rate of each (memory)."""
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
    """Return the parent of a process: an executor starts the daemon that forks its workers."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main(directory: Path, master: str | None = None) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for kept in ("commits", "failures"):
        (directory / kept).mkdir(exist_ok=True)
    spark = (
        configure(SparkSession.builder.master(master or "local-cluster[2,1,1024]"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.task.maxFailures", "16")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.speculation", "false" if master is None else "true")
        .config("spark.speculation.multiplier", "2")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.minTaskRuntime", "2s")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        .getOrCreate()
    )
    deaths = Deaths(directory, os.getpgid(0))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    plan = FaultPlan(deaths.at_step)
    streams = SparkStreams(
        spending(),
        application_id="mortal",
        partitions=1,
        state_dir=str(directory / "state"),
        # The executors of a local cluster share theirs, and those of the next driver find what these leave.
        local_dir=str(directory / "local") if master is None else None,
        backend=FaultySupplier(supplier("lmdb"), plan),
    )
    storage = FaultyStorage.over(Storage.from_uri(directory / "state"), plan)
    streams._job = replace(streams._job, storage=storage)

    def last(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        rows = 0
        for frame in frames:
            rows += len(frame)
            yield frame
        if rows:  # a part of the output without a task hands no manifest to anybody
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
    main(Path(sys.argv[1]), *sys.argv[2:])

"""A query on Spark that counts events by key, through restarts, and the files that it reads.

Rule of this module: nothing looks at the query while it runs but Spark itself, whose ``triggerExecution`` is what is
measured. A query takes a known number of micro-batches and ends.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from millpond.adapters.spark import Checkpoint, SparkStreams
from millpond.adapters.spark.monitoring.measured import measured_in
from millpond.bench.durability.upgrade import WARM, Batch
from millpond.bench.measure import bytes_below
from millpond.bench.spark.inputs import events, read_inputs, write_inputs
from millpond.bench.spark.queries import began_and_took
from millpond.bench.spark.shapes import COUNTED, Inputs, Scale
from millpond.errors import MillpondError
from millpond.metrics import StoreMetric
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.releases import RELEASE
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.specs.store_spec import StoreKind


def _counts(kind: StoreKind, *, checksums: bool = False) -> Topology:
    """Count events per key in a store of that kind; one row per key and micro-batch comes out."""
    builder = StreamsBuilder()
    stream = builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount"))
    kept = Materialized("counts", kind=kind, checksums=checksums).with_caching()
    stream.group_by_key().count(kept).to("out", Produced(schema=COUNTED))
    return builder.build()


PLAIN: Final = _counts(StoreKind.KEY_VALUE)
TIMESTAMPED: Final = _counts(StoreKind.TIMESTAMPED_KEY_VALUE)
CHECKED: Final = _counts(StoreKind.TIMESTAMPED_KEY_VALUE, checksums=True)


class Ran(NamedTuple):
    """A micro-batch: its number, the moment of its end in seconds since 1970, its figures, rows restored to copies."""

    number: int
    end: float
    batch: Batch
    restored: int = 0


class Feed:
    """The files that queries read: the first ones have each key once, the others have ``rows`` rows of random keys.

    Args:
        place: where they are written.
        keys: how many there are.
        rows: of a micro-batch.
        filling: how many micro-batches bring the keys.
        files: of each micro-batch.
        seed: of all chance.

    Attributes:
        rows: of each micro-batch that is not written yet.
    """

    def __init__(self, place: Path, keys: int, rows: int, *, filling: int = 1, files: int = 1, seed: int = 1) -> None:
        self.rows = rows
        self._place = place
        self._keys = keys
        self._files = files
        self._seed = seed
        self._written = filling
        write_inputs(place, [events()], Scale(-(-keys // filling), keys, files), filling, growing=True, seed=seed)

    def first(self, spark: SparkSession, batches: int) -> Inputs:
        """Return the first so many micro-batches, written before they are read."""
        scale = Scale(self.rows, self._keys, self._files)
        if batches > self._written:
            more = batches - self._written
            write_inputs(self._place, [events()], scale, more, first=self._written, seed=self._seed)
            self._written = batches
        return read_inputs(spark, self._place, [events()], scale, batches)


class Query:
    """A query that counts, through restarts.

    Args:
        spark: runs it.
        feed: what it reads.
        backend: a name or URL.
        directory: where its checkpoint, durable files and local copies are.
        taken: how many micro-batches it has had.

    Attributes:
        checkpoint: its checkpoint's path.
        state_dir: the directory of its durable files.
    """

    def __init__(self, spark: SparkSession, feed: Feed, backend: str, directory: Path, taken: int = 0) -> None:
        self._spark = spark
        self._feed = feed
        self._backend = backend
        self._directory = directory
        self._taken = taken
        self.checkpoint = str(directory / "checkpoint")
        self.state_dir = str(directory / "state")

    def within(self, spark: SparkSession) -> "Query":
        """Return the query as it goes on in another session."""
        return Query(spark, self._feed, self._backend, self._directory, self._taken)

    @contextmanager
    def twin(self, directory: Path) -> Iterator["Query"]:
        """A query that goes its own way from where this one is, on duplicates of its files in ``directory``."""
        shutil.copytree(self._directory, directory)
        yield Query(self._spark, self._feed, self._backend, directory, self._taken)
        shutil.rmtree(directory)

    def run(
        self, topology: Topology, batches: int, *, mode: UpgradeMode | None = None, local: str = "local"
    ) -> list[Ran]:
        """Restart the query, and let it take so many micro-batches."""
        self._taken += batches
        streams = SparkStreams(
            topology,
            application_id="bench",
            state_dir=self.state_dir,
            local_dir=str(self._directory / local),
            backend=self._backend,
            upgrade_from=None if mode is None else RELEASE,
            upgrade_mode=mode,
        )
        writer = streams.transform(self._feed.first(self._spark, self._taken)).writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", self.checkpoint).format("noop").start()
        query.awaitTermination()
        reports = [(json.loads(progress.json), _restored(progress)) for progress in query.recentProgress]
        disk = sum(bytes_below(self._directory / copies) for copies in ("local", WARM))
        snapshots = [path.stat().st_mtime for path in (self._directory / "state").rglob("*.snapshot.parquet")]
        return [
            ran_of(report, disk, snapshots)._replace(restored=restored)
            for report, restored in reports
            if report["numInputRows"]
        ]

    def prepared(self, number: int | None = None) -> bool:
        """Return whether all tasks have their new format prepared after that micro-batch, by default the last one."""
        manifests = Checkpoint(self._spark, self.checkpoint).manifests(number)
        return all(manifest.prepared for manifest in manifests)

    @contextmanager
    def warmed(self, topology: str) -> Iterator["Future[float]"]:
        """``millpond state warm`` runs beside, for the topology of that name in this module.

        The future has the moment when the copies are warm for the first time. In the end the process is interrupted,
        and brings the copies to the last micro-batch once more.
        """
        with self._warmer(topology) as (process, ready):
            yield ready
            process.send_signal(SIGINT)
            process.wait()
        with self._warmer(topology, "--once") as (_, ready):
            ready.result()

    @contextmanager
    def stood_by(self, topology: str) -> Iterator[None]:
        """``millpond state warm --standby`` runs beside for another ``local_dir``, whose copies are warm already."""
        with self._warmer(topology, "--standby", "--interval", "1 second") as (process, ready):
            ready.result()
            yield
            process.send_signal(SIGINT)

    @contextmanager
    def _warmer(self, topology: str, *options: str) -> Iterator[tuple["Popen[str]", "Future[float]"]]:
        command = [sys.executable, "-c", "from millpond.cli import main; main()", "state", "warm", self.checkpoint]
        command += ["--state-dir", self.state_dir, "--local-dir", str(self._directory / WARM)]
        command += ["--topology", f"{__name__}:{topology}", "--backend", self._backend, "--json", *options]
        log = self._directory / "warming.log"
        ready: Future[float] = Future()
        with log.open("w") as errors, Popen(command, stdout=PIPE, stderr=errors, text=True) as process:
            listener = Thread(target=_listen, args=(process, ready, log), daemon=True)
            listener.start()
            try:
                yield process, ready
                process.wait()
            finally:
                process.kill()
                listener.join()


def _restored(progress: StreamingQueryProgress) -> int:
    """Return how many rows a micro-batch has read from durable files for local copies."""
    measured = measured_in(progress.observedMetrics)
    return sum(one.figure(StoreMetric.RESTORE_ROWS) or 0 for one in measured)


def _listen(process: "Popen[str]", ready: "Future[float]", log: Path) -> None:
    """Note when a warming process says something for the first time; if it never does, what its log has."""
    assert process.stdout is not None
    for _ in process.stdout:
        if not ready.done():
            ready.set_result(time.time())
    if not ready.done():
        ready.set_exception(MillpondError(f"the warming process ended before it was ready: {log.read_text()[-1000:]}"))


def ran_of(report: Mapping[str, Any], disk: int, snapshots: Sequence[float]) -> Ran:
    """Return a micro-batch by Spark's report of its progress.

    Args:
        report: the report.
        disk: the bytes of local copies.
        snapshots: the moments when snapshots were written, in seconds since 1970.
    """
    start, seconds = began_and_took(report)
    end = start + seconds
    times = {"wall": seconds, "add_batch": report["durationMs"]["addBatch"] / 1000}
    return Ran(report["batchId"], end, Batch(times, disk, any(start <= moment <= end for moment in snapshots)))

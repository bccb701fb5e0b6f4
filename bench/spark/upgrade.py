"""What an upgrade of local copies costs the micro-batches of a query on Spark: in place, by roll over, offline.

Rule of this module: nothing looks at the query while it runs but Spark itself, whose ``triggerExecution`` is what is
measured. A query takes a known number of micro-batches and ends. Only then do checkpoint and files tell which of them
were prepared, or warm, or wrote a snapshot; the latter are counted apart, because they are long in every phase.
"""

import json
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from millpond.adapters.spark import Checkpoint, SparkStreams
from millpond.bench.spark.inputs import events, read_inputs, write_inputs
from millpond.bench.spark.queries import session
from millpond.bench.spark.shapes import COUNTED, Inputs, Scale
from millpond.bench.upgrade import WARM, Batch, Phase, bytes_below
from millpond.errors import MillpondError
from millpond.processors import Consumed, Materialized, Produced, StreamsBuilder, Topology
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.registry import supplier
from millpond.stores.releases import RELEASE
from millpond.stores.specs import StoreKind


def _counts(kind: StoreKind, *, checksums: bool = False) -> Topology:
    """Events per key in a store of that kind; one row per key and micro-batch comes out."""
    builder = StreamsBuilder()
    stream = builder.stream("events", Consumed("string", "int64", timestamp="at", value="amount"))
    kept = Materialized("counts", kind=kind, checksums=checksums).with_caching()
    stream.group_by_key().count(kept).to("out", Produced(schema=COUNTED))
    return builder.build()


PLAIN: Final = _counts(StoreKind.KEY_VALUE)
TIMESTAMPED: Final = _counts(StoreKind.TIMESTAMPED_KEY_VALUE)
CHECKED: Final = _counts(StoreKind.TIMESTAMPED_KEY_VALUE, checksums=True)


class Upgrade(NamedTuple):
    """The topology before and after, and what the latter is called in this module."""

    old: Topology
    new: Topology
    name: str


UPGRADES: Final[Mapping[str, Upgrade]] = {
    "timestamped": Upgrade(PLAIN, TIMESTAMPED, "TIMESTAMPED"),
    "checksums": Upgrade(TIMESTAMPED, CHECKED, "CHECKED"),
}
"""As ``millpond.bench.upgrade`` has them."""

BATCHES: Final = 20
"""How many micro-batches each phase has, unless somebody says otherwise."""

_AT_ONCE: Final = 50
"""The most micro-batches of a query that prepares: Spark retains 100, and all of them are asked for manifests."""


class Ran(NamedTuple):
    """A micro-batch: its number, the moment of its end in seconds since 1970, its figures."""

    number: int
    end: float
    batch: Batch


class Feed:
    """The files that queries read: the first one has each key once, the others have ``rows`` rows of random keys.

    Args:
        spark: reads them.
        place: where they are written.
        keys: how many there are.
        rows: of a micro-batch.
    """

    def __init__(self, spark: SparkSession, place: Path, keys: int, rows: int) -> None:
        self._spark = spark
        self._place = place
        self._scale = Scale(rows, keys)
        self._written = 1
        write_inputs(place, [events()], Scale(keys, keys), 1, growing=True)

    def first(self, batches: int) -> Inputs:
        """The first so many micro-batches, written before they are read."""
        if batches > self._written:
            write_inputs(self._place, [events()], self._scale, batches - self._written, first=self._written)
            self._written = batches
        return read_inputs(self._spark, self._place, [events()], self._scale, batches)


class Query:
    """A query that counts, through restarts.

    Args:
        spark: runs it.
        feed: what it reads.
        backend: a name or URL.
        directory: where its checkpoint, durable files and local copies are.
        taken: how many micro-batches it has had.
    """

    def __init__(self, spark: SparkSession, feed: Feed, backend: str, directory: Path, taken: int = 0) -> None:
        self._spark = spark
        self._feed = feed
        self._backend = backend
        self._directory = directory
        self._taken = taken

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
            state_dir=str(self._directory / "state"),
            local_dir=str(self._directory / local),
            backend=self._backend,
            upgrade_from=None if mode is None else RELEASE,
            upgrade_mode=mode,
        )
        writer = streams.transform(self._feed.first(self._taken)).writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", self._checkpoint).format("noop").start()
        query.awaitTermination()
        reports = [json.loads(progress.json) for progress in query.recentProgress]
        disk = sum(bytes_below(self._directory / copies) for copies in ("local", WARM))
        snapshots = [path.stat().st_mtime for path in (self._directory / "state").rglob("*.snapshot.parquet")]
        return [ran_of(report, disk, snapshots) for report in reports if report["numInputRows"]]

    def prepared(self, number: int | None = None) -> bool:
        """Whether all tasks have their new format prepared after that micro-batch, by default the last one."""
        manifests = Checkpoint(self._spark, self._checkpoint).manifests(number)
        return all(manifest.prepared for manifest in manifests)

    @contextmanager
    def warmed(self, upgrade: Upgrade) -> Iterator["Future[float]"]:
        """``millpond state warm`` runs beside; the future has the moment when the copies are warm for the first time.

        In the end it is interrupted, and brings the copies to the last micro-batch once more.
        """
        with self._warmer(upgrade) as (process, ready):
            yield ready
            process.send_signal(SIGINT)
            process.wait()
        with self._warmer(upgrade, "--once") as (_, ready):
            ready.result()

    @contextmanager
    def _warmer(self, upgrade: Upgrade, *options: str) -> Iterator[tuple["Popen[str]", "Future[float]"]]:
        command = [sys.executable, "-c", "from millpond.cli import main; main()", "state", "warm", self._checkpoint]
        command += ["--state-dir", str(self._directory / "state"), "--local-dir", str(self._directory / WARM)]
        command += ["--topology", f"{__name__}:{upgrade.name}", "--backend", self._backend, "--json", *options]
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

    @property
    def _checkpoint(self) -> str:
        return str(self._directory / "checkpoint")


def _listen(process: "Popen[str]", ready: "Future[float]", log: Path) -> None:
    """Note when a warming process says something for the first time; if it never does, what its log has."""
    assert process.stdout is not None
    for _ in process.stdout:
        if not ready.done():
            ready.set_result(time.time())
    if not ready.done():
        ready.set_exception(MillpondError(f"the warming process ended before it was ready: {log.read_text()[-1000:]}"))


def ran_of(report: Mapping[str, Any], disk: int, snapshots: Sequence[float]) -> Ran:
    """A micro-batch by Spark's report of its progress.

    Args:
        report: the report.
        disk: the bytes of local copies.
        snapshots: the moments when snapshots were written, in seconds since 1970.
    """
    took = report["durationMs"]
    start = datetime.fromisoformat(report["timestamp"]).timestamp()
    end = start + took["triggerExecution"] / 1000
    times = {"wall": took["triggerExecution"] / 1000, "add_batch": took["addBatch"] / 1000}
    return Ran(report["batchId"], end, Batch(times, disk, any(start <= moment <= end for moment in snapshots)))


def run(
    backends: Sequence[str],
    keys: int,
    *,
    upgrades: Sequence[str] = tuple(UPGRADES),
    rows: int = 20_000,
    batches: int = BATCHES,
    cores: int = 2,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Upgrade a query on each backend, in every way that it has, while micro-batches go on.

    Args:
        backends: names or URLs of backends.
        keys: of the store.
        upgrades: names in ``UPGRADES``.
        rows: of a micro-batch.
        batches: of each phase; while the new format is being prepared or warmed, as many as that takes.
        cores: of Spark, and tasks of the query.
        directory: where the files go; by default the temporary directory.
    """
    results: list[dict[str, Any]] = []
    with session(cores) as spark:
        for backend in backends:
            for upgrade in upgrades:
                with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
                    place = Path(temporary)
                    query = Query(spark, Feed(spark, place, keys, rows), backend, place / "query")
                    ways = list(_ways(query, UPGRADES[upgrade], batches, place, supplier(backend).persistent))
                for way in ways:
                    results += [{"backend": backend, "upgrade": upgrade} | phase.figures(rows, way[0]) for phase in way]
    return {"keys": keys, "rows": rows, "cores": cores, "phases": results}


def _ways(query: Query, upgrade: Upgrade, batches: int, place: Path, persistent: bool) -> Iterator[list[Phase]]:
    """Phases, those in place with micro-batches before them of their own: a JVM gets quicker for a long time."""
    query.run(upgrade.old, 1 + batches)  # all keys, and then the worst of that is over
    phases = [_phase("before", query.run(upgrade.old, 1 + batches))]
    with query.twin(place / "offline") as twin:
        phases.append(_phase("offline", twin.run(upgrade.new, 1)))
    if persistent:
        with query.twin(place / "roll-over") as twin:
            phases += _roll_over(twin, upgrade, batches)
    yield phases
    if persistent:
        yield [_phase("before", query.run(upgrade.old, 1 + batches)), *_in_place(query, upgrade.new, batches)]


def _phase(name: str, ran: Sequence[Ran]) -> Phase:
    """Micro-batches from a restart on."""
    first, *others = (one.batch for one in ran)
    return Phase(name, first, others)


def _roll_over(query: Query, upgrade: Upgrade, batches: int) -> Iterator[Phase]:
    warming, warm = Phase("warming"), Phase("warm")
    with query.warmed(upgrade) as ready:
        while not ready.done():
            first, *others = query.run(upgrade.new, 1 + batches, mode=UpgradeMode.ROLL_OVER)
            warming.first = warming.first or first.batch
            moment = ready.result() if ready.done() else time.time()
            warming.batches += [one.batch for one in others if one.end <= moment]
            warm.batches += [one.batch for one in others if one.end > moment]
        yield warming
        _, *others = query.run(upgrade.new, 1 + batches, mode=UpgradeMode.ROLL_OVER)
        warm.batches += [one.batch for one in others]
        yield warm
    yield _phase("rolled over", query.run(upgrade.new, 1, local=WARM))


def _in_place(query: Query, new: Topology, batches: int) -> Iterator[Phase]:
    preparing, prepared = Phase("preparing"), Phase("prepared")
    done = False
    while not done:
        ran = query.run(new, 1 + min(batches, _AT_ONCE), mode=UpgradeMode.IN_PLACE)
        preparing.first = preparing.first or ran[0].batch
        done = query.prepared()
        last = bisect_left(ran, True, key=lambda one: query.prepared(one.number)) if done else len(ran)
        preparing.batches += [one.batch for one in ran[1 : last + 1]]
        prepared.batches += [one.batch for one in ran[last + 1 :]]
    yield preparing
    _, *others = query.run(new, 1 + batches, mode=UpgradeMode.IN_PLACE)
    prepared.batches += [one.batch for one in others]
    yield prepared
    yield _phase("after", query.run(new, 1 + batches))

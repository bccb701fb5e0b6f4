"""A query of a verb that really runs, in the operators that run on Spark and without Spark, on a clock of its own.

Its tasks have stores, durable files and local copies, and measure what they do; its checkpoint is written as Spark
writes it, and its progress is kept by what keeps that of queries on Spark. Only the hours between two micro-batches,
and how many rows the machine takes a second, are told and not waited for.
"""

import json
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests
from millpond.adapters.monitor import query_monitor
from millpond.adapters.monitor.kept.kept_progress import ProgressWriter
from millpond.adapters.monitor.overview import Overview
from millpond.adapters.monitor.query_monitor import QueryMonitor
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.adapters.spark.monitoring import live_runs
from millpond.adapters.spark.monitoring.keeping import micro_batch
from millpond.adapters.spark.monitoring.live_runs import LiveRuns
from millpond.adapters.spark.monitoring.measured import Measured, Place
from millpond.adapters.spark.operator import map_side, operator, task_run
from millpond.adapters.spark.worker.counters import report_row
from millpond.processors import TimeWindows
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.made import Made
from millpond.stores.durability import state
from tests.evolution import chain_job
from tests.evolution.chain_job import CALLS, SCHEMA, ChainJob
from tests.inspect.checkpoints import OPERATOR, PARTITIONS, changelog, lz4, state_key, state_value

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
BEGIN = 1_700_000_000_000
KEYS = 500

Rows = list[tuple[str, int]]
"""The key of each row, and its time in milliseconds."""


@dataclass
class Living:
    """A query, of which a micro-batch is run at a time. Give it within ``living``.

    Attributes:
        directory: where everything is.
        random: what rows are there.
        every: from the begin of a micro-batch to that of the next one, in milliseconds, if it is not longer.
        capacity: how many rows are processed a second.
        most: how many rows a micro-batch takes at most.
        key: draws the key of a row.
        late: draws by how much a row is late, in milliseconds.
        backend: of its stores.
        disk: how many bytes there are for local copies; None for what the machine has.
        name: the query's.
        now: the time.
    """

    directory: Path
    random: Random = field(default_factory=lambda: Random(0))
    every: int = 10 * SECOND
    capacity: float = 500.0
    most: int = 10_000
    key: Callable[[Random], str] = lambda random: f"key {random.randrange(KEYS)}"
    late: Callable[[Random], int] = lambda random: random.randrange(SECOND)
    backend: str = "memory"
    disk: int | None = None
    name: str | None = None
    now: int = BEGIN

    def __post_init__(self) -> None:
        self.checkpoint = self.directory / "checkpoint"
        self.job = ChainJob(self.directory)
        self.writer = ProgressWriter.at(str(self.directory / "progress"))
        self.query = uuid4().hex
        self.waiting: Rows = []
        self._told: list[tuple[str, str, dict[str, int], dict[str, int], dict[str, int]]] = []
        self._write("metadata", json.dumps({"id": self.query}))
        self._write("state/0/_metadata/v2/0", f"v2\n{json.dumps(OPERATOR)}")
        self.monitor = QueryMonitor(str(self.checkpoint), str(self.directory / "state"), str(self.writer.storage.uri))
        self.start()

    def start(self, partitions: int = PARTITIONS) -> None:
        """Start it, at once or again, maybe with another number of tasks."""
        self.run, self.partitions = uuid4().hex, partitions
        self.job.start(["counts"], partitions, self.backend, Evolution("checkpoint") if self.job.runs else None)
        self.runs = LiveRuns(self.writer)
        self.runs.begun(self.query, self.run, self.name, self.now)

    def stop(self, pause: int = 0) -> None:
        """Stop it, and let time pass."""
        self.runs.ended(self.query, self.run, None)
        self.now += pause

    def arrive(self, rate: float, millis: int) -> None:
        """Let rows come for so many milliseconds, so many a second."""
        count = round(rate * millis / SECOND)
        times = (self.now - millis + number * millis // max(1, count) for number in range(count))
        self.waiting += [(self.key(self.random), at - self.late(self.random)) for at in times]

    def step(self, rate: float = 100.0) -> None:
        """Run a micro-batch over what has come since the last one, or as much of it as it takes."""
        if not self.batches:
            self.arrive(rate, self.every)
        rows, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
        batch, started = self.batches, self.now
        self._write(f"offsets/{batch}", "v1\n{}\n{}")
        self._told.clear()
        try:
            self._run(rows)
        except Exception:
            self.runs.ended(self.query, self.run, traceback.format_exc())
            raise
        took = 100 + round(len(rows) / self.capacity * SECOND)
        self.now += took
        self._commit(batch)
        self._keep(batch, started, took, len(rows))
        self.now = max(self.now, started + self.every)
        self.runs.beat(self.now)
        self.arrive(rate, self.now - started)

    @property
    def batches(self) -> int:
        """Return how many micro-batches it has committed."""
        return 0 if self.job.batch is None else self.job.batch + 1

    def seen(self, later: int = 0) -> Overview:
        """Return what another process sees, so many milliseconds later, if nothing happens until then."""
        self.now += later
        try:
            return self.monitor.look()
        finally:
            self.now -= later

    def states(self, later: int = 0) -> list[str]:
        """Return what is wrong with it."""
        return [str(found.state) for found in self.seen(later).findings]

    def _run(self, rows: Rows) -> None:
        times: Any = pa.array([at * 1_000 for _, at in rows], SCHEMA.field("t").type)
        columns = [pa.array([key for key, _ in rows], pa.string()), times, pa.array([1] * len(rows), pa.int64())]
        self.job.run([pa.table(columns, schema=SCHEMA)], self.random)

    def _commit(self, batch: int) -> None:
        held: dict[int, dict[bytes, bytes | None]] = {number: {} for number in range(PARTITIONS)}
        for (_, number), value in self.job.values.items():
            (manifest,) = kept_manifests(*value)
            held[number % PARTITIONS][state_key(number)] = state_value(manifest)
        for number, changes in held.items():
            self._write(f"state/0/{number}/{batch + 1}.changelog", lz4(changelog(changes)))
        self._write(f"commits/{batch}", "v1\n{}")
        for path in (f"{log}/{batch - 100}" for log in ("offsets", "commits")):
            (self.checkpoint / path).unlink(missing_ok=True)

    def _keep(self, batch: int, started: int, took: int, rows: int) -> None:
        source = SimpleNamespace(
            description="Kafka[rows]", numInputRows=rows, metrics={"maxOffsetsBehindLatest": str(len(self.waiting))}
        )
        durations = {"triggerExecution": took, "addBatch": took - 50, "walCommit": 10, "commitOffsets": 10}
        progress = SimpleNamespace(
            id=self.query, runId=self.run, name=self.name, batchId=batch, durationMs=durations, sources=[source],
            timestamp=(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=started)).isoformat(),
        )  # fmt: skip
        self.writer.keep(micro_batch(progress, [self._measured("rows"), self._measured("counts.operator.0")]))
        self.runs.progressed(self.query, self.run, self.name, started)

    def _measured(self, name: str) -> Measured:
        """Return the figures that the tasks of an input or of the operator have told."""
        told = [one for one in self._told if one[0] == name]
        counts = [counted for _, _, counted, _, _ in told if counted]
        places = [Place(task, counted, keys) for _, task, counted, _, keys in told]
        return Measured("app.counts", name, [figures for *_, figures, _ in told], counts, places)

    def tell(self, name: str, task: str | None, counts: Any, metrics: Any, keys: Any) -> None:
        """Take what a worker tells."""
        self._told.append((name, task or "", dict(counts), dict(metrics), dict(keys or {})))

    @property
    def size(self) -> int:
        """The bytes of its local copies on disk."""
        return sum(file.stat().st_blocks * 512 for file in self.job.local.rglob("*") if file.is_file())

    def usage(self) -> Any:
        """Return the usage of the disk of its local copies."""
        if self.disk is None:
            return shutil.disk_usage(self.directory)
        return SimpleNamespace(total=self.disk, used=self.size, free=max(0, self.disk - self.size))

    def _write(self, path: str, content: str | bytes) -> None:
        place = self.checkpoint / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(place, (self.now / SECOND, self.now / SECOND))


def windows(name: str, rows: Any, run: Any, *, first: bool) -> Made:
    """Return counts by key and minute, which take rows that are a minute late."""
    window = TimeWindows("1 minute", grace="1 minute")
    return make_aggregate(name, rows, CALLS, by="k", time="t", window=window)


@contextmanager
def living(directory: Path, made: Callable[..., Made] | None = None, **options: Any) -> Iterator[Living]:
    """A query whose clocks are its own.

    Args:
        directory: where everything is.
        made: makes the verb; by default it counts by key.
        options: of ``Living``.
    """
    found: list[Living] = []

    def now() -> int:
        return found[0].now if found else options.get("now", BEGIN)

    def told(schema: pa.Schema, counts: Any, metrics: Any, of: Any = None, task: Any = None, keys: Any = None) -> Any:
        found[0].tell("counts.operator.0" if task else "rows", task, counts, metrics, keys)
        return report_row(schema, counts, metrics, of, task, keys)

    with ExitStack() as stack:
        for module in (operator, map_side):
            stack.enter_context(patch.object(module, "report_row", told))
        clock = SimpleNamespace(time_ns=lambda: now() * 1_000_000)
        stack.enter_context(patch.object(task_run, "time", clock))
        stack.enter_context(patch.object(live_runs, "_now", now))
        stack.enter_context(patch.object(live_runs, "Thread", lambda **_: SimpleNamespace(start=lambda: None)))
        stack.enter_context(patch.object(query_monitor, "time", lambda: now() / SECOND))
        stack.enter_context(patch.object(state, "disk_usage", lambda _: found[0].usage()))
        if made is not None:
            stack.enter_context(patch.object(chain_job, "_made", made))
        found.append(Living.__new__(Living))
        Living.__init__(found[0], directory, **options)
        yield found[0]
        found[0].job.stop()

"""The cost of an upgrade of a task's local copies to its micro-batches, in place, by roll over and offline.

Rule of this module: a micro-batch is what a Spark worker does for one task: it opens the stores at a manifest, reads
and writes one run of updates, and commits. Nothing else of a real micro-batch is here, neither Spark nor the topology,
so a pause is the greatest share that it can be. Micro-batches that write a snapshot are counted apart, because they are
long in every phase.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from millpond.bench.measure import bytes_below, without_gc
from millpond.bench.rows import VALUE_SIZE, key_of
from millpond.bench.runs.asked import check_known
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.copies.warming import warm
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import BYTES, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

_PLAIN: Final = StoreSpec("bench", StoreKind.KEY_VALUE, STRING, BYTES, checksums=False)
_TIMESTAMPED: Final = replace(_PLAIN, kind=StoreKind.TIMESTAMPED_KEY_VALUE)

UPGRADES: Final[Mapping[str, tuple[StoreSpec, StoreSpec]]] = {
    "timestamped": (_PLAIN, _TIMESTAMPED),
    "checksums": (_TIMESTAMPED, replace(_TIMESTAMPED, checksums=True)),
}
"""The spec of a store before and after."""

BATCHES: Final = 30
"""The default number of micro-batches of each phase."""


class Batch(NamedTuple):
    """One micro-batch: seconds by what they were measured with, bytes of the local copies, whether it wrote a snapshot.

    One of the measures is ``wall``.
    """

    seconds: Mapping[str, float]
    disk: int
    snapshot: bool


@dataclass
class Phase:
    """Micro-batches of one part of an upgrade; ``first`` is the one after a restart, which opens the stores anew."""

    name: str
    first: Batch | None = None
    batches: list[Batch] = field(default_factory=list)

    def figures(self, rows: int, before: "Phase") -> dict[str, Any]:
        """Return the figures to report, with pauses as shares of the median micro-batch in the phase ``before``.

        Args:
            rows: updates of a micro-batch.
            before: the phase that this one is compared with.
        """
        figures: dict[str, Any] = {"phase": self.name, "batches": len(self.batches)}
        if self.first is not None:
            figures["first_s"] = dict(self.first.seconds)
        figures["most_disk_bytes"] = max(batch.disk for batch in self._all())
        figures["disk_bytes"] = self._all()[-1].disk
        for way in self._all()[0].seconds:
            times, usual = self.seconds(way), median(before.seconds(way) or [0])
            if times:
                p50, p90 = median(times), quantiles(times, n=10, method="inclusive")[-1] if times[1:] else times[0]
                figures[way] = {"p50_s": p50, "p90_s": p90, "max_s": max(times)}
                figures[way] |= {"pause_p50": p50 / usual, "pause_max": max(times) / usual}
        if self.batches:
            figures["rows_per_s"] = rows / figures["wall"]["p50_s"]
        snapshots = [batch.seconds["wall"] for batch in self.batches if batch.snapshot]
        return figures | {"snapshots": len(snapshots), "snapshot_max_s": max(snapshots, default=None)}

    def seconds(self, way: str) -> list[float]:
        """Return the seconds of the micro-batches without a snapshot; of all if there are no others."""
        usual = [batch for batch in self.batches if not batch.snapshot] or self.batches
        return [batch.seconds[way] for batch in usual]

    def _all(self) -> list[Batch]:
        return [batch for batch in (self.first, *self.batches) if batch is not None]


class Job:
    """One task with one store of ``keys`` keys, through restarts.

    Args:
        backend: a name or URL.
        keys: how many the store has.
        rows: updates of a micro-batch, of random keys.
        directory: where local copies and durable files are.
        seed: of all chance.
    """

    def __init__(self, backend: str, keys: int, rows: int, directory: Path, seed: int = 1) -> None:
        self._backend = backend
        self._keys = keys
        self._rows = rows
        self._directory = directory
        self._seed = seed
        self._random = random.Random(seed)
        self._time = 0
        self._state: TaskState | None = None
        self._stamped = False
        self.manifest: Manifest | None = None

    def restart(self, spec: StoreSpec, mode: UpgradeMode | None = None, *, local: str = "local") -> None:
        """Go on with the store as ``spec`` says, and with the copies in the directory ``local``."""
        self.stop()
        self._stamped = spec.kind.stamped
        self._state = TaskState(
            [spec],
            supplier(self._backend),
            application_id="bench",
            task_id="0_0",
            local_dir=self._directory / local,
            storage=storage_in(self._directory),
            upgrade_mode=mode,
        )

    def stop(self) -> None:
        """Let go of everything."""
        if self._state is not None:
            self._state.close()

    def twin(self, directory: Path) -> "Job":
        """Return a job that is where this one is, on duplicates of its files in ``directory``; both are stopped."""
        self.stop()
        shutil.copytree(self._directory, directory)
        twin = Job(self._backend, self._keys, self._rows, directory, self._seed)
        twin.manifest = self.manifest
        return twin

    @property
    def prepared(self) -> bool:
        """True if the new format of the store is prepared."""
        return self.manifest is not None and bool(self.manifest.prepared)

    @contextmanager
    def warmed(self, spec: StoreSpec) -> Iterator[Connection]:
        """Another process that warms copies behind this job, and has been told where it is; see ``follow``."""
        context = get_context("spawn")
        warmer, end = context.Pipe()
        process = context.Process(target=follow, args=(self._backend, spec, self._directory, end), daemon=True)
        process.start()
        end.close()
        try:
            warmer.send(self.manifest)
            yield warmer
            warmer.send(None)
            process.join()
        finally:
            process.kill()
            process.join()
            warmer.close()

    def fill(self) -> None:
        """Put all keys, in one commit."""
        self._update(list(map(key_of, range(self._keys))))

    def batch(self) -> Batch:
        """Run one micro-batch, which reads values and puts others."""
        keys = [key_of(self._random.randrange(self._keys)) for _ in range(self._rows)]
        with without_gc():
            wall, processor = time.perf_counter(), time.process_time()
            self._update(keys)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
        manifest = self.manifest
        assert manifest is not None
        disk = sum(bytes_below(self._directory / local) for local in ("local", WARM))
        return Batch({"wall": wall, "processor": processor}, disk, not manifest.deltas)

    def _update(self, keys: list[str]) -> None:
        assert self._state is not None, "restart before"
        store: Any = self._state.open(self.manifest)["bench"]
        self._time += 1
        store.get_many(keys)
        values = self._random.randbytes(VALUE_SIZE * len(keys))
        times = ([self._time] * len(keys),) if self._stamped else ()
        cuts = range(0, len(values), VALUE_SIZE)
        store.put_many(keys, [values[cut : cut + VALUE_SIZE] for cut in cuts], *times)
        self.manifest = self._state.commit()


WARM: Final = "warm"
"""The directory of copies that another process warms."""


def storage_in(directory: Path) -> Storage:
    """Return the storage of the durable files of the job in ``directory``."""
    return Storage.from_uri(directory / "durable")


def run(
    backends: Sequence[str],
    keys: int,
    *,
    upgrades: Sequence[str] = tuple(UPGRADES),
    rows: int = 20_000,
    batches: int = BATCHES,
    seed: int = 1,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Upgrade one task on each backend, in every way that it has, while micro-batches go on.

    Args:
        backends: names or URLs of backends.
        keys: of the store.
        upgrades: names in ``UPGRADES``.
        rows: updates of a micro-batch.
        batches: of each phase; while the new format is being prepared or warmed, as many as that takes.
        seed: of all chance.
        directory: where the files go; by default the temporary directory.

    Raises:
        ConfigurationError: an upgrade is unknown.
    """
    check_known("upgrade", upgrades, UPGRADES)
    results: list[dict[str, Any]] = []
    for backend in backends:
        for upgrade in upgrades:
            with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
                before, *others = _phases(backend, upgrade, keys, rows, batches, Path(temporary), seed)
            for phase in (before, *others):
                results.append({"backend": backend, "upgrade": upgrade} | phase.figures(rows, before))
    return {"keys": keys, "value_bytes": VALUE_SIZE, "rows": rows, "seed": seed, "phases": results}


def _phases(
    backend: str, upgrade: str, keys: int, rows: int, batches: int, directory: Path, seed: int
) -> Iterator[Phase]:
    old, new = UPGRADES[upgrade]
    job = Job(backend, keys, rows, directory / "job", seed)
    job.restart(old)
    job.fill()
    job.batch()
    yield Phase("before", None, [job.batch() for _ in range(batches)])
    with _twin(job, directory / "offline") as twin:
        twin.restart(new)
        yield Phase("offline", twin.batch())
    if supplier(backend).persistent:
        with _twin(job, directory / "roll-over") as twin:
            yield from _roll_over(twin, new, batches)
        yield from _in_place(job, new, batches)
    job.stop()


@contextmanager
def _twin(job: Job, directory: Path) -> Iterator[Job]:
    """A job that goes its own way from where ``job`` is."""
    twin = job.twin(directory)
    try:
        yield twin
    finally:
        twin.stop()
        shutil.rmtree(directory)


def _roll_over(job: Job, new: StoreSpec, batches: int) -> Iterator[Phase]:
    job.restart(new, UpgradeMode.ROLL_OVER)
    warming = Phase("warming", job.batch())
    with job.warmed(new) as warmer:
        while not warmer.poll():
            warming.batches.append(job.batch())
        yield warming
        following = Phase("warm")
        for _ in range(batches):
            if warmer.poll():
                warmer.recv()
                warmer.send(job.manifest)
            following.batches.append(job.batch())
        yield following
    job.restart(new, local=WARM)
    yield Phase("rolled over", job.batch(), [job.batch() for _ in range(batches)])


def follow(backend: str, spec: StoreSpec, directory: Path, job: Connection) -> None:
    """Warm copies behind the job in ``directory``, at one manifest after the other until None comes.

    A process of its own. It says so each time that the copies stand at a manifest, and is then told the next.
    """
    while (manifest := job.recv()) is not None:
        warm([spec], supplier(backend), manifest, local_dir=directory / WARM, storage=storage_in(directory))
        job.send(manifest.sequence)


def _in_place(job: Job, new: StoreSpec, batches: int) -> Iterator[Phase]:
    job.restart(new, UpgradeMode.IN_PLACE)
    preparing = Phase("preparing", job.batch())
    while not job.prepared:
        preparing.batches.append(job.batch())
    yield preparing
    yield Phase("prepared", None, [job.batch() for _ in range(batches)])
    job.restart(new)
    yield Phase("after", job.batch(), [job.batch() for _ in range(batches)])


def print_results(console: Console, figures: Mapping[str, Any], way: str = "processor") -> None:
    """Print a row for each backend, upgrade and phase; shares are of the median micro-batch before.

    Args:
        console: where to.
        figures: what ``run`` returned.
        way: what is shown of a micro-batch beside its time.
    """
    title = f"upgrade of {figures['keys']:,} keys, {figures['rows']:,} updates a micro-batch"
    table = Table(title=title, title_justify="left")
    short = way.partition("_")[0]
    times = ("batches", "first s", "p50 s", "p90 s", "max s", f"{short} p50 s", "rows/s")
    names = (*times, "p50 x", "max x", f"{short} p50 x", f"{short} max x", "most MiB")
    for name in ("backend", "upgrade", "phase", *names):
        table.add_column(name, justify="right" if name in names else "left", no_wrap=True)
    for row in figures["phases"]:
        table.add_row(row["backend"], row["upgrade"], row["phase"], *_cells(row, way))
    console.print(table)


def _cells(row: Mapping[str, Any], way: str) -> Iterator[str]:
    wall, other = row.get("wall", {}), row.get(way, {})
    yield str(row["batches"])
    first = row.get("first_s", {}).get("wall")
    for seconds in (first, *map(wall.get, ("p50_s", "p90_s", "max_s")), other.get("p50_s")):
        yield "" if seconds is None else f"{seconds:.3f}"
    yield f"{row['rows_per_s']:,.0f}" if "rows_per_s" in row else ""
    for share in (times.get(name) for times in (wall, other) for name in ("pause_p50", "pause_max")):
        yield "" if share is None else f"{share:.2f}"
    yield f"{row['most_disk_bytes'] / 2**20:,.0f}"

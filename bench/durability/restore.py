"""The time to restore all stores of a task, from a local storage and from one that is far away.

Rule of this module: the far storage is a local one that answers late, so that both hold the same bytes. Wall time and
processor time are told apart, because a far storage costs little but time.
"""

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.table import Table

from millpond.bench.measure import without_gc
from millpond.bench.rows import VALUE_SIZE, key_of
from millpond.errors import ConfigurationError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.serdes import BYTES, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

_DELTAS = 8
_CHANGED = 50
"""The rows of which each delta changes one."""


class Distance(NamedTuple):
    """The distance of a storage: its latency and its bandwidth.

    Attributes:
        latency: seconds until it answers.
        bandwidth: bytes that it then sends in a second, to each reader.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class FarStorage(Storage):
    """A local storage that answers as late as one at ``distance``."""

    distance: Distance

    @classmethod
    def over(cls, storage: Storage, distance: Distance) -> Self:
        """Return the storage at the same place as ``storage``, at a distance."""
        return cls(storage.uri, distance, sync=storage.sync)

    @property
    def remote(self) -> bool:
        return True

    def reading(self, path: str) -> Any:
        time.sleep(self.distance.latency)
        return _FarFile(super().reading(path), self.distance)


class _FarFile:
    def __init__(self, file: Any, distance: Distance) -> None:
        self._file = file
        self._distance = distance
        self.size = file.size
        self.close = file.close

    def read(self) -> bytes:
        return self.read_at(self.size(), 0)

    def read_at(self, size: int, offset: int) -> bytes:
        time.sleep(self._distance.latency + size / self._distance.bandwidth)
        content: bytes = self._file.read_at(size, offset)
        return content

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Task:
    """The durable files of a task with ``rows`` rows in ``stores`` stores: a snapshot, and deltas."""

    def __init__(self, backend: str, rows: int, stores: int, directory: Path) -> None:
        self._backend = backend
        self._specs = [StoreSpec(f"store-{n}", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, BYTES) for n in range(stores)]
        self._directory = directory
        self.storage = Storage.from_uri(directory / "durable")
        self._manifest = self._write(rows // stores)

    def _state(self, local: str, storage: Storage) -> TaskState:
        return TaskState(
            self._specs,
            supplier(self._backend),
            application_id="bench",
            task_id="0_0",
            local_dir=self._directory / local,
            storage=storage,
        )

    def _write(self, rows: int) -> Manifest | None:
        manifest: Manifest | None = None
        values, share = random.Random(0), rows // _CHANGED
        with self._state("origin", self.storage) as state:
            for first, count in [(0, rows), *((number * share, share) for number in range(_DELTAS))]:
                for store in state.open(manifest).values():
                    one: Any = store
                    keys = list(map(key_of, range(first, first + count)))
                    one.put_many(keys, [values.randbytes(VALUE_SIZE) for _ in keys], [first] * count)
                manifest = state.commit()
        return manifest

    def restore(self, storage: Storage, local: str) -> tuple[float, float]:
        """Return the seconds of wall time, and of the processor, to open the stores in a new local directory."""
        with self._state(local, storage) as state, without_gc():
            wall, processor = time.perf_counter(), time.process_time()
            state.open(self._manifest)
            return time.perf_counter() - wall, time.process_time() - processor


def run(
    backends: Sequence[str],
    rows: int,
    stores: Sequence[int],
    distance: Distance,
    *,
    rounds: int = 5,
    directory: Path | None = None,
) -> dict[str, Any]:
    """Restore tasks with ``rows`` rows in as many stores as ``stores`` says, from both storages in turn.

    Args:
        backends: names or URLs of built-in backends.
        rows: of all stores of a task.
        stores: how many stores the tasks have.
        distance: of the far storage.
        rounds: how often each is measured; the medians count.
        directory: where the files go; by default the temporary directory.

    Raises:
        ConfigurationError: there are too few rows for a delta of each store.
    """
    if rows < _CHANGED * max(stores):
        raise ConfigurationError(f"{rows} rows are too few for {max(stores)} stores; each needs {_CHANGED}")
    results: list[dict[str, Any]] = []
    for backend in backends:
        for count in stores:
            with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
                task = _Task(backend, rows, count, Path(temporary))
                places = {"local": task.storage, "far": FarStorage.over(task.storage, distance)}
                times: dict[str, list[tuple[float, float]]] = {name: [] for name in places}
                for number in range(rounds + 1):
                    for name, storage in places.items():
                        times[name].append(task.restore(storage, f"{name}-{number}"))
            for name, measured in times.items():
                wall, processor = (median(column) for column in zip(*measured[1:], strict=True))
                results.append(
                    {"backend": backend, "stores": count, "storage": name, "restore_s": wall, "processor_s": processor}
                )
    return {"rows": rows, "deltas": _DELTAS, "rounds": rounds, "far": distance._asdict(), "results": results}


def print_results(console: Console, report: dict[str, Any]) -> None:
    """Print a row for each backend, number of stores and storage."""
    table = Table(title=f"restore of a task with {report['rows']:,} rows")
    for place, column in enumerate(("backend", "storage", "stores", "restore s", "processor s")):
        table.add_column(column, justify="left" if place < 2 else "right")
    for row in report["results"]:
        times = (f"{row[name]:.2f}" for name in ("restore_s", "processor_s"))
        table.add_row(row["backend"], row["storage"], str(row["stores"]), *times)
    console.print(table)

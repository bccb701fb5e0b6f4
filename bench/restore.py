"""How long it takes to restore a store from its durable files, beside loading the same rows into the raw engine.

The engine is timed twice: with rows that are Python objects in memory already, and with rows that it has to read from
one plain Parquet file first, because whatever is restored has to be read from somewhere. A backend whose engine is not
known has no such times.
"""

import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.bench.engines.engine import Row
from millpond.bench.engines.raw import raw_engine
from millpond.bench.measure import seconds
from millpond.bench.stores import VALUE_SIZE, key_of
from millpond.stores.directory import delete_local_copy, store_directory
from millpond.stores.durability.manifest import Manifest
from millpond.stores.durability.state import TaskState
from millpond.stores.durability.storage import Storage
from millpond.stores.registry import supplier
from millpond.stores.serdes import BYTES, STRING
from millpond.stores.specs import StoreKind, StoreSpec

_COMMITS = 5
_APPLICATION, _TASK = "bench", "0_0"
_SPEC = StoreSpec("bench", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, BYTES)


class Durable:
    """The durable files of one timestamped store with ``keys`` keys: a snapshot, and deltas that change a tenth."""

    def __init__(self, backend: str, keys: int, directory: Path) -> None:
        self._backend, self._supplier = backend, supplier(backend)
        self._directory = directory
        self._value = random.Random(0).randbytes(VALUE_SIZE)
        self.rows = [(key_of(n).encode(), self._value) for n in range(keys)]
        self._manifest = self._write(keys)
        self._plain = directory / "plain.parquet"
        names, values = (list(column) for column in zip(*self.rows, strict=True))
        pq.write_table(pa.table({"key": names, "value": values}), self._plain, use_dictionary=False)

    def _state(self, local: str) -> TaskState:
        return TaskState(
            [_SPEC],
            self._supplier,
            application_id=_APPLICATION,
            task_id=_TASK,
            local_dir=self._directory / local,
            storage=Storage.from_uri(str(self._directory / "durable")),
        )

    def _delete(self, local: str) -> None:
        place = store_directory(self._directory / local, _APPLICATION, _TASK, self._supplier.name, _SPEC)
        delete_local_copy(self._supplier, place)

    def _write(self, keys: int) -> Manifest | None:
        manifest: Manifest | None = None
        share = keys // 10 // _COMMITS
        with self._state("origin") as state:
            for first, count in [(0, keys), *((number * share, share) for number in range(_COMMITS))]:
                store: Any = state.open(manifest)["bench"]
                names = [key_of(n) for n in range(first, first + count)]
                store.put_many(names, [self._value] * count, [first] * count)
                manifest = state.commit()
        self._delete("origin")
        return manifest

    def restore(self, number: int) -> float:
        """Seconds to open the store in a new local directory."""
        local = f"restored-{number}"
        with self._state(local) as state:
            taken = seconds(lambda: state.open(self._manifest))
            state.rollback()
        self._delete(local)
        return taken

    def load(self, number: int) -> float | None:
        """Seconds to load the rows, which are in memory already, into the raw engine the fastest way."""
        return self._load(f"raw-{number}", lambda: self.rows)

    def read_and_load(self, number: int) -> float | None:
        """The same plus the time that it takes to read the rows from a Parquet file."""
        return self._load(f"read-{number}", self._read)

    def _load(self, name: str, rows: Callable[[], list[Row]]) -> float | None:
        engine = raw_engine(self._backend, self._directory / name)
        if engine is None:
            return None
        try:
            return seconds(lambda: engine.load(rows()))
        finally:
            engine.close()

    def _read(self) -> list[Row]:
        table: Any = pq.read_table(self._plain)
        return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def run(backends: list[str], keys: int, *, rounds: int = 3, directory: Path | None = None) -> list[dict[str, Any]]:
    """Restore and load ``keys`` rows in turn; the ratios are restore over load."""
    results = []
    for backend in backends:
        with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
            durable = Durable(backend, keys, Path(temporary))
            times = [(durable.restore(n), durable.load(n), durable.read_and_load(n)) for n in range(rounds)]
        restore, load, read_and_load = map(_median, zip(*times, strict=True))
        assert restore is not None, "whatever is durable can be restored"
        results.append(
            {
                "backend": backend,
                "keys": keys,
                "restore_s": restore,
                "load_s": load,
                "read_and_load_s": read_and_load,
                "ratio": None if load is None else restore / load,
                "ratio_with_reading": None if read_and_load is None else restore / read_and_load,
            }
        )
    return results


def _median(times: Iterable[float | None]) -> float | None:
    found = [time for time in times if time is not None]
    return median(found) if found else None

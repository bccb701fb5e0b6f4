"""Queries in miniature: tasks that hold stores of all kinds, partitioned as records are, with durable files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability import Manifest, Storage
from millpond.stores.durability.copies.restore import restore
from millpond.stores.durability.parquet.files import write_file
from millpond.stores.durability.parquet.rows import tables_of_changes
from millpond.stores.durability.storage.durable_file import FileKind, new_commit_id
from millpond.stores.encoding.keys import BEYOND, DATA
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.evolution.carrying import Origin, carry_unit, units
from millpond.stores.evolution.shape import Shape, StoreShape
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.windowed import Windowed

Tasks = Mapping[tuple[int, int], Manifest]
Change = tuple[str, bytes, bytes | None, int, int]
"""Which store, key, value, time, and how much later another time is."""

LONG = 10**9
SPECS = (
    StoreSpec("plain", StoreKind.KEY_VALUE, BYTES, BYTES),
    StoreSpec("stamped", StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, BYTES),
    StoreSpec("versions", StoreKind.VERSIONED, BYTES, BYTES, history_retention=LONG),
    StoreSpec("windows", StoreKind.WINDOW, BYTES, BYTES, retention=LONG, window_size=10),
    StoreSpec("stamped-windows", StoreKind.TIMESTAMPED_WINDOW, BYTES, BYTES, retention=LONG, window_size=10),
    StoreSpec("joined", StoreKind.WINDOW, BYTES, BYTES, retention=LONG, window_size=10, retain_duplicates=True),
    StoreSpec("sessions", StoreKind.SESSION, BYTES, BYTES, retention=LONG),
    StoreSpec("stamped-sessions", StoreKind.TIMESTAMPED_SESSION, BYTES, BYTES, retention=LONG),
)


def put(store: Any, kind: StoreKind, key: bytes, value: bytes | None, time: int, later: int) -> None:
    """Change a store of any kind."""
    session = Windowed(key, time, time + later)
    calls: dict[StoreKind, Callable[[], Any]] = {
        StoreKind.KEY_VALUE: lambda: store.put(key, value),
        StoreKind.TIMESTAMPED_KEY_VALUE: lambda: store.put(key, value, time),
        StoreKind.VERSIONED: lambda: store.put(key, value, time),
        StoreKind.WINDOW: lambda: store.put(key, value, time),
        StoreKind.TIMESTAMPED_WINDOW: lambda: store.put(key, value, time + later, time),
        StoreKind.SESSION: lambda: store.put(session, value),
        StoreKind.TIMESTAMPED_SESSION: lambda: store.put(session, value, time + later),
    }
    calls[kind]()


def shape_of(
    specs: Iterable[StoreSpec], partitions: int, *, subtopology: int = 0, record_key_serde: str = "bytes"
) -> Shape:
    """Return the shape of a query with one sub-topology."""
    stores = [
        StoreShape(
            subtopology, one.name, one.kind, one.key_serde.name, one.value_serde.name, one.layout, record_key_serde
        )
        for one in specs
    ]
    return Shape(partitions, tuple(stores))


class Task:
    """The stores of one task, in memory, from a manifest on if there is one; each commit is a delta."""

    def __init__(
        self, storage: Storage, specs: Sequence[StoreSpec], task_id: str, manifest: Manifest | None = None
    ) -> None:
        self._storage = storage
        self._specs = specs
        self._transactions = {spec.name: Transaction(restored(storage, manifest, spec)) for spec in specs}
        self.stores: dict[str, Any] = {spec.name: spec.open(self._transactions[spec.name]) for spec in specs}
        self.manifest = manifest or Manifest.empty("app", task_id, "old")

    def commit(self) -> None:
        tables: list[Any] = []
        for spec in self._specs:
            self.stores[spec.name].flush()
            transaction = self._transactions[spec.name]
            tables += tables_of_changes(spec.name, spec.format_version, transaction.changes)
            transaction.commit()
        number, before = self.manifest.sequence + 1, self.manifest
        file = write_file(self._storage, before.directory, FileKind.DELTA, number, new_commit_id(), tables)
        self.manifest = before.with_delta(file)

    def rows(self, name: str) -> dict[bytes, bytes]:
        """Return what the backend of a store has, but metadata."""
        return dict(self._transactions[name].scan(DATA, BEYOND))


def run(
    storage: Storage, specs: Sequence[StoreSpec], partitions: int, batches: Iterable[Iterable[Change]]
) -> list[Task]:
    """Return tasks that have had these changes, each of which went to the partition of its key."""
    tasks = [Task(storage, specs, f"0_{partition}") for partition in range(partitions)]
    kinds = {spec.name: spec.kind for spec in specs}
    for batch in batches:
        for name, key, value, time, later in batch:
            put(tasks[partition_of(key, partitions)].stores[name], kinds[name], key, value, time, later)
        for task in tasks:
            task.commit()
    return tasks


def manifests_of(tasks: Iterable[Task]) -> Tasks:
    return {(0, partition): task.manifest for partition, task in enumerate(tasks)}


def carry(
    storage: Storage,
    before: Shape,
    after: Shape,
    manifests: Tasks,
    layouts: Mapping[str, LayoutCarriage] | None = None,
    origins: Mapping[str, Origin] | None = None,
) -> dict[tuple[int, int], Manifest]:
    """Carry all units; every store continues its namesake unless ``origins`` says otherwise."""
    known = {store.name: Origin(store.subtopology, store.name) for store in before.stores}
    carried: dict[tuple[int, int], Manifest] = {}
    for unit in range(units(before.partitions, after.partitions)):
        carried |= carry_unit(
            storage,
            unit,
            before,
            after,
            known if origins is None else origins,
            manifests,
            application_id="app",
            fingerprint="new",
            layouts=layouts or {},
        )
    return carried


def restored(storage: Storage, manifest: Manifest | None, spec: StoreSpec) -> MemoryBackend:
    """Return a backend with the rows of a store at a manifest."""
    backend = MemoryBackend()
    if manifest is not None:
        restore(backend, storage, Manifest.from_json(manifest.to_json()), spec.name, spec.format_version)
    return backend


def rows_of(backend: MemoryBackend) -> dict[bytes, bytes]:
    """Return all rows but metadata."""
    return dict(backend.scan(DATA, BEYOND))


def opened(storage: Storage, manifest: Manifest | None, spec: StoreSpec) -> Any:
    """Return the store at a manifest; its rows are sound."""
    store = spec.open(Transaction(restored(storage, manifest, spec)))
    store.check()
    return store

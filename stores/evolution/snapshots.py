"""The files with which tasks begin: a commit over what there is, or the first snapshots of several new tasks.

Rule of this module: it writes rows where it is told, store by store, in key order. It holds a bounded number of bytes
for all tasks together. A file is begun when its task gets its first row.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.files import NewFile, writing_file
from millpond.stores.durability.parquet.rows import ROWS_PER_TABLE, tables_of_columns
from millpond.stores.durability.storage.durable_file import FileKind, new_commit_id
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.old_rows import Columns
from millpond.stores.specs.formats import FormatVersion

FIRST: Final = 1
"""The sequence of a task's first commit."""

_BYTES_HELD: Final = 1 << 26


def write_commit(storage: Storage, base: Manifest, tables: Iterable[pa.Table]) -> Manifest:
    """Return a manifest with one more commit: a delta of these rows, or a snapshot if there is nothing before it.

    Args:
        storage: the place of the file.
        base: the manifest.
        tables: the rows, store by store, each store's in key order.

    Raises:
        DurabilityError: the storage failed.
    """
    kind = FileKind.DELTA if base.files else FileKind.SNAPSHOT
    with writing_file(storage, base.directory, kind, base.sequence + 1, new_commit_id()) as new:
        for table in tables:
            new.add(table)
    return base.with_delta(new.written()) if base.files else base.with_snapshot(new.written(), ())


class _Snapshot:
    """A task's file, and the rows that have not been written to it."""

    def __init__(self, storage: Storage, task: Manifest, stack: ExitStack) -> None:
        self.task = task
        self._storage = storage
        self._stack = stack
        self._commit = new_commit_id()
        self._file: NewFile | None = None
        self._held: list[Columns] = []
        self.rows = 0
        self.bytes = 0

    def hold(self, keys: Any, values: Any) -> None:
        self._held.append((keys, values))
        self.rows += len(keys)
        self.bytes += keys.nbytes + values.nbytes

    def write(self, store: str, version: FormatVersion) -> None:
        """Write the rows that are held."""
        if not self.rows:
            return
        if self._file is None:
            context = writing_file(self._storage, self.task.directory, FileKind.SNAPSHOT, FIRST, self._commit)
            self._file = self._stack.enter_context(context)
        keys, values = (pa.concat_arrays(column) for column in zip(*self._held, strict=True))
        for table in tables_of_columns(store, version, keys, values):
            self._file.add(table)
        self._held, self.rows, self.bytes = [], 0, 0

    def manifest(self) -> Manifest | None:
        return None if self._file is None else self.task.with_snapshot(self._file.written(), ())


class Snapshots:
    """The first snapshots of tasks; use it as a context manager, which deletes the files after an error.

    Args:
        storage: the place of the files.
        tasks: the empty manifest of each task, by the number of its partition.
    """

    def __init__(self, storage: Storage, tasks: Mapping[int, Manifest]) -> None:
        self._stack = ExitStack()
        self._snapshots = {number: _Snapshot(storage, task, self._stack) for number, task in tasks.items()}
        self._store = ""
        self._version = FormatVersion.PLAIN

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def begin_store(self, store: str, version: FormatVersion) -> None:
        """Begin the rows of ``store``, with a timestamp before each value if ``version`` has one."""
        self._store, self._version = store, version

    def add(self, partitions: Sequence[int], keys: Any, values: Any) -> None:
        """Give the same rows to several partitions."""
        for partition in partitions:
            snapshot = self._snapshots[partition]
            snapshot.hold(keys, values)
            if snapshot.rows >= ROWS_PER_TABLE:
                snapshot.write(self._store, self._version)
        while sum(snapshot.bytes for snapshot in self._snapshots.values()) > _BYTES_HELD:
            max(self._snapshots.values(), key=lambda snapshot: snapshot.bytes).write(self._store, self._version)

    def end_store(self) -> None:
        """Write the rows that are held."""
        for snapshot in self._snapshots.values():
            snapshot.write(self._store, self._version)

    def manifests(self) -> dict[int, Manifest]:
        """Return the manifests of the tasks that got rows, by partition, once the context has ended."""
        found = {number: snapshot.manifest() for number, snapshot in self._snapshots.items()}
        return {number: manifest for number, manifest in found.items() if manifest is not None}

"""The rows of a store in an old partition, from its durable files.

Rule of this module: it only reads, part by part, and may do so several times. Rows are as durable files have them:
keys, and values with the timestamp before them if the kind has one; each version has a row by its time.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import parts
from millpond.stores.durability.copies.restore import columns_of_file, rows_of_files
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.parquet.sorted_runs import Rows, merged_runs
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.keys import COMMIT_ROW, DATA, METADATA
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind

pc: Any = _compute

Columns: TypeAlias = tuple[Any, Any]
"""The keys of rows, in ascending order, and their values, as Arrow arrays of bytes."""

_ROWS_TOGETHER: Final = 1 << 15
_BYTES_TOGETHER: Final = 1 << 24


class OldRows:
    """One store in one old partition.

    Args:
        storage: the place of the files.
        manifest: the version.
        name: the store's name in these files.
        kind: the kind that reads them.
    """

    def __init__(self, storage: Storage, manifest: Manifest, name: str, kind: StoreKind) -> None:
        self.name = name
        self.kind = kind
        self._storage = storage
        self._manifest = manifest

    @property
    def format_version(self) -> FormatVersion:
        """The format of the values: the kind's, but a version lies like any value of a plain store."""
        return FormatVersion.TIMESTAMPED if self._stamped else FormatVersion.PLAIN

    @property
    def _stamped(self) -> bool:
        return self.kind.format_version is FormatVersion.TIMESTAMPED

    @property
    def holds_any(self) -> bool:
        """True if there is a row."""
        return self._head[1]

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata, by name."""
        return self._head[0]

    @cached_property
    def _head(self) -> tuple[dict[str, bytes], bool]:
        """The metadata, and whether there is any row."""
        found: dict[str, bytes] = {}
        for keys, values in self._all():
            rows = keys.filter(pc.less(keys, DATA))
            found |= {
                key[len(METADATA) :].decode(): value
                for key, value in zip(rows.to_pylist(), values.slice(0, len(rows)).to_pylist(), strict=True)
                if key != COMMIT_ROW
            }
            if len(rows) < len(keys):
                return found, True
        return found, bool(found)

    def get_metadata(self, name: str) -> bytes | None:
        """Return the metadata under that name."""
        return self.metadata.get(name)

    def metadata_names(self, prefix: str) -> list[str]:
        """Return the names of the metadata that begin with ``prefix``."""
        return [name for name in self.metadata if name.startswith(prefix)]

    def columns(self) -> Iterator[Columns]:
        """Yield all rows but metadata, in key order."""
        for keys, values in self._all():
            number = len(keys) - (pc.sum(pc.less(keys, DATA)).as_py() or 0)
            if number:
                yield keys[-number:], values[-number:]

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the same as objects."""
        rows: Any = as_rows(self.columns())
        return chain.from_iterable(zip(*some, strict=True) for some in rows)

    def _all(self) -> Iterator[Columns]:
        version = self.format_version
        if len(self._manifest.files) != 1:
            runs = rows_of_files(self._storage, self._manifest, self.name, version)
            yield from as_columns(merged_runs(runs, deletions=False))
            return
        (file,) = self._manifest.files
        for keys, values in columns_of_file(self._storage, self._manifest, file, self.name, version):
            if values.null_count:
                keys, values = keys.filter(values.is_valid()), values.drop_null()
            if len(keys):
                yield keys, values


def merged(sources: Iterable[Iterator[Columns]]) -> Iterator[Columns]:
    """Return the rows of several partitions, which have none in common, in key order."""
    first, *others = sources
    if not others:
        return first
    return as_columns(merged_runs(list(map(as_rows, (first, *others))), deletions=False))


def as_rows(columns: Iterable[Columns]) -> Iterator[Rows]:
    """Yield columns as lists, part by part."""
    return chain.from_iterable(parts(keys, values) for keys, values in columns)


def as_columns(rows: Iterable[Rows]) -> Iterator[Columns]:
    """Yield lists as columns, several parts together."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    size = 0
    for some_keys, some_values in rows:
        keys += some_keys
        values += some_values
        size += sum(map(len, filter(None, some_values)))
        if len(keys) >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield pa.array(keys, pa.binary()), pa.array(values, pa.binary())
            keys, values, size = [], [], 0
    if keys:
        yield pa.array(keys, pa.binary()), pa.array(values, pa.binary())

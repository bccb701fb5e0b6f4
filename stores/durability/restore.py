"""Bringing a backend to the version of a manifest, from the durable files.

Rule of this module: it decides nothing. Whether to replay or to restore is up to ``millpond.stores.durability.local``.
Both end at the same content; they differ in what they start from.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from millpond.stores.backend import Backend, load
from millpond.stores.durability.files import read_tables
from millpond.stores.durability.manifest import DurableFile, Manifest
from millpond.stores.durability.position import encode_position
from millpond.stores.durability.prefetch import prefetched
from millpond.stores.durability.rows import local_columns, parts
from millpond.stores.durability.sorted_runs import Rows, merged_runs
from millpond.stores.durability.storage import Storage
from millpond.stores.formats import FormatVersion
from millpond.stores.keys import COMMIT_ROW

_WORTH_A_THREAD = 1 << 20


def replay(
    backend: Backend,
    storage: Storage,
    manifest: Manifest,
    deltas: Iterable[DurableFile],
    store: str,
    version: FormatVersion,
) -> None:
    """Write each delta's rows of ``store`` over what ``backend`` holds, each with its position in one atomic write."""
    for delta in deltas:
        changes: dict[bytes, bytes | None] = {}
        for keys, values in _rows(storage, manifest, delta, store, version):
            changes.update(zip(keys, values, strict=True))
        backend.write(changes | {COMMIT_ROW: encode_position(delta.commit)})


def restore(backend: Backend, storage: Storage, manifest: Manifest, store: str, version: FormatVersion) -> None:
    """Fill an empty backend with the rows of ``store``. The position comes last: until then nobody trusts the rest."""
    if manifest.files:
        load(backend, entries(storage, manifest, store, version))
        backend.write({COMMIT_ROW: encode_position(manifest.commit)})


def entries(storage: Storage, manifest: Manifest, store: str, version: FormatVersion) -> Iterator[tuple[bytes, bytes]]:
    """The rows of ``store`` at ``manifest`` in the local format, in key order, metadata rows included, as a stream."""
    runs = [_rows(storage, manifest, file, store, version) for file in manifest.files]
    return chain.from_iterable(merged_runs(runs, deletions=False))  # type: ignore[arg-type]  # no value is None


def _rows(
    storage: Storage, manifest: Manifest, file: DurableFile, store: str, version: FormatVersion
) -> Iterator[Rows]:
    columns = (local_columns(table, version) for table in read_tables(storage, manifest, file, store))
    for keys, values in prefetched(columns) if file.size > _WORTH_A_THREAD else columns:
        yield from parts(keys, values)

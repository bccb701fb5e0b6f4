"""Bringing a backend to the version of a manifest, from the durable files.

Rule of this module: it decides nothing. Whether to replay or to restore is up to ``millpond.stores.durability.local``.
Both end at the same content; they differ in what they start from.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, TypeAlias

from millpond.stores.backend import Backend, load
from millpond.stores.durability.files import read_tables
from millpond.stores.durability.manifest import DurableFile, Manifest
from millpond.stores.durability.position import encode_position
from millpond.stores.durability.rows import local_rows
from millpond.stores.durability.storage import Storage
from millpond.stores.formats import FormatVersion
from millpond.stores.keys import COMMIT_ROW

Chunk: TypeAlias = Iterable[tuple[bytes, bytes]]

MERGED_ROWS: Final = 2_000_000
"""How many rows of deltas are merged in memory before they are loaded; beyond that they are replayed one by one."""


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
        for table in read_tables(storage, manifest, delta, store):
            changes.update(zip(*local_rows(table, version), strict=True))
        backend.write(changes | {COMMIT_ROW: encode_position(delta.commit)})


def restore(backend: Backend, storage: Storage, manifest: Manifest, store: str, version: FormatVersion) -> None:
    """Fill an empty backend with the rows of ``store``. The position comes last: until then nobody trusts the rest."""
    if manifest.snapshot is None:
        return
    if sum(delta.rows for delta in manifest.deltas) <= MERGED_ROWS:
        load(backend, entries(storage, manifest, store, version))
        backend.write({COMMIT_ROW: encode_position(manifest.commit)})
        return
    load(backend, chain.from_iterable(_snapshot_chunks(storage, manifest, store, version)))
    replay(backend, storage, manifest, manifest.deltas, store, version)


def entries(storage: Storage, manifest: Manifest, store: str, version: FormatVersion) -> Iterator[tuple[bytes, bytes]]:
    """The rows of ``store`` at ``manifest`` in the local format, in key order, metadata rows included.

    Holds the rows of all deltas and a part of the snapshot in memory.
    """
    overlay: dict[bytes, bytes | None] = {}
    for delta in manifest.deltas:
        for table in read_tables(storage, manifest, delta, store):
            overlay.update(zip(*local_rows(table, version), strict=True))
    snapshot = _snapshot_chunks(storage, manifest, store, version)
    return chain.from_iterable(_overlaid(snapshot, overlay) if overlay else snapshot)


def _snapshot_chunks(storage: Storage, manifest: Manifest, store: str, version: FormatVersion) -> Iterator[Chunk]:
    if manifest.snapshot is None:
        return
    for table in read_tables(storage, manifest, manifest.snapshot, store):
        keys, values = local_rows(table, version)
        yield zip(keys, values, strict=True)  # type: ignore[arg-type]  # a snapshot holds no deletions


def _overlaid(chunks: Iterable[Chunk], overlay: dict[bytes, bytes | None]) -> Iterator[Chunk]:
    """The chunks with ``overlay`` over them, in key order. Chunks that nothing falls into pass as they are."""
    changed = sorted(overlay)
    done = 0
    for chunk in chunks:
        merged: dict[bytes, bytes | None] = dict(chunk)
        size, last_key = len(merged), next(reversed(merged))
        stop = bisect_right(changed, last_key, done)
        keys = changed[done:stop]
        values = list(map(overlay.__getitem__, keys))
        merged.update(zip(keys, values, strict=True))
        done = stop
        if len(merged) > size:
            merged = {key: merged[key] for key in sorted(merged)}
        yield _present(merged) if None in values else merged.items()  # type: ignore[misc]  # no value is None
    yield _present({key: overlay[key] for key in changed[done:]})


def _present(content: dict[bytes, bytes | None]) -> Chunk:
    return [(key, value) for key, value in content.items() if value is not None]

"""``erase``: keys that are gone from the state of a query, from what it has left out, and from local copies.

Rule of this module: what is told to be gone was looked for. After the state is written anew and the old files are
deleted, all bytes under the state directory, the checkpoint and the local directories are searched for the keys. Of
what was left out, a row goes if its key is one that is erased, as bytes, as text, or as the JSON of a verb's columns,
or if a header or a value is just that; what only tells of a key stays, and is found by the search.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.edit.edit_report import EditReport
from millpond.adapters.edit.erased_keys import ErasedKeys
from millpond.adapters.edit.stopped_query import place_of
from millpond.adapters.edit.traces import Trace, traces
from millpond.adapters.inspect.packed_columns import of_feed
from millpond.adapters.inspect.state_inspector import InspectedQuery, StateInspector
from millpond.errors import ArgumentConflictError, ConcurrentJobError, MissingArgumentError, StateConflictError
from millpond.stores.cleaning.copies import CopiesCleaning
from millpond.stores.cleaning.durable import LEFT_OUT
from millpond.stores.cleaning.leftover import Age, GarbageKind
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.storage.clock import host_ms
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.evolution.editing import Edit, edit_with, keep_edits
from millpond.stores.evolution.erasing import lineages_left, without_keys
from millpond.stores.evolution.history import History
from millpond.stores.evolution.record import ERASE, EditNote
from millpond.stores.evolution.shape import StoreShape

_WHOLE: Final = ("key", "key_bytes", "value", "value_bytes")


@dataclass(frozen=True)
class ErasureReport:
    """The report of an erasure: what was erased, and where the keys are still found.

    Attributes:
        edits: what has become of the state of each query; nothing if no key was found anywhere, and none was touched.
        rows: how many rows are gone, by the store, and of what was left out by its directory.
        files: how many durable files were deleted.
        copies: how many local copies were deleted.
        traces: where the bytes of a key are still found, or were not looked for; empty if nowhere.
        searched: whether all keys are long enough to be looked for.
    """

    edits: tuple[EditReport, ...]
    rows: Mapping[str, int]
    files: int
    copies: int
    traces: tuple[Trace, ...]
    searched: bool = True

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        for edit in self.edits:
            yield from edit.lines()
        for what, number in sorted(self.rows.items()):
            yield f"{what}: {number} rows erased"
        if self.edits:
            yield f"{self.files} durable files and {self.copies} local copies deleted"
        else:
            yield "nothing was found to erase, and all is as it was"
        for trace in self.traces:
            yield f"still found: {trace}"
        if not self.searched:
            yield "not searched for: what has less than four bytes, which any file has"
        elif not self.traces:
            yield "searched: no file of the state directory, the checkpoint and the local directories has their bytes"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
        return {
            "edits": [edit.to_dict() for edit in self.edits],
            "rows": dict(self.rows),
            "files": self.files,
            "copies": self.copies,
            "traces": [trace._asdict() for trace in self.traces],
            "searched": self.searched,
        }


def erase(
    inspector: StateInspector, keys: Sequence[Any], *, by: str, why: str = "", local_dirs: Sequence[Path] = ()
) -> ErasureReport:
    """Erase keys from all stores of all verbs of a query that does not run.

    Their rows go from the state, with all history, what waits and what is remembered of them; from durable files, of
    which none stays that was written before; from dead letters and late rows; and from the local copies of this
    machine. Copies elsewhere are replaced when the query is started. It cannot be undone, and the query cannot go back
    to an earlier micro-batch. Where it is interrupted, do it again. Where nothing of the keys is found, all stays as it
    is.

    Args:
        inspector: finds the state.
        keys: as the stores' serdes take them; of verbs, the values of the key's columns in order or by name, or of some
            columns by name, which stands for all keys that have them. A key goes from every store that it can be of.
        by: who erases.
        why: the reason, for the record.
        local_dirs: the job's ``local_dir`` on this machine.

    Raises:
        ConfigurationError: ``by`` is empty, there is no state, or a key can be one of no store.
        StateConflictError: the query has committed a micro-batch meanwhile.
        BackendInUseError: another process has a local copy open.
        DurabilityError: the storage failed.
    """
    if not by:
        raise MissingArgumentError("an erasure needs the name of its author; give by=..., as in by='ann'")
    # Only now, because it brings all processors with it.
    from millpond.processors.verbs.rekeying.carriages import CARRIAGES

    batch = inspector.checkpoint.chosen(None)
    queries = inspector.queries(batch)
    views = inspector.stores_of(queries, batch)
    erased = ErasedKeys.of(views, keys)
    if any(needle in text.encode() for text in (by, why) for needle in erased.needles):
        raise ArgumentConflictError(
            "the record of an erasure stays, and by or why has a key that is erased; leave it out"
        )
    edits, rows = list[Edit](), Counter[str]()
    places = [place_of(inspector, query, batch) for query in queries]
    for query, (committed, standing) in zip(queries, places, strict=True):
        history, bases, counts = query.history, dict[str, Manifest](), Counter[str]()
        mine = [one for one in views if (one.application_id, one.sink) == (history.application_id, history.sink)]
        among = erased.of_query(mine).among
        for task_id, manifest in query.manifests.items():
            stores = _stores_of(query, task_id)
            # A group goes with its rows, which else would leave what they have not joined.
            chosen = _none if of_feed(stores) else among
            bases[task_id], gone = without_keys(inspector.storage, manifest, stores, chosen, CARRIAGES)
            counts += gone
        counts = +counts
        note = EditNote(by, host_ms(), why, {f"{ERASE} {store}": number for store, number in counts.items()} or _NONE)
        edits.append(edit_with(history, committed, standing, bases, note))
        rows += counts
    kept = [base for edit in edits for base in edit.record.bases.values()]
    if not rows and _is_nowhere(inspector, queries, local_dirs, erased):
        for base in kept:
            inspector.storage.delete_directory(base.directory)
        return ErasureReport((), {}, 0, 0, (), searched=not erased.too_short)
    keep_edits(edits)
    try:
        for committed, _ in places:
            committed.check_stands()
    except StateConflictError as error:
        raise ConcurrentJobError(
            "the query has gone on while its keys were erased, with rows that still have them, and no file was "
            "deleted; stop it, and erase again"
        ) from error
    histories = [History.of(inspector.storage, one.history.application_id, one.history.sink) for one in queries]
    lineages = lineages_left(inspector.storage, histories, kept)
    files = sum(len(inspector.storage.list(lineage)) for lineage in lineages)
    for lineage in lineages:
        inspector.storage.delete_directory(lineage)
    rows += _erase_left_out(inspector.storage, _owners(queries), erased)
    applications = {lineage.partition("/")[0] for lineage in lineages} | {one.application_id for one in histories}
    copies, staying = _delete_copies(inspector, local_dirs, applications)
    found = traces([inspector.storage, inspector.checkpoint.storage], local_dirs, erased.needles)
    return ErasureReport(
        tuple(map(EditReport.of, edits)), dict(rows), files, copies, (*staying, *found), searched=not erased.too_short
    )


_NONE: Mapping[str, int] = {f"{ERASE} nothing": 0}
"""The rows in the note of an erasure that found no row of a key, and deleted older files all the same."""


def _is_nowhere(
    inspector: StateInspector, queries: Sequence[InspectedQuery], local_dirs: Sequence[Path], erased: ErasedKeys
) -> bool:
    """Return whether no trace of keys that the state does not have is left; parts of keys cannot be searched for.

    After an erasure the answer is always no: it may have been interrupted, and is to go on where it ended.
    """
    if erased.columns or any(one.record.edit is not None and one.record.edit.erases for one in queries):
        return False
    if any(True for _ in _files_with(inspector.storage, _owners(queries), erased)):
        return False
    return next(traces([inspector.storage, inspector.checkpoint.storage], local_dirs, erased.clues), None) is None


def _none(keys: Any) -> Any:
    """Return that none of an array of records' keys is erased."""
    return pa.array([False] * len(keys), pa.bool_())


def _stores_of(query: InspectedQuery, task_id: str) -> list[StoreShape]:
    number = int(task_id.partition("_")[0])
    return [store for store in query.record.shape.stores if store.subtopology == number]


def _owners(queries: Sequence[InspectedQuery]) -> list[str]:
    """Return the applications that may have left rows out: those of the state, and of verbs the whole job's."""
    mine = [(one.history.application_id, one.history.sink) for one in queries]
    return sorted({one for id_, sink in mine for one in (id_, id_.removesuffix(f".{sink}"))})


def _delete_copies(
    inspector: StateInspector, local_dirs: Sequence[Path], applications: Collection[str]
) -> tuple[int, list[Trace]]:
    """Delete the local copies of applications; how many there were, and those that stay."""
    number, staying = 0, []
    for local_dir in local_dirs:
        for found in CopiesCleaning(local_dir, inspector.storage.place, {}, Age(host_ms(), 0)).leftovers():
            parts = Path(found.where).relative_to(local_dir).parts
            if parts[1:2] and parts[1] not in applications:
                continue
            if found.delete is not None:
                found.delete()
                number += found.what is GarbageKind.COPY
            elif found.what is GarbageKind.COPY:
                staying.append(Trace(found.where, 0, f"a local copy that was not deleted: {found.why}"))
    return number, staying


def _erase_left_out(storage: Storage, applications: Sequence[str], erased: ErasedKeys) -> Counter[str]:
    """Write the files anew that have rows of erased keys; how many rows are gone, by the directory.

    Raises:
        DurabilityError: the storage failed.
    """
    gone: Counter[str] = Counter()
    for directory, path, rows, kept in _files_with(storage, applications, erased):
        left = rows.filter(pa.array(kept))
        if left.num_rows:
            content = pa.BufferOutputStream()
            pq.write_table(left, content)
            storage.put(path, content.getvalue().to_pybytes())
        else:
            storage.delete(path)
        gone[directory] += rows.num_rows - left.num_rows
    return gone


def _files_with(
    storage: Storage, applications: Sequence[str], erased: ErasedKeys
) -> Iterator[tuple[str, str, pa.Table, list[bool]]]:
    """Yield the directory and path of each file that has rows of erased keys, its rows, and which of them stay."""
    for application_id in applications:
        for kind in sorted(LEFT_OUT):
            for name in storage.directories(f"{application_id}/{kind}"):
                directory = f"{application_id}/{kind}/{name}"
                for file in storage.list(directory):
                    if file.path.endswith(".parquet"):
                        rows = pq.read_table(pa.BufferReader(storage.read(file.path)))
                        kept = [not _is_of(row, erased) for row in rows.to_pylist()]
                        if not all(kept):
                            yield directory, file.path, rows, kept


def _is_of(row: dict[str, Any], erased: ErasedKeys) -> bool:
    headers = [one.get("value") for one in row.get("headers") or ()]
    values = {_bytes(one) for one in (*map(row.get, _WHOLE), *headers)}
    # Of a key of some columns, no value alone is the key.
    texts = () if erased.columns else map(_bytes, erased.texts)
    return not values.isdisjoint((*erased.data, *texts)) or _has_columns(row.get("key"), erased)


def _has_columns(text: str | None, erased: ErasedKeys) -> bool:
    """Return whether a key is the JSON of columns that all have an erased key's values, or have the given values."""
    try:
        key = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if not isinstance(key, dict) or not key:
        return False
    if any(all(str(key.get(name)) == str(value) for name, value in given.items()) for given in erased.columns):
        return True
    return not erased.columns and {str(value) for value in key.values()} <= erased.texts


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

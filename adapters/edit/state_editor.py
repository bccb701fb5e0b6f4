"""``StateEditor``: puts and deletes rows of the state of a query that does not run.

Rule of this module: it decides which tasks' rows become others. Rows are put and deleted by the stores' own classes,
over what is durable, so that all that a store keeps beside them stays true (``edited_store``). That an edit counts, and
how it is undone, is up to ``millpond.stores.evolution.editing``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from millpond.adapters.edit.edit_report import EditReport
from millpond.adapters.edit.edited_store import EditedStore, packed
from millpond.adapters.edit.key_timer import KeyTimer, holds_timers
from millpond.adapters.edit.stopped_query import place_of
from millpond.adapters.inspect.columns import KeyColumn
from millpond.adapters.inspect.packed_columns import PackedPlaces, of_feed
from millpond.adapters.inspect.state_inspector import StateInspector, named_store
from millpond.adapters.inspect.store_form import (
    WINDOW_START,
    given_as,
    holds_entries,
)
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import EditRefusedError, MissingArgumentError, StoreKindError
from millpond.stores.backend.contract import Changes
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.durability.manifests.manifest import Manifest
from millpond.stores.durability.manifests.schema_log import Beside, parted
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.durability.storage.clock import host_ms
from millpond.stores.encoding.partitions import partition_of
from millpond.stores.encoding.times import Instant, TimeUnit
from millpond.stores.evolution.editing import Edit, edit_of, keep_edits, undoing_of
from millpond.stores.evolution.record import UNDO, EditNote
from millpond.stores.evolution.record_keys import RecordKeys
from millpond.stores.specs.store_spec import KeyForm, StoreSpec

_NO_SPECS: Final[Mapping[str, StoreSpec]] = MappingProxyType({})
_WORKERS: Final = 4


class _Place(NamedTuple):
    """A store in a task."""

    query: int
    task_id: str
    store: str


class StateEditor:
    """Edits the state of a query that does not run, as it is after the last micro-batch. Use it as a context.

    Nothing counts until ``commit``. The rows change, and nothing else: no result comes out because of it. The next
    start of the query goes on with the edited state, and until it has, ``undo`` takes the edit back. An editor is for
    one ``commit`` or ``undo``.

    Args:
        inspector: finds the state.
        by: who edits.
        why: the reason, for the record. Name no key in it that may have to be erased one day.
    """

    def __init__(self, inspector: StateInspector, by: str, why: str) -> None:
        if not by:
            raise MissingArgumentError("an edit needs the name of its author; give by=..., as in by='ann'")
        self._inspector = inspector
        self._by = by
        self._why = why
        self._batch = inspector.checkpoint.chosen(None)
        self._queries = inspector.queries(self._batch)
        self._views = inspector.stores_of(self._queries, self._batch)
        self._opened = ExitStack()
        self._stores: dict[_Place, EditedStore] = {}
        self._before: dict[_Place, Changes] = {}
        self._done: dict[int, Counter[str]] = {}
        self._changed: set[_Place] = set()
        self._ended = ""

    @classmethod
    def at(
        cls,
        checkpoint: str,
        state_dir: str,
        *,
        by: str,
        why: str = "",
        workers: int = _WORKERS,
        specs: Mapping[str, StoreSpec] = _NO_SPECS,
    ) -> Self:
        """Return an editor of the state of the query with a checkpoint.

        Args:
            checkpoint: the query's ``checkpointLocation``, a path or URI.
            state_dir: the job's ``state_dir``, a path or URI.
            by: who edits.
            why: the reason, for the record.
            workers: how many partitions of Spark's state are read at the same time.
            specs: as ``StateInspector.at`` takes them.

        Raises:
            ConfigurationError: there is no checkpoint, no state, or ``by`` is empty.
            MillpondError: it cannot be read, as ``StateInspector.stores`` says.
        """
        return cls(StateInspector.at(checkpoint, state_dir, workers=workers, specs=specs), by, why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget what was not committed."""
        self._end("closed")

    def put(
        self,
        store: str,
        rows: pa.Table | Iterable[Mapping[str, Any]],
        *,
        ahead: bool = False,
        sink: str | None = None,
        application_id: str | None = None,
    ) -> int:
        """Put rows that have the columns which reading the store gives, all or none of them; how many.

        A row replaces what the store has for its key, of window and session stores for its key and window, of versioned
        stores the version of its ``valid_from``, from which on it is valid until the next one. A ``value`` that is null
        deletes. ``timestamp`` may be left out where a row replaces another, whose timestamp stays. A ``valid_to`` ends
        a version where no other begins before; the ``window_end`` of windows is passed over.

        Args:
            store: the store's name.
            rows: the rows.
            ahead: whether rows may be later than the time that the store has reached in their task, or that of a store
                which has reached none yet. The store's time is theirs then: windows, history and times to live end by
                it, and rows before it may come too late.
            sink, application_id: where they are needed to tell the store from others of its name.

        Raises:
            ConfigurationError: there is no such store, a row does not fit it or is ahead of its time, it holds more
                than such rows, or the edits have ended.
            SerdeError: a key or a value cannot be stored.
        """
        self._check_open()
        view = self.view(store, sink=sink, application_id=application_id)
        self._check_rows_are_all(view)
        found = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
        with self._all_or_nothing():
            for row in found:
                self._put(view, row, ahead=ahead)
        return len(found)

    def delete(
        self,
        store: str,
        key: Any,
        *,
        window_start: Any = None,
        sink: str | None = None,
        application_id: str | None = None,
    ) -> int:
        """Delete what a store has for a key, of versioned stores with all its history; how many entries there were.

        Args:
            store: the store's name.
            key: as the store's serde takes it; of a verb, the values of its key's columns, in order or by name.
            window_start: the only window or session to delete, by its start; None for all.
            sink, application_id: where they are needed to tell the store from others of its name.

        Raises:
            ConfigurationError: there is no such store, it has no windows, it holds more than such rows, or the edits
                have ended.
            SerdeError: the key cannot be one of the store's.
        """
        self._check_open()
        view = self.view(store, sink=sink, application_id=application_id)
        self._check_rows_are_all(view)
        windowed = view.form.kind.key_form is not KeyForm.PLAIN
        if window_start is not None and not windowed:
            raise StoreKindError(
                f"store {store!r} is of kind {view.kind} and has no windows; leave window_start out to delete the key"
            )
        data = view.form.key.to_bytes(key)
        start = None if window_start is None else view.form.time(window_start, WINDOW_START)
        with self._all_or_nothing():
            counts = [self._delete(view, task, data, start) for task in self._tasks(view, data)]
        return max(counts) if view.shape.is_global else sum(counts)

    def set_timer(
        self,
        store: str,
        key: Any,
        time: Instant | None,
        *,
        name: str = "",
        wall_clock: bool = False,
        sink: str | None = None,
        application_id: str | None = None,
    ) -> datetime | None:
        """Set, move or delete a timer of a key of ``apply``; return its time until now, None if it was not set.

        It fires in the first micro-batch that reaches its time, and in the next one of its task if that has passed.

        Args:
            store: the name of the store of timers, which ends with ``-timers``.
            key: the values of the key's columns, in order or by name.
            time: when it is to fire, as a datetime or in milliseconds since 1970; None deletes it.
            name: as the rule sets it.
            wall_clock: whether it is a timer by the clock of the machine, which has names of its own, and not one by
                event time.
            sink, application_id: where they are needed to tell the store from others of its name.

        Raises:
            ConfigurationError: there is no such store, it holds no timers, the key or the time is none, or the edits
                have ended.
        """
        self._check_open()
        view = self.view(store, sink=sink, application_id=application_id)
        if not holds_timers(view.shape.layout):
            timers = sorted(one.name for one in self._views if holds_timers(one.shape.layout))
            if not timers:
                raise StoreKindError(
                    f"store {store!r} holds no timers, and nor does any other: only an apply has some, and this query "
                    "runs none"
                )
            raise StoreKindError(
                f"store {store!r} holds no timers; give the store of timers of an apply, which is named after it: "
                f"one of {timers}"
            )
        timer = KeyTimer(self.key_column(view).to_bytes(key), name, wall_clock=wall_clock)
        task_id = f"{view.shape.subtopology}_{partition_of(timer.key, view.partitions)}"
        micros = None if time is None else view.form.time(time, "time")
        before = timer.move(self._to_change(view, task_id).store, micros)
        self._note(view, "set-timer", 1)
        return before

    def key_column(self, view: StoreView) -> KeyColumn:
        """Return the column of a store's keys; for timers, the key column of the rows that ``apply`` reads."""
        if not holds_timers(view.shape.layout):
            return view.form.key
        column = PackedPlaces.of(self._inspector.storage, view.application_id).key_column(view.name)
        return column or view.form.key

    def commit(self) -> list[EditReport]:
        """Let the edits count; what was done to each verb or sink, and nothing for those that were not changed.

        All are written and checked before the first of them counts. Those of several verbs or sinks count one after the
        other, each as a whole; where the storage fails in between, the error tells which do.

        Raises:
            ConfigurationError: the edits have ended.
            StateConflictError: the query has committed a micro-batch meanwhile, or another edit has changed the state.
            DurabilityError: the storage failed.
        """
        self._check_open()
        try:
            at = host_ms()
            edits = [self._edit_of(number, done, at) for number, done in sorted(self._done.items())]
            return _kept([edit for edit in edits if edit is not None])
        finally:
            self._end("committed")

    def undo(self) -> list[EditReport]:
        """Take back the last edit, of all verbs or sinks that it was of, if no micro-batch has followed; what was done.

        Those that were erased from last, or whose edit is undone already, stay as they are if there are others.

        Raises:
            ConfigurationError: there are edits that are not committed, or they have ended.
            StateConflictError: there is none.
            DurabilityError: the storage failed.
        """
        self._check_open()
        if self._done:
            raise EditRefusedError(
                "there are edits that are not committed, and undo takes back one that is; commit them first, or close "
                "this editor and undo with a new one"
            )
        edited = [one for one in self._queries if one.record.edit is not None and not one.left]
        since = [query for query in edited if query.record.batch == self._batch]
        times = {
            number: note.at
            for number, one in enumerate(since)
            if (note := one.record.edit) is not None and note.can_be_undone
        }
        last = [since[number] for number, at in times.items() if at == max(times.values())]
        edits = []
        for query in last or since or edited or self._queries:
            told = {} if query.record.edit is None else query.record.edit.rows
            note = EditNote(self._by, host_ms(), self._why, {f"{UNDO} {what}": number for what, number in told.items()})
            place = place_of(self._inspector, query, self._batch)
            edits.append(undoing_of(query.history, *place, note))
        try:
            return _kept(edits)
        finally:
            self._end("undone")

    def view(self, store: str, *, sink: str | None = None, application_id: str | None = None) -> StoreView:
        """Return a store as it is after the last micro-batch, without what is edited now.

        Raises:
            ConfigurationError: there is no such store, or more than one.
        """
        return named_store(self._views, store, sink=sink, application_id=application_id)

    def _end(self, how: str) -> None:
        """Take no more edits, and forget those that there were."""
        self._ended = self._ended or how
        self._stores.clear()
        self._changed.clear()
        self._done.clear()
        self._opened.close()

    def _check_open(self) -> None:
        if self._ended:
            raise EditRefusedError(
                f"the edits of this editor were {self._ended}, and it knows the state from before; make a new one: "
                "StateEditor.at(...)"
            )

    def _edit_of(self, number: int, done: Mapping[str, int], at: int) -> Edit | None:
        """Write the changes to the state of one query, and return the edit; None if there are no changes.

        All of one commit have the same time, by which ``undo`` knows them.
        """
        query = self._queries[number]
        changes: dict[str, dict[str, Any]] = {}
        for place in sorted(self._changed):
            if place.query == number:
                changed = self._stores[place].changes()
                if changed:
                    version = query.record.shape.named(place.store)[0].kind.format_version
                    changes.setdefault(place.task_id, {})[place.store] = (version, changed)
        if not changes:
            return None
        note = EditNote(self._by, at, self._why, dict(done))
        return edit_of(query.history, *place_of(self._inspector, query, self._batch), changes, note)

    def _check_rows_are_all(self, view: StoreView) -> None:
        """Refuse stores that hold more than rows of their kind."""
        layout = view.shape.layout
        if holds_timers(layout):
            raise EditRefusedError(
                f"the rows of store {view.name!r} are timers of keys; set, move or delete one with set_timer, or "
                "millpond state set-timer"
            )
        if layout is not None and not holds_entries(layout):
            raise EditRefusedError(
                f"the rows of store {view.name!r} are not single entries, but {layout.name}: what waits for others in "
                "its operator; erase the key, or leave them"
            )
        stores = self._queries[self._number(view)].record.shape.stores
        if of_feed(stores):
            raise EditRefusedError(
                f"the rows of store {view.name!r} are those of a change feed, or results of the groups that they are "
                "in, which belong together; let a change of the row arrive"
            )
        if any(parted(other.name)[1] is Beside.ORDER for other in stores):
            raise EditRefusedError(
                f"the rows of store {view.name!r} have an order, which is kept beside them and which no column shows; "
                "let a row with a later order arrive, or erase the key"
            )

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Take back what is edited within, if it fails."""
        self._before = {}
        changed, done = set(self._changed), {number: Counter(one) for number, one in self._done.items()}
        try:
            yield
        except BaseException:
            for place, staged in self._before.items():
                self._stores[place] = self._stores[place].back_at(staged)
            self._changed, self._done = changed, done
            raise

    def _put(self, view: StoreView, row: Mapping[str, Any], *, ahead: bool) -> None:
        key, data = packed(view, row)
        for task_id in self._tasks(view, key):
            self._to_change(view, task_id).put(row, key, data, ahead=ahead)
        self._note(view, "put", 1)

    def _delete(self, view: StoreView, task_id: str, key: bytes, start: int | None) -> int:
        """Delete the entries of a key from a task; how many there were."""
        found = self._to_change(view, task_id).delete(key, start)
        self._note(view, "delete", found)
        return found

    def _to_change(self, view: StoreView, task_id: str) -> EditedStore:
        """Return the store of a task, to be changed; what was put into it before is there."""
        number = self._number(view)
        if self._queries[number].left:
            others = sorted({one.history.application_id for one in self._queries if not (one.left or one.held)})
            raise EditRefusedError(
                f"the query has been started anew and will go on without the state of {view.application_id!r}: "
                f"{', '.join(map(repr, others))} begins after its last micro-batch; edit that, "
                f"{given_as('application_id', others[0])}, or, if the query is to go on with what it was, let it run a "
                "micro-batch first"
            )
        place, store = _Place(number, task_id, view.name), self._store(view, task_id)
        if place not in self._before:
            self._before[place] = store.staged()
        self._changed.add(place)
        return store

    def _store(self, view: StoreView, task_id: str) -> EditedStore:
        """Return the store of a task, with what was put into it before."""
        place = _Place(self._number(view), task_id, view.name)
        if place not in self._stores:
            query = self._queries[place.query]
            manifest = query.manifests.get(task_id)
            if manifest is None:
                manifest = Manifest.empty(view.application_id, task_id, query.record.fingerprint)
            source = self._opened.enter_context(Fetched(self._inspector.storage, manifest))
            backend = DurableRows(source, manifest, view.name, view.form.kind.format_version)
            self._stores[place] = EditedStore.open(view, Transaction(backend))
        return self._stores[place]

    def _tasks(self, view: StoreView, key: bytes) -> list[str]:
        """Return the tasks that have the rows of a key: of a global table all, else that which its records go to.

        A processor of a topology may have put the key into another task's store: if that of its records has none of
        it, or may not be the only one, it is all that have some.
        """
        if view.shape.is_global:
            copies = [one for one in self._queries[self._number(view)].record.shape.stores if one.name == view.name]
            return [f"{one.subtopology}_{number}" for one in copies for number in range(view.partitions)]
        record_key = RecordKeys(view.shape, None, duplicates=False).of_key(key)
        own = f"{view.shape.subtopology}_{partition_of(record_key, view.partitions)}"
        if view.form.unit is TimeUnit.MICROSECOND:
            return [own]  # Nobody but a verb puts anything into its stores.
        return [part.task_id for part in view.parts if self._store(view, part.task_id).holds(key)] or [own]

    def _number(self, view: StoreView) -> int:
        """Return which of the queries has a store."""
        places = [(query.history.application_id, query.history.sink) for query in self._queries]
        return places.index((view.application_id, view.sink))

    def _note(self, view: StoreView, what: str, rows: int) -> None:
        if rows:
            self._done.setdefault(self._number(view), Counter())[f"{what} {view.name}"] += rows


def _kept(edits: list[Edit]) -> list[EditReport]:
    """Let edits count; what was done."""
    keep_edits(edits)
    return [EditReport.of(edit) for edit in edits]

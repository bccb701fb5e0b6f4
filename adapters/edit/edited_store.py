"""``EditedStore``: the store of a task, whose rows are put and deleted.

Rule of this module: it knows one store in one task. Which task a row belongs to, and when an edit counts, is up to
``millpond.adapters.edit.state_editor``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from millpond.adapters.edit.aggregated_windows import AggregatedWindows
from millpond.adapters.inspect.store_form import (
    KEY,
    TIMESTAMP,
    VALID_FROM,
    VALID_TO,
    VALUE,
    WINDOW_END,
    WINDOW_START,
    with_option,
)
from millpond.adapters.inspect.store_view import StoreView
from millpond.errors import EditRefusedError, InvalidRowError
from millpond.stores.backend.contract import Changes
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import latest_row
from millpond.stores.specs.store_spec import KeyForm
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED
from millpond.stores.typed.windows.segments import METADATA_NAME as INTERVAL
from millpond.stores.typed.windows.window import SEQUENCE_NAME
from millpond.stores.typed.windows.windowed import Windowed


@dataclass(frozen=True)
class EditedStore:
    """A store of a task that may be changed.

    Attributes:
        view: the store.
        store: the same in the task, with what was put into it.
        transaction: where it reads and writes.
    """

    view: StoreView
    store: Any
    transaction: Transaction

    @classmethod
    def open(cls, view: StoreView, transaction: Transaction) -> Self:
        """Return the store of a task, open to be edited.

        Args:
            view: the store.
            transaction: over what the task has durably.

        Raises:
            ConfigurationError: its rows have no place of their own.
        """
        store = view.form.open_to_edit(transaction)
        if view.form.kind.in_segments and store.get_metadata(SEQUENCE_NAME) is not None:
            raise EditRefusedError(
                f"store {view.name!r} keeps every value that was put for a key and window, such as rows of a join "
                "that wait for others, and none of them has a place of its own; erase the key, or leave them"
            )
        return cls(view, store, transaction)

    def changes(self) -> Changes:
        """Return all that was changed, with what the store keeps beside its rows."""
        self.store.flush()
        if self.transaction.changes and self.view.form.kind.in_segments and self.view.shape.layout is not None:
            AggregatedWindows(self.view, self.store, self.transaction).settle()
        return self.transaction.changes

    def staged(self) -> Changes:
        """Return all changes so far, as ``back_at`` takes them."""
        self.store.flush()
        return dict(self.transaction.changes.items())

    def back_at(self, staged: Changes) -> Self:
        """Return the store in which no more has been changed than that, in place of this one."""
        self.transaction.rollback()
        self.transaction.put_many(staged)
        return self.open(self.view, self.transaction)

    def put(self, row: Mapping[str, Any], key: bytes, data: bytes | None, *, ahead: bool) -> None:
        """Put a row, or delete it.

        Args:
            row: the row.
            key, data: its key and value, as ``packed`` gives them.
            ahead: whether it may be later than the time that the store has reached.

        Raises:
            ConfigurationError: the row does not fit what is there, or is ahead of its time.
        """
        if self.view.form.kind.versioned:
            self._put_version(row, key, data, ahead=ahead)
        elif self.view.form.kind.key_form is KeyForm.PLAIN:
            self._put_plain(row, key, data, ahead=ahead)
        else:
            self._put_windowed(row, key, data, ahead=ahead)

    def delete(self, key: bytes, start: int | None) -> int:
        """Delete the entries of a key, or only its window or session with a start; how many there were."""
        if self.view.form.kind.versioned:
            row = latest_row(key)
            latest = self.transaction.get(row)
            if latest is not None:
                self.store.rows.remove(row, latest)
            return int(latest is not None)
        if self.view.form.kind.key_form is KeyForm.PLAIN:
            return int(self.store.delete(key) is not None)
        entries = [one for one, _ in self.store.fetch_keys(key, key + b"\x00") if start in (None, one.start)]
        self._remove(entries)
        return len(entries)

    def holds(self, key: bytes) -> bool:
        """Return whether it has anything of a key, even if only its history."""
        if self.view.form.kind.versioned:
            return self.transaction.get(latest_row(key)) is not None
        if self.view.form.kind.key_form is KeyForm.PLAIN:
            return self.store.get(key) is not None
        return next(iter(self.store.fetch_keys(key, key + b"\x00")), None) is not None

    def _put_version(self, row: Mapping[str, Any], key: bytes, data: bytes | None, *, ahead: bool) -> None:
        """Put a version, and an end to it if the row has one and no other version begins before."""
        view, store = self.view, self.store
        start = view.form.time(row[VALID_FROM], VALID_FROM)
        until = None
        if row.get(VALID_TO) is not None and data is not None:
            until = view.form.time(row[VALID_TO], VALID_TO)
            if until <= start:
                raise EditRefusedError(f"the row {dict(row)!r} ends before it begins; give a later valid_to")
        self._check_time(row, start if until is None else until, ahead=ahead)
        end = store.put(key, data, start)
        if end == NOT_PUT:
            raise EditRefusedError(
                f"the row {dict(row)!r} is valid from before the history that store {view.name!r} keeps; give a later "
                f"{with_option(VALID_FROM)}"
            )
        if until is not None and (end == VALID_TO_UNDEFINED or until < end):
            store.put(key, None, until)

    def _put_plain(self, row: Mapping[str, Any], key: bytes, data: bytes | None, *, ahead: bool) -> None:
        view, store = self.view, self.store
        if data is None:
            store.delete(key)
        elif view.form.kind.stamped:
            timestamp = _timestamp(view, row, store.get(key))
            self._check_time(row, timestamp, ahead=ahead)
            store.put(key, data, timestamp)
        else:
            store.put(key, data)

    def _put_windowed(self, row: Mapping[str, Any], key: bytes, data: bytes | None, *, ahead: bool) -> None:
        view, store = self.view, self.store
        form = view.form
        session = form.kind.key_form is KeyForm.SESSION
        start = form.time(row[WINDOW_START], WINDOW_START)
        entry = Windowed(key, start, form.time(row[WINDOW_END], WINDOW_END) if session else start)
        before = store.fetch_session(key, start, entry.end) if session else store.fetch(key, start)
        stamp = (_timestamp(view, row, before),) if form.kind.stamped and data is not None else ()
        if data is not None and view.shape.layout is not None:
            windows = AggregatedWindows(view, store, self.transaction)
            windows.check_put(row, entry, next(iter(stamp), None), before)
        if before is None and data is not None and store.get_metadata(INTERVAL) is None and form.given is None:
            raise EditRefusedError(
                f"store {view.name!r} is empty in the task of {row[KEY]!r}, and its state does not tell how long its "
                "windows stay; give the topology: specs=topology.stores, which is --topology"
            )
        if data is not None:
            self._check_time(row, entry.end, ahead=ahead)
        if data is None:
            self._remove([] if before is None else [entry])
        elif session:
            store.put(entry, data, *stamp)
        else:
            store.put(key, data, *stamp, start)
        there = store.fetch_session(key, start, entry.end) if session else store.fetch(key, start)
        if data is not None and there is None:
            raise EditRefusedError(
                f"the window of the row {dict(row)!r} has expired in store {view.name!r}, which keeps it no more"
            )

    def _remove(self, entries: Iterable[Windowed[bytes]]) -> None:
        stamp = (0,) if self.view.form.kind.stamped else ()
        for one in entries:
            if self.view.form.kind.key_form is KeyForm.SESSION:
                self.store.remove(one)
            else:
                self.store.put(one.key, None, *stamp, one.start)

    def _check_time(self, row: Mapping[str, Any], time: int, *, ahead: bool) -> None:
        """Refuse a time later than those that the store has reached in its task, which it would move, unless it may.

        Raises:
            ConfigurationError: it is later.
        """
        reached = list(self._reached())
        known = [one for one in reached if one is not None]
        if ahead or (len(known) == len(reached) and all(time <= one for one in known)):
            return
        view, shown = self.view, self.view.form.unit.shown
        told = f"is {shown(min(known))}" if len(known) == len(reached) else "has not begun in the task of its key"
        raise EditRefusedError(
            f"the row {dict(row)!r} is ahead of the time of store {view.name!r}, which {told}: it would become "
            f"{shown(time)}, by which windows, history and a time to live end, and rows before it may come too late; "
            "give an earlier time, or put it with ahead=True, which is --ahead, if that is what you want"
        )

    def _reached(self) -> Iterator[int | None]:
        kind, store = self.view.form.kind, self.store
        if kind.in_segments or kind.versioned:
            yield store.observed_stream_time
        if (kind.versioned or (kind.stamped and not kind.in_segments)) and store.expiry is not None:
            yield store.expiry.observed


def packed(view: StoreView, row: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a row as a store keeps them; without a value where it deletes.

    Raises:
        ConfigurationError: the row does not fit the store.
        SerdeError: its key or value cannot be stored.
    """
    form = view.form
    missing = [name for name in _needed(view) if row.get(name) is None]
    unknown = sorted(set(row) - set(form.schema.names))
    if missing or unknown or VALUE not in row:
        raise InvalidRowError(f"the row {dict(row)!r} does not fit store {view.name!r}; give {_told(view)}")
    return form.key.to_bytes(row[KEY]), None if row[VALUE] is None else form.value.pack(row[VALUE])


def _timestamp(view: StoreView, row: Mapping[str, Any], before: Any) -> int:
    """Return the timestamp of a row: its own, or that of the row that it replaces."""
    if row.get(TIMESTAMP) is not None:
        return view.form.time(row[TIMESTAMP], TIMESTAMP)
    if before is None:
        raise EditRefusedError(
            f"store {view.name!r} has nothing for {row[KEY]!r} whose timestamp could stay; give {_told(view)}"
        )
    return int(before.timestamp)


def _needed(view: StoreView) -> Iterator[str]:
    """Yield the columns that a row must have, beside the value."""
    yield KEY
    form = view.form.kind.key_form
    if form is not KeyForm.PLAIN:
        yield WINDOW_START
    if form is KeyForm.SESSION:
        yield WINDOW_END
    if view.versioned:
        yield VALID_FROM


def _told(view: StoreView) -> str:
    columns = [
        f"{with_option(field.name)} {field.type}"
        for field in view.schema
        if field.name in (*_needed(view), VALUE, TIMESTAMP)
    ]
    return f"the columns {', '.join(columns)}"

"""The base of all typed stores: a name, a transaction, serdes, metadata, checking and closing.

Rule of this module: it does not know the meaning of a kind's rows. A store writes nothing to its backend by itself:
everything goes through the transaction and takes effect with its commit.

What the library keeps beside a store's rows, it keeps under a name of ``KEPT``, and what users put is refused under
one. A name that ends with ``-`` stands for all that begin with it: several processors on a store keep one each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import NoneType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from millpond.errors import (
    ConfigurationError,
    CorruptStoreError,
    InvalidKeyError,
    InvalidNameError,
    SerdeError,
    UnreadableRowError,
)
from millpond.stores.backend.engine import Closed
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import COMMIT_ROW, DATA, LAYOUT_ROW, METADATA, TERMS_ROW
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.layouts import Layout
from millpond.stores.typed.scans import OpenScans
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.terms import KeptTerms, Terms

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

ROWS: Final = {
    row[len(METADATA) :].decode(): what
    for row, what in {
        COMMIT_ROW: "the local copy's position",
        LAYOUT_ROW: "the layout of the rows",
        TERMS_ROW: "the terms of the rows",
    }.items()
}
"""The names of rows that are no metadata to users."""

KEPT: Final = {
    "observed_stream_time": "the stream time that the store has seen",
    "expired_until": "the time up to which entries have expired",
    "expiry_stream_time": "the time by which entries expire",
    "expiry_timed_until": "the row up to which entries have timers",
    "segment_interval": "the length of a segment",
    "sequence": "the number of the last put",
    "totals": "the number and size of what is held back",
    "stream-time": "the stream time of an operator",
    "stream-time-": "the stream time of an operator",
    "waiting": "how much waits",
    "waiting-": "how much waits",
    "watermark": "the time up to which records have been processed",
    "completion-": "the time up to which windows have come out",
    "changed-": "windows that have not come out as they are",
    "reset": "the moment to which the store was set back",
    "task-time-": "the stream time of the task",
    "punctuation-": "when a schedule fires next",
}
"""The metadata of the library, by its name."""


def reading(store: str, what: str, serde: Serde[T]) -> Callable[[bytes], T]:
    """Return the serde's ``deserialize`` for stored bytes, with errors that blame the store, and no record."""
    deserialize = serde.deserialize

    def decode(data: bytes) -> T:
        try:
            return deserialize(data)
        except SerdeError as error:
            raise _unreadable(store, what, error) from error

    return decode


def reading_many(store: str, what: str, serde: Serde[T]) -> Callable[[Sequence[bytes]], list[T]]:
    """Return the same for its ``deserialize_many``."""
    deserialize_many = serde.deserialize_many

    def decode_many(data: Sequence[bytes]) -> list[T]:
        try:
            return deserialize_many(data)
        except SerdeError as error:
            raise _unreadable(store, what, error) from error

    return decode_many


def _unreadable(store: str, what: str, error: SerdeError) -> UnreadableRowError:
    return UnreadableRowError(f"store {store!r} holds a {what} that cannot be read: {error}")


def column_of(made: Sequence[T], sources: Sequence[object]) -> list[T | None]:
    """Return ``made`` with None put in wherever ``sources`` has None; the others match in their order."""
    if len(made) == len(sources):
        return [*made]
    rest = iter(made)
    return [None if source is None else next(rest) for source in sources]


def keeps(name: str) -> str | None:
    """Return words for what the library keeps under a name; None if it keeps nothing there.

    >>> keeps("waiting-2"), keeps("reset"), keeps("reset-2")
    ('how much waits', 'the moment to which the store was set back', None)
    """
    of_many = (what for one, what in KEPT.items() if one.endswith("-") and name.startswith(one))
    return ROWS.get(name) or KEPT.get(name) or next(of_many, None)


class Store(ABC, Generic[K, V]):
    """A typed view on the rows that one backend holds for one store.

    A store remembers parts of its metadata, such as the stream time it has observed. Once the transaction was rolled
    back, or its backend changed by other means, open the store anew, which is cheap.

    Args:
        name: the name of the store for errors.
        transaction: its transaction, which no other store shares.
        key_serde: the serde of its keys.
        value_serde: the serde of its values.
    """

    _kept_terms = KeptTerms({}, {})

    def __init__(self, name: str, transaction: Transaction, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self._name = name
        self._transaction = transaction
        self._key_serde = key_serde
        self._value_serde: Serde[Any] = value_serde
        self._encode_key = key_serde.serialize
        self._encode_keys = key_serde.serialize_many
        self._decode_key = reading(name, "key", key_serde)
        self._encode_value: Callable[[V], bytes] = value_serde.serialize
        self._decode_value = reading(name, "value", value_serde)
        self._encode_values: Callable[[Sequence[V]], list[bytes]] = value_serde.serialize_many
        self._decode_values = reading_many(name, "value", value_serde)
        self._scans = OpenScans(f"store {name!r}")
        self._read = transaction.get
        self._read_many = transaction.get_many
        self._write = transaction.put
        self._write_many = transaction.put_many
        self._scan_rows = transaction.scan
        self._last_row = transaction.last

    @property
    def name(self) -> str:
        return self._name

    @property
    def key_serde(self) -> Serde[K]:
        return self._key_serde

    @property
    def value_serde(self) -> Serde[Any]:
        """The serde of the values, without what the kind adds to them (timestamps, ...)."""
        return self._value_serde

    def get_metadata(self, name: str) -> bytes | None:
        """Return the bytes that ``put_metadata`` stored under ``name``, or None."""
        return self._read(_metadata_row(name))

    def check(self) -> None:
        """Read every row, and raise ``CorruptStoreError`` at the first that breaks the layout."""
        for row, error in self.damaged_rows():
            raise CorruptStoreError(f"store {self._name!r} has a damaged row {row!r}: {error}") from error

    def damaged_rows(self) -> Iterator[tuple[bytes, Exception]]:
        """Yield each row that breaks the layout or cannot be read, with the exception of its reader."""
        for row, data in self._scan_rows(DATA, None):
            try:
                self._check_row(row, data)
            except Exception as error:  # a user's serde may raise anything
                yield row, error

    @abstractmethod
    def _check_row(self, row: bytes, data: bytes) -> None:
        """Raise ``ValueError``, or the error of reading the row, if it breaks the layout."""

    def know_terms(self, kept: KeptTerms) -> None:
        """Take over the parameters on which the rows depended when the store was committed."""
        self._kept_terms = kept

    def noted(self, name: str) -> int | None:
        """Return the value noted in the terms that the store was committed with; None if it is unknown."""
        return self._kept_terms.noted.get(name)

    def close(self) -> None:
        """Let go of the transaction, which stays open, and report scans that were left open.

        Closing twice is no error; any other use afterwards is a ``StoreClosedError``.
        """
        closed: Any = Closed(f"store {self._name!r} is closed; open it again from its spec")
        for attribute, value in vars(self).items():
            if not isinstance(value, str | int | Serde | OpenScans):
                setattr(self, attribute, closed)
        self._keys_bytes = closed  # type: ignore[method-assign]
        self._scans.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _null_key(self) -> InvalidKeyError:
        return InvalidKeyError(f"store {self._name!r} cannot hold the key None; drop such records, or give them a key")

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise self._null_key()
        return self._encode_key(key)

    def _keys_bytes(self, keys: Iterable[K]) -> list[bytes]:
        keys = keys if isinstance(keys, list) else list(keys)
        if NoneType in set(map(type, keys)):
            raise self._null_key()
        return self._encode_keys(keys)


class WritableStore(Store[K, V]):
    """The base of the writing halves of all kinds."""

    _layout: Layout | None = None
    _terms: Terms | None = None

    def put_metadata(self, name: str, data: bytes) -> None:
        """Keep ``data`` beside the entries: it commits with them and is part of the changelog, as they are.

        Raises:
            ConfigurationError: the library keeps metadata under that name itself.
        """
        if (kept := keeps(name)) is not None:
            raise _taken(name, kept)
        self._write(_metadata_row(name), data)

    def keep_metadata(self, name: str, data: bytes) -> None:
        """Keep metadata of the library, under a name of its own (``KEPT``), as ``put_metadata`` does."""
        assert keeps(name) is not None, f"users may put {name!r}, too: KEPT does not list it"
        self._write(_metadata_row(name), data)

    def metadata_names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix`` under which metadata is stored."""
        rows = self._scan_rows(METADATA + prefix.encode(), DATA)
        names = [row[len(METADATA) :].decode() for row, _ in rows]
        return [name for name in names if name.startswith(prefix)]

    def keep_layout(self, layout: Layout | None) -> None:
        """Write the layout of the rows with the first change; None for the kind's alone."""
        self._layout = layout

    def keep_terms(self, terms: Terms | None, kept: KeptTerms) -> None:
        """Write the parameters on which the rows depend with the first change; None for none.

        Args:
            terms: the parameters.
            kept: the terms that the store was committed with.
        """
        self._terms = terms
        self.know_terms(kept)

    def note(self, name: str, value: int) -> None:
        """Note another value in the terms for the next run, if they note anything of that name."""
        if self._terms is not None and dict(self._terms.noted).get(name, value) != value:
            noted = {one: value if one == name else known for one, known in self._terms.noted}
            self._terms = replace(self._terms, noted=tuple(noted.items()))

    def set_back(self, limit: int) -> SetBack:
        """Set the times that the store keeps back to ``limit``, where they are later, and remove what lies beyond.

        Entries of a time after ``limit`` are removed, since they would be newer than stream time. If the time is only
        the timestamp of a value, it becomes ``limit``. Entries that were forgotten meanwhile do not come back.

        >>> from millpond.stores import STRING, VersionedKeyValueStore
        >>> from millpond.stores.backend.memory import MemoryBackend
        >>> prices = VersionedKeyValueStore("prices", Transaction(MemoryBackend()), STRING, STRING, history_retention=9)
        >>> prices.put("tea", "3.10", 5), prices.put("tea", "9.99", 4102444800000)
        (-1, -1)
        >>> prices.set_back(7)
        SetBack(limit=7, moved={'observed_stream_time': 4102444800000}, retimed=0, removed=1)
        >>> prices.get_value("tea")
        '3.10'
        """
        done = SetBack(limit)
        self._set_back(done)
        if self._layout is not None and self._layout.set_back is not None:
            self._layout.set_back(self, done)
        return done

    def _set_back(self, done: SetBack) -> None:
        """Do the work of ``set_back`` for the times that the kind of the store knows."""

    def flush(self) -> None:
        """Write what the store has only in memory (observed stream time, ...) into the transaction, before its commit.

        An override calls this one last: without any change, layout and terms are not written either.
        """
        if self._transaction.changed_keys and self._layout is not None and self._read(LAYOUT_ROW) is None:
            self._write(LAYOUT_ROW, self._layout.to_bytes())
        if self._transaction.changed_keys and self._terms is not None:
            data = self._terms.to_bytes()
            if self._read(TERMS_ROW) != data:
                self._write(TERMS_ROW, data)


def _metadata_row(name: str) -> bytes:
    if name in ROWS:
        raise _taken(name, ROWS[name])
    return METADATA + name.encode()


def _taken(name: str, kept: str) -> ConfigurationError:
    return InvalidNameError(f"the metadata name {name!r} is taken by {kept}; choose another")

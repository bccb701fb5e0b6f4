"""``StoreSpec``: what a store is, apart from where it lives; it travels to the workers that open the store.

Rule of this module: a spec holds configuration only, checked when it is made, and knows each kind's class, so that
nobody else has to ask for the kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from millpond.errors import ConfigurationError
from millpond.stores.formats import FormatVersion, check_store_name
from millpond.stores.layouts import Layout, check_layout
from millpond.stores.serdes import Serde
from millpond.stores.transaction import Transaction
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.session import SessionStore
from millpond.stores.typed.store import Store
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from millpond.stores.typed.timestamped_session import TimestampedSessionStore
from millpond.stores.typed.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.versioned import VersionedKeyValueStore
from millpond.stores.typed.window import WindowStore


class StoreKind(Enum):
    """The kinds of stores; the value is the name that plans and files use."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped-key-value"
    VERSIONED = "versioned"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped-window"
    SESSION = "session"
    TIMESTAMPED_SESSION = "timestamped-session"

    @property
    def format_version(self) -> FormatVersion:
        """The format in which stores of this kind are written."""
        return FormatVersion.TIMESTAMPED if self in _TIMESTAMPED else FormatVersion.PLAIN


_TIMESTAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIMESTAMPED_SESSION})
_WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW})

_Opener: TypeAlias = "Callable[[StoreSpec, Transaction], Store[Any, Any]]"


@dataclass(frozen=True)
class StoreSpec:
    """A store's name, kind, serdes and limits.

    Durations are in milliseconds.

    Args:
        name: a plain file name that does not end in ``-v<number>``.
        kind: which of the kinds.
        key_serde: how keys become bytes.
        value_serde: how values become bytes.
        history_retention: versioned stores: how far back from the observed stream time the past can be read.
        grace: versioned stores: how much older than the observed stream time a put may be; ``history_retention`` where
            not given, and never more.
        retention: window and session stores: how long a window or session stays, counted back from the observed
            stream time.
        window_size: window stores: the length of a window.
        retain_duplicates: window stores: keep every put of a key and window, instead of the last.
        backend: the name or URL of the backend that keeps it; None for the one that the job runs on.
        layout: what lies in the rows beyond what the kind says; None for nothing.

    Raises:
        ConfigurationError: a value makes no sense, is missing, or does not belong to the kind.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    history_retention: int | None = None
    grace: int | None = None
    retention: int | None = None
    window_size: int | None = None
    retain_duplicates: bool = False
    backend: str | None = None
    layout: Layout | None = None

    def __post_init__(self) -> None:
        check_store_name(self.name)
        for what in ("key_serde", "value_serde"):
            if not isinstance(getattr(self, what), Serde):
                raise ConfigurationError(
                    f"{what} of store {self.name!r} is {getattr(self, what)!r}, not a serde; give one such as STRING, "
                    f"or millpond.stores.serdes.serde(name)"
                )
        needed, allowed = _LIMITS[self.kind]
        for what in ("history_retention", "grace", "retention", "window_size"):
            self._check_duration(what, getattr(self, what), what in needed, what in allowed)
        if self.retain_duplicates and self.kind not in _WINDOWS:
            raise ConfigurationError(f"store {self.name!r} of kind {self.kind.value} cannot retain duplicates")
        if self.grace is not None and self.history_retention is not None and self.grace > self.history_retention:
            raise ConfigurationError(
                f"store {self.name!r}: a grace of {self.grace} ms is longer than its history retention of "
                f"{self.history_retention} ms; puts would be accepted that nobody can read"
            )

    def _check_duration(self, what: str, value: object, needed: bool, allowed: bool) -> None:
        where = f"store {self.name!r} of kind {self.kind.value}"
        if value is None:
            if needed:
                raise ConfigurationError(f"{where} needs {what}; give it in milliseconds")
            return
        if not allowed:
            raise ConfigurationError(f"{where} has no {what}; leave it out, or choose a kind that has")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(
                f"{what} of {where} is {value!r}; give milliseconds as an int that is not negative"
            )

    @property
    def format_version(self) -> FormatVersion:
        """The format in which the store is written."""
        return self.kind.format_version

    @property
    def directory_name(self) -> str:
        """The name of its directory, with the suffix of its format version."""
        return self.format_version.directory_name(self.name)

    def open(self, transaction: Transaction) -> Store[Any, Any]:
        """The store over ``transaction``, whose backend holds the rows of this store and of no other.

        Raises:
            FormatError: the rows are of another layout than this spec's.
        """
        check_layout(self.name, self.layout, transaction.backend)
        store = _OPENERS[self.kind](self, transaction)
        store.keep_layout(self.layout)
        return store


_Limits: TypeAlias = tuple[frozenset[str], frozenset[str]]

_NO_LIMITS: _Limits = (frozenset(), frozenset())
_VERSIONED: _Limits = (frozenset({"history_retention"}), frozenset({"history_retention", "grace"}))
_WINDOWED: _Limits = (frozenset({"retention", "window_size"}), frozenset({"retention", "window_size"}))
_SESSION: _Limits = (frozenset({"retention"}), frozenset({"retention"}))

_LIMITS: dict[StoreKind, _Limits] = {
    StoreKind.KEY_VALUE: _NO_LIMITS,
    StoreKind.TIMESTAMPED_KEY_VALUE: _NO_LIMITS,
    StoreKind.VERSIONED: _VERSIONED,
    StoreKind.WINDOW: _WINDOWED,
    StoreKind.TIMESTAMPED_WINDOW: _WINDOWED,
    StoreKind.SESSION: _SESSION,
    StoreKind.TIMESTAMPED_SESSION: _SESSION,
}
"""Which limits a kind must have, and which it may have."""


def _open_plain(kind: type[KeyValueStore[Any, Any]] | type[TimestampedKeyValueStore[Any, Any]]) -> _Opener:
    def opener(spec: StoreSpec, transaction: Transaction) -> Store[Any, Any]:
        return kind(spec.name, transaction, spec.key_serde, spec.value_serde)

    return opener


def _open_versioned(spec: StoreSpec, transaction: Transaction) -> Store[Any, Any]:
    assert spec.history_retention is not None
    return VersionedKeyValueStore(
        spec.name,
        transaction,
        spec.key_serde,
        spec.value_serde,
        history_retention=spec.history_retention,
        grace=spec.grace,
    )


def _open_window(kind: type[WindowStore[Any, Any]] | type[TimestampedWindowStore[Any, Any]]) -> _Opener:
    def opener(spec: StoreSpec, transaction: Transaction) -> Store[Any, Any]:
        assert spec.retention is not None
        assert spec.window_size is not None
        return kind(
            spec.name,
            transaction,
            spec.key_serde,
            spec.value_serde,
            retention=spec.retention,
            window_size=spec.window_size,
            retain_duplicates=spec.retain_duplicates,
        )

    return opener


def _open_session(kind: type[SessionStore[Any, Any]] | type[TimestampedSessionStore[Any, Any]]) -> _Opener:
    def opener(spec: StoreSpec, transaction: Transaction) -> Store[Any, Any]:
        assert spec.retention is not None
        return kind(spec.name, transaction, spec.key_serde, spec.value_serde, retention=spec.retention)

    return opener


_OPENERS: dict[StoreKind, _Opener] = {
    StoreKind.KEY_VALUE: _open_plain(KeyValueStore),
    StoreKind.TIMESTAMPED_KEY_VALUE: _open_plain(TimestampedKeyValueStore),
    StoreKind.VERSIONED: _open_versioned,
    StoreKind.WINDOW: _open_window(WindowStore),
    StoreKind.TIMESTAMPED_WINDOW: _open_window(TimestampedWindowStore),
    StoreKind.SESSION: _open_session(SessionStore),
    StoreKind.TIMESTAMPED_SESSION: _open_session(TimestampedSessionStore),
}

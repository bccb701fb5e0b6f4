"""``StoreSpec``: the definition of a store, apart from its place; it travels to the workers that open the store.

Rule of this module: a spec holds configuration only, checked when it is made, and all differences of kinds are in one
table, ``_TRAITS``. No other code compares kinds: it asks a kind for a trait. A new kind takes

1. a class with its reading half in ``millpond/stores/typed/``,
2. a member of ``StoreKind`` and its row in ``_TRAITS`` (and a field of ``StoreSpec``, if it has a limit of its own),
3. an oracle in ``millpond/stores/testing/store_oracles.py`` and its calls in ``store_calls.py`` beside it, from which
   the tests of all kinds follow,
4. its layout in ``docs/formats.md``, its names in ``millpond/stores/__init__.py``, and the pattern that is measured for
it in ``millpond/bench/stores/``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self, TypeVar

from millpond.errors import (
    ArgumentConflictError,
    InvalidTimeError,
    MissingArgumentError,
    MissingSerdeError,
    StoreKindError,
)
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import Serde
from millpond.stores.specs.formats import FormatVersion, check_store_name
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.keyvalue import KeyValueStore, ReadOnlyKeyValueStore
from millpond.stores.typed.layouts import Layout, check_layout
from millpond.stores.typed.store import Store, WritableStore
from millpond.stores.typed.terms import KeptTerms, Term, Terms, kept_terms
from millpond.stores.typed.timestamped_keyvalue import ReadOnlyTimestampedKeyValueStore, TimestampedKeyValueStore
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.read_only_versioned import HISTORY, ReadOnlyVersionedKeyValueStore, check_grace
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.windows.calendar import Calendar
from millpond.stores.typed.windows.grids import EvenGrid, Grid
from millpond.stores.typed.windows.session import ReadOnlySessionStore, SessionStore
from millpond.stores.typed.windows.timestamped_session import ReadOnlyTimestampedSessionStore, TimestampedSessionStore
from millpond.stores.typed.windows.timestamped_window import ReadOnlyTimestampedWindowStore, TimestampedWindowStore
from millpond.stores.typed.windows.window import ReadOnlyWindowStore, WindowStore

AnyStore = TypeVar("AnyStore", bound=Store[Any, Any])


class KeyForm(Enum):
    """The form of the keys of a store's entries."""

    PLAIN = "plain"
    """The keys as they were put."""

    WINDOW = "window"
    """``Windowed``: a key in a window, whose end does not belong to it."""

    SESSION = "session"
    """``Windowed``: a key in a session, whose end belongs to it."""


@dataclass(frozen=True)
class StoreTraits:
    """The traits by which one kind of store differs from another.

    Args:
        family: the name that a kind shares with its timestamped twin; either one's stores take over the other's rows.
        store: its class.
        read_only: the class of its reading half.
        format_version: the format of its rows.
        key_form: the form of its entries' keys.
        stamped: whether its entries come with a timestamp: ``.value`` and ``.timestamp``.
        versioned: whether it keeps the versions of a key, by time.
        in_segments: whether its rows lie in segments of time instead of in the order of their keys.
        needed: the fields that a spec of this kind must have, and its classes take by these names.
        optional: the fields that it may have as well.
    """

    family: str
    store: type[WritableStore[Any, Any]]
    read_only: type[Store[Any, Any]]
    format_version: FormatVersion = FormatVersion.PLAIN
    key_form: KeyForm = KeyForm.PLAIN
    stamped: bool = False
    versioned: bool = False
    in_segments: bool = False
    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


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
    def traits(self) -> StoreTraits:
        """All traits of the kind."""
        return _TRAITS[self]

    @property
    def format_version(self) -> FormatVersion:
        """The format of the rows of stores of this kind, and of their directories without checksums."""
        return self.traits.format_version

    @property
    def family(self) -> str:
        """The name that it shares with its timestamped or plain twin, which can take over its stores' rows."""
        return self.traits.family

    @property
    def key_form(self) -> KeyForm:
        """The form of the keys of its stores' entries."""
        return self.traits.key_form

    @property
    def stamped(self) -> bool:
        """True if its stores' entries come with a timestamp."""
        return self.traits.stamped

    @property
    def versioned(self) -> bool:
        """True if its stores keep the versions of a key, by time."""
        return self.traits.versioned

    @property
    def in_segments(self) -> bool:
        """True if its stores' rows lie in segments of time instead of in the order of their keys."""
        return self.traits.in_segments


def _timestamped(
    plain: StoreTraits, store: type[WritableStore[Any, Any]], read_only: type[Store[Any, Any]]
) -> StoreTraits:
    """Return the traits of a kind's timestamped twin."""
    return replace(plain, store=store, read_only=read_only, format_version=FormatVersion.TIMESTAMPED, stamped=True)


_KEY_VALUE = StoreTraits("key-value", KeyValueStore, ReadOnlyKeyValueStore)
_VERSIONED = StoreTraits(
    "versioned",
    VersionedKeyValueStore,
    ReadOnlyVersionedKeyValueStore,
    format_version=FormatVersion.LATEST_APART,
    stamped=True,
    versioned=True,
    needed=("history_retention",),
    optional=("grace", "late_puts", "ttl", "expired"),
)
_WINDOW = StoreTraits(
    "window",
    WindowStore,
    ReadOnlyWindowStore,
    key_form=KeyForm.WINDOW,
    in_segments=True,
    needed=("retention", "window_size"),
    optional=("calendar", "retain_duplicates"),
)
_SESSION = StoreTraits(
    "session",
    SessionStore,
    ReadOnlySessionStore,
    key_form=KeyForm.SESSION,
    in_segments=True,
    needed=("retention",),
)

_TRAITS: Final[Mapping[StoreKind, StoreTraits]] = {
    StoreKind.KEY_VALUE: _KEY_VALUE,
    StoreKind.TIMESTAMPED_KEY_VALUE: replace(
        _timestamped(_KEY_VALUE, TimestampedKeyValueStore, ReadOnlyTimestampedKeyValueStore),
        optional=("ttl", "expired"),
    ),
    StoreKind.VERSIONED: _VERSIONED,
    StoreKind.WINDOW: _WINDOW,
    StoreKind.TIMESTAMPED_WINDOW: _timestamped(_WINDOW, TimestampedWindowStore, ReadOnlyTimestampedWindowStore),
    StoreKind.SESSION: _SESSION,
    StoreKind.TIMESTAMPED_SESSION: _timestamped(_SESSION, TimestampedSessionStore, ReadOnlyTimestampedSessionStore),
}


@dataclass(frozen=True)
class StoreSpec:
    """A store's name, kind, serdes and limits.

    Durations are in milliseconds.

    Args:
        name: a plain file name that does not end in ``-v<number>``.
        kind: its kind.
        key_serde: the serde of its keys.
        value_serde: the serde of its values.
        history_retention: versioned stores: the time, back from the observed stream time, for which the past can be
            read.
        grace: versioned stores: the time by which a put may be older than the observed stream time;
            ``history_retention`` if not given, and never more.
        late_puts: versioned stores: the treatment of puts that are older than that.
        retention: window and session stores: the time for which a window or session stays, counted back from the
            observed stream time.
        window_size: window stores: the length of a window; for a calendar, the greatest length.
        ttl: timestamped key-value stores and versioned stores: the time for which an entry lives after its timestamp,
            by the observed stream time; None for ever.
        expired: the treatment of entries that have expired, besides that no read finds them.
        retain_duplicates: window stores: keep every put of a key and window, instead of the last.
        backend: the name or URL of the backend that keeps it; None for the job's own.
        layout: the layout of the rows beyond the kind's; None for none.
        checksums: whether each row has a checksum, which every read verifies; None for the job's choice, or else none.
        terms: the parameters, of the operator that fills it, on which its rows depend; None to keep none.
        calendar: window stores: the calendar of their windows; None for windows of one length.

    Raises:
        ConfigurationError: a value makes no sense, is missing, or does not belong to the kind.
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    history_retention: int | None = None
    grace: int | None = None
    late_puts: LatePuts = LatePuts.REFUSED
    retention: int | None = None
    window_size: int | None = None
    ttl: int | None = None
    expired: Expired = Expired.SILENT
    retain_duplicates: bool = False
    backend: str | None = None
    layout: Layout | None = None
    checksums: bool | None = None
    terms: Terms | None = None
    calendar: Calendar | None = None

    def __post_init__(self) -> None:
        check_store_name(self.name)
        for what in ("key_serde", "value_serde"):
            if not isinstance(getattr(self, what), Serde):
                raise MissingSerdeError(
                    f"{what} of store {self.name!r} is {getattr(self, what)!r}, not a serde; give one such as STRING, "
                    f"or millpond.stores.encoding.serdes.serde(name)"
                )
        for what in ("history_retention", "grace", "retention", "window_size", "ttl"):
            self._check_duration(what, getattr(self, what))
        if self.calendar is not None and "calendar" not in self._options:
            raise StoreKindError(
                f"store {self.name!r} of kind {self.kind.value} has no calendar; leave it out, or choose the kind "
                f"{StoreKind.WINDOW.value}"
            )
        if self.retain_duplicates and "retain_duplicates" not in self._options:
            raise StoreKindError(f"store {self.name!r} of kind {self.kind.value} cannot retain duplicates")
        if self.late_puts is not LatePuts.REFUSED and "late_puts" not in self._options:
            raise StoreKindError(
                f"store {self.name!r} of kind {self.kind.value} has no late_puts; leave it out, or choose the kind "
                f"{StoreKind.VERSIONED.value}"
            )
        if self.ttl == 0:
            raise InvalidTimeError(f"ttl of store {self.name!r} is 0; give a length of time, or leave it out")
        if self.ttl is None and self.expired is not Expired.SILENT:
            raise ArgumentConflictError(
                f"store {self.name!r} says what becomes of expired entries, but none expires; give a ttl, or leave out "
                "expired"
            )
        if self.grace is not None and self.history_retention is not None:
            check_grace(self.name, self.grace, self.history_retention, self.late_puts)

    def _check_duration(self, what: str, value: object) -> None:
        where = f"store {self.name!r} of kind {self.kind.value}"
        if value is None:
            if what in self.kind.traits.needed:
                raise MissingArgumentError(f"{where} needs {what}; give it in milliseconds")
            return
        if what == "ttl" and what not in self._options:
            raise StoreKindError(
                f"{where} has no ttl; leave it out, or choose the kind {StoreKind.TIMESTAMPED_KEY_VALUE.value}, whose "
                "entries have times"
            )
        if what not in self._options:
            having = " or ".join(kind.value for kind in StoreKind if what in kind.traits.needed + kind.traits.optional)
            raise StoreKindError(f"{where} has no {what}; leave it out, or choose the kind {having}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidTimeError(f"{what} of {where} is {value!r}; give milliseconds as an int that is not negative")

    @property
    def format_version(self) -> FormatVersion:
        """The format of its directory: its kind's, with checksums or without."""
        return self.kind.format_version.with_checksums() if self.checksums else self.kind.format_version

    @property
    def versioned(self) -> bool:
        """True if the store keeps the versions of a key, by time."""
        return self.kind.versioned

    @property
    def directory_name(self) -> str:
        """The name of its directory, with the suffix of its format version."""
        return self.format_version.directory_name(self.name)

    @property
    def grid(self) -> Grid | None:
        """The grid of its windows; None if it is no window store."""
        if self.calendar is not None:
            return self.calendar
        return None if self.window_size is None else EvenGrid(self.window_size)

    def open(self, transaction: Transaction) -> WritableStore[Any, Any]:
        """Return the store over ``transaction``, whose backend holds the rows of this store and of no other.

        Raises:
            FormatError: the rows are of another layout than this spec's.
            StateConflictError: they were made with other parameters.
        """
        store, kept = self._opened(self.kind.traits.store, transaction)
        store.keep_layout(self.layout)
        store.keep_terms(self.terms, kept)
        return store

    def open_read_only(self, transaction: Transaction) -> Store[Any, Any]:
        """Return the reading half of the store over ``transaction``, without methods that would change an entry.

        Raises:
            FormatError: the rows are of another layout than this spec's.
            StateConflictError: they were made with other parameters.
        """
        store, kept = self._opened(self.kind.traits.read_only, transaction)
        if self.terms is not None:
            store.know_terms(kept)
        return store

    def with_terms(self) -> Self:
        """Return the same store with the parameters on which its rows depend as terms: its own, or its kind's.

        If forgotten history matters to later puts, the terms note its reach, too.
        """
        terms, history = self.terms, self.history_retention
        if terms is None and self.window_size is not None:
            duplicates = str(self.retain_duplicates)
            fixed: tuple[tuple[str, Term], ...] = (
                ("window_size", self.window_size),
                ("retain_duplicates", duplicates),
            )
            if self.calendar is not None:
                fixed = (*fixed, ("calendar", self.calendar.text))
            terms = Terms(fixed)
        if history is not None:
            terms = terms or Terms()
            terms = replace(terms, noted=(*terms.noted, (HISTORY, history)))
        return replace(self, terms=terms)

    @property
    def _options(self) -> tuple[str, ...]:
        """The fields of this spec that only some kinds have."""
        return self.kind.traits.needed + self.kind.traits.optional

    def _opened(self, kind: type[AnyStore], transaction: Transaction) -> tuple[AnyStore, KeptTerms]:
        check_layout(self.name, self.layout, transaction.backend)
        kept = kept_terms(self.name, self.terms, transaction.backend)
        options = {option: getattr(self, option) for option in self._options}
        return kind(self.name, transaction, self.key_serde, self.value_serde, **options), kept

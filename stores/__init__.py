"""The state: backends and their registry, transactions, typed stores, formats and durability.

The names that users of stores and authors of backends need are here. ``millpond.stores.durability`` and
``millpond.stores.testing`` have public names of their own, because they bring pyarrow, and pytest and hypothesis, with
them. The parts of adapters are in ``millpond.stores.backend.engine`` and ``millpond.stores.backend.options``.
"""

from millpond.stores.backend.contract import (
    Backend,
    BackendSupplier,
    Changes,
    Entries,
    SupportsMemoryBudget,
)
from millpond.stores.backend.registry import backend_names, open_backend, supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, Serde, serde
from millpond.stores.specs.formats import FormatVersion
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore, ReadOnlyKeyValueStore
from millpond.stores.typed.store import Store, WritableStore
from millpond.stores.typed.timestamped_keyvalue import (
    UNKNOWN_TIMESTAMP,
    ReadOnlyTimestampedKeyValueStore,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
)
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.read_only_versioned import ReadOnlyVersionedKeyValueStore, VersionedRecord
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore
from millpond.stores.typed.windows.calendar import Calendar, CalendarUnit
from millpond.stores.typed.windows.session import ReadOnlySessionStore, SessionStore
from millpond.stores.typed.windows.timestamped_session import ReadOnlyTimestampedSessionStore, TimestampedSessionStore
from millpond.stores.typed.windows.timestamped_window import ReadOnlyTimestampedWindowStore, TimestampedWindowStore
from millpond.stores.typed.windows.window import ReadOnlyWindowStore, WindowStore
from millpond.stores.typed.windows.windowed import Windowed

__all__ = [
    "BYTES",
    "Backend",
    "BackendSupplier",
    "Calendar",
    "CalendarUnit",
    "Changes",
    "Entries",
    "FLOAT64",
    "FormatVersion",
    "INT64",
    "JSON",
    "KeyValueStore",
    "LatePuts",
    "MSGPACK",
    "NOT_PUT",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyTimestampedKeyValueStore",
    "ReadOnlyTimestampedSessionStore",
    "ReadOnlyTimestampedWindowStore",
    "ReadOnlyVersionedKeyValueStore",
    "ReadOnlyWindowStore",
    "STRING",
    "Serde",
    "SessionStore",
    "Store",
    "StoreKind",
    "StoreSpec",
    "SupportsMemoryBudget",
    "TimestampedKeyValueStore",
    "TimestampedSessionStore",
    "TimestampedWindowStore",
    "Transaction",
    "UNKNOWN_TIMESTAMP",
    "VALID_TO_UNDEFINED",
    "ValueAndTimestamp",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WindowStore",
    "Windowed",
    "WritableStore",
    "backend_names",
    "open_backend",
    "serde",
    "supplier",
]

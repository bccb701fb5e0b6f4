"""The readers of stores: serdes, keys, the rows of each kind, metadata, packed rows and packed keys.

Rule of this module: a store is filled by its own writer, and the rows that come of it are the seeds.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final
from uuid import UUID

import msgpack
import pyarrow as pa

from millpond.errors import FormatError, StateConflictError
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.processors.runtime.change import Change, ChangeSerde
from millpond.processors.verbs.encoding.python_values import python_keys, python_rows
from millpond.stores.backend.long_keys import LongKeys
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import (
    COMMIT_ROW,
    LAYOUT_ROW,
    TERMS_ROW,
    last_time,
    pack_time,
    terminated,
    unpack_time,
    unterminated,
)
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout, check_layout
from millpond.stores.typed.terms import Terms, kept_terms
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp, ValueAndTimestampSerde
from millpond.stores.typed.windows.windowed import Windowed
from tests.fuzz.reader import Reader, attempt, framed, rows_of, transaction_over, unframed

EXTENSIONS: Final = [
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 1),
    date(2024, 2, 29),
    time(23, 59, 58, 999_999),
    timedelta(-1, 2, 3),
    Decimal("-12.50"),
    Decimal("1.2E+41"),
    UUID(int=7),
    msgpack.Timestamp(1, 2),
]
NESTED: Final = {"id": 7, "price": 1.5, "tags": ["a", None, True], "of": {"x": -1, "": 2**40}}


def serde_reader(serde: Serde[Any], *values: Any) -> Reader:
    """Return a reader by a serde: its values are not compared, but can be shown, and written again or refused."""

    def read(data: bytes) -> None:
        value = serde.deserialize(data)
        repr(value)
        serde.serialize(value)

    return Reader(read, tuple(map(serde.serialize, values)))


def serde_readers() -> dict[str, Reader]:
    """Return readers of every serde but pickle."""
    change = ChangeSerde(STRING)
    return {
        "bytes": serde_reader(BYTES, b"a"),
        "string": serde_reader(STRING, "aé"),
        "int64": serde_reader(INT64, -1),
        "float64": serde_reader(FLOAT64, 1.5),
        "json": serde_reader(JSON, NESTED),
        "msgpack": serde_reader(MSGPACK, NESTED, EXTENSIONS, {Decimal(1): 1}),
        "change": serde_reader(change, Change("a", "b"), Change(None, "b"), Change("a", None)),
        "time-windowed": serde_reader(TimeWindowedSerde(STRING, 10), Windowed("a", 20, 30)),
        "session-windowed": serde_reader(SessionWindowedSerde(STRING), Windowed("a", 20, 25)),
        "value-and-timestamp": serde_reader(ValueAndTimestampSerde(STRING), ValueAndTimestamp("a", 5)),
    }


def _read_times(data: bytes) -> None:
    attempt(lambda: unpack_time(data), lambda: unpack_time(data, 1), lambda: last_time(data))


class _Short(MemoryBackend):
    """An engine that takes keys of eight bytes."""

    max_key_size: ClassVar[int | None] = 8  # type: ignore[misc]


def _read_long_keys(data: bytes) -> None:
    engine = _Short()
    engine.write({key[:8]: value for key, value in unframed(data)})
    keys = LongKeys(engine)
    long = [key + b"d" for key, _ in engine.scan()]
    attempt(
        keys.scan,
        lambda: keys.scan(reverse=True),
        lambda: keys.get_many(long),
        lambda: keys.write({b"abcdefgh0": b"v"}),
    )


def _long_keys() -> bytes:
    engine = _Short()
    LongKeys(engine).write({b"abcdefgh1": b"one", b"abcdefgh2": b"two", b"short": b"three"})
    return framed(engine.scan())


LAYOUT: Final = Layout("some-layout", 1)
TERMS: Final = Terms((("size", 10), ("windows", "TimeWindows")), (("grace", 3),))


def _read_layout(data: bytes) -> None:
    backend = MemoryBackend()
    backend.write({LAYOUT_ROW: data, COMMIT_ROW: b"x"})
    with suppress(FormatError):  # a store that should have no layout has one
        check_layout("s", None, backend)
    check_layout("s", LAYOUT, backend)


def _read_terms(data: bytes) -> None:
    backend = MemoryBackend()
    backend.write({TERMS_ROW: data})
    with suppress(FormatError, StateConflictError):  # of a later release, or of other rows
        kept_terms("s", TERMS, backend)


def store_reader(spec: StoreSpec, fill: Callable[[Any], None], reads: Iterable[Callable[[Any], Any]]) -> Reader:
    """Return a store over rows of any content: it is opened, checked and read in every way, and written."""

    def read(data: bytes) -> None:
        transaction = transaction_over(data)
        store = spec.open(transaction)
        attempt(store.check, *[lambda read=read: read(store) for read in reads])
        attempt(lambda: fill(store), store.flush)
        transaction.rollback()

    transaction = Transaction(MemoryBackend())
    store = spec.open(transaction)
    fill(store)
    store.flush()
    return Reader(read, (rows_of(transaction),))


def _spec(kind: StoreKind, **options: Any) -> StoreSpec:
    return StoreSpec("s", kind, STRING, STRING, **options)


def _put_timestamped(store: Any) -> None:
    for key, timestamp in (("a", 1), ("b\0", 2)):
        store.put(key, "v", timestamp)


def _put_windows(store: Any) -> None:
    for start in (0, 10, 3000):
        store.put("a", "v", start)
    store.put("b\0", "w", 3010)


def _put_timestamped_windows(store: Any) -> None:
    for start in (0, 10, 3000):
        store.put("a", "v", start, start + 1)


def _put_sessions(store: Any) -> None:
    for start in (0, 100, 3000):
        store.put(Windowed("a", start, start + 5), "v")


def _put_timestamped_sessions(store: Any) -> None:
    for start in (0, 100, 3000):
        store.put(Windowed("a", start, start + 5), "v", start + 1)


def _put_versions(store: Any) -> None:
    for value, timestamp in (("one", 100), (None, 1200), ("three", 5000), ("late", 4000)):
        store.put("a", value, timestamp)
    store.put("b\0", "w", 5001)


KEYED: Final = (
    lambda store: store.get("a"),
    lambda store: store.get_many(["a", "b\0", "c"]),
    lambda store: store.scan(),
)
WINDOWS: Final = (
    lambda store: store.fetch("a", 3000),
    lambda store: store.fetch_many(["a", "b\0"], [3000, 3010]),
    lambda store: store.fetch_range("a"),
    lambda store: store.fetch_all(),
    lambda store: store.fetch_all(reverse=True),
)
SESSIONS: Final = (
    lambda store: store.fetch_session("a", 3000, 3005),
    lambda store: store.fetch("a"),
    lambda store: store.fetch_keys(),
    lambda store: store.find_sessions_ended(0, 5000, reverse=True),
)
VERSIONS: Final = (
    *KEYED,
    lambda store: store.get("a", 4500),
    lambda store: store.get_value("a", 4500),
    lambda store: store.get_many_as_of(["a", "a", "b\0"], [4500, 5000, 9000]),
    lambda store: store.history("a"),
    lambda store: store.history("a", 4000, 6000, reverse=True),
    lambda store: store.version_times("a", 0),
)


def kind_readers() -> dict[str, Reader]:
    """Return readers of stores of every kind."""
    windows = {"retention": 4000, "window_size": 10}
    return {
        "key-value store": store_reader(
            _spec(StoreKind.KEY_VALUE), lambda store: store.put_many(["a", "b\0"], ["v", "w"]), KEYED
        ),
        "timestamped key-value store": store_reader(
            _spec(StoreKind.TIMESTAMPED_KEY_VALUE), _put_timestamped, (*KEYED, lambda store: store.get_value("a"))
        ),
        "versioned store": store_reader(_spec(StoreKind.VERSIONED, history_retention=2000), _put_versions, VERSIONS),
        "window store": store_reader(_spec(StoreKind.WINDOW, **windows), _put_windows, WINDOWS),
        "window store with duplicates": store_reader(
            _spec(StoreKind.WINDOW, retain_duplicates=True, **windows), _put_windows, WINDOWS
        ),
        "timestamped window store": store_reader(
            _spec(StoreKind.TIMESTAMPED_WINDOW, **windows), _put_timestamped_windows, WINDOWS
        ),
        "session store": store_reader(_spec(StoreKind.SESSION, retention=4000), _put_sessions, SESSIONS),
        "timestamped session store": store_reader(
            _spec(StoreKind.TIMESTAMPED_SESSION, retention=4000), _put_timestamped_sessions, SESSIONS
        ),
    }


_FIELDS: Any = [
    pa.field("id", pa.int64(), nullable=False),
    ("flag", pa.bool_()),
    ("small", pa.int8()),
    ("name", pa.string()),
    ("raw", pa.binary()),
    ("real", pa.float64()),
    ("short", pa.decimal128(10, 2)),
    ("wide", pa.decimal128(38, 0)),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")),
    ("clock", pa.time64("us")),
    ("span", pa.duration("us")),
    ("items", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))),
    ("nothing", pa.null()),
]
COLUMNS: Final = pa.schema(_FIELDS)
"""Of every type that a key may have, too."""
ROW: Final[dict[str, Any]] = {
    "id": 7,
    "flag": True,
    "small": -1,
    "name": "Ada",
    "raw": b"a\0b",
    "real": -1.5,
    "short": Decimal("12.50"),
    "wide": Decimal(10) ** 20,
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, tzinfo=UTC),
    "local": datetime(2024, 2, 29),
    "clock": time(1, 2, 3),
    "span": timedelta(1),
    "items": [{"sku": "x", "n": 1}, None],
}
EVOLVED: Final = pa.schema([*COLUMNS, ("stock", pa.map_(pa.string(), pa.float64()))]).set(
    2, pa.field("small", pa.int32())
)
SCHEMAS: Final = Schemas.first(COLUMNS).evolved(EVOLVED, where="here")


def _values(data: bytes) -> list[bytes]:
    return [value for _, value in unframed(data)]


def _rows(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([ROW, {"id": 8}], COLUMNS if schema is COLUMNS else schema)


def _read_rows(data: bytes) -> None:
    table = RowCodec(SCHEMAS).unpack(_values(data))
    table.validate(full=True)
    python_rows(table)


def _read_keys(data: bytes) -> None:
    table = KeyCodec(COLUMNS).unpack(_values(data))
    table.validate(full=True)
    python_keys(table)


def _packed(rows: Iterable[bytes]) -> bytes:
    return framed((b"", row) for row in rows)


def row_readers() -> dict[str, Reader]:
    """Return readers of packed rows, with schemas of a history, and packed keys."""
    first, evolved = RowCodec(Schemas.first(COLUMNS)), RowCodec(SCHEMAS)
    packed = evolved.pack(pa.Table.from_pylist([ROW | {"stock": [("k", 1.5)]}], EVOLVED))
    return {
        "packed rows": Reader(_read_rows, (_packed(first.pack(_rows(COLUMNS))), _packed(packed))),
        "packed keys": Reader(_read_keys, (_packed(KeyCodec(COLUMNS).pack(_rows(COLUMNS))),)),
    }


def store_readers() -> dict[str, Reader]:
    """Return all of them."""
    return {
        **serde_readers(),
        **kind_readers(),
        **row_readers(),
        "terminated key": Reader(unterminated, (terminated(b"a\0b"),)),
        "times": Reader(_read_times, (pack_time(5) + pack_time(6),)),
        "long keys": Reader(_read_long_keys, (_long_keys(),)),
        "layout": Reader(_read_layout, (LAYOUT.to_bytes(),)),
        "terms": Reader(_read_terms, (TERMS.to_bytes(),)),
    }

"""Stores that are refused, each followed by what the message advises, which is then made."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import ConfigurationError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.durability.storage.s3 import S3Options, S3Place
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.physical import normalized_schema
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import STRING, StructSerde, serde
from millpond.stores.encoding.times import time_in, to_instant, to_millis
from millpond.stores.specs.directory import check_plain_name
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.expiry import Expired, to_ttl
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.windows.calendar import Calendar, CalendarUnit
from millpond.stores.typed.windows.windowed import Windowed
from tests.refusing import Refused


def spec(kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE, name: str = "counts", **given: Any) -> StoreSpec:
    return StoreSpec(name, kind, **{"key_serde": STRING, "value_serde": STRING, **given})


def same(found: object, wanted: object) -> None:
    """Refuse what is not the answer."""
    assert found == wanted


def metadata(store: Any, name: str) -> bytes | None:
    """Return what is kept under a name, once it is put there."""
    store.put_metadata(name, b"mine")
    return store.get_metadata(name)  # type: ignore[no-any-return]


def versioned(**given: Any) -> StoreSpec:
    return spec(StoreKind.VERSIONED, **{"history_retention": 10, **given})


def key(type_: Any) -> KeyCodec:
    return KeyCodec(pa.schema([("k", type_)]))


STORES = [
    Refused(
        " is empty, or begins or ends with a space; give a name such as 'counts'",
        lambda _: spec(name=" counts"),
        lambda _: spec(name="counts"),
    ),
    Refused(
        " or control characters; give one such as ",
        lambda _: spec(name="../x/y"),
        lambda _: spec(name="x-y"),
    ),
    Refused(
        "begins with a dot, as directories do while they are being built",
        lambda _: spec(name=".counts"),
        lambda _: spec(name="others"),
    ),
    Refused(
        "ends like the directory of a store in another format",
        lambda _: spec(name="counts-v2"),
        lambda _: spec(name="counts"),
    ),
    Refused(
        ", not a serde; give one such as STRING, or ",
        lambda _: spec(key_serde="string"),
        lambda _: spec(key_serde=STRING),
        lambda _: spec(key_serde=serde("string")),
    ),
    Refused(
        " has no late_puts; leave it out, or choose the kind ",
        lambda _: spec(late_puts=LatePuts.VALID),
        lambda _: spec(),
        lambda _: versioned(late_puts=LatePuts.VALID),
    ),
    Refused(
        " has no calendar; leave it out, or choose the kind ",
        lambda _: spec(calendar=Calendar(CalendarUnit.DAY, "UTC")),
        lambda _: spec(),
        lambda _: spec(
            kind=StoreKind.WINDOW, retention=100, window_size=10, calendar=Calendar(CalendarUnit.DAY, "UTC")
        ),
    ),
    Refused(
        " is 0; give a length of time, or leave it out",
        lambda _: spec(ttl=0),
        lambda _: spec(ttl=1),
        lambda _: spec(),
    ),
    Refused(
        "but none expires; give a ttl, or leave out expired",
        lambda _: spec(expired=Expired.DELETE),
        lambda _: spec(expired=Expired.DELETE, ttl=10),
        lambda _: spec(),
    ),
    Refused(
        " has no ttl; leave it out, or choose the kind ",
        lambda _: spec(StoreKind.KEY_VALUE, ttl=10),
        lambda _: spec(StoreKind.KEY_VALUE),
        lambda _: spec(StoreKind.TIMESTAMPED_KEY_VALUE, ttl=10),
    ),
    Refused(
        " has no \n; leave it out, or choose the kind ",
        lambda _: spec(history_retention=10),
        lambda _: spec(),
        lambda _: spec(StoreKind.VERSIONED, history_retention=10),
    ),
    Refused(
        " needs \n; give it in milliseconds",
        lambda _: spec(StoreKind.SESSION),
        lambda _: spec(StoreKind.SESSION, retention=1000),
    ),
    Refused(
        "; give milliseconds as an int that is not negative",
        lambda _: versioned(grace="1 second"),
        lambda _: versioned(grace=0),
    ),
    Refused(
        "so puts would be accepted that nobody can read; make history_retention as long, or grace shorter",
        lambda _: versioned(grace=11),
        lambda _: versioned(grace=11, history_retention=11),
        lambda _: versioned(grace=10),
    ),
    Refused(
        " ms are put; leave out one of the two",
        lambda _: versioned(grace=5, late_puts=LatePuts.VALID),
        lambda _: versioned(late_puts=LatePuts.VALID),
        lambda _: versioned(grace=5),
    ),
    Refused(
        " ms; give a length of time that is positive, or leave it out",
        lambda _: to_ttl(-1, "counts"),
        lambda _: to_ttl("30 days", "counts"),
    ),
    Refused(
        "expired is \n; give ",
        lambda _: Expired.of("loud"),
        lambda _: [Expired.of("silent"), Expired.of("delete")],
    ),
    Refused(
        " ends before it starts; give the start first",
        lambda open_store: open_store(spec(StoreKind.SESSION, retention=10)).put(Windowed("a", 5, 3), "x"),
        lambda open_store: open_store(spec(StoreKind.SESSION, retention=10)).put(Windowed("a", 3, 5), "x"),
    ),
    Refused(
        "the metadata name \n is taken by \n; choose another",
        lambda open_store: metadata(open_store(spec()), "terms"),
        lambda open_store: same(metadata(open_store(spec()), "my terms"), b"mine"),
    ),
    Refused(
        "has control characters, or begins or ends with a space; choose a name without",
        lambda _: check_plain_name("application id", "job "),
        lambda _: check_plain_name("application id", "job"),
    ),
    Refused(
        " bytes; choose one of \n or less, because a directory gets it",
        lambda _: check_plain_name("application id", "j" * 300),
        lambda _: check_plain_name("application id", "j" * 30),
    ),
]
"""Their specs and names."""

ENCODING = [
    Refused(
        "no serde \n; give one of ",
        lambda _: serde("text"),
        lambda _: serde("string"),
        lambda _: serde("struct<name:string>"),
        lambda _: serde(STRING),
    ),
    Refused(
        " is no struct; write struct<name:type,...>",
        lambda _: StructSerde("string"),
        lambda _: StructSerde("struct<name:string>"),
    ),
    Refused(
        "has two fields of the same name; rename one",
        lambda _: serde("struct<a:string,a:bigint>"),
        lambda _: serde("struct<a:string,b:bigint>"),
    ),
    Refused(
        "; write fields as name:type, of the types ",
        lambda _: serde("struct<a string; b bigint>"),
        lambda _: serde("struct<a:string,b:bigint>"),
    ),
    Refused(
        "; give one with its time zone, such as 2026-01-31T00:00:00+00:00, or ",
        lambda _: time_in("2026-01-31", "--as-of"),
        lambda _: same(to_instant(time_in("2026-01-31T00:00:00+00:00", "--as-of")), 1_769_817_600_000),
        lambda _: same(to_instant(time_in("1769817600000", "--as-of")), 1_769_817_600_000),
    ),
    Refused(
        " has no time zone; write \n if it is in UTC, or ",
        lambda _: to_instant(datetime(2026, 1, 31)),
        lambda _: same(to_instant(datetime(2026, 1, 31, tzinfo=UTC)), 1_769_817_600_000),
        lambda _: same(to_instant(datetime(2026, 1, 31).astimezone()), int(datetime(2026, 1, 31).timestamp()) * 1000),
    ),
    Refused(
        ", which is no time; give ",
        lambda _: to_instant("2026-01-31"),  # type: ignore[arg-type]
        lambda _: same(to_instant(1_769_817_600_000), 1_769_817_600_000),
        lambda _: same(to_instant(datetime(2026, 1, 31, tzinfo=UTC)), 1_769_817_600_000),
    ),
    Refused(
        " is \n: \n (\n)",
        lambda _: to_millis("1 month"),
        lambda _: to_millis("5 minutes"),
        lambda _: to_millis("1 hour 30 minutes"),
    ),
    Refused(
        "the state directory's URI has the option \n, which s3:// does not have; the options are ",
        lambda _: S3Options.of("endpoint=https://host", {}),
        lambda _: S3Options.of("endpoint_override=https://host", {}),
    ),
    Refused(
        "cannot be kept in packed rows; cast it to one of Spark's types first",
        lambda _: normalized_schema(pa.schema([("a", pa.uint64())])),
        lambda _: normalized_schema(pa.schema([("a", pa.int64())])),
    ),
    Refused(
        "more than one column is called \n; rename all but one",
        lambda _: normalized_schema(pa.schema([("a", pa.int64()), ("a", pa.int64())])),
        lambda _: normalized_schema(pa.schema([("a", pa.int64()), ("b", pa.int64())])),
    ),
    Refused(
        "which has no order and cannot be part of a key; take fields out of it",
        lambda _: key(pa.map_(pa.string(), pa.int64())),
        lambda _: key(pa.int64()),
    ),
]
"""Serdes, times and columns."""

PLACES = [
    Refused(
        "the state directory is \n; give a path or a URI such as s3://bucket/prefix",
        lambda _: Storage.from_uri(""),
        lambda _: Storage.from_uri("state"),
        lambda _: S3Place.of("s3://bucket/prefix"),
    ),
    Refused(
        "; say sync=true or sync=false",
        lambda _: Storage.from_uri("file:///state?sync=no"),
        lambda _: Storage.from_uri("file:///state?sync=true"),
        lambda _: Storage.from_uri("file:///state?sync=false"),
    ),
    Refused(
        " names no bucket; say s3://bucket/prefix",
        lambda _: S3Place.of("s3://key:se/cret@bucket/prefix"),
        lambda _: S3Place.of("s3://bucket/prefix"),
        lambda _: S3Place.of("s3://key:se%2Fcret@bucket/prefix"),
    ),
    Refused(
        " has half a key; say s3://",
        lambda _: S3Place.of("s3://key@bucket/prefix"),
        lambda _: S3Place.of("s3://KEY:SECRET@bucket/prefix"),
        lambda _: S3Place.of("s3://bucket/prefix"),
    ),
    Refused(
        "; say http or https",
        lambda _: S3Options.of("endpoint_override=ftp://host", {}),
        lambda _: S3Options.of("endpoint_override=http://host", {}),
        lambda _: S3Options.of("endpoint_override=https://host", {}),
    ),
    Refused(
        "; where stores live is not part of it",
        lambda _: supplier("memory://directory"),
        lambda _: supplier("memory"),
        lambda _: supplier("lmdb://?map_size=1GiB"),
    ),
    Refused(
        "the backend \n has no option \n; ",
        lambda _: supplier("lmdb://?size=1GiB"),
        lambda _: supplier("lmdb://?map_size=1GiB"),
    ),
]
"""Where state is."""


@pytest.mark.parametrize("refused", [*STORES, *ENCODING, *PLACES], ids=repr)
def test_a_refused_store_is_made_as_its_message_says(refused: Refused) -> None:
    refused.check(lambda: lambda spec: spec.open(Transaction(MemoryBackend())), ConfigurationError)

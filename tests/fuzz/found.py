"""Inputs that readers once did not refuse as they should, as small as they could be made.

Rule of this module: an input stays, whatever becomes of its reader. The fuzzer prints new ones.
"""

import struct
from typing import Any, Final

import msgpack
import pyarrow as pa
from pyarrow import parquet as pq

from millpond.processors.distribution.exchange import to_ipc
from millpond.processors.streams.unpaired_rows import UNPAIRED_RECORDS
from millpond.processors.tables.suppress_buffer import SUPPRESS_BUFFER
from millpond.processors.tables.time_ordered_buffer import TIME_ORDERED_BUFFER
from millpond.processors.verbs.key_timers import KEYED_TIMERS
from millpond.stores.durability.parquet.rows import SCHEMA
from millpond.stores.encoding.keys import DATA, LAYOUT_ROW, METADATA, pack_time
from millpond.stores.typed.layouts import Layout
from tests.fuzz.durable_readers import COMMIT
from tests.fuzz.reader import framed
from tests.fuzz.store_readers import COLUMNS

_TIME: Final = pack_time(5)


def _row(key: bytes, value: bytes) -> bytes:
    return framed([(DATA + key, value)])


def _metadata(name: bytes, value: bytes) -> bytes:
    return framed([(METADATA + name, value)])


def _in(layout: Layout, *rows: bytes) -> bytes:
    return framed([(LAYOUT_ROW, layout.to_bytes())]) + b"".join(rows)


def _packed_row(**changed: object) -> bytes:
    """Return a row of the columns ``COLUMNS`` with other physical values."""
    values = [changed.get(name, 7 if name == "id" else None) for name in COLUMNS.names]
    return framed([(b"", msgpack.packb([1, *values]))])


def _states(*states: object) -> bytes:
    """Return as many states of aggregates as the reader has; those that are not given are null."""
    return framed([(b"", msgpack.packb([*states, *([None] * (32 - len(states)))]))])


def _columns(**changed: object) -> bytes:
    column = {"id": 1, "name": "a", "type": "int64", "nullable": True} | changed
    text = ", ".join(f'"{name}": {_json(value)}' for name, value in column.items())
    return b'{"crc32":0,"schemas":{"format": 1, "schemas": [[{%b}]]}}' % text.encode()


def _json(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).replace("True", "true").replace("inf", "Infinity")


def _blob(**columns: Any) -> bytes:
    return framed([(b"\1", to_ipc(pa.table(columns)))])


def _manifest(application: bytes, task: bytes) -> bytes:
    return (
        b'{"millpond":2,"application":"%b","task":"%b","fingerprint":"","lineage":"%b","snapshot":null,"deltas":[],'
        b'"bases":[],"crc32":0}' % (application, task, b"a" * 32)
    )


def durable_file(schema: pa.Schema = SCHEMA) -> bytes:
    """Return a durable file of format 1, of columns with the types of ``SCHEMA``."""
    metadata = {"millpond.format": "1", "millpond.commit": COMMIT}
    columns: Any = [["s"], [b"\1a"], [None], [b"v"]]
    rows = pa.table(columns, schema=schema.with_metadata(metadata))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()


def _contradicting_file() -> bytes:
    """Return a file whose footer has statistics of a column that may be null, of a nullability that does not exist."""
    optional, unknown = b"%\x02\x18\x05store", b"%\x0a\x18\x05store"
    return durable_file().replace(optional, unknown)


def _damaged_blob() -> bytes:
    """Return a blob with offsets beyond the values: who believes them reads memory that is not the blob's."""
    blob = _blob(key=pa.array([b"k" * 77]), value=pa.array([b"v"]), timestamp=pa.array([5]))
    before, after = blob.rsplit(struct.pack("<i", 77), 1)
    return before + struct.pack("<i", 1 << 30) + after


def _blobs_that_differ() -> bytes:
    return b"".join(
        _blob(key=pa.array([key]), value=pa.array([b"v"]), timestamp=pa.array([5])) for key in (b"binary", "string")
    )


FOUND: Final[tuple[tuple[str, bytes], ...]] = (
    ("terminated key", b""),
    ("terminated key", b"a\0b\0\0"),
    ("times", b"\0"),
    ("msgpack", b"\xc7\x04\x75sNaN"),
    ("long keys", framed([(b"abcdefg\0", b"\0\0")])),
    ("long keys", framed([(b"abcdefg\0", b"\0\0\0\1a\0\0\0\xff")])),
    ("timestamped key-value store", _row(b"a", b"short")),
    ("versioned store", _row(b"a\0\0" + _TIME, b"\2v")),
    ("versioned store", _row(b"a\0\0", b"\1v")),
    ("versioned store", _metadata(b"observed_stream_time", b"")),
    ("window store", _metadata(b"segment_interval", pack_time(0))),
    ("window store", _row(b"", b"")),
    ("window store with duplicates", _metadata(b"sequence", b"x")),
    ("window store with duplicates", _metadata(b"sequence", b"\xff" * 8)),
    ("session store", _metadata(b"segment_interval", b"\0")),
    ("packed rows", _packed_row(clock=-1)),
    ("packed rows", _packed_row(at=2**62)),
    ("packed rows", _packed_row(day=2**31 - 1)),
    ("packed rows", _packed_row(items=[[b"\xff", 1]])),
    ("schemas", _columns(id=float("inf"))),
    ("schemas", _columns(id="1")),
    ("schemas", _columns(nullable="false")),
    ("schemas", _columns(type="decimal(10,99999999999999999999)")),
    ("schemas", b'{"crc32":0,"schemas":%b}' % (b"[" * 5000)),
    ("schemas", b'{"crc32":0,"schemas":{"\xff":1}}'),
    ("subscription", b""),
    ("subscription", b"\x80"),
    ("subscription", b"\x80\x09"),
    ("response", b""),
    ("response", b"\x81"),
    ("response", b"\x81\x09"),
    ("left row", b"\2" * 17),
    ("combined key", b"\0"),
    ("combined key", b"\0\0\0\xffa"),
    ("row with a foreign key", b""),
    ("row with a foreign key", b"\1\0\0\0\xff"),
    ("time-ordered buffer", _in(TIME_ORDERED_BUFFER, _row(_TIME + b"\2" + bytes(8), b"\0"))),
    ("time-ordered buffer", _in(TIME_ORDERED_BUFFER, _row(_TIME + b"\0" + bytes(8), b"\2"))),
    ("time-ordered buffer", _in(TIME_ORDERED_BUFFER, _metadata(b"sequence", b"\xff" * 8))),
    ("suppress buffer", _in(SUPPRESS_BUFFER, _metadata(b"totals", b"\0"))),
    ("suppress buffer", _in(SUPPRESS_BUFFER, _row(b"ka", _TIME))),
    ("suppress buffer", _in(SUPPRESS_BUFFER, _row(b"t" + _TIME + b"a", _TIME))),
    ("suppress buffer", _in(SUPPRESS_BUFFER, _row(b"t" + _TIME + b"a", _TIME + b"\xff\xff\xff\xfe" * 3))),
    ("unpaired records", _in(UNPAIRED_RECORDS, _row(_TIME + _TIME + b"\2a", b"\0\0\0\1v"))),
    ("unpaired records", _in(UNPAIRED_RECORDS, _row(_TIME + _TIME + b"\1a", b"\0\0\0\xffv"))),
    ("keyed timers", _in(KEYED_TIMERS, _row(b"t\0" + _TIME + b"a", b""))),
    ("keyed timers", _in(KEYED_TIMERS, _row(b"n\0a\0\0remind", b"\0"))),
    ("completion", _metadata(b"changed-0", msgpack.packb([1]))),
    ("completion", _metadata(b"changed-0", msgpack.packb([["a", 1, 2, None]]))),
    ("states of aggregates", _states(None, 5)),
    ("states of aggregates", _states(None, None, None, None, [0, [1.5]])),
    ("states of aggregates", _states(*[None] * 26, [2, 10**9, b"\x01", b"\x01"])),
    ("states of aggregates", _states(*[None] * 28, [[3], [1, 2]])),
    ("states of aggregates", _states(*[None] * 31, [[3], [-5]])),
    ("states of aggregates", _states(*[None] * 24, b"\x02\x01\x07\x0c\x03\x08\x01\x08")),
    ("blobs between tasks", _damaged_blob()),
    ("blobs between tasks", _blob(key=pa.array([b"k"]), value=pa.array([b"v"]))),
    ("blobs between tasks", _blob(key=pa.array([b"k"]), value=pa.array([b"v"]), timestamp=pa.array(["5"]))),
    (
        "blobs between tasks",
        _blob(key=pa.array([], pa.binary()), value=pa.array([]), timestamp=pa.array([], pa.int64())),
    ),
    ("blobs between tasks", _blobs_that_differ()),
    ("manifest", b'{"millpond":true}'),
    ("manifest", _manifest(b"..", b"0_0")),
    ("manifest", _manifest(b"app", b"a/b")),
    ("position", b"\0\0\0[\0\0"),
    ("durable file", _contradicting_file()),
    ("seal", b'{"data.mdb":[Infinity,null]}'),
)

"""Values of all types that Spark has, and the rules of Spark SQL by which they are equal and ordered.

Rule of this module: it shares no code with the library, and knows nothing of verbs. Values are what ``pa.array`` takes:
dates and times are ints, maps are lists of pairs, structs are dicts.

Values come out of verbs bit by bit, but that all NaNs are one. In keys, -0.0 equals 0.0 and NaN equals NaN, at any
depth, and a null within a value equals a null; of values that are equal, the canonical one has 0.0. In the order, null
comes first within a value, and NaN last.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import copysign, isnan, nan
from random import Random
from typing import Any, Final

import msgpack
import pyarrow as pa

from tests.stores.rows.columns import physical_rows

_OTHER_NAN: Final = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
_FIRST: Final = -62_135_596_800_000_000
"""The beginning of the year 1, in microseconds."""
_LAST: Final = 253_402_300_799_999_999
"""The end of the year 9999."""
_TWICE: Final = 1_699_162_200_000_001
"""The first 01:30 of a day on which New York has two."""
_HOUR: Final = 3_600_000_000
_FLOATS: Final = (nan, _OTHER_NAN, -0.0, 0.0, float("-inf"), float("inf"), 1.5)


@dataclass(frozen=True)
class Kind:
    """A type.

    Attributes:
        name: as Spark has it.
        type: as Arrow has it.
        edges: values that are not null, with those that are easily mistaken.
        metadata: of a column.
    """

    name: str
    type: Any
    edges: Sequence[Any]
    metadata: dict[bytes | str, bytes | str] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        return pa.field(name, self.type, metadata=self.metadata or None)

    def neighbors(self, most: int, random: Random) -> list[Any]:
        """Return some values that stand together, and so are easily mistaken for each other."""
        first = random.randrange(len(self.edges))
        return [self.edges[(first + place) % len(self.edges)] for place in range(most)]


def ints(bits: int) -> Sequence[int]:
    most = 2 ** (bits - 1)
    return (-most, most - 1, 0, -1, 7)


BOOLEAN = Kind("boolean", pa.bool_(), (True, False))
TINYINT = Kind("tinyint", pa.int8(), ints(8))
SMALLINT = Kind("smallint", pa.int16(), ints(16))
INT = Kind("int", pa.int32(), ints(32))
BIGINT = Kind("bigint", pa.int64(), ints(64))
FLOAT = Kind("float", pa.float32(), (*_FLOATS, 3.4028234663852886e38, 1.401298464324817e-45))
DOUBLE = Kind("double", pa.float64(), (*_FLOATS, 4.9e-324, -1.7976931348623157e308))
DECIMAL = Kind(
    "decimal(18,4)",
    pa.decimal128(18, 4),
    [Decimal(one) for one in ("-99999999999999.9999", "99999999999999.9999", "0.0001", "0.0000", "-0.0001")],
)
WIDE_DECIMAL = Kind(
    "decimal(38,0)", pa.decimal128(38, 0), (Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0), Decimal(-1))
)
STRING = Kind("string", pa.string(), ("", "\0", "a", "a\0", "a\0b", "ÿ", "\U0001d54f", "\uffff"))
BINARY = Kind("binary", pa.binary(), (b"", b"\0", b"\0\xff", b"\xff", b"a"))
DATE = Kind("date", pa.date32(), (-719_162, -1, 0, 2_932_896))
TIMESTAMP = Kind("timestamp", pa.timestamp("us", "UTC"), (_FIRST, _LAST, _TWICE, _TWICE + _HOUR, -1, 0))
TIMESTAMP_NTZ = Kind("timestamp_ntz", pa.timestamp("us"), (_FIRST, _LAST, _TWICE, -1, 0))
TIME = Kind("time(6)", pa.time64("us"), (0, 24 * _HOUR - 1, 12 * _HOUR))
DAY_TIME = Kind("interval day to second", pa.duration("us"), (*ints(64)[:2], 0, 25 * _HOUR, -1))
YEAR_MONTH = Kind("interval year to month", pa.int32(), ints(32), {b"unit": b"month"})
PAIR = Kind(
    "struct<a:double,b:string>",
    pa.struct([("a", pa.float64()), ("b", pa.string())]),
    [
        {"a": a, "b": b}
        for a, b in ((0.0, None), (-0.0, None), (nan, "x"), (_OTHER_NAN, "x"), (None, None), (None, "\0"), (1.0, ""))
    ],
)
FLOATS = Kind(
    "array<float>",
    pa.list_(pa.field("element", pa.float32())),
    ([], [None], [0.0], [-0.0], [0.0, None], [nan], [_OTHER_NAN], [None, 1.0]),
)
NESTED = Kind(
    "struct<a:array<struct<b:double,c:date>>,d:timestamp>",
    pa.struct(
        [
            ("a", pa.list_(pa.field("element", pa.struct([("b", pa.float64()), ("c", pa.date32())])))),
            ("d", pa.timestamp("us", "UTC")),
        ]
    ),
    [
        {"a": a, "d": d}
        for a, d in (
            (None, None),
            ([], 0),
            ([{"b": -0.0, "c": 0}], _LAST),
            ([{"b": 0.0, "c": 0}], _LAST),
            ([None, {"b": nan, "c": None}], _FIRST),
            ([None, {"b": _OTHER_NAN, "c": None}], _FIRST),
        )
    ],
)

KEYS: Final = (
    BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, WIDE_DECIMAL, STRING, BINARY, DATE, TIMESTAMP,
    TIMESTAMP_NTZ, TIME, DAY_TIME, YEAR_MONTH, PAIR, FLOATS, NESTED,
)  # fmt: skip

_VARIANT_TYPE: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
_VARIANTS: Final = ({"value": b"\0", "metadata": b"\1\0\0"}, {"value": b"\x0c\x05", "metadata": b"\1\0\0"})


def _map(key: Any, value: Any) -> Any:
    fields: Any = (pa.field("key", key, nullable=False), pa.field("value", value))
    return pa.map_(*fields)


VALUES: Final = (
    *KEYS,
    Kind("decimal(38,10)", pa.decimal128(38, 10), (Decimal("-9999999999999999999999999999.9999999999"), Decimal(0))),
    Kind("array<int>", pa.list_(pa.field("element", pa.int32())), ([], [1, None], [None], [-1, 2, 3])),
    Kind("array<time(3)>", pa.list_(pa.field("element", pa.time64("us"))), ([], [None, 43_200_123_000])),
    Kind(
        "map<string,decimal(20,2)>",
        _map(pa.string(), pa.decimal128(20, 2)),
        ([], [("a", None), ("b", Decimal("1.25"))], [("", Decimal("-0.01"))]),
    ),
    Kind(
        "struct<a:int,b:array<struct<c:date,d:map<int,binary>>>>",
        pa.struct(
            [
                ("a", pa.int32()),
                (
                    "b",
                    pa.list_(
                        pa.field("element", pa.struct([("c", pa.date32()), ("d", _map(pa.int32(), pa.binary()))]))
                    ),
                ),
            ]
        ),
        (
            {"a": None, "b": None},
            {"a": 1, "b": []},
            {"a": 1, "b": [None, {"c": -365, "d": [(1, None), (2, b"\1")]}, {"c": None, "d": None}]},
        ),
    ),
    Kind("variant", _VARIANT_TYPE, _VARIANTS),
    Kind("array<variant>", pa.list_(pa.field("element", _VARIANT_TYPE)), ([], [_VARIANTS[1], None])),
    Kind("array<array<double>>", pa.list_(pa.field("element", FLOATS.type)), ([], [None, [-0.0, nan]], [[]])),
    Kind("void", pa.null(), (None,)),
)
"""Those of keys, and those that have no order."""


def canonical(value: Any) -> Any:
    """Return the one value that stands for all that equal it as keys."""
    if isinstance(value, float):
        return nan if isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: canonical(part) for name, part in value.items()}
    if isinstance(value, list):
        return [canonical(part) for part in value]
    return value


def rank(value: Any) -> Any:
    """Return a key that ``<`` orders as the values, which are of one type and not null."""
    if isinstance(value, float):
        return (1, 0.0) if isnan(value) else (0, value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return tuple(map(_null_first, value.values()))
    if isinstance(value, list):
        return tuple(map(_null_first, value))
    return value


def signs(value: Any) -> list[float]:
    """Return the signs of all floats in a value: what tells apart those that are equal."""
    if isinstance(value, float):
        return [1.0 if isnan(value) else copysign(1, value)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [sign for part in parts for sign in signs(part)]


def _null_first(value: Any) -> tuple[Any, ...]:
    return () if value is None else (rank(value),)


def bits(table: pa.Table) -> list[tuple[bytes, ...]]:
    """Return the rows of a table: bytes, which are equal if the values are, bit by bit but for NaNs."""
    return [tuple(msgpack.packb(_one_nan(value)) for value in row) for row in physical_rows(table)]


def _one_nan(value: Any) -> Any:
    if isinstance(value, float):
        return nan if isnan(value) else value
    return list(map(_one_nan, value)) if isinstance(value, list | tuple) else value


def key_bits(value: Any, kind: Kind) -> bytes:
    """Return bytes that are equal for equal keys."""
    return bits(pa.table({"k": pa.array([canonical(value)], kind.type)}))[0][0]

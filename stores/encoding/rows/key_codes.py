r"""The codes of packed keys: the beginning of each element, so that bytes compare as values do.

Rule of this module: it is the one list of codes, and a code never changes its meaning. A key is its elements, one after
the other. An element is a code and, big-endian::

    code  element                     bytes after the code
    01    null of any type            none
    02    false                       none
    03    true                        none
    10    int8, int16, int32, int64   8: the number, its sign bit flipped
    11    decimal, up to 18 digits    8: the unscaled number, its sign bit flipped
    12    decimal, 19 to 38 digits    16: the unscaled number, its sign bit flipped
    18    float32                     4: see below
    19    float64                     8: see below
    20    binary                      itself, each 00 written as 00 ff; then 00
    21    string                      its UTF-8, each 00 written as 00 ff; then 00
    30    date                        8: days since 1970-01-01, the sign bit flipped
    31    timestamp                   8: microseconds since 1970-01-01 UTC, the sign bit flipped
    32    timestamp without a zone    8: microseconds since 1970-01-01, the sign bit flipped
    33    time                        8: microseconds since midnight, the sign bit flipped
    34    duration                    8: microseconds, the sign bit flipped
    40    list                        its elements; then 00
    41    struct                      its fields, as elements; then 00

A float is its bits (IEEE 754): all of them flipped if the sign bit is set, else only that. Every NaN is written as
7ff8000000000000 (or 7fc00000), and -0.0 as 0.0.

So nulls come first, false before true, numbers and times by value, NaN last, strings by code points, lists and structs
as tuples do in Python. An integer has the same bytes in a column of any width. No element is a prefix of another: 00
ends an element without a fixed length; it is less than any code, and an escaped 00 is followed by ff, which is greater
than any. So the bytes of the first columns of a key are a prefix of its bytes, and all keys with these values are
one range.

The only key of no columns is that of a null, 01, since engines take no key without bytes.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from millpond.stores.encoding.rows.physical import SHORT_DECIMAL

END: Final = b"\x00"
ESCAPED: Final = b"\x00\xff"
NULL: Final = 0x01
FALSE: Final = 0x02
TRUE: Final = 0x03
INTEGER: Final = 0x10
DECIMAL: Final = 0x11
WIDE_DECIMAL: Final = 0x12
FLOAT32: Final = 0x18
FLOAT64: Final = 0x19
BINARY: Final = 0x20
STRING: Final = 0x21
LIST: Final = 0x40
STRUCT: Final = 0x41

SIGN: Final = 1 << 63

_CODES: Final[Mapping[Any, int]] = {
    pa.int8(): INTEGER,
    pa.int16(): INTEGER,
    pa.int32(): INTEGER,
    pa.int64(): INTEGER,
    pa.float32(): FLOAT32,
    pa.float64(): FLOAT64,
    pa.binary(): BINARY,
    pa.string(): STRING,
    pa.date32(): 0x30,
    pa.timestamp("us", "UTC"): 0x31,
    pa.timestamp("us"): 0x32,
    pa.time64("us"): 0x33,
    pa.duration("us"): 0x34,
    pa.bool_(): FALSE,
    pa.null(): NULL,
}


def code_of(type_: Any) -> int:
    """Return the code of values of a type in its one form; for booleans, that of false.

    Raises:
        KeyError: the type cannot be part of a key.
    """
    if pa.types.is_decimal(type_):
        return DECIMAL if type_.precision <= SHORT_DECIMAL else WIDE_DECIMAL
    if pa.types.is_struct(type_):
        return STRUCT
    if pa.types.is_list(type_):
        return LIST
    return _CODES[type_]

"""MessagePack's extension types for times, decimals and UUIDs, byte by byte.

Rule of this module: equal values have equal bytes, and a code never changes its meaning. Numbers are big-endian and
signed, unless stated. After MessagePack's own header, a value is::

    code  size  type                          bytes
    0x70  8     datetime with a time zone     microseconds since 1970-01-01 00:00 UTC
    0x71  8     datetime without a time zone  microseconds since 1970-01-01 00:00 of the same clock
    0x72  4     date                          days since 1970-01-01
    0x73  7     time without a time zone      hour (1), minute (1), second (1), microsecond (4), unsigned
    0x74  12    timedelta                     days (4); unsigned: seconds of the day (4), microseconds (4)
    0x75  any   Decimal                       its number in ASCII, see below
    0x76  16    UUID                          its bytes, in the order in which a UUID is written

The codes 0x70 to 0x7F are Millpond's; those without a meaning yet are refused by number. The codes below are the
user's: ``msgpack.ExtType`` in, the same out. So is MessagePack's own timestamp, ``msgpack.Timestamp``.

Values come back equal, but parts of them that do not affect equality are not kept. For a datetime with a time zone,
that is the zone: it comes back as the same instant in UTC. The instant decides its bytes, too, even where Python goes
by the clock: within one zone it takes both passes of an hour that is repeated for equal. For a Decimal, it is the zeros
at its end: 1.0 and 1.00 come back as 1, and -0 as 0. A Decimal's number is written out (``-12.5``, ``1200``) if its
first digit stands less than 40 places from the point, else it has an exponent (``1.2E+41``).
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final
from uuid import UUID

from msgpack import ExtType

RESERVED: Final = range(0x70, 0x80)
"""The codes that are Millpond's."""

UNREADABLE: Final = (TypeError, ValueError, ArithmeticError, struct.error)
"""The exceptions of ``from_extension`` for bytes that ``to_extension`` did not write."""

UNWRITABLE: Final = (TypeError, ValueError, ArithmeticError)
"""The exceptions of ``to_extension`` for a value that it cannot write."""

_INSTANT, _LOCAL, _DATE, _TIME, _DURATION, _DECIMAL, _UUID = range(0x70, 0x77)

_MICROS = struct.Struct(">q")
_DAYS = struct.Struct(">i")
_CLOCK = struct.Struct(">BBBI")
_SPAN = struct.Struct(">iII")

_MICROSECOND = timedelta(microseconds=1)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_EPOCH = _LOCAL_EPOCH.replace(tzinfo=UTC)
_EPOCH_DAY = _LOCAL_EPOCH.toordinal()
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
_PLACES = 40


def to_extension(value: object) -> ExtType:
    """Return the extension type for ``value``: msgpack's hook for values that it does not know.

    Raises:
        TypeError, ValueError, ArithmeticError: there is none; the message says why.
    """
    write = _WRITERS.get(type(value))
    if write is None:
        raise TypeError(_no_form(value))
    return write(value)


def from_extension(code: int, data: bytes) -> Any:
    """Return the value of an extension type: msgpack's hook for reading.

    Raises:
        ValueError: no release up to this one has written that code.
        TypeError, ArithmeticError, struct.error: ``data`` is damaged.
    """
    read = _READERS.get(code)
    if read is not None:
        return read(data)
    if code in RESERVED or code < 0:
        raise ValueError(f"the extension code {code} is unknown to this release")
    return ExtType(code, data)


def _no_form(value: object) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    base = next((known for known in _WRITERS if isinstance(value, known)), None)
    if base is None:
        return f"MessagePack has no form for {name}"
    return f"{name} is a subclass of {base.__name__}, and would come back as a plain {base.__name__}"


def _write_datetime(value: datetime) -> ExtType:
    if value.utcoffset() is None:
        return ExtType(_LOCAL, _MICROS.pack((value.replace(tzinfo=None) - _LOCAL_EPOCH) // _MICROSECOND))
    # In UTC, or else an instant outside the years 1 to 9999 could be written but not be read.
    return ExtType(_INSTANT, _MICROS.pack((value.astimezone(UTC) - _EPOCH) // _MICROSECOND))


def _write_date(value: date) -> ExtType:
    return ExtType(_DATE, _DAYS.pack(value.toordinal() - _EPOCH_DAY))


def _write_time(value: time) -> ExtType:
    if value.tzinfo is not None:
        raise ValueError("a time of day with a time zone has no fixed place in the day without a date")
    return ExtType(_TIME, _CLOCK.pack(value.hour, value.minute, value.second, value.microsecond))


def _write_timedelta(value: timedelta) -> ExtType:
    return ExtType(_DURATION, _SPAN.pack(value.days, value.seconds, value.microseconds))


def _write_decimal(value: Decimal) -> ExtType:
    if value.is_snan():
        raise ValueError("it is a signaling NaN")
    shortest = value.normalize(_EXACT) if value else Decimal(0)
    plain = abs(shortest.adjusted()) < _PLACES
    return ExtType(_DECIMAL, (format(shortest, "f") if plain else str(shortest)).encode())


def _write_uuid(value: UUID) -> ExtType:
    return ExtType(_UUID, value.bytes)


def _read_instant(data: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=_MICROS.unpack(data)[0])


def _read_local(data: bytes) -> datetime:
    return _LOCAL_EPOCH + timedelta(microseconds=_MICROS.unpack(data)[0])


def _read_date(data: bytes) -> date:
    return date.fromordinal(_DAYS.unpack(data)[0] + _EPOCH_DAY)


def _read_time(data: bytes) -> time:
    return time(*_CLOCK.unpack(data))


def _read_timedelta(data: bytes) -> timedelta:
    return timedelta(*_SPAN.unpack(data))


def _read_decimal(data: bytes) -> Decimal:
    try:
        number = Decimal(data.decode("ascii"))
    except InvalidOperation:
        raise ValueError(f"{data!r} is not a decimal number") from None
    if number.is_snan():  # nobody writes one, and it cannot even be compared
        raise ValueError("it is a signaling NaN")
    return number


def _read_uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


_WRITERS: Final[Mapping[type, Callable[[Any], ExtType]]] = {
    datetime: _write_datetime,  # before date, of which it is a subclass
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    Decimal: _write_decimal,
    UUID: _write_uuid,
}
_READERS: Final[Mapping[int, Callable[[bytes], Any]]] = {
    _INSTANT: _read_instant,
    _LOCAL: _read_local,
    _DATE: _read_date,
    _TIME: _read_time,
    _DURATION: _read_timedelta,
    _DECIMAL: _read_decimal,
    _UUID: _read_uuid,
}

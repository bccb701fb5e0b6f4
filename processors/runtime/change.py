"""``Change``: a table's new value and the old one that it replaced, and their bytes between tasks (KIP-904).

The layout, byte for byte that of Kafka Streams; the last byte is a flag::

    0   old                                       only the old value is there
    1   new                                       only the new value is there
    2   length of new (VARINT) new old            both are there
    3   old is_latest                             } as 0, 1 and 2 with a byte that says whether the record is the
    4   new is_latest                             } latest of its key; read, never written
    5   length of new (VARINT) new old is_latest  }

A VARINT is the number in zigzag, which maps 0, -1, 1, -2 to 0, 1, 2, 3 and so on, in seven bits a byte, the lowest bits
first. The top bit of a byte says that another byte follows.
"""

from typing import Final, Generic, NamedTuple, TypeVar

from millpond.errors import ConfigurationError, SerdeError
from millpond.stores.encoding.serdes import Serde

T = TypeVar("T")

_OLD: Final = b"\x00"
_NEW: Final = b"\x01"
_BOTH: Final = b"\x02"
_FIRST_FLAG_WITH_LATEST: Final = 3
_LAST_FLAG: Final = 5
_LONGEST_VARINT: Final = 5
_FIRST_RELEASE: Final = (0, 10)
_FIRST_RELEASE_WITH_BOTH: Final = (3, 5)


class Change(NamedTuple, Generic[T]):
    """A new value and the old one that it replaces; None where there is none."""

    new: T | None
    old: T | None
    is_latest: bool = True

    def halves(self) -> "tuple[Change[T], Change[T]]":
        """The same as two changes: the old value goes, the new one comes."""
        return Change(None, self.old, self.is_latest), Change(self.new, None, self.is_latest)


class ChangeSerde(Serde[Change[T]]):
    r"""Changes of values that ``value_serde`` writes.

    Args:
        value_serde: how the values become bytes.
        upgrade_from: while a job is being upgraded: the release of Kafka Streams, such as ``"3.4"``, that must still be
            able to read the bytes. Releases before 3.5 do not know changes with both values.

    >>> from millpond.stores.encoding.serdes import STRING
    >>> ChangeSerde(STRING).serialize(Change("new", "old"))
    b'\x06newold\x02'
    """

    name = "change"

    def __init__(self, value_serde: Serde[T], upgrade_from: str | None = None) -> None:
        self._value_serde = value_serde
        self._separate = sends_separately(upgrade_from)

    def serialize(self, value: Change[T]) -> bytes:
        encode = self._value_serde.serialize
        if value.old is None:
            if value.new is None:
                raise SerdeError("a change with neither a new nor an old value cannot be serialized")
            return encode(value.new) + _NEW
        if value.new is None:
            return encode(value.old) + _OLD
        if self._separate:
            raise SerdeError(f"{value} has both values, which the release being upgraded from cannot read")
        new = encode(value.new)
        return _varint(len(new)) + new + encode(value.old) + _BOTH

    def deserialize(self, data: bytes) -> Change[T]:
        decode = self._value_serde.deserialize
        flag, end = _byte_at(data, len(data) - 1), len(data) - 1
        is_latest = True
        if _FIRST_FLAG_WITH_LATEST <= flag <= _LAST_FLAG:
            latest = _byte_at(data, end - 1)
            if latest > 1:
                raise SerdeError(f"the change {data!r} has {latest} where 0 or 1 says whether it is the latest")
            is_latest, flag, end = latest == 1, flag - _FIRST_FLAG_WITH_LATEST, end - 1
        if flag == _OLD[0]:
            return Change(None, decode(data[:end]), is_latest)
        if flag == _NEW[0]:
            return Change(decode(data[:end]), None, is_latest)
        if flag != _BOTH[0]:
            raise SerdeError(
                f"the change {data!r} ends in the flag {flag}, which this release does not know; run the release that "
                "wrote it, or a newer one"
            )
        length, start = _read_varint(data)
        if not 0 <= length <= end - start:
            raise SerdeError(f"the change {data!r} claims a new value of {length} bytes but is shorter than that")
        middle = start + length
        return Change(decode(data[start:middle]), decode(data[middle:end]), is_latest)


def sends_separately(upgrade_from: str | None) -> bool:
    """Whether each change has to be sent as two, so that ``upgrade_from`` can read them.

    Raises:
        ConfigurationError: ``upgrade_from`` is not a release of Kafka Streams.
    """
    if upgrade_from is None:
        return False
    try:
        major, minor, *_ = (int(part) for part in upgrade_from.split("."))
    except (AttributeError, ValueError):
        raise ConfigurationError(
            f"upgrade_from is {upgrade_from!r}; give a release of Kafka Streams such as '3.4'"
        ) from None
    if (major, minor) < _FIRST_RELEASE:
        raise ConfigurationError(
            f"upgrade_from is {upgrade_from!r}, but the first release of Kafka Streams was 0.10.0; leave it out here: "
            "every release of Millpond reads changes with both values, and SparkStreams and Millpond are told the one "
            "that wrote their copies, with upgrade_mode"
        )
    return (major, minor) < _FIRST_RELEASE_WITH_BOTH


def _byte_at(data: bytes, position: int) -> int:
    if position < 0:
        raise SerdeError(f"{data!r} is too short for a change")
    return data[position]


def _varint(number: int) -> bytes:
    left = number << 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _read_varint(data: bytes) -> tuple[int, int]:
    """The number at the beginning of ``data``, and where it ends."""
    number = 0
    for position, byte in enumerate(data[:_LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
    raise SerdeError(f"the change {data!r} does not begin with the length of its new value")

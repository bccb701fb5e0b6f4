"""``Change``: a table's new value and the old one that it replaced, and their bytes between tasks (KIP-904).

The layout, byte for byte as in Kafka Streams; the last byte is a flag::

    0   old                                       only the old value is there
    1   new                                       only the new value is there
    2   length of new (VARINT) new old            both are there
    3   old is_latest                             } as 0, 1 and 2 with a byte that says whether the record is the
    4   new is_latest                             } latest of its key; read, never written
    5   length of new (VARINT) new old is_latest  }

A VARINT is the number in zigzag, which maps 0, -1, 1, -2 to 0, 1, 2, 3 and so on, in seven bits a byte, the lowest bits
first. The top bit of a byte says that another byte follows.

Whole columns of changes are ``ChangeType``, whose bytes are the same.
"""

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import SerdeError, UpgradeFromError
from millpond.stores.encoding.column_serdes import Array, ColumnarSerde, ColumnSerde, column_serde
from millpond.stores.encoding.rows.byte_columns import binary_of, buffer, offsets_of
from millpond.stores.encoding.rows.row_columns import RowType
from millpond.stores.encoding.serdes import Serde

pc: Any = _compute
T = TypeVar("T")

if TYPE_CHECKING:
    _ExtensionArray = pa.ExtensionArray[Any]
else:
    _ExtensionArray = pa.ExtensionArray

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
        """Return the same as two changes: the old value goes, the new one comes."""
        return Change(None, self.old, self.is_latest), Change(self.new, None, self.is_latest)


def changes_of(news: Sequence[T | None], olds: Sequence[T | None]) -> list[Change[T]]:
    """Return the changes of such values, whose number is the same."""
    return list(map(partial(tuple.__new__, Change), zip(news, olds, repeat(True), strict=False)))


class _ChangeArray(_ExtensionArray):
    def to_pylist(self, **options: Any) -> list[Any]:
        news, olds = map(_values, self.storage.flatten())
        return changes_of(news, olds)


def _values(column: Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


class ChangeType(RowType):
    """A column of changes: structs of the new value and the old one, null where there is none.

    >>> ChangeType.of_values(pa.array(["new", None]), pa.array(["old", "gone"])).to_pylist()
    [Change(new='new', old='old', is_latest=True), Change(new=None, old='gone', is_latest=True)]
    """

    _name = "millpond.changes"
    _array = _ChangeArray

    @classmethod
    def of_values(cls, news: Array, olds: Array) -> Array:
        """Return the column of changes of such values, which are of one type."""
        return cls.of(pa.StructArray.from_arrays([news, olds], names=["new", "old"]))


class ChangeSerde(ColumnarSerde[Change[T]]):
    r"""Changes of values that ``value_serde`` writes.

    Args:
        value_serde: the serde of the values.
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

    @property
    def columns(self) -> ColumnSerde | None:
        values = column_serde(self._value_serde)
        return None if values is None or self._separate else _ChangeColumns(values)

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

    def serialize_many(self, values: Sequence[Change[T]]) -> list[bytes]:
        if self._separate or any(change.new is change.old is None for change in values):
            return super().serialize_many(values)
        encode = self._value_serde.serialize_many
        news = iter(encode([change.new for change in values if change.new is not None]))
        olds = iter(encode([change.old for change in values if change.old is not None]))
        made = []
        for new, old, _ in values:
            if old is None:
                made.append(next(news) + _NEW)
            elif new is None:
                made.append(next(olds) + _OLD)
            else:
                data = next(news)
                made.append(_varint(len(data)) + data + next(olds) + _BOTH)
        return made

    def deserialize_many(self, data: Sequence[bytes]) -> list[Change[T]]:
        parts: list[bytes] = []
        for one in data:
            flag = one[-1:]
            if flag == _BOTH:
                length, start = _read_varint(one)
                middle = start + length
                if not start <= middle < len(one):
                    return super().deserialize_many(data)
                parts += one[start:middle], one[middle:-1]
            elif flag in (_NEW, _OLD):
                parts.append(one[:-1])
            else:
                return super().deserialize_many(data)
        found = iter(self._value_serde.deserialize_many(parts))
        news: list[Any] = []
        olds: list[Any] = []
        for one in data:
            flag = one[-1:]
            news.append(None if flag == _OLD else next(found))
            olds.append(None if flag == _NEW else next(found))
        return changes_of(news, olds)


class _ChangeColumns(ColumnSerde):
    """Does for whole columns of changes what ``ChangeSerde`` does for each."""

    def __init__(self, values: ColumnSerde) -> None:
        super().__init__(ChangeType(pa.struct([("new", values.type), ("old", values.type)])), self._is_narrower)
        self._of_values = values

    def _is_narrower(self, type_: pa.DataType) -> bool:
        return isinstance(type_, ChangeType) and self._of_values.takes(type_.storage_type.field(0).type)

    def own(self, column: Array) -> Array:
        return column

    def _write(self, column: Array) -> Array:
        new, old = map(self._of_values.write, column.storage.flatten())
        both, lacks_old = pc.and_(new.is_valid(), old.is_valid()), old.is_null()
        lengths = pc.binary_length(new).fill_null(0).to_numpy().astype(np.int64)
        head = pc.if_else(both, _varints(lengths), b"")
        flag = pc.if_else(both, _BOTH, pc.if_else(lacks_old, _NEW, _OLD))
        return pc.binary_join_element_wise(head, new.fill_null(b""), old.fill_null(b""), flag, b"")

    def _read(self, data: Array) -> Array:
        bounds = offsets_of(data).astype(np.int64)
        starts, ends = bounds[:-1], bounds[1:] - 1
        if data.null_count or (ends < starts).any():
            raise pa.ArrowInvalid("a change is null or empty")
        content = np.frombuffer(data.buffers()[2], np.uint8) if len(data) else np.empty(0, np.uint8)
        flags = content[ends]
        if (flags > _BOTH[0]).any():
            raise pa.ArrowInvalid("a change says whether it is the latest")
        both, is_old = flags == _BOTH[0], flags == _OLD[0]
        middles = np.where(is_old, starts, ends)
        news = starts.copy()
        news[both], lengths = _read_varints(content, starts[both], ends[both])
        middles[both] = news[both] + lengths
        # Each change is four neighbors: the head, the new value, the old one, and the flag.
        parts = np.append(np.stack([starts, news, middles, ends], axis=1).ravel(), bounds[-1:]).astype(np.int32)
        pieces: Array = pa.Array.from_buffers(pa.binary(), 4 * len(data), [None, buffer(parts), data.buffers()[2]])
        places = 4 * np.arange(len(data))
        new = pieces.take(pa.array(places + 1, mask=is_old))
        old = pieces.take(pa.array(places + 2, mask=~both & ~is_old))
        return ChangeType.of_values(self._of_values.read(new), self._of_values.read(old))


def _varints(numbers: npt.NDArray[np.int64]) -> Array:
    """Return the VARINT of each number."""
    left = numbers << 1
    places = 7 * np.arange(_LONGEST_VARINT)
    digits = ((left[:, None] >> places) & 0x7F).astype(np.uint8)
    lengths = 1 + (left[:, None] >> places[1:] > 0).sum(axis=1)
    digits[np.arange(_LONGEST_VARINT) < lengths[:, None] - 1] |= np.uint8(0x80)
    return binary_of(digits, lengths)


def _read_varints(
    content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the ends of the numbers that begin at ``starts``, and the numbers: lengths of what fits before ``ends``.

    Raises:
        pyarrow.ArrowInvalid: a number is not such a length.
    """
    at, numbers, open_ = starts.copy(), np.zeros(len(starts), np.int64), np.ones(len(starts), np.bool_)
    for place in range(_LONGEST_VARINT):
        if not open_.any():
            break
        bytes_ = content[np.minimum(at, len(content) - 1)].astype(np.int64)
        numbers[open_] |= (bytes_[open_] & 0x7F) << 7 * place
        at += open_
        open_ &= bytes_ >= 0x80
    lengths = (numbers >> 1) ^ -(numbers & 1)
    if open_.any() or (lengths < 0).any() or (at + lengths > ends).any():
        raise pa.ArrowInvalid("a change does not begin with the length of its new value")
    return at, lengths


def sends_separately(upgrade_from: str | None) -> bool:
    """Return whether each change has to be sent as two, so that ``upgrade_from`` can read them.

    Raises:
        ConfigurationError: ``upgrade_from`` is not a release of Kafka Streams.
    """
    if upgrade_from is None:
        return False
    try:
        major, minor, *_ = (int(part) for part in upgrade_from.split("."))
    except (AttributeError, ValueError):
        raise UpgradeFromError(
            f"upgrade_from is {upgrade_from!r}; give a release of Kafka Streams such as '3.4'"
        ) from None
    if (major, minor) < _FIRST_RELEASE:
        raise UpgradeFromError(
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
    """Return the number at the beginning of ``data``, and where it ends."""
    number = 0
    for position, byte in enumerate(data[:_LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
    raise SerdeError(f"the change {data!r} does not begin with the length of its new value")

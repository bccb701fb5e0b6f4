"""Serdes: the conversion of keys and values to bytes and back.

Rule of this module: a serde knows nothing of stores. Any failure inside one is a ``SerdeError`` that names the serde
and the value. ``None`` never reaches a serde: an absent value has no bytes.
"""

import json
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgpack

from millpond.errors import MissingSerdeError, SerdeError
from millpond.stores.encoding.extension_types import UNREADABLE, UNWRITABLE, from_extension, to_extension
from millpond.stores.encoding.struct_serde import StructLayout, struct_layout

T = TypeVar("T")

_SHOWN = 60


class Serde(ABC, Generic[T]):
    """The conversion of values of one type to bytes and back.

    ``deserialize(serialize(value))`` equals ``value``. A serde for keys gives equal keys equal bytes. Serdes travel to
    other processes: they can be pickled.
    """

    name: str
    """The name under which ``serde`` finds it, and that errors use."""

    column_serialize: Callable[[T], bytes] | None = None
    """A C function for whole columns, if there is one. It does what ``serialize`` does, but may raise any exception."""

    column_deserialize: Callable[[bytes], T] | None = None
    """The same for ``deserialize``."""

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the bytes of ``value``.

        Raises:
            SerdeError: this serde cannot hold such a value.
        """

    @abstractmethod
    def deserialize(self, data: bytes) -> T:
        """Return the value that ``serialize`` turned into ``data``.

        Raises:
            SerdeError: ``data`` did not come from ``serialize``.
        """

    def serialize_many(self, values: Sequence[T]) -> list[bytes]:
        """Return the bytes of many values, in their order, as ``serialize`` does, with its errors."""
        return _each(self.column_serialize, self.serialize, values)

    def deserialize_many(self, data: Sequence[bytes]) -> list[T]:
        """Return the values of many bytes, in their order, as ``deserialize`` does, with its errors.

        >>> STRING.deserialize_many(STRING.serialize_many(["tea", "milk"]))
        ['tea', 'milk']
        """
        return _each(self.column_deserialize, self.deserialize, data)


def _each(quick: Callable[[Any], Any] | None, thorough: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    if quick is not None:
        try:
            return list(map(quick, column))
        except Exception:  # the other way below finds the fault
            pass
    return list(map(thorough, column))


class _BuiltInSerde(Serde[T]):
    """One of the serdes below: one object per process, pickled by its name."""

    def __reduce__(self) -> tuple[Callable[[str], Serde[Any]], tuple[str]]:
        return serde, (self.name,)

    def __repr__(self) -> str:
        return f"serde({self.name!r})"

    def _refusal(self, value: object, reason: object) -> SerdeError:
        return SerdeError(
            f"the {self.name} serde cannot serialize {_shortened(value)} of type {type(value).__name__}: {reason}; "
            f"choose another serde or convert the value first"
        )

    def _damage(self, data: object, reason: object) -> SerdeError:
        return SerdeError(f"the {self.name} serde cannot read {_shortened(data)}: {reason}")


class BytesSerde(_BuiltInSerde[bytes]):
    """Bytes as they are."""

    name = "bytes"
    column_serialize = staticmethod(bytes.__bytes__)
    column_deserialize = staticmethod(bytes.__bytes__)

    def serialize(self, value: bytes) -> bytes:
        if value.__class__ is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise self._refusal(value, "not bytes")

    def deserialize(self, data: bytes) -> bytes:
        return data


class StringSerde(_BuiltInSerde[str]):
    """Text as UTF-8."""

    name = "string"
    column_serialize = staticmethod(str.encode)
    column_deserialize = staticmethod(bytes.decode)

    def serialize(self, value: str) -> bytes:
        try:
            return str.encode(value)
        except (TypeError, UnicodeError) as error:
            raise self._refusal(value, error) from error

    def deserialize(self, data: bytes) -> str:
        try:
            return data.decode()
        except (AttributeError, UnicodeError) as error:
            raise self._damage(data, error) from error


class _StructSerde(_BuiltInSerde[T]):
    """A number of eight bytes."""

    _layout: ClassVar[struct.Struct]

    def serialize(self, value: T) -> bytes:
        try:
            return self._layout.pack(value)
        except (struct.error, OverflowError) as error:
            raise self._refusal(value, error) from error

    def deserialize(self, data: bytes) -> T:
        try:
            number: T = self._layout.unpack(data)[0]
        except (struct.error, TypeError) as error:
            raise self._damage(data, error) from error
        return number


class Int64Serde(_StructSerde[int]):
    """Integers of 64 bits, signed, big-endian, as Kafka's Long serializer writes them."""

    name = "int64"
    _layout = struct.Struct(">q")
    column_serialize = _layout.pack


class Float64Serde(_StructSerde[float]):
    """IEEE 754 numbers of 64 bits, big-endian, as Kafka's Double serializer writes them."""

    name = "float64"
    _layout = struct.Struct(">d")
    column_serialize = _layout.pack


class JsonSerde(_BuiltInSerde[Any]):
    """JSON in UTF-8: compact, with sorted keys, so that equal values have equal bytes.

    NaN and the infinities are refused, because they are not JSON. Tuples come back as lists, keys of dicts as strings.
    """

    name = "json"
    _encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
    _decode = json.JSONDecoder().decode

    def serialize(self, value: Any) -> bytes:
        try:
            return self._encode(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(value, error) from error

    def deserialize(self, data: bytes) -> Any:
        try:
            return self._decode(data.decode())
        except (AttributeError, ValueError, RecursionError) as error:
            raise self._damage(data, error) from error


class MsgpackSerde(_BuiltInSerde[Any]):
    """MessagePack, with extension types for datetime, date, time, timedelta, Decimal and UUID.

    They are exact, and equal ones have equal bytes; ``millpond.stores.encoding.extension_types`` draws them. A datetime
    with a time zone comes back as the same instant in UTC, a Decimal without the zeros at its end. Tuples come back as
    lists; dicts keep their order, so a dict that is a key needs a fixed order.
    """

    name = "msgpack"
    column_deserialize = staticmethod(partial(msgpack.unpackb, strict_map_key=False, ext_hook=from_extension))

    def __init__(self) -> None:
        self._pack = self.column_serialize = msgpack.Packer(default=to_extension).pack

    def serialize(self, value: Any) -> bytes:
        try:
            packed: bytes = self._pack(value)
        except (*UNWRITABLE, RecursionError) as error:
            raise self._refusal(value, error) from error
        return packed

    def deserialize(self, data: bytes) -> Any:
        try:
            return self.column_deserialize(data)
        except (*UNREADABLE, RecursionError) as error:
            raise self._damage(data, error) from error


class StructSerde(_BuiltInSerde[dict[str, Any]]):
    """Dicts of the same typed entries every time, as the rows that ``millpond.stores.encoding.struct_serde`` lays out.

    Each entry is there, and may be None. Arrow has such values as structs, so a run of them need never become dicts.

    Args:
        name: Spark's notation, such as ``struct<carrier:string,flight:long>``. Types are ``long`` (or ``bigint``),
            ``double``, ``boolean``, ``string`` and ``binary``.

    Attributes:
        layout: the layout of the fields.

    Raises:
        ConfigurationError: the name is not of that form.
    """

    def __init__(self, name: str) -> None:
        layout = struct_layout(name)
        if layout is None:
            raise MissingSerdeError(f"the serde {name!r} is no struct; write struct<name:type,...>")
        self.layout: StructLayout = layout
        self.name = f"struct<{','.join(f'{field}:{type_}' for field, type_ in layout.fields)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructSerde) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def serialize(self, value: dict[str, Any]) -> bytes:
        try:
            return self.layout.pack(value)
        except (struct.error, ValueError, OverflowError) as error:
            raise self._refusal(value, error) from error

    def deserialize(self, data: bytes) -> dict[str, Any]:
        try:
            return self.layout.unpack(data)
        except (struct.error, ValueError, TypeError) as error:
            raise self._damage(data, error) from error


class PickleSerde(_BuiltInSerde[Any]):
    """Python's pickle. Reading it runs any code that its bytes name: only for state that nobody else can write."""

    name = "pickle"

    def serialize(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value, protocol=5)
        except Exception as error:  # a value's own __reduce__ may raise anything
            raise self._refusal(value, error) from error

    def deserialize(self, data: bytes) -> Any:
        try:
            return pickle.loads(data)
        except Exception as error:  # a value's own __setstate__ may raise anything
            raise self._damage(data, error) from error


BYTES: Final = BytesSerde()
STRING: Final = StringSerde()
INT64: Final = Int64Serde()
PLAIN_KEYS: Final = (BYTES, STRING, INT64)
"""Serdes whose equal keys have equal bytes and can be looked up in a dict."""

FLOAT64: Final = Float64Serde()
JSON: Final = JsonSerde()
MSGPACK: Final = MsgpackSerde()

_BY_NAME: Final[dict[str, Serde[Any]]] = {
    known.name: known for known in (BYTES, STRING, INT64, FLOAT64, JSON, MSGPACK, PickleSerde())
}


def serde(name: str | Serde[Any]) -> Serde[Any]:
    """Return the serde of that name; a serde is returned as it is. ``pickle`` is available only by its name.

    A name such as ``struct<carrier:string,flight:long>`` makes a ``StructSerde``.

    Raises:
        ConfigurationError: there is no such serde.

    >>> serde("int64").serialize(1).hex()
    '0000000000000001'
    """
    if isinstance(name, Serde):
        return name
    if isinstance(name, str) and name.lstrip().startswith("struct"):
        return StructSerde(name)
    found = _BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(sorted(_BY_NAME))
        raise MissingSerdeError(f"no serde {name!r}; give one of {known}, struct<name:type,...>, or a Serde object")
    return found


def _shortened(value: object) -> str:
    try:
        shown = repr(value)
    except Exception:  # a broken __repr__ must not hide the error that is being reported
        shown = object.__repr__(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."

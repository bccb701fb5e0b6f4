"""Columns in which keys and values are shown: from the bytes that a serde wrote, and back for keys.

Rule of this module: a column has one type, whatever the values are. What Arrow has no type for is shown as text, and
what nobody here can read as the bytes that it is. Nothing is unpickled: reading a pickle runs the code that it names.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.adapters.inspect.text import TextSerde
from millpond.errors import InvalidRowError, SerdeError
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import BYTES, FLOAT64, INT64, JSON, MSGPACK, STRING, Serde, serde

_TEXT: Final = TextSerde()
_READABLE: Final = {one.name for one in (BYTES, STRING, INT64, FLOAT64, JSON, MSGPACK)}
_FROM_TEXT: Final[Mapping[str, Callable[[str], Any]]] = {
    STRING.name: str,
    INT64.name: int,
    FLOAT64.name: float,
    BYTES.name: bytes.fromhex,
}


class ShownColumn(ABC):
    """A column of keys or values. Can be pickled.

    Attributes:
        type: of the column.
        serde: the name of what reads it, where that has changed since the record of the state; None where it is there.
    """

    type: pa.DataType
    serde: str | None = None

    @abstractmethod
    def read(self, data: Sequence[bytes]) -> Any:
        """Return the column, an Arrow array, of values that were stored as these bytes.

        Raises:
            SerdeError: one of them was not written so.
        """

    def read_in(self, data: Sequence[bytes], starts: Sequence[int]) -> Any:
        """Return the column of values of windows that start at these times, which may change what is shown."""
        return self.read(data)

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the key, or the value, that a text on the command line means.

        Raises:
            ConfigurationError: it means none.
        """

    @abstractmethod
    def pack(self, value: Any) -> bytes:
        """Return the bytes that are stored for a value, given as ``read`` shows it.

        Raises:
            ConfigurationError, SerdeError: it is no such value, or what is stored is more than what is shown.
        """


class KeyColumn(ShownColumn):
    """A column of keys, by which something is looked up."""

    @abstractmethod
    def to_bytes(self, key: Any) -> bytes:
        """Return the bytes that are stored for a key.

        Raises:
            ConfigurationError, SerdeError: it is no such key.
        """


class SerdeColumn(KeyColumn):
    """Values of a serde, each read for itself if Arrow cannot read them together.

    Args:
        reader: the serde.
    """

    def __init__(self, reader: Serde[Any]) -> None:
        self._serde = reader
        columns = self._columns
        self.type = pa.string() if columns is None else columns.type

    @property
    def _columns(self) -> ColumnSerde | None:
        """The serde that reads whole columns: JSON is read as text; None for serdes that Arrow does not know."""
        return column_serde(STRING if self._serde is JSON else self._serde)

    def read(self, data: Sequence[bytes]) -> Any:
        columns = self._columns
        if columns is None:
            return pa.array([_TEXT.serialize(self._serde.deserialize(one)).decode() for one in data], pa.string())
        try:
            return columns.read(pa.array(data, pa.binary()))
        except pa.ArrowInvalid as error:
            for one in data:
                self._serde.deserialize(one)
            raise SerdeError(f"the {self._serde.name} serde cannot read a column: {error}") from error

    def to_bytes(self, key: Any) -> bytes:
        return self._serde.serialize(key)

    def pack(self, value: Any) -> bytes:
        shown_as_json = self._columns is None or self._serde is JSON
        return self._serde.serialize(self.parse(value) if shown_as_json and isinstance(value, str) else value)

    def parse(self, text: str) -> Any:
        read = _FROM_TEXT.get(self._serde.name, json.loads)
        try:
            return read(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRowError(
                f"{text!r} is no value of the {self._serde.name} serde ({error}); give text, a number, bytes in "
                "hexadecimal digits, or else JSON"
            ) from error


def shown(name: str, given: Serde[Any] | None) -> KeyColumn:
    """Return the column for values of the serde of that name.

    Args:
        name: of the serde.
        given: the serde itself, if the user gave it; then it is used even if it is unknown here, or dangerous.
    """
    if given is not None:
        return SerdeColumn(given)
    known = name in _READABLE or name.startswith("struct<")
    return SerdeColumn(serde(name) if known else BYTES)

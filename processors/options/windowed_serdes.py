"""The bytes of windowed keys: as in Kafka Streams' topics.

The layouts::

    window     key place (8 bytes, big-endian, signed)
    session    key end (8 bytes, big-endian, signed) start (8 bytes, big-endian, signed)

The place of a window is its start. All windows of a table have the same size, or are of one calendar, so their ends are
not stored. For cumulative windows, which start together, it is the start of the last step.
"""

import struct
from typing import Final, Generic, TypeVar

from millpond.errors import SerdeError
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.windows.grids import EvenGrid, Grid
from millpond.stores.typed.windows.windowed import SESSION_WINDOWED, TIME_WINDOWED, Windowed

K = TypeVar("K")

_ONE: Final = struct.Struct(">q")
_TWO: Final = struct.Struct(">qq")


class TimeWindowedSerde(Serde[Windowed[K]], Generic[K]):
    """Keys of windows of a fixed size, of a calendar, or cumulative ones.

    Args:
        key_serde: the serde of the keys without their windows.
        size: milliseconds from a window's start to its end.
        grid: the grid of windows, if they are not all of that size; none is longer.

    Raises:
        SerdeError: a value is no ``Windowed`` of this size, or bytes are too short.

    >>> from millpond.stores.encoding.serdes import STRING
    >>> TimeWindowedSerde(STRING, 10).deserialize(TimeWindowedSerde(STRING, 10).serialize(Windowed("a", 20, 30)))
    Windowed(key='a', start=20, end=30)
    """

    name = TIME_WINDOWED

    def __init__(self, key_serde: Serde[K], size: int, grid: Grid | None = None) -> None:
        self.key_serde = key_serde
        self._grid: Grid = EvenGrid(size) if grid is None else grid

    def serialize(self, value: Windowed[K]) -> bytes:
        _check_windowed(value)
        place = self._grid.place(value.start, value.end)
        start, end = self._grid.begin(place), self._grid.end(place)
        if (start, end) != value[1:]:
            raise SerdeError(
                f"{value} is no window of {end - start} ms; give the serde the size of its table's windows"
            )
        return self.key_serde.serialize(value.key) + _ONE.pack(place)

    def deserialize(self, data: bytes) -> Windowed[K]:
        _check_size(data, _ONE.size)
        (place,) = _ONE.unpack_from(data, len(data) - _ONE.size)
        key = self.key_serde.deserialize(data[: -_ONE.size])
        return Windowed(key, self._grid.begin(place), self._grid.end(place))


class SessionWindowedSerde(Serde[Windowed[K]], Generic[K]):
    """Keys of sessions.

    Args:
        key_serde: the serde of the keys without their sessions.

    Raises:
        SerdeError: a value is no ``Windowed``, or bytes are too short.
    """

    name = SESSION_WINDOWED

    def __init__(self, key_serde: Serde[K]) -> None:
        self.key_serde = key_serde

    def serialize(self, value: Windowed[K]) -> bytes:
        _check_windowed(value)
        return self.key_serde.serialize(value.key) + _TWO.pack(value.end, value.start)

    def deserialize(self, data: bytes) -> Windowed[K]:
        _check_size(data, _TWO.size)
        end, start = _TWO.unpack_from(data, len(data) - _TWO.size)
        return Windowed(self.key_serde.deserialize(data[: -_TWO.size]), start, end)


def _check_windowed(value: object) -> None:
    if not isinstance(value, Windowed):
        raise SerdeError(
            f"{value!r} is no windowed key; if an operator gives a windowed table other keys, name their serde: "
            "select_key(..., key_serde=...), or Grouped(key_serde=...)"
        )


def _check_size(data: bytes, least: int) -> None:
    if len(data) < least:
        raise SerdeError(f"{data!r} is too short for a windowed key")

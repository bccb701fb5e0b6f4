"""The rows of an aggregate's store: the states of its calls, each in a place of its own that no other call ever gets.

Rule of this module: it knows places, and no function. A call that is added later has the next place, behind all that
there ever were, so rows from before are shorter; it begins there as if no value had come. A call that is gone leaves
its place behind, in which later rows have nil. So no row is written anew because the calls have changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.stores.encoding.column_serdes import ColumnarSerde, ColumnSerde
from millpond.stores.encoding.rows.msgpack_columns import array_lengths, unpack_columns
from millpond.stores.encoding.rows.physical import null_mask
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde

_UNPACKABLE: Final = (TypeError, ValueError, OverflowError, AttributeError)
_UNREADABLE: Final = (TypeError, ValueError, msgpack.UnpackException)


@dataclass(frozen=True)
class Slots:
    """The places in a row of the states of calls. Travels to the workers.

    Attributes:
        name: the serde's name, which says with which calls the state began; it never changes.
        places: the places of the calls, in their order.
        shortest: how many states the shortest rows have.
        longest: how many the rows have that are written now.
    """

    name: str
    places: tuple[int, ...]
    shortest: int
    longest: int

    @classmethod
    def first(cls, name: str, calls: int) -> "Slots":
        """Return the places in a state that begins with so many calls."""
        return cls(name, tuple(range(calls)), calls, calls)

    @property
    def plain(self) -> bool:
        """True if rows have the states of the calls and nothing else."""
        return self == Slots.first(self.name, len(self.places))


class StateSerde(ColumnarSerde[list[Any]]):
    """The states of several functions, in the order of the calls: a MessagePack array of them, each in its place.

    Args:
        slots: the place of each.
        states: the struct of the states.
        initial: the state of each before any value.
    """

    def __init__(self, slots: Slots, states: pa.StructType, initial: Sequence[Any]) -> None:
        self.name = slots.name
        self._slots = slots
        self._states = states
        self._initial = initial
        self._plain = slots.plain
        self._pack = msgpack.Packer(default=_compact).pack

    def __reduce__(self) -> tuple[type["StateSerde"], tuple[Slots, pa.StructType, Sequence[Any]]]:
        return StateSerde, (self._slots, self._states, self._initial)

    @property
    def columns(self) -> ColumnSerde:
        return RowColumnSerde(self._states) if self._plain else PlacedStates(self, self._states)

    def serialize(self, value: list[Any]) -> bytes:
        try:
            packed: bytes = self._pack(value if self._plain else self.placed(value))
        except _UNPACKABLE as error:
            raise SerdeError(f"{value!r} is no state of {self.name}: {error}") from error
        return packed

    def deserialize(self, data: bytes) -> list[Any]:
        slots = self._slots
        try:
            states = msgpack.unpackb(data)
        except _UNREADABLE as error:
            raise SerdeError(f"{data!r} is no state of {self.name}: {error}") from error
        if states.__class__ is not list or not slots.shortest <= len(states) <= slots.longest:
            parts = slots.longest if slots.shortest == slots.longest else f"{slots.shortest} to {slots.longest}"
            raise SerdeError(f"{states!r} is no state of {self.name}, which has {parts} parts")
        if self._plain:
            found: list[Any] = states
            return found
        there = len(states)
        return [
            states[place] if place < there else initial
            for place, initial in zip(slots.places, self._initial, strict=True)
        ]

    def placed(self, states: Sequence[Any], nothing: Any = None) -> list[Any]:
        """Return states in the order of the calls, each in its place; ``nothing`` where no call has one."""
        row = [nothing] * self._slots.longest
        for place, state in zip(self._slots.places, states, strict=True):
            row[place] = state
        return row

    def with_added(self, row: bytes, states: Mapping[int, Any]) -> bytes:
        """Return a row with states of later calls, by their places; what it has stays as it is, bit for bit.

        Raises:
            SerdeError: it is no row, or has something in one of these places.
        """
        unpacker = msgpack.Unpacker()
        unpacker.feed(row)
        try:
            length = unpacker.read_array_header()
        except _UNREADABLE as error:
            raise SerdeError(f"{row!r} is no state of {self.name}: {error}") from error
        if length > min(states):
            raise SerdeError(f"{row!r} has {length} states, and the place {min(states)} is to get one")
        others = dict(zip(self._slots.places, self._initial, strict=True))
        behind = [{**others, **states}.get(place) for place in range(length, self._slots.longest)]
        header: bytes = msgpack.Packer().pack_array_header(self._slots.longest)
        return b"".join([header, row[unpacker.tell() :], *map(self._pack, behind)])

    def fields(self, rows: Any, types: Sequence[pa.DataType]) -> list[Any]:
        """Return the states of rows, a column for each call, of these types.

        Raises:
            pyarrow.ArrowInvalid: some rows are invalid, or can only be read one by one.
        """
        lengths = array_lengths(rows)
        found = np.unique(lengths)
        if len(found) and not self._slots.shortest <= found[0] <= found[-1] <= self._slots.longest:
            raise pa.ArrowInvalid(f"a row does not have {self._slots.shortest} to {self._slots.longest} states")
        if len(found) < 2:
            return self._of_length(rows, int(found[0]) if len(found) else self._slots.longest, types)
        places = [np.flatnonzero(lengths == length) for length in found]
        parts = [
            self._of_length(rows.take(pa.array(some)), int(length), types)
            for length, some in zip(found, places, strict=True)
        ]
        order: Any = pa.array(np.argsort(np.concatenate(places)))
        return [pa.concat_arrays(columns).take(order) for columns in zip(*parts, strict=True)]

    def _of_length(self, rows: Any, length: int, types: Sequence[pa.DataType]) -> list[Any]:
        """Return the same for rows of one length."""
        columns = unpack_columns(rows, self.placed(types)[:length])
        return [
            columns[place] if place < length else pa.array([initial] * len(rows), type_)
            for place, initial, type_ in zip(self._slots.places, self._initial, types, strict=True)
        ]


class PlacedStates(RowColumnSerde):
    """Does for whole columns what the serde does, where rows have more or other places than there are calls."""

    def __init__(self, serde: StateSerde, states: pa.StructType) -> None:
        super().__init__(states)
        self._serde = serde

    def _write(self, column: Any) -> Any:
        structs = column.storage
        states = [structs.field(place) for place in range(structs.type.num_fields)]
        placed = self._serde.placed(states, pa.nulls(len(structs)))
        fields = [pa.field(str(place), state.type) for place, state in enumerate(placed)]
        mask: Any = pa.array(null_mask(structs))
        rows = pa.StructArray.from_arrays(placed, fields=fields, mask=mask)
        return RowColumnSerde(rows.type).write(PhysicalRowType.of(rows))

    def _values(self, row: bytes) -> Any:
        return self._serde.deserialize(row)

    def _fields(self, rows: Any, types: Sequence[pa.DataType]) -> list[Any]:
        return self._serde.fields(rows, types)


def _compact(state: Any) -> bytes:
    """Return a sketch's bytes: nothing else in a state is unknown to MessagePack."""
    packed: bytes = state.serialize_compact()
    return packed

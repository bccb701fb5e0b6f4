"""The state of a key of ``over``: the states of its calls, and the arguments of rows that the next one may reach.

It is a row of places (``millpond.processors.verbs.encoding.state_serde``). The first has the times of those rows, the
oldest first. Each call has two places of its own behind it, one for the state after the key's last row and one for the
arguments, which no other call ever gets. Arguments are of the last rows that count for the call: a call that was added
later has fewer of them than there are times.

Rule of this module: it knows the places, and no frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.processors.runtime.late import Integers
from millpond.processors.verbs.encoding.state_serde import PlacedStates, Slots, StateSerde
from millpond.processors.verbs.functions.columns import listed, lists_of
from millpond.processors.verbs.functions.distances import Booleans
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.rows.row_columns import PhysicalRowType

_TIMES: Final = pa.field("times", pa.list_(pa.field("item", pa.int64(), nullable=False)))


class OverStateSerde(StateSerde):
    """The serde of a key's state: a MessagePack array of its places.

    Args:
        slots: the places of everything.
        fields: the struct of the times, the states, and the arguments.
        initial: the value of each before any row.
        reaching: how many of the last fields are arguments.
    """

    def __init__(self, slots: Slots, fields: pa.StructType, initial: Sequence[Any], reaching: int) -> None:
        super().__init__(slots, fields, initial)
        self._given = slots, fields, initial, reaching

    def __reduce__(self) -> Any:
        return OverStateSerde, self._given

    @property
    def columns(self) -> ColumnSerde:
        _, fields, _, reaching = self._given
        return _KeptColumns(self, fields, reaching)

    def deserialize(self, data: bytes) -> list[Any]:
        try:
            self.columns.read(pa.array([data], pa.binary()))
        except pa.ArrowInvalid as error:
            raise SerdeError(f"{data!r} is no state of {self.name}: {error}") from error
        return super().deserialize(data)


class _KeptColumns(PlacedStates):
    """Reads and writes whole columns, and refuses rows in which a call has more arguments than there are times."""

    def __init__(self, serde: StateSerde, fields: pa.StructType, reaching: int) -> None:
        super().__init__(serde, fields)
        self._reaching = reaching

    def _values(self, row: bytes) -> Any:
        return StateSerde.deserialize(self._serde, row)

    def _read(self, data: Any) -> Any:
        rows = super()._read(data)
        times, *others = rows.storage.drop_null().flatten()
        counts = listed(times)[1]
        if any((listed(one)[1] > counts).any() for one in others[len(others) - self._reaching :]):
            raise pa.ArrowInvalid("there are more arguments than rows")
        return rows


@dataclass(frozen=True)
class OverState:
    """The form of a key's state. Travels to the workers.

    Attributes:
        slots: the places of the calls.
        states: by the positions of the calls that aggregate, the types of their states.
        initial: by the same, the states before any row.
        arguments: by the positions of the calls for which rows are kept, the types of their arguments.
    """

    slots: Slots
    states: Mapping[int, pa.DataType]
    initial: Mapping[int, Any]
    arguments: Mapping[int, pa.DataType]

    @cached_property
    def struct(self) -> pa.StructType:
        """The struct of all."""
        states = [pa.field(f"state {one}", type_) for one, type_ in self.states.items()]
        return pa.struct(
            [_TIMES, *states, *(pa.field(f"of {one}", pa.list_(it)) for one, it in self.arguments.items())]
        )

    @property
    def serde(self) -> OverStateSerde:
        """The serde of this form."""
        places = self.slots.places
        own = [*(1 + 2 * places[one] for one in self.states), *(2 + 2 * places[one] for one in self.arguments)]
        slots = Slots(self.slots.name, (0, *own), 1 + 2 * self.slots.shortest, 1 + 2 * self.slots.longest)
        initial = [[], *(self.initial[one] for one in self.states), *([] for _ in self.arguments)]
        return OverStateSerde(slots, self.struct, initial, len(self.arguments))

    def states_of(self, kept: Any) -> list[Any]:
        """Return the columns of states of some keys."""
        return list(kept.storage.flatten()[1 : 1 + len(self.states)])

    def rows_of(self, kept: Any) -> "KeptRows":
        """Return the rows that are kept of some keys, none of which is null."""
        times, *others = kept.storage.flatten()
        elements, counts = listed(times)
        lists = zip(self.arguments, others[len(self.states) :], strict=True)
        return KeptRows(elements.to_numpy(), counts, {one: listed(column) for one, column in lists})

    def made(self, states: Sequence[Any], rows: "KeptRows") -> Any:
        """Return a column of new states.

        Args:
            states: the columns of states.
            rows: the rows that may be reached.
        """
        times = lists_of(pa.array(rows.times), rows.counts, _TIMES.type, nullable=False)
        lists = [
            lists_of(*rows.arguments[one], pa.list_(type_), nullable=False) for one, type_ in self.arguments.items()
        ]
        return PhysicalRowType.of(pa.StructArray.from_arrays([times, *states, *lists], fields=list(self.struct)))


@dataclass(frozen=True)
class KeptRows:
    """Rows of some keys, key by key, the oldest first.

    Attributes:
        times: the times of the rows.
        counts: how many rows of each key there are.
        arguments: by the positions of calls, the arguments of the last rows of each key, and their numbers.
    """

    times: Integers
    counts: Integers
    arguments: Mapping[int, tuple[Any, Integers]]

    def argument(self, call: int) -> tuple[Any, Booleans]:
        """Return each row's argument for a call, null where it does not count for it, and a mask of rows that count."""
        values, own = self.arguments[call]
        behind = np.arange(len(self.times)) - np.repeat(self.counts.cumsum() - self.counts, self.counts)
        places = behind - np.repeat(self.counts - own, self.counts)
        counting: Booleans = places >= 0
        places += np.repeat(own.cumsum() - own, self.counts)
        return values.take(pa.array(places, mask=~counting)), counting

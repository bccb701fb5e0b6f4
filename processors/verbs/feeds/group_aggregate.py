"""``GroupAggregate``: calls over rows that come and go, behind the number of rows that there are.

Rule of this module: a call has one place for ever, in states and in rows alike. The first place of a state has the
number of rows, and that of a row its time. Rows from before a call was added are shorter: they are not its rows, so
they do not leave a group that they have not joined.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.processors.verbs.aggregates import AggregateCall, count
from millpond.processors.verbs.encoding.state_serde import Slots
from millpond.processors.verbs.functions.function import without_notes
from millpond.processors.verbs.functions.row_fold import MOMENTS, TIMES
from millpond.processors.verbs.kept_calls import KeptCall
from millpond.processors.verbs.row_aggregate import RowAggregate, check_any
from millpond.stores.encoding.keys import unpack_time
from millpond.stores.encoding.rows.physical import from_physical

MEMBERS: Final = "millpond_members"
"""The result, which nobody sees, that says how many rows a group has."""


class GroupAggregate(RowAggregate):
    """Several calls as one aggregation of rows that come and go. Can be pickled.

    Args:
        calls: by the name of the result's column, in the order of the columns.
        types: by the same names, the types of the values that rows bring for the calls.
        ordered: whether rows have, in place of their time, bytes that compare as their times and orders do.
        slots: the places of the calls' states; None if there have never been others, and they are in order.

    Raises:
        ConfigurationError: there are no calls, there is no such function, or it does not take the type.
    """

    def __init__(
        self,
        calls: Mapping[str, AggregateCall],
        types: Mapping[str, pa.DataType],
        *,
        ordered: bool = False,
        slots: Slots | None = None,
    ) -> None:
        check_any(calls)
        behind = None if slots is None else _behind_one(slots)
        super().__init__({MEMBERS: count(), **calls}, types, ordered=ordered, slots=behind, reversible=True)
        self.ordered = ordered

    def kept(
        self,
        arguments: Mapping[str, str],
        conditions: Mapping[str, str] | None = None,
        seconds: Mapping[str, str] | None = None,
    ) -> dict[str, KeptCall]:
        return {name: call for name, call in super().kept(arguments, conditions, seconds).items() if name != MEMBERS}

    def placed(self, moments: Any, values: Mapping[str, Any]) -> list[Any]:
        """Return the columns of rows, each in its place: their times, and their values for the calls.

        Args:
            moments: the times.
            values: by the names of results, the values for the calls that take some; for any other, a row brings true.
        """
        size = len(moments)
        columns = [moments, *[pa.nulls(size)] * (self.slots.longest - 1)]
        for name in self.schema.names[1:]:
            columns[self._places[name]] = values[name] if name in values else pa.repeat(True, size)
        return columns

    @property
    def values(self) -> pa.Schema:
        """The values of rows for each call: true for a call that takes no values."""
        taken = {one.name: one for one in self.arguments}
        return pa.schema([taken.get(name, pa.field(name, pa.bool_())) for name in self.schema.names[1:]])

    def values_of(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the columns of ``values``; null where a row does not count for a call."""
        places = self._places
        found = [(places[one.name], one.type) for one in self.values]
        return [
            from_physical([row[place] if place < len(row) else None for row in rows], type_) for place, type_ in found
        ]

    @property
    def row_types(self) -> list[pa.DataType | None]:
        """The types of what whole rows have in their places; None where no call has one."""
        types: list[pa.DataType | None] = [None] * self.slots.longest
        types[0] = MOMENTS if self.ordered else TIMES
        for one in self.values:
            types[self._places[one.name]] = without_notes(one.type)
        return types

    @staticmethod
    def times_of(rows: Sequence[Sequence[Any]]) -> list[int]:
        """Return the times of rows, in microseconds."""
        return [unpack_time(row[0], 0) if isinstance(row[0], bytes) else row[0] for row in rows]

    @property
    def _places(self) -> Mapping[str, int]:
        """The place of each call's value in rows."""
        return dict(zip(self.schema.names, self.slots.places, strict=True))


def _behind_one(slots: Slots) -> Slots:
    """Return the same places, each one further."""
    return Slots(slots.name, (0, *(1 + place for place in slots.places)), 1 + slots.shortest, 1 + slots.longest)

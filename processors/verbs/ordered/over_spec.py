"""``OverSpec``: the results of each row of an ``over``, and the state of a key for them.

The state of a key has the results of its last row, which is all that a frame from the beginning needs, and the
arguments of the rows before the next one that a shorter frame or a ``lag`` may reach (``over_state``).

Rule of this module: it knows types, states and how they merge, and no order of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import MissingArgumentError
from millpond.processors.aggregations.column_fold import ColumnFold, Groups, MergingFold
from millpond.processors.runtime.late import Integers
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import LAG
from millpond.processors.verbs.binding import state_name
from millpond.processors.verbs.encoding.state_serde import Slots
from millpond.processors.verbs.functions.distances import Booleans
from millpond.processors.verbs.functions.function import without_notes
from millpond.processors.verbs.functions.row_fold import TIMES, rows_type
from millpond.processors.verbs.kept_calls import KeptCall
from millpond.processors.verbs.ordered.over_state import OverState, OverStateSerde
from millpond.processors.verbs.row_aggregate import STATE_VERSION, RowAggregate
from millpond.processors.verbs.rows_in_time import InTime
from millpond.processors.verbs.verb import nullable
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.physical import normalized
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

STORE: Final = "over"
"""The store with what each key's last row came out with."""
NO_ARGUMENT: Final = pa.bool_()
"""The type in the place of an argument where rows bring none for a call; all are null."""

_NAME: Final = f"over-state-1: aggregate-state-{STATE_VERSION}: "
"""The beginning of the name of the serde of states; behind it are the calls with which they begin."""


@dataclass(frozen=True)
class Frame:
    """The rows of a key that count for each row.

    Attributes:
        rows: how many at most, the row itself included; None for any number.
        within: how much earlier they are at most, in microseconds; None for any time.
    """

    rows: int | None = None
    within: int | None = None

    @property
    def whole(self) -> bool:
        """True if all rows count that came before it."""
        return self.rows is None and self.within is None


class Calls:
    """The results, and the arguments of rows for them. Travels to the workers.

    Args:
        calls: by the names of results, in the order of the columns.
        types: by the same names, the types of the values that rows bring; ``count()`` has none.
        slots: the places of the calls in kept rows; None if nothing else is kept, and they are in order.

    Attributes:
        aggregate: the calls that aggregate; None if there are none.
        lags: by name, how many rows back each of the others looks.
        positions: the positions of all calls, by name.
        arguments: by name, the columns that rows bring, in their one form.
        schema: the results.
        slots: the places of the calls in kept rows.
    """

    def __init__(
        self, calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType], *, slots: Slots | None = None
    ) -> None:
        if not calls:
            raise MissingArgumentError(
                "there is nothing to show of the rows before each; give at least one call, such as {'n': count()}"
            )
        self.lags = {name: int(call.options["offset"]) for name, call in calls.items() if call.function == LAG}
        self.positions = {name: position for position, name in enumerate(calls)}
        aggregated = {name: call for name, call in calls.items() if name not in self.lags}
        self.aggregate = RowAggregate(aggregated, types) if aggregated else None
        found = {name: normalized(types[name], name) for name in self.lags}
        results = {} if self.aggregate is None else {one.name: one for one in self.aggregate.schema}
        results |= {name: pa.field(name, type_) for name, type_ in found.items()}
        of_aggregate = [] if self.aggregate is None else list(self.aggregate.arguments)
        self.arguments = pa.schema([*of_aggregate, *(pa.field(name, type_) for name, type_ in found.items())])
        self.schema = nullable(pa.schema([results[name] for name in calls]))
        kept = {} if self.aggregate is None else self.aggregate.kept({})
        lags = {name: state_name(calls[name], type_) for name, type_ in found.items()}
        self._states = {name: lags[name] if name in lags else kept[name].state for name in calls}
        self.slots = slots or Slots.first(f"{_NAME}{'; '.join(self._states.values())}", len(calls))

    def kept(
        self, arguments: Mapping[str, str], conditions: Mapping[str, str], seconds: Mapping[str, str]
    ) -> dict[str, KeptCall]:
        """Return the calls as they are kept, with arguments and conditions as text."""
        return {
            name: KeptCall(state, arguments.get(name), where=conditions.get(name), second=seconds.get(name))
            for name, state in self._states.items()
        }

    @property
    def aggregated(self) -> list[int]:
        """The positions of the calls that aggregate."""
        return [position for name, position in self.positions.items() if name not in self.lags]

    @property
    def initial(self) -> list[Any]:
        """The states of the calls that aggregate, before any row."""
        return [] if self.aggregate is None else self.aggregate.initializer()

    @property
    def states(self) -> pa.StructType:
        """The struct of the states of the calls that aggregate."""
        if self.aggregate is None:
            return pa.struct([])
        result: Any = self._fold.result
        struct: pa.StructType = result.storage_type
        return struct

    @property
    def _fold(self) -> MergingFold:
        assert self.aggregate is not None
        fold: ColumnFold | None = self.aggregate.aggregation.columns
        assert isinstance(fold, MergingFold)
        return fold

    def alone(self, keys: Any, columns: Sequence[Any]) -> Any:
        """Return the states of single rows.

        Args:
            keys: the keys of the rows; for errors.
            columns: their times, and then their arguments.

        Raises:
            RecordError: a result leaves its type.
        """
        assert self.aggregate is not None
        serde = self.aggregate.input_serde
        fields = list(rows_type(self.aggregate.arguments.types, TIMES))
        values = PhysicalRowType.of(pa.StructArray.from_arrays(columns[: len(fields)], fields=fields))
        nothing = PhysicalRowType.of(pa.nulls(len(keys), self.states))
        try:
            return self._fold.totals(Groups(keys, np.arange(len(keys))), values, nothing)
        except pa.ArrowInvalid:
            begin, add = self.aggregate.initializer, self.aggregate.aggregator
            rows = map(serde.deserialize, serde.columns.write(values).to_pylist())
            return self._as_column([add(key, row, begin()) for key, row in zip(keys.to_pylist(), rows, strict=True)])

    def merged(self, older: Any, newer: Any) -> Any:
        """Return the states of the rows of both, for each.

        Raises:
            RecordError: a result leaves its type.
        """
        assert self.aggregate is not None
        numbers = np.arange(len(older))
        try:
            both = Groups(pa.array(numbers), np.concatenate([numbers, numbers]))
            return self._fold.merged(both, pa.concat_arrays([older, newer]))
        except pa.ArrowInvalid:
            serde = self.aggregate.state_serde
            sides = [map(serde.deserialize, serde.columns.write(side).to_pylist()) for side in (older, newer)]
            return self._as_column([self.aggregate.merger(None, *pair) for pair in zip(*sides, strict=True)])

    def _as_column(self, states: Sequence[Any]) -> Any:
        assert self.aggregate is not None
        serde = self.aggregate.state_serde
        return serde.columns.read(pa.array([serde.serialize(state) for state in states], pa.binary()))


@dataclass(frozen=True)
class OverSpec(InTime):
    """The parameters of the operator.

    Attributes:
        calls: the results.
        arguments: by their names, the columns of the rows with the arguments.
        rows: reads the rows.
        frame: the rows that count.
        ttl: the time without a row after which a key begins anew, in microseconds; None for never.
    """

    calls: Calls = field(compare=False)
    arguments: Mapping[str, str] = field(compare=False)
    rows: RowCodec = field(compare=False)
    frame: Frame
    ttl: int | None

    @property
    def deepest(self) -> int:
        """The number of rows before the next one that are needed."""
        framed_rows = 0 if self.frame.rows is None or self.calls.aggregate is None else self.frame.rows - 1
        return max([framed_rows, *self.calls.lags.values()])

    @property
    def state(self) -> OverState:
        """The form of a key's state."""
        calls, positions = self.calls, self.calls.aggregated
        types = {calls.positions[one.name]: without_notes(one.type) for one in calls.arguments}
        reaching = [calls.positions[name] for name in calls.lags]
        reaching += [] if self.frame.whole else positions
        return OverState(
            calls.slots,
            dict(zip(positions, [one.type for one in calls.states], strict=True)),
            dict(zip(positions, calls.initial, strict=True)),
            {position: types.get(position, NO_ARGUMENT) for position in sorted(reaching)},
        )

    @property
    def state_serde(self) -> OverStateSerde:
        """The serde of a key's state."""
        return self.state.serde

    @property
    def lives(self) -> int | None:
        """The time for which a key's state may count after its last row, in microseconds; None for ever."""
        if self.ttl is not None or self.frame.within is None or self.calls.lags:
            return self.ttl
        return self.frame.within

    def far(self, earlier: Integers, later: Integers) -> Booleans:
        """Return a mask of these times that are so much later than the other ones that nothing earlier counts."""
        if self.lives is None:
            return np.zeros(len(later), np.bool_)
        far: Booleans = later > np.minimum(earlier, MAX_TIME - self.lives) + self.lives
        return far

    @property
    def stores(self) -> list[StoreSpec]:
        """The store of states, whose clock is the watermark, and the store of rows that wait."""
        ttl = None if self.lives is None else min(self.lives + 1, MAX_TIME)
        kept = StoreSpec(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, self.state_serde, ttl=ttl)
        return [kept, self.buffer.store_spec]

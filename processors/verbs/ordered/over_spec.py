"""``OverSpec``: what each row of an ``over`` gets, and what is kept of a key for it.

Of each key the state has what its last row came out with, which is all that a frame from the beginning needs, and the
arguments of those rows before the next one that a shorter frame or a ``lag`` may reach.

Rule of this module: it knows types, states and how they merge, and no order of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import ConfigurationError, SerdeError
from millpond.processors.aggregations.column_fold import ColumnFold, Groups, MergingFold
from millpond.processors.runtime.late import Integers
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import LAG
from millpond.processors.verbs.functions.distances import Booleans
from millpond.processors.verbs.functions.function import without_notes
from millpond.processors.verbs.functions.row_fold import TIMES, rows_type
from millpond.processors.verbs.ordered.rows_in_time import InTime
from millpond.processors.verbs.row_aggregate import InputSerde, RowAggregate
from millpond.processors.verbs.verb import nullable
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.physical import normalized
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.encoding.times import MAX_TIME
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

STORE: Final = "over"
"""The store with what each key's last row came out with."""


@dataclass(frozen=True)
class Frame:
    """Which rows of a key count for each row.

    Attributes:
        rows: how many at most, itself included; None for any number.
        within: how much earlier they are at most, in microseconds; None for any time.
    """

    rows: int | None = None
    within: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all rows count that came before it."""
        return self.rows is None and self.within is None


class Calls:
    """The results, and what rows bring for them. Travels to the workers.

    Args:
        calls: by the names of results, in the order of the columns.
        types: by the same names, the types of the values that rows bring; ``count()`` has none.

    Attributes:
        aggregate: those that aggregate; None if there are none.
        lags: of the others by name, how many rows before it each looks.
        arguments: by name, the columns that rows bring, in their one form.
        schema: the results.
    """

    def __init__(self, calls: Mapping[str, AggregateCall], types: Mapping[str, pa.DataType]) -> None:
        if not calls:
            raise ConfigurationError(
                "there is nothing to show of the rows before each; give at least one call, such as {'n': count()}"
            )
        self.lags = {name: int(call.options["offset"]) for name, call in calls.items() if call.function == LAG}
        aggregated = {name: call for name, call in calls.items() if name not in self.lags}
        self.aggregate = RowAggregate(aggregated, types) if aggregated else None
        found = {name: normalized(types[name], name) for name in self.lags}
        results = {} if self.aggregate is None else {one.name: one for one in self.aggregate.schema}
        results |= {name: pa.field(name, type_) for name, type_ in found.items()}
        of_aggregate = [] if self.aggregate is None else list(self.aggregate.arguments)
        self.arguments = pa.schema([*of_aggregate, *(pa.field(name, type_) for name, type_ in found.items())])
        self.schema = nullable(pa.schema([results[name] for name in calls]))

    @property
    def states(self) -> pa.StructType:
        """The struct of the states of those that aggregate."""
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
        """The states that rows bring, each alone.

        Args:
            keys: of the rows; for errors.
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
        """The states of the rows of both, for each.

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


class StateSerde(InputSerde):
    """What is kept of a key: the states of its last row, and rows before the next one, each with its time.

    Args:
        name: says all that the bytes depend on.
        rows: the struct of both.
    """

    def __init__(self, name: str, rows: pa.DataType) -> None:
        super().__init__(rows)
        self.name = name

    def __reduce__(self) -> Any:
        return StateSerde, (self.name, self._rows)

    def deserialize(self, data: bytes) -> tuple[Any, ...]:
        try:
            self.columns.read(pa.array([data], pa.binary()))
        except pa.ArrowInvalid as error:
            raise SerdeError(f"{data!r} is no state of {self.name}: {error}") from error
        return super().deserialize(data)

    @property
    def struct(self) -> pa.StructType:
        """The struct of both."""
        assert isinstance(self._rows, pa.StructType)
        return self._rows


@dataclass(frozen=True)
class OverSpec(InTime):
    """What the operator needs to know.

    Attributes:
        calls: the results.
        arguments: by their names, the columns of the rows with the arguments.
        rows: reads the rows.
        frame: which rows count.
        ttl: after how long without a row a key begins anew, in microseconds; None for never.
    """

    calls: Calls = field(compare=False)
    arguments: Mapping[str, str] = field(compare=False)
    rows: RowCodec = field(compare=False)
    frame: Frame
    ttl: int | None

    @property
    def deepest(self) -> int:
        """How many rows before the next one are needed, by number."""
        framed_rows = 0 if self.frame.rows is None or self.calls.aggregate is None else self.frame.rows - 1
        return max([framed_rows, *self.calls.lags.values()])

    @property
    def kept_rows(self) -> pa.StructType:
        """The struct of a row that is kept: its time, and the arguments in their order."""
        arguments = [pa.field(str(place), without_notes(one.type)) for place, one in enumerate(self.calls.arguments)]
        return pa.struct([pa.field("time", pa.int64()), *arguments])

    @property
    def state_serde(self) -> StateSerde:
        """How the state of a key is kept."""
        rows = pa.list_(pa.field("item", self.kept_rows, nullable=False))
        states = "" if self.calls.aggregate is None else self.calls.aggregate.state_serde.name
        lags = ", ".join(f"{name} {offset}" for name, offset in self.calls.lags.items())
        name = f"over-state-1: {states}; lags {lags}; rows {self.kept_rows}"
        return StateSerde(name, pa.struct([pa.field("states", self.calls.states), pa.field("rows", rows)]))

    @property
    def lives(self) -> int | None:
        """How long what is kept of a key may still count after its last row, in microseconds; None for ever."""
        if self.ttl is not None or self.frame.within is None or self.calls.lags:
            return self.ttl
        return self.frame.within

    def far(self, earlier: Integers, later: Integers) -> Booleans:
        """Which of these times are so much later than the other ones that nothing counts of what was before."""
        if self.lives is None:
            return np.zeros(len(later), np.bool_)
        far: Booleans = later > np.minimum(earlier, MAX_TIME - self.lives) + self.lives
        return far

    @property
    def stores(self) -> list[StoreSpec]:
        """The store of states, whose clock is the watermark, and the one of what waits."""
        ttl = None if self.lives is None else min(self.lives + 1, MAX_TIME)
        kept = StoreSpec(STORE, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, self.state_serde, ttl=ttl)
        return [kept, self.buffer.store_spec]

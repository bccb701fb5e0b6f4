"""Table-table join: each update of one side looks up the other's latest value (KIP-77).

A row for which the joiner fails is not in the joined table, if such records are to be left out.

The result's timestamp is the larger of the two. A row that has no result and had none gets no tombstone. KIP-914: an
update of a versioned side that is not its key's latest makes no result; each side may be versioned or not.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.value_getters import ValueGetter, ValueGetterFactory
from millpond.processors.tables.value_operator import readable
from millpond.processors.tables.writer import TableProcessor
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

Joiner = Callable[[Any, Any, Any], Any]
"""``joiner(key, left, right)``."""


class TableTableJoin(Processor):
    """One side of a join: takes that side's updates and looks up the other.

    Args:
        other: the other side's value getter.
        joiner: called with the key, the left and the right value.
        join_type: which sides may be missing.
        side: which side this is.
        versioned: whether this side is versioned.
        result: the configuration of the joined table, which says whether old results are needed.
    """

    def __init__(
        self,
        other: ValueGetterFactory,
        joiner: Joiner,
        join_type: JoinType,
        *,
        side: Side,
        versioned: bool,
        result: TableConfig,
    ) -> None:
        self._other = other
        self._joiner = joiner
        self._join_type = join_type
        self._side = side
        self._versioned = versioned
        self._result = result

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._getter = self._other.make(context)

    def process(self, batch: Batch) -> None:
        if self._versioned and batch.latest is not None:
            kept = batch.select(batch.latest)
            self.context.count(CounterName.DROPPED_OUT_OF_ORDER, len(batch) - len(kept))
            batch = kept
        self.context.attempt(self._join_all, batch)

    def _join_all(self, batch: Batch) -> None:
        out = BatchBuilder(olds=self._result.send_olds)
        olds = batch.olds or [None] * len(batch)
        found = self._getter.get_many(batch.keys)
        for i, (key, new, old, other) in enumerate(zip(batch.keys, batch.values, olds, found, strict=True)):
            timestamp = batch.timestamps[i]
            if other is None:
                if not self._may_lack_other() or (new is None and old is None):
                    continue
                value = None
            else:
                value = other.value
                timestamp = max(timestamp, other.timestamp)
            before = self._joined_before(key, old, value) if out.olds is not None else None
            try:
                result = self._join(key, new, value)
            except Exception as error:  # a user's code may raise anything
                self.context.leave_out(error, key, new, batch.timestamps[i])
                result = None
            out.add(key, result, timestamp, before, batch.latest_at(i))
        self.context.forward(out.build())

    def _joined_before(self, key: Any, old: Any, other: Any) -> Any:
        try:
            return self._join(key, old, other)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

    def _may_lack_other(self) -> bool:
        return self._join_type.keeps(self._side)

    def _join(self, key: Any, this: Any, other: Any) -> Any:
        left, right = (this, other) if self._side is Side.LEFT else (other, this)
        return self._joiner(key, left, right) if self._join_type.joins(left, right) else None


class JoinedTable(TableProcessor):
    """Where the results of both sides come together; puts them into the store if the joined table has one."""

    repeatable = True

    def process(self, batch: Batch) -> None:
        self._output.write(batch)


class JoinGetter(ValueGetter):
    """Reads a joined table without a store through its two sides. It is never versioned (KIP-914)."""

    def __init__(
        self, left: ValueGetter, right: ValueGetter, joiner: Joiner, join_type: JoinType, context: ProcessorContext
    ) -> None:
        self._left = left
        self._right = right
        self._joiner = joiner
        self._join_type = join_type
        self._joined = readable(self._join, context)

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        return self._joined(key, self._left.get(key), self._right.get(key))

    def _join(self, key: Any, *sides: ValueAndTimestamp[Any] | None) -> ValueAndTimestamp[Any] | None:
        left, right = (None if side is None else side.value for side in sides)
        if not self._join_type.joins(left, right):
            return None
        result = self._joiner(key, left, right)
        timestamp = max(side.timestamp for side in sides if side is not None)
        return None if result is None else ValueAndTimestamp(result, timestamp)

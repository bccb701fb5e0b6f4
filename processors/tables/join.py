"""Table-table join: each update of one side looks up the other's latest value (KIP-77).

A row for which the joiner fails is not in the joined table, if such records are to be left out.

The result's timestamp is the larger of the two. A row that has no result and had none gets no tombstone. KIP-914: an
update of a versioned side that is not its key's latest makes no result; each side may be versioned or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.config import TableConfig
from millpond.processors.tables.latest_only import latest_only
from millpond.processors.tables.table_view import TableView, ViewFactory
from millpond.processors.tables.value_operator import readable
from millpond.processors.tables.writer import TableProcessor
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

Joiner = Callable[[Any, Any, Any], Any]
"""``joiner(key, left, right)``."""


class TableTableJoin(Operator):
    """One side of a join: takes that side's updates and looks up the other.

    Args:
        other: the other side's view.
        joiner: called with the key, the left and the right value.
        join_type: the type of the join.
        side: the side.
        versioned: whether this side is versioned.
        result: the configuration of the joined table, which says whether old results are needed.
    """

    promises = Promises(by_key=True)

    def __init__(
        self,
        other: ViewFactory,
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
        self._view = self._other.make(context)
        self.promises = replace(self.promises, looks_up=dict.fromkeys(self._other.stores, False))

    def process(self, batch: Batch) -> None:
        self.context.attempt(self._join_all, latest_only(self.context, batch, self._versioned))

    def _join_all(self, batch: Batch) -> None:
        found = self._view.get_many(batch.keys)
        changing = self._changing(batch, found)
        if not all(changing):
            batch, found = batch.select(changing), list(compress(found, changing))
        others = [None if other is None else other.value for other in found]
        times = [
            timestamp if other is None or other.timestamp < timestamp else other.timestamp
            for timestamp, other in zip(batch.timestamps, found, strict=True)
        ]
        olds = self._results(batch.keys, batch.olds or [None] * len(batch), others) if self._result.send_olds else None
        news = self._results(batch.keys, batch.values, others, None if self._result.remade else batch)
        self.context.forward(Batch(batch.keys, news, times, olds, batch.latest, batch.positions, batch.headers))

    def _changing(self, batch: Batch, found: list[Any]) -> list[bool]:
        """Return which updates may change a result: those without a match only where this side has results alone."""
        matched = [other is not None for other in found]
        if not self._join_type.keeps(self._side) or all(matched):
            return matched
        olds = batch.olds or [None] * len(batch)
        return [
            match or new is not None or old is not None
            for match, new, old in zip(matched, batch.values, olds, strict=True)
        ]

    def _results(self, keys: list[Any], these: list[Any], others: list[Any], updates: Batch | None = None) -> list[Any]:
        """Return the joined values; None where there is no result, or where the joiner fails and the policy allows it.

        Args:
            keys: the keys.
            these, others: the values of this side and of the other.
            updates: the joined updates; None if they were joined before, so that failures have been counted.
        """
        left, right = (these, others) if self._side is Side.LEFT else (others, these)
        try:
            return self._joined(keys, left, right)
        except Exception:  # a user's code may raise anything
            return [
                self._result_of(key, left[i], right[i], None if updates is None else updates.slice(i, i + 1))
                for i, key in enumerate(keys)
            ]

    def _joined(self, keys: list[Any], left: list[Any], right: list[Any]) -> list[Any]:
        joiner = self._joiner
        no_left, no_right = self._join_type.keeps(Side.RIGHT), self._join_type.keeps(Side.LEFT)
        return [
            joiner(key, one, other)
            if (one is not None or (no_left and other is not None))
            and (other is not None or (no_right and one is not None))
            else None
            for key, one, other in zip(keys, left, right, strict=True)
        ]

    def _result_of(self, key: Any, left: Any, right: Any, update: Batch | None) -> Any:
        try:
            return self._joined([key], [left], [right])[0]
        except Exception as error:  # a user's code may raise anything
            if update is None:
                self.context.check(error)
            else:
                (headers,) = update.headers_of_each
                self.context.leave_out(error, key, update.values[0], update.timestamps[0], headers=headers)
            return None


class JoinedTable(TableProcessor):
    """The node where the results of both sides meet; it puts them into the store if the joined table has one."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config)
        by_key = not config.caching and (config.store is None or not config.versioned)
        self.promises = Promises(repeatable=True, by_key=by_key)

    def process(self, batch: Batch) -> None:
        self._output.write(batch)

    def process_columns(self, columns: Columns) -> None:
        self._output.write_columns(columns)


class JoinView(TableView):
    """Reads a joined table without a store through its two sides. It is never versioned (KIP-914)."""

    def __init__(
        self, left: TableView, right: TableView, joiner: Joiner, join_type: JoinType, context: ProcessorContext
    ) -> None:
        self._left = left
        self._right = right
        self._joiner = joiner
        self._join_type = join_type
        self._joined = readable(self._join, context)

    def get(self, key: Any) -> ValueAndTimestamp[Any] | None:
        return self._joined(key, self._left.get(key), self._right.get(key))

    def get_many(self, keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
        return list(map(self._joined, keys, self._left.get_many(keys), self._right.get_many(keys)))

    def _join(self, key: Any, *sides: ValueAndTimestamp[Any] | None) -> ValueAndTimestamp[Any] | None:
        left, right = (None if side is None else side.value for side in sides)
        if not self._join_type.joins(left, right):
            return None
        result = self._joiner(key, left, right)
        return None if result is None else ValueAndTimestamp(result, latest_of(*sides))


def latest_of(*sides: ValueAndTimestamp[Any] | None) -> int:
    """Return the timestamp of a result of sides of which at least one is there."""
    return max(side.timestamp for side in sides if side is not None)

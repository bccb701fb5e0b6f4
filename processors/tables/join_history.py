"""Table-table join with a complete history: every older result is corrected when an out-of-order record arrives.

KIP-914 calls this "Attempt 2" and leaves it to a later option. Both tables are versioned, so each key has a value at
any time, and so has the joined table: the join of the two values at that time. An update of one side is valid from its
own timestamp to that of the key's next version. In that time the joined table changes whenever the other side does;
each change is forwarded with the time at which it happened. Taken as versioned puts, the results make the joined
table's history, as far as both tables keep theirs.
"""

from dataclasses import replace
from typing import Any

from millpond.processors.options.joins import JoinType, Side
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.join import Joiner, JoinView
from millpond.processors.tables.table_view import ViewFactory
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

_ANY = object()
"""Stands for a value that this side may have had before the update."""


class TableHistoryJoin(Operator):
    """One side of a join with a complete history.

    Args:
        this: this side's view.
        other: the other side's view.
        joiner: called with the key, the left and the right value.
        join_type: the type of the join.
        side: the side.
    """

    promises = Promises(repeatable=True, by_key=True)

    def __init__(
        self, this: ViewFactory, other: ViewFactory, joiner: Joiner, join_type: JoinType, *, side: Side
    ) -> None:
        self._factories = this, other
        self._joiner = joiner
        self._join_type = join_type
        self._side = side

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._this, self._other = (factory.make(context) for factory in self._factories)
        stores = (store for factory in self._factories for store in factory.stores)
        self.promises = replace(self.promises, looks_up=dict.fromkeys(stores, False))

    def process(self, batch: Batch) -> None:
        out = BatchBuilder(positions=batch.positions is not None)
        rows = zip(batch.keys, batch.values, batch.timestamps, batch.headers_of_each, strict=True)
        for i, (key, value, timestamp, out.current) in enumerate(rows):
            self._correct(out, key, value, timestamp, batch.position_at(i))
        self.context.forward(out.build())

    def _correct(self, out: BatchBuilder, key: Any, value: Any, timestamp: int, position: int) -> None:
        """Add the results for the time in which ``value`` is valid, and a deletion at its end if no result follows."""
        until, next_ = self._this.step_after(key, timestamp) or (None, None)
        horizon = self._other.horizon()
        start = timestamp if horizon is None else max(timestamp, horizon)
        if until is not None and until <= start:
            return
        result = None
        steps = self._other.steps(key, start, until)
        for i, (time, other) in enumerate(steps):
            match = None if other is None else other.value
            before, result = result, self._new_result(key, value, match, timestamp, out.current)
            if result is not None or before is not None or self._may_have_stood(other):
                out.add(key, result, time, None, until is None and i == len(steps) - 1, position)
        if until is not None and result is not None:
            at_end = self._other.steps(key, until, until + 1)[0][1]
            if not self._has_result(key, *(None if found is None else found.value for found in (next_, at_end))):
                out.add(key, None, until, None, False, position)

    def _new_result(self, key: Any, this: Any, other: Any, timestamp: int, headers: Headers | None) -> Any:
        try:
            return self._result(key, this, other)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, this, timestamp, headers=headers)
            return None

    def _has_result(self, key: Any, this: Any, other: Any) -> bool:
        try:
            return self._result(key, this, other) is not None
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return False

    def _sides(self, this: Any, other: Any) -> tuple[Any, Any]:
        return (this, other) if self._side is Side.LEFT else (other, this)

    def _stands(self, this: Any, other: Any) -> bool:
        return self._join_type.joins(*self._sides(this, other))

    def _may_have_stood(self, other: Any) -> bool:
        """Return whether there may have been a result with another value of this side."""
        return self._stands(_ANY, other)

    def _result(self, key: Any, this: Any, other: Any) -> Any:
        return self._joiner(key, *self._sides(this, other)) if self._stands(this, other) else None


class JoinHistoryView(JoinView):
    """Reads a joined table with a complete history at any time, through its two sides."""

    versioned = True

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        return self._joined(key, self._left.get_as_of(key, timestamp), self._right.get_as_of(key, timestamp))

    def steps(self, key: Any, earliest: int, until: int | None) -> list[tuple[int, ValueAndTimestamp[Any] | None]]:
        sides = dict(self._left.steps(key, earliest, until)), dict(self._right.steps(key, earliest, until))
        left = right = None
        steps = []
        for time in sorted({*sides[0], *sides[1]}):
            left, right = sides[0].get(time, left), sides[1].get(time, right)
            steps.append((time, self._joined(key, left, right)))
        return steps

    def step_after(self, key: Any, time: int) -> tuple[int, ValueAndTimestamp[Any] | None] | None:
        sides = self._left, self._right
        at = min((step[0] for side in sides if (step := side.step_after(key, time)) is not None), default=None)
        return None if at is None else (at, self._joined(key, *(side.steps(key, at, at + 1)[0][1] for side in sides)))

    def horizon(self) -> int | None:
        known = [horizon for side in (self._left, self._right) if (horizon := side.horizon()) is not None]
        return max(known, default=None)

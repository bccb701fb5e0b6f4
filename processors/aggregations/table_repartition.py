"""Grouping a table by another key: each update becomes changes of the groups that it touches (KIP-904).

A row for which the selector fails belongs to no group, if such records are to be left out.

If the group stays the same, one change carries the old and the new value, so that the group never shows a state between
the two. If it changes, the old value leaves its group first, then the new value joins the other. Groups are the same if
their keys are equal.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.change import Change
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operators.operator import Operator
from millpond.processors.runtime.operators.promises import Promises

Selector = Callable[[Any, Any], tuple[Any, Any]]
"""``selector(key, value) -> (group key, group value)``."""


class TableRepartition(Operator):
    """Makes changes by group out of a table's updates; the values that it forwards are ``Change`` objects.

    Args:
        selector: not called for None; if it returns None as the key or the value, that half of the change is left out.
        versioned: ignore updates that are not the latest of their key: a group is made of latest values (KIP-914).
        separate: always send two changes, which is what releases before KIP-904 understand.
    """

    promises = Promises(repeatable=True)

    def __init__(self, selector: Selector, *, versioned: bool, separate: bool) -> None:
        self._selector = selector
        self._versioned = versioned
        self._separate = separate

    def process(self, batch: Batch) -> None:
        out = BatchBuilder()
        olds = batch.olds or [None] * len(batch)
        rows = zip(batch.keys, batch.values, olds, batch.timestamps, batch.headers_of_each, strict=True)
        for i, (key, value, old_value, timestamp, out.current) in enumerate(rows):
            if self._versioned and not batch.latest_at(i):
                self.context.count(CounterName.DROPPED_OUT_OF_ORDER)
                continue
            new, old = self._select_new(key, value, timestamp, out.current), self._select_old(key, old_value)
            if new is not None and old is not None and not self._separate and new[0] == old[0]:
                out.add(new[0], Change(new[1], old[1]), timestamp)
                continue
            if old is not None:
                out.add(old[0], Change(None, old[1]), timestamp)
            if new is not None:
                out.add(new[0], Change(new[1], None), timestamp)
        self.context.forward(out.build())

    def _select_new(self, key: Any, value: Any, timestamp: int, headers: Headers | None) -> tuple[Any, Any] | None:
        try:
            return self._select(key, value)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp, headers=headers)
            return None

    def _select_old(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        try:
            return self._select(key, value)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

    def _select(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        """The group and the value in it, or None where there is none."""
        if value is None:
            return None
        group, grouped = self._selector(key, value)
        return None if group is None or grouped is None else (group, grouped)

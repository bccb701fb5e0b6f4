"""Grouping a table by another key: each update becomes changes of the groups that it touches (KIP-904).

A row for which the selector fails belongs to no group, if such records are to be left out.

If the group stays the same, one change carries the old and the new value, so that the group never shows a state between
the two. If it changes, the old value leaves its group first, then the new value joins the other. Groups are the same if
their keys are equal.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Array, Columns, nulls, valid
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.change import Change, ChangeType
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises

pc: Any = _compute

Selector = Callable[[Any, Any], tuple[Any, Any]]
"""``selector(key, value) -> (group key, group value)``."""

_Selected = tuple[Any, Any] | None
"""A group and the value in it; None where there is none."""


class ColumnSelector(ABC):
    """A selector that takes whole columns, too."""

    @abstractmethod
    def __call__(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Return groups and values of rows, as a ``Selector`` does."""

    @abstractmethod
    def columns(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Return the same for columns; null for null.

        Raises:
            pyarrow.ArrowInvalid: it fails for a row; then calling it tells for which.
        """


class TableRepartition(Operator):
    """Makes changes by group out of a table's updates; the values that it forwards are ``Change`` objects.

    Args:
        selectors: one for each group that a row is in; not called for None. If one returns None as the key or the
            value, that half of the change is left out.
        versioned: ignore updates that are not the latest of their key: a group is made of latest values (KIP-914).
        separate: always send two changes, which is what releases before KIP-904 understand.
    """

    promises = Promises(repeatable=True)

    def __init__(self, selectors: Sequence[Selector], *, versioned: bool, separate: bool) -> None:
        self._selectors = selectors
        self._versioned = versioned
        self._separate = separate
        by_column = [selector for selector in selectors if isinstance(selector, ColumnSelector)]
        self._by_column = by_column if len(by_column) == len(selectors) and not separate else []

    def process_columns(self, columns: Columns) -> None:
        if not self._by_column or not len(columns):
            self.process(columns.to_batch())
            return
        latest = columns if not self._versioned or columns.latest is None else columns.select(columns.latest)
        try:
            changes = self._changes(latest)
        except pa.ArrowInvalid:
            self.process(columns.to_batch())
            return
        self.context.count(CounterName.DROPPED_OUT_OF_ORDER, len(columns) - len(latest))
        self.context.forward_columns(changes)

    def _changes(self, updates: Columns) -> Columns:
        """Return the changes of groups, update by update, and of each update selector by selector."""
        parts = [part for selector in self._by_column for part in _halves(selector, updates)]
        owners = np.concatenate([np.flatnonzero(there) for _, _, _, there in parts])
        masks: list[Any] = [pa.array(there) for _, _, _, there in parts]
        groups, news, olds = (
            pa.concat_arrays([part[place].filter(mask) for part, mask in zip(parts, masks, strict=True)])
            for place in range(3)
        )
        order = owners.argsort(kind="stable")
        changes = Columns(groups, ChangeType.of_values(news, olds), updates.timestamps[owners])
        return changes.taken(order)

    def process(self, batch: Batch) -> None:
        out = BatchBuilder()
        olds = batch.olds or [None] * len(batch)
        rows = zip(batch.keys, batch.values, olds, batch.timestamps, batch.headers_of_each, strict=True)
        for i, (key, value, old_value, timestamp, out.current) in enumerate(rows):
            if self._versioned and not batch.latest_at(i):
                self.context.count(CounterName.DROPPED_OUT_OF_ORDER)
                continue
            for selector in self._selectors:
                new = self._select_new(selector, key, value, timestamp, out.current)
                self._add(out, new, self._select_old(selector, key, old_value), timestamp)
        self.context.forward(out.build())

    def _add(self, out: BatchBuilder, new: _Selected, old: _Selected, timestamp: int) -> None:
        """Add what becomes of one group, or of the two that a row leaves and joins."""
        if new is not None and old is not None and not self._separate and new[0] == old[0]:
            out.add(new[0], Change(new[1], old[1]), timestamp)
            return
        if old is not None:
            out.add(old[0], Change(None, old[1]), timestamp)
        if new is not None:
            out.add(new[0], Change(new[1], None), timestamp)

    def _select_new(
        self, selector: Selector, key: Any, value: Any, timestamp: int, headers: Headers | None
    ) -> _Selected:
        try:
            return _select(selector, key, value)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp, headers=headers)
            return None

    def _select_old(self, selector: Selector, key: Any, value: Any) -> _Selected:
        try:
            return _select(selector, key, value)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None


def _halves(selector: ColumnSelector, updates: Columns) -> Iterator[tuple[Array, Array, Array, Any]]:
    """Yield changes that leave a group or stay in it, then those that join one: groups, new and old values, a mask.

    The columns have an entry for each update; the mask says which updates make such a change.
    """
    groups, new = selector.columns(updates.keys, updates.values)
    nothing = nulls(len(new), new.type)
    left, old = (
        (nulls(len(groups), groups.type), nothing)
        if updates.olds is None
        else selector.columns(updates.keys, updates.olds)
    )
    stays = pc.equal(groups, left).fill_null(False)
    yield left, pc.if_else(stays, new, nothing), old, valid(old)
    yield groups, new, nothing, valid(new) & ~np.asarray(stays)


def _select(selector: Selector, key: Any, value: Any) -> _Selected:
    """Return the group, and the value in it or None if there is none."""
    if value is None:
        return None
    group, grouped = selector(key, value)
    return None if group is None or grouped is None else (group, grouped)

"""The first rows of each key by an order: the state of ``top_n``, as rows come and as states are merged.

Rule of this module: orders and rows are bytes, and the lesser ones come first: by their orders, then as bytes. So the
kept rows do not depend on how they came. A state is a MessagePack array of two arrays, of the orders and of the rows,
in the order of their ranks.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import UnreadableRowError
from millpond.processors.aggregations.aggregate import Aggregation
from millpond.processors.aggregations.column_fold import Groups, MergingFold
from millpond.processors.runtime.batches.columns import spread
from millpond.processors.verbs.encoding.python_values import shown_key
from millpond.processors.verbs.encoding.state_serde import Slots, StateSerde
from millpond.processors.verbs.functions.columns import Array, Integers, listed, lists_of
from millpond.stores.encoding.rows.row_columns import PhysicalRowType
from millpond.stores.encoding.rows.tuple_keys import KeyCodec

pc: Any = _compute

ORDERED_ROWS: Final = pa.struct([("order", pa.binary()), ("row", pa.binary())])
"""The type of a row's value."""

_LIST: Final = pa.list_(pa.binary())

TOP: Final = pa.struct([("0", _LIST), ("1", _LIST)])
"""A state: orders and rows."""

STATE_SERDE: Final = StateSerde(Slots.first("top-n-state-1: orders, rows", 2), TOP, [[], []])
"""The serde of states. Its name has the number of their form, and is part of a topology's fingerprint."""


class TopFold(MergingFold):
    """Keeps the first rows of each key.

    Args:
        n: how many rows.
    """

    def __init__(self, n: int) -> None:
        self.result = PhysicalRowType(TOP)
        self._n = n

    def totals(self, groups: Groups, values: Any, before: Any) -> Any:
        kept, owners = _rows_in(before, np.arange(len(before)))
        columns = [pa.concat_arrays(parts) for parts in zip(kept, values.storage.flatten(), strict=True)]
        return self._first(columns, np.concatenate([owners, groups.numbers]), len(groups.keys))

    def merged(self, groups: Groups, aggregates: Any) -> Any:
        return self._first(*_rows_in(aggregates, groups.numbers), len(groups.keys))

    def running(self, groups: Groups, values: Any, before: Any) -> Any:
        raise pa.ArrowInvalid("the states after each row are made row by row")

    def _first(self, columns: Sequence[Array], owners: Integers, size: int) -> Any:
        """Return the states with the first of these rows of so many keys; null where a key has none."""
        orders, rows = columns
        counts = np.bincount(owners, minlength=size)
        places = _ranked(orders, rows, owners)
        _, ranks = spread(counts)
        first: Any = pa.array(places[ranks < self._n])
        lists = [lists_of(column.take(first), np.minimum(counts, self._n), _LIST, nullable=False) for column in columns]
        mask: Any = pa.array(counts == 0)
        return PhysicalRowType.of(pa.StructArray.from_arrays(lists, fields=list(TOP), mask=mask))


def _ranked(orders: Array, rows: Array, owners: Integers) -> Integers:
    """Return the places of rows by their keys, then their orders; where these are equal, by the bytes of the rows."""
    ranks = _ranks(orders)
    places = np.lexsort((ranks, owners))
    sorted_ranks, sorted_owners = ranks[places], owners[places]
    equal = (sorted_ranks[1:] == sorted_ranks[:-1]) & (sorted_owners[1:] == sorted_owners[:-1])
    if not equal.any():
        return places
    tied = places[np.append(equal, False) | np.append(False, equal)]
    ties = np.zeros(len(ranks), np.int64)
    ties[tied] = _ranks(rows.take(pa.array(tied)))
    return np.lexsort((ties, ranks, owners))


def _ranks(column: Array) -> Integers:
    """Return numbers that are ordered, and equal, as bytes are."""
    ranks: Integers = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def first_rows(verb: str, keys: KeyCodec, n: int) -> Aggregation:
    """Return the aggregation that keeps the first rows of each key; errors name the verb, and the key by ``keys``."""
    first = partial(_first, n, f"top_n {verb!r}", keys)

    def add(key: Any, value: Any, state: Any) -> Any:
        return first(key, lambda: [*zip(*state, strict=True), tuple(value)])

    def merge(key: Any, left: Any, right: Any) -> Any:
        return first(key, lambda: [*zip(*left, strict=True), *zip(*right, strict=True)])

    return Aggregation(add, lambda: [[], []], merge, columns=TopFold(n), commutes=True)


def _first(
    n: int, verb: str, keys: KeyCodec, key: Any, rows: Callable[[], Iterable[tuple[bytes, bytes]]]
) -> list[list[bytes]]:
    """Return the state with the first of some rows.

    Raises:
        UnreadableRowError: they are no such rows.
    """
    try:
        return [list(column) for column in zip(*sorted(rows())[:n], strict=True)]
    except (TypeError, ValueError) as error:
        where = shown_key(keys, key)
        raise UnreadableRowError(f"{verb}: the state or the row for {where} cannot be read: {error}") from error


def _rows_in(states: Any, keys: Integers) -> tuple[list[Array], Integers]:
    """Return orders and rows of states, and the number of each one's key; ``keys`` has them by state."""
    (orders, counts), (rows, _) = map(listed, states.storage.flatten())
    return [orders, rows], keys.repeat(counts)

"""``GroupValues``: the values of groups in a store, with how often each is there.

A change reads and writes only its own values, and the next one is found by its place, however many a group has. The
layout in a key-value store, ``COUNTED_VALUES``::

    key    group (terminated), place of the call (2 bytes), value     in the form that orders it among the call's
    value  how often it is there (8 bytes), row                       the call's row of it

Rule of this module: it counts bytes, and knows no function.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import CorruptStoreError
from millpond.stores.backend.column_changes import get_column, put_column
from millpond.stores.encoding.column_keys import terminated_column
from millpond.stores.encoding.column_serdes import from_big_endian, to_big_endian
from millpond.stores.encoding.keys import DATA, TERMINATOR, after_prefix, unterminated
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution.carriage import LayoutCarriage
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.layouts import Layout

pc: Any = _compute
Array = Any
"""An Arrow array."""

Integers = npt.NDArray[np.int64]

COUNTED_VALUES: Final = Layout("counted-values", 1)
_PLACE_SIZE: Final = 2
_COUNT_SIZE: Final = 8


def group_values_spec(name: str) -> StoreSpec:
    """Return the spec of the store for ``GroupValues``."""
    return StoreSpec(name, StoreKind.KEY_VALUE, BYTES, BYTES, layout=COUNTED_VALUES)


class Counts(NamedTuple):
    """Different values of groups, and how often they are there before and after some have come and gone.

    Attributes:
        groups: the number of each one's group.
        firsts: the first row that has each.
        places: the place of each in the store.
        before, after: how often each is there.
    """

    groups: Integers
    firsts: Integers
    places: Array
    before: Integers
    after: Integers


class GroupValues:
    """Counts the values of groups.

    Args:
        store: the store, of bytes.
    """

    def __init__(self, store: KeyValueStore[bytes, bytes]) -> None:
        self._store = store

    def of_call(self, groups: Array, place: int) -> Array:
        """Return the prefixes of the values of one call of each group in the store, from the keys of the groups."""
        return pc.binary_join_element_wise(DATA, terminated_column(groups), place.to_bytes(_PLACE_SIZE), b"")

    def forget(self, groups: Array) -> None:
        """Forget all values of groups, so that a group that begins anew has none."""
        transaction = self._store.transaction
        for group in pc.binary_join_element_wise(DATA, terminated_column(groups), b"").to_pylist():
            for place, _ in list(transaction.scan(group, after_prefix(group))):
                transaction.delete(place)

    def counts(self, begins: Array, groups: Integers, keys: Array, signs: Integers) -> Counts:
        """Return the different values among some that come and go; some may be there as often as before.

        Args:
            begins: for each group, the result of ``of_call``.
            groups: the number of each value's group.
            keys: the keys that order the values, without nulls.
            signs: 1 for one that comes, -1 for one that goes.
        """
        whole = pc.binary_join_element_wise(begins.take(pa.array(groups)), keys, b"").dictionary_encode()
        numbers, size = whole.indices.to_numpy(), len(whole.dictionary)
        firsts, more = np.zeros(size, np.int64), np.zeros(size, np.int64)
        firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
        np.add.at(more, numbers, signs)
        changed: Any = pa.array(more != 0)
        places = whole.dictionary.filter(changed)
        firsts, more = firsts[more != 0], more[more != 0]
        before = self._counts_at(places)
        return Counts(groups[firsts], firsts, places, before, np.maximum(before + more, 0))

    def _counts_at(self, places: Array) -> Integers:
        found = get_column(self._store.transaction, places)
        try:
            numbers: Integers = (
                from_big_endian(pc.binary_slice(found, 0, _COUNT_SIZE), pa.int64()).fill_null(0).to_numpy()
            )
        except pa.ArrowInvalid as error:
            raise CorruptStoreError(f"store {self._store.name!r}: a count of values is damaged: {error}") from error
        return numbers

    def put(self, counts: Counts, rows: Array) -> None:
        """Keep how often values are there now, each with its row, and delete values that are gone."""
        data = pc.binary_join_element_wise(to_big_endian(pa.array(counts.after)), rows, b"")
        put_column(self._store.transaction, counts.places, pc.if_else(pa.array(counts.after > 0), data, None))

    def first(self, begin: bytes, gone: Collection[bytes], *, greatest: bool) -> bytes | None:
        """Return the row of the first value of a call of a group that the store has; None if there is none.

        Args:
            begin: the result of ``of_call``.
            gone: the places in the store of values that do not count any more.
            greatest: whether the first value is the greatest, or else the least.
        """
        rows: Iterator[tuple[bytes, bytes]] = iter(
            self._store.transaction.scan(begin, after_prefix(begin), reverse=greatest)
        )
        return next((data[_COUNT_SIZE:] for place, data in rows if place not in gone), None)


def _record_key(row: bytes) -> bytes:
    end = row.find(TERMINATOR)
    if end < 0:
        raise CorruptStoreError(f"the counted value {row!r} has no group that ends")
    return unterminated(row[: end + len(TERMINATOR)])


COUNTED_VALUES_CARRIAGE: Final = LayoutCarriage(_record_key)

"""``Turns``: updates of a table, each of which replaces the one of its key before it, whatever their times.

The changes of another table are such updates: the last one counts. A store that orders the records of a key by
time, or refuses old ones, gets such a change at the time of the one before it, if its own is less.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.order.time_order import reached_by_key
from millpond.processors.tables.table_view import TableStore
from millpond.stores.encoding.times import MIN_TIME

R = TypeVar("R", Batch, Columns)
_Integers = npt.NDArray[np.int64]


class Turns:
    """Gives updates times at which they count.

    Args:
        table: the store of the table.
    """

    def __init__(self, table: TableStore) -> None:
        self._table = table

    def taken(self, records: R) -> R:
        """Return the updates, in their order, none of them at an earlier time than the one of its key before it.

        Args:
            records: updates with keys, the last of them last.
        """
        times = np.asarray(records.timestamps, np.int64)
        known = self._newest()
        if not len(times) or ((times[1:] >= times[:-1]).all() and times[0] >= known):
            return records
        keys, numbers = _numbered(records)
        asked = np.unique(numbers[times < known])
        found = self._table.latest_times([keys[number] for number in asked.tolist()])
        before = [(time, number) for time, number in zip(found, asked.tolist(), strict=True) if time is not None]
        first = np.array(before, np.int64).reshape(-1, 2)
        reached = reached_by_key(np.concatenate([first[:, 0], times]), np.concatenate([first[:, 1], numbers]))
        reached = reached[len(first) :]
        if isinstance(records, Columns):
            return Columns(records.keys, records.values, reached, records.positions)
        return Batch(records.keys, records.values, reached.tolist(), None, None, records.positions, records.headers)

    def _newest(self) -> int:
        """Return the time that no update of the store is newer than."""
        observed: int | None = self._table.store.observed_stream_time
        return MIN_TIME if observed is None else observed


def _numbered(records: Batch | Columns) -> tuple[Sequence[Any], _Integers]:
    """Return the different keys, and which of them each record has."""
    if isinstance(records, Columns):
        encoded = records.keys.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    places = {key: place for place, key in enumerate(dict.fromkeys(records.keys))}
    return list(places), np.fromiter(map(places.__getitem__, records.keys), np.int64, len(records))

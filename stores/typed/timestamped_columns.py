"""``TimestampedColumns``: whole Arrow columns out of and into a ``TimestampedKeyValueStore``.

Rule of this module: no Python object is made of a key, a value or a timestamp; an engine gets bytes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column, put_column
from millpond.stores.encoding.column_keys import TO_THE_END, escaped_column
from millpond.stores.encoding.column_serdes import ColumnSerde, from_big_endian, to_big_endian
from millpond.stores.encoding.keys import DATA
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.expiry import Expiry
from millpond.stores.typed.expiry_columns import timer_rows, without_gone
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE, TimestampedKeyValueStore

pc: Any = _compute
Integers = npt.NDArray[np.int64]


class TimestampedColumns:
    """Reads and puts of many keys at once.

    Args:
        store: the store.
        keys, values: its serdes for whole columns.
    """

    def __init__(self, store: TimestampedKeyValueStore[Any, Any], keys: ColumnSerde, values: ColumnSerde) -> None:
        self._store = store
        self._keys = keys
        self._values = values

    def takes(self, keys: pa.DataType, values: pa.DataType | None = None) -> bool:
        """Return whether keys, and values that are put, may be columns of these types."""
        return self._keys.takes(keys) and (values is None or self._values.takes(values))

    def own(self, values: Any) -> Any:
        """Return values, of a type that ``takes`` knows, in the type of ``get``."""
        return self._values.own(values)

    @property
    def expiry(self) -> Expiry | None:
        """The store's expiry."""
        return self._store.expiry

    def get(self, keys: Any, reached: Integers | None = None) -> tuple[Any, Any]:
        """Return the values and timestamps of many keys, null where there is none, as Arrow arrays.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.
            reached: for each key the time that its reader has reached, if that may be beyond the observed stream time.

        Raises:
            CorruptStoreError: a row is damaged.
            pyarrow.ArrowInvalid: a value does not fit into columns.
        """
        values, timestamps, _ = self.get_with_olds(keys, reached)
        return values, timestamps

    def get_with_olds(self, keys: Any, reached: Integers | None = None) -> tuple[Any, Any, Any]:
        """Return the result of ``get``, and the values with those that have expired and are not told of yet."""
        data = get_column(self._store.transaction, self._rows(keys))
        try:
            timestamps = from_big_endian(pc.binary_slice(data, 0, TIMESTAMP_SIZE), pa.int64())
            if self.expiry is None:
                values = self._read(data)
                return values, timestamps, values
            there, times = without_gone(self.expiry, data, timestamps, reached)
            values = self._read(there)
            if not self.expiry.tells or times.null_count == timestamps.null_count:
                return values, times, values
            told = pc.less_equal(timestamps, max(self.expiry.told, MIN_TIME))
            return values, times, self._read(pc.if_else(told, None, data))
        except pa.ArrowInvalid:
            # If one of the rows is damaged, reading them one by one says which and why.
            self._store.get_many(keys.to_pylist())
            raise

    def _read(self, data: Any) -> Any:
        return self._values.read(pc.binary_slice(data, TIMESTAMP_SIZE, TO_THE_END))

    def put(self, keys: Any, values: Any, timestamps: Integers) -> None:
        """Set each key to the value and timestamp at the same position; a repeated key's last one counts.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.
            values: as many values, of the serde's type or one that is narrower; null deletes the key.
            timestamps: as many, in milliseconds.
        """
        data = pc.binary_join_element_wise(to_big_endian(pa.array(timestamps)), self._values.write(values), b"")
        rows = self._rows(keys)
        if self.expiry is not None and len(rows):
            self.expiry.observe(int(timestamps.max()))
            timers = self._timers(self.expiry, rows, timestamps, data.is_valid())
            nothing = pa.repeat(pa.scalar(b"", pa.binary()), len(timers))
            rows, data = pa.concat_arrays([rows, timers]), pa.concat_arrays([data, nothing])
        put_column(self._store.transaction, rows, data)

    def _timers(self, expiry: Expiry, rows: Any, timestamps: Integers, put: Any) -> Any:
        """Return the timers for the entries that are put."""
        times = timestamps[put.to_numpy(zero_copy_only=False)]
        if not len(times):
            return rows.slice(0, 0)
        rows = rows.filter(put)
        before = get_column(self._store.transaction, rows)
        old = from_big_endian(pc.binary_slice(before, 0, TIMESTAMP_SIZE), pa.int64())
        limit = max(expiry.gone_at(MIN_TIME), MIN_TIME)
        # A timer that is due earlier finds the entry, too. So one is needed only for an entry that had no live one of
        # an earlier or equal time before.
        known = old.fill_null(MIN_TIME).to_numpy()
        needed = (known > times) | (known <= limit) | old.is_null().to_numpy(zero_copy_only=False)
        keys = pc.binary_slice(rows.filter(pa.array(needed)), len(DATA), TO_THE_END)
        return timer_rows(expiry, escaped_column(keys), times[needed], len(times))

    def _rows(self, keys: Any) -> Any:
        """Return the rows of the keys in the store."""
        return pc.binary_join_element_wise(pa.scalar(DATA), self._keys.write(keys), pa.scalar(b"", pa.binary()))

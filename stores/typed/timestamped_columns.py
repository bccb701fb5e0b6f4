"""``TimestampedColumns``: whole Arrow columns out of and into a ``TimestampedKeyValueStore``.

Rule of this module: no Python object is made of a key, a value or a timestamp; an engine gets bytes.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.stores.backend.column_changes import get_column, put_column
from millpond.stores.encoding.column_serdes import ColumnSerde, from_big_endian, to_big_endian
from millpond.stores.encoding.keys import DATA
from millpond.stores.typed.timestamped_keyvalue import TIMESTAMP_SIZE, TimestampedKeyValueStore

pc: Any = _compute

_TO_THE_END: Final = 2**31 - 1
_NOTHING: Any = pa.scalar(b"", pa.binary())


class TimestampedColumns:
    """Reads and writes many keys at once.

    Args:
        store: the store.
        keys, values: what its serdes do, for whole columns.
    """

    def __init__(self, store: TimestampedKeyValueStore[Any, Any], keys: ColumnSerde, values: ColumnSerde) -> None:
        self._store = store
        self._keys = keys
        self._values = values

    def takes(self, keys: pa.DataType) -> bool:
        """Whether keys may be columns of that type."""
        return self._keys.takes(keys)

    def get(self, keys: Any) -> tuple[Any, Any]:
        """The values and timestamps of many keys, null where there is none, as Arrow arrays.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.

        Raises:
            CorruptStoreError: a row is damaged.
            pyarrow.ArrowInvalid: a value is none that columns have.
        """
        data = get_column(self._store.transaction, self._rows(keys))
        try:
            timestamps = from_big_endian(pc.binary_slice(data, 0, TIMESTAMP_SIZE), pa.int64())
            return self._values.read(pc.binary_slice(data, TIMESTAMP_SIZE, _TO_THE_END)), timestamps
        except pa.ArrowInvalid:
            # If one of the rows is damaged, reading them one by one says which and why.
            self._store.get_many(keys.to_pylist())
            raise

    def put(self, keys: Any, values: Any, timestamps: Any) -> None:
        """Set each key to the value and timestamp at the same position; a repeated key's last one counts.

        Args:
            keys: an Arrow array without nulls, of a type that ``takes`` knows.
            values: as many values, of the serde's type or one that is narrower; null deletes the key.
            timestamps: as many int64, in milliseconds.
        """
        data = pc.binary_join_element_wise(to_big_endian(timestamps), self._values.write(values), b"")
        put_column(self._store.transaction, self._rows(keys), data)

    def _rows(self, keys: Any) -> Any:
        """Where the keys lie in the store."""
        return pc.binary_join_element_wise(pa.scalar(DATA), self._keys.write(keys), _NOTHING)

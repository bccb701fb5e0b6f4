"""The left task of a foreign-key join whose function of the foreign key takes whole columns.

Rule of this module: rows that come as columns become the messages that they become row by row, and no Python object is
made of a row. If that fails, for whatever reason, the rows are sent as objects, and one by one if that fails, too.
"""

from typing import Any

import pyarrow as pa

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.columns import Array, Columns, nulls, valid
from millpond.processors.runtime.batches.user_functions import ColumnFunction
from millpond.processors.tables.foreign_key.subscribing import SubscriptionSend
from millpond.processors.tables.latest_only import latest_only
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.nulls import spread
from millpond.stores.encoding.serdes import Serde


class VectorizedSubscriptionSend(SubscriptionSend):
    """``SubscriptionSend`` with a function of columns of keys and values, none of which are null."""

    def __init__(
        self,
        extract: ColumnFunction,
        serdes: tuple[Serde[Any], Serde[Any], Serde[Any]],
        *,
        join_type: JoinType,
        versioned: bool,
        subscriptions: str,
        rows: str,
    ) -> None:
        super().__init__(
            extract, serdes, join_type=join_type, versioned=versioned, subscriptions=subscriptions, rows=rows
        )
        self._extract_columns = extract.of_columns
        self._value_columns = column_serde(serdes[1])

    def process_columns(self, columns: Columns) -> None:
        columns = latest_only(self.context, columns, self._versioned)
        if not len(columns):
            return
        raw = self._raw(columns)
        if self._columns is None or raw is None:
            self.process(columns.to_batch())
        else:
            data, *keys = raw
            self._forward_columns(self._columns, columns.with_values(data), *keys)

    def _raw(self, columns: Columns) -> tuple[Array, Array, Array, Array] | None:
        """Return the bytes of rows, of their keys and of the foreign keys that they named before and name now.

        A foreign key is null if there is none. Return None if rows have to be objects, or one is at fault.
        """
        serdes, values = self._columns, self._value_columns
        if serdes is None or values is None:
            return None
        if not serdes.key.takes(columns.keys.type) or not values.takes(columns.values.type):
            return None
        try:
            olds = self._foreign_keys(serdes.foreign_key, columns.keys, columns.olds)
            news = self._foreign_keys(serdes.foreign_key, columns.keys, columns.values)
            return values.write(columns.values), serdes.key.write(columns.keys), olds, news
        except Exception:  # a user's code may raise anything
            return None

    def _foreign_keys(self, serde: ColumnSerde, keys: Array, values: Array | None) -> Array:
        """Return the bytes of the foreign keys of rows; null where there is none."""
        if values is None:
            return nulls(len(keys), pa.binary())
        there = valid(values)
        if values.null_count:
            keys, values = keys.filter(pa.array(there)), values.drop_null()
        found = self._extract_columns(keys, values)
        if pa.types.is_null(found.type):
            return nulls(len(there), pa.binary())
        if not serde.takes(found.type):
            raise pa.ArrowInvalid(f"{found.type} are no columns of foreign keys")
        return spread(serde.write(found), there)

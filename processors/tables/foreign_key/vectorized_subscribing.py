"""The left task of a foreign-key join whose function of the foreign key takes whole columns.

Rule of this module: rows that come as columns become the messages that they become row by row, and no Python object is
made of a row. If that fails, for whatever reason, the rows are sent as objects, and one by one if that fails, too.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.columns import Array, Columns, nulls, spread
from millpond.processors.tables.foreign_key.message_columns import (
    Booleans,
    column_serdes,
    hash_column,
    left_row_column,
    subscription_column,
)
from millpond.processors.tables.foreign_key.messages import ASK, FORGET
from millpond.processors.tables.foreign_key.subscribing import SubscriptionSend
from millpond.processors.tables.foreign_key.user_functions import ColumnFunction
from millpond.stores.columns.column_serdes import ColumnSerde
from millpond.stores.serdes import Serde

pc: Any = _compute


class _Columns(NamedTuple):
    """What the serdes do for whole columns."""

    key: ColumnSerde
    value: ColumnSerde
    foreign_key: ColumnSerde


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
        known = column_serdes(*serdes)
        self._columns = None if known is None else _Columns(*known)

    def process_columns(self, columns: Columns) -> None:
        messages = self._messages(columns)
        if messages is None:
            self.process(columns.to_batch())
            return
        rows, subscriptions = messages
        self.context.forward_columns_to(self._rows, rows)
        self.context.forward_columns_to(self._subscriptions, subscriptions)

    def _messages(self, columns: Columns) -> tuple[Columns, Columns] | None:
        """The left rows and the subscriptions; None if the rows have to be objects, or one of them is at fault."""
        serdes = self._columns
        if serdes is None or not serdes.key.takes(columns.keys.type) or not serdes.value.takes(columns.values.type):
            return None
        try:
            olds = self._foreign_keys(serdes, columns.keys, columns.olds)
            news = self._foreign_keys(serdes, columns.keys, columns.values)
            data = serdes.value.write(columns.values)
        except Exception:  # a user's code may raise anything
            return None
        hashes = hash_column(data)
        rows = columns.with_values(left_row_column(_present(news), hashes, data))
        return rows, self._told(serdes, columns, olds, news, hashes)

    def _foreign_keys(self, serdes: _Columns, keys: Array, values: Array | None) -> Array:
        """The foreign keys of rows, of the type that the foreign table's keys have; null where there is none."""
        if values is None:
            return nulls(len(keys), serdes.foreign_key.type)
        present = _present(values)
        if values.null_count:
            keys, values = keys.filter(pa.array(present)), values.drop_null()
        found = self._extract_columns(keys, values)
        if pa.types.is_null(found.type):
            return nulls(len(present), serdes.foreign_key.type)
        if not serdes.foreign_key.takes(found.type):
            raise pa.ArrowInvalid(f"{found.type} are no columns of foreign keys")
        return spread(serdes.foreign_key.own(found), present)

    def _told(self, serdes: _Columns, columns: Columns, olds: Array, news: Array, hashes: Array) -> Columns:
        """What to tell the foreign keys that rows have named and name now, in the order of the rows."""
        named, names = _present(olds), _present(news)
        same = pc.equal(serdes.foreign_key.write(olds), serdes.foreign_key.write(news)).fill_null(False)
        moved = named & ~same.to_numpy(zero_copy_only=False)
        # The result of a left row that has lost its foreign key does not depend on an answer.
        answered = ~names & (~_present(hashes) | self._inner)
        instructions = np.concatenate(
            [np.where(answered, FORGET[1], FORGET[0])[moved], np.where(self._inner & ~named, ASK[1], ASK[0])[names]]
        )
        places = np.concatenate([moved.nonzero()[0], names.nonzero()[0]])
        order = places.argsort(kind="stable")
        rows = columns.taken(places[order])
        told: Any = pa.array(places[order])
        messages = subscription_column(
            hashes.take(told), instructions[order].astype(np.uint8), serdes.key.write(rows.keys)
        )
        foreign_keys = pa.concat_arrays([olds.filter(pa.array(moved)), news.drop_null()]).take(pa.array(order))
        return Columns(foreign_keys, messages, rows.timestamps, rows.positions)


def _present(column: Array) -> Booleans:
    valid: Booleans = column.is_valid().to_numpy(zero_copy_only=False)
    return valid

"""The left task of a foreign-key join: has rows subscribe at the foreign keys that they name.

Rule of this module: the bytes of a batch's rows are made once, for their hashes, for the result task and for the
foreign task.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns, valid
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.batches.user_functions import RowFunction
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.foreign_key.message_columns import (
    column_serdes,
    hash_column,
    left_row_column,
    subscription_column,
)
from millpond.processors.tables.foreign_key.messages import ASK, FORGET, left_row_bytes, subscription_bytes
from millpond.processors.tables.foreign_key.murmur3 import murmur3_128_many
from millpond.processors.tables.latest_only import latest_only
from millpond.stores.encoding.column_serdes import ColumnSerde
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.store import column_of

pc: Any = _compute

COLUMNS_FROM: Final = 100
"""The messages of fewer rows are made one by one: what the calls for columns cost is then more than what they save."""


class _Columns(NamedTuple):
    """The serdes of the keys for whole columns."""

    key: ColumnSerde
    foreign_key: ColumnSerde


class SubscriptionSend(Operator):
    """In the left task: turns each changed row into subscriptions, and sends its value to the result task.

    A row for which ``extract`` fails counts as deleted, if the policy leaves such records out.

    Args:
        extract: returns the foreign key of a row, given its key and its value.
        serdes: the serdes of the left keys, the left values and the foreign keys.
        join_type: inner, or left, where rows without a foreign value have a result too.
        versioned: whether the left table is versioned.
        subscriptions, rows: the sinks of the two kinds of messages.
    """

    promises = Promises(repeatable=True, by_key=True)

    def __init__(
        self,
        extract: RowFunction,
        serdes: tuple[Serde[Any], Serde[Any], Serde[Any]],
        *,
        join_type: JoinType,
        versioned: bool,
        subscriptions: str,
        rows: str,
    ) -> None:
        self._extract = extract
        self._key_serde, self._value_serde, self._foreign_serde = serdes
        self._inner = join_type is JoinType.INNER
        self._versioned = versioned
        self._subscriptions = subscriptions
        self._rows = rows
        known = column_serdes(serdes[0], serdes[2])
        self._columns = None if known is None else _Columns(*known)

    def process(self, batch: Batch) -> None:
        self.context.attempt(self._send, latest_only(self.context, batch, self._versioned))

    def _send(self, batch: Batch) -> None:
        olds = self._old_keys(batch)
        news, data = self._rows_of(batch)
        if self._columns is not None and len(batch) >= COLUMNS_FROM and batch.headers is None:
            self._send_columns(self._columns, batch, olds, news, data)
            return
        hashes = column_of(murmur3_128_many([one for one in data if one is not None]), data)
        rows = [
            None if value is None or hash_ is None else left_row_bytes(new is not None, hash_, value)
            for value, hash_, new in zip(data, hashes, news, strict=True)
        ]
        subscriptions = self._subscribing(batch, olds, news, hashes)
        self.context.forward_to(self._rows, batch.with_values(rows))
        self.context.forward_to(self._subscriptions, subscriptions)

    def _subscribing(
        self, batch: Batch, olds: Sequence[Any], news: Sequence[Any], hashes: Sequence[bytes | None]
    ) -> Batch:
        """Return the messages to the foreign keys that rows have named and name now, in the order of the rows."""
        keys: list[Any] = []
        told: list[bytes] = []
        places: list[int] = []
        primary_keys = self._key_serde.serialize_many(batch.keys)
        columns = zip(olds, news, self._moved(olds, news), hashes, primary_keys, strict=True)
        for i, (old, new, differs, hash_, primary_key) in enumerate(columns):
            if differs:
                # The result of a left row that has lost its foreign key does not depend on an answer.
                answered = new is None and (hash_ is None or self._inner)
                keys.append(old)
                told.append(subscription_bytes(hash_, FORGET[answered], primary_key))
                places.append(i)
            if new is not None:
                keys.append(new)
                told.append(subscription_bytes(hash_, ASK[self._inner and old is None], primary_key))
                places.append(i)
        timestamps = list(map(batch.timestamps.__getitem__, places))
        positions = None if batch.positions is None else list(map(batch.positions.__getitem__, places))
        headers = None if batch.headers is None else list(map(batch.headers.__getitem__, places))
        return Batch(keys, told, timestamps, positions=positions, headers=headers)

    def _send_columns(
        self,
        serdes: _Columns,
        batch: Batch,
        olds: Sequence[Any],
        news: Sequence[Any],
        data: Sequence[bytes | None],
    ) -> None:
        """Send as ``_send`` does, for so many rows that their messages are quicker as columns."""
        raw_keys: Any = pa.array(self._key_serde.serialize_many(batch.keys), pa.binary())
        raw_olds, raw_news = (self._serialized(column) for column in (olds, news))
        positions = None if batch.positions is None else np.array(batch.positions, np.int64)
        rows = Columns(serdes.key.read(raw_keys), pa.array(data, pa.binary()), np.array(batch.timestamps), positions)
        self._forward_columns(serdes, rows, raw_keys, raw_olds, raw_news)

    def _serialized(self, foreign_keys: Sequence[Any]) -> Array:
        """Return foreign keys as a column of bytes, null where they are None."""
        data = self._foreign_serde.serialize_many([key for key in foreign_keys if key is not None])
        return pa.array(column_of(data, foreign_keys), pa.binary())

    def _forward_columns(self, serdes: _Columns, rows: Columns, keys: Array, olds: Array, news: Array) -> None:
        """Send the messages of rows.

        Args:
            serdes: the serdes of the keys.
            rows: the rows, whose values are bytes, null where they are deleted.
            keys: the bytes of their keys.
            olds, news: the bytes of the foreign keys that they named before and name now, null for none.
        """
        hashes = hash_column(rows.values)
        left_rows = rows.with_values(left_row_column(valid(news), hashes, rows.values))
        subscriptions = self._told(serdes, rows, keys, olds, news, hashes)
        self.context.forward_columns_to(self._rows, left_rows)
        self.context.forward_columns_to(self._subscriptions, subscriptions)

    def _told(self, serdes: _Columns, rows: Columns, keys: Array, olds: Array, news: Array, hashes: Array) -> Columns:
        """Return the messages to the foreign keys that rows have named and name now, in the order of the rows."""
        named, names = valid(olds), valid(news)
        same = pc.equal(olds, news).fill_null(False).to_numpy(zero_copy_only=False)
        moved = named & ~same
        # The result of a left row that has lost its foreign key does not depend on an answer.
        answered = ~names & (~valid(hashes) | self._inner)
        instructions = np.concatenate(
            [np.where(answered, FORGET[1], FORGET[0])[moved], np.where(self._inner & ~named, ASK[1], ASK[0])[names]]
        )
        places = np.concatenate([moved.nonzero()[0], names.nonzero()[0]])
        order = places.argsort(kind="stable")
        places = places[order]
        told: Any = pa.array(places)
        messages = subscription_column(hashes.take(told), instructions[order].astype(np.uint8), keys.take(told))
        foreign_keys = pa.concat_arrays([olds.filter(pa.array(moved)), news.drop_null()]).take(pa.array(order))
        positions = None if rows.positions is None else rows.positions[places]
        return Columns(serdes.foreign_key.read(foreign_keys), messages, rows.timestamps[places], positions)

    def _old_keys(self, batch: Batch) -> list[Any]:
        """Return the earlier foreign keys of the rows; None for failures, which have been counted before."""
        if batch.olds is None:
            return [None] * len(batch)
        try:
            return self._named(batch.keys, batch.olds)
        except Exception:  # a user's code may raise anything
            return list(map(self._old_key, batch.keys, batch.olds))

    def _named(self, keys: list[Any], values: list[Any]) -> list[Any]:
        """Return the foreign keys of rows; None where there is no row."""
        there = [value is not None for value in values]
        if all(there):
            return self._extract.many(keys, values)
        return column_of(self._extract.many(list(compress(keys, there)), list(compress(values, there))), values)

    def _old_key(self, key: Any, old: Any) -> Any:
        try:
            return None if old is None else self._extract.one(key, old)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

    def _rows_of(self, batch: Batch) -> tuple[list[Any], list[bytes | None]]:
        """Return the rows' foreign keys and their bytes; None for rows that are deleted, or fail."""
        values = batch.values
        try:
            keys = self._named(batch.keys, values)
            return keys, column_of(self._value_serde.serialize_many([one for one in values if one is not None]), values)
        except Exception:  # a user's code may raise anything
            rows = list(map(self._row, batch.keys, values, batch.timestamps, batch.headers_of_each))
            return [key for key, _ in rows], [data for _, data in rows]

    def _row(self, key: Any, value: Any, timestamp: int, headers: Headers | None) -> tuple[Any, bytes | None]:
        """Return a row's foreign key and its bytes; nothing of one that fails."""
        if value is None:
            return None, None
        try:
            return self._extract.one(key, value), self._value_serde.serialize(value)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp, headers=headers)
            return None, None

    def _moved(self, olds: Sequence[Any], news: Sequence[Any]) -> list[bool]:
        """Return which rows no longer name the foreign key that they have named."""
        moved = [old is not None for old in olds]
        both = [i for i, new in enumerate(news) if new is not None and moved[i]]
        serialize_many = self._foreign_serde.serialize_many
        sides = (serialize_many([column[i] for i in both]) for column in (olds, news))
        for i, old, new in zip(both, *sides, strict=True):
            moved[i] = old != new
        return moved

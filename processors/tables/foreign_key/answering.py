"""The foreign task of a foreign-key join: keeps subscriptions, and answers them.

Rule of this module: a foreign value is read and serialized once for all that ask for it, and messages that come as
columns are answered as columns, unless one of them is not in the usual form.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Array, Columns, valid
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.foreign_key.message_columns import (
    Messages,
    column_serdes,
    combined_key_column,
    read_subscription_column,
    response_column,
)
from millpond.processors.tables.foreign_key.messages import (
    FORGET,
    Content,
    Instruction,
    combined_key,
    primary_key_of,
    read_subscriptions,
    response_bytes,
)
from millpond.processors.tables.latest_only import latest_only
from millpond.processors.tables.table_view import ViewFactory
from millpond.stores.encoding.column_serdes import ColumnSerde, column_serde
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.keyvalue_columns import put_columns
from millpond.stores.typed.store import column_of

pc: Any = _compute


class SubscriptionReceive(Operator):
    """In the foreign task: keeps or forgets each subscription and answers it.

    Args:
        store: the store of the subscriptions.
        foreign: the foreign table.
        serdes: the serdes of the left keys, the foreign keys and the foreign values.
    """

    promises = Promises(by_key=True)

    def __init__(self, store: str, foreign: ViewFactory, serdes: tuple[Serde[Any], Serde[Any], Serde[Any]]) -> None:
        self._store_name = store
        self._foreign = foreign
        self._key_serde, self._foreign_serde, self._value_serde = serdes
        self._columns = _columns_of(serdes)

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.store(self._store_name)
        self._view = self._foreign.make(context)
        self.promises = replace(self.promises, looks_up=dict.fromkeys(self._foreign.stores, False))

    def process(self, batch: Batch) -> None:
        foreign_keys = self._foreign_serde.serialize_many(batch.keys)
        subscriptions = list(read_subscriptions(batch.values))
        self._keep(foreign_keys, subscriptions)
        told = Batch(foreign_keys, subscriptions, batch.timestamps, positions=batch.positions, headers=batch.headers)
        asking = told.select(
            [instruction != Instruction.DELETE_KEY_NO_PROPAGATE for _, instruction, _ in subscriptions]
        )
        found = self._found(dict(zip(foreign_keys, batch.keys, strict=True)), set(asking.keys))
        answers = [
            _answer(instruction, hash_, found[key][0])
            for key, (hash_, instruction, _) in zip(asking.keys, asking.values, strict=True)
        ]
        lasts = [found[key][1] for key in asking.keys]
        times = [time if last < time else last for last, time in zip(lasts, asking.timestamps, strict=True)]
        primary_keys = self._key_serde.deserialize_many([primary_key for _, _, primary_key in asking.values])
        positions, headers = asking.positions, asking.headers
        self.context.forward(Batch(primary_keys, answers, times, positions=positions, headers=headers))

    def process_columns(self, columns: Columns) -> None:
        answers = self._answers_kept(columns)
        if answers is None:
            self.process(columns.to_batch())
        else:
            self.context.forward_columns(answers)

    def _keep(self, foreign_keys: list[bytes], subscriptions: list[tuple[bytes | None, int, bytes]]) -> None:
        prefixes = {key: combined_key(key, b"") for key in set(foreign_keys)}
        kept = {
            prefixes[key] + primary_key: None if instruction in FORGET else hash_
            for key, (hash_, instruction, primary_key) in zip(foreign_keys, subscriptions, strict=True)
        }
        self._store.put_many(list(kept), list(kept.values()))

    def _found(self, keys: Mapping[bytes, Any], wanted: Iterable[bytes]) -> dict[bytes, tuple[bytes | None, int]]:
        """Return the value's bytes and time for each foreign key; None and any time if there is none.

        Args:
            keys: the keys by their bytes.
            wanted: the bytes of the wanted ones; each value is read and serialized once.
        """
        wanted = list(wanted)
        found = self._looked_up([keys[foreign_key] for foreign_key in wanted])
        return dict(zip(wanted, zip(*found, strict=True), strict=True))

    def _looked_up(self, keys: list[Any]) -> tuple[list[bytes | None], list[int]]:
        rows = self._view.get_many(keys)
        data = self._value_serde.serialize_many([row.value for row in rows if row is not None])
        return column_of(data, rows), [MIN_TIME if row is None else row.timestamp for row in rows]

    def _answers_kept(self, columns: Columns) -> Columns | None:
        """Keep subscriptions that come as columns; returns the answers, None if they have to become objects first."""
        serdes = self._columns
        if serdes is None or not serdes.foreign_key.takes(columns.keys.type):
            return None
        try:
            subscriptions = read_subscription_column(columns.values)
            answers = self._answers(serdes, columns, subscriptions)
        except pa.ArrowInvalid:
            return None
        kept: Any = pa.array(subscriptions.numbers > max(FORGET))
        hashes = pc.if_else(kept, subscriptions.hashes, pa.scalar(None, pa.binary()))
        put_columns(
            self._store, combined_key_column(serdes.foreign_key.write(columns.keys), subscriptions.rests), hashes
        )
        return answers

    def _answers(self, serdes: "_Columns", columns: Columns, subscriptions: Messages) -> Columns:
        asking = subscriptions.numbers != Instruction.DELETE_KEY_NO_PROPAGATE
        columns, subscriptions = columns.select(asking), subscriptions.select(asking)
        distinct = columns.keys.dictionary_encode()
        data, times = self._found_columns(serdes, distinct.dictionary)
        data, times = data.take(distinct.indices), times[distinct.indices.to_numpy()]
        contents = _contents(subscriptions, valid(data))
        told = pc.if_else(pa.array(contents == Content.VALUE), data, pa.scalar(None, pa.binary()))
        answers = response_column(subscriptions.hashes, contents, told)
        primary_keys = serdes.key.read(subscriptions.rests)
        return Columns(primary_keys, answers, np.maximum(times, columns.timestamps), columns.positions)

    def _found_columns(self, serdes: "_Columns", keys: Array) -> tuple[Array, npt.NDArray[np.int64]]:
        """Return the bytes and times of the foreign values at distinct keys; null and any time where there is none."""
        found = self._view.get_columns(keys)
        if found is None or serdes.value is None or not serdes.value.takes(found[0].type):
            data, times = self._looked_up(keys.to_pylist())
            return pa.array(data, pa.binary()), np.array(times, np.int64)
        return serdes.value.write(found[0]), found[1].fill_null(MIN_TIME).to_numpy()


def _answer(instruction: int, hash_: bytes | None, data: bytes | None) -> bytes:
    """Return the response to a subscription, whose foreign value's bytes are ``data``."""
    if instruction == Instruction.DELETE_KEY_AND_PROPAGATE:
        # A row that still exists but no longer names a foreign row matters only if it has a result.
        return response_bytes(hash_, Content.NOTHING if hash_ is None else Content.RETRACTION)
    if data is not None:
        return response_bytes(hash_, Content.VALUE, data)
    quiet = instruction == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
    return response_bytes(hash_, Content.RETRACTION if quiet else Content.NOTHING)


def _contents(subscriptions: Messages, found: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Return the contents of responses to subscriptions, by the rules of ``_answer``.

    Args:
        subscriptions: the subscriptions.
        found: a mask of those with a foreign value.
    """
    quiet = subscriptions.numbers == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
    forgotten = subscriptions.numbers == Instruction.DELETE_KEY_AND_PROPAGATE
    hashed = valid(subscriptions.hashes)
    retracted = np.where(forgotten, hashed, quiet & ~found)
    contents = np.where(retracted, Content.RETRACTION, Content.NOTHING)
    return np.where(found & ~forgotten, Content.VALUE, contents).astype(np.uint8)


class ForeignTableJoin(Operator):
    """In the foreign task: answers all subscriptions of a foreign key whose value has changed.

    Args:
        store: the store of the subscriptions.
        serdes: the serdes of the left keys, the foreign keys and the foreign values.
        versioned: whether the foreign table is versioned.
    """

    promises = Promises(by_key=True)

    def __init__(self, store: str, serdes: tuple[Serde[Any], Serde[Any], Serde[Any]], *, versioned: bool) -> None:
        self._store_name = store
        self._key_serde, self._foreign_serde, self._value_serde = serdes
        self._columns = _columns_of(serdes)
        self._versioned = versioned

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.store(self._store_name)

    def process(self, batch: Batch) -> None:
        batch = latest_only(self.context, batch, self._versioned)
        out = BatchBuilder(positions=batch.positions is not None)
        foreign_keys = self._foreign_serde.serialize_many(batch.keys)
        subscribers = {key: self._subscribers(key) for key in set(foreign_keys)}
        there = [value for value in batch.values if value is not None]
        data = column_of(self._value_serde.serialize_many(there), batch.values)
        rows = zip(foreign_keys, data, batch.timestamps, batch.headers_of_each, strict=True)
        for i, (key, value, timestamp, out.current) in enumerate(rows):
            content, told = (Content.NOTHING, b"") if value is None else (Content.VALUE, value)
            for primary_key, hash_ in subscribers[key]:
                out.add(primary_key, response_bytes(hash_, content, told), timestamp, position=batch.position_at(i))
        out.keys = self._key_serde.deserialize_many(out.keys)
        self.context.forward(out.build())

    def process_columns(self, columns: Columns) -> None:
        columns = latest_only(self.context, columns, self._versioned)
        if not len(columns):
            return
        try:
            answers = self._answers(columns)
        except pa.ArrowInvalid:  # a key is no column's, or the answers are more than a column holds
            answers = None
        if answers is None:
            self.process(columns.to_batch())
        else:
            self.context.forward_columns(answers)

    def _answers(self, columns: Columns) -> Columns | None:
        """Return the answers to all subscriptions; None if the updates have to be objects."""
        serdes = self._columns
        if serdes is None or serdes.value is None or not serdes.foreign_key.takes(columns.keys.type):
            return None
        if not serdes.value.takes(columns.values.type):
            return None
        distinct = serdes.foreign_key.write(columns.keys).dictionary_encode()
        found = list(map(self._subscribers, distinct.dictionary.to_pylist()))
        sizes = np.fromiter(map(len, found), np.int64, len(found))
        updates = distinct.indices.to_numpy()
        told = sizes[updates]
        # The subscriptions of each update's key lie side by side.
        starts = np.repeat((sizes.cumsum() - sizes)[updates] - (told.cumsum() - told), told)
        places: Any = pa.array(starts + np.arange(len(starts)))
        rows = np.arange(len(columns)).repeat(told)
        primary_keys = pa.array([key for some in found for key, _ in some], pa.binary())
        hashes = pa.array([hash_ for some in found for _, hash_ in some], pa.binary())
        values = serdes.value.write(columns.values).take(pa.array(rows))
        contents = np.where(valid(values), Content.VALUE, Content.NOTHING)
        answers = response_column(hashes.take(places), contents.astype(np.uint8), values)
        positions = None if columns.positions is None else columns.positions[rows]
        return Columns(serdes.key.read(primary_keys).take(places), answers, columns.timestamps[rows], positions)

    def _subscribers(self, foreign_key: bytes) -> list[tuple[bytes, bytes]]:
        """Return the bytes of the primary keys that have subscribed to a foreign key, and their hashes."""
        found = self._store.prefix_scan(combined_key(foreign_key, b""))
        return [(primary_key_of(combined), hash_) for combined, hash_ in found]


class _Columns(NamedTuple):
    """The serdes for whole columns; None for the values' serde if these have to be objects."""

    key: ColumnSerde
    foreign_key: ColumnSerde
    value: ColumnSerde | None


def _columns_of(serdes: tuple[Serde[Any], Serde[Any], Serde[Any]]) -> _Columns | None:
    """Return the three of them; None if keys need objects."""
    keys = column_serdes(*serdes[:2])
    return None if keys is None else _Columns(keys[0], keys[1], column_serde(serdes[2]))

"""Foreign-key table-table join: each row of the left table finds the row of the foreign table that it names (KIP-213).

The rows that belong together live in different tasks, so the tasks exchange messages::

    left task       a changed row subscribes at its foreign key, with its value's hash; the result task gets the value
    foreign task    keeps the subscriptions; answers each, and all of a key again when its foreign value changes
    result task     keeps the left values; joins an answer with the one that asked for it, and drops stale answers

The three never form a cycle, so a job can run them one after the other. This module has the first two; the third is
``millpond.processors.tables.foreign_key_results``.

KIP-914: an update of a versioned side that is not its key's latest is counted and ignored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.foreign_key_messages import (
    Content,
    Instruction,
    combined_key,
    left_row_bytes,
    murmur3_128_many,
    primary_key_of,
    read_subscriptions,
    response_bytes,
    subscription_bytes,
)
from millpond.processors.tables.value_getters import ValueGetterFactory
from millpond.stores.serdes import Serde
from millpond.stores.times import MIN_TIME
from millpond.stores.typed.store import column_of


def latest_only(context: ProcessorContext, batch: Batch, versioned: bool) -> Batch:
    """The updates of ``batch`` without those that a versioned table ignores, which are counted."""
    if not versioned or batch.latest is None:
        return batch
    kept = batch.select(batch.latest)
    context.count(CounterName.DROPPED_OUT_OF_ORDER, len(batch) - len(kept))
    return kept


class LatestOnly(Processor):
    """Passes on a table's latest rows, for a copy of the table elsewhere."""

    by_key = True
    keeps_records = True

    def __init__(self, versioned: bool) -> None:
        self._versioned = versioned

    def process(self, batch: Batch) -> None:
        self.context.forward(latest_only(self.context, batch, self._versioned))


class SubscriptionSend(Processor):
    """In the left task: turns each changed row into subscriptions, and sends its value to the result task.

    A row for which ``extract`` fails counts as deleted, if such records are to be left out.

    Args:
        extract: ``extract(key, value)`` returns the foreign key.
        serdes: of the left keys, the left values and the foreign keys.
        join_type: inner, or left, where rows without a foreign value have a result too.
        versioned: whether the left table is versioned.
        subscriptions, rows: the sinks of the two kinds of messages.
    """

    repeatable = True
    by_key = True

    def __init__(
        self,
        extract: Callable[[Any, Any], Any],
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

    def process(self, batch: Batch) -> None:
        self.context.attempt(self._send, latest_only(self.context, batch, self._versioned))

    def _send(self, batch: Batch) -> None:
        olds = self._old_keys(batch)
        news, data = self._rows_of(batch)
        hashes = column_of(murmur3_128_many([one for one in data if one is not None]), data)
        rows = [
            None if value is None or hash_ is None else left_row_bytes(new is not None, hash_, value)
            for value, hash_, new in zip(data, hashes, news, strict=True)
        ]
        self.context.forward_to(self._rows, batch.with_values(rows))
        self.context.forward_to(self._subscriptions, self._subscribing(batch, olds, news, hashes))

    def _subscribing(
        self, batch: Batch, olds: Sequence[Any], news: Sequence[Any], hashes: Sequence[bytes | None]
    ) -> Batch:
        """What to tell the foreign keys that rows have named and name now, in the order of the rows."""
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
                told.append(subscription_bytes(hash_, _FORGET[answered], primary_key))
                places.append(i)
            if new is not None:
                keys.append(new)
                told.append(subscription_bytes(hash_, _ASK[self._inner and old is None], primary_key))
                places.append(i)
        timestamps = list(map(batch.timestamps.__getitem__, places))
        positions = None if batch.positions is None else list(map(batch.positions.__getitem__, places))
        return Batch(keys, told, timestamps, positions=positions)

    def _old_keys(self, batch: Batch) -> list[Any]:
        """The foreign keys of the rows before; None of those that fail, which have been counted before."""
        if batch.olds is None:
            return [None] * len(batch)
        extract = self._extract
        try:
            return [None if old is None else extract(key, old) for key, old in zip(batch.keys, batch.olds, strict=True)]
        except Exception:  # a user's code may raise anything
            return list(map(self._old_key, batch.keys, batch.olds))

    def _old_key(self, key: Any, old: Any) -> Any:
        try:
            return None if old is None else self._extract(key, old)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

    def _rows_of(self, batch: Batch) -> tuple[list[Any], list[bytes | None]]:
        """The rows' foreign keys and their bytes; None of those that are deleted, or fail."""
        extract, values = self._extract, batch.values
        try:
            keys = [None if one is None else extract(key, one) for key, one in zip(batch.keys, values, strict=True)]
            return keys, column_of(self._value_serde.serialize_many([one for one in values if one is not None]), values)
        except Exception:  # a user's code may raise anything
            rows = list(map(self._row, batch.keys, values, batch.timestamps))
            return [key for key, _ in rows], [data for _, data in rows]

    def _row(self, key: Any, value: Any, timestamp: int) -> tuple[Any, bytes | None]:
        """A row's foreign key and its bytes; nothing of one that fails."""
        if value is None:
            return None, None
        try:
            return self._extract(key, value), self._value_serde.serialize(value)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp)
            return None, None

    def _moved(self, olds: Sequence[Any], news: Sequence[Any]) -> list[bool]:
        """Which rows no longer name the foreign key that they have named."""
        moved = [old is not None for old in olds]
        both = [i for i, new in enumerate(news) if new is not None and moved[i]]
        serialize_many = self._foreign_serde.serialize_many
        sides = (serialize_many([column[i] for i in both]) for column in (olds, news))
        for i, old, new in zip(both, *sides, strict=True):
            moved[i] = old != new
        return moved


_FORGET: Final = Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE
"""What to tell a foreign key that is no longer named; the second asks for an answer."""
_ASK: Final = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
"""What to tell one that is named; to the second the lack of a foreign value matters only if there is a result."""


class SubscriptionReceive(Processor):
    """In the foreign task: keeps or forgets each subscription and answers it.

    Args:
        store: where the subscriptions are kept.
        foreign: the foreign table.
        serdes: of the left keys, the foreign keys and the foreign values.
    """

    by_key = True

    def __init__(
        self, store: str, foreign: ValueGetterFactory, serdes: tuple[Serde[Any], Serde[Any], Serde[Any]]
    ) -> None:
        self._store_name = store
        self._foreign = foreign
        self._key_serde, self._foreign_serde, self._value_serde = serdes

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.store(self._store_name)
        self._getter = self._foreign.make(context)
        self.looks_up = dict.fromkeys(self._foreign.stores, False)

    def process(self, batch: Batch) -> None:
        foreign_keys = self._foreign_serde.serialize_many(batch.keys)
        subscriptions = list(read_subscriptions(batch.values))
        self._keep(foreign_keys, subscriptions)
        asking = Batch(foreign_keys, subscriptions, batch.timestamps, positions=batch.positions).select(
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
        self.context.forward(Batch(primary_keys, answers, times, positions=asking.positions))

    def _keep(self, foreign_keys: list[bytes], subscriptions: list[tuple[bytes | None, int, bytes]]) -> None:
        prefixes = {key: combined_key(key, b"") for key in set(foreign_keys)}
        kept = {
            prefixes[key] + primary_key: None if instruction in _FORGET else hash_
            for key, (hash_, instruction, primary_key) in zip(foreign_keys, subscriptions, strict=True)
        }
        self._store.put_many(list(kept), list(kept.values()))

    def _found(self, keys: Mapping[bytes, Any], wanted: Iterable[bytes]) -> dict[bytes, tuple[bytes | None, int]]:
        """For foreign keys the value's bytes and its time; None and any time if there is none.

        Args:
            keys: the keys by their bytes.
            wanted: the bytes of those that are asked for; each value is read and serialized once.
        """
        wanted = list(wanted)
        rows = self._getter.get_many([keys[foreign_key] for foreign_key in wanted])
        data = self._value_serde.serialize_many([row.value for row in rows if row is not None])
        times = [MIN_TIME if row is None else row.timestamp for row in rows]
        return dict(zip(wanted, zip(column_of(data, rows), times, strict=True), strict=True))


def _answer(instruction: int, hash_: bytes | None, data: bytes | None) -> bytes:
    """The response to a subscription, whose foreign value's bytes are ``data``."""
    if instruction == Instruction.DELETE_KEY_AND_PROPAGATE:
        # A row that still exists but no longer names a foreign row matters only if it has a result.
        return response_bytes(hash_, Content.NOTHING if hash_ is None else Content.RETRACTION)
    if data is not None:
        return response_bytes(hash_, Content.VALUE, data)
    quiet = instruction == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
    return response_bytes(hash_, Content.RETRACTION if quiet else Content.NOTHING)


class ForeignTableJoin(Processor):
    """In the foreign task: answers all subscriptions of a foreign key whose value has changed.

    Args:
        store: where the subscriptions are kept.
        serdes: of the left keys, the foreign keys and the foreign values.
        versioned: whether the foreign table is versioned.
    """

    by_key = True

    def __init__(self, store: str, serdes: tuple[Serde[Any], Serde[Any], Serde[Any]], *, versioned: bool) -> None:
        self._store_name = store
        self._key_serde, self._foreign_serde, self._value_serde = serdes
        self._versioned = versioned

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.store(self._store_name)

    def process(self, batch: Batch) -> None:
        batch = latest_only(self.context, batch, self._versioned)
        out = BatchBuilder(positions=batch.positions is not None)
        foreign_keys = self._foreign_serde.serialize_many(batch.keys)
        subscribers = {key: self._subscribers(key) for key in set(foreign_keys)}
        present = [value for value in batch.values if value is not None]
        data = column_of(self._value_serde.serialize_many(present), batch.values)
        for i, (key, value, timestamp) in enumerate(zip(foreign_keys, data, batch.timestamps, strict=True)):
            content, told = (Content.NOTHING, b"") if value is None else (Content.VALUE, value)
            for primary_key, hash_ in subscribers[key]:
                out.add(primary_key, response_bytes(hash_, content, told), timestamp, position=batch.position_at(i))
        out.keys = self._key_serde.deserialize_many(out.keys)
        self.context.forward(out.build())

    def _subscribers(self, foreign_key: bytes) -> list[tuple[bytes, bytes]]:
        """The bytes of the primary keys that have subscribed to a foreign key, and their hashes."""
        found = self._store.prefix_scan(combined_key(foreign_key, b""))
        return [(primary_key_of(combined), hash_) for combined, hash_ in found]

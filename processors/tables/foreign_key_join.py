"""Foreign-key table-table join: each row of the left table finds the row of the foreign table that it names (KIP-213).

The rows that belong together live in different tasks, so the tasks exchange messages::

    left task       a changed row subscribes at its foreign key, with its value's hash; the result task gets the value
    foreign task    keeps the subscriptions; answers each, and all of a key again when its foreign value changes
    result task     keeps the left values; joins an answer with the one that asked for it, and drops stale answers

The three never form a cycle, so a job can run them one after the other. The result task holds answers back until the
end of the micro-batch, when it knows every left value of the batch, whatever order the messages came in.

KIP-914: an update of a versioned side that is not its key's latest is counted and ignored.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batch import Batch, BatchBuilder, concatenate
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.foreign_key_messages import (
    Content,
    Instruction,
    LeftRow,
    Response,
    Subscription,
    combined_key,
    murmur3_128_many,
    primary_key_of,
)
from millpond.processors.tables.join import Joiner
from millpond.processors.tables.table_store import TableStore
from millpond.processors.tables.value_getters import ValueGetterFactory
from millpond.stores.serdes import Serde


def latest_only(context: ProcessorContext, batch: Batch, versioned: bool) -> Batch:
    """The updates of ``batch`` without those that a versioned table ignores, which are counted."""
    if not versioned or batch.latest is None:
        return batch
    kept = batch.select(batch.latest)
    context.count(CounterName.DROPPED_OUT_OF_ORDER, len(batch) - len(kept))
    return kept


def joined_or_none(context: ProcessorContext, joiner: Joiner, key: Any, left: Any, foreign: Any, timestamp: int) -> Any:
    """The result of the joiner; None if it fails and such records are to be left out, so that there is no row."""
    try:
        return joiner(key, left, foreign)
    except Exception as error:  # a user's code may raise anything
        context.leave_out(error, key, left, timestamp)
        return None


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
        positions = batch.positions is not None
        messages, rows = BatchBuilder(positions=positions), BatchBuilder(positions=positions)
        olds = batch.olds or [None] * len(batch)
        old_keys = list(map(self._old_key, batch.keys, olds))
        news = list(map(self._row, batch.keys, batch.values, batch.timestamps))
        hashes = iter(murmur3_128_many([data for _, _, data in news if data is not None]))
        for i, (key, old_key, (new, new_key, data)) in enumerate(zip(batch.keys, old_keys, news, strict=True)):
            timestamp, position = batch.timestamps[i], batch.position_at(i)
            row = hash_ = None
            if data is not None:
                hash_ = next(hashes)
                row = LeftRow(new_key is not None, hash_, data).to_bytes()
            for foreign_key, instruction in self._instructions(old_key, new_key, new is None):
                subscription = Subscription(hash_, instruction, self._key_serde.serialize(key))
                messages.add(foreign_key, subscription.to_bytes(), timestamp, position=position)
            rows.add(key, row, timestamp, position=position)
        self.context.forward_to(self._rows, rows.build())
        self.context.forward_to(self._subscriptions, messages.build())

    def _old_key(self, key: Any, old: Any) -> Any:
        try:
            return None if old is None else self._extract(key, old)
        except Exception as error:  # a user's code may raise anything
            self.context.check(error)
            return None

    def _row(self, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, bytes | None]:
        """The row's value, its foreign key and its bytes; nothing of one that fails."""
        if value is None:
            return None, None, None
        try:
            return value, self._extract(key, value), self._value_serde.serialize(value)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, value, timestamp)
            return None, None, None

    def _instructions(self, old_key: Any, new_key: Any, deleted: bool) -> list[tuple[Any, Instruction]]:
        """Foreign keys and what to tell each; exactly one message asks for an answer if a result may have to change."""
        told = []
        if old_key is not None and (new_key is None or not self._same(old_key, new_key)):
            # The result of a left row that has lost its foreign key does not depend on an answer.
            answered = new_key is None and (deleted or self._inner)
            told.append(
                (old_key, Instruction.DELETE_KEY_AND_PROPAGATE if answered else Instruction.DELETE_KEY_NO_PROPAGATE)
            )
        if new_key is not None:
            quiet = self._inner and old_key is None
            told.append(
                (
                    new_key,
                    Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
                    if quiet
                    else Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
                )
            )
        return told

    def _same(self, old_key: Any, new_key: Any) -> bool:
        return self._foreign_serde.serialize(old_key) == self._foreign_serde.serialize(new_key)


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
        out = BatchBuilder(positions=batch.positions is not None)
        found = self._getter.get_many(batch.keys)
        subscriptions = list(map(Subscription.from_bytes, batch.values))
        self._keep(batch.keys, subscriptions)
        for i, (subscription, foreign) in enumerate(zip(subscriptions, found, strict=True)):
            timestamp = batch.timestamps[i]
            response = self._answer(subscription, None if foreign is None else foreign.value)
            if response is not None:
                primary_key = self._key_serde.deserialize(subscription.primary_key)
                last = timestamp if foreign is None else max(timestamp, foreign.timestamp)
                out.add(primary_key, response.to_bytes(), last, position=batch.position_at(i))
        self.context.forward(out.build())

    def _keep(self, keys: list[Any], subscriptions: list[Subscription]) -> None:
        serialize = self._foreign_serde.serialize
        combined = [
            combined_key(serialize(key), subscription.primary_key)
            for key, subscription in zip(keys, subscriptions, strict=True)
        ]
        hashes = [None if one.instruction in _DELETIONS else one.hash for one in subscriptions]
        self._store.put_many(combined, hashes)

    def _answer(self, subscription: Subscription, value: Any) -> Response | None:
        instruction, hash_ = subscription.instruction, subscription.hash
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return None
        if instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            # A row that still exists but no longer names a foreign row matters only if it has a result.
            return Response(hash_, Content.NOTHING if hash_ is None else Content.RETRACTION)
        if value is not None:
            return Response(hash_, Content.VALUE, self._value_serde.serialize(value))
        quiet = instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
        return Response(hash_, Content.RETRACTION if quiet else Content.NOTHING)


_DELETIONS = (Instruction.DELETE_KEY_NO_PROPAGATE, Instruction.DELETE_KEY_AND_PROPAGATE)


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
        subscribers: dict[bytes, list[tuple[Any, bytes | None]]] = {}
        for i, (key, value, timestamp) in enumerate(zip(batch.keys, batch.values, batch.timestamps, strict=True)):
            content = Content.NOTHING if value is None else Content.VALUE
            data = b"" if value is None else self._value_serde.serialize(value)
            prefix = combined_key(self._foreign_serde.serialize(key), b"")
            if prefix not in subscribers:
                subscribers[prefix] = self._subscribers(prefix)
            for primary_key, hash_ in subscribers[prefix]:
                response = Response(hash_, content, data).to_bytes()
                out.add(primary_key, response, timestamp, position=batch.position_at(i))
        self.context.forward(out.build())

    def _subscribers(self, prefix: bytes) -> list[tuple[Any, bytes | None]]:
        """The primary keys that have subscribed to a foreign key, and their hashes."""
        deserialize = self._key_serde.deserialize
        return [(deserialize(primary_key_of(combined)), hash_) for combined, hash_ in self._store.prefix_scan(prefix)]


class UnjoinedRows(Processor):
    """In the result task of a left join: the results of left rows without a foreign key, which nobody answers."""

    by_key = True

    def __init__(self, joiner: Joiner, value_serde: Serde[Any]) -> None:
        self._joiner = joiner
        self._value_serde = value_serde

    def process(self, batch: Batch) -> None:
        out = BatchBuilder(positions=batch.positions is not None)
        olds = batch.olds or [None] * len(batch)
        columns = zip(batch.keys, batch.values, olds, batch.timestamps, strict=True)
        for i, (key, new, old, timestamp) in enumerate(columns):
            row = None if new is None else LeftRow.from_bytes(new)
            if row is not None and not row.names_foreign:
                left = self._value_serde.deserialize(row.value)
                result = joined_or_none(self.context, self._joiner, key, left, None, timestamp)
                out.add(key, result, timestamp, position=batch.position_at(i))
            elif row is None and old is not None and not LeftRow.from_bytes(old).names_foreign:
                out.add(key, None, timestamp, position=batch.position_at(i))
        self.context.forward(out.build())


class ResponseJoin(Processor):
    """In the result task: joins each answer with the left value that asked for it, at the end of the micro-batch.

    Args:
        rows: the store of the left rows.
        result: the store of the results.
        joiner: called with key, left value and foreign value.
        serdes: of the left and the foreign values.
        join_type: inner, or left, where rows without a foreign value have a result too.
    """

    at_flush = True

    def __init__(
        self, rows: str, result: str, joiner: Joiner, serdes: tuple[Serde[Any], Serde[Any]], join_type: JoinType
    ) -> None:
        self._stores = rows, result
        self._joiner = joiner
        self._left_serde, self._foreign_serde = serdes
        self._inner = join_type is JoinType.INNER

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._rows, self._results = (TableStore(context.store(name)) for name in self._stores)
        self._serialize_key = context.store(self._stores[0]).key_serde.serialize
        self._waiting: list[Batch] = []

    def process(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._resolve(concatenate(waiting))

    def _resolve(self, batch: Batch) -> None:
        out = BatchBuilder()
        answered: set[bytes] = set()
        stored_rows = self._rows.store.get_many(batch.keys)
        for key, data, timestamp, stored in zip(batch.keys, batch.values, batch.timestamps, stored_rows, strict=True):
            response = Response.from_bytes(data)
            row = None if stored is None else LeftRow.from_bytes(stored.value)
            if response.hash != (None if row is None else row.hash):
                self.context.count(CounterName.DROPPED_STALE_RESPONSE)
                continue
            raw = self._serialize_key(key)
            if response.content is Content.RETRACTION:
                if raw in answered:
                    self.context.forward(out.build())
                    out, answered = BatchBuilder(), set()
                if self._results.get(key) is None:
                    continue
            answered.add(raw)
            if stored is not None:
                timestamp = max(timestamp, stored.timestamp)
            out.add(key, self._join(key, row, response, timestamp), timestamp)
        self.context.forward(out.build())

    def _join(self, key: Any, row: LeftRow | None, response: Response, timestamp: int) -> Any:
        if row is None:
            return None
        foreign = None
        if response.content is Content.VALUE:
            foreign = self._foreign_serde.deserialize(response.foreign_value)
        elif self._inner:
            return None
        left = self._left_serde.deserialize(row.value)
        return joined_or_none(self.context, self._joiner, key, left, foreign, timestamp)

"""The result task of a foreign-key join: joins left rows with the answers that they got.

It holds answers back until the end of the micro-batch, when it knows every left value of the batch, whatever order the
messages came in. ``millpond.processors.tables.foreign_key_join`` draws the three tasks.

Rule of this module: what a micro-batch's answers need of the stores is read together, and a foreign value that many of
them carry becomes one object.
"""

from itertools import compress
from typing import Any

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder, concatenate
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.processor import Processor, ProcessorContext
from millpond.processors.tables.foreign_key_messages import Content, read_left_rows, read_responses
from millpond.processors.tables.join import Joiner
from millpond.processors.tables.table_store import TableStore
from millpond.stores.serdes import Serde


class UnjoinedRows(Processor):
    """In the result task of a left join: the results of left rows without a foreign key, which nobody answers."""

    by_key = True

    def __init__(self, joiner: Joiner, value_serde: Serde[Any]) -> None:
        self._joiner = joiner
        self._value_serde = value_serde

    def process(self, batch: Batch) -> None:
        out = BatchBuilder(positions=batch.positions is not None)
        news, olds = read_left_rows(batch.values), read_left_rows(batch.olds or [None] * len(batch))
        columns = zip(batch.keys, news, olds, batch.timestamps, strict=True)
        for i, (key, new, old, timestamp) in enumerate(columns):
            if new is not None and not new[0]:
                out.add(key, self._result(key, new[2], timestamp), timestamp, position=batch.position_at(i))
            elif new is None and old is not None and not old[0]:
                out.add(key, None, timestamp, position=batch.position_at(i))
        self.context.forward(out.build())

    def _result(self, key: Any, data: bytes, timestamp: int) -> Any:
        """The result of the joiner; None if it fails and such records are to be left out, so that there is no row."""
        left = self._value_serde.deserialize(data)
        try:
            return self._joiner(key, left, None)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, left, timestamp)
            return None


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
        self._serialize_keys = context.store(self._stores[0]).key_serde.serialize_many
        self._waiting: list[Batch] = []

    def process(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._resolve(concatenate(waiting))

    def _resolve(self, batch: Batch) -> None:
        rows = self._rows.store.get_many(batch.keys)
        lefts = list(read_left_rows([None if row is None else row.value for row in rows]))
        responses = list(read_responses(batch.values))
        current = [
            hash_ == (None if left is None else left[1]) for (hash_, _, _), left in zip(responses, lefts, strict=True)
        ]
        self.context.count(CounterName.DROPPED_STALE_RESPONSE, current.count(False))
        times = [
            timestamp if row is None or row.timestamp < timestamp else row.timestamp
            for timestamp, row in zip(batch.timestamps, rows, strict=True)
        ]
        answers = Batch(batch.keys, list(zip(responses, lefts, strict=True)), times).select(current)
        retracted = [response[1] == Content.RETRACTION for response, _ in answers.values]
        results = answers.with_values(self._joined(answers))
        if any(retracted):
            self._forward_retracting(results, retracted)
        else:
            self.context.forward(results)

    def _joined(self, answers: Batch) -> list[Any]:
        """The results of answers, whose values are a response and a left row; None where there is none."""
        places = [
            i
            for i, (response, left) in enumerate(answers.values)
            if left is not None and (response[1] == Content.VALUE or not self._inner)
        ]
        lefts = self._left_serde.deserialize_many([answers.values[i][1][2] for i in places])
        responses = [answers.values[i][0] for i in places]
        distinct = list({data: None for _, content, data in responses if content == Content.VALUE})
        foreigns = dict(zip(distinct, self._foreign_serde.deserialize_many(distinct), strict=True))
        results: list[Any] = [None] * len(answers)
        for i, left, (_, content, data) in zip(places, lefts, responses, strict=True):
            foreign = foreigns[data] if content == Content.VALUE else None
            try:
                results[i] = self._joiner(answers.keys[i], left, foreign)
            except Exception as error:  # a user's code may raise anything
                self.context.leave_out(error, answers.keys[i], left, answers.timestamps[i])
        return results

    def _forward_retracting(self, results: Batch, retracted: list[bool]) -> None:
        """Forward results without those that are retracted although there is none."""
        known = iter(self._results.store.get_many(list(compress(results.keys, retracted))))
        out = BatchBuilder()
        answered: set[bytes] = set()
        raw_keys = self._serialize_keys(results.keys)
        columns = zip(results.keys, raw_keys, results.values, results.timestamps, retracted, strict=True)
        for key, raw, value, timestamp, is_retracted in columns:
            if is_retracted:
                result = next(known)
                if raw in answered:
                    self.context.forward(out.build())
                    out = BatchBuilder()
                    result = self._results.get(key)
                if result is None:
                    continue
            answered.add(raw)
            out.add(key, value, timestamp)
        self.context.forward(out.build())

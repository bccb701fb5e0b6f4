"""The result task of a foreign-key join: joins left rows with the answers that they got.

It holds answers back until the end of the micro-batch, when it knows every left value of the batch, whatever order the
messages came in.

Rule of this module: the stores are read once for all answers of a micro-batch, and a foreign value that many of
them carry becomes one object.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Any

from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch, BatchBuilder
from millpond.processors.runtime.batches.columns import Columns, Records, joined
from millpond.processors.runtime.batches.headers import Headers
from millpond.processors.runtime.batches.user_functions import RowFunction
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.tables.foreign_key.messages import Content, read_left_rows, read_responses
from millpond.processors.tables.table_view import TableStore
from millpond.stores.encoding.serdes import Serde
from millpond.stores.typed.store import column_of


class RowJoining(Operator):
    """Joins left values with foreign ones by a user's function.

    Args:
        joiner: the result for a key, a left value and a foreign value.
    """

    def __init__(self, joiner: RowFunction) -> None:
        self._joiner = joiner

    def _results_of(self, asking: Batch, lefts: Sequence[Any], foreigns: Sequence[Any]) -> list[Any]:
        """Return the results; None where the joiner fails and the policy leaves such records out."""
        return list(map(self._result, asking.keys, lefts, foreigns, asking.timestamps, asking.headers_of_each))

    def _result(self, key: Any, left: Any, foreign: Any, timestamp: int, headers: Headers | None) -> Any:
        try:
            return self._joiner.one(key, left, foreign)
        except Exception as error:  # a user's code may raise anything
            self.context.leave_out(error, key, left, timestamp, headers=headers)
            return None


class UnjoinedRows(RowJoining):
    """In the result task of a left join: the results of left rows without a foreign key, which nobody answers.

    Args:
        joiner: makes the result for a key and a left value without a foreign one.
        serdes: the serdes of the left and the foreign values.
    """

    promises = Promises(by_key=True)

    def __init__(self, joiner: RowFunction, serdes: tuple[Serde[Any], Serde[Any]]) -> None:
        super().__init__(joiner)
        self._left_serde, _ = serdes

    def process(self, batch: Batch) -> None:
        news, olds = read_left_rows(batch.values), read_left_rows(batch.olds or [None] * len(batch))
        places, data = [], []
        for i, (new, old) in enumerate(zip(news, olds, strict=True)):
            if (new is not None and not new[0]) or (new is None and old is not None and not old[0]):
                places.append(i)
                data.append(None if new is None else new[2])
        unjoined = batch.taken(places)
        self.context.forward(unjoined.with_values(self._unjoined(unjoined, data)))

    def _unjoined(self, rows: Batch, data: Sequence[bytes | None]) -> list[Any]:
        """Return the results of rows whose left values have these bytes; None for deleted rows."""
        there = [one is not None for one in data]
        lefts = self._left_serde.deserialize_many([one for one in data if one is not None])
        rows = rows.select(there)
        return column_of(self._results_of(rows, lefts, [None] * len(lefts)), data)


class ResponseJoin(RowJoining):
    """In the result task: joins each answer with the left value that asked for it, at the end of the micro-batch.

    Args:
        joiner: makes the result for a key, a left value and a foreign value.
        rows: the store of the left rows.
        result: the store of the results.
        serdes: the serdes of the left and the foreign values.
        join_type: inner, or left, where rows without a foreign value have a result too.
    """

    promises = Promises(at_flush=True)

    def __init__(
        self, joiner: RowFunction, rows: str, result: str, serdes: tuple[Serde[Any], Serde[Any]], join_type: JoinType
    ) -> None:
        super().__init__(joiner)
        self._stores = rows, result
        self._left_serde, self._foreign_serde = serdes
        self._inner = join_type is JoinType.INNER

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._rows, self._results = (TableStore(context.store(name)) for name in self._stores)
        self._serialize_keys = context.store(self._stores[0]).key_serde.serialize_many
        self._waiting: list[Records] = []

    def process(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def process_columns(self, columns: Columns) -> None:
        self._waiting.append(columns)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._resolve_run(joined(waiting))

    def _resolve_run(self, answers: Records) -> None:
        self._resolve(answers.to_batch())

    def _resolve(self, batch: Batch) -> None:
        rows = self._rows.get_many(batch.keys)
        lefts = list(read_left_rows([None if row is None else row.value for row in rows]))
        responses = list(read_responses(batch.values))
        same = [
            hash_ == (None if left is None else left[1]) for (hash_, _, _), left in zip(responses, lefts, strict=True)
        ]
        # A row that has lost its foreign key may be another by now. Unless it names one again, it has no result either.
        lost = [
            self._inner and content != Content.VALUE and (left is None or not left[0])
            for (_, content, _), left in zip(responses, lefts, strict=True)
        ]
        current = [one or other for one, other in zip(same, lost, strict=True)]
        self.context.count(CounterName.DROPPED_STALE_RESPONSE, current.count(False))
        times = [
            timestamp if row is None or row.timestamp < timestamp else row.timestamp
            for timestamp, row in zip(batch.timestamps, rows, strict=True)
        ]
        answers = Batch(batch.keys, list(zip(responses, lefts, strict=True)), times, headers=batch.headers).select(
            current
        )
        retracted = [
            response[1] == Content.RETRACTION or not whose
            for (response, _), whose in zip(answers.values, compress(same, current), strict=True)
        ]
        results = answers.with_values(self._joined(answers))
        if any(retracted):
            self._forward_retracting(results, retracted)
        else:
            self.context.forward(results)

    def _joined(self, answers: Batch) -> list[Any]:
        """Return the results of answers, whose values are a response and a left row; None where there is none."""
        places = [
            i
            for i, (response, left) in enumerate(answers.values)
            if left is not None and (response[1] == Content.VALUE or not self._inner)
        ]
        lefts = self._left_serde.deserialize_many([answers.values[i][1][2] for i in places])
        responses = [answers.values[i][0] for i in places]
        distinct = list({data: None for _, content, data in responses if content == Content.VALUE})
        foreigns = dict(zip(distinct, self._foreign_serde.deserialize_many(distinct), strict=True))
        foreign = [foreigns[data] if content == Content.VALUE else None for _, content, data in responses]
        asking = answers.taken(places)
        results: list[Any] = [None] * len(answers)
        for i, result in zip(places, self._results_of(asking, lefts, foreign), strict=True):
            results[i] = result
        return results

    def _forward_retracting(self, results: Batch, retracted: list[bool]) -> None:
        """Forward results without retractions of results that there never were."""
        known = iter(self._results.get_many(list(compress(results.keys, retracted))))
        out = BatchBuilder()
        answered: set[bytes] = set()
        raw_keys = self._serialize_keys(results.keys)
        columns = zip(
            results.keys,
            raw_keys,
            results.values,
            results.timestamps,
            retracted,
            results.headers_of_each,
            strict=True,
        )
        for key, raw, value, timestamp, is_retracted, headers in columns:
            if is_retracted:
                result = next(known)
                if raw in answered:
                    self.context.forward(out.build())
                    out = BatchBuilder()
                    result = self._results.get(key)
                if result is None:
                    continue
            answered.add(raw)
            out.current = headers
            out.add(key, value, timestamp)
        self.context.forward(out.build())

"""Stream-table join: each stream record looks the table up once (KIP-77), at its own time if the table is versioned.

KIP-914: against a versioned table the lookup is as of the record's timestamp, so that an out-of-order record meets the
value that was valid then. What lies beyond the history retention is null: an inner join drops the record, a left join
keeps it, and both count it.
"""

from collections.abc import Callable
from typing import Any

from millpond.processors.batch import Batch
from millpond.processors.processor import Processor, ProcessorContext
from millpond.processors.tables import ValueGetterFactory


class StreamTableJoin(Processor):
    """Joins each record of a stream with the table's value of its key.

    A null key joins nothing: an inner join drops the record, a left join passes it on alone. A null value is dropped by
    both.
    """

    def __init__(self, table: ValueGetterFactory, joiner: Callable[[Any, Any, Any], Any], *, left: bool) -> None:
        self._factory = table
        self._joiner = joiner
        self._left = left

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._getter = self._factory.make(context)

    def process(self, batch: Batch) -> None:
        left = self._left
        usable = [
            value is not None and (left or key is not None) for key, value in zip(batch.keys, batch.values, strict=True)
        ]
        kept = batch.select(usable)
        self.context.count("dropped-null", len(batch) - len(kept))
        if not len(kept):
            return
        found = self._look_up(kept)
        joiner = self._joiner
        if not left:
            matched = [entry is not None for entry in found]
            kept, found = kept.select(matched), [entry for entry in found if entry is not None]
        self.context.forward(
            kept.with_values(
                [
                    joiner(key, value, None if entry is None else entry.value)
                    for key, value, entry in zip(kept.keys, kept.values, found, strict=True)
                ]
            )
        )

    def _look_up(self, batch: Batch) -> list[Any]:
        if None not in batch.keys:
            return self._get(batch)
        present = batch.select([key is not None for key in batch.keys])
        entries = iter(self._get(present))
        return [None if key is None else next(entries) for key in batch.keys]

    def _get(self, batch: Batch) -> list[Any]:
        if self._getter.versioned:
            return list(self._getter.get_many_as_of(batch.keys, batch.timestamps))
        return list(self._getter.get_many(batch.keys))

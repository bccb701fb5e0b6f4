"""Stream operators that keep nothing: each record's results depend on that record alone."""

from collections.abc import Callable
from typing import Any

from millpond.processors.batch import Batch
from millpond.processors.processor import Processor


class StreamFilter(Processor):
    """Passes on the records for which ``predicate(key, value)`` is ``wanted``."""

    def __init__(self, predicate: Callable[[Any, Any], bool], wanted: bool = True) -> None:
        self._predicate = predicate
        self._wanted = wanted

    def process(self, batch: Batch) -> None:
        predicate, wanted = self._predicate, self._wanted
        self.context.forward(
            batch.select([bool(predicate(k, v)) is wanted for k, v in zip(batch.keys, batch.values, strict=True)])
        )


class StreamMapValues(Processor):
    """Replaces each value by ``mapper(value)``; also called for None (unlike on a table)."""

    def __init__(self, mapper: Callable[[Any], Any]) -> None:
        self._mapper = mapper

    def process(self, batch: Batch) -> None:
        self.context.forward(batch.with_values(list(map(self._mapper, batch.values))))


class StreamSelectKey(Processor):
    """Replaces each key by ``selector(key, value)``."""

    def __init__(self, selector: Callable[[Any, Any], Any]) -> None:
        self._selector = selector

    def process(self, batch: Batch) -> None:
        self.context.forward(Batch(list(map(self._selector, batch.keys, batch.values)), batch.values, batch.timestamps))


class DropNullKeys(Processor):
    """Stands before a repartition topic: a record without a key has no partition."""

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys])
        self.context.count("dropped-null-key", len(batch) - len(kept))
        self.context.forward(kept)

"""Stream operators that keep nothing: each record's results depend on that record alone.

Rule of this module: users' functions are called before anything is forwarded.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millpond.processors.options.functions import positional_parameters
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises

Predicate = Callable[[Any, Any], bool]
"""``predicate(key, value)``."""


class StreamFilter(Operator):
    """Passes on the records for which ``predicate(key, value)`` is ``wanted``."""

    promises = Promises(repeatable=True, by_key=True, keeps_records=True, keeps_positions=True)

    def __init__(self, predicate: Predicate, wanted: bool = True) -> None:
        self._predicate = predicate
        self._wanted = wanted

    def process(self, batch: Batch) -> None:
        verdicts = list(map(self._predicate, batch.keys, batch.values))
        self.context.forward(batch.select(verdicts if self._wanted else [not verdict for verdict in verdicts]))


class StreamMap(Operator):
    """Replaces each record with the pair ``mapper(key, value)``."""

    promises = Promises(repeatable=True, keeps_positions=True)

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper = mapper

    def process(self, batch: Batch) -> None:
        pairs = list(map(self._mapper, batch.keys, batch.values))
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        self.context.forward(Batch(keys, values, batch.timestamps, positions=batch.positions, headers=batch.headers))


class StreamMapValues(Operator):
    """Replaces each value with ``mapper(value)`` or ``mapper(key, value)``; called for None too, unlike on a table."""

    promises = Promises(repeatable=True, by_key=True, keeps_records=True, keeps_positions=True)

    def __init__(self, mapper: Callable[..., Any]) -> None:
        self._mapper = mapper
        self._keyed = positional_parameters(mapper) == 2

    def process(self, batch: Batch) -> None:
        columns = (batch.keys, batch.values) if self._keyed else (batch.values,)
        self.context.forward(batch.with_values(list(map(self._mapper, *columns))))


class StreamFlatMap(Operator):
    """Replaces each record with the pairs of ``mapper(key, value)``, all at the record's time."""

    promises = Promises(repeatable=True)

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def process(self, batch: Batch) -> None:
        keys: list[Any] = []
        values: list[Any] = []
        timestamps: list[int] = []
        counts: list[int] = []
        for pairs, timestamp in zip(map(self._mapper, batch.keys, batch.values), batch.timestamps, strict=True):
            before = len(keys)
            for key, value in pairs:
                keys.append(key)
                values.append(value)
                timestamps.append(timestamp)
            counts.append(len(keys) - before)
        headers = None
        if batch.headers is not None:
            headers = [one for one, count in zip(batch.headers, counts, strict=True) for _ in range(count)]
        self.context.forward(Batch(keys, values, timestamps, headers=headers))


class StreamFlatMapValues(Operator):
    """Replaces each record with one for each of the values in ``mapper(value)`` or ``mapper(key, value)``."""

    promises = Promises(repeatable=True, by_key=True, keeps_records=True)

    def __init__(self, mapper: Callable[..., Iterable[Any]]) -> None:
        self._mapper = mapper
        self._keyed = positional_parameters(mapper) == 2

    def process(self, batch: Batch) -> None:
        columns = (batch.keys, batch.values) if self._keyed else (batch.values,)
        made = [list(values) for values in map(self._mapper, *columns)]
        repeated = batch.taken([i for i, values in enumerate(made) for _ in values])
        self.context.forward(repeated.with_values([value for values in made for value in values]))


class StreamSelectKey(Operator):
    """Replaces each key with ``selector(key, value)``."""

    promises = Promises(repeatable=True, keeps_positions=True)

    def __init__(self, selector: Callable[[Any, Any], Any]) -> None:
        self._selector = selector

    def process(self, batch: Batch) -> None:
        keys = list(map(self._selector, batch.keys, batch.values))
        positions, headers = batch.positions, batch.headers
        self.context.forward(Batch(keys, batch.values, batch.timestamps, positions=positions, headers=headers))


class StreamPeek(Operator):
    """Shows each record to ``action(key, value)``, in the order of all records, and passes it on as it is."""

    promises = Promises(repeatable=True, keeps_records=True, keeps_positions=True)

    def __init__(self, action: Callable[[Any, Any], object]) -> None:
        self._action = action

    def process(self, batch: Batch) -> None:
        for key, value in zip(batch.keys, batch.values, strict=True):
            self._action(key, value)
        self.context.forward(batch)


class StreamPass(Operator):
    """Passes records on as they are, where several streams become one, or a branch begins."""

    promises = Promises(by_key=True, keeps_records=True, keeps_positions=True)

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)

    def process_columns(self, columns: Columns) -> None:
        self.context.forward_columns(columns)


class StreamSplit(Operator):
    """Sends each record to the child that is chosen for it; without one it is dropped.

    Args:
        destinations: the names of the children.
    """

    promises = Promises(repeatable=True, by_key=True, keeps_records=True, keeps_positions=True)

    def __init__(self, destinations: Sequence[str]) -> None:
        self._destinations = destinations

    @abstractmethod
    def choose(self, batch: Batch) -> list[str | None]:
        """Return the name of a child for each record, or None."""

    def process(self, batch: Batch) -> None:
        chosen = self.choose(batch)
        if self.context.separable:
            for child in self._destinations:
                self.context.forward_to(child, batch.select([choice == child for choice in chosen]))
            return
        for row, choice in zip(batch.rows(), chosen, strict=True):
            if choice is not None:
                self.context.forward_to(choice, row)


class StreamBranch(StreamSplit):
    """Sends each record to the child of the first predicate that is true for it.

    Args:
        branches: predicates and the names of the children, in the order in which they are tried.
    """

    def __init__(self, branches: Sequence[tuple[Predicate, str]]) -> None:
        super().__init__([child for _, child in branches])
        self._branches = branches

    def choose(self, batch: Batch) -> list[str | None]:
        return list(map(self._child, batch.keys, batch.values))

    def _child(self, key: Any, value: Any) -> str | None:
        return next((child for predicate, child in self._branches if predicate(key, value)), None)


class DropNullKeys(Operator):
    """Drops records without a key before a repartition topic: they have no partition."""

    promises = Promises(by_key=True, keeps_records=True)

    def process(self, batch: Batch) -> None:
        kept = batch.select([key is not None for key in batch.keys])
        self.context.count(CounterName.DROPPED_NULL_KEY, len(batch) - len(kept))
        self.context.forward(kept)

    def process_columns(self, columns: Columns) -> None:
        kept = columns.present()
        self.context.count(CounterName.DROPPED_NULL_KEY, len(columns) - len(kept))
        self.context.forward_columns(kept)

"""Folding columns of values into aggregates: the loops that all records of an aggregation go through.

Rule of this module: it knows neither stores nor windows. A *slot* is what has an aggregate of its own: a key, or a
key and a window. A state is an aggregate and the greatest timestamp of its records; where there is none, the state or
its aggregate is None. A state is replaced in its dict, never mutated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from millpond.stores.encoding.serdes import BYTES, INT64, STRING, Serde

Update = Callable[[Any, Any, Any], Any]
"""``update(key, value, aggregate) -> aggregate``; the result None deletes the aggregate."""

IMMUTABLE: Final = frozenset((int, float, str, bytes, bool, type(None)))
"""Types whose values an update cannot change in place."""

_EQUAL_BYTES: Final = (BYTES, STRING, INT64)
"""Serdes whose equal keys have equal bytes."""


def copier(serde: Serde[Any]) -> Callable[[Any], Any]:
    """Return a function that copies a value; the copy shares nothing mutable with the original."""

    def copy(value: Any) -> Any:
        return value if type(value) in IMMUTABLE else serde.deserialize(serde.serialize(value))

    return copy


def slotter(serde: Serde[Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a function from keys to what tells them apart: themselves, or their bytes where equal keys may differ."""
    return _themselves if serde in _EQUAL_BYTES else lambda keys: list(map(serde.serialize, keys))


def _themselves(keys: list[Any]) -> list[Any]:
    return keys


class Fold:
    """One aggregation, ready to be applied to columns.

    Args:
        initializer: makes the aggregate that a slot's first value is folded into.
        update: folds in one more value; may change the aggregate that it is given.
        copy: copies a value; the copy shares nothing mutable with the original.
        tally: ``tally(aggregate, n)`` folds in n values at once, if only their number matters.

    Attributes:
        initializer, update: as given.
    """

    def __init__(
        self,
        initializer: Callable[[], Any],
        update: Update,
        copy: Callable[[Any], Any],
        tally: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.initializer = initializer
        self.update = update
        self._copy = copy
        self._tally = tally

    def updates(
        self,
        states: dict[Any, Any],
        slots: Iterable[Any],
        keys: Sequence[Any],
        values: Sequence[Any],
        timestamps: Sequence[int],
        olds: list[Any] | None,
    ) -> tuple[list[Any], list[int]]:
        """Fold in all values; return the aggregate and timestamp after each; add the aggregates before to ``olds``."""
        initializer, update, copy = self.initializer, self.update, self._copy
        news: list[Any] = []
        times: list[int] = []
        for slot, key, value, timestamp in zip(slots, keys, values, timestamps, strict=True):
            state = states[slot]
            if state is None or state[0] is None:
                aggregate = initializer()
            else:
                aggregate, latest = state
                if latest > timestamp:
                    timestamp = latest
            if olds is not None:
                olds.append(copy(aggregate))
            new = update(key, value, aggregate)
            news.append(new)
            times.append(timestamp)
            states[slot] = (new if type(new) in IMMUTABLE else copy(new), timestamp)
        return news, times

    def silently(
        self,
        states: dict[Any, Any],
        slots: Sequence[Any],
        keys: Sequence[Any],
        values: Sequence[Any],
        timestamps: Sequence[int],
    ) -> None:
        """Fold in all values without returning each update."""
        if self._tally is not None:
            self._tally_all(self._tally, states, slots, timestamps)
            return
        initializer, update = self.initializer, self.update
        for slot, key, value, timestamp in zip(slots, keys, values, timestamps, strict=True):
            state = states[slot]
            if state is None or state[0] is None:
                aggregate = initializer()
            else:
                aggregate, latest = state
                if latest > timestamp:
                    timestamp = latest
            states[slot] = (update(key, value, aggregate), timestamp)

    def _tally_all(
        self, tally: Callable[[Any, int], Any], states: dict[Any, Any], slots: Sequence[Any], timestamps: Sequence[int]
    ) -> None:
        times = _latest(slots, timestamps)
        for slot, more in Counter(slots).items():
            state, time = states[slot], times[slot]
            if state is None or state[0] is None:
                states[slot] = (tally(self.initializer(), more), time)
            else:
                aggregate, latest = state
                states[slot] = (tally(aggregate, more), max(latest, time))


def _latest(slots: Sequence[Any], timestamps: Sequence[int]) -> dict[Any, int]:
    """Return the largest timestamp of each slot."""
    latest = dict(zip(slots, timestamps, strict=True))
    if timestamps != sorted(timestamps):
        for slot, timestamp in zip(slots, timestamps, strict=True):
            if timestamp > latest[slot]:
                latest[slot] = timestamp
    return latest

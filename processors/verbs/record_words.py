"""The words of messages about a verb's rows: its name, and the columns of its user.

Rule of this module: it shows packed keys and rows, and what a rule of ``apply`` sees of them. What cannot be read is
not shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from millpond.errors import MillpondError
from millpond.processors.runtime.failures import Place, RecordWords
from millpond.processors.verbs.encoding.python_values import shown_columns
from millpond.processors.verbs.verb import Input
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.typed.windows.windowed import Windowed

_MOST: Final = 200
"""The number of characters of a row that a message shows."""


@dataclass(frozen=True)
class VerbWords(RecordWords):
    """The words of a verb.

    Attributes:
        verb: its name.
        inputs: pack its rows, by topic.
    """

    verb: str
    inputs: Mapping[str, Input]

    def where(self, place: Place, key: Any = None) -> str:
        return ", ".join(filter(None, [f"verb {self.verb!r}", shown_columns(self._key(place, key) or {})]))

    def brief(self, place: Place, key: Any, timestamp: int | None) -> str:
        return " ".join(filter(None, ["of", shown_columns(self._key(place, key) or {}), _at(timestamp)]))

    def record(self, place: Place, key: Any, value: Any, timestamp: int | None) -> str:
        row = self._row(place, value)
        told = _at(timestamp) if row is None else f"row {shown_columns(row)}"
        return f"task {place.task_id}, {told:.{_MOST}}"

    def kept(self, place: Place, key: Any, value: Any) -> tuple[Any, Any]:
        columns, row = self._key(place, key), self._row(place, value)
        return key if columns is None else columns, value if row is None else row

    def _key(self, place: Place, key: Any) -> Mapping[str, Any] | None:
        """Return the columns of a key; None if it has none that are known."""
        if isinstance(key, Windowed):
            found = self._key(place, key.key)
            window = {"window": " to ".join(map(TimeUnit.MICROSECOND.shown, (key.start, key.end)))}
            return window if found is None else {**found, **window}
        if isinstance(key, bytes):
            return self._read(place, key, lambda one, keys: one.key_columns(keys))
        names = next((self.inputs[topic].keys.schema.names for topic in place.topics if topic in self.inputs), [])
        values = (key,) if len(names) == 1 else key
        named = key is not None and isinstance(values, tuple) and len(values) == len(names)
        return dict(zip(names, values, strict=True)) if named else None

    def _row(self, place: Place, value: Any) -> Mapping[str, Any] | None:
        """Return the columns of a row; None if it cannot be read."""
        if isinstance(value, bytes):
            return self._read(place, value, lambda one, values: one.columns_of(values))
        return value if isinstance(value, Mapping) else None

    def _read(
        self, place: Place, packed: bytes, read: Callable[[Input, Sequence[bytes]], pa.Table]
    ) -> Mapping[str, Any] | None:
        for topic in place.topics:
            try:
                (row,) = read(self.inputs[topic], [packed]).to_pylist() if topic in self.inputs else ({},)
            except (MillpondError, pa.ArrowException, ValueError, OverflowError):
                continue
            if row:
                return dict(row)
        return None


def _at(timestamp: int | None) -> str:
    return "" if timestamp is None else f"at {TimeUnit.MICROSECOND.shown(timestamp)}"

"""Windows whose results are out because the input was complete, although stream time has not closed them.

They are the windows up to the completion's time, except those that records have changed since: these come out again,
once stream time closes them, and the result that came out before is their old value. What this module keeps stands in
the metadata of the aggregation's store, see ``windowed_processor``.
"""

from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, Final, TypeAlias

from millpond.errors import CorruptStoreError
from millpond.processors.aggregations.closing import Window
from millpond.processors.runtime.kept_time import KeptTime
from millpond.stores.encoding.serdes import MSGPACK, Serde
from millpond.stores.encoding.times import MIN_TIME
from millpond.stores.typed.store import reading

COMPLETION: Final = "completion"
"""The beginning of the names of kept times of completions."""

_CHANGED: Final = "changed"

_Place = tuple[bytes, int, int]
"""The bytes of a key, and the start and end of a window."""

Change: TypeAlias = tuple[bytes, int, int | None, bytes | None]
"""Key, start, end (None if it follows from the start) and the value that has come out, of a window."""

_ENDS: Final = (int, NoneType)

_NO_CHANGES: Final = MSGPACK.serialize([])


def completion_of(number: int | str) -> str:
    """Return the name of the time up to which windows of processor ``number`` on a store have come out."""
    return f"{COMPLETION}-{number}"


def changed_of(number: int) -> str:
    """Return the name under which it keeps the windows up to that time that have not come out as they are."""
    return f"{_CHANGED}-{number}"


def kept_changes(store: Any, number: int) -> list[Change]:
    """Return these windows, as they are kept.

    Raises:
        CorruptStoreError: the bytes are no such windows.
    """
    name = changed_of(number)
    data = store.get_metadata(name) or _NO_CHANGES
    try:
        changes = [(raw, start, end, before) for raw, start, end, before in MSGPACK.deserialize(data)]
    except (TypeError, ValueError) as error:
        raise _damage(store.name, name, data) from error
    for raw, start, end, before in changes:
        if (type(raw), type(start)) != (bytes, int) or type(end) not in _ENDS or not isinstance(before, bytes | None):
            raise _damage(store.name, name, data)
    return changes


def bytes_of_changes(changes: Iterable[Change]) -> bytes:
    """Return these windows as bytes, for the metadata of a store."""
    return MSGPACK.serialize(list(changes))


def _damage(store: str, name: str, data: bytes) -> CorruptStoreError:
    return CorruptStoreError(f"store {store!r} keeps damaged windows under {name!r}: {data[:40]!r}")


class Completion:
    """The completion of one processor's input.

    Args:
        store: the processor's store.
        number: the number of the processor on the store.
        encode: makes the bytes of a key.
        value_serde: the serde of the results.
        end: the end of a window by its start, if windows go by their starts; None if they go by their ends.
    """

    def __init__(
        self,
        store: Any,
        number: int,
        encode: Callable[[Any], bytes],
        value_serde: Serde[Any],
        *,
        end: Callable[[int], int] | None,
    ) -> None:
        self._store = store
        self._kept_time = KeptTime(store, completion_of(number))
        self._name = changed_of(number)
        self._encode = encode
        self._serde = value_serde
        self._decode = reading(store.name, "result", value_serde)
        self._by_end = end is None
        self._end_of = end
        kept = self._kept_time.get()
        self._time = MIN_TIME if kept is None else kept
        self._returned = 0
        self._saved = store.get_metadata(self._name) or _NO_CHANGES
        self._changed: dict[_Place, bytes | None] = {
            (raw, start, self._end(start, end)): before for raw, start, end, before in kept_changes(store, number)
        }

    @property
    def happened(self) -> bool:
        """True if windows have come out that stream time has not closed yet."""
        return self._time != MIN_TIME

    def close(self, closed: int) -> None:
        """Note that stream time has closed all windows up to ``closed``: whether they had come out matters no more."""
        if self._time <= closed:
            self._time = MIN_TIME
            self._changed.clear()

    def has_let_out(self, window: Window) -> bool:
        """Return whether a window of the store has come out as it is."""
        return self._includes(window) and self._place(window) not in self._changed

    def change(self, window: Window, before: Any) -> None:
        """Note that a window is about to change; ``before`` is its value, None if it is new."""
        if self._includes(window) and (place := self._place(window)) not in self._changed:
            self._returned += before is not None
            self._changed[place] = None if before is None else self._serde.serialize(before)

    def take_returned(self) -> int:
        """Return how many windows that had come out have changed since the last call, and so will come out again."""
        returned, self._returned = self._returned, 0
        return returned

    def memory(self) -> dict[_Place, bytes | None]:
        """Return the state of this object that the store does not hold, for ``restore``."""
        return dict(self._changed)

    def restore(self, memory: dict[_Place, bytes | None]) -> None:
        """Forget the changes since ``memory``: what caused them has failed."""
        self._changed = memory
        self._returned = 0

    def before(self, window: Window) -> Any:
        """Return the result of a window that has come out before; None if there is none."""
        data = self._changed.get(self._place(window)) if self._changed else None
        return None if data is None else self._decode(data)

    def let_out_all(self, time: int) -> None:
        """Note that all windows up to ``time`` have come out, also those that had come out before."""
        self._time = max(time, self._time)
        self._kept_time.put(self._time)
        self._changed.clear()

    def save(self, *, closed: int) -> None:
        """Write changes to the store, without windows up to ``closed``, which do not come out again."""
        if not self._changed and self._saved == _NO_CHANGES:
            return
        self._changed = {
            (raw, start, end): before
            for (raw, start, end), before in self._changed.items()
            if (end if self._by_end else start) > closed
        }
        data = bytes_of_changes((*place, before) for place, before in self._changed.items())
        if data != self._saved:
            self._store.keep_metadata(self._name, data)
            self._saved = data

    def _end(self, start: int, end: int | None) -> int:
        """Return the end of a window, which follows from its start if it is not kept."""
        if end is not None:
            return end
        if self._end_of is None:
            raise _damage(self._store.name, self._name, self._saved)
        return self._end_of(start)

    def _includes(self, window: Window) -> bool:
        return (window.end if self._by_end else window.start) <= self._time

    def _place(self, window: Window) -> _Place:
        return self._encode(window.key), window.start, window.end

"""The observed stream time of a store: the greatest time that it was ever given, over all keys.

It only moves forward, unless it is set back, and is kept as metadata, so that a reopened or restored store still knows
what is expired.
"""

from typing import Any, Final

from millpond.stores.encoding.keys import pack_time, unpack_time
from millpond.stores.typed.set_back import SetBack
from millpond.stores.typed.store import Store, WritableStore

METADATA_NAME: Final = "observed_stream_time"


class ObservedStreamTime:
    """The observed stream time of one store. ``time`` is None until the store was given its first time.

    Args:
        store: the store.
        name: the name of the metadata that keeps it.
    """

    __slots__ = ("_name", "_saved", "time")

    def __init__(self, store: Store[Any, Any], name: str = METADATA_NAME) -> None:
        self._name = name
        data = store.get_metadata(name)
        self.time: int | None = None if data is None else unpack_time(data)
        self._saved = self.time

    def set_back(self, done: SetBack) -> bool:
        """Set the time back to the limit; return False if it is not beyond it."""
        beyond = done.moves(self._name, self.time)
        if beyond:
            self.time = done.limit
        return beyond

    def save(self, store: WritableStore[Any, Any]) -> None:
        """Write the time into the metadata of the store's writing half, if it moved."""
        if self.time is not None and self.time != self._saved:
            store.keep_metadata(self._name, pack_time(self.time))
            self._saved = self.time

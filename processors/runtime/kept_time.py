"""A time that a processor keeps in a store's metadata, so that it survives a restart.

The bytes::

    0x01, time (8 bytes)

The first byte is the version of these bytes. If several processors share a store, each uses a name of its own.
"""

from typing import Any, Final

from millpond.errors import CorruptStoreError, FormatError
from millpond.stores.keys import TIME_SIZE, pack_time, unpack_time
from millpond.stores.typed.set_back import SetBack

STREAM_TIME: Final = "stream-time"
"""The name under which a store's only user keeps its stream time."""

_VERSION: Final = 1
_HEAD: Final = bytes([_VERSION])


def stream_time_of(number: int) -> str:
    """The name under which processor ``number`` of those that share a store keeps its stream time."""
    return f"{STREAM_TIME}-{number}"


class KeptTime:
    """One time in the metadata of a store.

    Args:
        store: the store.
        name: the name of the metadata.
    """

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name

    def get(self) -> int | None:
        """The time that was put last, in int milliseconds; None if there is none.

        Raises:
            FormatError: it was written in a version that this release does not know.
            CorruptStoreError: the bytes are not those of a time.
        """
        data: bytes | None = self._store.get_metadata(self._name)
        if data is None:
            return None
        # Eight bytes are a time without a version, whatever the first of them is.
        version = 0 if len(data) == TIME_SIZE else data[0] if data else None
        if version is not None and version != _VERSION:
            raise FormatError(
                f"store {self._store.name!r} keeps {self._name!r} in version {version}, but this release reads version "
                f"{_VERSION}; run the release that wrote it or a newer one, and delete nothing"
            )
        if version is None or len(data) != 1 + TIME_SIZE:
            raise CorruptStoreError(
                f"store {self._store.name!r} has the damaged time {self._name!r}: {data!r}; restore the store"
            )
        return unpack_time(data, 1)

    def put(self, time: int) -> None:
        """Keep ``time``, int milliseconds."""
        self._store.put_metadata(self._name, _HEAD + pack_time(time))

    def set_back(self, done: SetBack) -> bool:
        """Set the time back to the limit; False if it is not beyond it."""
        beyond = done.moves(self._name, self.get())
        if beyond:
            self.put(done.limit)
        return beyond

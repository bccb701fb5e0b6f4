"""A time that a processor keeps in a store's metadata, so that it survives a restart.

The bytes::

    0x01, time (8 bytes)

The first byte is the version of these bytes. If several processors share a store, each uses a name of its own.
"""

from typing import Any, Final

from millpond.errors import CorruptStoreError, FormatError
from millpond.stores.encoding.keys import TIME_SIZE, pack_time, unpack_time
from millpond.stores.typed.set_back import SetBack

STREAM_TIME: Final = "stream-time"
"""The name under which a store's only user keeps its stream time."""

_VERSION: Final = 1
_HEAD: Final = bytes([_VERSION])


def stream_time_of(number: int) -> str:
    """Return the name under which processor ``number`` on a store keeps its stream time."""
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
        """Return the time that was put last, in int milliseconds; None if there is none.

        Raises:
            FormatError: it was written in a version that this release does not know.
            CorruptStoreError: the bytes are no time.
        """
        data = read_versioned(self._store, self._name, TIME_SIZE, "time")
        return None if data is None else unpack_time(data)

    def put(self, time: int) -> None:
        """Keep ``time``, int milliseconds."""
        put_versioned(self._store, self._name, pack_time(time))

    def set_back(self, done: SetBack) -> bool:
        """Set the time back to the limit; False if it is not beyond it."""
        beyond = done.moves(self._name, self.get())
        if beyond:
            self.put(done.limit)
        return beyond


def read_versioned(store: Any, name: str, size: int, what: str) -> bytes | None:
    """Return the bytes behind the version in a store's metadata; None if there are none.

    Args:
        store: the store.
        name: the name of the metadata.
        size: how many bytes there must be.
        what: their name in messages.

    Raises:
        FormatError: they were written in a version that this release does not know.
        CorruptStoreError: they are more or fewer.
    """
    data: bytes | None = store.get_metadata(name)
    if data is None:
        return None
    # As many bytes as there are without a version are just that, whatever the first of them is.
    version = 0 if len(data) == size else data[0] if data else None
    if version is not None and version != _VERSION:
        raise FormatError(
            f"store {store.name!r} keeps {name!r} in version {version}, but this release reads version {_VERSION}; run "
            "the release that wrote it or a newer one, and delete nothing"
        )
    if version is None or len(data) != 1 + size:
        raise CorruptStoreError(f"store {store.name!r} has the damaged {what} {name!r}: {data!r}")
    return data[1:]


def put_versioned(store: Any, name: str, data: bytes) -> None:
    """Keep bytes in a store's metadata, behind the version."""
    store.keep_metadata(name, versioned(data))


def versioned(data: bytes) -> bytes:
    """Return the bytes to keep: the data behind the version."""
    return _HEAD + data

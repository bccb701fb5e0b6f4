"""``ConvertedValues``: a backend whose values are stored in another form than its users see.

Rule of this module: it knows no form. A subclass converts between the stored bytes of a value and those that a reader
sees; keys stay as they are, so every call for a range goes to the engine as it is.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from millpond.stores.backend.contract import Changes, Entries
from millpond.stores.backend.entry_chunks import Chunk, EntryChunks, chunks_of
from millpond.stores.backend.wrapped_backend import WrappedBackend


class ConvertedValues(WrappedBackend):
    """The rows of ``engine``, with values in another form.

    Args:
        engine: the backend, for keys of any length.
    """

    @abstractmethod
    def _stored(self, key: bytes, value: bytes) -> bytes:
        """Return the bytes to store at ``key`` for ``value``."""

    @abstractmethod
    def _seen(self, key: bytes, data: bytes) -> bytes:
        """Return the value that is stored as ``data`` at ``key``."""

    def get(self, key: bytes) -> bytes | None:
        data = self._get(key)
        return None if data is None else self._seen(key, data)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        seen = self._seen
        found = self._engine.get_many(keys)
        return [None if data is None else seen(key, data) for key, data in zip(keys, found, strict=True)]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._all_seen(self._engine.scan(start, stop, reverse=reverse))

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        entry = self._find_last(start, stop)
        return None if entry is None else (entry[0], self._seen(*entry))

    def write(self, changes: Changes) -> None:
        stored = self._stored
        self._engine.write({key: None if value is None else stored(key, value) for key, value in changes.items()})

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._engine.delete_range(start, stop)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._engine.load(EntryChunks(map(self._chunk, chunks_of(entries))))

    def _all_seen(self, entries: Entries) -> Iterator[tuple[bytes, bytes]]:
        seen = self._seen
        for key, data in entries:
            yield key, seen(key, data)

    def _chunk(self, chunk: Chunk) -> Chunk:
        keys, values = chunk
        return keys, list(map(self._stored, keys, values))

"""Keys of any length on an engine that limits them.

Rule of this module: it knows the backend contract and nothing of any engine. With P = ``max_key_size - 1``, a key of
at most P bytes is stored as it is. All longer keys that share their first P bytes live together in one **bucket**::

    key    prefix (P bytes) | 0x00
    value  for each key, in order:  length of suffix (u32) | suffix | length of value (u32) | value

Only buckets have keys of P + 1 bytes, so none of them is a user's key. A bucket's key sorts right behind its prefix and
before every greater short key, which is where the long keys belong. Short keys cost only a comparison of their length.
"""

import struct
from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from millpond.errors import CorruptStoreError
from millpond.stores.backend.contract import Backend, Changes, Entries
from millpond.stores.backend.entry_chunks import Chunk, EntryChunks, chunks_of
from millpond.stores.backend.sorted_changes import SortedChanges
from millpond.stores.backend.wrapped_backend import WrappedBackend
from millpond.stores.encoding.keys import after_prefix

_LENGTH = struct.Struct(">I")
_FIRST_CHUNK = 4
"""As many entries as a scan of ``millpond.stores.backend.engine`` reads after its first one, and it grows alike. So
entries that are taken from there at once were read at once, and no more are read for them."""
_LARGEST_CHUNK = 1024
_KEY = itemgetter(0)

Bucket = dict[bytes, bytes]
"""The values of the long keys of one prefix, by suffix, in order."""


class LongKeys(WrappedBackend):
    """A backend without a limit on its keys, made from ``engine``, which has one.

    Calls that need no bucket go to the engine as they are.
    """

    max_key_size = None

    def __init__(self, engine: Backend) -> None:
        assert engine.max_key_size is not None, "only a backend with a limit on its keys needs this"
        super().__init__(engine)
        self._limit = engine.max_key_size - 1

    def get(self, key: bytes) -> bytes | None:
        if len(key) <= self._limit:
            return self._get(key)
        return self._bucket(key).get(key[self._limit :])

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self._any_long(keys):
            return self._engine.get_many(keys)
        return list(map(self.get, keys))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        limit = self._limit
        low, high = start, stop
        if start is not None and len(start) > limit:
            low = start[:limit] + b"\0"
        if stop is not None and len(stop) > limit:
            high = after_prefix(stop[:limit])
        return self._expand(self._engine.scan(low, high, reverse=reverse), start, stop, reverse)

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        if len(start) <= self._limit and len(stop) <= self._limit:
            entry = self._find_last(start, stop)
            if entry is None or len(entry[0]) <= self._limit:
                return entry
        return next(self.scan(start, stop, reverse=True), None)

    def write(self, changes: Changes) -> None:
        self._engine.write(self._with_buckets(changes) if self._any_long(changes) else changes)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        if max(len(start), len(stop)) <= self._limit:
            self._engine.delete_range(start, stop)
        else:
            self.write({key: None for key, _ in self.scan(start, stop)})

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._engine.load(EntryChunks(self._bucketed(chunks_of(entries))))

    def entry_count(self) -> int:
        """Return the engine's count, in which the long keys of one prefix are one."""
        return super().entry_count()

    def _any_long(self, keys: Collection[bytes]) -> bool:
        if len(keys) == 1:
            (key,) = keys
            return len(key) > self._limit
        if isinstance(keys, SortedChanges):
            return keys.longest_key > self._limit
        return max(map(len, keys), default=0) > self._limit

    def _bucket(self, key: bytes) -> Bucket:
        """Return the content of the bucket that ``key`` belongs to."""
        packed = self._engine.get(key[: self._limit] + b"\0")
        return {} if packed is None else dict(_unpack(packed))

    def _with_buckets(self, changes: Changes) -> Changes:
        """Return the same changes as they are stored: whole buckets in place of long keys."""
        limit = self._limit
        stored: dict[bytes, bytes | None] = {}
        buckets: dict[bytes, Bucket] = {}
        for key, value in changes.items():
            if len(key) <= limit:
                stored[key] = value
                continue
            prefix, suffix = key[:limit], key[limit:]
            if prefix not in buckets:
                buckets[prefix] = self._bucket(key)
            if value is None:
                buckets[prefix].pop(suffix, None)
            else:
                buckets[prefix][suffix] = value
        for prefix, bucket in buckets.items():
            stored[prefix + b"\0"] = _pack(bucket) if bucket else None
        return stored

    def _bucketed(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield ascending entries with buckets in place of long keys, still ascending."""
        limit, prefix = self._limit, b""
        bucket: Bucket = {}
        for keys, values in chunks:
            if not bucket and not self._any_long(keys):
                yield keys, values
                continue
            stored: dict[bytes, bytes] = {}
            for key, value in zip(keys, values, strict=True):
                if bucket and not (len(key) > limit and key.startswith(prefix)):
                    stored[prefix + b"\0"] = _pack(bucket)
                    bucket = {}
                if len(key) <= limit:
                    stored[key] = value
                else:
                    prefix = key[:limit]
                    bucket[key[limit:]] = value
            yield list(stored), list(stored.values())
        if bucket:
            yield [prefix + b"\0"], [_pack(bucket)]

    def _expand(
        self, entries: Entries, start: bytes | None, stop: bytes | None, reverse: bool
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield the user's entries, unpacked from the engine's."""
        limit, count = self._limit, _FIRST_CHUNK
        for entry in entries:  # the first alone, because many scans are for one entry
            if len(entry[0]) <= limit:
                yield entry
            else:
                yield from self._inside(entry, start, stop, reverse)
            break
        # To look at many keys at a time costs a fraction of doing so one by one.
        while chunk := list(islice(entries, count)):
            if max(map(len, map(_KEY, chunk))) <= limit:
                yield from chunk
            else:
                for entry in chunk:
                    yield from self._inside(entry, start, stop, reverse) if len(entry[0]) > limit else (entry,)
            count = min(count * 2, _LARGEST_CHUNK)

    def _inside(
        self, entry: tuple[bytes, bytes], start: bytes | None, stop: bytes | None, reverse: bool
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return the user's entries in a bucket."""
        key = entry[0][: self._limit]
        inside = [(key + suffix, value) for suffix, value in _unpack(entry[1])]
        first = 0 if start is None else bisect_left(inside, (start,))
        past = len(inside) if stop is None else bisect_left(inside, (stop,))
        chosen = inside[first:past]
        return reversed(chosen) if reverse else chosen


def _pack(bucket: Mapping[bytes, bytes]) -> bytes:
    parts: list[bytes] = []
    for suffix in sorted(bucket):
        value = bucket[suffix]
        parts += (_LENGTH.pack(len(suffix)), suffix, _LENGTH.pack(len(value)), value)
    return b"".join(parts)


def _unpack(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position < len(packed):
        try:
            middle = position + 4 + _LENGTH.unpack_from(packed, position)[0]
            end = middle + 4 + _LENGTH.unpack_from(packed, middle)[0]
        except struct.error as error:
            raise _damaged(packed) from error
        if end > len(packed):
            raise _damaged(packed)
        yield packed[position + 4 : middle], packed[middle + 4 : end]
        position = end


def _damaged(packed: bytes) -> CorruptStoreError:
    return CorruptStoreError(f"the long keys in {packed[:40]!r} end too early")

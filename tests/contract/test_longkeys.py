"""Keys of any length on engines that limit them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.adapters.lmdb import LmdbSupplier
from millpond.errors import InvalidKeyError
from millpond.stores.backend.contract import OVERRIDABLE, Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import Cursor, Entry
from millpond.stores.backend.entry_chunks import EntryChunks
from millpond.stores.backend.long_keys import LongKeys
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.machines import MachineSuite
from millpond.stores.testing.oracle import Oracle
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.drawing import tries


class ShortKeys(MemoryBackend):
    """A backend that takes keys of one or two bytes, and refuses to be asked for longer ones."""

    max_key_size = 2

    def get(self, key: bytes) -> bytes | None:
        return super().get(self._checked(key))

    def get_many(self, keys: Any) -> list[bytes | None]:
        return super().get_many([self._checked(key) for key in keys])

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        return super().last(self._checked(start), self._checked(stop))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return super().scan(self._checked(start or b"\0") if start else None, self._checked(stop), reverse=reverse)

    def write(self, changes: Changes) -> None:
        super().write({self._checked(key): value for key, value in changes.items()})

    def load(self, entries: Any) -> None:
        super().load([(self._checked(key), value) for key, value in entries])

    def _checked(self, key: Any) -> Any:
        if key is not None and len(key) > self.max_key_size:
            raise InvalidKeyError(f"{key!r} is longer than {self.max_key_size} bytes")
        return key


@dataclass(frozen=True)
class ShortKeysSupplier(MemorySupplier):
    def open(self, directory: Path) -> Any:
        return LongKeys(ShortKeys())


@dataclass(frozen=True)
class WrappedLmdbSupplier(LmdbSupplier):
    def open(self, directory: Path) -> Any:
        return LongKeys(super().open(directory))


class TestLongKeysOfAllLengths(
    ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, SupplierSuite, CapabilitySuite, MachineSuite
):
    """With a limit of two bytes almost every key of the kit is a long one."""

    examples = tries(80)

    def supplier(self) -> BackendSupplier:
        return ShortKeysSupplier()

    def test_what_was_read_is_read_anew_after_a_large_write(self, backend: Backend) -> None:
        """In buckets of a hundred keys: a look-up reads one, and with a limit of two bytes one has all keys."""
        engine = ShortKeys()
        engine.max_key_size = 5
        super().test_what_was_read_is_read_anew_after_a_large_write(LongKeys(engine))


class TestLongKeysOnLmdb(
    ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, SupplierSuite, CapabilitySuite, MachineSuite
):
    def supplier(self) -> BackendSupplier:
        return WrappedLmdbSupplier()


@pytest.fixture
def lmdb(tmp_path: Path) -> Iterator[LongKeys]:
    backend = open_backend("lmdb", tmp_path)
    assert isinstance(backend, LongKeys)
    with backend:
        yield backend


def test_keys_around_the_limit_keep_their_order_and_their_values(lmdb: LongKeys) -> None:
    keys = [b"k" * length + tail for length in (508, 509, 510, 511, 512, 5_000) for tail in (b"", b"\0", b"\xff")]
    content = {key: b"%d" % number for number, key in enumerate(keys)}
    lmdb.write(content)
    oracle = Oracle(content)
    assert list(lmdb.scan()) == oracle.entries()
    for start in keys:
        assert lmdb.get(start) == content[start]
        for stop in keys:
            assert list(lmdb.scan(start, stop)) == oracle.entries(start, stop)
            assert lmdb.last(start, stop) == oracle.last(start, stop)


def test_a_key_that_looks_like_a_bucket_is_a_key_of_its_own(lmdb: LongKeys) -> None:
    prefix = b"p" * 510
    lmdb.write({prefix: b"short", prefix + b"\0": b"looks like the bucket", prefix + b"\0\0": b"long"})
    assert lmdb.get(prefix + b"\0") == b"looks like the bucket"
    assert [value for _, value in lmdb.scan()] == [b"short", b"looks like the bucket", b"long"]


def test_a_bucket_goes_when_its_last_key_goes(lmdb: LongKeys) -> None:
    keys = [b"x" * 600 + bytes((number,)) for number in range(3)]
    lmdb.write(dict.fromkeys(keys, b"1"))
    assert lmdb.engine.get(b"x" * 510 + b"\0") is not None
    lmdb.write(dict.fromkeys(keys))
    assert list(lmdb.engine.scan()) == []


def test_a_scan_that_is_left_has_read_little_more_than_it_gave() -> None:
    class Counted(MemoryBackend):
        max_key_size = 8
        read = 0

        def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
            for entry in super().scan(start, stop, reverse=reverse):
                self.read += 1
                yield entry

    engine = Counted()
    engine.write({bytes((one, two)): b"" for one in range(8) for two in range(256)})
    scan = LongKeys(engine).scan()
    for _ in range(100):
        next(scan)
    assert engine.read < 200


class CountsWhatScansRead(MemoryBackend):
    """An engine with a limit on its keys, and so many rows; it counts those that scans have read."""

    max_key_size = 511

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows, self.read = rows, 0

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return self._cursors.walk(Cursor(self._counted(), stop, reverse, lambda error: None))

    def _counted(self) -> Iterator[Entry]:
        for number in range(self._rows):
            self.read += 1
            yield b"%05d" % number, b""


@pytest.mark.parametrize("stop", [None, b"~"])
@pytest.mark.parametrize("wanted", [1, 2, 5, 6, 9, 14, 20, 30, 100, 300, 1000])
def test_a_scan_that_is_left_has_read_at_most_three_times_as_much_also_from_the_engine(
    wanted: int, stop: bytes | None
) -> None:
    engine = CountsWhatScansRead(5_000)
    scan = LongKeys(engine).scan(b"0", stop)
    assert len(list(islice(scan, wanted))) == wanted
    assert engine.read <= max(8, 3 * wanted)


def test_short_keys_are_stored_as_they_are(lmdb: LongKeys) -> None:
    lmdb.write({b"a": b"1", b"b" * 510: b"2"})
    assert list(lmdb.engine.scan()) == [(b"a", b"1"), (b"b" * 510, b"2")]


def test_long_keys_of_bytes_ff_have_no_successor_and_are_found_all_the_same(lmdb: LongKeys) -> None:
    keys = [b"\xff" * 510, b"\xff" * 511, b"\xff" * 700]
    lmdb.write(dict.fromkeys(keys, b""))
    assert [key for key, _ in lmdb.scan(keys[0], keys[2])] == keys[:2]
    assert [key for key, _ in lmdb.scan(keys[1], keys[2] + b"\0", reverse=True)] == keys[:0:-1]
    assert lmdb.last(keys[0], keys[2]) == (keys[1], b"")


class RecordingCalls:
    """An engine with a way of its own for all that it may override, which notes what is called."""

    max_key_size = 8

    def __init__(self) -> None:
        self.calls: list[str] = []
        for method in OVERRIDABLE:
            setattr(self, method, partial(self._note, method))

    def _note(self, method: str, *arguments: object) -> None:
        self.calls.append(method)

    def get(self, key: bytes) -> bytes | None:
        return None


def arguments_of(method: Callable[..., object]) -> list[Any]:
    """Return something short for each of the method's arguments: what needs no bucket is passed on as it is."""
    examples = {"keys": [b"a"], "entries": [], "start": b"a", "stop": b"b"}
    return [examples[name] for name in list(signature(method).parameters)[1:]]


@pytest.mark.parametrize("method", OVERRIDABLE)
def test_the_ways_of_an_engine_are_used(method: str) -> None:
    engine: Any = RecordingCalls()
    getattr(LongKeys(engine), method)(*arguments_of(getattr(Backend, method)))
    assert engine.calls == [method]


@given(st.dictionaries(st.binary(min_size=1, max_size=5), st.binary(max_size=3)), st.integers(1, 4), st.data())
def test_load_packs_the_same_buckets_as_write(content: dict[bytes, bytes], step: int, data: st.DataObject) -> None:
    written, loaded = LongKeys(ShortKeys()), LongKeys(ShortKeys())
    for part in data.draw(st.permutations(list(content))):
        written.write({part: content[part]})
    order = sorted(content)
    chunks = [order[start : start + step] for start in range(0, len(order), step)]
    loaded.load(EntryChunks((keys, [content[key] for key in keys]) for keys in chunks))
    assert list(loaded.engine.scan()) == list(written.engine.scan())
    assert list(loaded.scan()) == sorted(content.items())


def test_a_backend_without_a_limit_is_not_wrapped(tmp_path: Path) -> None:
    with open_backend("memory", tmp_path) as backend:
        assert type(backend) is MemoryBackend

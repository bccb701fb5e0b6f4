"""Backends with one mistake each. ``test_kit_catches`` runs the kit's tests of one process against them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.stores.backend import Backend, BackendSupplier, Changes, Entries
from millpond.stores.memory import MemoryBackend, MemorySupplier
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.writes import WriteSuite


class ForgetsEmptyValues(MemoryBackend):
    def get(self, key: bytes) -> bytes | None:
        return super().get(key) or None


class IncludesStop(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return super().scan(start, None if stop is None else stop + b"\0", reverse=reverse)


class ExcludesStartInReverse(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return super().scan(start + b"\0" if reverse and start else start, stop, reverse=reverse)


class ComparesSignedBytes(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        entries = sorted(super().scan(start, stop), key=lambda entry: [(byte + 128) % 256 for byte in entry[0]])
        yield from reversed(entries) if reverse else entries


class ScansTheLiveMap(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        for key in [key for key, _ in super().scan(start, stop, reverse=reverse)]:
            if (value := self.get(key)) is not None:
                yield key, value


class HasScansWithoutClose(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        return iter(list(super().scan(start, stop, reverse=reverse)))


class FailsToDeleteWhatIsNotThere(MemoryBackend):
    def write(self, changes: Changes) -> None:
        for key, value in changes.items():
            if value is None and self.get(key) is None:
                raise KeyError(key)
        super().write(changes)


class WritesLater(MemoryBackend):
    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[bytes, bytes | None] = {}

    def write(self, changes: Changes) -> None:
        super().write(self._waiting)
        self._waiting = dict(changes)


class ForgetsItsEnd(MemoryBackend):
    def close(self) -> None:
        return None


class ClosesOnce(MemoryBackend):
    def close(self) -> None:
        self._map.clear()
        super().close()


class DropsRepeatedKeys(MemoryBackend):
    def get_many(self, keys: Any) -> list[bytes | None]:
        return list(map(self.get, dict.fromkeys(keys)))


class FindsTheLastOfAll(MemoryBackend):
    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        return next(self.scan(None, stop, reverse=True), None)


class DeletesTheStopToo(MemoryBackend):
    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.write({key: None for key, _ in self.scan(start, stop + b"\0")})


class NothingWrong(MemoryBackend):
    pass


@dataclass(frozen=True)
class Opens(MemorySupplier):
    """Opens backends of a class given."""

    kind: type[Backend] = MemoryBackend

    def open(self, directory: Path) -> Any:
        return self.kind()


def _suite(kind: type[Backend]) -> type:
    class TestBroken(ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, CapabilitySuite):
        def supplier(self) -> BackendSupplier:
            return Opens(kind)

    TestBroken.__name__ = TestBroken.__qualname__ = f"Test{kind.__name__}"
    return TestBroken


globals().update({f"Test{kind.__name__}": _suite(kind) for kind in MemoryBackend.__subclasses__()})

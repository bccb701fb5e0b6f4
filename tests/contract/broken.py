"""Backends with one mistake each. ``test_kit_catches`` runs the kit's tests of one process against them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import get_ident
from typing import Any, ClassVar, Self

from millpond.errors import BackendError
from millpond.stores.backend.contract import Backend, BackendSupplier, Changes, Entries
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.features import Feature
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.contract.outside import OutsideBackend, OutsideSupplier, away


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


class OrdersByTheFirst32Bytes(MemoryBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        entries = sorted(self._map.items(), key=lambda entry: entry[0][:32])  # others in the order in which they came
        low, high = (start or b"")[:32], None if stop is None else stop[:32]
        found = [one for one in entries if low <= one[0][:32] and (high is None or one[0][:32] < high)]
        yield from reversed(found) if reverse else found


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


class TakesKeysForText(MemoryBackend):
    """The base of backends that keep a key otherwise than it was given, in the same way in every method."""

    def _kept(self, key: bytes) -> bytes:
        raise NotImplementedError

    def get(self, key: bytes) -> bytes | None:
        return super().get(self._kept(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(list(map(self._kept, keys)))

    def last(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        return super().last(self._kept(start), self._kept(stop))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        low, high = (bound and self._kept(bound) for bound in (start, stop))
        return super().scan(low, high, reverse=reverse)

    def write(self, changes: Changes) -> None:
        super().write({self._kept(key): value for key, value in changes.items()})

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().load([(self._kept(key), value) for key, value in entries])


class LowersItsKeys(TakesKeysForText):
    def _kept(self, key: bytes) -> bytes:
        return key.lower()


class StripsTrailingSpaces(TakesKeysForText):
    def _kept(self, key: bytes) -> bytes:
        return key.rstrip(b" ") or key


class ReplacesNewlines(TakesKeysForText):
    def _kept(self, key: bytes) -> bytes:
        return key.replace(b"\r\n", b"\n")


class ReplacesBytesThatAreNoCharacters(TakesKeysForText):
    def _kept(self, key: bytes) -> bytes:
        return bytes(0x81 if 0x81 <= byte <= 0x9F else byte for byte in key)


class CutsLongKeysOff(TakesKeysForText):
    def _kept(self, key: bytes) -> bytes:
        return key[:1024]


class MisspellsAMethod(MemoryBackend):
    def get_may(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.get_many(keys)


class HidesItsMemory(MemoryBackend):
    def memory_use(self) -> int:
        return super().memory_use() // 100


class StaysInItsThread(MemoryBackend):
    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()

    def get(self, key: bytes) -> bytes | None:
        if get_ident() != self._thread:
            raise BackendError("made in another thread")
        return super().get(key)


class NothingWrong(MemoryBackend):
    pass


@dataclass(frozen=True)
class Opens(MemorySupplier):
    """Opens backends of a class given."""

    kind: type[Backend] = MemoryBackend

    def open(self, directory: Path) -> Any:
        return self.kind()


class TakesAnyOption(OutsideSupplier):
    """Takes any option: it ignores those that it does not know."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls()


class TakesAnyBudget(OutsideSupplier):
    """Takes any budget: it forgets the one that it has."""

    def with_memory_budget(self, budget: int) -> Self:
        return self

    def limit_memory(self, size: int) -> None:
        pass


class OpensOnce(OutsideSupplier):
    """Fails with an exception of its own where something has been opened before."""

    def open(self, directory: Path) -> OutsideBackend:
        if directory.exists():
            raise OSError("the engine is not what it was")
        return super().open(directory)


def _suite(kind: type[Backend]) -> type:
    class TestBroken(CapabilitySuite, LifecycleSuite, SupplierSuite, ScanSuite, WriteSuite, ReadSuite):
        def supplier(self) -> BackendSupplier:
            return Opens(kind)

    TestBroken.__name__ = TestBroken.__qualname__ = f"Test{kind.__name__}"
    return TestBroken


def _supplier_suite(kind: type[OutsideSupplier]) -> type:
    service = TemporaryDirectory(prefix="service-")

    class TestBroken(LifecycleSuite, SupplierSuite):
        opt_outs: ClassVar = {Feature.FILES: "a directory has only the name of a store that is elsewhere"}

        def supplier(self) -> BackendSupplier:
            return kind(service.name)

        def outside(self) -> Collection[object]:
            return list(Path(service.name).iterdir()) if Path(service.name).is_dir() else []

        def unreachable(self) -> AbstractContextManager[object]:
            return away(service.name)

    TestBroken.__name__ = TestBroken.__qualname__ = f"Test{kind.__name__}"
    return TestBroken


globals().update({f"Test{kind.__name__}": _supplier_suite(kind) for kind in OutsideSupplier.__subclasses__()})
_KINDS = {*MemoryBackend.__subclasses__(), *TakesKeysForText.__subclasses__()} - {TakesKeysForText}
globals().update({f"Test{kind.__name__}": _suite(kind) for kind in _KINDS})

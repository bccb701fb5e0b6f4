"""The log of ``appending`` with one mistake each, most of which show when it is opened again.

``test_kit_catches`` runs the kit on them.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, lockf
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from zlib import crc32

from millpond.errors import BackendInUseError, CorruptStoreError
from millpond.stores.backend.contract import BackendSupplier, Changes, Entries
from millpond.stores.backend.engine import Cursor, nothing
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.damage import DamageSuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.places import PlaceSuite
from millpond.stores.testing.power import PowerSuite
from millpond.stores.testing.processes import ProcessSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.contract.appending import _HEAD, _MAGIC, NAME, Log, LogBackend, LogSupplier, Place


class Forgets(LogBackend):
    """Shows what was written as long as it is open, and has less of it in its file."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._shown: dict[bytes, bytes | None] = {}
        super().__init__(directory, garbage)

    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        """Return the part of a write that goes to the file."""
        raise NotImplementedError

    def write(self, changes: Changes) -> None:
        super().write(self.kept(changes))
        self._shown.update(changes)

    def get(self, key: bytes) -> bytes | None:
        found = super().get(key)
        return self._shown.get(key, found)


class CutsLongValues(Forgets):
    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        return {key: value and value[: 2**20] for key, value in changes.items()}


class KeepsLengthsIn16Bits(Forgets):
    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        return {key: value and value[: len(value) % 2**16] for key, value in changes.items()}


class KeepsNoValuesOfLongKeys(Forgets):
    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        return {key: value and (value if len(key) < 2**16 else b"") for key, value in changes.items()}


class CountsChangesIn16Bits(Forgets):
    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        return dict(list(changes.items())[: 2**16 - 1])


class BringsDeletedKeysBack(LogBackend):
    """Brings deleted keys back when it writes the file anew."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._deleted: set[bytes] = set()
        super().__init__(directory, garbage)

    def write(self, changes: Changes) -> None:
        self._deleted |= {key for key, value in changes.items() if value is None}
        super().write(changes)

    def _compact(self) -> None:
        super()._compact()
        self._log.append(self._record(self._body((key, b"") for key in self._deleted)))


class CountsFromItsOpening(LogBackend):
    def __init__(self, directory: Path, garbage: int) -> None:
        super().__init__(directory, garbage)
        self._before = super().entry_count()

    def entry_count(self) -> int:
        return super().entry_count() - self._before


class LosesWhatIsNotFlushed(LogBackend):
    """Loses at its close what is not flushed."""

    def __init__(self, directory: Path, garbage: int) -> None:
        super().__init__(directory, garbage)
        self._flushed = self._log.end

    def flush(self) -> None:
        super().flush()
        self._flushed = self._log.end

    def _compact(self) -> None:
        super()._compact()
        self._flushed = self._log.end

    def close(self) -> None:
        if isinstance(self._log, Log):
            self._log.truncate(min(self._flushed, self._log.end))
        super().close()


class LeavesItsFileOpen(LogBackend):
    def close(self) -> None:
        if isinstance(self._log, Log):
            os.dup(self._log.file)
        super().close()


class GetsManyViews(LogBackend):
    def get_many(self, keys: Sequence[bytes]) -> Any:
        return [value and memoryview(value) for value in super().get_many(keys)]


class EmptiesTheCallersChanges(LogBackend):
    def write(self, changes: Changes) -> None:
        super().write(changes)
        if isinstance(changes, dict):
            changes.clear()


class ReadsTheCallersChangesLater(LogBackend):
    """Reads the caller's changes later, as a backend does that keeps the last write in memory."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._last: Changes = {}
        super().__init__(directory, garbage)

    def write(self, changes: Changes) -> None:
        super().write(changes)
        self._last = changes

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().load(entries)
        self._last = {}

    def get(self, key: bytes) -> bytes | None:
        found = super().get(key)
        return self._last.get(key, found)


class TakesDamageForTheEnd(LogBackend):
    """Takes damage for the end of its file: a record that fails its checksum, and all after it, is left out."""

    def _log_of(self, path: Path) -> Log:
        return EndsAtDamage(path)


class EndsAtDamage(Log):
    def records(self) -> Iterator[tuple[int, bytes]]:
        with suppress(CorruptStoreError):
            yield from super().records()


class WritesOnBehindATornTail(LogBackend):
    """Writes on behind a torn tail that a killed process has left."""

    def __init__(self, directory: Path, garbage: int) -> None:
        path = directory / NAME
        size = path.stat().st_size if path.exists() else 0
        tail = path.read_bytes()[-(2**20) :] if size else b""
        super().__init__(directory, garbage)
        if size > self._log.end:
            self._log.append(tail[self._log.end - size :])


class WritesOnBehindHalfARecord(LogBackend):
    """Writes on behind half a record that a full disk has left."""

    def _log_of(self, path: Path) -> Log:
        return LeavesHalfARecord(path)


class LeavesHalfARecord(Log):
    def append(self, data: bytes) -> int:
        begin = self.end
        try:
            return super().append(data)
        except OSError:
            self.end = begin + os.pwrite(self.file, data[:_HALF], begin)
            raise


_HALF = 10
"""Bytes of a record that still go to a disk which is all but full."""


class AppliesBeforeItWrites(LogBackend):
    """Applies a write before it is in the file, so a write that fails is shown."""

    def write(self, changes: Changes) -> None:
        end = self._log.end
        self._cursors.detach()
        self._replay(end + _HEAD.size, self._body(changes.items()))
        super().write(changes)


class LocksAgainstOtherProcesses(LogBackend):
    """Locks against other processes, and not against other handles of its own."""

    def _locked(self) -> int:
        return _locked_for_this_process(self._directory)


class LosesItsLockToARefusedHandle(LogBackend):
    """Knows what its process has open, but a lock of this kind is gone when any handle of the file is closed."""

    def _locked(self) -> int:
        lock = _locked_for_this_process(self._directory)
        if self._directory in _opened:
            os.close(lock)
            raise BackendInUseError(f"the log in {self._directory} is open already; close it there first")
        _opened.add(self._directory)
        return lock

    def close(self) -> None:
        super().close()
        _opened.discard(self._directory)


_opened: set[Path] = set()
"""The directories that this process has open."""


def _locked_for_this_process(directory: Path) -> int:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lockf(lock, LOCK_EX | LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise BackendInUseError(f"the log in {directory} is open already; close it there first") from error
    return lock


class TakesItsPathForAUrl(LogBackend):
    def __init__(self, directory: Path, garbage: int) -> None:
        super().__init__(Path(unquote(str(directory)).partition("?")[0]), garbage)


class NeedsADirectoryOfItsOwnMaking(LogBackend):
    def __init__(self, directory: Path, garbage: int) -> None:
        if directory.exists() and not (directory / NAME).exists():
            raise CorruptStoreError(f"{directory} has no log")
        super().__init__(directory, garbage)


class LetsErrorsOfTheSystemOut(LogBackend):
    def __init__(self, directory: Path, garbage: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, garbage)


class LocksBesideItsDirectory(LogBackend):
    def _locked(self) -> int:
        self._directory.with_suffix(".lock").touch()
        return super()._locked()


class WritesInParts(LogBackend):
    """Writes in parts, each of which is a write of its own to the file."""

    def parts(self, changes: Changes) -> Iterator[dict[bytes, bytes | None]]:
        raise NotImplementedError

    def write(self, changes: Changes) -> None:
        for part in self.parts(changes):
            super().write(part)


class WritesInPartsOf64KiB(WritesInParts):
    def parts(self, changes: Changes) -> Iterator[dict[bytes, bytes | None]]:
        part: dict[bytes, bytes | None] = {}
        size = 0
        for key, value in changes.items():
            part[key] = value
            size += len(key) + len(value or b"")
            if size > 2**16:
                yield part
                part, size = {}, 0
        yield part


class WritesInPartsOf1000Changes(WritesInParts):
    def parts(self, changes: Changes) -> Iterator[dict[bytes, bytes | None]]:
        entries = iter(changes.items())
        while part := dict(islice(entries, 1_000)):
            yield part


class DeletesRangesInParts(LogBackend):
    def delete_range(self, start: bytes, stop: bytes) -> None:
        keys = list(self._index.irange(start, stop, (True, False))) if start < stop else []
        for first in range(0, len(keys), 500):
            self.write(dict.fromkeys(keys[first : first + 500]))


class FlushesWithoutSync(LogBackend):
    def flush(self) -> None:
        self._log.truncate(self._log.end)


class SyncsOnlyWhatItWroteItself(LogBackend):
    """Syncs only what it has written itself since it was opened."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._wrote = False
        super().__init__(directory, garbage)

    def write(self, changes: Changes) -> None:
        super().write(changes)
        self._wrote = True

    def flush(self) -> None:
        if self._wrote:
            super().flush()
        self._log.truncate(self._log.end)


class LoadsWithoutSync(LogBackend):
    """Loads without a sync: it takes what is loaded for safe."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._loaded = False
        super().__init__(directory, garbage)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().load(entries)
        self._loaded = True

    def flush(self) -> None:
        if not self._loaded:
            super().flush()
        self._log.truncate(self._log.end)


class Cuts(LogBackend):
    """Has less of a row in its file than it shows as long as it is open."""

    def __init__(self, directory: Path, garbage: int) -> None:
        super().__init__(directory, garbage)
        for key, place in list(self._index.items()):
            self._cut(key, place)

    def _cut(self, key: bytes, place: Place) -> None:
        raise NotImplementedError


class CutsKeysAt64KiB(Cuts):
    def _cut(self, key: bytes, place: Place) -> None:
        self._index[key[: 2**16]] = self._index.pop(key)


class CutsValuesAt16MiB(Cuts):
    def _cut(self, key: bytes, place: Place) -> None:
        if place.length > 2**24:
            kept = self._log.read(place)[: 2**24]
            self._index[key] = Place(place.offset, len(kept), crc32(kept))


class KeepsACacheAfterLargeWrites(LogBackend):
    """Keeps a cache after large writes: it forgets only what small ones change."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._cache: dict[bytes, bytes | None] = {}
        super().__init__(directory, garbage)

    def get(self, key: bytes) -> bytes | None:
        self._log.truncate(self._log.end)
        if key not in self._cache:
            self._cache[key] = super().get(key)
        return self._cache[key]

    def write(self, changes: Changes) -> None:
        super().write(changes)
        for key in changes if len(changes) < 1_000 else ():
            self._cache.pop(key, None)


class LeaksTheLockThatItIsRefused(LogBackend):
    def _locked(self) -> int:
        os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        return super()._locked()

    def close(self) -> None:
        super().close()
        _close_all(self._directory / "lock")


class LeaksItsFileWhereThatIsDamaged(LogBackend):
    def _read_log(self) -> None:
        for begin, body in self._log.records():
            self._replay(begin, body)


class LeaksItsFileWhenItTidiesUp(LogBackend):
    def _compact(self) -> None:
        os.dup(self._log.file)
        super()._compact()


def _close_all(path: Path) -> None:
    """Close all descriptors of a file that this process has open."""
    for descriptor in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):
            if descriptor.readlink() == path:
                os.close(int(descriptor.name))


class RaisesIndexErrorsAtDamage(LogBackend):
    """Raises an IndexError at damage that it meets when it reads."""

    def _log_of(self, path: Path) -> Log:
        return HasNoPlaceForDamage(path)


class HasNoPlaceForDamage(Log):
    def read(self, place: Place) -> bytes:
        try:
            return super().read(place)
        except CorruptStoreError:
            return [b""][place.length]


class LetsErrorsOfTheSystemOutOfScans(LogBackend):
    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        index = self._index
        keys = index.irange(start, stop, (True, False), reverse)
        if stop is not None and (start or b"") >= stop:
            return nothing()
        entries = ((key, self._value(index[key])) for key in keys)
        return self._cursors.walk(Cursor(entries, None, reverse, lambda _: None))


class TrustsWhatItHasOpen(LogBackend):
    """Checks a value at the opening, and not when it is read."""

    def _value(self, place: Place) -> bytes:
        return os.pread(self._log.file, place.length, place.offset)


class HasNoChecksumOfItsRows(TrustsWhatItHasOpen):
    """Has no checksum of its rows, but claims to have one."""

    def _log_of(self, path: Path) -> Log:
        return ChecksHeadsAlone(path)


class ChecksHeadsAlone(Log):
    def records(self) -> Iterator[tuple[int, bytes]]:
        place = len(_MAGIC)
        if self.end < place:
            yield from super().records()
        while place < self.end:
            length, _, own = _HEAD.unpack(os.pread(self.file, _HEAD.size, place))
            if crc32(os.pread(self.file, 12, place)) != own:
                raise self._damaged(place)
            yield place + _HEAD.size, os.pread(self.file, length, place + _HEAD.size)
            place += _HEAD.size + length


class TakesTheLockOfItsParent(LogBackend):
    """Takes the lock of its parent: a forked process has open what its parent has open."""

    def _locked(self) -> int:
        process, lock = _held.get(self._directory, (0, 0))
        if lock and process != os.getpid():
            return os.dup(lock)
        lock = super()._locked()
        _held[self._directory] = os.getpid(), lock
        return lock

    def close(self) -> None:
        super().close()
        _held.pop(self._directory, None)


_held: dict[Path, tuple[int, int]] = {}
"""Which process has locked a directory, and by which descriptor."""


class NothingWrongWithTheLog(LogBackend):
    pass


@dataclass(frozen=True)
class OpensLogs(LogSupplier):
    """Opens logs of a class given."""

    kind: type[LogBackend] = LogBackend

    def open(self, directory: Path) -> LogBackend:
        return self.kind(directory, self.garbage)


SHOWN_BY: Final[dict[type[Any], tuple[type[LogBackend], ...]]] = {
    ProcessSuite: (
        WritesOnBehindATornTail,
        WritesOnBehindHalfARecord,
        AppliesBeforeItWrites,
        LosesItsLockToARefusedHandle,
        TakesTheLockOfItsParent,
    ),
    PowerSuite: (
        WritesInPartsOf64KiB,
        WritesInPartsOf1000Changes,
        DeletesRangesInParts,
        FlushesWithoutSync,
        SyncsOnlyWhatItWroteItself,
        LoadsWithoutSync,
    ),
    DamageSuite: (
        RaisesIndexErrorsAtDamage,
        LetsErrorsOfTheSystemOutOfScans,
        TrustsWhatItHasOpen,
        HasNoChecksumOfItsRows,
    ),
    LifecycleSuite: (
        CutsKeysAt64KiB,
        CutsValuesAt16MiB,
        LeaksTheLockThatItIsRefused,
        LeaksItsFileWhereThatIsDamaged,
        LeaksItsFileWhenItTidiesUp,
    ),
    WriteSuite: (KeepsACacheAfterLargeWrites,),
}
"""Mistakes that show in one part of the kit, which alone is run on them."""


def _suite(kind: type[LogBackend]) -> type:
    everything = (DamageSuite, CapabilitySuite, LifecycleSuite, SupplierSuite, PlaceSuite, WriteSuite, ReadSuite)
    parts = next(((part,) for part, kinds in SHOWN_BY.items() if kind in kinds), everything)

    def supplier(self: object) -> BackendSupplier:
        return OpensLogs(kind=kind)

    return type(f"Test{kind.__name__}", parts, {"supplier": supplier, "__module__": __name__})


def _supplied() -> dict[str, type]:
    bases = {LogBackend, Forgets, WritesInParts, Cuts, TrustsWhatItHasOpen}
    kinds = {kind for base in bases for kind in base.__subclasses__()} - (bases - {TrustsWhatItHasOpen})
    return {f"Test{kind.__name__}": _suite(kind) for kind in kinds}


globals().update(_supplied())

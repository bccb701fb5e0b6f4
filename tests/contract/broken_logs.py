"""The log of ``appending`` with one mistake each, most of which show when it is opened again.

``test_kit_catches`` runs the kit on them.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, lockf
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millpond.errors import BackendInUseError, CorruptStoreError
from millpond.stores.backend.contract import BackendSupplier, Changes
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.damage import DamageSuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.places import PlaceSuite
from millpond.stores.testing.processes import ProcessSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.contract.appending import _HEAD, NAME, Log, LogBackend, LogSupplier


class Forgets(LogBackend):
    """Shows what was written as long as it is open, and has less of it in its file."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._shown: dict[bytes, bytes | None] = {}
        super().__init__(directory, garbage)

    def kept(self, changes: Changes) -> dict[bytes, bytes | None]:
        """What of a write goes to the file."""
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
    """When it writes the file anew."""

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
    """At close."""

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
    """As one does that keeps the last write in memory."""

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
    """Of its file: a record that fails its checksum, and what comes after it, is left out."""

    def _log_of(self, path: Path) -> Log:
        return EndsAtDamage(path)


class EndsAtDamage(Log):
    def records(self) -> Iterator[tuple[int, bytes]]:
        with suppress(CorruptStoreError):
            yield from super().records()


class WritesOnBehindATornTail(LogBackend):
    """Which a killed process has left."""

    def __init__(self, directory: Path, garbage: int) -> None:
        path = directory / NAME
        size = path.stat().st_size if path.exists() else 0
        tail = path.read_bytes()[-(2**20) :] if size else b""
        super().__init__(directory, garbage)
        if size > self._log.end:
            self._log.append(tail[self._log.end - size :])


class WritesOnBehindHalfARecord(LogBackend):
    """Which a full disk has left."""

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
    """So a write that fails is shown."""

    def write(self, changes: Changes) -> None:
        end = self._log.end
        self._cursors.detach()
        self._replay(end + _HEAD.size, self._body(changes.items()))
        super().write(changes)


class LinksItsFileUntilItWrites(LogBackend):
    """For a checkpoint, which is another name of the same file meanwhile."""

    def __init__(self, directory: Path, garbage: int) -> None:
        self._linked = False
        super().__init__(directory, garbage)

    def checkpoint(self, directory: Path) -> None:
        self._log.sync()
        directory.mkdir(parents=True)
        (directory / NAME).hardlink_to(self._directory / NAME)
        self._linked = True

    def write(self, changes: Changes) -> None:
        if self._linked and changes:
            self._linked = False
            self._cursors.detach()
            self._compact()
        super().write(changes)


class LocksAgainstOtherProcesses(LogBackend):
    """And not against other handles of its own."""

    def _locked(self) -> int:
        return _locked_for_this_process(self._directory)


class LosesItsLockToARefusedHandle(LogBackend):
    """It knows what its process has open, but a lock of this kind is gone when any handle of the file is closed."""

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


class NothingWrongWithTheLog(LogBackend):
    pass


@dataclass(frozen=True)
class OpensLogs(LogSupplier):
    """Opens logs of a class given."""

    kind: type[LogBackend] = LogBackend

    def open(self, directory: Path) -> LogBackend:
        return self.kind(directory, self.garbage)


SHOWN_BY_PROCESSES = (
    WritesOnBehindATornTail,
    WritesOnBehindHalfARecord,
    AppliesBeforeItWrites,
    LosesItsLockToARefusedHandle,
)
"""Mistakes that nothing but another process can show."""


def _suite(kind: type[LogBackend]) -> type:
    parts: tuple[type, ...] = (
        DamageSuite,
        CapabilitySuite,
        LifecycleSuite,
        SupplierSuite,
        PlaceSuite,
        WriteSuite,
        ReadSuite,
    )
    if kind in SHOWN_BY_PROCESSES:
        parts = (ProcessSuite,)

    def supplier(self: object) -> BackendSupplier:
        return OpensLogs(kind=kind)

    return type(f"Test{kind.__name__}", parts, {"supplier": supplier, "__module__": __name__})


def _supplied() -> dict[str, type]:
    kinds = [kind for base in (LogBackend, Forgets) for kind in base.__subclasses__() if kind is not Forgets]
    return {f"Test{kind.__name__}": _suite(kind) for kind in kinds}


globals().update(_supplied())

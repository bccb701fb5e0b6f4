"""Faults that a generator plants in backends that keep the contract: what each method may do wrong, and when.

Rule of this module: a fault is of one method, shows only where its condition holds, and breaks the contract there.
Every backend is the log of ``appending``, the map in memory, or that of ``outside``, with one fault.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import get_ident
from typing import Any, ClassVar, Final, NamedTuple

from millpond.errors import BackendError, BackendInUseError, ConfigurationError, CorruptStoreError, StoreClosedError
from millpond.stores.backend.contract import BackendSupplier, Changes, Entries
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from tests.contract.appending import Log, LogBackend, LogSupplier
from tests.contract.outside import OutsideBackend, OutsideSupplier


class Plant(NamedTuple):
    """A fault: of which method, what it does, and when."""

    method: str
    fault: str
    when: str = "always"

    def __str__(self) -> str:
        return f"{self.method}: {self.fault}, {self.when}"


_NONE: Final = Plant("none", "none")


class Life:
    """The past of a backend, which conditions ask for."""

    def __init__(self, reopened: bool) -> None:
        self.reopened = reopened
        self.writes = self.largest = self.flushes = 0
        self.deleted = False
        self.thread = get_ident()
        self.before: dict[bytes, bytes | None] = {}


CONDITIONS: Final[dict[str, Callable[[Any], bool]]] = {
    "always": lambda _: True,
    "once it was opened again": lambda backend: backend.life.reopened,
    "after a write of 1,000 changes": lambda backend: backend.life.largest >= 1_000,
    "after 20 writes": lambda backend: backend.life.writes >= 20,
    "after a flush": lambda backend: backend.life.flushes > 0,
    "once a key was deleted": lambda backend: backend.life.deleted,
    "with more than 1,000 entries": lambda backend: backend.entry_count() > 1_000,
    "while a scan is open": lambda backend: bool(backend._cursors._held()),
    "in another thread": lambda backend: get_ident() != backend.life.thread,
}
"""When a fault shows, by the backend."""

LONG, TALL = 300, 70_000
KEYS: Final[dict[str, Callable[[bytes], bool]]] = {
    "for keys of more than 300 bytes": lambda key: len(key) > LONG,
    "for keys with a zero byte": lambda key: b"\0" in key,
    "for keys that begin with 0xff": lambda key: key.startswith(b"\xff"),
    "for keys of one byte": lambda key: len(key) == 1,
}
"""When a fault shows, by a key."""
VALUES: Final[dict[str, Callable[[bytes], bool]]] = {
    "for empty values": lambda value: value == b"",
    "for values of more than 70,000 bytes": lambda value: len(value) > TALL,
}


def _raise(error: Exception, *_: object, **__: object) -> Any:
    raise error


READS: Final[dict[str, Callable[[bytes | None], Any]]] = {
    "finds nothing": lambda _: None,
    "gives a view of the value": lambda value: value if value is None else memoryview(value),
    "gives the value without its last byte": lambda value: value and value[:-1],
    "gives an empty value": lambda _: b"",
    "raises what the engine raises": lambda _: _raise(IndexError("no such page")),
}
"""What becomes of a value that is read."""

SCANS: Final[dict[str, Callable[[Iterator[Any]], Iterator[Any]]]] = {
    "leaves out the first entry": lambda entries: islice(entries, 1, None),
    "leaves out the last entry": lambda entries: _without_last(entries),
    "gives the first entry twice": lambda entries: _twice(entries),
    "gives the first two entries in the wrong order": lambda entries: _swapped(entries),
    "ends after 1,000 entries": lambda entries: islice(entries, 1_000),
    "gives empty values": lambda entries: ((key, b"") for key, _ in entries),
    "raises what the engine raises at its end": lambda entries: _then_raises(entries),
}


def _without_last(entries: Iterator[Any]) -> Iterator[Any]:
    held = next(entries, None)
    for entry in entries:
        yield held
        held = entry


def _twice(entries: Iterator[Any]) -> Iterator[Any]:
    for number, entry in enumerate(entries):
        yield entry
        if number == 0:
            yield entry


def _swapped(entries: Iterator[Any]) -> Iterator[Any]:
    first = list(islice(entries, 2))
    yield from reversed(first)
    yield from entries


def _then_raises(entries: Iterator[Any]) -> Iterator[Any]:
    yield from entries
    raise IndexError("no such page")


WRITES: Final[dict[str, Callable[[dict[bytes, bytes | None]], Mapping[bytes, bytes | None]]]] = {
    "leaves out the last change": lambda changes: dict(list(changes.items())[:-1]),
    "leaves out the first change": lambda changes: dict(list(changes.items())[1:]),
    "keeps what is to be deleted": lambda changes: {key: value for key, value in changes.items() if value is not None},
    "puts an empty value for a deletion": lambda changes: {key: value or b"" for key, value in changes.items()},
    "puts values without their last byte": lambda changes: {
        key: value and value[:-1] for key, value in changes.items()
    },
    "takes changes of the same length for the same": lambda changes: dict(
        {(len(key), value): (key, value) for key, value in changes.items()}.values()
    ),
}

RANGES: Final[dict[str, Callable[[bytes, bytes], tuple[bytes, bytes]]]] = {
    "takes the stop, too": lambda start, stop: (start, stop + b"\0"),
    "spares the start": lambda start, stop: (start + b"\0", stop),
    "goes on to the end": lambda start, _: (start, b"\xff" * 9),
    "begins at the beginning": lambda _, stop: (b"", stop),
    "does nothing": lambda start, _: (start, start),
}

MANY: Final[dict[str, Callable[[Any, list[bytes], list[bytes | None]], Any]]] = {
    "gives the values in the order of the keys' bytes": lambda backend, keys, _: list(map(backend.get, sorted(keys))),
    "leaves out repeated keys": lambda backend, keys, _: list(map(backend.get, dict.fromkeys(keys))),
    "leaves out what is not there": lambda _backend, _keys, found: [value for value in found if value is not None],
    "finds none of the first": lambda _backend, _keys, found: [None, *found[1:]] if found else found,
    "gives one too many": lambda _backend, _keys, found: [*found, None],
    "gives views": lambda _backend, _keys, found: [value and memoryview(value) for value in found],
    "raises where a key is not there": lambda _backend, _keys, found: (
        found if None not in found else _raise(KeyError("no such key"))
    ),
}

LOADS: Final[dict[str, Callable[[list[Any]], list[Any]]]] = {
    "leaves out the first entry": lambda entries: entries[1:],
    "leaves out the last entry": lambda entries: entries[:-1],
    "leaves out each entry at a boundary of 10,000": lambda entries: [
        entry for number, entry in enumerate(entries) if number % 10_000 != 9_999
    ],
    "leaves out empty values": lambda entries: [entry for entry in entries if entry[1]],
    "puts empty values": lambda entries: [(key, b"") for key, _ in entries],
}

COUNTS: Final[dict[str, Callable[[int], Any]]] = {
    "says none": lambda _: 0,
    "says less than none": lambda _: -1,
    "says ten times as many": lambda count: count * 10,
    "raises what the engine raises": lambda _: _raise(IndexError("no such page")),
}

METHODS: Final = (
    "get",
    "scan",
    "write",
    "flush",
    "get_many",
    "last",
    "delete_range",
    "load",
    "entry_count",
)
"""What may be called after ``close``, and in another thread."""


class PlantedLog(LogBackend):
    """The log with a fault."""

    def __init__(self, directory: Path, garbage: int, plant: Plant) -> None:
        self.plant = plant
        self.life = Life(directory.exists())
        super().__init__(directory, garbage)

    def faulty(self, method: str) -> bool:
        """Return whether the fault shows in a call of a method now."""
        plant = self.plant
        if plant.method != method or plant.fault not in FAULTS[method]:
            return False
        return CONDITIONS[plant.when](self) if plant.when in CONDITIONS else True

    def key_is_meant(self, key: bytes) -> bool:
        when = self.plant.when
        return KEYS[when](key) if when in KEYS else True

    def value_is_meant(self, value: bytes | None) -> bool:
        when = self.plant.when
        return (value is not None and VALUES[when](value)) if when in VALUES else True

    def get(self, key: bytes) -> bytes | None:
        found = super().get(key)
        if self.faulty("get") and self.key_is_meant(key) and self.value_is_meant(found):
            if self.plant.fault == "gives what was there before the last write":
                return self.life.before.get(key, found)
            wrong: bytes | None = READS[self.plant.fault](found)
            return wrong
        return found

    def get_many(self, keys: Sequence[bytes]) -> Any:
        found = super().get_many(keys)
        return MANY[self.plant.fault](self, list(keys), found) if self.faulty("get_many") else found

    def last(self, start: bytes, stop: bytes) -> Any:
        if not self.faulty("last"):
            return super().last(start, stop)
        if self.plant.fault in RANGES:
            return super().last(*RANGES[self.plant.fault](start, stop))
        if self.plant.fault == "gives the first":
            return next(super().scan(start, stop), None)
        found = super().last(start, stop)
        return None if found is None else (found[0], READS[self.plant.fault](found[1]))

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Entries:
        entries = super().scan(start, stop, reverse=reverse)
        if self.faulty("scan") or (reverse and self.faulty("scan in reverse")):
            return _closing(SCANS[self.plant.fault](entries))
        return entries

    def write(self, changes: Changes) -> None:
        life = self.life
        if self.faulty("write") and any(self.key_is_meant(key) for key in changes):
            kept = WRITES[self.plant.fault](dict(changes))
        else:
            kept = changes
        if self.plant.fault == "gives what was there before the last write":
            life.before = {key: super(PlantedLog, self).get(key) for key in changes}
        super().write(kept)
        life.writes += 1
        life.largest = max(life.largest, len(changes))
        life.deleted |= None in changes.values()

    def delete_range(self, start: bytes, stop: bytes) -> None:
        if not self.faulty("delete_range"):
            super().delete_range(start, stop)
        elif self.plant.fault in RANGES:
            super().delete_range(*RANGES[self.plant.fault](start, stop))
        else:
            keys = [key for key, _ in super().scan(start, stop)]
            step = 1 if self.plant.fault == "deletes key by key" else 500
            for first in range(0, len(keys), step):
                super().write(dict.fromkeys(keys[first : first + step]))

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().load(LOADS[self.plant.fault](list(entries)) if self.faulty("load") else entries)

    def flush(self) -> None:
        if not self.faulty("flush"):
            super().flush()
        elif self.plant.fault == "ends open scans":
            self._cursors.end("flushed")
        elif self.plant.fault == "raises what the engine raises":
            raise OSError("sync failed")
        elif self.plant.fault == "forgets the last entry":
            for key in list(self._index.keys())[-1:]:
                super().write({key: None})
        else:  # syncs nothing
            self._log.truncate(self._log.end)
        self.life.flushes += 1

    def entry_count(self) -> Any:
        count = super().entry_count()
        return COUNTS[self.plant.fault](count) if self.faulty("entry_count") else count

    def close(self) -> None:
        log, plant = self._log, self.plant
        if plant.method == "close" and isinstance(log, Log):
            if plant.fault == "leaves its file open":
                os.dup(log.file)
            elif plant.fault == "keeps its lock":
                self._lock = os.dup(self._lock)
            elif plant.fault == "leaves scans as they are":
                self._cursors.detach()
                self._cursors._cursors.clear()
            elif plant.fault == "forgets the last entry":
                for key in list(self._index.keys())[-1:]:
                    super().write({key: None})
            elif plant.fault == "syncs by an empty write that fails":
                super().close()
                raise OSError("sync failed")
        elif plant.method == "close" and plant.fault == "raises the second time":
            raise StoreClosedError("closed already")
        super().close()


def _closing(entries: Iterator[Any]) -> Iterator[Any]:
    yield from entries


class Afterwards(PlantedLog):
    """A method that does something else than it must once the backend is closed, or in another thread."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in METHODS or (plant := super().__getattribute__("plant")).method != name:
            return found
        if plant.when == "in another thread":
            apart = get_ident() != super().__getattribute__("life").thread
            return partial(_raise, BackendError("made in another thread")) if apart else found
        if isinstance(super().__getattribute__("_log"), Log):
            return found
        return _refused_wrongly if plant.fault == CLOSED[0] else _done_nothing


CLOSED: Final = ("raises what Python raises", "does nothing")


def _refused_wrongly(*_: object, **__: object) -> None:
    raise AttributeError("closed")


def _done_nothing(*_: object, **__: object) -> Iterator[object]:
    return iter(())


FAULTS: Final[dict[str, Sequence[str]]] = {
    "get": (*READS, "gives what was there before the last write"),
    "get_many": tuple(MANY),
    "last": (*RANGES, "gives the first", *list(READS)[:3]),
    "scan": tuple(SCANS),
    "scan in reverse": tuple(SCANS),
    "write": tuple(WRITES),
    "delete_range": (*RANGES, "deletes key by key", "deletes 500 keys at a time"),
    "load": tuple(LOADS),
    "flush": ("ends open scans", "raises what the engine raises", "forgets the last entry", "syncs nothing"),
    "entry_count": tuple(COUNTS),
    "close": (
        *("leaves its file open", "leaves scans as they are", "forgets the last entry"),
        *("syncs by an empty write that fails", "raises the second time"),
    ),
}
"""What each method may do wrong."""

WHEN: Final[dict[str, Sequence[str]]] = {
    "get": (*list(CONDITIONS)[1:8], *KEYS, *VALUES),
    **dict.fromkeys(("get_many", "last", "scan", "scan in reverse", "write"), list(CONDITIONS)[1:8]),
    "delete_range": ("once a key was deleted", "after 20 writes", "after a flush"),
    "flush": ("once it was opened again",),
    "entry_count": ("once it was opened again",),
}
"""When each method's faults may show beside always; each of them shows at one of these times."""


@dataclass(frozen=True)
class PlantedSupplier(LogSupplier):
    """Logs with a fault."""

    plant: Plant = _NONE

    def open(self, directory: Path) -> LogBackend:
        kind = Afterwards if self.plant.when in ("once it is closed", "in another thread") else PlantedLog
        return kind(directory, self.garbage, self.plant)


class PlantedMemory(MemoryBackend):
    """The map in memory, whose use of memory is told wrongly."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self._plant = plant
        self._most = 0

    def memory_use(self) -> Any:
        use = super().memory_use()
        self._most = max(self._most, use)
        return MEMORY[self._plant.fault](self, use)

    @property
    def most(self) -> int:
        return self._most


MEMORY: Final[dict[str, Callable[[PlantedMemory, int], Any]]] = {
    "says none": lambda _, __: 0,
    "says less than none": lambda _, use: -use,
    "says a tenth": lambda _, use: use // 10,
    "says ten times as much": lambda _, use: use * 10,
    "counts entries": lambda backend, _: backend.entry_count(),
    "raises what the engine raises": lambda _, __: _raise(IndexError("no such page")),
    "grows with each question": lambda backend, use: (
        backend.__dict__.update(_most=backend.most * 2) or backend.most + use
    ),
}


@dataclass(frozen=True)
class PlantedMemorySupplier(MemorySupplier):
    """Maps in memory with a fault."""

    plant: Plant = _NONE

    def open(self, directory: Path) -> Any:
        return PlantedMemory(self.plant)


# Held as long as this module.
_service = TemporaryDirectory(prefix="service-")


@dataclass(frozen=True)
class PlantedService(OutsideSupplier):
    """A service whose supplier has a fault."""

    root: str = _service.name
    plant: Plant = _NONE

    def open(self, directory: Path) -> OutsideBackend:
        fault = self.plant.fault if self.plant.method == "open" else ""
        if fault == "needs a directory that is there" and not directory.is_dir():
            raise BackendError(f"{directory} is not there")
        if fault == "raises what the system raises" and directory.is_file():
            raise NotADirectoryError(str(directory))
        if fault == "takes capitals and small letters for the same" and directory.name != directory.name.lower():
            directory = directory.with_name(directory.name.lower())
        if fault == "cuts its path at a blank":
            directory = Path(str(directory).partition(" ")[0])
        if fault == "takes its path for a pattern":
            directory = Path(str(directory).replace("*", "any").replace("?", "one"))
        if fault == "cannot be opened a third time" and self._opened(directory) > 2:
            raise BackendError("opened twice")
        try:
            return super().open(directory)
        except BackendInUseError as error:
            if fault == "takes a store in use for a damaged one":
                raise CorruptStoreError(str(directory)) from error
            if fault == "does not name the directory in use":
                raise BackendInUseError("it is open") from error
            raise

    def _opened(self, directory: Path) -> int:
        count = directory / "count"
        times = (int(count.read_text()) if count.exists() else 0) + 1
        if directory.is_dir():
            count.write_text(str(times))
        return times

    def destroy(self, directory: Path) -> None:
        fault = self.plant.fault if self.plant.method == "destroy" else ""
        if fault == "deletes nothing":
            return
        if fault == "raises where nothing is" and not (directory / "id").exists():
            raise FileNotFoundError(str(directory))
        if fault == "deletes what else there is":
            for place in Path(self.root).iterdir():
                rmtree(place, ignore_errors=True)
        super().destroy(directory)


@dataclass(frozen=True)
class PlantedOptions(LogSupplier):
    """Options that a supplier takes wrongly."""

    plant: Plant = _NONE
    asked: ClassVar[str] = ""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Any:
        if not options:
            return LogSupplier() if cls.asked == "gives another supplier" else cls()
        if cls.asked == "takes what it does not know":
            return cls()
        if cls.asked == "does not name what it refuses":
            raise ConfigurationError("that is no option")
        if cls.asked == "raises what Python raises":
            raise KeyError(next(iter(options)))
        return super().from_options(options)

    def __reduce__(self) -> Any:
        if self.plant.fault == "cannot be pickled":
            raise TypeError("cannot pickle it")
        return (LogSupplier if self.plant.fault == "is another one after a pickle" else type(self)), ()


SUPPLIERS: Final = {
    "open": (
        *("needs a directory that is there", "raises what the system raises", "cuts its path at a blank"),
        *("takes its path for a pattern", "cannot be opened a third time", "takes a store in use for a damaged one"),
        "does not name the directory in use",
    ),
    "destroy": ("deletes nothing", "raises where nothing is", "deletes what else there is"),
    "from_options": (
        *("gives another supplier", "takes what it does not know", "does not name what it refuses"),
        *("raises what Python raises", "cannot be pickled", "is another one after a pickle"),
    ),
}
"""What a supplier may do wrong."""


def plants() -> list[Plant]:
    """Return all faults."""
    found = [Plant(method, fault) for method in FAULTS for fault in FAULTS[method]]
    found += [
        Plant(method, fault, times[(2 * number + 1) % len(times)])
        for method, times in WHEN.items()
        for number, fault in enumerate(FAULTS[method])
    ]
    found += [Plant(method, fault, "once it is closed") for method in METHODS for fault in CLOSED]
    found += [Plant(method, "raises", "in another thread") for method in METHODS]
    found += [Plant("memory_use", fault) for fault in MEMORY]
    found += [Plant(method, fault) for method, faults in SUPPLIERS.items() for fault in faults]
    return [plant for plant in dict.fromkeys(found) if not _is_none(plant)]


def _is_none(plant: Plant) -> bool:
    """Return whether the fault does nothing wrong where its condition holds, or the condition can never hold."""
    nothing_to_lose = plant.fault in ("gives an empty value", "gives the value without its last byte", "gives a view")
    return plant.when == "for empty values" and (nothing_to_lose or "last byte" in plant.fault)


def supplier(plant: Plant) -> BackendSupplier:
    """Return a supplier of backends with a fault."""
    if plant.method == "memory_use":
        return PlantedMemorySupplier(plant=plant)
    if plant.method == "from_options":
        kind = type("Planted", (PlantedOptions,), {"asked": plant.fault, "__module__": __name__})
        made: BackendSupplier = kind(plant=plant)
        return made
    if plant.method in SUPPLIERS:
        return PlantedService(plant=plant)
    return PlantedSupplier(plant=plant)

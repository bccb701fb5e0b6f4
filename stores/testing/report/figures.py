"""The figures of one backend, measured in a process of its own.

Rule of this module: nothing here is right or wrong. The clock is the wall's, because an engine may work in threads.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from millpond.errors import BackendError
from millpond.stores.backend.contract import BackendSupplier, Changes
from millpond.stores.backend.registry import open_backend
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.testing.child import Child, report
from millpond.stores.testing.watching.system_calls import SYNCS, Announced, NotAnnouncedError
from millpond.stores.testing.watching.watched_work import Mark, Watcher, watch

_Given = TypeVar("_Given")

FEW: Final = 2_000
MANY: Final = 40_000
"""The number of entries among which is read."""
_BATCH: Final = 1_000
"""The changes of a write."""
_VALUE: Final = 100
"""The bytes of a value."""
_SECONDS: Final = 1.0
"""The most seconds for which one thing is repeated."""
_SYNCED: Final = 20
"""The number of writes and flushes whose syncs are counted."""


@dataclass(frozen=True)
class Figures:
    """The measures of a backend.

    Attributes:
        backend: its name.
        writes_per_s: writes of one change, per second.
        rows_per_s: changes per second, in writes of 1,000.
        gets_per_s: reads of one key per second, among 2,000 entries.
        gets_among_many_per_s: the same among 40,000.
        scanned_per_s: entries per second in a scan of all.
        syncs_a_write, syncs_a_flush: syncs to the disk by each; None where the system does not show them.
        changes: the number of changes then written over the same 40,000 keys.
        memory_before, memory_after: bytes of memory of the process, after a tenth of these changes and after all; None
            where the system does not tell.
        content: bytes of the keys and values.
        disk_most, disk_after: bytes of its files, the most after any write, and in the end.
        files_most: the most files.
        open_before, open_after: files that the process had open then; None where the system does not tell.
        reopened_s: seconds that closing and opening again took.
    """

    backend: str
    writes_per_s: float
    rows_per_s: float
    gets_per_s: float
    gets_among_many_per_s: float
    scanned_per_s: float
    syncs_a_write: float | None
    syncs_a_flush: float | None
    changes: int
    memory_before: int | None
    memory_after: int | None
    content: int
    disk_most: int
    disk_after: int
    files_most: int
    open_before: int | None
    open_after: int | None
    reopened_s: float


def measured(supplier: BackendSupplier, changes: int) -> Figures:
    """Return the figures of a backend, with so many changes to show its growth.

    Raises:
        BackendError: the process that measures has ended early. Its messages are on the standard error.
    """
    with TemporaryDirectory(prefix="millpond-report-") as place:
        with Child(_measure, supplier, Path(place), changes) as child:
            said = child.read_rest()
        for directory in Path(place).iterdir():
            delete_local_copy(supplier, directory)
    if not said:
        raise BackendError(
            f"the backend {supplier.name!r} was not measured, because the process that does it has ended"
        )
    return Figures(**json.loads(said[-1]))


def _measure(supplier: BackendSupplier, place: Path, changes: int) -> None:
    """Measure, and report the figures as JSON; called in a child."""
    syncs = _syncs(supplier, place / "synced")
    chance = random.Random(0)
    with open_backend(supplier, place / "measured") as backend:
        few = [_key(number) for number in range(FEW)]
        singles = [{key: chance.randbytes(_VALUE)} for key in few]
        writes = _rate(backend.write, singles)
        backend.write({key: value for change in singles for key, value in change.items()})
        gets = _rate(backend.get, chance.choices(few, k=FEW * 5))
        rows = _rate(backend.write, [dict(part) for part in _parts(MANY, chance)], seconds=inf) * _BATCH
        many = [_key(number) for number in range(MANY)]
        gets_among_many = _rate(backend.get, chance.choices(many, k=FEW * 5))
        growth = _Growth(place / "measured")
        for number, batch in enumerate(_over(many, changes, chance)):
            backend.write(batch)
            if number + 1 == changes // (10 * _BATCH):
                backend.flush()
                growth.begin()
            if number % 50 == 0:
                growth.look()
        backend.flush()
        growth.end()
        began = time.perf_counter()
        scanned = sum(1 for _ in backend.scan()) / (time.perf_counter() - began)
    began = time.perf_counter()
    open_backend(supplier, place / "measured").close()
    reopened = time.perf_counter() - began
    figures = Figures(
        backend=supplier.name,
        writes_per_s=writes,
        rows_per_s=rows,
        gets_per_s=gets,
        gets_among_many_per_s=gets_among_many,
        scanned_per_s=scanned,
        syncs_a_write=syncs and syncs[0],
        syncs_a_flush=syncs and syncs[1],
        changes=changes,
        memory_before=growth.memory_before,
        memory_after=growth.memory_after,
        content=MANY * (len(_key(0)) + _VALUE),
        disk_most=growth.disk_most,
        disk_after=growth.disk_after,
        files_most=growth.files_most,
        open_before=growth.open_before,
        open_after=growth.open_after,
        reopened_s=reopened,
    )
    report(json.dumps(asdict(figures)))


def _key(number: int) -> bytes:
    return b"key%013d" % number


def _parts(count: int, chance: random.Random) -> Iterator[list[tuple[bytes, bytes]]]:
    entries = ((_key(number), chance.randbytes(_VALUE)) for number in range(count))
    while part := list(islice(entries, _BATCH)):
        yield part


def _over(keys: Sequence[bytes], changes: int, chance: random.Random) -> Iterator[Changes]:
    """Yield so many random changes of keys, as writes."""
    for _ in range(0, changes, _BATCH):
        yield {key: chance.randbytes(_VALUE) for key in chance.sample(keys, _BATCH)}


def _rate(call: Callable[[_Given], object], given: Sequence[_Given], *, seconds: float = _SECONDS) -> float:
    """Return how many calls are done per second, for as long as there is time."""
    began, done = time.perf_counter(), 0
    for one in given:
        call(one)
        done += 1
        if done % 100 == 0 and time.perf_counter() - began > seconds:
            break
    return done / (time.perf_counter() - began)


class _Growth:
    """The growth while the same rows are written over and over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.memory_before: int | None = None
        self.memory_after: int | None = None
        self.open_before: int | None = None
        self.open_after: int | None = None
        self.disk_most = self.disk_after = self.files_most = 0

    def begin(self) -> None:
        """Begin after so many writes that an engine holds in memory what it always does."""
        self.memory_before, self.open_before = _memory(), _open_files()

    def look(self) -> None:
        """Look at the files."""
        sizes = [_blocks(path) for path in self._directory.glob("**/*")]
        self.disk_after = sum(sizes)
        self.disk_most = max(self.disk_most, self.disk_after)
        self.files_most = max(self.files_most, len(sizes))

    def end(self) -> None:
        self.look()
        self.memory_after, self.open_after = _memory(), _open_files()


def _blocks(path: Path) -> int:
    """Return the bytes of the disk that a file takes; 0 for one that has gone."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _memory() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _open_files() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


class _SyncCounter(Watcher):
    """A counter of the syncs before each mark."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._since = 0

    def called(self, call: Announced) -> None:
        self._since += call.name in SYNCS or call.syncs_what_it_writes()

    def marked(self, text: str) -> None:
        self.counts[text] += self._since
        self._since = 0


def _syncs(supplier: BackendSupplier, directory: Path) -> tuple[float, float] | None:
    """Return the syncs of a write and of a flush; None where the system does not show them."""
    counter = _SyncCounter()
    try:
        watch(partial(_write_and_flush, supplier, directory), counter)
    except NotAnnouncedError:
        return None
    return counter.counts["a write"] / _SYNCED, counter.counts["a flush"] / _SYNCED


def _write_and_flush(supplier: BackendSupplier, directory: Path, mark: Mark) -> None:
    with open_backend(supplier, directory) as backend:
        mark("an opening")
        for number in range(_SYNCED):
            backend.write({_key(number): bytes(_VALUE)})
            mark("a write")
            backend.flush()
            mark("a flush")

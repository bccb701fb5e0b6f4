"""``millpond bench stores``: every operation of every store kind, beside the raw engine under it, if one is known.

Typed store and engine do the same work on the same rows in turn, round after round, so that noise on the machine
affects both alike. A put is measured together with its commit; both sides commit ``BATCH`` puts at a time.
"""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.bench.engines.engine import RawEngine
from millpond.bench.engines.raw import raw_engine
from millpond.bench.measure import Timing, percentiles, rate, seconds, without_gc
from millpond.bench.report import resident_bytes
from millpond.stores.backend import Backend, entry_count, size_on_disk
from millpond.stores.migration import open_version
from millpond.stores.registry import supplier
from millpond.stores.serdes import BYTES, STRING
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.transaction import Transaction
from millpond.stores.typed.windows.windowed import Windowed

BATCH = 10_000
VALUE_SIZE = 100
SCAN_LENGTH = 100
HOUR = 3_600_000
LIMITS = {"history_retention": 24 * HOUR, "retention": 24 * HOUR, "window_size": HOUR}

Work = Callable[[list[Any]], object]
"""Does one operation for each of the given keys, and commits if it wrote. The engine's keys are bytes already."""


@dataclass(frozen=True)
class Operation:
    """One operation of a kind; ``raw`` names the engine's operation that it is compared with, if there is one."""

    name: str
    work: Work
    raw: str | None = None
    batched: bool = False


@dataclass
class Result:
    """One row of the table. ``overhead`` is the engine's throughput over the store's: 1.3 means 1.3 times the time."""

    backend: str
    kind: str
    operation: str
    keys: int
    store: Timing
    raw: Timing | None = None
    overhead: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.overhead = None if self.raw is None else self.raw.per_second / self.store.per_second


class Subject:
    """One store kind on one backend, filled with ``keys`` keys, and its raw engine, if one is known, with as many."""

    def __init__(self, backend: str, kind: StoreKind, keys: int, directory: Path, *, checksums: bool = False) -> None:
        self.backend_name = backend
        self.kind = kind
        self.keys = keys
        self._value = random.Random(0).randbytes(VALUE_SIZE)
        spec = _spec(kind, checksums)
        self._supplier, self._directory = supplier(backend), directory / "store"
        self.backend: Backend = open_version(self._supplier, self._directory, spec.format_version, spec.name)
        self.transaction = Transaction(self.backend)
        self.store: Any = spec.open(self.transaction)
        self.raw: RawEngine | None = raw_engine(backend, directory / "raw")
        self._fill()

    def _fill(self) -> None:
        for start in range(0, self.keys, BATCH):
            keys = list(map(key_of, range(start, min(start + BATCH, self.keys))))
            self._put_at(keys, HOUR * start // self.keys)
            if self.raw is not None:
                self.raw.put_many(self._rows(list(map(str.encode, keys))))
        self._time = HOUR

    def _put_at(self, keys: Sequence[str], time: int) -> None:
        put, value = self._putter(time), self._value
        for key in keys:
            put(key, value)
        self._commit()

    def _putter(self, time: int) -> Callable[[str, bytes], object]:
        """How this kind puts one value for one key."""
        store = self.store
        if self.kind is StoreKind.KEY_VALUE:
            put: Callable[[str, bytes], object] = store.put
            return put
        if self.kind in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED, StoreKind.WINDOW):
            return lambda key, value: store.put(key, value, time)
        if self.kind is StoreKind.TIMESTAMPED_WINDOW:
            return lambda key, value: store.put(key, value, time, time)
        if self.kind is StoreKind.SESSION:
            return lambda key, value: store.put(Windowed(key, time, time), value)
        return lambda key, value: store.put(Windowed(key, time, time), value, time)

    def _rows(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        return [(key, self._value) for key in keys]

    def _commit(self) -> None:
        self.store.flush()
        self.transaction.commit()

    def operations(self) -> list[Operation]:
        """What is measured for this kind."""
        shared = [Operation("put", self._put, "put")]
        if self.kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE):
            return [
                *shared,
                Operation("get", self._get, "get"),
                Operation("put_many", self._put_columns, "put_many", batched=True),
                Operation("get_many", self._get_many, "get_many", batched=True),
                Operation(f"scan of {SCAN_LENGTH}", self._scan, "scan"),
            ]
        if self.kind is StoreKind.VERSIONED:
            return [
                *shared,
                Operation("put, out of order", self._put_late, "put"),
                Operation("get latest", self._get, "get"),
                Operation("get as of", self._get_as_of, "get"),
                Operation("get many as of", self._get_many_as_of, "get_many", batched=True),
            ]
        if self.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
            return [*shared, Operation("fetch", self._fetch, "get"), Operation("fetch range", self._fetch_range)]
        return [*shared, Operation("find sessions", self._find_sessions)]

    def raw_work(self, name: str | None) -> Work | None:
        """The engine's own way of doing ``name``; None without an engine, or where it has nothing like it."""
        raw = self.raw
        if raw is None or name is None:
            return None
        return {
            "put": lambda keys: raw.put_each(self._rows(keys)),
            "put_many": lambda keys: raw.put_many(self._rows(sorted(keys))),
            "get": lambda keys: _each(raw.getter(), keys),
            "get_many": raw.get_many,
            "scan": lambda keys: [raw.scan(key, SCAN_LENGTH) for key in keys],
        }[name]

    def _put(self, keys: list[str]) -> None:
        self._time += 1
        self._put_at(keys, self._time)

    def _put_late(self, keys: list[str]) -> None:
        self._put_at(keys, self._time - 1)

    def _put_columns(self, keys: list[str]) -> None:
        values = [self._value] * len(keys)
        if self.kind is StoreKind.KEY_VALUE:
            self.store.put_many(keys, values)
        else:
            self.store.put_many(keys, values, [self._time] * len(keys))
        self._commit()

    def _get(self, keys: list[str]) -> None:
        _each(self.store.get, keys)

    def _get_many(self, keys: list[str]) -> None:
        self.store.get_many(keys)

    def _scan(self, keys: list[str]) -> None:
        for key in keys:
            rows = self.store.scan(key)
            for _ in zip(range(SCAN_LENGTH), rows, strict=False):
                pass

    def _get_as_of(self, keys: list[str]) -> None:
        get, time = self.store.get, self._time
        for key in keys:
            get(key, time)

    def _get_many_as_of(self, keys: list[str]) -> None:
        self.store.get_many_as_of(keys, [self._time] * len(keys))

    def _fetch(self, keys: list[str]) -> None:
        fetch, time = self.store.fetch, self._time
        for key in keys:
            fetch(key, time)

    def _fetch_range(self, keys: list[str]) -> None:
        fetch, time = self.store.fetch_range, self._time
        for key in keys:
            list(fetch(key, time - HOUR, time))

    def _find_sessions(self, keys: list[str]) -> None:
        find, time = self.store.find_sessions, self._time
        for key in keys:
            list(find(key, time - HOUR, time))

    def footprint(self) -> dict[str, int]:
        """Rows, bytes on disk and bytes of this process's memory."""
        return {
            "rows": entry_count(self.backend),
            "bytes_on_disk": size_on_disk(self.backend),
            "resident_bytes": resident_bytes(),
        }

    def close(self) -> None:
        self.transaction.close()
        self.backend.close()
        self._supplier.destroy(self._directory)
        if self.raw is not None:
            self.raw.close()


def key_of(number: int) -> str:
    """Key number ``number``: keys sort as their numbers do."""
    return f"key-{number:012d}"


def run(
    backends: Sequence[str], kinds: Sequence[StoreKind], keys: int, *, rounds: int = 5, directory: Path | None = None
) -> dict[str, Any]:
    """Measure each kind on each backend with ``keys`` keys.

    Args:
        backends: names or URLs of registered backends.
        kinds: which store kinds.
        keys: how many keys each store holds while it is measured.
        rounds: how often each operation is measured; the median counts.
        directory: where the files go, on the file system to measure; by default the temporary directory.
    """
    results: list[dict[str, Any]] = []
    footprints: list[dict[str, Any]] = []
    for backend in backends:
        for kind in kinds:
            with _subject(backend, kind, keys, directory) as subject:
                results.extend(asdict(_measure(subject, operation, rounds)) for operation in subject.operations())
                footprints.append({"backend": backend, "kind": kind.value, "keys": keys, **subject.footprint()})
    return {"value_bytes": VALUE_SIZE, "batch": BATCH, "rounds": rounds, "results": results, "footprint": footprints}


def growth(backends: Sequence[str], sizes: Sequence[int], *, directory: Path | None = None) -> list[dict[str, Any]]:
    """Timestamped and versioned gets and puts at each of ``sizes`` keys, to see what growth costs."""
    rows: list[dict[str, Any]] = []
    for backend in backends:
        for kind in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED):
            for keys in sizes:
                with _subject(backend, kind, keys, directory) as subject:
                    rows.extend(asdict(_measure(subject, op, 3)) for op in subject.operations())
    return rows


@contextmanager
def _subject(backend: str, kind: StoreKind, keys: int, directory: Path | None) -> Iterator[Subject]:
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory) as temporary:
        subject = Subject(backend, kind, keys, Path(temporary))
        try:
            yield subject
        finally:
            subject.close()


def _measure(subject: Subject, operation: Operation, rounds: int) -> Result:
    """Store and engine in turn, on the same random keys."""
    picker = random.Random(1)
    keys = [key_of(picker.randrange(subject.keys)) for _ in range(BATCH)]
    encoded = list(map(str.encode, keys))
    mine: list[float] = []
    theirs: list[float] = []
    raw = subject.raw_work(operation.raw)
    with without_gc():
        for _ in range(rounds + 1):
            mine.append(seconds(lambda: operation.work(keys)))
            if raw is not None:
                theirs.append(seconds(lambda: raw(encoded)))
        store = _timing(operation, operation.work, keys, mine[1:])
        engine = None if raw is None else _timing(operation, raw, encoded, theirs[1:])
    return Result(subject.backend_name, subject.kind.value, operation.name, subject.keys, store, engine)


def _timing(operation: Operation, work: Work, keys: list[Any], rounds: Sequence[float]) -> Timing:
    if operation.batched:
        return Timing(rate(len(keys), rounds))
    p50, p99 = percentiles(lambda i: work([keys[i]]), 2_000)
    return Timing(rate(len(keys), rounds), p50, p99)


def _each(function: Callable[[Any], Any], keys: Sequence[Any]) -> None:
    for key in keys:
        function(key)


def _spec(kind: StoreKind, checksums: bool) -> StoreSpec:
    limits: dict[str, Any] = {limit: LIMITS[limit] for limit in kind.traits.needed}
    return StoreSpec("bench", kind, STRING, BYTES, checksums=checksums, **limits)

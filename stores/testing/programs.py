"""The programs of the kit's child processes.

Rule of this module: it imports only what a child needs, neither pytest nor hypothesis.
"""

import json
import os
import random
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from millpond.errors import BackendInUseError, StoreError
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.child import report, wait_for_parent
from millpond.stores.testing.watching.histories import HISTORIES, show
from millpond.stores.testing.watching.images import Image
from millpond.stores.testing.watching.system_calls import NotAnnouncedError

_ROWS = 40
_ROWS_TO_READ: Final = 1_000
_GARBLED: Final = 2**14
"""The bytes of a file that is too small to be garbled."""


def batch(number: int, payload: int) -> dict[bytes, bytes | None]:
    """Return the ``number``-th write of ``write_for_ever``: it touches every row, deletes some, and logs itself."""
    changes: dict[bytes, bytes | None] = {b"log%08d" % number: b""}
    for row in range(_ROWS):
        deleted = (row + number) % 5 == 0
        changes[_row_key(row)] = None if deleted else b"%d:" % number + bytes(payload)
    return changes


def _row_key(row: int) -> bytes:
    """Return the key of a row; every fourth is longer than some engines take."""
    return b"row%03d" % row if row % 4 else b"row" + bytes(600) + b"%03d" % row


def content_after(number: int, payload: int) -> dict[bytes, bytes]:
    """Return the content of a backend after the first ``number`` writes, with nothing of the next."""
    content = {b"log%08d" % earlier: b"" for earlier in range(1, number + 1)}
    if number:
        content |= {key: value for key, value in batch(number, payload).items() if value is not None}
    return content


def write_for_ever(supplier: BackendSupplier, directory: Path, payload: int, flush_every: int) -> None:
    """Write batch after batch until killed; report the number of each that is written or flushed."""
    backend = open_backend(supplier, directory)
    done = sum(1 for _ in backend.scan(b"log", b"lop"))
    for number in count(done + 1):
        backend.write(batch(number, payload))
        report(number)
        if number % flush_every == 0:
            backend.flush()
            report(f"flushed {number}")


def write_until_cut(supplier: BackendSupplier, directory: Path, payload: int, limit: int) -> None:
    """Write batch after batch until the system kills this process for writing past the limit on a file's size."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    backend = open_backend(supplier, directory)
    report(0)
    for number in range(1, limit // payload + 2):
        backend.write(batch(number, payload))
        report(number)


def hold(supplier: BackendSupplier, directory: Path) -> None:
    """Open, write, and keep open until the parent has looked; then write again and tell what the parent wrote."""
    with open_backend(supplier, directory) as backend:
        backend.write({b"child": b"1"})
        backend.flush()
        report("open")
        wait_for_parent()
        backend.write({b"child": b"2"})
        report(backend.get(b"parent"))
        wait_for_parent()


def try_to_open(supplier: BackendSupplier, directory: Path) -> None:
    """Open and close; report the errors that it raises."""
    report(_kind_of_error(lambda: open_backend(supplier, directory).close()))


def write_beside(supplier: BackendSupplier, directory: Path, name: bytes, writes: int) -> None:
    """Write keys of its own beside another process that does the same, and check that they stay."""
    with open_backend(supplier, directory) as backend:
        report("open")
        wait_for_parent()
        for number in range(writes):
            backend.write({b"%s%06d.%d" % (name, number, part): bytes(500) for part in range(20)})
            assert backend.get(b"%s%06d.0" % (name, number)) == bytes(500)
        assert sum(1 for _ in backend.scan(name, name + b"\xff")) == writes * 20
    report("done")


def fill_up(supplier: BackendSupplier, directory: Path, limit: int) -> None:
    """Write until the system refuses, as it does when a disk is full; report the error."""
    backend = open_backend(supplier, directory)
    backend.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    kind = ""
    for number in range(limit // 1_000):
        kind = kind or _kind_of_error(lambda: backend.write(pair(number)))  # noqa: B023 (called at once)
    report(kind)


def write_on_after_a_full_disk(supplier: BackendSupplier, directory: Path, limit: int) -> None:
    """Write until the system refuses, then make room and write on; report which keys are shown.

    It reports three times: by ``scan`` after the write that fails, then by ``get``, and by ``scan`` in the end.
    """
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    backend = open_backend(supplier, directory)
    backend.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    failed = limit // 1_000
    for number in range(failed):
        if _kind_of_error(lambda: backend.write(pair(number))):  # noqa: B023 (called at once)
            failed = number
            break
    report_keys(key for key, _ in backend.scan())
    report_keys(sorted(key for number in range(failed + 1) for key in pair(number) if backend.get(key) is not None))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for number in range(failed + 1, failed + 4):
        # An engine may want to be opened again before it writes on, and say so at its close, too.
        _kind_of_error(lambda: backend.write(pair(number)))  # noqa: B023 (called at once)
    report_keys(key for key, _ in backend.scan())
    _kind_of_error(backend.close)


def report_keys(keys: Iterable[bytes]) -> None:
    """Report keys of ``pair`` to the parent."""
    report(b" ".join(keys).decode())


def pair(number: int) -> dict[bytes, bytes | None]:
    """Return the ``number``-th write of ``fill_up``: two entries that must both be there or neither."""
    return {b"left%06d" % number: bytes(2_000), b"right%06d" % number: bytes(2_000)}


def _kind_of_error(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return " ".join(cls.__name__ for cls in type(error).__mro__)
    return ""


def show_histories(supplier: BackendSupplier, place: Path) -> None:
    """Live through histories and report what could be left of each, and when; in the end, that this is all."""
    for name in HISTORIES:
        try:
            show(supplier, name, place / name, partial(_report_image, name))
        except NotAnnouncedError as refusal:
            report(json.dumps({"unseen": str(refusal)}))
            return
    report(json.dumps({"whole": True}))


def _report_image(history: str, image: Image) -> None:
    report(json.dumps({"history": history, **asdict(image)}))


def fork_and_open(supplier: BackendSupplier, directory: Path) -> None:
    """Open, and let a fork of this process open the same; report what the fork met, and what it left."""
    with open_backend(supplier, directory) as backend:
        backend.write({b"parent": b"1"})
        if (child := os.fork()) == 0:
            try:
                _open_in_a_fork(supplier, directory)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        backend.write({b"parent": b"2"})
        backend.flush()
        report(backend.get(b"fork"))
        wait_for_parent()


def _open_in_a_fork(supplier: BackendSupplier, directory: Path) -> None:
    try:
        with open_backend(supplier, directory) as backend:
            seen = backend.get(b"parent")
            backend.write({b"fork": b"1"})
            backend.flush()
    except BackendInUseError:
        report("refused")
    except Exception as error:
        report(f"{type(error).__name__}: {error}")
    else:
        report(f"shared {seen!r}")


def rows_to_read() -> dict[bytes, bytes]:
    """Return rows that no small cache holds."""
    chance = random.Random(0)
    return {b"%06d" % number: chance.randbytes(2_000 + number % 1_000) for number in range(_ROWS_TO_READ)}


def read_while_files_fail(supplier: BackendSupplier, directory: Path, fail: Callable[[Path], None]) -> None:
    """Open a directory with ``rows_to_read``, make its files fail, and report what was read wrong or raised wrongly."""
    rows = rows_to_read()
    some = list(rows)[:: len(rows) // 20]
    with suppress(StoreError):
        backend = open_backend(supplier, directory)
        up, down = backend.scan(), backend.scan(reverse=True)
        begun = [next(up), next(down)]
        fail(directory)
        reads: dict[str, tuple[Callable[[], object], object]] = {
            **{f"get({key!r})": (partial(backend.get, key), rows[key]) for key in some},
            "get_many": (lambda: backend.get_many(some), [rows[key] for key in some]),
            "scan": (lambda: list(backend.scan()), list(rows.items())),
            "scan(reverse=True)": (lambda: list(backend.scan(reverse=True)), list(rows.items())[::-1]),
            "last": (lambda: backend.last(some[3], some[9]), _before(rows, some[9])),
            "a scan that was open": (lambda: begun[:1] + list(up), list(rows.items())),
            "a reverse scan that was open": (lambda: begun[1:] + list(down), list(rows.items())[::-1]),
        }
        for name, (read, right) in reads.items():
            report(f"{name} {_verdict(read, right)}")
        report(f"close {_verdict(backend.close, None)}")
    report("done")


def _before(rows: dict[bytes, bytes], stop: bytes) -> tuple[bytes, bytes]:
    key = max(key for key in rows if key < stop)
    return key, rows[key]


def _verdict(call: Callable[[], object], right: object) -> str:
    """Return the verdict on a call: "right", "wrong", "refused" for a ``StoreError``, or the other error raised."""
    try:
        return "right" if call() == right else "wrong"
    except StoreError:
        return "refused"
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"


def take_descriptors_away(directory: Path) -> None:
    """Make all calls of this process on open files below ``directory`` fail, as if a disk were gone."""
    for descriptor in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the listing's own descriptor is closed by now
            if descriptor.readlink().is_relative_to(directory.resolve()):
                os.dup2(os.open("/dev/full", os.O_WRONLY), int(descriptor.name))


def garble(directory: Path) -> None:
    """Change every byte of the files below ``directory`` but those of their first and last eighth."""
    for path in directory.glob("**/*"):
        if path.is_file() and (size := path.stat().st_size) > _GARBLED:
            with path.open("r+b") as file:
                file.seek(size // 8)
                file.write(b"\xa5" * (size * 3 // 4))

"""What the kit's child processes do.

Rule of this module: it imports what a child needs and no more, neither pytest nor hypothesis.
"""

import resource
import signal
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.child import report, wait_for_parent

_ROWS = 40


def batch(number: int, payload: int) -> dict[bytes, bytes | None]:
    """The ``number``-th write of ``write_for_ever``: it touches every row, deletes some, and leaves a log entry."""
    changes: dict[bytes, bytes | None] = {b"log%08d" % number: b""}
    for row in range(_ROWS):
        deleted = (row + number) % 5 == 0
        changes[_row_key(row)] = None if deleted else b"%d:" % number + bytes(payload)
    return changes


def _row_key(row: int) -> bytes:
    """Every fourth key is longer than some engines take."""
    return b"row%03d" % row if row % 4 else b"row" + bytes(600) + b"%03d" % row


def content_after(number: int, payload: int) -> dict[bytes, bytes]:
    """What a backend holds after the first ``number`` writes and nothing of the next."""
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

    That is three times: after the write that fails by ``scan``, the same by ``get``, and by ``scan`` in the end.
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
    """Tell the parent keys of ``pair``."""
    report(b" ".join(keys).decode())


def pair(number: int) -> dict[bytes, bytes | None]:
    """The ``number``-th write of ``fill_up``: two entries that must both be there or neither."""
    return {b"left%06d" % number: bytes(2_000), b"right%06d" % number: bytes(2_000)}


def _kind_of_error(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return " ".join(cls.__name__ for cls in type(error).__mro__)
    return ""

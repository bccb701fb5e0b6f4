"""Histories of a backend in which a kill or a loss of power could come at any moment, and its content then."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from millpond.stores.backend.contract import Backend, BackendSupplier, Changes
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.watching.disk import Disk
from millpond.stores.testing.watching.images import Image, ImageTaker, Moment
from millpond.stores.testing.watching.watched_work import Mark, watch

Content: TypeAlias = dict[bytes, bytes]

_ROWS: Final = 3_000
"""The changes of a large write."""
_LARGE: Final = 300_000
"""The bytes of a large value."""


@dataclass(frozen=True)
class Step:
    """A change of the content, or ``FLUSH``, or ``REOPEN``; a step without a name is not looked at."""

    what: str
    change: Callable[[Backend], object] | None = None
    result: Callable[[Content], Content] | None = None
    """A function that makes the same change to a content in plain Python."""


FLUSH: Final = Step("a flush")
REOPEN: Final = Step("a close and an opening")


def written() -> list[Step]:
    """Return small and large writes, and deletions, with flushes and reopens between them."""
    chance = random.Random(0)

    def rows(size: int) -> dict[bytes, bytes | None]:
        return {b"row%06d" % row: chance.randbytes(size) for row in range(_ROWS)}

    again = [_write("", rows(100)) for _ in range(5)]
    return [
        *(_write("a small write", {b"a": b"1", b"b": b"1"}), FLUSH),
        *(_write("a small write", {b"a": b"2", b"b": None, b"c": b"2"}), FLUSH),
        _write("one write of a large value", {b"a": b"3", b"large": chance.randbytes(_LARGE), b"z": b"3"}),
        *(_write("one write of many changes", rows(100) | {b"a": b"4"}), FLUSH),
        _write("one write of many changes and deletions", rows(50) | dict.fromkeys(list(rows(0))[::3])),
        *(*again, _write("one write of many changes over others", rows(100)), FLUSH, REOPEN),
        *(_write("a small write", {b"a": b"5", b"large": None}), FLUSH),
        *(_delete_range(b"row000500", b"row002500"), FLUSH),
        *(_write("a small write", {b"a": b"6"}), REOPEN, FLUSH, REOPEN),
    ]


def loaded() -> list[Step]:
    """Return a load, which need not be atomic, and then a flush."""
    rows = {b"row%06d" % row: b"%d" % row * 20 for row in range(_ROWS)}
    return [
        Step("a load", lambda backend: backend.load(iter(rows.items())), lambda content: content | rows),
        *(FLUSH, REOPEN),
    ]


HISTORIES: Final[Mapping[str, Callable[[], list[Step]]]] = {"written": written, "loaded": loaded}


def contents(steps: Sequence[Step]) -> list[Content]:
    """Return the contents of a backend after none, one, two ... of the changes among ``steps``."""
    found: list[Content] = [{}]
    for step in steps:
        if step.result is not None:
            found.append(step.result(found[-1]))
    return found


def show(supplier: BackendSupplier, name: str, place: Path, tell: Callable[[Image], None]) -> None:
    """Live through one of ``HISTORIES`` on a new directory below ``place``, and tell what could be left of it when.

    Raises:
        NotAnnouncedError: the system does not show what a process does.
    """
    root = place / "store"
    with Disk(root) as disk:
        work = partial(_live, supplier, root, HISTORIES[name]())
        watch(work, ImageTaker(disk, root, place / "images", tell))


def _live(supplier: BackendSupplier, directory: Path, steps: Sequence[Step], mark: Mark) -> None:
    backend = open_backend(supplier, directory)
    for step in steps:
        if step.change is not None:
            mark(f"{Moment.BEGUN} {step.what}")
            step.change(backend)
            mark(f"{Moment.DONE} {step.what}")
        elif step is FLUSH:
            backend.flush()
            mark(f"{Moment.FLUSHED} {step.what}")
        else:
            backend.close()
            mark(f"{Moment.CLOSED} a close")
            backend = open_backend(supplier, directory)
    backend.close()


def _write(what: str, changes: Changes) -> Step:
    put = {key: value for key, value in changes.items() if value is not None}
    return Step(
        what,
        lambda backend: backend.write(changes),
        lambda content: {key: value for key, value in (content | put).items() if changes.get(key, b"") is not None},
    )


def _delete_range(start: bytes, stop: bytes) -> Step:
    return Step(
        "one deletion of a range",
        lambda backend: backend.delete_range(start, stop),
        lambda content: {key: value for key, value in content.items() if not start <= key < stop},
    )

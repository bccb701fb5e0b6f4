"""Layouts: the meaning of a store's rows beyond that of its kind, each with a name and a number.

Rule of this module: a layout is defined where its bytes are coded, and this module knows none of them. A store with a
layout keeps a row with it, and every opening of the store has to name the same layout. The row::

    0x00 "layout" -> number (4 bytes, big-endian), name (UTF-8)

It is written with the first change that is committed. As metadata it goes into deltas and snapshots, so that durable
state is checked as well as a local copy. A number never changes its meaning. An unknown one is refused before anything
is read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from millpond.errors import CorruptStoreError, FormatError, InvalidArgumentError
from millpond.stores.backend.contract import Backend
from millpond.stores.encoding.keys import COMMIT_ROW, LAYOUT_ROW

_NUMBER: Final = Struct(">I")


@dataclass(frozen=True)
class Layout:
    r"""The layout of a store's rows.

    Attributes:
        name: its name, which never changes.
        version: its number, from 1 on.
        set_back: ``set_back(store, done)`` sets back the times in the rows as ``WritableStore.set_back`` does, and
            notes it in ``done``, a ``SetBack``; None if there are none. It is no part of the layout's identity.
        key_serde: the name of the serde of the records' keys in the rows of a store whose own keys are bytes; None if
            the store's own serde writes them, or they are bytes by which records find their partition. It is no part of
            the layout's identity, either.

    Raises:
        ConfigurationError: the name is empty, or the version is no such number.

    >>> Layout("unpaired-records", 1).to_bytes()
    b'\x00\x00\x00\x01unpaired-records'
    """

    name: str
    version: int
    set_back: Callable[[Any, Any], None] | None = field(default=None, compare=False, repr=False)
    key_serde: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name or not 0 < self.version < 2**32:
            raise InvalidArgumentError(f"{self!r} is no layout: give it a name, and a version from 1 on")

    def to_bytes(self) -> bytes:
        """Return the value of the row ``LAYOUT_ROW``."""
        return _NUMBER.pack(self.version) + self.name.encode()


def check_layout(store: str, layout: Layout | None, backend: Backend) -> None:
    """Refuse rows of another layout than ``layout``. A store that is still empty may get any.

    Args:
        store: the name of the store for errors.
        layout: the layout that the rows should have; None for the kind's alone.
        backend: the rows as they were committed.

    Raises:
        FormatError: the rows are of another layout, or of a number that this release does not know.
        CorruptStoreError: the row that tells the layout is damaged.
    """
    kept = backend.get(LAYOUT_ROW)
    if kept is None:
        if layout is not None and _has_rows(backend):
            raise FormatError(
                f"store {store!r} holds rows without a layout's number (version 0), but this release reads "
                f"{_told(layout.name, layout.version)}; run the release that wrote them, and delete nothing"
            )
    elif len(kept) < _NUMBER.size:
        raise CorruptStoreError(f"store {store!r} has a damaged layout row {kept!r}")
    elif layout is None or kept != layout.to_bytes():
        raise FormatError(_refusal(store, layout, kept))


def _refusal(store: str, layout: Layout | None, kept: bytes) -> str:
    found = _told(kept[_NUMBER.size :].decode(errors="replace"), _NUMBER.unpack_from(kept)[0])
    if layout is None:
        return f"store {store!r} holds {found}, but was opened without a layout; take its spec from the topology"
    return (
        f"store {store!r} holds {found}, but this release reads {_told(layout.name, layout.version)}; "
        "run the release that wrote it or a newer one, and delete nothing"
    )


def _told(name: str, version: int) -> str:
    return f"the layout {name!r} in version {version}"


def _has_rows(backend: Backend) -> bool:
    """Return whether there is more than the position of a local copy."""
    return any(row != COMMIT_ROW for row, _ in backend.scan())

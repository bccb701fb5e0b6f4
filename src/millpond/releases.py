"""Releases: this one, and the oldest that reads each number of things that outlive a process.

Rule of this module: it is the one place that names releases, including the package's own. A new number of a format gets
a line in ``OLDEST_READERS``, and no line is ever changed. Written things name their writer and their oldest reader by
this table; if an older release must read them, they have the highest number that the table allows.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple, Self

from millpond import __version__
from millpond.errors import FormatError, UpgradeFromError

RELEASE: Final = __version__
"""This release."""

_RELEASE: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:rc\d{1,9})?")


class Release(NamedTuple):
    """A release of Millpond; releases compare in the order of their appearance. A candidate counts as its release."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the release of a text.

        Raises:
            ValueError: it is no release.

        >>> str(Release.of("0.1")), str(Release.of("1.0.0rc1"))
        ('0.1.0', '1.0.0')
        """
        found = _RELEASE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no release")
        return cls(*(int(part or 0) for part in found.groups()))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


THIS_RELEASE: Final = Release.of(RELEASE)
_0_1: Final = Release(0, 1)
_0_2: Final = Release(0, 2)
_1_0: Final = Release(1, 0)


class Numbered(StrEnum):
    """A thing that outlives a process, or travels between processes, and has the number of its version."""

    DIRECTORY = "directory of a store"
    LAYOUT = "layout"
    TERMS = "terms"
    KEPT_TIME = "kept time"
    SUBSCRIPTION = "subscription"
    RESPONSE = "response"
    CHANGE = "change"
    DURABLE_FILE = "durable file"
    MANIFEST = "manifest"
    EVOLUTION_RECORD = "evolution record"
    SHAPE = "shape"
    STATE_VALUE = "value in Spark's state"
    SCHEMAS = "schemas of packed rows"


OLDEST_READERS: Final[Mapping[Numbered, Mapping[int, Release]]] = {
    Numbered.DIRECTORY: {1: _0_1, 2: _0_1, 3: _0_2, 4: _0_2, 5: _0_2, 6: _0_2},
    Numbered.LAYOUT: {1: _0_2},
    Numbered.TERMS: {1: _0_2},
    Numbered.KEPT_TIME: {1: _0_2},
    Numbered.SUBSCRIPTION: {0: _0_1, 1: _0_1},
    Numbered.RESPONSE: {1: _0_2},
    Numbered.CHANGE: {0: _0_1, 1: _0_1, 2: _0_1, 3: _0_1, 4: _0_1, 5: _0_1},
    Numbered.DURABLE_FILE: {1: _0_1, 2: _0_2, 3: _1_0},
    Numbered.MANIFEST: {1: _0_1, 2: _0_2, 3: _0_2, 4: _1_0},
    Numbered.EVOLUTION_RECORD: {1: _0_2, 2: _0_2, 3: _0_2},
    Numbered.SHAPE: {1: _0_2},
    Numbered.STATE_VALUE: {1: _0_1, 2: _0_2},
    Numbered.SCHEMAS: {1: _0_2},
}
"""The oldest release that reads each number."""


def oldest_reader(what: Numbered, number: int) -> Release:
    """Return the oldest release that reads ``what`` in that version."""
    return OLDEST_READERS[what][number]


def newest_number(what: Numbered, reader: Release) -> int | None:
    """Return the highest version of ``what`` that ``reader`` reads; None if it knows none.

    >>> newest_number(Numbered.DURABLE_FILE, Release(0, 1))
    1
    """
    return max((number for number, oldest in OLDEST_READERS[what].items() if oldest <= reader), default=None)


def older_release(text: object) -> Release:
    """Return the release that a user wants to upgrade from, or to go back to.

    Raises:
        ConfigurationError: it is no release that this one can follow.
    """
    try:
        release = Release.of(text) if isinstance(text, str) else None
    except ValueError:
        release = None
    if release is None:
        raise UpgradeFromError(f"upgrade_from is {text!r}; give a release of Millpond such as '0.1.0'")
    if not _0_1 <= release <= THIS_RELEASE:
        raise UpgradeFromError(
            f"upgrade_from is {text!r}; this is release {RELEASE}, so give one from {_0_1} to {RELEASE}"
        )
    return release


def check_reader(where: str, oldest: str, writer: str) -> None:
    """Refuse a thing that this release cannot read by its own account.

    Args:
        where: its name for errors.
        oldest: the oldest release that reads it.
        writer: the release that wrote it.

    Raises:
        FormatError: this release is older than that.
        ValueError: one of them is no release.
    """
    if Release.of(oldest) > THIS_RELEASE:
        raise FormatError(
            f"{where} was written by release {Release.of(writer)} of Millpond for release {Release.of(oldest)} or a "
            f"newer one, but this is release {RELEASE}; run release {Release.of(oldest)} or a newer one. Nothing has "
            "been changed"
        )

"""Format versions: the form of the rows in a store's directory, by the directory's name (KIP-258).

::

    <store>       version 1, PLAIN        values as the user's serde wrote them
    <store>-v2    version 2, TIMESTAMPED  a timestamp of eight bytes before each value
    <store>-v3    version 3, LATEST_APART a versioned store with the latest version of each key in a row of its own
    <store>-v4    version 4, CHECKSUMMED               version 1 with a checksum of eight bytes in each row
    <store>-v5    version 5, CHECKSUMMED_TIMESTAMPED   version 2 with checksums
    <store>-v6    version 6, CHECKSUMMED_LATEST_APART  version 3 with checksums

The name alone tells the version, whatever the kind of the store, so no two kinds give a number two meanings. Numbers
never change theirs. A number that this release does not know is refused: a directory of a later release is neither read
nor touched.
"""

import re
from enum import IntEnum
from pathlib import Path
from typing import Final

from millpond.errors import InvalidNameError

_PART: Final = re.compile(r"(?!\.)[\w.-]+")
"""The characters of a file's name within a path or any text."""

_SHORT: Final = 40
"""The greatest length of a name that a message advises."""

_VERSION_SUFFIX = re.compile(r".+-v\d+")


class FormatVersion(IntEnum):
    """The format of the rows of a store."""

    PLAIN = 1
    """Values as the user's serde wrote them."""

    TIMESTAMPED = 2
    """A timestamp of eight bytes, big-endian, before each value, as KIP-258 lays down."""

    LATEST_APART = 3
    """The latest version of each key in a row of its own (``millpond.stores.typed.versions.version_rows``)."""

    CHECKSUMMED = 4
    """``PLAIN`` with a checksum over key and value in each row (``millpond.stores.backend.checksums``)."""

    CHECKSUMMED_TIMESTAMPED = 5
    """``TIMESTAMPED`` with checksums."""

    CHECKSUMMED_LATEST_APART = 6
    """``LATEST_APART`` with checksums."""

    @property
    def content(self) -> "FormatVersion":
        """The version of the rows within the checksums; the version itself if it has none.

        >>> FormatVersion.CHECKSUMMED_TIMESTAMPED.content.name
        'TIMESTAMPED'
        """
        return _CONTENT.get(self, self)

    @property
    def checksums(self) -> bool:
        """True if each row has a checksum."""
        return self in _CONTENT

    def with_checksums(self) -> "FormatVersion":
        """Return the version with the same content and checksums."""
        return next(version for version, content in _CONTENT.items() if content is self.content)

    def directory_name(self, store: str) -> str:
        """Return the name of the directory of ``store`` in this version."""
        return store if self is FormatVersion.PLAIN else f"{store}-v{int(self)}"


_CONTENT: Final = {
    FormatVersion.CHECKSUMMED: FormatVersion.PLAIN,
    FormatVersion.CHECKSUMMED_TIMESTAMPED: FormatVersion.TIMESTAMPED,
    FormatVersion.CHECKSUMMED_LATEST_APART: FormatVersion.LATEST_APART,
}


def check_store_name(name: str) -> None:
    """Refuse a name that a store cannot have, because a directory and a column are named after it.

    Raises:
        ConfigurationError: the name is empty, not a plain file name, or looks like one with a format version.
    """
    if not isinstance(name, str) or not name or name != name.strip():
        raise InvalidNameError(
            f"store name {name!r} is empty, or begins or ends with a space; give a name such as 'counts'"
        )
    if any(part in name for part in ("/", "\\", "\0")) or not name.isprintable():
        raise InvalidNameError(
            f"store name {name!r} must be a plain file name, without / or \\ or control characters; give one such as "
            f"{plain_part(name, 'counts')!r}"
        )
    if name.startswith("."):
        raise InvalidNameError(
            f"store name {name!r} begins with a dot, as directories do while they are being built; choose another"
        )
    if _VERSION_SUFFIX.fullmatch(name):
        raise InvalidNameError(
            f"store name {name!r} ends like the directory of a store in another format, in '-v' and a number; write "
            f"{_without_version(name)!r}"
        )


def plain_part(name: object, other: str) -> str:
    """Return the part of a name that can be a plain file name, such as ``x-y`` of ``../x/y``; ``other`` if none can.

    >>> plain_part("../x/y", "orders"), plain_part("..", "orders")
    ('x-y', 'orders')
    """
    return "-".join(_PART.findall(name))[:_SHORT] or other if isinstance(name, str) else other


def _without_version(name: str) -> str:
    """Return a similar name that does not look like one with a format version."""
    base, _, number = name.rpartition("-v")
    return f"{base}_v{number}"


def unknown_versions(parent: Path, store: str) -> list[Path]:
    """Return the directories of ``store`` below ``parent`` whose format version this release does not know."""
    known = {version.directory_name(store) for version in FormatVersion}
    pattern = re.compile(re.escape(store) + r"-v\d+")
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if pattern.fullmatch(path.name) and path.name not in known)

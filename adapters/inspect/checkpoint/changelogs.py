"""One changelog of Spark's state: what one micro-batch has changed in the state of one partition.

Rule of this module: it reads the form that operators with column families write (versions 2 and 4), from its first byte
to its last, and changes nothing. Compressed as a whole (``millpond.adapters.inspect.checkpoint.compression``), it is::

    length (2 bytes), "v2"
    length (2 bytes), "v4", length (2 bytes), lineage as JSON      where checkpoints have unique ids
    01, key, value; 10, key, -1 (4 bytes)                          put and delete, in any number
    00                                                             the end

with keys and values after their lengths (4 bytes); all lengths are big-endian.
"""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final, NamedTuple

from millpond.adapters.inspect.checkpoint.compression import decompressed
from millpond.errors import SparkStateError
from millpond.stores.durability.storage.checked_text import read_count

_END, _PUT, _DELETE, _MERGE = 0x00, 0x01, 0x10, 0x11
_NO_VALUE: Final = -1


class StateVersion(NamedTuple):
    """A version of one partition's state: its number, and the id that tells it from others of that number, if any."""

    number: int
    unique: str | None = None


class Changelog(NamedTuple):
    """The content of a changelog.

    Attributes:
        lineage: the versions from the last snapshot before it on; empty where checkpoints have no unique ids.
        changes: key and value, None where the key was deleted, in their order.
    """

    lineage: tuple[StateVersion, ...]
    changes: tuple[tuple[bytes, bytes | None], ...]

    @classmethod
    def of(cls, data: bytes) -> "Changelog":
        """Return the changelog whose file holds ``data``.

        Raises:
            FormatError: it is of another version, or compressed with something unknown, or says what is unknown here.
            ValueError: it is damaged.
        """
        stream = _Stream(decompressed(data))
        version = stream.text()
        if version not in ("v2", "v4"):
            raise SparkStateError(f"it is of version {version[:10]!r}, and only v2 and v4 are known here")
        lineage = _lineage(stream.text()) if version == "v4" else ()
        return cls(lineage, tuple(stream.changes()))


class _Stream(BytesIO):
    """A stream that Java's DataOutputStream has written."""

    def exactly(self, size: int) -> bytes:
        data = self.read(size) if size >= 0 else b""
        if len(data) != size:
            raise ValueError("it ends before it should")
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.exactly(size), signed=True)

    def text(self) -> str:
        return self.exactly(int.from_bytes(self.exactly(2))).decode()

    def block(self) -> bytes:
        return self.exactly(self.number(4))

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        while (kind := self.exactly(1)[0]) != _END:
            if kind == _MERGE:
                raise SparkStateError("it appends to a value, which no state of Millpond does")
            if kind not in (_PUT, _DELETE):
                raise ValueError(f"it has a record of kind {kind}")
            key = self.block()
            if kind == _PUT:
                yield key, self.block()
            elif self.number(4) != _NO_VALUE:
                raise ValueError("it has a value for a key that was deleted")
            else:
                yield key, None
        if self.read(1):
            raise ValueError("it goes on after its end")


def _lineage(text: str) -> tuple[StateVersion, ...]:
    try:
        found: Any = json.loads(text)
        return tuple(StateVersion(read_count(one["version"]), str(one["checkpointUniqueId"])) for one in found)
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"its lineage {text[:80]!r} cannot be read") from error

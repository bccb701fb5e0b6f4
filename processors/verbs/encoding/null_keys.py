"""Null keys: the meaning of a null in a key for a verb, and the bytes of such a key where it equals no other.

A tag behind a packed key keeps it from being equal to a key without one::

    key, ff, topic                 equal to no key of another topic
    key, ff, topic, time (8)       equal to no other key

Rule of this module: tags are written and taken away here and nowhere else.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millpond.errors import SerdeError
from millpond.stores.encoding.rows.tuple_keys import KeyCodec, null_rows

_TIME_SIZE: Final = 8


class NullKeys(Enum):
    """The treatment of a row with a null in its key."""

    DROPPED = "dropped"
    """It is left out, because it could only join, and null equals nothing."""

    APART = "apart"
    """It has a key that no other row has, so it meets nothing but is kept."""

    OWN_SIDE = "own side"
    """It is a row of a table, whose changes it has, and meets no row of the other side."""

    REFUSED = "refused"
    """It is unusable: nothing tells it from a row of the other side."""

    EQUAL = "equal"
    """Null is a key like any other: the rows that have it are a group."""

    def pack(self, codec: KeyCodec, columns: pa.Table, topic: str, times: Any) -> Any:
        """Return the packed keys of rows, a binary column.

        Args:
            codec: packs keys.
            columns: the columns of the keys.
            topic: the topic of the rows.
            times: the times of the rows, in microseconds.
        """
        packed = codec.pack_columns(columns)
        nulls = np.flatnonzero(null_rows(columns)).tolist()
        if self not in (NullKeys.APART, NullKeys.OWN_SIDE) or not nulls:
            return packed
        keys = packed.to_pylist()
        for row in nulls:
            # With its time it is spread over the tasks, too.
            time = times[row].as_py().to_bytes(_TIME_SIZE, signed=True) if self is NullKeys.APART else b""
            keys[row] += _tag(topic) + time
        return pa.array(keys, pa.binary())

    def unpack(self, codec: KeyCodec, keys: Any, topics: Iterable[str]) -> pa.Table:
        """Return the columns of keys that ``pack`` has made.

        Args:
            codec: reads keys.
            keys: the packed keys, a list or a binary column.
            topics: the topics of rows that they may belong to.

        Raises:
            SerdeError: bytes that it has not made.
        """
        try:
            return codec.unpack(keys)
        except SerdeError:
            if self not in (NullKeys.APART, NullKeys.OWN_SIDE):
                raise
            size = _TIME_SIZE if self is NullKeys.APART else 0
            tags = [_tag(topic) for topic in topics]
            each: Any = keys.to_pylist() if isinstance(keys, pa.Array) else keys
            return codec.unpack([_without_tag(codec, key, tags, size) for key in each])


def _tag(topic: str) -> bytes:
    return b"\xff" + topic.encode()


def _without_tag(codec: KeyCodec, key: bytes, tags: Iterable[bytes], size: int) -> bytes:
    """Return a key without its tag and the ``size`` bytes behind that, if it has one."""
    for tag in tags:
        start = len(key) - size - len(tag)
        if start > 0 and key.startswith(tag, start) and not _is_key(codec, key):
            return key[:start]
    return key


def _is_key(codec: KeyCodec, key: bytes) -> bool:
    """Return whether the bytes are a key without a tag, which may end like one."""
    try:
        codec.unpack([key])
    except SerdeError:
        return False
    return True

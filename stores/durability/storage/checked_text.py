"""JSON that proves itself: its last entry is the CRC-32 of the text without that entry.

Rule of this module: it does not know what the JSON means. Its reader turns a ``ValueError`` into an error of its own
with advice.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

MOST: Final = 2**63 - 1
"""The greatest possible count: the greatest integer of Arrow."""

MOST_PARTITIONS: Final = 2**31 - 1
"""The greatest possible number of partitions, and of a partition, by Spark's and Kafka's integers."""

_CHECKED: Final = re.compile(r"(.*),\"crc32\":(\d{1,10})\}", re.DOTALL)


def checked_text(content: Mapping[str, Any]) -> str:
    """Return ``content`` as JSON without spaces, with its checksum as the last entry.

    >>> checked_text({"millpond": 1})
    '{"millpond":1,"crc32":267010879}'
    """
    text = json.dumps(content, separators=(",", ":"))
    return f'{text[:-1]},"crc32":{crc32(text.encode())}}}'


def check_text(text: str) -> None:
    """Refuse a text that ``checked_text`` did not write.

    Raises:
        ValueError: the text fails its checksum, or has none.
    """
    match = _CHECKED.fullmatch(text)
    if match is None or crc32(f"{match[1]}}}".encode()) != int(match[2]):
        raise ValueError("it fails its checksum")


def read_text(value: Any) -> str:
    """Return a value of the JSON that has to be text.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def read_count(value: Any, most: int = MOST) -> int:
    """Return a value of the JSON that has to be a count.

    Args:
        value: the value.
        most: the greatest possible count.

    Raises:
        TypeError: it is no count.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise TypeError(f"{value!r} is no count from 0 to {most}")
    return value


def read_flag(value: Any) -> bool:
    """Return a value of the JSON that has to be true or false.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value

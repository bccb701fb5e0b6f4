"""The rows of a change feed: upserts, deletes, and values before an update, which say nothing new.

Rule of this module: an operation that is not in its table is refused, never guessed. The table has the words of Delta
Lake's change data feed, Debezium, Flink, and of the verbs' own output.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc


class Change(Enum):
    """The operation of a row of a change feed."""

    UPSERT = "upsert"
    DELETE = "delete"
    BEFORE = "before"
    """It shows the value before an update, and changes nothing."""


OPERATIONS: Final[Mapping[str, Change]] = {
    **dict.fromkeys(("upsert", "insert", "update", "update_postimage"), Change.UPSERT),
    **dict.fromkeys(("c", "r", "u", "i", "+i", "+u"), Change.UPSERT),
    **dict.fromkeys(("delete", "d", "-d"), Change.DELETE),
    **dict.fromkeys(("update_preimage", "-u"), Change.BEFORE),
}
"""The changes by their words in feeds; upper and lower case mean the same."""

KNOWN: Final = f"{', '.join(OPERATIONS)}, in upper or lower case"
"""The operations as messages show them."""


def changes_of(operations: "pa.Array[Any] | pa.ChunkedArray[Any]") -> list[Change | None]:
    """Return the operation of each row; None where it is null or unknown."""
    text: Any = operations
    encoded = pc.dictionary_encode(pc.utf8_lower(text))
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    known = [OPERATIONS.get(word) for word in encoded.dictionary.to_pylist()]
    return [None if index is None else known[index] for index in encoded.indices.to_pylist()]

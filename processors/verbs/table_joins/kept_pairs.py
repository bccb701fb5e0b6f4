"""The pairs of rows that a join by foreign key keeps: MessagePack arrays of two, as columns or as objects.

Rule of this module: the bytes are those of ``MSGPACK``.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from millpond.processors.verbs.projections import pairs
from millpond.stores.encoding.column_serdes import Array, ColumnarSerde, ColumnSerde
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde
from millpond.stores.encoding.serdes import MSGPACK

_COLUMNS: Final = RowColumnSerde(pa.struct([("left", pa.binary()), ("right", pa.binary())]))


class PairSerde(ColumnarSerde[Sequence[bytes | None]]):
    """A left row and a right one, or None if there is none."""

    name = MSGPACK.name

    @property
    def columns(self) -> ColumnSerde:
        return _COLUMNS

    def serialize(self, value: Sequence[bytes | None]) -> bytes:
        return MSGPACK.serialize(value)

    def deserialize(self, data: bytes) -> Any:
        return MSGPACK.deserialize(data)


PAIRS: Final = PairSerde()


def kept_pairs(left: Array, right: Array) -> Array:
    """Return the pairs of columns of rows, as the join keeps them."""
    return PhysicalRowType.of(pairs(left, right))


def are_complete(keys: Array, joined: Array) -> Array:
    """Return a mask of the pairs with a right row."""
    return joined.storage.field("right").is_valid()

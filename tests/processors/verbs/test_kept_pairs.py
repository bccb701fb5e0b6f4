"""The pairs that a join by foreign key keeps have the same bytes as columns and as objects, those of MessagePack."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from millpond.processors.verbs.joins.table_join import PAIRS, are_complete, kept_pairs
from millpond.stores.encoding.rows.msgpack_columns import FEW
from millpond.stores.encoding.serdes import MSGPACK

ROWS: Sequence[tuple[bytes, bytes | None]] = [
    (b"", None),
    (b"left", b"right"),
    (b"l" * 300, b"r" * 70_000),
    (b"x", b""),
]


@pytest.mark.parametrize("times", [1, FEW])
def test_columns_of_pairs_have_the_bytes_of_each_of_them(times: int) -> None:
    rows = [*ROWS[:2], *ROWS[3:]] * times + list(ROWS)
    column = kept_pairs(*(pa.array(side, pa.binary()) for side in zip(*rows, strict=True)))
    data = list(map(MSGPACK.serialize, rows))
    assert PAIRS.columns.write(column).to_pylist() == data == PAIRS.serialize_many(column.to_pylist())
    assert PAIRS.columns.read(pa.array(data)).to_pylist() == PAIRS.deserialize_many(data) == list(map(list, rows))
    assert are_complete(None, column).to_pylist() == [right is not None for _, right in rows]

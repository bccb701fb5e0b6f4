"""The columns of joined rows are the same whether the joined rows come as objects or as columns."""

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.verbs.projections import JoinedRows, pair, pairs
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas


def test_joined_rows_of_columns_are_those_of_pairs() -> None:
    left = RowCodec(Schemas.first(pa.schema([("id", pa.int64())])))
    right = RowCodec(Schemas.first(pa.schema([("name", pa.string())])))
    rows = JoinedRows(left, right, ["id"], ["name"])
    ids, names = left.pack(pa.table({"id": [1, 2, 3, 4]})), right.pack(pa.table({"name": ["x", "y", "x"]}))
    found = [names[0], None, names[1], names[2]]
    times = np.arange(4)
    columns = Columns(pa.array(ids), pairs(pa.array(ids), pa.array(found)), times)
    expected = rows.columns(Batch(ids, list(map(pair, ids, found)), times.tolist()), 0)
    for made in (rows.of_columns(columns, 0), rows.columns(columns.to_batch(), 0)):
        assert [column.to_pylist() for column in made] == [column.to_pylist() for column in expected]
    nothing = Columns(pa.array(ids), pairs(pa.array(ids), pa.array([None] * 4)), times)
    assert rows.of_columns(nothing, 0)[1].to_pylist() == [None] * 4

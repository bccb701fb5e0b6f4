"""The columns of joined rows are the same whether the joined rows come as objects or as columns."""

import numpy as np
import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.verbs.joins.table_join import kept_pairs
from millpond.processors.verbs.projections import JoinedRows, pairs
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
    expected = rows.columns(Batch(ids, list(zip(ids, found, strict=True)), times.tolist()), 0)
    kept = columns.with_values(kept_pairs(pa.array(ids), pa.array(found)))
    both = (rows.of_columns(one, 0) for one in (columns, kept))
    for made in (*both, *(rows.columns(one.to_batch(), 0) for one in (columns, kept))):
        assert [column.to_pylist() for column in made] == [column.to_pylist() for column in expected]
    nothing = Columns(pa.array(ids), pairs(pa.array(ids), pa.array([None] * 4)), times)
    assert rows.of_columns(nothing, 0)[1].to_pylist() == [None] * 4

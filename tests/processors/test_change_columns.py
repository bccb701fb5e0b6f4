"""Columns of changes say what changes say one by one: their bytes, and the groups that updates leave and join."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import SerdeError
from millpond.processors.aggregations.table_repartition import TableRepartition
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.change import Change, ChangeSerde, ChangeType
from millpond.processors.verbs.encoding.foreign_keyed import with_foreign_keys
from millpond.processors.verbs.feeds.feed_rows import InGroup
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import STRING

VALUES = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["x" * 64, "y" * 9000]))
CHANGES = st.lists(
    st.builds(Change, VALUES, VALUES, st.just(True)).filter(lambda change: change[:2] != (None, None)), max_size=5
)


@given(CHANGES)
def test_the_bytes_of_a_column_of_changes_are_those_of_each(changes: list[Change[str]]) -> None:
    serde = ChangeSerde(STRING)
    expected = [serde.serialize(change) for change in changes]
    assert serde.serialize_many(changes) == expected
    assert serde.deserialize_many(expected) == changes
    columns: Any = serde.columns
    news, olds = ([change[place] for change in changes] for place in (0, 1))
    column = ChangeType.of_values(pa.array(news, pa.string()), pa.array(olds, pa.string()))
    assert column.to_pylist() == changes
    written = columns.write(column)
    assert written.to_pylist() == expected
    sliced = pa.concat_arrays([pa.array([b"before"]), written])[1:]
    assert columns.read(sliced).to_pylist() == changes


@pytest.mark.parametrize(
    "data", [b"", b"v\x06", b"\x06v\x02", b"\x05v\x02", b"\xff\xff\xff\xff\xff\x02", b"\x02", b"v\x01\x03"]
)
def test_what_is_no_change_of_today_is_read_one_by_one(data: bytes) -> None:
    serde = ChangeSerde(STRING)
    columns: Any = serde.columns
    with pytest.raises(pa.ArrowInvalid):
        columns.read(pa.array([serde.serialize(Change("new", None)), data]))
    if data == b"v\x01\x03":
        assert serde.deserialize_many([data]) == [Change(None, "v")]
    else:
        with pytest.raises(SerdeError):
            serde.deserialize_many([data])


def test_changes_that_an_older_release_has_to_read_are_no_columns() -> None:
    assert ChangeSerde(STRING, "3.4").columns is None


class _Forwarded:
    """Takes what an operator forwards, as its context."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def forward(self, batch: Batch) -> None:
        self.batches.append(batch)

    def forward_columns(self, columns: Columns) -> None:
        self.batches.append(columns.to_batch())

    def count(self, name: Any, amount: int = 1) -> None:
        """Count nothing: no record is left out here."""


GROUP = st.sampled_from(["a", "b", None])
UPDATE = st.tuples(*[st.one_of(st.none(), st.tuples(GROUP, GROUP, st.sampled_from([b"x", b"y"])))] * 2)


@given(st.lists(UPDATE, min_size=1, max_size=6))
def test_columns_of_updates_leave_and_join_the_groups_that_single_ones_do(updates: list[tuple[Any, Any]]) -> None:
    codec = KeyCodec(pa.schema([("group", pa.string())]))

    def packed(rows: list[Any]) -> Any:
        values: Any = pa.array([row and row[2] for row in rows], pa.binary())
        for place in (1, 0):
            keys = pa.table({"group": pa.array([row and row[place] for row in rows], pa.string())})
            values = with_foreign_keys(codec, keys, values, null_safe=True)
        return values

    news, olds = (packed([update[place] for update in updates]) for place in (0, 1))
    keys: Any = pa.array([f"{number}".encode() for number in range(len(updates))])
    columns = Columns(keys, news, np.arange(len(updates)), olds=olds)
    found = []
    for take in ("process", "process_columns"):
        operator: Any = TableRepartition([InGroup(0, 2), InGroup(1, 2)], versioned=False, separate=False)
        operator.context = _Forwarded()
        getattr(operator, take)(columns.to_batch() if take == "process" else columns)
        (batch,) = operator.context.batches
        found.append((batch.keys, batch.values, batch.timestamps))
    assert found[0] == found[1]

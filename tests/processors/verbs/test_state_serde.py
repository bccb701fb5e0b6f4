"""Rows of states in which each call has a place of its own, read as columns and one by one, from whenever they are."""

import pickle
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import SerdeError
from millpond.processors.verbs.encoding.state_serde import Slots, StateSerde
from millpond.stores.encoding.rows.msgpack_columns import FEW, array_lengths, unpack_columns

STATES = pa.struct([("0", pa.list_(pa.float64())), ("1", pa.int64()), ("2", pa.string())])
SERDE = StateSerde(Slots("some", (3, 4, 1), 2, 5), STATES, [None, 0, None])
"""The calls in places 0 and 2 are gone, and there were two in the beginning."""

ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=40) | st.binary(),
    lambda inner: st.lists(inner, max_size=20),
    max_leaves=30,
)
ROWS = st.lists(
    st.tuples(
        ANYTHING,
        st.none() | st.text(),
        ANYTHING,
        st.none() | st.lists(st.floats(allow_nan=False), max_size=3),
        st.integers(-(2**63), 2**63 - 1),
    ),
    min_size=1,
    max_size=8,
)


@given(ROWS, st.lists(st.integers(2, 5), min_size=1), st.booleans())
def test_rows_of_all_lengths_are_read_as_columns_as_they_are_read_one_by_one(
    rows: list[tuple[Any, ...]], lengths: list[int], many: bool
) -> None:
    cut = [row[: lengths[number % len(lengths)]] for number, row in enumerate(rows * (FEW if many else 1))]
    data = [msgpack.packb(row) for row in cut]
    found = SERDE.columns.read(pa.array([*data, None], pa.binary())).to_pylist()
    assert found == [*map(SERDE.deserialize, data), None]
    padded = [[*row, *(None, None, 0)[len(row) - 2 :]] for row in cut]
    assert found[:-1] == [[row[3], row[4], row[1]] for row in padded]
    written = SERDE.columns.write(SERDE.columns.read(pa.array(data, pa.binary()))).to_pylist()
    assert written == SERDE.serialize_many(found[:-1])
    assert [msgpack.unpackb(one)[::2] for one in written] == [[None, None, state[1]] for state in found[:-1]]
    assert list(map(SERDE.deserialize, written)) == found[:-1]


def test_calls_that_have_not_changed_have_their_states_and_nothing_else() -> None:
    slots = Slots.first("some", 3)
    serde = StateSerde(slots, STATES, [None, 0, None])
    assert slots.plain
    state: list[Any] = [[0.5], 7, "x"]
    assert serde.serialize(state) == msgpack.packb(state)
    assert not SERDE._slots.plain
    assert pickle.loads(pickle.dumps(SERDE)).deserialize(msgpack.packb([1, "x"])) == [None, 0, "x"]


@pytest.mark.parametrize("row", [[1], [1, "x", 2, None, 5, 6], {}, 7])
def test_rows_that_no_calls_have_written_are_refused(row: Any) -> None:
    with pytest.raises(SerdeError, match="is no state of some, which has 2 to 5 parts"):
        SERDE.deserialize(msgpack.packb(row))
    for size in (1, FEW):
        with pytest.raises(pa.ArrowInvalid):
            SERDE.columns.read(pa.array([msgpack.packb(row)] * size, pa.binary()))


def test_a_value_is_passed_over_whatever_it_is_but_for_long_lists() -> None:
    values = [None, -1, 2**63, "x" * 300, b"y" * 70_000, [[1, ["a"]], [2.5] * 20], True]
    rows: Any = pa.array([msgpack.packb([value, number]) for number, value in enumerate(values)], pa.binary())
    skipped, numbers = unpack_columns(rows, [None, pa.int64()])
    assert (skipped.null_count, numbers.to_pylist()) == (len(values), list(range(len(values))))
    assert array_lengths(rows).tolist() == [2] * len(values)
    with pytest.raises(pa.ArrowInvalid, match="one by one"):
        unpack_columns(pa.array([msgpack.packb([list(range(1_000))])], pa.binary()), [None])
    for data in (b"\x91\xda\x00\x05ab", b"\x91\xc7\x01\x01a", b"\x91"):
        with pytest.raises(pa.ArrowInvalid):
            unpack_columns(pa.array([data], pa.binary()), [None])

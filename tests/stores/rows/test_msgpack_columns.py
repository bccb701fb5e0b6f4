"""Columns are packed to the bytes that ``msgpack`` makes of their values, and read back from these, or refused."""

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import RecordError
from millpond.stores.encoding.rows.msgpack_columns import pack_values, packed_rows, unpack_columns
from millpond.stores.encoding.rows.physical import WHOLE, from_physical, to_physical
from tests.drawing import tries
from tests.stores.rows.columns import types, values

EDGES = sorted(
    {sign * (2**power + near) for power in (0, 5, 7, 8, 15, 16, 31, 32, 62) for near in (-1, 0, 1) for sign in (1, -1)}
    | {2**63 - 1, -(2**63)}
)


def pack_columns(columns: list[Any], size: int, first: int | None = None) -> Any:
    return packed_rows(list(map(pack_values, columns)), size, first)


def rows_of(columns: list[Any], size: int, first: int | None = None) -> list[bytes]:
    front = [] if first is None else [[first] * size]
    physical = [*front, *map(to_physical, columns)]
    return [msgpack.packb(list(row)) for row in zip(*physical, strict=True)] if physical else [b"\x90"] * size


@settings(deadline=None, max_examples=tries(400), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_columns_are_packed_as_their_values_are_and_read_back(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(types(), max_size=18))
    size = data.draw(st.integers(0, 6))
    physical = [data.draw(st.lists(values(type_), min_size=size, max_size=size)) for type_ in kinds]
    columns: list[Any] = [from_physical(column, type_) for column, type_ in zip(physical, kinds, strict=True)]
    first = data.draw(st.none() | st.sampled_from([0, 1, 200, 70_000]))
    packed = pack_columns(columns, size, first)
    assert packed.to_pylist() == rows_of(columns, size, first)
    all_kinds = [*([] if first is None else [pa.int64()]), *kinds]
    read = unpack_columns(packed, all_kinds)
    assert [column.type for column in read] == all_kinds
    for column in read:
        column.validate(full=True)
    assert repr([to_physical(column) for column in read[len(all_kinds) - len(kinds) :]]) == repr(
        [to_physical(column) for column in columns]
    )
    start = data.draw(st.integers(0, size))
    sliced = [column.slice(start) for column in columns]
    assert pack_columns(sliced, size - start, first).to_pylist() == packed.to_pylist()[start:]
    again = unpack_columns(packed.slice(start), all_kinds)
    assert repr([to_physical(column) for column in again]) == repr(
        [to_physical(column.slice(start)) for column in read]
    )


def test_integers_take_as_few_bytes_as_they_can() -> None:
    column = pa.array([*EDGES, None])
    packed = pack_columns([column], len(column))
    assert packed.to_pylist() == [msgpack.packb([number]) for number in [*EDGES, None]]
    assert unpack_columns(packed, [pa.int64()]) == [column]


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_take_as_few_bytes_as_they_can(length: int) -> None:
    texts: Any = [pa.array(["x" * length, None]), pa.array([b"x" * length, None])]
    packed = pack_columns(texts, 2)
    assert packed.to_pylist() == rows_of(texts, 2)
    assert unpack_columns(packed, [pa.string(), pa.binary()]) == texts
    lists: Any = pa.array([[True] * length, None])
    assert pack_columns([lists], 2).to_pylist() == rows_of([lists], 2)


def test_the_bits_of_floats_stay() -> None:
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 1], np.uint64)
    column = pa.array(bits.view(np.float64), from_pandas=False)
    packed = pack_columns([column], 4)
    (read,) = unpack_columns(packed, [pa.float64()])
    assert np.array_equal(read.to_numpy().view(np.uint64), bits)


def test_integers_of_128_bits_are_ints_where_64_bits_hold_them() -> None:
    wide = [number.to_bytes(16, "big", signed=True) for number in (2**63, -(2**63) - 1, 2**127 - 1, -(2**127))]
    given = [*wide, *EDGES, None]
    column = from_physical(given, WHOLE)
    packed = pack_columns([column], len(given))
    assert packed.to_pylist() == [msgpack.packb([value]) for value in given]
    assert to_physical(column) == to_physical(unpack_columns(packed, [WHOLE])[0]) == given


def test_long_lists_are_read_if_their_elements_have_as_many_bytes() -> None:
    lists = pa.array([[2**40 + number for number in range(300)], [], None, [1, None, 5] * 40, [-7, 3]])
    texts = pa.array([["ab", "cd"] * 50, [""] * 70, None, [], ["a"]])
    types_ = [pa.list_(pa.field("element", of)) for of in (pa.int64(), pa.string())]
    packed = pack_columns([lists, texts], 5)
    assert [column.to_pylist() for column in unpack_columns(packed, types_)] == [lists.to_pylist(), texts.to_pylist()]


def test_a_string_that_is_none_is_refused() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    with pytest.raises(RecordError, match="not UTF-8"):
        pack_columns([broken], 1)


WRONG: dict[str, tuple[bytes, Any]] = {
    "no array": (b"\x01", pa.int64()),
    "nothing": (b"", pa.int64()),
    "too few values": (b"\x90", pa.int64()),
    "too many values": (b"\x92\x01\x01", pa.int64()),
    "more behind it": (b"\x91\x01\x01", pa.int64()),
    "cut in a number": (b"\x91\xcd\x01", pa.int64()),
    "cut in a text": (b"\x91\xa3ab", pa.string()),
    "a text that is not UTF-8": (b"\x91\xa1\xff", pa.string()),
    "bytes for a text": (b"\x91\xc4\x01a", pa.string()),
    "a text for bytes": (b"\x91\xa1a", pa.binary()),
    "a text for a number": (b"\x91\xa1a", pa.int64()),
    "an integer for a float": (b"\x91\x01", pa.float64()),
    "a number for a truth value": (b"\x91\x01", pa.bool_()),
    "an integer beyond 64 bits": (b"\x91\xcf" + b"\xff" * 8, pa.int64()),
    "an integer beyond its type": (b"\x91\xcc\x80", pa.int8()),
    "a time beyond a day": (b"\x91\xcf" + (86_400_000_000).to_bytes(8, "big"), pa.time64("us")),
    "a decimal beyond its digits": (b"\x91\x64", pa.decimal128(2, 0)),
    "a wide decimal of 15 bytes": (b"\x91\xc4\x0f" + b"\x00" * 15, pa.decimal128(20, 0)),
    "something for nothing": (b"\x91\x01", pa.null()),
    "a struct of two for one of one": (b"\x91\x92\x01\x01", pa.struct([("a", pa.int64())])),
    "a null key": (b"\x91\x91\x92\xc0\x01", pa.map_(pa.int64(), pa.int64())),
    "a list that goes on behind its row": (b"\x91\xdd\xff\xff\xff\xff", pa.list_(pa.int64())),
    "an extension": (b"\x91\xd4\x01\x01", pa.int64()),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_written_so_is_refused(case: str) -> None:
    row, type_ = WRONG[case]
    with pytest.raises(pa.ArrowInvalid):
        unpack_columns(pa.array([row], pa.binary()), [type_])


@settings(deadline=None, max_examples=tries(300))
@given(types(), st.lists(st.binary(max_size=24), min_size=1, max_size=4))
def test_any_bytes_are_read_as_msgpack_reads_them_or_refused(type_: Any, tails: list[bytes]) -> None:
    rows = [b"\x91" + tail for tail in tails]
    try:
        (read,) = unpack_columns(pa.array(rows, pa.binary()), [type_])
    except pa.ArrowInvalid:
        return
    expected = from_physical([msgpack.unpackb(row, strict_map_key=False)[0] for row in rows], type_)
    assert repr(to_physical(read)) == repr(to_physical(expected))

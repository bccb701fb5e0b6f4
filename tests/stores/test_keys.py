"""Key layouts keep order, and no key's rows lie among another's."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, CorruptStoreError
from millpond.stores.encoding.column_keys import (
    escaped_column,
    pack_times,
    terminated_column,
    time_at,
    timed_rows,
    unterminated_column,
)
from millpond.stores.encoding.keys import (
    INDEX,
    after_prefix,
    last_time,
    pack_time,
    terminated,
    unpack_time,
    unterminated,
)
from millpond.stores.encoding.times import MAX_TIME, MIN_TIME

KEYS = st.lists(st.sampled_from((0, 1, 97, 254, 255)), max_size=4).map(bytes)
TIMES = st.integers(MIN_TIME, MAX_TIME)


@given(KEYS, KEYS)
def test_terminated_keys_compare_as_the_keys_do(one: bytes, other: bytes) -> None:
    assert (terminated(one) < terminated(other)) == (one < other)
    assert (terminated(one) == terminated(other)) == (one == other)


@given(KEYS, KEYS)
def test_no_terminated_key_is_the_prefix_of_another(one: bytes, other: bytes) -> None:
    assert one == other or not terminated(other).startswith(terminated(one))


@given(KEYS, KEYS, TIMES, TIMES)
def test_rows_compare_by_key_and_then_by_time(one: bytes, other: bytes, time: int, later: int) -> None:
    rows = terminated(one) + pack_time(time), terminated(other) + pack_time(later)
    assert (rows[0] < rows[1]) == ((one, time) < (other, later))


@given(KEYS)
def test_a_key_comes_back_from_its_terminated_form(key: bytes) -> None:
    assert unterminated(terminated(key)) == key


@given(TIMES)
def test_a_time_comes_back_from_its_bytes(time: int) -> None:
    assert unpack_time(pack_time(time)) == time
    assert last_time(b"anything" + pack_time(time)) == time


def test_a_time_beyond_64_bits_is_refused() -> None:
    for time in (MAX_TIME + 1, MIN_TIME - 1):
        with pytest.raises(ConfigurationError, match="64 bits"):
            pack_time(time)


def test_a_key_part_without_terminator_is_damage() -> None:
    with pytest.raises(CorruptStoreError):
        unterminated(b"abc")


@given(KEYS, KEYS)
def test_the_keys_after_a_prefix_begin_where_after_prefix_says(prefix: bytes, key: bytes) -> None:
    end = after_prefix(prefix)
    inside = prefix <= key and (end is None or key < end)
    assert inside == key.startswith(prefix)


@given(st.lists(KEYS))
def test_a_column_of_keys_is_terminated_as_each_of_them_is_and_comes_back(keys: list[bytes]) -> None:
    column = terminated_column(pa.array(keys, pa.binary()))
    assert column.to_pylist() == list(map(terminated, keys))
    assert unterminated_column(column).to_pylist() == keys


@pytest.mark.parametrize("damaged", [b"abc", b"", b"a\x00b\x00\x00"])
def test_a_column_with_a_key_part_without_its_terminator_is_damage(damaged: bytes) -> None:
    with pytest.raises(pa.ArrowInvalid, match="terminator"):
        unterminated_column(pa.array([terminated(b"a"), damaged]))


@given(st.lists(TIMES))
def test_a_column_of_times_is_packed_as_each_of_them_is_and_comes_back_from_anywhere(times: list[int]) -> None:
    column = pack_times(np.array(times, np.int64))
    assert column.to_pylist() == list(map(pack_time, times))
    rows = pa.array([b"key" + packed + b"rest" for packed in column.to_pylist()], pa.binary())
    assert time_at(rows, 3).tolist() == time_at(rows, -12).tolist() == times
    assert time_at(column, -8).tolist() == times


@given(st.lists(st.tuples(TIMES, KEYS)))
def test_a_column_of_rows_by_time_has_the_rows_of_each_time_and_key(entries: list[tuple[int, bytes]]) -> None:
    keys = escaped_column(pa.array([key for _, key in entries], pa.binary()))
    rows = timed_rows(INDEX, np.array([time for time, _ in entries], np.int64), keys)
    assert rows.to_pylist() == [INDEX + pack_time(time) + terminated(key) for time, key in entries]

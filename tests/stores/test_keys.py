"""Key layouts keep order, and no key's rows lie among another's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ConfigurationError, CorruptStoreError
from millpond.stores.encoding.keys import after_prefix, last_time, pack_time, terminated, unpack_time, unterminated
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

"""Windows that are put and read as columns are those that are put and read one by one."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.windows.duplicate_columns import DuplicateColumns
from millpond.stores.typed.windows.timestamped_window import TimestampedWindowStore
from millpond.stores.typed.windows.window import WindowStore
from millpond.stores.typed.windows.window_columns import WindowColumns, Windows
from tests.drawing import tries

KEYS = ["", "a", "a\0"]
LIMITS: dict[str, Any] = {"retention": 3_000, "window_size": 1}
Put = tuple[str, int, int]
"""Key, value and time."""

puts = st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.integers(-2, 5).map(lambda some: some * 1_000))
batches = st.lists(st.lists(puts, min_size=1, max_size=8), min_size=1, max_size=6)


def keys_of(some: list[str]) -> Any:
    """Return keys as their serde writes them."""
    serde = column_serde(STRING)
    assert serde is not None
    return serde.write(pa.array(some, pa.string()))


def values_of() -> Any:
    serde = column_serde(INT64)
    assert serde is not None
    return serde


@settings(max_examples=tries(50))
@given(batches)
def test_windows_leave_the_rows_that_they_leave_one_by_one(given_: list[list[Put]]) -> None:
    single, whole = Transaction(MemoryBackend()), Transaction(MemoryBackend())
    one, many = (TimestampedWindowStore("s", each, STRING, INT64, **LIMITS) for each in (single, whole))
    for batch in given_:
        distinct = {(key, time): value for key, value, time in batch}
        keys, starts = map(list, zip(*distinct, strict=True))
        values, stamps = list(distinct.values()), [time + 7 for time in starts]
        one.put_many(keys, values, stamps, starts)
        WindowColumns(many, values_of()).put(
            Windows(keys_of(keys), np.array(starts), pa.array(values, pa.int64()), np.array(stamps))
        )
        assert list(whole.scan()) == list(single.scan())
        assert list(many.fetch_all()) == list(one.fetch_all())
        assert many.observed_stream_time == one.observed_stream_time
        many.check()


@settings(max_examples=tries(300))
@given(batches, st.lists(st.tuples(st.integers(-4, 2), st.integers(2, 8)), min_size=3, max_size=3))
def test_puts_that_are_all_kept_are_found_until_they_expire(
    given_: list[list[Put]], bounds: list[tuple[int, int]]
) -> None:
    one, many = (
        WindowStore("s", Transaction(MemoryBackend()), STRING, INT64, retain_duplicates=True, **LIMITS) for _ in "12"
    )
    columns = DuplicateColumns(many, values_of())
    for batch in given_:
        keys, values, times = map(list, zip(*batch, strict=True))
        for put in batch:
            one.put(*put)
        columns.put(keys_of(keys), values_of().write(pa.array(values, pa.int64())), np.array(times))
        assert list(many.fetch_all()) == list(one.fetch_all())
        assert many.observed_stream_time == one.observed_stream_time
        asked = [(earliest * 1_000, (earliest + length) * 1_000) for earliest, length in bounds]
        found = columns.between(keys_of(KEYS), *(np.array(times) for times in zip(*asked, strict=True)))
        for place, key in enumerate(KEYS):
            mine = np.flatnonzero(found.keys == place)
            expected = list(one.fetch_range(key, *asked[place]))
            assert list(zip(found.times[mine].tolist(), found.values.take(mine).to_pylist(), strict=True)) == expected
        many.check()

"""Many rows of one key: each costs about the same, in whatever order they come, and however many there are."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from millpond.stores.typed.versions.versioned_columns import VersionedColumns
from millpond.stores.typed.windows.window import WindowStore
from tests.stores.growth import CountingBackend, steps_of

FAR = 10**12
FEW, MANY = 100, 800
"""How many rows, of which each may cost half as much again where there are eight times as many: searches are longer."""
MORE = 1.5

Times = Sequence[int]


def versioned(transaction: Transaction) -> VersionedKeyValueStore[str, int]:
    return VersionedKeyValueStore("s", transaction, STRING, INT64, history_retention=FAR)


def windows(transaction: Transaction, *, duplicates: bool = False) -> WindowStore[str, int]:
    return WindowStore("s", transaction, STRING, INT64, retention=FAR, window_size=10, retain_duplicates=duplicates)


def columns_of(store: VersionedKeyValueStore[str, int]) -> VersionedColumns:
    keys, values = column_serde(STRING), column_serde(INT64)
    assert keys is not None
    assert values is not None
    return VersionedColumns(store, keys, values)


def put_versions(store: Any, times: Times) -> None:
    for time in times:
        store.put("k", time, time)


def put_values(store: Any, times: Times) -> None:
    for time in times:
        store.put("k", time)


def put_far_apart(store: Any, times: Times) -> None:
    """Put rows so far apart that each put lets what was put before expire."""
    for time in times:
        store.put("k", time, 100 * time)


def put_and_get_versions(store: Any, times: Times) -> None:
    for time in times:
        store.put("k", time, time)
        store.get("k", time - 3)
        store.next_version_time("k", time - 3)
        next(store.history("k", time - 3), None)


def put_many_versions(store: Any, times: Times) -> None:
    store.put_many(["k"] * len(times), times, times)
    store.get_many_as_of(["k"] * len(times), [time - 3 for time in times])


def put_columns_of_versions(store: Any, times: Times) -> None:
    columns, keys = columns_of(store), pa.array(["k"] * len(times))
    columns.put(keys, pa.array(times), np.array(times))
    columns.get_as_of(keys, np.array(times) - 3)


def put_windows(store: Any, times: Times) -> None:
    for time in times:
        store.put("k", time, time)
        list(store.fetch_range("k", time - 30, time + 30))


CASES: dict[str, tuple[Callable[[Transaction], Any], Callable[[Any, Times], None]]] = {
    "versions": (versioned, put_versions),
    "versions that are read": (versioned, put_and_get_versions),
    "many versions": (versioned, put_many_versions),
    "columns of versions": (versioned, put_columns_of_versions),
    "versions that expire": (
        lambda transaction: VersionedKeyValueStore("s", transaction, STRING, INT64, history_retention=1000),
        put_far_apart,
    ),
    "windows that expire": (
        lambda transaction: WindowStore("s", transaction, STRING, INT64, retention=1000, window_size=10),
        put_far_apart,
    ),
    "windows": (windows, put_windows),
    "duplicates": (lambda transaction: windows(transaction, duplicates=True), put_windows),
    "key-value": (
        lambda transaction: KeyValueStore("s", transaction, STRING, INT64),
        put_values,
    ),
    "timestamped": (
        lambda transaction: TimestampedKeyValueStore("s", transaction, STRING, INT64),
        lambda store, times: store.put_many(["k"] * len(times), times, times),
    ),
}


def work(case: str, order: str, rows: int, batches: int) -> int:
    """Return how much it is to put so many rows in so many micro-batches."""
    make, do = CASES[case]
    times = [10 * number for number in range(rows)]
    if order == "reversed":
        times.reverse()
    if order == "shuffled":
        random.Random(1).shuffle(times)
    backend = CountingBackend()
    transaction = Transaction(backend)
    store = make(transaction)

    def run() -> None:
        for start in range(0, rows, rows // batches):
            do(store, times[start : start + rows // batches])
            store.flush()
            transaction.commit()

    steps = steps_of(run)
    return steps + backend.rows


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("order", ["in order", "reversed", "shuffled"])
@pytest.mark.parametrize("case", CASES)
def test_a_row_of_a_key_with_many_costs_what_one_with_few_does(case: str, order: str, batches: int) -> None:
    work(case, order, FEW, batches)  # what is done once is not counted
    few, many = work(case, order, FEW, batches), work(case, order, MANY, batches)
    assert many / MANY <= MORE * few / FEW


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(-4_000, 4_000)), max_size=25),
    st.sampled_from(LatePuts),
    st.sampled_from([0, 700, 3_000]),
)
def test_what_expires_in_one_micro_batch_is_what_expires_in_many(
    puts: list[tuple[str, int | None, int]], late: LatePuts, history: int
) -> None:
    rows = []
    for each in (False, True):
        backend = MemoryBackend()
        transaction = Transaction(backend)
        store = VersionedKeyValueStore("s", transaction, STRING, INT64, history_retention=history, late_puts=late)
        for number, (key, value, time) in enumerate(puts):
            store.put(key, value, time + 500 * number)
            if each:
                store.flush()
                transaction.commit()
        store.flush()
        transaction.commit()
        rows.append(list(backend.scan()))
    assert rows[0] == rows[1]

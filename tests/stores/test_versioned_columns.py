"""``VersionedColumns``: versions that are put as columns leave the rows that they leave one by one."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import CorruptStoreError
from millpond.stores.backend.column_changes import ColumnChanges
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.terms import KeptTerms
from millpond.stores.typed.versions import versioned_columns
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.read_only_versioned import HISTORY
from millpond.stores.typed.versions.versioned import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore
from millpond.stores.typed.versions.versioned_columns import VersionedColumns
from tests.drawing import tries

Put = tuple[str, int | None, int]
KEYS = ["", "a", "a\0", "a\0\0", "b", "ü"]


def open_store(transaction: Transaction, **limits: Any) -> VersionedKeyValueStore[str, int]:
    return VersionedKeyValueStore("s", transaction, STRING, INT64, **{"history_retention": 10_000, **limits})


def columns_of(store: VersionedKeyValueStore[str, int]) -> VersionedColumns:
    keys, values = column_serde(STRING), column_serde(INT64)
    assert keys is not None
    assert values is not None
    return VersionedColumns(store, keys, values)


def arrays(puts: list[Put]) -> tuple[Any, Any, Any]:
    keys, values, times = zip(*puts, strict=True)
    return pa.array(keys), pa.array(values, pa.int64()), np.array(times, np.int64)


puts = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9)), st.integers(-3_000, 16_000)),
    min_size=1,
    max_size=12,
)
in_time = puts.map(lambda some: sorted(some, key=lambda put: put[2]))
tied = in_time.map(lambda some: [(key, value, time // 5_000 * 5_000) for key, value, time in some])
limits = st.sampled_from(
    [
        {"history_retention": 4_000},
        {"history_retention": 4_000, "grace": 500},
        {"history_retention": 50_000},
        {"history_retention": 2**63 - 1, "grace": 2**62},
        {"history_retention": 0},
        *[{"history_retention": history, "late_puts": late} for history in (4_000, 0) for late in LatePuts],
    ]
)


reaches = st.lists(st.none() | st.sampled_from([0, 1_000, 4_000, 60_000]), min_size=3, max_size=3)
"""Before each micro-batch, how far back a run with another history has kept it; None if there was none."""


def states(
    backend: str, batches: list[list[list[Put]]], limits: dict[str, Any], reaches: list[int | None], *, whole: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield what puts return, what lookups between them find, and the rows of the store after each commit."""
    with TemporaryDirectory() as directory, supplier(backend).open(Path(directory) / "store") as engine:
        transaction = Transaction(engine)
        store = open_store(transaction, **limits)
        columns = columns_of(store)
        for batch, reach in zip(batches, reaches, strict=False):
            if reach is not None:
                store = open_store(transaction, **limits)
                store.know_terms(KeptTerms({}, {HISTORY: reach}))
                columns = columns_of(store)
            for run in batch:
                keys, values, times = arrays(run)
                if whole:
                    yield columns.put(keys, values, times).tolist(), store.observed_stream_time
                    yield tuple(column.to_pylist() for column in columns.get(keys))
                    yield tuple(column.to_pylist() for column in columns.get_as_of(keys, times - 700))
                else:
                    yield [store.put(*put) for put in run], store.observed_stream_time
                    found = [store.get(key) for key, _, _ in run]
                    yield tuple([None if one is None else one[at] for one in found] for at in (0, 1))
                    found = [store.get(key, time - 700) for key, _, time in run]
                    yield tuple([None if one is None else one[at] for one in found] for at in (0, 1))
            store.flush()
            transaction.commit()
            store.check()
            yield tuple(engine.scan())


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_columns_of_versions_are_put_as_one_by_one(backend: str) -> None:
    @settings(deadline=None, max_examples=tries(60 if backend == "memory" else 10))
    @given(
        st.lists(st.lists(st.one_of(puts, in_time, tied), min_size=1, max_size=3), min_size=1, max_size=3),
        limits,
        reaches,
    )
    def check(batches: list[list[list[Put]]], limits: dict[str, Any], reaches: list[int | None]) -> None:
        with mock.patch.object(versioned_columns, "_SHORTEST", 1):
            assert list(states(backend, batches, limits, reaches, whole=True)) == list(
                states(backend, batches, limits, reaches, whole=False)
            )

    check()


def test_versions_of_a_run_are_one_change_of_columns(transaction: Transaction) -> None:
    columns = columns_of(open_store(transaction))
    run: list[Put] = [(f"k{number % 150}", number, number) for number in range(400)]
    assert columns.put(*arrays(run)).tolist() == [VALID_TO_UNDEFINED] * 400
    assert isinstance(transaction.sorted_changes, ColumnChanges)
    values, times = columns.get(pa.array([key for key, _, _ in run]))
    assert values == times == pa.array([max(range(number % 150, 400, 150)) for number in range(400)])
    assert isinstance(transaction.sorted_changes, ColumnChanges)


def test_versions_of_one_time_are_one_change_of_columns_too_and_the_last_one_counts(transaction: Transaction) -> None:
    columns = columns_of(open_store(transaction))
    run: list[Put] = [(f"k{number % 50}", number, number // 100) for number in range(400)]
    assert columns.put(*arrays(run)).tolist() == [VALID_TO_UNDEFINED] * 400
    assert isinstance(transaction.sorted_changes, ColumnChanges)
    values, times = columns.get_as_of(pa.array(["k7"] * 4), np.arange(4))
    assert values.to_pylist() == [57, 157, 257, 357]
    assert times.to_pylist() == [0, 1, 2, 3]


def test_times_at_the_ends_of_time_are_put_one_by_one(transaction: Transaction) -> None:
    store = open_store(transaction, history_retention=5)
    with mock.patch.object(versioned_columns, "_SHORTEST", 1):
        ends = columns_of(store).put(*arrays([("a", 1, -(2**63)), ("a", 2, 2**63 - 1), ("a", 3, 7)]))
    assert ends.tolist() == [VALID_TO_UNDEFINED, VALID_TO_UNDEFINED, NOT_PUT]
    assert store.get_value("a") == 2


def test_a_damaged_latest_version_is_named_and_nothing_is_put(transaction: Transaction) -> None:
    columns = columns_of(open_store(transaction))
    transaction.put(b"\x01a\x00\x01", b"short")
    with (
        mock.patch.object(versioned_columns, "_SHORTEST", 1),
        pytest.raises(CorruptStoreError, match="'short' is no latest version with its time"),
    ):
        columns.put(*arrays([("a", 1, 1), ("b", 2, 2)]))
    assert transaction.changes == {b"\x01a\x00\x01": b"short"}


LOOK_UPS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-50, 1_100)), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    st.sampled_from(["memory", "lmdb"]),
    st.lists(puts, max_size=3),
    puts,
    LOOK_UPS,
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2, 8]),
    st.booleans(),
)
def test_many_look_ups_of_a_key_find_what_each_of_them_does(
    backend: str,
    committed: list[list[Put]],
    uncommitted: list[Put],
    look_ups: list[tuple[str, int]],
    many: int,
    read: int,
    one_by_one: bool,
) -> None:
    """However few are many, and however few versions are read for them."""
    with (
        TemporaryDirectory() as directory,
        supplier(backend).open(Path(directory) / "store") as engine,
        mock.patch.object(versioned_columns, "_MANY", many),
        mock.patch.object(versioned_columns, "_READ_PER_LOOK_UP", read),
    ):
        transaction = Transaction(engine)
        store = open_store(transaction, history_retention=800)
        for batch in [*committed, uncommitted]:
            scaled = [(("a" if key < "b" else "b"), value, time // 16) for key, value, time in batch]
            if one_by_one:
                for put in scaled:
                    store.put(*put)
            else:
                columns_of(store).put(*arrays(scaled))
            if batch is not uncommitted:
                store.flush()
                transaction.commit()
        keys, times = zip(*look_ups, strict=True)
        values, since = columns_of(store).get_as_of(pa.array(keys), np.array(times, np.int64))
        found = [store.get(key, time) for key, time in look_ups]
        assert values.to_pylist() == [None if one is None else one.value for one in found]
        assert since.to_pylist() == [None if one is None else one.timestamp for one in found]
        transaction.rollback()

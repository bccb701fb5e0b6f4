"""Views of tables: their histories, and the same answers by record and by column."""

from itertools import islice
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors.options.joins import TABLE_JOINS, JoinType
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.join_history import JoinHistoryView
from millpond.processors.tables.table_view import TableStore
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore, ValueAndTimestamp
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
from tests.drawing import tries
from tests.stores.growth import steps_of

PUTS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 30)), max_size=15)


def store(puts: list[tuple[str, int | None, int]], **limits: Any) -> VersionedKeyValueStore[str, int]:
    transaction = Transaction(MemoryBackend())
    found = VersionedKeyValueStore("s", transaction, STRING, INT64, **limits)
    for put in puts:
        found.put(*put)
    return found


@given(PUTS, st.sampled_from([3, 12, 100]), st.sampled_from(LatePuts), st.integers(-1, 31))
def test_the_step_after_a_time_is_the_first_of_those_that_follow(
    puts: list[tuple[str, int | None, int]], history: int, late: LatePuts, time: int
) -> None:
    kept = store(puts, history_retention=history, late_puts=late)
    view = TableStore(kept)
    for key in "ab":
        assert view.step_after(key, time) == next(islice(view.steps(key, time, None), 1, None), None)
    kept.transaction.rollback()


@given(PUTS, PUTS, st.sampled_from(TABLE_JOINS), st.integers(-1, 31))
def test_so_it_is_where_tables_are_joined(
    one: list[tuple[str, int | None, int]],
    other: list[tuple[str, int | None, int]],
    join_type: JoinType,
    time: int,
) -> None:
    kept = [store(puts, history_retention=100) for puts in (one, other)]
    context = mock.create_autospec(ProcessorContext, leaves_out=False)
    sides = map(TableStore, kept)
    view = JoinHistoryView(next(sides), next(sides), lambda key, *values: (key, values), join_type, context)
    for key in "ab":
        assert view.step_after(key, time) == next(islice(view.steps(key, time, None), 1, None), None)
    for one_store in kept:
        one_store.transaction.rollback()


def test_the_step_after_a_time_does_not_read_those_that_follow_it() -> None:
    work = []
    for rows in (50, 400):
        kept = store([("a", number, number) for number in range(rows)], history_retention=1000)
        view = TableStore(kept)
        view.step_after("a", 3)
        work.append(steps_of(lambda found=view: found.step_after("a", 3)))  # type: ignore[misc]
        kept.transaction.rollback()
    assert work[1] < 1.5 * work[0]


@pytest.mark.parametrize("versioned", [False, True])
@settings(max_examples=tries(60))
@given(puts=PUTS, as_of=st.integers(-1, 31))
def test_a_store_is_read_by_column_as_it_is_by_record(
    versioned: bool, puts: list[tuple[str, int | None, int]], as_of: int
) -> None:
    kept: Any = TimestampedKeyValueStore("s", Transaction(MemoryBackend()), STRING, INT64)
    kept = store([], history_retention=12) if versioned else kept
    view = TableStore(kept)
    for put in puts:
        view.put(*put)
    keys = ["a", "c", "b", "a"]
    asked, times = pa.array(keys), np.full(len(keys), as_of)
    latest, then = view.get_columns(asked), view.get_columns_as_of(asked, times)
    assert entries(latest) == view.get_many(keys) == [view.get(key) for key in keys]
    if versioned:
        assert (
            entries(then) == view.get_many_as_of(keys, times.tolist()) == [view.get_as_of(key, as_of) for key in keys]
        )
    else:
        assert entries(then) == entries(latest)
    assert view.get_columns(pa.array([1, 2])) is None
    kept.transaction.rollback()


def entries(found: Any) -> list[ValueAndTimestamp[int] | None]:
    columns = zip(*(column.to_pylist() for column in found), strict=True)
    return [None if value is None else ValueAndTimestamp(value, time) for value, time in columns]


def test_a_store_without_timestamps_is_read_by_record_alone() -> None:
    kept = KeyValueStore("s", Transaction(MemoryBackend()), STRING, INT64)
    view = TableStore(kept)
    assert [view.put("a", 1, 5), view.get("a"), view.get_many(["b", "a"])] == [-1, (1, -1), [None, (1, -1)]]
    assert view.get_columns(pa.array(["a"])) is None
    kept.transaction.rollback()

"""The reading of histories by value getters."""

from itertools import islice
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from millpond.processors.options.joins import TABLE_JOINS, JoinType
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.tables.join_history import JoinHistoryView
from millpond.processors.tables.table_view import TableStore
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.versions.late_puts import LatePuts
from millpond.stores.typed.versions.versioned import VersionedKeyValueStore
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

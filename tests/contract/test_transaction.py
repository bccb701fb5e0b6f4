"""Properties of transactions that the state machine of the kit does not show."""

import gc
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import StoreClosedError
from millpond.stores.backend.column_changes import ColumnChanges, get_column, put_column
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.testing import Fault, FaultPlan, FaultyBackend, InjectedFault, Step
from tests.stores.growth import steps_of


def test_the_changes_are_the_changelog_of_the_batch_compacted_by_key() -> None:
    transaction = Transaction(MemoryBackend())
    transaction.put(b"a", b"1")
    transaction.put(b"a", b"2")
    transaction.put(b"b", b"1")
    transaction.delete(b"b")
    transaction.delete(b"never")
    assert transaction.changes == {b"a": b"2", b"b": None, b"never": None}


def test_a_commit_is_one_write_and_an_empty_commit_is_none() -> None:
    plan = FaultPlan()
    transaction = Transaction(FaultyBackend(MemoryBackend(), plan))
    transaction.commit()
    transaction.put_many({b"a": b"1", b"b": b"2"})
    transaction.commit()
    transaction.commit()
    assert plan.steps[Step.BACKEND_WRITE] == 1


@given(st.dictionaries(st.sampled_from([b"0", b"01", b"1", b"x", b"xx", b"y"]), st.none() | st.binary(max_size=2)))
def test_single_changes_around_columns_lie_beside_these_in_key_order(others: dict[bytes, bytes | None]) -> None:
    columns = {b"b": b"1", b"c": None, b"d": b"3"}
    transaction = Transaction(MemoryBackend())
    put_column(transaction, pa.array(columns, pa.binary()), pa.array(columns.values(), pa.binary()))
    transaction.put_many(others)
    assert isinstance(transaction.changes, ColumnChanges)
    assert list(transaction.changes.items()) == sorted({**columns, **others}.items())
    assert transaction.changes.bounds == (min({*columns, *others}), max({*columns, *others}))
    transaction.commit()


@pytest.mark.parametrize(
    ("use", "form"),
    [
        (lambda transaction: None, ColumnChanges),
        (lambda transaction: transaction.put(b"0", b"3"), ColumnChanges),
        (lambda transaction: transaction.get(b"0"), ColumnChanges),
        (lambda transaction: transaction.put(b"b", b"4"), dict),
        (lambda transaction: transaction.get(b"b"), dict),
        (lambda transaction: next(transaction.scan()), dict),
    ],
)
def test_columns_stay_columns_until_a_single_key_of_theirs_is_used(
    use: Callable[[Transaction], object], form: type
) -> None:
    transaction = Transaction(MemoryBackend())
    for keys, values in (([b"c", b"a"], [b"1", b"2"]), ([b"b", b"a", b"b", b"a"], [b"9", b"9", b"4", None])):
        put_column(transaction, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert get_column(transaction, pa.array([b"a", b"c", b"x"], pa.binary())).to_pylist() == [None, b"1", None]
    use(transaction)
    assert type(transaction.changes) is form
    assert {b"a": None, b"b": b"4", b"c": b"1"}.items() <= dict(transaction.changes).items()
    transaction.commit()
    assert transaction.get_many([b"a", b"b", b"c"]) == [None, b"4", b"1"]


def test_reads_of_columns_look_at_no_single_changes_that_lie_apart_from_them() -> None:
    transaction = Transaction(MemoryBackend())
    keys = pa.array([b"k%d" % number for number in range(10)], pa.binary())
    put_column(transaction, keys, keys)
    with mock.patch.object(ColumnChanges, "spans", side_effect=AssertionError("a single change was looked at")):
        for number in range(3):
            transaction.put(b"a%d" % number, b"1")
            assert get_column(transaction, keys) == keys
    transaction.put(b"k5", b"2")
    assert get_column(transaction, keys).to_pylist()[4:7] == [b"k4", b"2", b"k6"]
    transaction.rollback()
    put_column(transaction, keys[2:], keys[2:])
    transaction.put(b"k0", b"3")
    assert isinstance(transaction.sorted_changes, ColumnChanges)
    transaction.rollback()


@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_that_fails_keeps_the_changes_so_that_it_can_be_tried_again(applied: bool) -> None:
    plan = FaultPlan.at(1, Fault.APPLIED if applied else Fault.ERROR, Step.BACKEND_WRITE)
    backend = FaultyBackend(MemoryBackend(), plan)
    transaction = Transaction(backend)
    transaction.put(b"a", b"1")
    with pytest.raises(InjectedFault, match="number 1 fails on demand"):
        transaction.commit()
    assert backend.get(b"a") == (b"1" if applied else None)
    assert transaction.get(b"a") == b"1"
    transaction.commit()
    assert backend.get(b"a") == b"1"
    assert transaction.changes == {}


def test_leaving_the_with_block_drops_what_was_not_committed() -> None:
    backend = MemoryBackend()
    with Transaction(backend) as transaction:
        transaction.put(b"a", b"1")
        transaction.commit()
        transaction.put(b"a", b"2")
    assert backend.get(b"a") == b"1"


def test_a_scan_shows_the_changes_as_they_were_when_it_began() -> None:
    backend = MemoryBackend()
    backend.write({b"a": b"1", b"c": b"1", b"e": b"1"})
    transaction = Transaction(backend)
    transaction.put_many({b"b": b"2", b"c": None})
    scan = transaction.scan()
    transaction.put_many({b"a": None, b"d": b"3", b"e": b"3"})
    transaction.commit()
    assert list(scan) == [(b"a", b"1"), (b"b", b"2"), (b"e", b"1")]


_KEYS = st.integers(0, 9).map(lambda number: b"%d" % number)
_PUTS = st.dictionaries(_KEYS, st.none() | st.sampled_from([b"x", b"y"]), max_size=4)
_RANGES = st.tuples(st.none() | _KEYS, st.none() | _KEYS, st.booleans())


@given(_PUTS, st.lists(st.tuples(_PUTS, _RANGES, st.integers(0, 4)), max_size=6), st.booleans())
def test_scans_that_are_read_bit_by_bit_show_what_was_there_when_they_began(
    committed: dict[bytes, bytes | None], steps: list[tuple[dict[bytes, bytes | None], Any, int]], commits: bool
) -> None:
    transaction = Transaction(MemoryBackend())
    transaction.put_many(committed)
    transaction.commit()
    content = {key: value for key, value in committed.items() if value is not None}
    scans: list[tuple[Iterator[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = []
    for puts, (start, stop, reverse), taken in steps:
        for scan, left in scans:
            assert list(islice(scan, taken)) == left[:taken]
            del left[:taken]
        for key, value in puts.items():
            transaction.put(key, value)
        content = {key: value for key, value in (content | puts).items() if value is not None}
        inside = [key for key in sorted(content) if (start or b"") <= key and (stop is None or key < stop)]
        expected = [(key, content[key]) for key in inside]
        scans.append((transaction.scan(start, stop, reverse=reverse), expected[::-1] if reverse else expected))
        if start is not None and stop is not None:
            assert transaction.last(start, stop) == (expected[-1] if expected else None)
        if commits and taken == 4:
            transaction.commit()
    transaction.rollback()
    for scan, left in scans:
        assert list(scan) == left


def test_a_scan_that_is_dropped_has_read_few_of_the_changes() -> None:
    transaction = Transaction(MemoryBackend())
    transaction.put_many({b"k%04d" % number: b"1" for number in range(1000)})
    few = steps_of(lambda: next(transaction.scan(b"k0900", b"l")))
    assert steps_of(lambda: next(transaction.scan(b"k0100", b"l"))) < 2 * few
    assert steps_of(lambda: next(transaction.scan(b"k0100", b"l", reverse=True))) < 2 * few


def test_last_passes_over_many_deleted_entries() -> None:
    backend = MemoryBackend()
    backend.write({b"k%03d" % number: b"1" for number in range(100)})
    transaction = Transaction(backend)
    transaction.put_many({b"k%03d" % number: None for number in range(3, 100)})
    assert transaction.last(b"k", b"l") == (b"k002", b"1")
    transaction.put(b"k050", b"2")
    assert transaction.last(b"k", b"l") == (b"k050", b"2")
    assert transaction.last(b"k003", b"k050") is None


USES: dict[str, Callable[[Transaction], object]] = {
    "get": lambda transaction: transaction.get(b"a"),
    "get_many": lambda transaction: transaction.get_many([b"a"]),
    "put": lambda transaction: transaction.put(b"a", b"1"),
    "put_many": lambda transaction: transaction.put_many({b"a": b"1"}),
    "delete": lambda transaction: transaction.delete(b"a"),
    "delete_range": lambda transaction: transaction.delete_range(b"a", b"b"),
    "scan": lambda transaction: transaction.scan(),
    "last": lambda transaction: transaction.last(b"a", b"b"),
    "commit": lambda transaction: transaction.commit(),
    "rollback": lambda transaction: transaction.rollback(),
}


@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_closed_transaction_raises_store_closed_error(use: str) -> None:
    backend = MemoryBackend()
    backend.write({b"a": b"1"})
    transaction = Transaction(backend)
    transaction.put(b"b", b"1")
    transaction.close()
    transaction.close()
    with pytest.raises(StoreClosedError, match="the transaction is closed"):
        USES[use](transaction)


def test_a_transaction_over_a_closed_backend_raises_store_closed_error() -> None:
    backend = MemoryBackend()
    backend.write({b"a": b"1"})
    transaction = Transaction(backend)
    backend.close()
    for use in ("get", "get_many", "scan", "last"):
        with pytest.raises(StoreClosedError, match="the memory backend is closed"):
            USES[use](transaction)


def test_a_transaction_that_is_dropped_with_changes_is_reported_with_their_number() -> None:
    transaction = Transaction(MemoryBackend())
    transaction.put_many({b"a": b"1", b"b": b"2"})
    with pytest.warns(ResourceWarning, match="a transaction with 2 uncommitted changes was dropped"):
        del transaction


def test_a_transaction_that_was_committed_rolled_back_or_closed_is_not_reported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for end in (Transaction.commit, Transaction.rollback, Transaction.close):
            transaction = Transaction(MemoryBackend())
            transaction.put(b"a", b"1")
            end(transaction)
            del transaction
            gc.collect()

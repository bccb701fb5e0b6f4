"""The part of the suite about random histories: state machines against the oracle.

Rule of this module: expectations come from ``Oracle`` alone. Keys are few and made of few bytes, so that histories
come back to them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from millpond.stores.backend.column_changes import ColumnChanges, get_column, put_column
from millpond.stores.backend.contract import Backend, Changes, Entries
from millpond.stores.backend.transaction import Transaction
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.oracle import Entry, Oracle
from millpond.stores.testing.sentences import (
    DELETE_RANGE,
    FLUSHED,
    GET,
    GET_MANY,
    LAST,
    OPEN,
    PREFIX,
    RANGE,
    SEEN,
    SNAPSHOT,
)
from millpond.stores.testing.suite import Suite

_BYTES = st.sampled_from((0, 1, 97, 98, 254, 255))
KEYS = st.lists(_BYTES, min_size=1, max_size=3).map(bytes)
"""Keys that collide, with prefixes of each other among them."""

VALUES = st.one_of(st.binary(max_size=4), st.integers(1, 3000).map(bytes))
"""Small values, and some too large for a page of an engine."""

CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), VALUES), max_size=8)
SOME_CHANGES = CHANGES.filter(bool)
BOUNDS = st.one_of(st.none(), KEYS)


def _columns(changes: Changes) -> tuple[Any, Any]:
    """Return the keys and the values of changes."""
    return pa.array(list(changes), pa.binary()), pa.array(list(changes.values()), pa.binary())


class _Machine(RuleBasedStateMachine):
    """The rules of both machines: read everything that can be read, and keep scans open meanwhile."""

    scans = Bundle("scans")

    def reader(self) -> Any:
        """Return the object under test, which has ``get`` and ``scan``."""
        raise NotImplementedError

    def oracle(self) -> Oracle:
        """Return the oracle, whose content the object under test must show."""
        raise NotImplementedError

    @rule(key=KEYS)
    @GET
    def get(self, key: bytes) -> None:
        assert self.reader().get(key) == self.oracle().get(key)

    @rule(start=BOUNDS, stop=BOUNDS, reverse=st.booleans())
    @RANGE
    def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> None:
        entries = self.reader().scan(start, stop, reverse=reverse)
        check_same(entries, self.oracle().entries(start, stop, reverse=reverse))

    @rule(target=scans, start=BOUNDS, stop=BOUNDS, reverse=st.booleans(), steps=st.integers(0, 3))
    @SNAPSHOT
    def open_scan(self, start: bytes | None, stop: bytes | None, reverse: bool, steps: int) -> Any:
        expected = iter(self.oracle().entries(start, stop, reverse=reverse))
        scan = self.reader().scan(start, stop, reverse=reverse)
        for _ in range(steps):
            assert next(scan, None) == next(expected, None)
        return multiple((scan, expected))

    @rule(opened=consumes(scans))
    @SNAPSHOT
    def finish_scan(self, opened: tuple[Entries, Iterator[Entry]]) -> None:
        scan, expected = opened
        check_same(scan, expected)


class BackendMachine(_Machine):
    """A backend against the oracle."""

    def __init__(self, open_backend: Callable[[], Backend], persistent: bool) -> None:
        super().__init__()
        self._open = open_backend
        self._persistent = persistent
        self._oracle = Oracle()
        self._opened_scans = 0

    @initialize()
    @OPEN
    def begin(self) -> None:
        self._backend = self._open()

    def reader(self) -> Backend:
        return self._backend

    def oracle(self) -> Oracle:
        return self._oracle

    @rule(changes=CHANGES)
    @SEEN
    def write(self, changes: Changes) -> None:
        self._backend.write(changes)
        self._oracle.write(changes)

    @rule(changes=SOME_CHANGES)
    @SEEN
    def write_columns(self, changes: Changes) -> None:
        self._backend.write(ColumnChanges.of(*_columns(changes)))
        self._oracle.write(changes)

    @rule(keys=st.lists(KEYS, max_size=6))
    @GET_MANY
    def get_many(self, keys: list[bytes]) -> None:
        assert self._backend.get_many(keys) == list(map(self._oracle.get, keys))

    @rule(start=KEYS, stop=KEYS)
    @LAST
    def last(self, start: bytes, stop: bytes) -> None:
        assert self._backend.last(start, stop) == self._oracle.last(start, stop)

    @rule(start=KEYS, stop=KEYS)
    @DELETE_RANGE
    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._backend.delete_range(start, stop)
        self._oracle.delete_range(start, stop)

    @rule()
    @FLUSHED
    def flush(self) -> None:
        self._backend.flush()

    @PREFIX
    def teardown(self) -> None:
        self._backend.close()
        reopened = self._open()
        content = list(reopened.scan())
        reopened.close()
        check_same(content, self._oracle.entries() if self._persistent else [])


class TransactionMachine(_Machine):
    """A transaction over a backend against two oracles: the committed content, and the transaction's view."""

    def __init__(self, open_backend: Callable[[], Backend]) -> None:
        super().__init__()
        self._backend = open_backend()
        self._transaction = Transaction(self._backend)
        self._committed = Oracle()
        self._seen = Oracle()

    def reader(self) -> Transaction:
        return self._transaction

    def oracle(self) -> Oracle:
        return self._seen

    @rule(key=KEYS, value=st.one_of(st.none(), VALUES))
    @SEEN
    def put(self, key: bytes, value: bytes | None) -> None:
        self._transaction.put(key, value)
        self._seen.write({key: value})

    @rule(changes=CHANGES)
    @SEEN
    def put_many(self, changes: Changes) -> None:
        self._transaction.put_many(changes)
        self._seen.write(changes)

    @rule(changes=SOME_CHANGES)
    @SEEN
    def put_column(self, changes: Changes) -> None:
        put_column(self._transaction, *_columns(changes))
        self._seen.write(changes)

    @rule(keys=st.lists(KEYS, max_size=6))
    @GET_MANY
    def get_column(self, keys: list[bytes]) -> None:
        found = get_column(self._transaction, pa.array(keys, pa.binary()))
        assert found.to_pylist() == list(map(self._seen.get, keys))

    @rule(key=KEYS)
    @SEEN
    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)
        self._seen.write({key: None})

    @rule(start=KEYS, stop=KEYS)
    @DELETE_RANGE
    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._transaction.delete_range(start, stop)
        self._seen.delete_range(start, stop)

    @rule(keys=st.lists(KEYS, max_size=6))
    @GET_MANY
    def get_many(self, keys: list[bytes]) -> None:
        assert self._transaction.get_many(keys) == list(map(self._seen.get, keys))

    @rule(start=KEYS, stop=KEYS)
    @LAST
    def last(self, start: bytes, stop: bytes) -> None:
        assert self._transaction.last(start, stop) == self._seen.last(start, stop)

    @rule()
    @RANGE
    def changes_lead_from_what_is_committed_to_what_is_seen(self) -> None:
        replayed = Oracle(self._committed.content)
        replayed.write(self._transaction.changes)
        check_same(replayed.entries(), self._seen.entries())
        check_same(self._backend.scan(), self._committed.entries())

    @rule()
    @SEEN
    def commit(self) -> None:
        self._transaction.commit()
        self._committed = Oracle(self._seen.content)
        check_same(self._backend.scan(), self._committed.entries())

    @rule()
    @SEEN
    def rollback(self) -> None:
        self._transaction.rollback()
        self._seen = Oracle(self._committed.content)

    @PREFIX
    def teardown(self) -> None:
        self._transaction.close()
        content = list(self._backend.scan())
        self._backend.close()
        check_same(content, self._committed.entries())


class MachineSuite(Suite):
    """Random histories."""

    def test_random_histories_of_the_backend_agree_with_the_oracle(self, directory: Path) -> None:
        persistent = self.supplier().persistent
        self._run(directory, lambda open_backend: BackendMachine(open_backend, persistent))

    def test_random_histories_of_a_transaction_agree_with_the_oracle(self, directory: Path) -> None:
        self._run(directory, TransactionMachine)

    def _run(self, directory: Path, machine: Callable[[Callable[[], Backend]], RuleBasedStateMachine]) -> None:
        supplier = self.supplier()

        def fresh() -> RuleBasedStateMachine:
            delete_local_copy(supplier, directory)
            return machine(lambda: supplier.open(directory))

        run_state_machine_as_test(
            fresh,  # type: ignore[arg-type]  # a factory will do, says the documentation
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=30,
                deadline=None,
                report_multiple_bugs=False,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )

"""Entries with a time to live: what a plain dictionary with times answers, on any backend and after any restart."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond.errors import ConfigurationError
from millpond.stores import BYTES, INT64, StoreKind, StoreSpec, Transaction, open_backend
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.keys import DATA, INDEX, TIMERS
from millpond.stores.typed import expiry
from millpond.stores.typed.expiry import Expired
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.versions.versioned_columns import VersionedColumns

KEYS = st.sampled_from([b"", b"a", b"a\x00", b"b", b"\xff\xff"])
TTLS = st.none() | st.sampled_from([1, 3, 20])
STEPS = st.sampled_from([0, 0, 1, 2, 5, 30])
TIMESTAMPED: dict[str, Any] = {"kind": StoreKind.TIMESTAMPED_KEY_VALUE}
VERSIONED: dict[str, Any] = {"kind": StoreKind.VERSIONED, "history_retention": 4}


def spec(ttl: int | None, *, told: bool = False, **kind: Any) -> StoreSpec:
    expired = Expired.DELETE if told and ttl is not None else Expired.SILENT
    return StoreSpec("entries", **kind, key_serde=BYTES, value_serde=INT64, ttl=ttl, expired=expired)


class Entries(RuleBasedStateMachine):
    """A store whose puts come in the order of time, beside a dictionary."""

    backend = "memory"
    kind = TIMESTAMPED

    @initialize(ttl=TTLS, told=st.booleans())
    def begin(self, ttl: int | None, told: bool) -> None:
        self.directory = TemporaryDirectory()
        self.known: dict[bytes, tuple[int, int]] = {}
        self.told: set[tuple[bytes, int]] = set()
        self.expected: set[tuple[bytes, int]] = set()
        self.clock, self.seen, self.gone = 0, False, -1
        self.rows: Any = None
        self._open(ttl, told)

    def _open(self, ttl: int | None, told: bool) -> None:
        self.ttl, self.tells = ttl, told and ttl is not None
        if self.rows is None:
            rows = Path(self.directory.name) / "rows"
            self.rows = MemoryBackend() if self.backend == "memory" else open_backend(self.backend, rows)
        self.transaction = Transaction(self.rows)
        self.store: Any = spec(ttl, told=told, **self.kind).open(self.transaction)
        self._expire()

    def _expire(self) -> None:
        if self.ttl is None or not self.seen:
            return
        self.gone = max(self.gone, self.clock - self.ttl)
        for key, (_, time) in list(self.known.items()):
            if time <= self.gone:
                del self.known[key]
                self.expected.add((key, time))

    def _move(self, step: int) -> None:
        self.clock += step
        self.seen = self.seen or self.store.expiry is not None
        self._expire()

    @rule(key=KEYS, value=st.integers(0, 9), step=STEPS)
    def put(self, key: bytes, value: int, step: int) -> None:
        self._move(step)
        self.store.put(key, value, self.clock)
        self.known[key] = (value, self.clock)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), value=st.none() | st.integers(0, 9), step=STEPS)
    def put_many(self, keys: list[bytes], value: int | None, step: int) -> None:
        self._move(step)
        self.store.put_many(keys, [value] * len(keys), [self.clock] * len(keys))
        self._known(keys, value)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), value=st.none() | st.integers(0, 9), step=STEPS)
    def put_columns(self, keys: list[bytes], value: int | None, step: int) -> None:
        self._move(step)
        times = np.full(len(keys), self.clock, np.int64)
        values = pa.array([value] * len(keys), pa.int64())
        self._columns().put(pa.array(keys, pa.binary()), values, times)
        self._known(keys, value)

    def _columns(self) -> Any:
        keys, values = column_serde(BYTES), column_serde(INT64)
        assert keys is not None
        assert values is not None
        made = VersionedColumns if self.kind is VERSIONED else TimestampedColumns
        return made(self.store, keys, values)

    def _known(self, keys: list[bytes], value: int | None) -> None:
        for key in keys:
            self.known.pop(key, None)
            if value is not None:
                self.known[key] = (value, self.clock)

    @rule(step=STEPS)
    def observe(self, step: int) -> None:
        if self.store.expiry is not None:
            self._move(step)
            self.store.expiry.observe(self.clock)

    @rule()
    def take(self) -> None:
        if self.tells:
            taken = [(key, time) for key, _, time in self.store.take_expired()]
            assert len(set(taken)) == len(taken)
            assert not self.told.intersection(taken)
            self.told.update(taken)

    @rule()
    def commit(self) -> None:
        self.store.flush()
        self.transaction.commit()
        read: Any = spec(self.ttl, **self.kind).open_read_only(Transaction(self.rows))
        assert read.get_many(list(self.known)) == list(self.known.values())

    @rule(ttl=TTLS, told=st.booleans())
    def restart(self, ttl: int | None, told: bool) -> None:
        self.store.flush()
        self.transaction.commit()
        self.store.close()
        if self.backend != "memory":
            self.rows.close()
            self.rows = None
        self._open(ttl, told)

    @invariant()
    def reads_agree(self) -> None:
        if not hasattr(self, "known"):
            return
        if self.ttl is not None and self.known:
            assert self.store.expiry.due <= min(time for _, time in self.known.values()) + self.ttl
        latest = [(key, one) for key, one in self.store.scan() if getattr(one, "valid_to", None) is None]
        found = {key: (one.value, one.timestamp) for key, one in latest}
        assert found == self.known
        every = [b"", b"a", b"a\x00", b"b", b"\xff\xff"]
        assert self.store.get_many(every) == [self.known.get(key) for key in every]
        assert [self.store.get_value(key) for key in every] == [self.known.get(key, (None,))[0] for key in every]
        one = self.store.get(b"a")
        assert (None if one is None else (one.value, one.timestamp)) == self.known.get(b"a")
        values, times = self._columns().get(pa.array(every))
        assert values.to_pylist() == [self.known.get(key, (None,))[0] for key in every]
        assert times.to_pylist() == [self.known.get(key, (None, None))[1] for key in every]
        if self.ttl is not None and self.kind is VERSIONED and self.seen:
            later = self.clock + self.ttl - 1
            as_of = [None if self.known.get(key, (0, -1))[1] + self.ttl <= later else 1 for key in every]
            assert [one and 1 for one in self.store.get_many_as_of(every, [later] * len(every))] == as_of
        if self.kind is VERSIONED:
            times = [self.clock - 1] * len(every) + [self.clock] * len(every)
            then = self.store.get_many_as_of(every * 2, times)
            values, since = self._columns().get_as_of(pa.array(every * 2), np.array(times))
            assert values.to_pylist() == [one and one.value for one in then]
            assert since.to_pylist() == [one and one.timestamp for one in then]
        self.store.check()

    def teardown(self) -> None:
        if not hasattr(self, "known"):
            return
        if self.ttl is not None:
            self.store.flush()
            self.store.expiry.observe(self.clock + 1_000_000)
            for _ in range(40):
                if self.tells:
                    self.store.take_expired()
                self.store.flush()
                self.transaction.commit()
            assert [row for row, _ in self.rows.scan(TIMERS)] == []
            if self.kind is TIMESTAMPED:
                assert [row for row, _ in self.rows.scan(DATA, INDEX)] == []
        self.store.close()
        self.transaction.close()
        self.rows.close()
        self.directory.cleanup()


@pytest.mark.first
@pytest.mark.parametrize("kind", [TIMESTAMPED, VERSIONED], ids=["timestamped", "versioned"])
@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_a_store_whose_entries_expire_is_a_dictionary_that_forgets(
    backend: str, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "LEAST_STEP", 2)
    machine: Any = type("Machine", (Entries,), {"backend": backend, "kind": kind})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    examples = 25 if backend == "memory" else 5
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=checks, database=None,
            derandomize=True,
        ),
    )  # fmt: skip


def test_an_entry_is_gone_when_time_is_the_ttl_past_its_last_update() -> None:
    with Transaction(MemoryBackend()) as transaction:
        store: Any = spec(10, **TIMESTAMPED).open(transaction)
        store.put(b"a", 1, 5)
        store.put(b"b", 2, 14)
        assert store.get(b"a") == (1, 5)
        store.put(b"b", 2, 15)
        assert (store.get(b"a"), store.len_estimate()) == (None, 1)


def test_a_version_that_has_expired_is_seen_as_of_its_time_as_far_as_the_history_reaches() -> None:
    backend = MemoryBackend()
    kind = {**VERSIONED, "history_retention": 100}
    for time in (0, 50, 100):
        with Transaction(backend) as transaction:
            store: Any = spec(10, **kind).open(transaction)
            store.put(b"a" if time == 0 else b"b", 1, time)
            found = [None if one is None else one.value for one in (store.get(b"a"), store.get(b"a", 5))]
            assert found == [1 if time == 0 else None, 1]
            store.flush()
            transaction.commit()


def test_a_version_ends_with_the_next_one_or_when_it_expires() -> None:
    with Transaction(MemoryBackend()) as transaction:
        store: Any = spec(10, **{**VERSIONED, "history_retention": 1_000}).open(transaction)
        for time in (0, 5, 50):
            store.put(b"a", time, time)
        assert {one.timestamp: one.valid_to for one in store.history(b"a")} == {0: 5, 5: 15, 50: None}


def test_expired_entries_are_told_in_the_order_of_their_times() -> None:
    with Transaction(MemoryBackend()) as transaction:
        store: Any = spec(10_000_000, told=True, **TIMESTAMPED).open(transaction)
        puts = [(b"c", 7, 1), (b"b", 8, 2), (b"d", 9, 2), (b"a", 6, 3)]
        for put in puts:
            store.put(*put)
        store.expiry.observe(20_000_000)
        assert store.take_expired() == puts


def test_a_commit_removes_a_bounded_number_of_entries_and_the_next_ones_the_rest() -> None:
    backend = MemoryBackend()
    with Transaction(backend) as transaction:
        store: Any = spec(10, **TIMESTAMPED).open(transaction)
        many = [number.to_bytes(4, "big") for number in range(5_000)]
        store.put_many(many, [1] * len(many), [0] * len(many))
        store.flush()
        transaction.commit()
        store.put(b"later", 1, 10)
        assert [key for key, _ in store.scan()] == [b"later"]
        sizes = []
        for _ in range(8):
            store.flush()
            sizes.append(transaction.changed_keys)
            transaction.commit()
    assert max(sizes) < 2 * expiry.LEAST_STEP + 10
    assert [row for row, _ in backend.scan(DATA, INDEX)] == [DATA + b"later"]


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.SESSION])
def test_a_store_without_times_of_its_entries_has_no_ttl(kind: StoreKind) -> None:
    limits: dict[str, Any] = {"retention": 5} if kind is StoreKind.SESSION else {}
    with pytest.raises(ConfigurationError, match="has no ttl; leave it out, or choose the kind timestamped-key-value"):
        StoreSpec("entries", kind, BYTES, INT64, ttl=5, **limits)
    assert StoreSpec("entries", StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, INT64, ttl=5).ttl == 5


def test_whoever_says_what_expires_says_when() -> None:
    with pytest.raises(ConfigurationError, match="none expires; give a ttl, or leave out expired"):
        StoreSpec("entries", StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, INT64, expired=Expired.DELETE)
    with pytest.raises(ConfigurationError, match="expired is 'loud'; give 'silent' or 'delete'"):
        Expired.of("loud")

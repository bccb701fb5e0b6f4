"""The promises of all typed stores: null keys, closing, leaked scans, metadata, transactions."""

from dataclasses import replace
from typing import Any

import pytest

from millpond.errors import ConfigurationError, CorruptStoreError, InvalidKeyError, StoreClosedError
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import COMMIT_ROW, LAYOUT_ROW, TERMS_ROW
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.testing.store_calls import KINDS, Call, KindUnderTest, Seeded
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.store import KEPT
from millpond.stores.typed.windows.windowed import Windowed

each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])


class WithValues(Seeded):
    """Choices that never delete."""

    def value(self) -> str | None:
        return "v"


def calls_of_every_method(kind: KindUnderTest) -> list[Call]:
    choices = WithValues(1)
    return [Call(name, arguments(choices), {}) for name, arguments in {**kind.reads, **kind.writes}.items()]


def with_null_key(call: Call) -> Call:
    first: Any = call.arguments[0]
    null: Any = [None] if isinstance(first, list) else Windowed(None, *first[1:]) if isinstance(first, tuple) else None
    if call.method == "put_all":
        null = [(None, None)]
    rest = [argument[:1] if isinstance(argument, list) else argument for argument in call.arguments[1:]]
    return call._replace(arguments=(null, *rest))


def used(kind: KindUnderTest, transaction: Transaction) -> Any:
    """Return a store of which every method has been called."""
    store = kind.spec.open(transaction)
    for call in calls_of_every_method(kind):
        call(store)
    return store


@each_kind
def test_a_null_key_is_refused_by_every_method_that_takes_one(kind: KindUnderTest, transaction: Transaction) -> None:
    store = kind.spec.open(transaction)
    optional = {"scan", "len_estimate", "fetch_keys", "fetch_all", "find_sessions_of_keys", "find_sessions_ended"}
    for call in calls_of_every_method(kind):
        if call.method not in optional:
            with pytest.raises(InvalidKeyError, match="'tested' cannot hold the key None"):
                with_null_key(call)(store)
    assert not transaction.changes


@each_kind
def test_a_closed_store_raises_the_same_error_from_every_method(kind: KindUnderTest, transaction: Transaction) -> None:
    store = kind.spec.open(transaction)
    store.close()
    store.close()
    for call in calls_of_every_method(kind):
        with pytest.raises(StoreClosedError, match="'tested' is closed"):
            call(store)
    with pytest.raises(StoreClosedError):
        store.check()
    with pytest.raises(StoreClosedError):
        store.get_metadata("mark")


@each_kind
def test_a_store_is_a_context_manager_and_names_itself(kind: KindUnderTest, transaction: Transaction) -> None:
    with kind.spec.open(transaction) as store:
        assert "'tested'" in repr(store)
    with pytest.raises(StoreClosedError):
        store.check()


@each_kind
def test_nothing_reaches_the_backend_before_the_commit(kind: KindUnderTest, transaction: Transaction) -> None:
    store = used(kind, transaction)
    store.flush()
    assert list(transaction.backend.scan()) == []
    transaction.commit()
    kind.spec.open(transaction).check()
    assert list(transaction.backend.scan()) != []


@each_kind
def test_an_idle_store_flushes_nothing(kind: KindUnderTest, transaction: Transaction) -> None:
    store = used(kind, transaction)
    store.flush()
    transaction.commit()
    store.flush()
    kind.spec.open(transaction).flush()
    assert not transaction.changes


@each_kind
def test_a_scan_left_open_is_reported_when_the_store_closes(kind: KindUnderTest, transaction: Transaction) -> None:
    store: Any = kind.spec.open(transaction)
    scan = store.scan() if hasattr(store, "scan") else store.fetch_keys()
    with pytest.warns(ResourceWarning, match="store 'tested'.*1 open scan"):
        store.close()
    with pytest.raises(StoreClosedError):
        next(scan)


@each_kind
def test_a_damaged_row_is_found_by_check(kind: KindUnderTest, transaction: Transaction) -> None:
    store = used(kind, transaction)
    transaction.put(b"\x01\xff", b"\xff")
    with pytest.raises(CorruptStoreError, match=r"'tested' has a damaged"):
        store.check()


@each_kind
def test_a_value_that_its_serde_cannot_read_is_found_by_check(kind: KindUnderTest, transaction: Transaction) -> None:
    store = used(kind, transaction)
    store.flush()
    store.check()
    with pytest.raises(CorruptStoreError, match=r"'tested' has a damaged"):
        replace(kind.spec, value_serde=INT64).open(transaction).check()


def test_metadata_is_a_row_that_commits_with_the_entries_and_is_no_entry(transaction: Transaction) -> None:
    store: Any = KINDS[0].spec.open(transaction)
    assert store.get_metadata("mark") is None
    store.put_metadata("mark", b"1")
    assert store.get_metadata("mark") == b"1"
    assert dict(transaction.changes) == {b"\x00mark": b"1"}
    assert list(store.scan()) == []
    assert store.len_estimate() == 0


@pytest.mark.parametrize("row", [COMMIT_ROW, LAYOUT_ROW, TERMS_ROW])
def test_metadata_cannot_take_the_rows_of_the_local_position_the_layout_and_the_terms(
    transaction: Transaction, row: bytes
) -> None:
    store = KINDS[0].spec.open(transaction)
    name = row[1:].decode()
    with pytest.raises(ConfigurationError, match="taken"):
        store.put_metadata(name, b"")
    with pytest.raises(ConfigurationError, match="taken"):
        store.get_metadata(name)


@pytest.mark.parametrize("name", [f"{name}0" if name.endswith("-") else name for name in KEPT])
def test_metadata_cannot_take_a_name_under_which_the_library_keeps_its_own_and_that_takes_no_other(
    transaction: Transaction, name: str
) -> None:
    store: Any = KINDS[0].spec.open(transaction)
    with pytest.raises(ConfigurationError, match=r"is taken by .*; choose another"):
        store.put_metadata(name, b"mine")
    store.keep_metadata(name, b"own")
    assert store.get_metadata(name) == b"own"
    with pytest.raises(AssertionError, match=r"KEPT does not list"):
        store.keep_metadata(f"my {name}", b"own")
    store.put_metadata(f"my {name}", b"mine")


def test_a_key_that_its_serde_cannot_read_back_is_found_by_check(transaction: Transaction) -> None:
    KeyValueStore("other", transaction, STRING, STRING).put("abc", "1")
    with pytest.raises(CorruptStoreError):
        KeyValueStore("tested", transaction, INT64, STRING).check()

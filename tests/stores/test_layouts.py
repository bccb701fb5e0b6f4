"""Layouts: the row that tells one comes with the first change, and rows of another are refused by number."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import ConfigurationError, CorruptStoreError, FormatError
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.registry import open_backend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.keys import COMMIT_ROW, LAYOUT_ROW
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.testing.store_calls import KINDS, KindUnderTest
from millpond.stores.typed.layouts import Layout

PEBBLES = Layout("pebbles", 1)
SPEC = replace(KINDS[0].spec, layout=PEBBLES)
TOLD = b"\x00\x00\x00\x01pebbles"


@pytest.fixture(params=["memory", "lmdb", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with open_backend(request.param, tmp_path / "store") as opened:
        yield opened


def committed(spec: StoreSpec, backend: Backend) -> None:
    with Transaction(backend) as transaction:
        store: Any = spec.open(transaction)
        store.put("a", "1")
        store.flush()
        transaction.commit()


def refusal(spec: StoreSpec, backend: Backend) -> str:
    with Transaction(backend) as transaction, pytest.raises(FormatError) as refused:
        spec.open(transaction)
    return refused.value.sentence


def reads(spec: StoreSpec, backend: Backend) -> bool:
    """Return whether what is advised to read the rows does so: another release, or the topology's spec."""
    with Transaction(backend) as transaction:
        store: Any = spec.open(transaction)
        return list(store.scan()) == [("a", "1")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spec.kind.value)
def test_a_store_of_any_kind_tells_its_layout_with_the_first_change(
    kind: KindUnderTest, transaction: Transaction
) -> None:
    store = replace(kind.spec, layout=PEBBLES).open(transaction)
    store.put_metadata("mark", b"")
    store.flush()
    assert transaction.changes[LAYOUT_ROW] == TOLD


def test_without_a_change_there_is_nothing_to_commit(transaction: Transaction) -> None:
    SPEC.open(transaction).flush()
    assert not transaction.changes


def test_a_layout_is_told_once(backend: Backend) -> None:
    committed(SPEC, backend)
    with Transaction(backend) as transaction:
        store: Any = SPEC.open(transaction)
        store.put("b", "2")
        store.flush()
        assert len(transaction.changes) == 1
        assert store.get("a") == "1"
        store.check()


def test_a_later_number_is_refused_with_both_numbers(backend: Backend) -> None:
    committed(replace(SPEC, layout=Layout("pebbles", 2)), backend)
    assert refusal(SPEC, backend) == (
        "store 'tested' holds the layout 'pebbles' in version 2, but this release reads the layout 'pebbles' in "
        "version 1; run the release that wrote it or a newer one, and delete nothing"
    )
    assert reads(replace(SPEC, layout=Layout("pebbles", 2)), backend)


def test_another_layout_is_refused_by_name(backend: Backend) -> None:
    committed(replace(SPEC, layout=Layout("gravel", 1)), backend)
    assert "'gravel' in version 1, but this release reads the layout 'pebbles'" in refusal(SPEC, backend)


def test_rows_without_a_number_are_refused_where_one_is_expected(backend: Backend) -> None:
    committed(replace(SPEC, layout=None), backend)
    assert refusal(SPEC, backend) == (
        "store 'tested' holds rows without a layout's number (version 0), but this release reads the layout 'pebbles' "
        "in version 1; run the release that wrote them, and delete nothing"
    )
    assert reads(replace(SPEC, layout=None), backend)


def test_rows_of_a_layout_are_refused_by_a_spec_without_one(backend: Backend) -> None:
    committed(SPEC, backend)
    refused = refusal(replace(SPEC, layout=None), backend)
    assert refused.endswith("was opened without a layout; take its spec from the topology")
    assert reads(SPEC, backend)


def test_the_position_of_a_local_copy_is_no_row_of_a_layout(backend: Backend) -> None:
    backend.write({COMMIT_ROW: b"somewhere"})
    with Transaction(backend) as transaction:
        SPEC.open(transaction)


def test_a_damaged_layout_row_is_no_number(backend: Backend) -> None:
    backend.write({LAYOUT_ROW: b"\x00\x00"})
    with Transaction(backend) as transaction, pytest.raises(CorruptStoreError, match=r"'tested' has a damaged"):
        SPEC.open(transaction)


@pytest.mark.parametrize(("name", "version"), [("", 1), ("pebbles", 0), ("pebbles", 2**32)])
def test_a_layout_has_a_name_and_a_number(name: str, version: int) -> None:
    with pytest.raises(ConfigurationError, match="no layout"):
        Layout(name, version)

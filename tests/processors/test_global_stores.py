"""Global stores of every kind, as processors see them that do not fill them."""

import pytest

from millpond.errors import TopologyError
from millpond.processors.runtime.tasks.global_stores import as_reader
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.testing.store_calls import KINDS, KindUnderTest


@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_a_reader_sees_what_is_written_and_writes_nothing(kind: KindUnderTest) -> None:
    transaction = Transaction(MemoryBackend())
    store = kind.spec.open(transaction)
    reader = as_reader(store, kind.spec.kind)
    assert isinstance(reader, type(store))
    assert [method for method in kind.reads if not hasattr(reader, method)] == []
    for method in kind.writes:
        with pytest.raises(TopologyError, match=f"'{store.name}' is global: .* may call {method};"):
            getattr(reader, method)("anything", 1, 2)
    assert not transaction.changes

"""The kit proves every sentence of the contract that can be proved."""

import inspect
import re

import pytest

from millpond.stores.backend import contract
from millpond.stores.testing import BackendSuite
from millpond.stores.testing import sentences as catalog
from millpond.stores.testing.contract import ContractBroken, says, sentences, unproved
from millpond.stores.testing.suite import Suite

SOURCES = (
    contract.Backend,
    contract.Backend.get,
    contract.Backend.scan,
    contract.Backend.write,
    contract.Backend.flush,
    contract.Backend.close,
    contract.Backend.get_many,
    contract.Backend.last,
    contract.Backend.delete_range,
    contract.Backend.load,
    contract.Backend.entry_count,
    contract.Backend.memory_use,
    contract.SupportsMemoryBudget.with_memory_budget,
    contract.SupportsMemoryBudget.limit_memory,
    contract.BackendSupplier,
    contract.BackendSupplier.from_options,
    contract.BackendSupplier.open,
    contract.BackendSupplier.destroy,
)

DEFINITIONS = {
    ("Backend.memory_use", "Only rows that lie nowhere but in this process's memory count."),
    ("Backend.memory_use", "It is asked after each micro-batch, so it should not need a scan to answer."),
    (
        "Backend",
        "Five are an engine's own; the others are made of them, and an engine that has a faster way overrides them.",
    ),
    (
        "BackendSupplier.destroy",
        "A supplier whose stores are whole in their directories leaves this method as it is.",
    ),
    ("Backend", "One ordered map of bytes to bytes."),
    ("BackendSupplier", "It travels to the workers that open it."),
    (
        "BackendSupplier",
        "Registered under the entry-point group ``millpond.backends``; see ``millpond.stores.backend.registry``.",
    ),
}
DUTIES_OF_THE_CALLER = {
    ("Backend", "Keys are never empty."),
    ("Backend", "A backend is used by one thread at a time."),
    ("BackendSupplier.destroy", "Nobody has it open then."),
    ("Backend.load", "Need not be atomic: after a failure the caller throws the backend's directory away."),
}
OF_ONE_ENGINE = {
    # Only an engine itself knows what its cache holds: tests/contract/test_rocksdb.py asks it.
    ("SupportsMemoryBudget.limit_memory", "Keep to ``size`` bytes of the budget from now on, in this process."),
}
PROMISES_NOTHING = {
    ("Backend.write", "A loss of power may lose or damage anything while there are writes that were not flushed."),
}


def test_every_sentence_of_the_contract_has_a_test_that_quotes_it() -> None:
    assert unproved(*SOURCES) == DEFINITIONS | DUTIES_OF_THE_CALLER | OF_ONE_ENGINE | PROMISES_NOTHING


def test_every_quotation_is_used_by_a_test() -> None:
    parts = [part for part in BackendSuite.__mro__ if issubclass(part, Suite)]
    code = "".join(inspect.getsource(part) for part in parts)
    quotations = [name for name, value in vars(catalog).items() if isinstance(value, says)]
    assert len(quotations) > 30
    assert [name for name in quotations if not re.search(rf"\b{name}\b", code)] == []


def test_every_method_of_the_contract_is_among_the_sources() -> None:
    parts = [contract.Backend, contract.BackendSupplier]
    parts += [part for name, part in vars(contract).items() if name.startswith("Supports")]
    methods = {
        f"{part.__name__}.{name}"
        for part in parts
        for name, member in vars(part).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, classmethod))
    }
    assert methods <= {source.__qualname__ for source in SOURCES}


def test_a_sentence_that_the_contract_does_not_say_cannot_be_quoted() -> None:
    with pytest.raises(LookupError, match=r"does not say 'Keys are sorted by length\.'"):
        says(contract.Backend, "Keys are sorted by length.")


def test_a_failure_begins_with_the_sentence_that_is_broken() -> None:
    quote = says(contract.Backend.get, "Return the value of ``key``, or None where there is none.")
    with (
        pytest.raises(ContractBroken, match=r"^Backend.get says: Return the value of ``key``, .*\nKeyError: 'x'"),
        quote,
    ):
        raise KeyError("x")


def test_sentences_end_at_full_stops_before_a_capital_or_a_name_in_code() -> None:
    def example() -> None:
        """One thing, e.g. this. ``Two`` things:
        with a list. Three.
        """  # noqa: D205

    assert sentences(example) == ["One thing, e.g. this.", "``Two`` things: with a list.", "Three."]

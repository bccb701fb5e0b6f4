"""The part of the suite about suppliers: options, budgets, leftovers of a deleted store, and opt-outs."""

import pickle
from pathlib import Path
from typing import Any, Final

from millpond.errors import ConfigurationError
from millpond.stores.backend.contract import SupportsMemoryBudget
from millpond.stores.specs.directory import delete_local_copy
from millpond.stores.testing.features import Feature
from millpond.stores.testing.sentences import (
    BAD_OPTION,
    BAD_OPTION_NAMED,
    DESTROY,
    DESTROY_ALONE,
    DESTROY_NOTHING,
    FROM_OPTIONS,
    GOES_ON,
    OTHER_BUDGET,
    PICKLABLE,
    WITH_BUDGET,
)
from millpond.stores.testing.suite import Suite, raised

_BUDGET: Final = 256 * 2**20


class SupplierSuite(Suite):
    """Suppliers, before they open a store and after it is gone."""

    def test_the_suite_opts_out_of_features_by_name_and_for_a_reason(self) -> None:
        for feature, reason in self.opt_outs.items():
            assert isinstance(feature, Feature), f"there is no feature {feature!r}, only {', '.join(map(str, Feature))}"
            assert isinstance(reason, str), f"opt_outs[{feature!r}] must be the reason, in words"
            assert reason.strip(), f"opt_outs[{feature!r}] must say why the backend does not have it"

    @PICKLABLE
    def test_a_supplier_survives_a_pickle(self, directory: Path) -> None:
        supplier = pickle.loads(pickle.dumps(self.supplier()))
        assert type(supplier) is type(self.supplier())
        assert supplier.name == self.supplier().name
        with supplier.open(directory) as backend:
            backend.write({b"a": b"1"})
            assert backend.get(b"a") == b"1"

    @FROM_OPTIONS
    def test_from_options_without_options_gives_a_supplier_that_opens(self, directory: Path) -> None:
        supplier = type(self.supplier()).from_options({})
        assert type(supplier) is type(self.supplier())
        if Feature.DEFAULTS not in self.opt_outs:
            with supplier.open(directory) as backend:
                assert list(backend.scan()) == []

    @WITH_BUDGET
    def test_a_memory_budget_is_that_of_a_store_which_had_none_and_may_be_limited(self, directory: Path) -> None:
        supplier = type(self.supplier()).from_options({})
        if not isinstance(supplier, SupportsMemoryBudget):
            return
        value = b"1" if supplier.persistent else None
        with supplier.open(directory) as backend:
            backend.write({b"a": b"1"})
            backend.flush()
        within: Any = supplier.with_memory_budget(_BUDGET)
        with pickle.loads(pickle.dumps(within)).open(directory) as backend:
            assert backend.get(b"a") == value
            with GOES_ON:
                for size in (_BUDGET // 2, _BUDGET):
                    within.limit_memory(size)
                    backend.write({b"b": b"%d" % size})
                    assert (backend.get(b"a"), backend.get(b"b")) == (value, b"%d" % size)

    def test_a_supplier_has_one_memory_budget(self) -> None:
        supplier = type(self.supplier()).from_options({})
        if isinstance(supplier, SupportsMemoryBudget):
            with WITH_BUDGET:
                within: Any = supplier.with_memory_budget(_BUDGET)
                within.with_memory_budget(_BUDGET)
            with OTHER_BUDGET:
                refusal = raised(lambda: within.with_memory_budget(2 * _BUDGET))
                assert isinstance(refusal, ConfigurationError), f"with_memory_budget raises {refusal!r}"

    def test_an_unknown_option_is_refused_by_name(self) -> None:
        with BAD_OPTION:
            refusal = raised(lambda: type(self.supplier()).from_options({"no_such_option": "1"}))
            assert isinstance(refusal, ConfigurationError), f"from_options raises {refusal!r}"
        with BAD_OPTION_NAMED:
            assert "no_such_option" in str(refusal)

    @DESTROY
    def test_destroy_deletes_what_a_store_has_outside_and_nothing_else(self, directory: Path) -> None:
        supplier, other = self.supplier(), directory.with_name("other")
        before = sorted(map(repr, self.outside()))
        for place in (other, directory):
            with self.open(place) as backend:
                backend.write({b"place": place.name.encode()})
                backend.flush()
        with DESTROY:
            delete_local_copy(supplier, directory)
            with self.open(directory) as backend:
                assert list(backend.scan()) == []
            delete_local_copy(supplier, directory)
        if supplier.persistent:
            with DESTROY_ALONE, self.open(other) as backend:
                assert list(backend.scan()) == [(b"place", b"other")]
        with DESTROY:
            delete_local_copy(supplier, other)
            assert sorted(map(repr, self.outside())) == before, "something is left outside"

    @DESTROY_NOTHING
    def test_destroy_of_what_is_no_store_is_no_error(self, directory: Path, tmp_path: Path) -> None:
        supplier = self.supplier()
        supplier.destroy(directory)
        empty, damaged = tmp_path / "empty", tmp_path / "damaged"
        empty.mkdir()
        supplier.destroy(empty)
        self.open(damaged).close()
        files = {path: path.read_bytes() for path in damaged.glob("**/*") if path.is_file()}
        for path in files:
            path.write_bytes(b"\xa5" * 100)
        supplier.destroy(damaged)
        for path, content in files.items():
            path.write_bytes(content)

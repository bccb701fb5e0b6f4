"""The names that can be imported from ``millpond.stores`` itself, and what comes with them."""

import subprocess
import sys
from importlib import import_module

import pytest

from millpond import stores
from millpond.stores.backend import contract as backend
from millpond.stores.specs.store_spec import StoreKind

MODULES_FOR_OTHERS = (
    "backend",
    "backend.engine",
    "backend.long_keys",
    "backend.memory",
    "backend.options",
    "backend.registry",
    "backend.transaction",
    "durability",
    "encoding.keys",
    "encoding.serdes",
    "specs.formats",
    "specs.store_spec",
    "testing",
)
NOT_LOADED = ("pyarrow", "numpy", "pytest", "hypothesis", "lmdb", "rocksdict", "pyspark")


def test_the_public_names_are_sorted_and_there() -> None:
    assert stores.__all__ == sorted(set(stores.__all__))
    assert [name for name in stores.__all__ if not hasattr(stores, name)] == []


def test_every_kind_of_store_is_public_with_its_reading_half() -> None:
    classes = {cls.__name__ for kind in StoreKind for cls in (kind.traits.store, kind.traits.read_only)}
    assert len(classes) == 2 * len(StoreKind)
    assert classes <= set(stores.__all__)


def test_the_contract_of_backends_is_public() -> None:
    contract = {name for name in vars(backend) if name.startswith(("Backend", "Supports"))}
    assert contract <= set(stores.__all__)


@pytest.mark.parametrize("module", MODULES_FOR_OTHERS)
def test_the_modules_that_authors_of_backends_and_jobs_use_keep_their_paths(module: str) -> None:
    assert import_module(f"millpond.stores.{module}").__doc__


def test_importing_the_stores_loads_no_engine_no_arrow_and_no_test_tools() -> None:
    script = f"import sys, millpond.stores; print([name for name in {NOT_LOADED!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The kit finds the faults that a generator plants, over all methods of the contract and of the optional protocols."""

import random
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from millpond.stores.backend.contract import OVERRIDABLE, BackendSupplier
from millpond.stores.testing import BackendSuite, ContractBroken
from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.damage import DamageSuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.machines import MachineSuite
from millpond.stores.testing.places import PlaceSuite
from millpond.stores.testing.power import PowerSuite
from millpond.stores.testing.processes import ProcessSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.suppliers import SupplierSuite
from millpond.stores.testing.writes import WriteSuite
from tests.contract.kit_in_process import first_failure
from tests.contract.outside import away
from tests.contract.planted import Plant, plants, supplier

SAMPLE: Final = 20
CHEAP: Final[Sequence[type[Any]]] = (ReadSuite, ScanSuite, WriteSuite)
DEAR: Final[Sequence[type[Any]]] = (
    SupplierSuite,
    CapabilitySuite,
    PlaceSuite,
    LifecycleSuite,
    DamageSuite,
    PowerSuite,
    ProcessSuite,
)
ALL: Final[Sequence[type[Any]]] = (*CHEAP, *DEAR, MachineSuite)
FIRST: Final[dict[str, Sequence[type[Any]]]] = {
    **dict.fromkeys(("get_many", "last", "delete_range"), (ReadSuite, CapabilitySuite)),
    **dict.fromkeys(("load", "entry_count", "memory_use"), (CapabilitySuite,)),
    **dict.fromkeys(("flush", "close"), (LifecycleSuite, PowerSuite)),
    **dict.fromkeys(("open", "destroy", "from_options"), (SupplierSuite, PlaceSuite)),
}
"""The parts in which the faults of a method are likely to show; the others come after them."""


def suite_of(plant: Plant) -> BackendSuite:
    class Planted(BackendSuite):
        examples = 30

        def supplier(self) -> BackendSupplier:
            return supplier(plant)

        def outside(self) -> Collection[object]:
            root = getattr(self.supplier(), "root", None)
            return list(Path(root).iterdir()) if root and Path(root).is_dir() else ()

        def unreachable(self) -> AbstractContextManager[object] | None:
            root = getattr(self.supplier(), "root", None)
            return away(root) if root else None

    return Planted()


def parts_for(plant: Plant) -> Sequence[type[Any]]:
    first: Sequence[type[Any]] = FIRST.get(plant.method, CHEAP)
    if plant.when in ("once it is closed", "in another thread"):
        first = (LifecycleSuite,)
    return [*first, *(part for part in ALL if part not in first)]


def told(plant: Plant, place: Path) -> str | None:
    """Return what is wrong with the kit's answer to a fault; None if nothing is."""
    failure = first_failure(suite_of(plant), parts_for(plant), place)
    if isinstance(failure, ContractBroken):
        return None
    return f"{plant}: " + ("lives" if failure is None else f"{type(failure).__name__}: {failure}")


def check(chosen: Sequence[Plant], place: Path) -> None:
    answers = [told(plant, place / str(number)) for number, plant in enumerate(chosen)]
    assert [answer for answer in answers if answer is not None] == []


def test_faults_are_planted_in_every_method() -> None:
    found = plants()
    assert len(set(found)) == len(found) > 160
    methods = {"get", "scan", "write", "flush", "close", "open", "destroy", "from_options"}
    assert methods.union(OVERRIDABLE) <= {plant.method for plant in found}


def test_planted_faults_are_found_in_a_sample(tmp_path: Path) -> None:
    check(random.Random(41).sample(plants(), SAMPLE), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("method", sorted({plant.method for plant in plants()}))
def test_every_planted_fault_is_found(method: str, tmp_path: Path) -> None:
    check([plant for plant in plants() if plant.method == method], tmp_path)

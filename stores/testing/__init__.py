"""The conformance kit: what the author of a backend subclasses, and what tests of stores are built from.

::

    from millpond.stores.testing import BackendSuite

    class TestMyBackend(BackendSuite):
        def supplier(self) -> BackendSupplier:
            return MySupplier()

Rule of this module: names are imported only when they are asked for, so that a child process of the kit does not load
pytest and hypothesis. ``docs/writing-a-backend.md`` is the guide to the kit.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.stores.testing.backend import BackendSuite as BackendSuite
    from millpond.stores.testing.child import Child as Child
    from millpond.stores.testing.contract import ContractBroken as ContractBroken
    from millpond.stores.testing.faults import Fault as Fault
    from millpond.stores.testing.faults import FaultPlan as FaultPlan
    from millpond.stores.testing.faults import FaultyClock as FaultyClock
    from millpond.stores.testing.faults import InjectedFault as InjectedFault
    from millpond.stores.testing.faults import Step as Step
    from millpond.stores.testing.faulty_backend import FaultyBackend as FaultyBackend
    from millpond.stores.testing.faulty_backend import FaultySupplier as FaultySupplier
    from millpond.stores.testing.faulty_storage import FaultyStorage as FaultyStorage
    from millpond.stores.testing.features import Feature as Feature
    from millpond.stores.testing.oracle import Oracle as Oracle
    from millpond.stores.testing.stores import StoreSuite as StoreSuite

_HOMES = {
    "BackendSuite": "backend",
    "Child": "child",
    "ContractBroken": "contract",
    "Fault": "faults",
    "FaultPlan": "faults",
    "FaultyBackend": "faulty_backend",
    "Feature": "features",
    "FaultyClock": "faults",
    "FaultyStorage": "faulty_storage",
    "FaultySupplier": "faulty_backend",
    "InjectedFault": "faults",
    "Oracle": "oracle",
    "Step": "faults",
    "StoreSuite": "stores",
}
_WITH_ASSERTIONS = (
    *("capabilities", "damage", "lifecycle", "machines", "places", "processes", "reads", "scans", "stores", "writes"),
)

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{module}" for module in _WITH_ASSERTIONS))


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The conformance kit: suites for the authors of backends to subclass, and the parts of tests of stores.

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
    from millpond.stores.testing.faults.backend import FaultyBackend as FaultyBackend
    from millpond.stores.testing.faults.backend import FaultySupplier as FaultySupplier
    from millpond.stores.testing.faults.plan import Fault as Fault
    from millpond.stores.testing.faults.plan import FaultPlan as FaultPlan
    from millpond.stores.testing.faults.plan import FaultyClock as FaultyClock
    from millpond.stores.testing.faults.plan import InjectedFault as InjectedFault
    from millpond.stores.testing.faults.plan import Step as Step
    from millpond.stores.testing.faults.storage import FaultyStorage as FaultyStorage
    from millpond.stores.testing.features import Feature as Feature
    from millpond.stores.testing.oracle import Oracle as Oracle
    from millpond.stores.testing.stores import StoreSuite as StoreSuite

_HOMES = {
    "BackendSuite": "backend",
    "Child": "child",
    "ContractBroken": "contract",
    "Fault": "faults.plan",
    "FaultPlan": "faults.plan",
    "FaultyBackend": "faults.backend",
    "Feature": "features",
    "FaultyClock": "faults.plan",
    "FaultyStorage": "faults.storage",
    "FaultySupplier": "faults.backend",
    "InjectedFault": "faults.plan",
    "Oracle": "oracle",
    "Step": "faults.plan",
    "StoreSuite": "stores",
}
_WITH_ASSERTIONS = (
    *("capabilities", "damage", "lifecycle", "machines", "places", "power", "processes"),
    *("reads", "scans", "stores", "suppliers", "writes"),
)

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{module}" for module in _WITH_ASSERTIONS))


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""``BackendSuite``: all promises of the backend contract, as one class to subclass.

Rule of this module: it only puts the parts together.
"""

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


# pytest runs the tests of the last base first: those that say most in the shortest time, random histories in the end.
class BackendSuite(
    MachineSuite,
    ProcessSuite,
    PowerSuite,
    DamageSuite,
    CapabilitySuite,
    LifecycleSuite,
    SupplierSuite,
    PlaceSuite,
    ScanSuite,
    WriteSuite,
    ReadSuite,
):
    """Tests of a backend. Subclass it, name the subclass ``Test...``, and return the supplier from ``supplier``."""

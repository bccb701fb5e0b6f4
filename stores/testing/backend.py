"""``BackendSuite``: everything that the backend contract promises, as one class to subclass.

Rule of this module: it only puts the parts together.
"""

from millpond.stores.testing.capabilities import CapabilitySuite
from millpond.stores.testing.lifecycle import LifecycleSuite
from millpond.stores.testing.machines import MachineSuite
from millpond.stores.testing.processes import ProcessSuite
from millpond.stores.testing.reads import ReadSuite
from millpond.stores.testing.scans import ScanSuite
from millpond.stores.testing.writes import WriteSuite


class BackendSuite(ReadSuite, ScanSuite, WriteSuite, LifecycleSuite, CapabilitySuite, ProcessSuite, MachineSuite):
    """Subclass it, name the subclass ``Test...``, and say which supplier to test in ``supplier``."""

"""Looking at the state of a query on Spark without Spark: any process that reaches its files can do it.

``StateInspector.at`` finds the stores after any micro-batch that the checkpoint retains; a ``StoreView`` has the rows
of one, and ``changes`` tells what is not the same in two.
"""

from millpond.adapters.inspect.changes import changes
from millpond.adapters.inspect.selection import Selection
from millpond.adapters.inspect.state_inspector import StateInspector
from millpond.adapters.inspect.store_part import StorePart
from millpond.adapters.inspect.store_view import StoreView

__all__ = ["StateInspector", "Selection", "StorePart", "StoreView", "changes"]

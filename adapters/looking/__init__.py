"""Looking at the state of a query on Spark without Spark: any process that reaches its files can do it.

``Looking.at`` finds the stores after any micro-batch that the checkpoint retains; a ``StoreView`` has the rows of one,
and ``changes`` tells what is not the same in two.
"""

from millpond.adapters.looking.changes import changes
from millpond.adapters.looking.looking import Looking
from millpond.adapters.looking.selection import Selection
from millpond.adapters.looking.store_part import StorePart
from millpond.adapters.looking.store_view import StoreView

__all__ = ["Looking", "Selection", "StorePart", "StoreView", "changes"]

"""Gates: between processors that may see records in any order of keys and one that may not.

Rule of this module: it knows the positions of records and nothing else of them.
"""

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns, Records, put_in_order
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext


class Resequencer(Operator):
    """Holds records with positions back until all before them have come, and passes them on in order.

    Args:
        context: leads to the only processor behind the gate.
    """

    def __init__(self, context: ProcessorContext) -> None:
        self.context = context
        self._held: list[Records] = []

    def process(self, batch: Batch) -> None:
        if batch.positions is None:
            self.context.forward(batch)
        else:
            self._held.append(batch)

    def process_columns(self, columns: Columns) -> None:
        if columns.positions is None:
            self.context.forward_columns(columns)
        else:
            self._held.append(columns)

    def release(self) -> None:
        """Pass on the records that are held; called when every position up to the last of these has come."""
        if self._held:
            held, self._held = self._held, []
            records = put_in_order(held)
            if isinstance(records, Columns):
                self.context.forward_columns(records)
            else:
                self.context.forward(records)

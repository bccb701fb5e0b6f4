"""``LastChanges``: of the changes that one micro-batch brings for a key, the last by an order that they bring.

An order decides alone, whatever their times: what came before within the micro-batch has been replaced by its end.
"""

from typing import Any

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.operators.operator import Operator
from millpond.processors.runtime.operators.promises import Promises
from millpond.processors.verbs.ordered_rows import order_and_row


class LastChanges(Operator):
    """Takes changes behind their orders; forwards the rows of the greatest ones, None for a delete, at ``flush``."""

    promises = Promises(commutes=True, unordered=True, at_flush=True)

    def __init__(self) -> None:
        self._last: dict[Any, tuple[bytes, int]] = {}

    def process(self, batch: Batch) -> None:
        for key, change, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            last = self._last.get(key)
            # The bytes compare as the orders do; equal ones are of one change that came twice.
            if last is None or change > last[0]:
                self._last[key] = change, timestamp

    def flush(self) -> None:
        if not self._last:
            return
        keys, changes = list(self._last), list(self._last.values())
        self._last = {}
        rows = [order_and_row(change)[1] for change, _ in changes]
        self.context.forward(Batch(keys, rows, [timestamp for _, timestamp in changes]))

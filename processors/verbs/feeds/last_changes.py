"""``LastChanges``: the last of the changes of a key, by an order that they bring.

Only the order decides, whatever their times: within one micro-batch, changes before the last one have been replaced by
its end. Where a change may come after others that count more, the order of each key's last change is kept, for ever:
nothing says how late the next one will be. The order of a delete is kept, too, so that no older change brings
the row back.
"""

from typing import Any, NamedTuple

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.processor import ProcessorContext
from millpond.processors.runtime.promises import Promises
from millpond.processors.verbs.encoding.ordered_rows import order_and_row, with_order
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore


class KeptOrders(NamedTuple):
    """The names of the stores of earlier changes.

    Attributes:
        orders: the store of the order of each key's last change.
        rows: the store of current rows, which tell apart changes of one order.
    """

    orders: str
    rows: str


class LastChanges(Operator):
    """Takes changes behind their orders; forwards the rows of the greatest ones, None for a delete, at ``flush``.

    Args:
        kept: the stores; None if no change comes in a later micro-batch than one that counts more.
    """

    promises = Promises(commutes=True, unordered=True, at_flush=True)

    def __init__(self, kept: KeptOrders | None = None) -> None:
        self._kept = kept
        self._last: dict[Any, tuple[bytes, int]] = {}

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        if self._kept is not None:
            self._orders: KeyValueStore[bytes, bytes] = context.store(self._kept.orders)
            self._rows: TimestampedKeyValueStore[bytes, bytes] = context.store(self._kept.rows)

    def process(self, batch: Batch) -> None:
        for key, change, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            last = self._last.get(key)
            # The bytes compare as the orders do; equal ones are of one change that came twice.
            if last is None or change > last[0]:
                self._last[key] = change, timestamp

    def flush(self) -> None:
        if not self._last:
            return
        last, self._last = self._last, {}
        newer = last if self._kept is None else self._newer(last)
        if not newer:
            return
        rows = [order_and_row(change)[1] for change, _ in newer.values()]
        self.context.forward(Batch(list(newer), rows, [timestamp for _, timestamp in newer.values()]))

    def _newer(self, last: dict[Any, tuple[bytes, int]]) -> dict[Any, tuple[bytes, int]]:
        """Return the changes that count more than earlier ones of their keys, and keep their orders."""
        newer, orders, late = {}, [], 0
        for (key, change), before in zip(last.items(), self._orders.get_many(last), strict=True):
            order, _ = order_and_row(change[0])
            if before is None or order > before or (order == before and change[0] > self._change(key, order)):
                newer[key] = change
                orders.append(order)
            else:
                late += order < before
        self._orders.put_many(newer, orders)
        self.context.count(CounterName.DROPPED_OUT_OF_ORDER, late)
        return newer

    def _change(self, key: bytes, order: bytes) -> bytes:
        """Return the last change of a key, which has that order."""
        there = self._rows.get(key)
        return with_order([order], [None if there is None else there.value])[0]

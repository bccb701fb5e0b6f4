"""Processors for Spark's ``transformWithState``, row by row, one group per key.

Rule of this module: state is read once per key and micro-batch, and only if it is needed, because each call is a round
trip to the JVM. Of what is kept, only what changed is written. Rows come in any order, and each has a time of its own.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class CountRows(StatefulProcessor):
    """Counts with one get and one put."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._count.get()
        count = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], value=count)


class JoinAsOf(StatefulProcessor):
    """Keeps all versions of a key's rate."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._versions = handle.getListState("versions", "at long, rate double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        versions = [tuple(version) for version in self._versions.get()]
        for row in sorted(rows, key=_time):
            if row.rate is not None:
                versions.append((row.at, row.rate))
                self._versions.appendValue((row.at, row.rate))
                continue
            rate = max((version for version in versions if version[0] <= row.at), default=(0, None))[1]
            yield Row(key=key[0], timestamp=row.at, amount=row.amount, rate=rate)


class JoinTables(StatefulProcessor):
    """Keeps the latest row of either side."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._amount = handle.getValueState("amount", "amount long")
        self._rate = handle.getValueState("rate", "rate double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        amount, rate = before = self._amount.get(), self._rate.get()
        for row in sorted(rows, key=_time):
            if row.rate is None:
                amount = (row.amount,)
            else:
                rate = (row.rate,)
            if amount is not None and rate is not None:
                yield Row(key=key[0], timestamp=row.at, amount=amount[0], rate=rate[0])
        for state, value, old in zip((self._amount, self._rate), (amount, rate), before, strict=True):
            if value is not None and value is not old:
                state.update(value)


class JoinOrders(StatefulProcessor):
    """The group is a customer: keeps the latest rate, and all orders, each under its key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._orders = handle.getMapState("orders", "key string", "amount long")
        self._rate = handle.getValueState("rate", "rate double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        in_order = sorted(rows, key=_time)
        before = self._rate.get()
        rate = None if before is None else before[0]
        fans_out = any(row.rate is not None for row in in_order)
        amounts = {order[0]: amount[0] for order, amount in self._orders.iterator()} if fans_out else {}
        changed = {}
        for row in in_order:
            if row.rate is None:
                amounts[row.key] = changed[row.key] = row.amount
            else:
                rate = row.rate
            told = amounts if row.rate is not None else (row.key,)
            if rate is not None:
                yield from (Row(key=order, timestamp=row.at, amount=amounts[order], rate=rate) for order in told)
        for order, amount in changed.items():
            self._orders.updateValue((order,), (amount,))
        if fans_out:
            self._rate.update((rate,))


class Nothing(StatefulProcessor):
    """Keeps nothing and gives nothing; for ``transformWithStateInPandas``."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        return iter(())


def _time(row: Any) -> int:
    at: int = row.at
    return at

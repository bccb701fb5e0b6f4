"""Processors for Spark's ``transformWithState`` that keep bids, one group per key.

Rule of this module: state is read and written once per key and micro-batch, because each call is a round trip to the
JVM. Rows come in any order.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class LastBid(StatefulProcessor):
    """Keeps the last bid of a group, by its time and then by ``extra``.

    Args:
        schema: a bid's, as Spark DDL.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        kept = self._last.get()
        before = None if kept is None else Row(*_names(self._schema))(*kept)
        last = max(([] if before is None else [before]) + list(rows), key=attrgetter("dateTime", "extra"))
        if last is not before:
            self._last.update(tuple(last))
            yield last


class HighestBids(StatefulProcessor):
    """Keeps the highest bids of a group, and gives those whose rank is new; of equal prices, earlier bids are first.

    Args:
        schema: a bid's, as Spark DDL.
        most: how many.
    """

    def __init__(self, schema: str, most: int) -> None:
        self._schema = schema
        self._most = most

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._highest = handle.getListState("highest", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        bid = Row(*_names(self._schema))
        before = [bid(*kept) for kept in self._highest.get()]
        ranked = sorted([*before, *rows], key=lambda one: (-one.price, one.dateTime, one.extra))[: self._most]
        if ranked != before:
            self._highest.put([tuple(one) for one in ranked])
            for place, one in enumerate(ranked):
                if place >= len(before) or one != before[place]:
                    yield Row(*bid, "rank")(*one, place + 1)


def _names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]

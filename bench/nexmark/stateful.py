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


class WinningBid(StatefulProcessor):
    """Keeps an auction and the highest of its bids, the first of several; and bids that come before their auction.

    A row has the columns of an auction, and then those of a bid: it is the one or the other.

    Args:
        auction: the columns of an auction with times as numbers, as Spark DDL; ``dateTime`` and ``expires`` among them.
        bid: the columns of a bid, the price, the time and what decides among equal ones first.
    """

    def __init__(self, auction: str, bid: str) -> None:
        self._schemas = auction, bid

    def init(self, handle: StatefulProcessorHandle) -> None:
        auction, bid = self._schemas
        self._auction = handle.getValueState("auction", auction)
        self._winning = handle.getValueState("winning", bid)
        self._early = handle.getListState("early", bid)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        names, of_bid = (_names(schema) for schema in self._schemas)
        auction, given = self._auction.get(), [tuple(row) for row in rows]
        bids = [row[len(names) :] for row in given if row[len(names)] is not None]
        begun = [row[: len(names)] for row in given if row[len(names)] is None]
        if auction is None and not begun:
            self._early.appendList(bids)
            return
        if auction is None:
            auction = begun[0]
            self._auction.update(auction)
            bids += [tuple(bid) for bid in self._early.get()]
            self._early.clear()
        opened, expires = (auction[names.index(name)] for name in ("dateTime", "expires"))
        before = self._winning.get()
        valid = [bid for bid in bids if opened <= bid[1] <= expires] + ([] if before is None else [tuple(before)])
        winning = min(valid, key=lambda bid: (-bid[0], *bid[1:3]), default=None)
        if winning is not None and (before is None or winning != tuple(before)):
            self._winning.update(winning)
            yield Row(*names, *of_bid)(*auction, *winning)


def _names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]

"""Processors for Spark's ``transformWithState``, one group per key: row by row, or by whole columns of a key.

Rule of this module: state is read once per key and micro-batch, and only if it is needed, because each call is a round
trip to the JVM. Of what is kept, only what changed is written. Rows come in any order, and each has a time of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

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
    """Keeps all versions of a key. A row has the key, its time, the left side's columns, and the right side's.

    Args:
        versions: the time and the columns of the right side, none of which is null there, as Spark DDL.
        joined: the columns of a result.
    """

    def __init__(self, versions: str, joined: Sequence[str]) -> None:
        self._schema = versions
        self._joined = list(joined)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._versions = handle.getListState("versions", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        joined, width = Row(*self._joined), self._schema.count(", ")
        versions = [tuple(version) for version in self._versions.get()]
        for row in sorted(rows, key=_time):
            if row[-1] is not None:
                version = (row.at, *row[-width:])
                versions.append(version)
                self._versions.appendValue(version)
                continue
            found = max((one for one in versions if one[0] <= row.at), default=(0, *[None] * width), key=_first)
            yield joined(key[0], row.at, *row[2:-width], *found[1:])


class JoinQuotes(StatefulProcessor):
    """Keeps a share's quotes of the last milliseconds, and the one before; for ``transformWithStateInPandas``.

    Args:
        reach: how many milliseconds.
    """

    def __init__(self, reach: int) -> None:
        self._reach = reach

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._quotes = handle.getListState("quotes", "at long, bid double, ask double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        given = pd.concat(rows).sort_values("at")
        trades = given[given["price"].notna()][["key", "at", "price", "size"]]
        kept = pd.DataFrame(list(self._quotes.get()), columns=["at", "bid", "ask"]).astype(_OF_QUOTES)
        quotes = pd.concat([kept, given[given["bid"].notna()][["at", "bid", "ask"]]], ignore_index=True)
        if len(quotes) > len(kept):
            oldest = quotes["at"].searchsorted(quotes["at"].iloc[-1] - self._reach, side="right") - 1
            self._quotes.put(list(quotes.iloc[max(oldest, 0) :].itertuples(index=False, name=None)))
        joined = pd.merge_asof(trades, quotes, on="at").rename(columns={"at": "timestamp"})
        yield joined.astype({"size": "int64"})


class JoinTables(StatefulProcessor):
    """Keeps the latest row of each table. A row has the key, its time, and one column of each table, null but in one.

    Args:
        columns: those columns, as Spark DDL.
    """

    def __init__(self, columns: str) -> None:
        self._columns = columns.split(", ")

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = [handle.getValueState(column.split()[0], column) for column in self._columns]

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        names = [column.split()[0] for column in self._columns]
        joined, before = Row("key", "timestamp", *names), [state.get() for state in self._states]
        kept = list(before)
        for row in sorted(rows, key=_time):
            given = [row[name] for name in names]
            kept = [one if value is None else (value,) for one, value in zip(kept, given, strict=True)]
            if None not in kept:
                yield joined(key[0], row.at, *(value[0] for value in kept if value is not None))
        for state, value, old in zip(self._states, kept, before, strict=True):
            if value is not None and value is not old:
                state.update(value)


class SignRows(StatefulProcessor):
    """Keeps the latest row of an account, and gives what each change takes from a segment and what it adds to one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._account = handle.getValueState("account", "segment string, amount long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self._account.get()
        for row in sorted(rows, key=_time):
            if before is not None:
                yield Row(segment=before[0], at=row.at, sign=-1, amount=-before[1])
            before = None if row.op == "delete" else (row.segment, row.amount)
            if before is not None:
                yield Row(segment=before[0], at=row.at, sign=1, amount=before[1])
        if before is None:
            self._account.clear()
        else:
            self._account.update(before)


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


_OF_QUOTES: Final = {"at": "int64", "bid": "float64", "ask": "float64"}
"""The types of what is kept of quotes, also where there are none."""


def _time(row: Any) -> int:
    at: int = row.at
    return at


def _first(version: tuple[Any, ...]) -> int:
    at: int = version[0]
    return at

"""The verbs on tables, for all forms of rows and results.

Rule of this module: it says which tables a verb reads; ``millpond.processors.calls`` makes the verb. Names,
arguments and meanings are as in ``Millpond``; columns are given by their names.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidArgumentError
from millpond.processors.calls.aggregate import call_aggregate
from millpond.processors.calls.apply import call_apply
from millpond.processors.calls.arguments import (
    INPUT,
    LEFT,
    RIGHT,
    On,
    check_calls,
    chosen_join,
    column_names,
)
from millpond.processors.calls.calling import named_in_errors, unknown_member
from millpond.processors.calls.deduplicate import call_deduplicate
from millpond.processors.calls.joins.asof_join import call_asof_join
from millpond.processors.calls.joins.lookup_join import MAX_BYTES, call_lookup_join
from millpond.processors.calls.joins.multi_join import HowEach, OnEach, call_multi_join, check_tables, times_of
from millpond.processors.calls.joins.stream_join import call_stream_join
from millpond.processors.calls.joins.table_join import call_table_join
from millpond.processors.calls.latest import call_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.over import call_over
from millpond.processors.calls.own_bounds import join_bounds, session_gap
from millpond.processors.calls.readings import begun_anew
from millpond.processors.calls.top_n import call_top_n
from millpond.processors.options.grouping import By
from millpond.processors.options.joins import ASOF_JOINS, AsofHow, JoinType, StreamHow, TableHow
from millpond.processors.options.on_error import OnError
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.pond.expressions import Expression, matching, with_conditions, with_own_bounds, with_own_gap
from millpond.processors.pond.frames import kept_schema
from millpond.processors.pond.sides import VerbSide, check_time, check_times_of, joined_sides, table_side
from millpond.processors.rows.column_values import ColumnsOwner, ColumnValues, DictColumns, optional_columns
from millpond.processors.runtime.failures import DeadLetter
from millpond.processors.verbs.aggregate import Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.keyed_processor import KeyedProcessor
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.encoding.times import Duration

Given = TypeVar("Given", contravariant=True)
"""The argument of a verb for an input."""

Result = TypeVar("Result", covariant=True)
"""The result of a verb."""


class Verbs(ABC, Generic[Given, Result]):
    """The verbs, whatever they are given and return.

    Attributes:
        dead_letters: with ``on_error="dead-letter"``, the rows that verbs at once have left out so far.
    """

    def __init__(self, backend: str | BackendSupplier, on_error: str | OnError) -> None:
        self._backend = supplier(backend)
        self._on_error = OnError.of(on_error)
        self.dead_letters: list[DeadLetter] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise unknown_member(self, name)

    @named_in_errors
    def latest(
        self,
        rows: Given,
        *,
        key: str | Sequence[str],
        time: str,
        history: Duration | None = None,
        order: str | None = None,
        op: str | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
    ) -> Result:
        """Make a table of a change feed: leave out changes that repeat a key's row, or that come too late.

        Args:
            rows: each sets what its key has from its time on, or deletes it.
            key: the columns of the key.
            time: the column with the time of the change.
            history: how late a row may be; at once, none is late, and it may be left out.
            order: the column that decides among rows of one key and time, the greatest last.
            op: the column that says which rows are deletes; by default that of the change feed that a verb has made.
            ttl: how long the latest row of a key lives after its time; None for ever.
            expired: what comes out of a row whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"``.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            A change feed: the key, the other columns, ``op``, ``sequence`` and ``change_time``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> days = ((2, "paid"), (1, "new"))
        >>> rows = [{"id": 1, "at": datetime(2026, 6, day), "status": status} for day, status in days]
        >>> with Pond().in_batches.latest(
        ...     pa.Table.from_pylist(rows).schema, key="id", time="at", history="7 days"
        ... ) as latest:
        ...     [latest.feed([row])["status"].to_pylist() for row in rows]
        [['paid'], []]
        """
        side = self._side(INPUT, rows)
        made = call_latest(
            side.rows,
            begun_anew,
            key=key,
            time=time,
            history=self._history(history),
            order=order,
            op=op,
            ttl=ttl,
            expired=expired,
            name=name,
        )
        return self._result(made, [side])

    @named_in_errors
    def aggregate(
        self,
        rows: Given,
        calls: Mapping[str, AggregateCall],
        *,
        by: By,
        time: str,
        order: str | None = None,
        key: str | Sequence[str] | None = None,
        op: str | None = None,
        window: Windows | None = None,
        emit: Literal["updates", "final"] = "updates",
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
    ) -> Result:
        """Aggregate columns by key, or by key and window.

        Args:
            rows: the rows. Of a change feed, those that it describes are aggregated: what a change replaces or deletes
                is taken out of its group, and a group without rows is deleted. To count the changes, drop ``op``.
            calls: what is computed, by the name of its column: ``{"orders": count(), "total": sum("amount")}``. See
                ``millpond.processors.verbs.aggregates``; columns are names, and ``where`` is that of a column of bools,
                or a condition, an expression of Arrow such as ``pc.field("amount") > 1``.
            by: the columns of the key; null is a key like any other. With ``[]`` all rows have one key. With ``cube``,
                ``rollup`` or ``grouping_sets`` of ``millpond.processors`` each row counts for several sets of columns.
            time: the column with the time of a row.
            order: the column that decides for ``first``, ``last``, ``collect`` and ``map_agg`` among rows of one key
                and time; of a change feed that you name, it decides which of the changes of its key counts,
                whatever their times.
            key: of a change feed, the columns by which its rows replace each other; those of a verb's feed are known.
            op: the column that says which rows are deletes; by default that of the change feed that a verb has made.
            window: ``TimeWindows``, ``SlidingWindows`` or ``SessionWindows``, each with its grace; sessions also with a
                gap of each row, an expression of Arrow such as ``pc.field("gap")``.
            emit: ``"updates"`` for each key's last result of every micro-batch that changes it, or ``"final"`` for a
                window's result once, when it has closed.
            ttl: without a window, how long a result lives after the time of its last row; None for ever.
            expired: what comes out of a result whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"``.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            The key, with ``grouping_id`` if there are grouping sets, ``window`` (start and end) if there are windows,
            and the results. Updates are a change feed, with ``op``, ``sequence`` and ``change_time`` as well.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> from millpond.processors.verbs import aggregates as agg
        >>> sales = [{"shop": "a", "at": datetime(2026, 6, 1, hour), "amount": hour} for hour in (8, 9)]
        >>> totals = Pond().aggregate(sales, {"n": agg.count(), "total": agg.sum("amount")}, by="shop", time="at")
        >>> totals.select(["shop", "n", "total"]).to_pylist()
        [{'shop': 'a', 'n': 2, 'total': 17}]
        """
        check_calls(calls, window)
        side, gap = self._side(INPUT, rows), session_gap(window, Expression, "pc.field")
        side, calls = with_conditions(side if gap is None else with_own_gap(side, gap), calls)
        made = call_aggregate(
            side.rows,
            begun_anew,
            calls,
            by=by,
            time=time,
            order=order,
            key=key,
            op=op,
            window=window,
            until=None,
            emit=emit,
            ttl=ttl,
            expired=expired,
            name=name,
        )
        return self._result(made, [side])

    @named_in_errors
    def top_n(
        self,
        rows: Given,
        n: int,
        *,
        by: str | Sequence[str],
        order: str | Sequence[str],
        descending: bool | Sequence[bool] = False,
        time: str,
        window: Windows | None = None,
        emit: Literal["updates", "final"] = "updates",
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
    ) -> Result:
        """Return the first ``n`` rows of each key by an order, or of each key and window, with their ranks.

        Rows that are equal in the order are ranked by all their other columns, always the same way. Null comes before
        all values and NaN behind all numbers, and the other way round if it is descending.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            n: how many rows of each key.
            by: the columns of the key; null is a key like any other.
            order: a column, or a list of them of which the first decides first.
            descending: whether the greatest comes first; for several in ``order`` also a list, one for each.
            time: the column with the time of a row.
            window: windows, as in ``aggregate``; None for all rows of a key.
            emit: ``"updates"`` for what has changed after every micro-batch, or ``"final"`` for the rows of a window
                once, when it has closed.
            ttl: without a window, how long the rows of a key live after the time of its last row; None for ever.
            expired: what comes out of rows whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"``.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            The key, ``window`` (start and end) if there are windows, ``rank`` from 1 on, and the other columns. Updates
            are a change feed of each key and rank, with ``op``, ``sequence`` and ``change_time`` as well.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> bids = [{"lot": 1, "at": datetime(2026, 6, 1, 12, minute), "price": minute} for minute in (5, 9, 7)]
        >>> best = Pond().top_n(bids, 2, by="lot", order="price", descending=True, time="at")
        >>> best.select(["rank", "price"]).to_pylist()
        [{'rank': 1, 'price': 9}, {'rank': 2, 'price': 7}]
        """
        side = self._side(INPUT, rows)
        made = call_top_n(
            side.rows,
            begun_anew,
            n,
            by=by,
            order=order,
            descending=descending,
            time=time,
            window=window,
            until=None,
            emit=emit,
            ttl=ttl,
            expired=expired,
            name=name,
        )
        return self._result(made, [side])

    @named_in_errors
    def deduplicate(
        self,
        rows: Given,
        *,
        key: str | Sequence[str],
        time: str,
        within: Duration,
        grace: Duration | None = None,
        order: str | None = None,
        name: str | None = None,
    ) -> Result:
        """Return the first row of each key, once, without the duplicates that come within some time after it.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            key: the columns that duplicates have in common; null is a value like any other.
            time: the column with the time of a row.
            within: how much later than the row kept a duplicate is at most.
            grace: how late a row may be, and so how long each waits for earlier ones. None takes rows at once; then a
                row of a later micro-batch than the one kept is its duplicate also where it is earlier.
            order: the column that decides among rows of one key and time, the least first; without it the other
                columns do, always in the same way.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            The rows that are kept: the key, and the other columns.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> sent = [{"id": 1, "at": datetime(2026, 6, 1, hour)} for hour in (8, 9, 12)]
        >>> [at.hour for at in Pond().deduplicate(sent, key="id", time="at", within="2 hours")["at"].to_pylist()]
        [8, 12]
        """
        side = self._side(INPUT, rows)
        made = call_deduplicate(
            side.rows, begun_anew, key=key, time=time, within=within, grace=grace, order=order, name=name
        )
        return self._result(made, [side])

    @named_in_errors
    def over(
        self,
        rows: Given,
        calls: Mapping[str, AggregateCall],
        *,
        key: str | Sequence[str],
        time: str,
        last: int | None = None,
        within: Duration | None = None,
        grace: Duration = 0,
        order: str | None = None,
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> Result:
        """Return each row, once, with aggregates of the rows of its key up to it, and with values of those before it.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            calls: by the name of the result, a call of ``millpond.processors.verbs.aggregates`` on columns: one that
                aggregates, with ``where`` as in ``aggregate``, or ``lag("column", 2)`` for the value of the second row
                before each.
            key: the columns by which rows belong together; null is a value like any other.
            time: the column with the time of a row, by which the rows of a key count.
            last: of how many rows at most an aggregate is, each row itself included.
            within: how much earlier than a row the rows are at most that an aggregate is of, with all of its own time.
                Without both it is of all rows up to each one.
            grace: how late a row may be, and so how long each waits for earlier ones.
            order: the column that decides among rows of one key and time, the least first; without it the other
                columns do, always in the same way.
            ttl: after how long without a row a key is forgotten, and its next row is the first; None for never.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            The key, the other columns, and the results.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> from millpond.processors.verbs import aggregates as agg
        >>> sales = [{"shop": "a", "at": datetime(2026, 6, 1, hour), "amount": hour} for hour in (8, 9)]
        >>> calls = {"total": agg.sum("amount"), "before": agg.lag("amount")}
        >>> Pond().over(sales, calls, key="shop", time="at").select(["amount", "total", "before"]).to_pylist()
        [{'amount': 8, 'total': 8, 'before': None}, {'amount': 9, 'total': 17, 'before': 8}]
        """
        check_calls(calls, None)
        side, calls = with_conditions(self._side(INPUT, rows), calls)
        made = call_over(
            side.rows,
            begun_anew,
            calls,
            key=key,
            time=time,
            last=last,
            within=within,
            grace=grace,
            order=order,
            ttl=ttl,
            name=name,
        )
        return self._result(made, [side])

    @named_in_errors
    def asof_join(
        self,
        left: Given,
        right: Given,
        *,
        on: On,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        history: Duration | None = None,
        how: AsofHow = "inner",
        grace: Duration | None = None,
        tolerance: Duration | None = None,
        exact: bool = True,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        where: pc.Expression | None = None,
        otherwise: Literal["miss", "next"] = "miss",
        default: Mapping[str, Any] | None = None,
        right_order: str | None = None,
        right_op: str | None = None,
        null_safe: bool = False,
        emit: Literal["final", "updates"] = "final",
        left_key: str | Sequence[str] | None = None,
        name: str | None = None,
    ) -> Result:
        """Join each left row with the right row that was valid at its time: the last one that is not later.

        Or, by the ``direction``, with the first one that is not earlier, or with the closer one of the two.

        Args:
            left: the rows to be completed.
            right: versions of what completes them; each is valid from its time until that of the next one with its key.
            on: the columns that must be equal.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns with the times of each side, in place of ``time``.
            history: how far back from the newest right time a left row may be; at once, it may be left out.
            how: ``"inner"``; ``"left"`` to keep left rows without a match; ``"semi"`` for the left rows that have one,
                without its columns; ``"anti"`` for those that have none.
            grace: how long a left row waits for late right rows, in event time; None to join it at once.
            tolerance: how much older, or by the direction newer, than the left row a match may be; None for any age.
            exact: whether a right row of the very time of the left row is a match.
            direction: ``"backward"``, or ``"forward"`` or ``"nearest"``, which need ``tolerance`` and ``grace``.
            where: a condition of a match on the columns of both sides, an expression of Arrow such as
                ``pc.field("price") <= pc.field("most")``; those of the right side are the ones that are not in ``on``.
                Null is not true. By default any right row is a match.
            otherwise: what becomes of a left row whose right row does not fulfill ``where``: ``"miss"`` if it has no
                match; ``"next"`` if that row is passed over, and the next one that fulfills it is the match, for which
                this needs ``tolerance``.
            default: for ``"left"``: what columns of the right side have, by their names, where there is no match.
            right_order: the column that decides among right rows of one key and time, the greatest last.
            right_op: the column that says which right rows are deletes, as ``op`` in ``latest``.
            null_safe: whether a null in ``on`` equals a null.
            emit: ``"final"`` if each left row comes out once; ``"updates"`` if it comes out at once, without a
                ``grace``, and again whenever a late right row or a delete gives it another match, for the ``history``.
            left_key: for ``"updates"``: the columns of the left side that tell rows of one key and time apart.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, those of the right side that
            are not in ``on``. Updates are a change feed with ``op``, ``sequence`` and ``change_time``, whose key is
            ``on``, ``left_time`` and ``left_key``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> from millpond import Pond
        >>> trades = pa.table({"symbol": ["ACME"], "t": [datetime(2026, 6, 1, 12, 0, 5)], "id": [7]})
        >>> quotes = pa.table({"symbol": ["ACME"], "quoted": [datetime(2026, 6, 1, 12, 0, 3)], "bid": [9.5]})
        >>> with Pond().in_batches.asof_join(
        ...     trades.schema, quotes.schema, on="symbol", left_time="t", right_time="quoted", history="1 hour",
        ...     how="left", emit="updates", left_key="id",
        ... ) as priced:
        ...     for late in (priced.feed(left=trades), priced.feed(right=quotes)):
        ...         print(late.select(["id", "bid", "op"]).to_pylist())
        [{'id': 7, 'bid': None, 'op': 'upsert'}]
        [{'id': 7, 'bid': 9.5, 'op': 'upsert'}]
        """
        sides = self._side(LEFT, left), self._side(RIGHT, right)
        one, other, times = joined_sides(*sides, (time, left_time, right_time), chosen_join(how, ASOF_JOINS))
        made = call_asof_join(
            one.rows,
            other.rows,
            begun_anew,
            on=on,
            times=times,
            history=self._history(history),
            how=how,
            grace=grace,
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=None if where is None else partial(matching, one.schema, other.schema, where),
            otherwise=otherwise,
            default=default,
            right_order=right_order,
            right_op=right_op,
            null_safe=null_safe,
            emit=emit,
            left_key=left_key,
            name=name,
        )
        return self._result(made, [one, other])

    @named_in_errors
    def lookup_join(
        self,
        left: Given,
        right: VersionedTable,
        *,
        on: On,
        left_time: str,
        right_time: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        how: AsofHow = "inner",
        tolerance: Duration | None = None,
        exact: bool = True,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        where: pc.Expression | None = None,
        otherwise: Literal["miss", "next"] = "miss",
        default: Mapping[str, Any] | None = None,
        right_order: str | None = None,
        right_op: str | None = None,
        null_safe: bool = False,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
    ) -> Result:
        """Join each left row with the row of a table in files that was valid at its time, without a copy of the table.

        The table is read as it is when a micro-batch begins, or at once, and is kept in memory only. What comes into it
        later changes no result.

        Args:
            left: the rows to be completed.
            right: a ``ParquetTable`` or ``DeltaTable`` of ``millpond.adapters.tables``, or one of your own, with the
                methods of ``VersionedTable``. Each row is valid from its time until that of the next one with its key;
                rows without a time are left out.
            on: the columns that must be equal.
            left_time, right_time: the columns with the times.
            columns: those of the table that the result has: a list of names, or a mapping of the name in the result to
                that in the table. By default all that are not in ``on``.
            how: as in ``asof_join``.
            tolerance: how much older, or by the direction newer, than the left row a match may be; None for any age.
            exact: whether a right row of the very time of the left row is a match.
            direction: ``"backward"``, or ``"forward"`` or ``"nearest"``, which need ``tolerance``. No row waits for a
                newer one: what the table has then counts.
            where, otherwise, default: as in ``asof_join``.
            right_order: the column that decides among right rows of one key and time, the greatest last; by default the
                columns of the result do.
            right_op: the column that says which right rows are deletes, as ``op`` in ``latest``.
            null_safe: whether a null in ``on`` equals a null.
            max_bytes: how many bytes the rows of the table may take in memory. More are refused.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, those of the table.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the table cannot be read, or not in so much memory.
            RecordError: a row cannot be used.
            MissingFileError: the table has lost a file of its newest version.

        >>> from millpond import Pond
        >>> import tempfile
        >>> from datetime import datetime
        >>> import pyarrow.parquet as pq
        >>> from millpond.adapters.tables import ParquetTable
        >>> quotes = tempfile.TemporaryDirectory()
        >>> quote = pa.table({"symbol": ["ACME"], "at": [datetime(2026, 6, 1)], "bid": [9.5]})
        >>> pq.write_table(quote, f"{quotes.name}/1.parquet")
        >>> trades = [{"symbol": "ACME", "t": datetime(2026, 6, 1, 12)}]
        >>> priced = Pond().lookup_join(
        ...     trades, ParquetTable(quotes.name), on="symbol", left_time="t", right_time="at", columns=["bid"]
        ... )
        >>> priced.select(["symbol", "bid"]).to_pylist()
        [{'symbol': 'ACME', 'bid': 9.5}]
        >>> quotes.cleanup()
        """
        one, table = self._side(LEFT, left), table_side(right, columns)
        made = call_lookup_join(
            one.rows,
            table,
            begun_anew,
            on=on,
            times=(check_time(LEFT, one.schema, left_time, "left_time"), right_time),
            how=how,
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=None if where is None else lambda shown: partial(matching, one.schema, table.named(shown), where),
            otherwise=otherwise,
            default=default,
            right_order=right_order,
            right_op=right_op,
            null_safe=null_safe,
            max_bytes=max_bytes,
            name=name,
        )
        return self._result(made, [one])

    @named_in_errors
    def stream_join(
        self,
        left: Given,
        right: Given,
        *,
        on: On,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        within: Duration | pc.Expression | None = None,
        before: Duration | pc.Expression | None = None,
        after: Duration | pc.Expression | None = None,
        at_most: Duration | None = None,
        how: StreamHow = "inner",
        grace: Duration = 0,
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """Return the pairs of rows with equal keys whose times are close.

        Args:
            left, right: the streams.
            on: the columns that must be equal.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns with the times of each side, in place of ``time``.
            within: how far apart the times may be, earlier or later.
            before, after: how much older, and how much newer, than the left row the right one may be, in place of
                ``within``. Each is one length of time for all rows, or an expression of Arrow, such as
                ``pc.field("most")``, with that of each left row: a duration, or an integer of milliseconds. A left row
                with a null there finds nobody.
            at_most: the greatest bound that a row may have in such an expression. A left row with a greater one cannot
                be used.
            how: ``"inner"``; ``"left"``, ``"right"`` or ``"outer"`` to keep the rows of the left, the right or both
                sides that find nobody; ``"semi"`` for the left rows that find somebody, ``"anti"`` for those that do
                not.
            grace: how late a row may be.
            null_safe: whether a null in ``on`` equals a null.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, those of the right side that
            are not in ``on``. Where there is no left row, the columns in ``on`` are the right row's.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> ads = [{"user": 1, "shown": datetime(2026, 6, 1, 12, minute)} for minute in (0, 30)]
        >>> clicks = [{"user": 1, "clicked": datetime(2026, 6, 1, 12, 4)}]
        >>> times = {"left_time": "shown", "right_time": "clicked"}
        >>> seen = Pond().stream_join(ads, clicks, on="user", **times, after="10 minutes", how="left")
        >>> [(row["shown"].minute, row["clicked"] is not None) for row in seen.to_pylist()]
        [(0, True), (30, False)]
        """
        sides = self._side(LEFT, left), self._side(RIGHT, right)
        one, other, times = joined_sides(*sides, (time, left_time, right_time), chosen_join(how, JoinType))
        given = {"within": within, "before": before, "after": after}
        windows, bounds, reach = join_bounds(one.schema.names, Expression, "pc.field", given, at_most, grace)
        if bounds is not None:
            one = with_own_bounds(one, reach)
        made = call_stream_join(
            one.rows,
            other.rows,
            begun_anew,
            on=on,
            times=times,
            windows=windows,
            bounds=bounds,
            how=how,
            null_safe=null_safe,
            name=name,
        )
        return self._result(made, [one, other])

    @named_in_errors
    def table_join(
        self,
        left: Given,
        right: Given,
        *,
        on: On,
        time: str | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        left_key: str | Sequence[str] | None = None,
        left_order: str | None = None,
        right_order: str | None = None,
        left_op: str | None = None,
        right_op: str | None = None,
        how: TableHow = "inner",
        history: Duration | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """Join two change feeds into one, kept current whichever side changes.

        Args:
            left, right: change feeds: each row sets what its key has from now on, or deletes it.
            on: the columns that must be equal: the key of the right side and, without ``left_key``, of the left one.
            left_key: the key of the left side, if ``on`` is a foreign key in it: then many left rows may have one right
                row.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns with the times of each side, in place of ``time``.
            left_order, right_order: the columns that decide among changes of one key and time, the greatest last; for
                this the sides need a ``history``.
            left_op, right_op: the columns that say which rows are deletes, as ``op`` in ``latest``.
            how: ``"inner"``, ``"left"`` or ``"outer"``, and by foreign key also ``"right"``. By foreign key, these last
                two show each right row that no left row names, without a left key, until one names it. A left row with
                a null in its key is unusable then (``on_error``).
            history: makes the sides versioned: a change that is not its key's latest by time is no result.
            ttl: by key, how long a row of either side lives after its time; None for ever.
            expired: what comes out when the ``ttl`` of a row is over: ``"silent"`` for nothing, or ``"delete"``.
            null_safe: whether a null in ``on`` equals a null.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            A change feed: the left side's key, its other columns, those of the right side that are not in ``on``, and
            ``op``, ``sequence`` and ``change_time``. By foreign key, a ``"right"`` or ``"outer"`` one is of the left
            key and the columns in ``on`` together, which come first: a left row that names another right row is deleted
            there, and is there anew.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> orders = [{"id": 1, "customer": "c", "at": datetime(2026, 6, 1)}]
        >>> customers = [{"customer": name, "since": datetime(2026, 1, 1), "city": "Rome"} for name in "cd"]
        >>> sides = {"on": "customer", "left_key": "id", "left_time": "at", "right_time": "since"}
        >>> Pond().table_join(orders, customers, **sides, how="outer").select(["id", "customer", "city"]).to_pylist()
        [{'id': None, 'customer': 'd', 'city': 'Rome'}, {'id': 1, 'customer': 'c', 'city': 'Rome'}]
        """
        sides = self._side(LEFT, left), self._side(RIGHT, right)
        one, other, times = joined_sides(*sides, (time, left_time, right_time), chosen_join(how, JoinType))
        made = call_table_join(
            one.rows,
            other.rows,
            begun_anew,
            on=on,
            times=times,
            left_key=left_key,
            orders=(left_order, right_order),
            ops=(left_op, right_op),
            how=how,
            history=history,
            ttl=ttl,
            expired=expired,
            null_safe=null_safe,
            name=name,
        )
        return self._result(made, [one, other])

    @named_in_errors
    def multi_join(
        self,
        tables: Mapping[str, Given],
        *,
        on: OnEach,
        time: str | Mapping[str, str],
        order: str | Mapping[str, str] | None = None,
        op: str | Mapping[str, str] | None = None,
        how: HowEach = "inner",
        history: Duration | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """Join two or more change feeds by one key into one: one change of each key that has another result then.

        Args:
            tables: change feeds by names of your choice, in the order in which the result has their columns. Each row
                sets what its key has from now on, or deletes it.
            on: the columns of the key, which all tables have, or a mapping with those of each table.
            time: the column with the times of the changes, or a mapping with that of each table. Of one column for all,
                the result has that of the first table.
            order: the column that decides among changes of one key and time, the greatest last, or a mapping; for this
                the tables need a ``history``.
            op: the column that says which rows are deletes, as ``op`` in ``latest``, or a mapping.
            how: ``"inner"`` for the keys that all tables have; ``"left"`` for those of the first; ``"outer"`` for those
                of any. Or a mapping with that of each table but the first: how it joins those before it, as in SQL.
            history: makes the tables versioned: a change that is not its key's latest by time is no result.
            ttl: how long a row lives after its time; None for ever.
            expired: what comes out when the ``ttl`` of a row is over: ``"silent"`` for nothing, or ``"delete"``.
            null_safe: whether a null in ``on`` equals a null.
            name: the verb's name, for messages; by default made of the verb and the key.

        Returns:
            A change feed: the first table's key, the other columns of each table, and ``op``, ``sequence`` and
            ``change_time``.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                two tables have one of the same name.
            RecordError: a row cannot be used.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> orders = [{"id": id, "at": datetime(2026, 6, 1), "item": item} for id, item in ((1, "tea"), (2, "rye"))]
        >>> payments = [{"id": 1, "at": datetime(2026, 6, 2), "paid": 3.5}]
        >>> parcels = [{"id": 1, "at": datetime(2026, 6, 3), "sent": "by rail"}]
        >>> tables = {"orders": orders, "payments": payments, "parcels": parcels}
        >>> joined = Pond().multi_join(tables, on="id", time="at", how="left")
        >>> joined.select(["id", "item", "paid", "sent"]).to_pylist()  # doctest: +NORMALIZE_WHITESPACE
        [{'id': 1, 'item': 'tea', 'paid': 3.5, 'sent': 'by rail'},
         {'id': 2, 'item': 'rye', 'paid': None, 'sent': None}]
        """
        check_tables(tables)
        sides = [self._side(table, rows) for table, rows in tables.items()]
        check_times_of(sides, times_of(time, list(tables)))
        made = call_multi_join(
            {side.role: side.rows for side in sides},
            begun_anew,
            on=on,
            time=time,
            order=order,
            op=op,
            how=how,
            history=history,
            ttl=ttl,
            expired=expired,
            null_safe=null_safe,
            name=name,
        )
        return self._result(made, sides)

    @named_in_errors
    def apply(
        self,
        rows: Given,
        processor: KeyedProcessor,
        *,
        key: str | Sequence[str],
        time: str,
        schema: pa.Schema,
        lateness: Duration | None = None,
        order: str | None = None,
        optional: Collection[str] = (),
        ttl: Duration | None = None,
        name: str | None = None,
    ) -> Result:
        """Run a processor of your own, by key, with state and timers.

        It sees each key's rows and event-time timers in the order of time, and is the one that ``Millpond.apply``
        takes: so a test of it needs no Spark.

        Args:
            rows: the rows.
            processor: handles them.
            key: the columns of the key.
            time: the column with the time of a row.
            schema: the columns of the results.
            lateness: how late a row may be, and so how long each waits; a later one is dropped and counted. It may be
                left out where rows are complete.
            order: in which order the rows of one key and time come, as in ``latest``.
            optional: the columns that not every result has.
            ttl: how long ``context.state`` of a key lives after the processor last set it.
            name: the verb's name, for messages; by default made of the processor's class and the columns.

        Returns:
            The rows that the processor returned, with the columns of ``schema``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
            UserFunctionError: the processor failed.

        >>> from millpond import Pond
        >>> from datetime import datetime
        >>> class Rises(KeyedProcessor):
        ...     def process(self, key, row, context):
        ...         before = context.state.get()
        ...         context.state.set(row["price"])
        ...         if before is not None and row["price"] > before:
        ...             yield {"part": key, "by": row["price"] - before}
        >>> prices = [{"part": "nut", "at": datetime(2026, 6, day), "price": price} for day, price in ((2, 5), (1, 3))]
        >>> columns = pa.schema([("part", pa.string()), ("by", pa.int64())])
        >>> Pond().apply(prices, Rises(), key="part", time="at", schema=columns).to_pylist()
        [{'part': 'nut', 'by': 2}]
        """
        if not isinstance(schema, pa.Schema):
            raise InvalidArgumentError(
                f"schema is {schema!r}; give the columns of the results, such as pa.schema([('total', pa.int64())])"
            )
        label = name or f"{type(processor).__name__}-{'-'.join(column_names(key, 'key'))}"
        owner, wanted, side = ColumnsOwner(label, verb=True), kept_schema("schema", schema), self._side(INPUT, rows)
        made = call_apply(
            side.rows,
            begun_anew,
            processor,
            key=key,
            time=time,
            results=DictColumns(ColumnValues(owner, optional_columns(owner, wanted, optional)), wanted),
            lateness=self._history(lateness, "lateness"),
            order=order,
            ttl=ttl,
            name=label,
        )
        return self._result(made, [side])

    @abstractmethod
    def _side(self, role: str, rows: Given) -> VerbSide:
        """Return an input.

        Raises:
            ConfigurationError: these are no rows.
        """

    @abstractmethod
    def _result(self, made: Made, sides: Sequence[VerbSide]) -> Result:
        """Return the result of the verb: the return value of its call."""

    @abstractmethod
    def _history(self, history: Duration | None, what: str = "history") -> Duration:
        """Return a history, or what else says how late rows may come, as far as it may be left out.

        Raises:
            ConfigurationError: it is missing.
        """

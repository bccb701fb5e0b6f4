"""``top_n`` and ``deduplicate`` of ``Millpond``: the first rows of each key by an order, or by time.

Rule of this module: it says which DataFrame a verb reads. What the verb is, ``millpond.processors.calls`` tells, and
how it runs, ``VerbRunner``. Nothing is started.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.verbs.calling import verb
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.made import MadeVerbs
from millpond.processors.calls.deduplicate import call_deduplicate
from millpond.processors.calls.top_n import call_top_n
from millpond.processors.verbs.aggregate import Windows
from millpond.stores.encoding.times import Duration, Instant

Order: TypeAlias = str | Column | Sequence[str | Column]
"""A column, an expression, or several of them, of which the first one decides first."""


class TopVerbs(MadeVerbs):
    """Verbs that keep the first rows of each key."""

    @verb
    def top_n(
        self,
        rows: DataFrame,
        n: int,
        *,
        by: str | Sequence[str],
        order: Order,
        descending: bool | Sequence[bool] = False,
        time: str | Column,
        window: Windows | None = None,
        until: Mapping[Instant | str, Windows] | None = None,
        emit: Literal["updates", "final"] = "updates",
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Return the first ``n`` rows of each key by an order, or of each key and window, with their ranks.

        It is what ``row_number()`` over a ``Window`` partitioned by the key gives in a batch, where it is at most
        ``n``. Rows that are equal in the order are ranked by all their other columns, always the same way, so the
        answer does not depend on files, micro-batches or tasks; equal rows each have a rank. In the order null comes
        before all values and NaN behind all numbers, and the other way round if it is descending; ``-0.0`` and ``0.0``
        are equal. To place nulls otherwise, order by ``F.col(...).isNull()`` first.

        The state keeps ``n`` rows of each key, or of each key and window, and forgets the others. So a row stays once
        it has come: a change feed, whose rows are replaced and deleted, is refused.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            n: how many rows of each key.
            by: the columns of the key; null is a key like any other.
            order: a column or an expression, or a list of them, of which the first decides first.
            descending: whether the greatest comes first; for several in ``order`` also a list, one for each.
            time: the column (or expression) with the time of a row.
            window: windows as in ``aggregate``; None for all rows of a key.
            until: the windows of earlier runs, as in ``aggregate``.
            emit: ``"updates"`` for what has changed after every micro-batch, or ``"final"`` for the rows of a window
                once, when it has closed.
            ttl: without a window: how long the rows of a key live after the time of its last row, ranked or not, beyond
                the bound of ``time`` from another verb. Then all of them are gone, and the next row of the key begins
                anew. A row that is older when it comes is dropped and counted. None is for ever.
            expired: what comes out of rows whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"`` for a row
                with ``op`` ``delete`` for each rank, and the time at which it was over.
            name: the verb's name, by which a restart finds its state; by default ``top_n`` and its columns.
            renamed, dropped: columns of the input that had another name in an earlier run, or that were there. ``n``,
                ``order`` and ``descending`` stay what they were.

        Returns:
            The key, ``window`` (start and end) if there are windows, ``rank`` from 1 on, and the other columns. Updates
            are a change feed by key and rank, with ``op``, ``sequence`` and ``change_time``. A micro-batch has one row
            for each rank that now has another row. A rank that is gone, because a session has become part of another or
            because of ``expired``, is deleted before the others of its key are set.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns, or of another ``n`` or order.
            DurabilityError: the state could not be read or written.
        """
        start = self._start(renamed, dropped)
        made = call_top_n(
            FrameRows(rows),
            start,
            n,
            by=by,
            order=order,
            descending=descending,
            time=time,
            window=window,
            until=until,
            emit=emit,
            ttl=ttl,
            expired=expired,
            name=name,
        )
        return self._result(start.run, made)

    @verb
    def deduplicate(
        self,
        rows: DataFrame,
        *,
        key: str | Sequence[str],
        time: str | Column,
        within: Duration,
        grace: Duration | None = None,
        order: str | Column | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Return the first row of each key, once, without the duplicates that come within some time after it.

        The rows of a key count in the order of ``time``. The first one is kept, and then each one that is later than
        the last one kept by more than ``within``; those between are its duplicates, however many they are. With
        ``grace`` the answer is exact: that of all rows that are in time, whatever files, micro-batches and tasks they
        come in. Without it rows come out at once, and a row that comes in a later micro-batch than the one kept is its
        duplicate also where it is earlier.

        The state has a time for each key, and with ``grace`` the rows that wait.

        Args:
            rows: the rows. They stay once they have come: a change feed is refused.
            key: the columns that duplicates have in common; null is a value like any other.
            time: the column (or expression) with the time of a row.
            within: how much later than the row that was kept a duplicate is at most.
            grace: how late a row may be, beyond the bound of ``time`` from another verb, and so how long each row waits
                for earlier ones; later rows are dropped and counted. None takes rows at once; then ``within``, with
                that bound, also says how late a row may be.
            order: what decides among rows of one key and time, the least first: a column or an expression. Without it
                the other columns do, always the same way.
            name: the verb's name, by which a restart finds its state; by default ``deduplicate`` and its columns.
            renamed, dropped: columns of the input that had another name in an earlier run, or that were there.

        Returns:
            The rows that are kept: the key, and the other columns.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns or another order, or there was a
                grace and is none now, or the other way round.
            DurabilityError: the state could not be read or written.
        """
        start = self._start(renamed, dropped)
        made = call_deduplicate(
            FrameRows(rows), start, key=key, time=time, within=within, grace=grace, order=order, name=name
        )
        return self._result(start.run, made)

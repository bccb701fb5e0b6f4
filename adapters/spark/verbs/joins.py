"""The joins of ``Millpond``: two DataFrames or more, their keys and times, and how they meet.

Rule of this module: it says which DataFrames a join reads. What the join is, ``millpond.processors.calls`` tells, and
how it runs, ``VerbRunner``. Nothing is started.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.spark.rows.arrow_expressions import Condition
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.arguments import Bound, condition_of, own_bounds
from millpond.adapters.spark.verbs.calling import verb
from millpond.adapters.spark.verbs.frame_rows import FrameRows
from millpond.adapters.spark.verbs.frames.catalyst import NotInArrowError, evaluated
from millpond.adapters.spark.verbs.frames.inputs import check_rows
from millpond.adapters.spark.verbs.over import OverVerbs
from millpond.adapters.spark.verbs.spelled_names import spelled_name
from millpond.errors import InvalidArgumentError, InvalidExpressionError
from millpond.processors.calls.arguments import On, check_sides_times, chosen_join, in_micros
from millpond.processors.calls.joins.asof_join import call_asof_join
from millpond.processors.calls.joins.lookup_join import MAX_BYTES, TableSide, call_lookup_join
from millpond.processors.calls.joins.multi_join import HowEach, OnEach, call_multi_join, check_tables
from millpond.processors.calls.joins.stream_join import call_stream_join
from millpond.processors.calls.joins.table_join import call_table_join
from millpond.processors.calls.own_bounds import join_bounds
from millpond.processors.options.joins import ASOF_JOINS, AsofHow, JoinType, Side, StreamHow, TableHow
from millpond.processors.options.versioned_table import VersionedTable
from millpond.processors.pond.sides import table_side
from millpond.processors.verbs.joins.stream_join import BOUNDS
from millpond.stores.encoding.times import Duration

_ONCE_ADDED: Final = ("millpond_left_time", "millpond_right_time")
"""Columns that earlier releases added to both sides for ``tolerance``; rows in state may have them."""


class JoinVerbs(OverVerbs):
    """Verbs on two DataFrames or more."""

    @verb
    def asof_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        time: str | None = None,
        left_time: str | Column | None = None,
        right_time: str | Column | None = None,
        history: Duration,
        how: AsofHow = "inner",
        grace: Duration | None = None,
        tolerance: Duration | None = None,
        exact: bool = True,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        where: str | Column | None = None,
        otherwise: Literal["miss", "next"] = "miss",
        default: Mapping[str, Any] | None = None,
        right_order: str | Column | None = None,
        right_op: str | Column | None = None,
        null_safe: bool = False,
        emit: Literal["final", "updates"] = "final",
        left_key: str | Sequence[str] | None = None,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Join each left row with the right row that was valid at its time: the last one that is not later.

        Or, by the ``direction``, with the first one that is not earlier, or with the closer one of the two.

        Args:
            left: the rows to complete.
            right: the versions that complete them. Each is valid from its time until the next version of its key.
            on: the columns that must be equal.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns (or expressions) with the times of each side, timestamps or dates, in
                place of ``time``.
            history: how far back from the newest right time a left row may be, beyond the bounds that the times have
                from other verbs. An older one finds at most the newest version of its key. A version that was still
                valid then is found, however old it is and whenever it comes.
            how: ``"inner"``; ``"left"`` also keeps left rows without a match, and those without a time; ``"semi"``
                gives the left rows that have a match, without its columns; ``"anti"`` gives those that have none.
            grace: how long a left row waits for late right rows, in event time, beyond the bound of the right side. By
                default it is joined at once, if there is no bound.
            tolerance: how much older than the left row a match may be, or, by the ``direction``, newer; by default any
                age.
            exact: whether a right row with the very time of the left row is a match. If not, only an older one is, or,
                by the ``direction``, a newer one.
            direction: ``"backward"`` for what was valid at the left row's time; ``"forward"`` for the first right row
                from that time on, past deletes; ``"nearest"`` for the closer one of both, and the older one of two that
                are equally close. The last two need ``tolerance`` and ``grace``: a left row waits for both together, in
                event time of the left side, and ``history`` is as long as both.
            where: a condition of a match, as ``DataFrame.where`` takes it, such as ``"price <= most"``, on the left
                columns and on the right ones that are not in ``on``. Arrow evaluates it, with Spark's answers; null is
                not true. By default any right row is a match.
            otherwise: what happens to a left row whose right row fails ``where``. ``"miss"``: it has no match.
                ``"next"``: that row is passed over, and the next one that fulfills the condition is the match: an older
                one, or, by the ``direction``, a newer one. ``"next"`` needs a ``tolerance``, keeps right rows for the
                history and the tolerance together, and stops at a delete when it looks backward.
            default: for ``"left"``: the values of right columns, by their names, where there is no match; the others
                are null there. A null of a right row that matches stays null.
            right_order: what decides among right rows of one key and time, as ``order`` in ``latest``.
            right_op: the column that says which right rows are deletes, as ``op`` in ``latest``.
            null_safe: whether a null in ``on`` equals a null, as by ``<=>``; otherwise it equals nothing, as by ``=``.
            emit: ``"final"``: each left row comes out once. ``"updates"``: it comes out at once, and again whenever a
                late right row or a delete gives it another match, as a change feed. Left rows are kept with their
                matches for the ``history``, back from the newest left time; what is older stays as it came out. There
                is no ``grace`` then, and a ``direction`` needs a ``tolerance`` alone.
            left_key: for ``"updates"``: the columns of the left side that tell rows of one key and time apart, such as
                a number. Of two rows that are equal in them, one counts, whichever comes first.
            name: the verb's name, by which a restart finds its state; by default ``asof_join`` and its columns.
            renamed, dropped: columns of the inputs that had another name in an earlier run, or that were there.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, the right columns that are
            not in ``on``. If both sides are change feeds, it has the ``op``, ``sequence`` and ``change_time`` of the
            left one. Updates are a change feed with the key ``on``, ``left_time`` and ``left_key``; their
            ``change_time`` is the left row's time, and a delete has the columns of the left side.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        in_micros(history, "history")
        added = (column for column in _ONCE_ADDED if column not in (*left.columns, *right.columns))
        start = self._start(renamed, (*dropped, *added))
        other, times = _timed(right, (time, left_time, right_time), chosen_join(how, ASOF_JOINS))
        made = call_asof_join(
            FrameRows(left),
            other,
            start,
            on=on,
            times=times,
            history=history,
            how=how,
            grace=grace,
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=None if where is None else partial(_matching, left, right, where),
            otherwise=otherwise,
            default=default,
            right_order=right_order,
            right_op=right_op,
            null_safe=null_safe,
            emit=emit,
            left_key=left_key,
            name=name,
        )
        return self._result(start.run, made)

    @verb
    def lookup_join(
        self,
        left: DataFrame,
        right: VersionedTable,
        *,
        on: On,
        left_time: str | Column,
        right_time: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        how: AsofHow = "inner",
        tolerance: Duration | None = None,
        exact: bool = True,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        where: str | Column | None = None,
        otherwise: Literal["miss", "next"] = "miss",
        default: Mapping[str, Any] | None = None,
        right_order: str | None = None,
        right_op: str | None = None,
        null_safe: bool = False,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
    ) -> DataFrame:
        """Join each left row with the row of a table in files that was valid at its time, without a copy of the table.

        All tasks of a micro-batch read one version of the table, the newest when the first of them begins. It is
        settled before a row is read, so a micro-batch that is repeated reads the same one. Left rows come out at once;
        what comes into the table later changes no result. A static DataFrame meets the version of now.

        Args:
            left: the rows to complete.
            right: a ``ParquetTable`` or ``DeltaTable`` of ``millpond.adapters.tables``, or one of your own, with the
                methods of ``VersionedTable``, which workers can import. Each row is valid from its time until the next
                row of its key. Rows without a time are left out.
            on: the columns that must be equal.
            left_time: the column (or expression) with the times: timestamps or dates.
            right_time: the column of the table with the times.
            columns: the columns of the table that the result has: a list of names, or a mapping from the name in the
                result to the name in the table. By default all that are not in ``on``.
            how: as in ``asof_join``.
            tolerance: how much older than the left row a match may be, or, by the ``direction``, newer; by default any
                age.
            exact: whether a right row with the very time of the left row is a match.
            direction: as in ``asof_join``; ``"forward"`` and ``"nearest"`` need a ``tolerance``. No row waits for a
                newer one: what the version has counts.
            where, otherwise, default: as in ``asof_join``; columns of the table have their names in the result.
            right_order: the column that decides among right rows of one key and time, the greatest last; by default the
                columns of the result do.
            right_op: the column that says which right rows are deletes, as ``op`` in ``latest``.
            null_safe: whether a null in ``on`` equals a null, as by ``<=>``; otherwise it equals nothing, as by ``=``.
            max_bytes: how many bytes the rows of the table may take in the memory of each Python process. More are
                refused.
            name: the verb's name, by which a restart finds its state; by default ``lookup_join`` and its columns.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, the ``columns`` of the
            table.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the table cannot be read, or not in so much memory.
            DurabilityError: the table, or which version a micro-batch reads, could not be read or written.
        """
        table, start = table_side(right, columns), self._start(None, ())
        made = call_lookup_join(
            FrameRows(left),
            table,
            start,
            on=on,
            times=(left_time, right_time),
            how=how,
            tolerance=tolerance,
            exact=exact,
            direction=direction,
            where=None if where is None else lambda shown: partial(_matching, left, _none(left, table, shown), where),
            otherwise=otherwise,
            default=default,
            right_order=right_order,
            right_op=right_op,
            null_safe=null_safe,
            max_bytes=max_bytes,
            name=name,
        )
        return self._result(start.run, made)

    @verb
    def stream_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        time: str | None = None,
        left_time: str | Column | None = None,
        right_time: str | Column | None = None,
        within: Bound | None = None,
        before: Bound | None = None,
        after: Bound | None = None,
        at_most: Duration | None = None,
        how: StreamHow = "inner",
        grace: Duration = 0,
        null_safe: bool = False,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Return the pairs of rows with equal keys whose times are close.

        Args:
            left, right: the streams.
            on: the columns that must be equal.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns (or expressions) with the times of each side, timestamps or dates, in
                place of ``time``.
            within: how far apart the times may be, earlier or later.
            before, after: how much older, and how much newer, than the left row the right one may be, in place of
                ``within``. Each is one length of time, or a column (or expression) of the left side with that of each
                row: an interval of days to seconds, or an integer of milliseconds. A left row with a null there meets
                nobody.
            at_most: the greatest bound that a row may have in such a column; rows are kept for that long. A left row
                with a greater one is unusable: the query fails, or ``on_error`` leaves it out.
            how: ``"inner"``; ``"left"``, ``"right"`` or ``"outer"`` also keep rows of the left, the right or both sides
                that meet nobody, once their window and grace have passed, and rows without a time at once; ``"semi"``
                gives the left rows that meet somebody, each once, with its first match; ``"anti"`` gives those that
                meet nobody.
            grace: how late a row may be, beyond the bounds that the times have from other verbs.
            null_safe: whether a null in ``on`` equals a null, as by ``<=>``; otherwise it equals nothing, as by ``=``.
            name: the verb's name, by which a restart finds its state; by default ``stream_join`` and its columns.
            renamed, dropped: columns of the inputs that had another name in an earlier run, or that were there.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, the right columns that are
            not in ``on``. Where there is no left row, the columns in ``on`` are the right row's.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        given = {"within": within, "before": before, "after": after}
        other, times = _timed(right, (time, left_time, right_time), chosen_join(how, JoinType))
        windows, bounds, sides = join_bounds(left.columns, Column, "F.col", given, at_most, grace)
        added = None if bounds is None else own_bounds(left, sides)
        start = self._start(renamed, dropped if bounds is not None else (*dropped, *BOUNDS.values()))
        made = call_stream_join(
            FrameRows(left) if added is None else FrameRows(left.withColumns(added), added),
            other,
            start,
            on=on,
            times=times,
            windows=windows,
            bounds=bounds,
            how=how,
            null_safe=null_safe,
            name=name,
        )
        return self._result(start.run, made)

    @verb
    def table_join(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        on: On,
        time: str | None = None,
        left_time: str | Column | None = None,
        right_time: str | Column | None = None,
        left_key: str | Sequence[str] | None = None,
        left_order: str | Column | None = None,
        right_order: str | Column | None = None,
        left_op: str | Column | None = None,
        right_op: str | Column | None = None,
        how: TableHow = "inner",
        history: Duration | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        null_safe: bool = False,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Join two change feeds into one, kept current whichever side changes.

        Args:
            left, right: change feeds: each row sets what its key has from now on, or deletes it.
            on: the columns that must be equal: the key of the right side and, without ``left_key``, of the left one.
            left_key: the key of the left side, if ``on`` is a foreign key in it: then many left rows may have one right
                row.
            time: the column with the times, where it is called the same on both sides; the result has the left one.
            left_time, right_time: the columns (or expressions) with the times of the changes of each side, in place of
                ``time``.
            left_order, right_order: what decides among changes of one key and time, as ``order`` in ``latest``. They
                need a ``history``.
            left_op, right_op: the columns that say which rows are deletes, as ``op`` in ``latest``.
            how: ``"inner"``, ``"left"`` or ``"outer"``, and by foreign key also ``"right"``. By foreign key,
                ``"right"`` and ``"outer"`` show each right row that no left row names, without a left key, until one
                names it; a left row with a null in its key is unusable then (``on_error``).
            history: makes the sides versioned: an older change than the newest of its key makes no result, and deletes
                are remembered that long, beyond the bounds of the times from other verbs. Without it, changes apply by
                time within a micro-batch, and those of a later one after them, even if they are older.
            ttl: by key: how long a row of either side lives after its time, beyond the bounds of the times from other
                verbs. Once the newest time of both sides is so much later, the row is gone as if it had been deleted. A
                row that is older when it comes is dropped and counted. None is for ever.
            expired: what comes out when the ``ttl`` of a row is over. ``"silent"``: nothing, so what was joined with it
                stands until its key changes. ``"delete"``: what deleting the row makes of the result, at the time at
                which it was over.
            null_safe: whether a null in ``on`` equals a null, as by ``<=>``; otherwise it equals nothing, as by ``=``.
            name: the verb's name, by which a restart finds its state; by default ``table_join`` and its columns.
            renamed, dropped: columns of the inputs that had another name in an earlier run, or that were there.

        Returns:
            A change feed: the left side's key, its other columns, the right columns that are not in ``on``, and ``op``
            (``"upsert"`` or ``"delete"``), ``sequence`` (orders the changes of a key) and ``change_time``. By foreign
            key, a ``"right"`` or ``"outer"`` feed has the left key and the columns in ``on`` together as its key, which
            come first: a left row that names another right row is deleted there, and is there anew.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            StateConflictError: the state is that of another verb, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        start = self._start(renamed, dropped)
        other, times = _timed(right, (time, left_time, right_time), chosen_join(how, JoinType))
        made = call_table_join(
            FrameRows(left),
            other,
            start,
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
        return self._result(start.run, made)

    @verb
    def multi_join(
        self,
        tables: Mapping[str, DataFrame],
        *,
        on: OnEach,
        time: str | Column | Mapping[str, str | Column],
        order: str | Column | Mapping[str, str | Column] | None = None,
        op: str | Column | Mapping[str, str | Column] | None = None,
        how: HowEach = "inner",
        history: Duration | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        null_safe: bool = False,
        name: str | None = None,
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> DataFrame:
        """Join two or more change feeds by one key into one, in one operator: one shuffle of each, and one commit.

        Whatever changes of a key within a micro-batch, of however many tables, its result comes out once, as it is at
        the end of that, and not at all if there was none before and is none then. A chain of ``table_join`` shows each
        change by itself, and so rows that are true of no moment at which the tables are complete.

        Args:
            tables: change feeds by names of your choice, in the order in which the result has their columns. Each row
                sets what its key has from now on, or deletes it. The names are those of the stores and stay as long as
                the state: letters, digits and underscores.
            on: the columns of the key, which all tables have, or a mapping with the columns of each table.
            time: the column (or expression) with the times of the changes, or a mapping with one for each table. If all
                tables have one column, the result has that of the first.
            order: what decides among changes of one key and time, as ``order`` in ``latest``, or a mapping. It needs a
                ``history``.
            op: the column that says which rows are deletes, as ``op`` in ``latest``, or a mapping.
            how: ``"inner"`` for the keys that all tables have; ``"left"`` for the keys of the first; ``"outer"`` for
                the keys of any. Or a mapping with one for each table but the first: how it joins those before it, as in
                SQL.
            history: makes the tables versioned, as in ``table_join``.
            ttl: how long a row lives after its time, as in ``table_join``, by the newest time of all tables.
            expired: what comes out when the ``ttl`` of a row is over: ``"silent"`` for nothing, or ``"delete"``.
            null_safe: whether a null in ``on`` equals a null, as by ``<=>``; otherwise it equals nothing, as by ``=``.
            name: the verb's name, by which a restart finds its state; by default ``multi_join`` and its columns.
            renamed, dropped: columns of the inputs that had another name in an earlier run, or that were there.

        Returns:
            A change feed: the key, as the first table calls it, the other columns of each table, and ``op``,
            ``sequence`` and ``change_time``: the newest time of the rows that are joined and of the changes that came
            out with them.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                two tables have one of the same name.
            StateConflictError: the state is that of another verb, of other tables, or of other columns.
            DurabilityError: the state could not be read or written.
        """
        check_tables(tables)
        for table, rows in tables.items():
            check_rows(table, rows)
        start = self._start(renamed, dropped)
        made = call_multi_join(
            {table: FrameRows(rows) for table, rows in tables.items()},
            start,
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
        return self._result(start.run, made)


def _timed(right: DataFrame, times: tuple[Any, Any, Any], join_type: JoinType) -> tuple[FrameRows, tuple[Any, Any]]:
    """Return the right rows of a join and its times; of one column for both, the result has that of the left side.

    Raises:
        ConfigurationError: times are not given, or given twice, or the one for both sides is no name.
    """
    time, left_time, right_time = times
    check_sides_times(time, left_time, right_time)
    if time is None:
        return FrameRows(right), (left_time, right_time)
    if not isinstance(time, str):
        raise InvalidArgumentError(
            f"time is {time!r}; give the name of a column that both sides have, such as time='at', or else left_time "
            "and right_time"
        )
    theirs = spelled_name(right, time)
    hidden = frozenset() if join_type.keeps(Side.RIGHT) else frozenset([theirs])
    return FrameRows(right, hidden=hidden), (time, theirs)


def _none(left: DataFrame, table: TableSide, shown: Mapping[str, str]) -> DataFrame:
    """Return no rows, with the columns that a table has in the result."""
    columns = from_arrow_schema(table.named(shown), prefer_timestamp_ntz=True)
    return left.sparkSession.createDataFrame([], columns)


def _matching(left: DataFrame, right: DataFrame, where: str | Column, columns: Sequence[str]) -> Condition:
    """Return the condition of a match, on the columns of the left side and these of the right side.

    Raises:
        ConfigurationError: it is none, or has something that Arrow does not evaluate.
    """
    both = left.crossJoin(right.select(*map(named, columns)))
    condition = condition_of(both, "where", where, '"price <= most"')
    try:
        found = evaluated(both, condition)
    except NotInArrowError as error:
        raise InvalidExpressionError(
            f"where is {where!r}, of which Arrow does not evaluate all: {error}; make what it compares columns of the "
            "two sides before, such as right=right.withColumn('small', F.lower('name')), and compare these"
        ) from error
    if found is None:
        raise InvalidExpressionError(
            f"where is {where!r}, and how Spark understands it is not shown to a session of Spark Connect"
        )
    return Condition(found)

"""``Pond``: the verbs of ``Millpond`` on tables, in this process.

Rule of this module: a verb checks what the user wrote, and leaves the rest to ``made`` and ``MicroBatches``. Names,
arguments and meanings are those of ``Millpond``; columns are given by their names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

import pyarrow as pa

from millpond.errors import ConfigurationError
from millpond.processors.calls.arguments import (
    INPUT,
    On,
    check_calls,
    check_distinct,
    check_foreign_ttl,
    check_history,
    check_table_order,
    check_ttl,
    check_zones,
    chosen_join,
    column_names,
    column_pairs,
    defaults_of,
    emits_final,
    grouping_names,
    in_micros,
    join_windows,
    named_in_errors,
)
from millpond.processors.options.joins import ASOF_JOINS, TABLE_JOINS, AsofDirection, JoinType
from millpond.processors.options.on_error import OnError
from millpond.processors.pond.frames import Frame, kept_schema, table_of
from millpond.processors.pond.made import (
    Made,
    make_aggregate,
    make_asof_join,
    make_latest,
    make_stream_join,
    make_table_join,
)
from millpond.processors.pond.micro_batches import MicroBatches
from millpond.processors.pond.sides import VerbSide, joined_sides, with_conditions
from millpond.processors.runtime.failures import DeadLetter
from millpond.processors.verbs.aggregate import WINDOW, Windows
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.stores.backend.contract import BackendSupplier
from millpond.stores.backend.registry import supplier
from millpond.stores.encoding.times import Duration
from millpond.stores.typed.expiry import Expired

Given = TypeVar("Given", contravariant=True)
"""What a verb is given for an input."""

Result = TypeVar("Result", covariant=True)
"""What a verb returns."""

_LEFT: Final = "left"
_RIGHT: Final = "right"
_REMEDY: Final = "table.rename_columns({'old': 'new'}), table.drop_columns(['old'])"


class Verbs(ABC, Generic[Given, Result]):
    """The verbs, whatever they are given and return.

    Attributes:
        dead_letters: with ``on_error="dead-letter"``, the rows that verbs at once have left out so far.
    """

    def __init__(self, backend: str | BackendSupplier, on_error: str | OnError) -> None:
        self._backend = supplier(backend)
        self._on_error = OnError.of(on_error)
        self.dead_letters: list[DeadLetter] = []

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
        """A change feed made a table: without what repeats the row that a key has, and without what comes too late.

        Args:
            rows: each sets what its key has from its time on, or deletes it.
            key: the columns of the key.
            time: the column with the time of the change.
            history: how late a row may be; at once, none is late, and it may be left out.
            order: the column that decides among rows of one key and time, the greatest last.
            op: the column that says which rows are deletes; by default that of the change feed that a verb has made.
            ttl: how long the latest row of a key lives after its time; None for ever.
            expired: what comes out of a row whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"``.
            name: of the verb, for messages; by default made of the verb and the key.

        Returns:
            A change feed: the key, the other columns, ``op``, ``sequence`` and ``change_time``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
        """
        check_ttl(ttl, expired)
        side, keys = self._side(INPUT, rows), column_names(key, "key")
        side.check(keys, order=order)
        side.check_time(time, "time")
        op = side.operations(op)
        check_distinct([*keys, *side.rest(keys, op, CHANGE_COLUMNS)], changes=True, remedy=_REMEDY)
        made = make_latest(
            name or f"latest-{'-'.join(keys)}",
            side.rows,
            key=keys,
            time=time,
            history=self._history(history),
            op=op,
            order=order,
            ttl=None if ttl is None else in_micros(ttl, "ttl"),
            expired=Expired(expired),
        )
        return self._result(made, [side])

    @named_in_errors
    def aggregate(
        self,
        rows: Given,
        calls: Mapping[str, AggregateCall],
        *,
        by: str | Sequence[str],
        time: str,
        order: str | None = None,
        window: Windows | None = None,
        emit: Literal["updates", "final"] = "updates",
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        name: str | None = None,
    ) -> Result:
        """Columns aggregated by key, or by key and window.

        Args:
            rows: the rows.
            calls: what is computed, by the name of its column: ``{"orders": count(), "total": sum("amount")}``. See
                ``millpond.processors.verbs.aggregates``; columns are names, and ``where`` is that of a column of bools.
            by: the columns of the key; null is a key like any other. With ``[]`` all rows have one key.
            time: the column with the time of a row.
            order: the column that decides for ``first``, ``last``, ``collect`` and ``map_agg`` among rows of one key
                and time.
            window: ``TimeWindows``, ``SlidingWindows`` or ``SessionWindows``, each with its grace.
            emit: ``"updates"`` for each key's last result of every micro-batch that changes it, or ``"final"`` for a
                window's result once, when it has closed.
            ttl: without a window, how long a result lives after the time of its last row; None for ever.
            expired: what comes out of a result whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"``.
            name: of the verb, for messages; by default made of the verb and the key.

        Returns:
            The key, ``window`` (start and end) if there are windows, and the results. Updates are a change feed, with
            ``op``, ``sequence`` and ``change_time`` as well.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
        """
        check_calls(calls, window)
        check_ttl(ttl, expired, window)
        final = emits_final(emit, window)
        side, keys = self._side(INPUT, rows), grouping_names(by)
        side.check(keys, order=order)
        side.check_time(time, "time")
        check_zones([window], side.instants(time), time, f"a column {time!r} cast to pa.timestamp('us', 'UTC')")
        check_distinct([*keys, *([WINDOW] if window is not None else []), *calls], changes=not final, remedy=_REMEDY)
        side, conditions = with_conditions(side, calls)
        made = make_aggregate(
            name or "-".join(["aggregate", *keys]),
            side.rows,
            {name: _where(call, conditions) for name, call in calls.items()},
            by=keys,
            time=time,
            window=window,
            final=final,
            ttl=None if ttl is None else in_micros(ttl, "ttl"),
            expired=Expired(expired),
            order=order if any(call.by_time for call in calls.values()) else None,
        )
        return self._result(made, [side], {new: old for old, new in conditions.items()})

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
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        grace: Duration | None = None,
        tolerance: Duration | None = None,
        exact: bool = True,
        direction: Literal["backward", "forward", "nearest"] = "backward",
        default: Mapping[str, Any] | None = None,
        right_order: str | None = None,
        right_op: str | None = None,
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """Each left row with the right row that was valid at its time: the last one that is not later.

        Or, by the ``direction``, with the first one that is not earlier, or with the closer one of the two.

        Args:
            left: the rows to be completed.
            right: versions of what completes them; each is valid from its time until that of the next one with its key.
            on: the columns that must be equal.
            time: the column of both sides with the times; or else
            left_time, right_time: those of each side. Of a ``time``, the result has that of the left side.
            history: how far back from the newest right time a left row may be; at once, it may be left out.
            how: ``"inner"``; ``"left"`` to keep left rows without a match; ``"semi"`` for the left rows that have one,
                without its columns; ``"anti"`` for those that have none.
            grace: how long a left row waits for late right rows, in event time; None to join it at once.
            tolerance: how much older, or by the direction newer, than the left row a match may be; None for any age.
            exact: whether a right row of the very time of the left row is a match.
            direction: ``"backward"``, or ``"forward"`` or ``"nearest"``, which need ``tolerance`` and ``grace``.
            default: for ``"left"``: what columns of the right side have, by their names, where there is no match.
            right_order: the column that decides among right rows of one key and time, the greatest last.
            right_op: the column that says which right rows are deletes, as ``op`` in ``latest``.
            null_safe: whether a null in ``on`` equals a null.
            name: of the verb, for messages; by default made of the verb and the key.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, those of the right side that
            are not in ``on``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
        """
        join_type, keys = chosen_join(how, ASOF_JOINS), column_pairs(on)
        wait = None if grace is None else in_micros(grace, "grace")
        most = None if tolerance is None else in_micros(tolerance, "tolerance")
        towards = AsofDirection.chosen(direction, grace, tolerance)
        ahead = towards.ahead(most)
        if history is not None:
            check_history(grace, tolerance, history, ahead)
        reach = max((wait or 0) + ahead, self._history(history))
        one, other = self._side(_LEFT, left), self._side(_RIGHT, right)
        one, other, times = joined_sides(one, other, keys, (time, left_time, right_time), join_type, null_safe)
        other.check([], order=right_order)
        right_op = other.operations(right_op)
        rest = other.rest(keys.values(), right_op, one.schema.names)
        if join_type.shows_right:
            check_distinct([*one.schema.names, *rest], changes=False, remedy=_REMEDY)
        made = make_asof_join(
            name or f"asof_join-{'-'.join(keys)}",
            one.rows,
            other.rows,
            on=keys,
            times=times,
            history=reach,
            how=join_type,
            grace=wait,
            tolerance=most,
            exact=exact,
            direction=towards,
            default=defaults_of(default or {}, join_type, other.schema, rest),
            right_op=right_op,
            right_order=right_order,
            null_safe=null_safe,
        )
        return self._result(made, [one, other])

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
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        how: Literal["inner", "left", "right", "outer", "semi", "anti"] = "inner",
        grace: Duration = 0,
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """The pairs of rows with equal keys whose times are close.

        Args:
            left, right: the streams.
            on: the columns that must be equal.
            time: the column of both sides with the times; or else
            left_time, right_time: those of each side. Of a ``time``, the result has that of the left side.
            within: how far apart the times may be; or else
            before, after: how much older, and how much newer, than the left row the right one may be.
            how: ``"inner"``; ``"left"``, ``"right"`` or ``"outer"`` to keep the rows of the left, the right or both
                sides that find nobody; ``"semi"`` for the left rows that find somebody, ``"anti"`` for those that do
                not.
            grace: how late a row may be.
            null_safe: whether a null in ``on`` equals a null.
            name: of the verb, for messages; by default made of the verb and the key.

        Returns:
            All columns of the left side, then, unless ``how`` is ``"semi"`` or ``"anti"``, those of the right side that
            are not in ``on``. Where there is no left row, the columns in ``on`` are the right row's.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
        """
        join_type, keys = chosen_join(how, JoinType), column_pairs(on)
        windows = join_windows(within, before, after, grace)
        one, other = self._side(_LEFT, left), self._side(_RIGHT, right)
        one, other, times = joined_sides(one, other, keys, (time, left_time, right_time), join_type, null_safe)
        if join_type.shows_right:
            rest = other.rest(keys.values(), None, one.schema.names)
            check_distinct([*one.schema.names, *rest], changes=False, remedy=_REMEDY)
        made = make_stream_join(
            name or f"stream_join-{'-'.join(keys)}",
            one.rows,
            other.rows,
            on=keys,
            times=times,
            before=windows.before,
            after=windows.after,
            grace=windows.grace,
            how=join_type,
            null_safe=null_safe,
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
        how: Literal["inner", "left", "outer"] = "inner",
        history: Duration | None = None,
        ttl: Duration | None = None,
        expired: Literal["silent", "delete"] = "silent",
        null_safe: bool = False,
        name: str | None = None,
    ) -> Result:
        """Two change feeds joined into one, kept current whichever side changes.

        Args:
            left, right: change feeds: each row sets what its key has from now on, or deletes it.
            on: the columns that must be equal. They are the right side's key, and the left side's, too, unless
            left_key: the left side's key is other columns: then ``on`` is a foreign key, of which there may be many.
            time: the column of both sides with the times; or else
            left_time, right_time: those of each side. Of a ``time``, the result has that of the left side.
            left_order, right_order: the columns that decide among changes of one key and time, the greatest last; for
                this the sides need a ``history``.
            left_op, right_op: the columns that say which rows are deletes, as ``op`` in ``latest``.
            how: ``"inner"``, ``"left"``, or, by key, ``"outer"``.
            history: makes the sides versioned: a change that is not its key's latest by time is no result.
            ttl: by key, how long a row of either side lives after its time; None for ever.
            expired: what comes out when the ``ttl`` of a row is over: ``"silent"`` for nothing, or ``"delete"``.
            null_safe: whether a null in ``on`` equals a null.
            name: of the verb, for messages; by default made of the verb and the key.

        Returns:
            A change feed: the left side's key, its other columns, those of the right side that are not in ``on``, and
            ``op``, ``sequence`` and ``change_time``.

        Raises:
            ConfigurationError: an argument is missing or invalid, or a column is absent or of a type that does not do.
            RecordError: a row cannot be used.
        """
        keys = column_pairs(on)
        primary = list(keys) if left_key is None else column_names(left_key, "left_key")
        foreign = primary != list(keys)
        join_type = chosen_join(how, (JoinType.INNER, JoinType.LEFT) if foreign else TABLE_JOINS)
        check_table_order(history, left_order, right_order)
        check_ttl(ttl, expired)
        check_foreign_ttl(primary, list(keys) if foreign else [], ttl)
        one, other = self._side(_LEFT, left), self._side(_RIGHT, right)
        one, other, times = joined_sides(one, other, keys, (time, left_time, right_time), join_type, null_safe)
        one.check(primary, order=left_order)
        other.check([], order=right_order)
        ops = one.operations(left_op), other.operations(right_op)
        rests = (
            one.rest(primary, ops[0], CHANGE_COLUMNS),
            other.rest(keys.values(), ops[1], CHANGE_COLUMNS),
        )
        check_distinct([*primary, *rests[0], *rests[1]], changes=True, remedy=_REMEDY)
        made = make_table_join(
            name or f"table_join-{'-'.join(keys)}",
            one.rows,
            other.rows,
            on=keys,
            times=times,
            ops=ops,
            left_key=primary,
            orders=(left_order, right_order),
            how=join_type,
            history=None if history is None else in_micros(history, "history"),
            ttl=None if ttl is None else in_micros(ttl, "ttl"),
            expired=Expired(expired),
            null_safe=null_safe,
        )
        return self._result(made, [one, other])

    @abstractmethod
    def _side(self, role: str, rows: Given) -> VerbSide:
        """An input.

        Raises:
            ConfigurationError: it is none.
        """

    @abstractmethod
    def _result(self, made: Made, sides: Sequence[VerbSide], conditions: Mapping[str, str] | None = None) -> Result:
        """What the verb returns."""

    @abstractmethod
    def _history(self, history: Duration | None) -> int:
        """A history in microseconds, as far as it may be left out.

        Raises:
            ConfigurationError: it is missing, or no length of time.
        """


def _where(call: AggregateCall, conditions: Mapping[str, str]) -> AggregateCall:
    return call if call.where is None else replace(call, where=conditions[str(call.where)])


class PondInBatches(Verbs[pa.Schema, MicroBatches]):
    """The verbs on rows that come in micro-batches: each is given the columns of its inputs, and gives what runs."""

    def _side(self, role: str, rows: pa.Schema) -> VerbSide:
        if not isinstance(rows, pa.Schema):
            raise ConfigurationError(
                f"{role!r} is of type {type(rows).__name__}; give the columns of the rows that will come, a "
                "pyarrow.Schema, such as table.schema"
            )
        return VerbSide(role, kept_schema(role, rows), None)

    def _result(
        self, made: Made, sides: Sequence[VerbSide], conditions: Mapping[str, str] | None = None
    ) -> MicroBatches:
        added = conditions or {}
        schemas = {side.role: pa.schema([one for one in side.schema if one.name not in added]) for side in sides}
        return MicroBatches(made, schemas, added, backend=self._backend, on_error=self._on_error)

    def _history(self, history: Duration | None) -> int:
        if history is None:
            raise ConfigurationError("history is missing; give how late rows may come, such as history='1 hour'")
        return in_micros(history, "history")


class Pond(Verbs[Frame, pa.Table]):
    """The verbs of ``Millpond`` on tables, in this process, without Spark and Java.

    Rows are a ``pyarrow.Table``, a DataFrame of pandas or Polars or of whoever else hands out Arrow streams, or a list
    of dicts. They are complete: they are processed in the order of time, and whatever waits for a grace or a window
    comes out at the end. For rows that come piece by piece, see ``in_batches``.

    Times are exact to the microsecond. Durations are timedeltas, int milliseconds or text (``"5 minutes"``).

    Args:
        backend: of the state while a verb runs: a name, a URL or a supplier.
        on_error: what happens to a row that cannot be processed (no key, no time, an unknown operation): ``"fail"``,
            ``"skip"`` or ``"dead-letter"``.

    Raises:
        UnknownBackendError, BackendNotInstalledError: there is no such backend, or it cannot be had.
        ConfigurationError: there is no such policy.

    >>> from datetime import datetime
    >>> trades = [{"symbol": "ACME", "t": datetime(2026, 6, 1, 12, 0, 5), "size": 100}]
    >>> quotes = [{"symbol": "ACME", "t": datetime(2026, 6, 1, 12, 0, 3), "bid": 9.5}]
    >>> Pond().asof_join(trades, quotes, on="symbol", time="t").select(["symbol", "size", "bid"]).to_pylist()
    [{'symbol': 'ACME', 'size': 100, 'bid': 9.5}]
    """

    def __init__(self, *, backend: str | BackendSupplier = "memory", on_error: str | OnError = OnError.FAIL) -> None:
        super().__init__(backend, on_error)

    @property
    def in_batches(self) -> PondInBatches:
        """The same verbs on rows that come in micro-batches of one's own cutting.

        Each is given schemas (``pyarrow.Schema``) in place of rows, and returns a ``MicroBatches``.
        """
        return PondInBatches(self._backend, self._on_error)

    def _side(self, role: str, rows: Frame) -> VerbSide:
        table = table_of(role, rows)
        return VerbSide(role, table.schema, table)

    def _result(self, made: Made, sides: Sequence[VerbSide], conditions: Mapping[str, str] | None = None) -> pa.Table:
        schemas = {side.role: side.schema for side in sides}
        given = {side.role: side.table for side in sides if side.table is not None}
        with MicroBatches(made, schemas, conditions or {}, backend=self._backend, on_error=self._on_error) as run:
            found = run.at_once(given)
            self.dead_letters += run.dead_letters
        return found

    def _history(self, history: Duration | None) -> int:
        return 0 if history is None else in_micros(history, "history")

"""``top_n`` and ``deduplicate`` of ``Millpond``: the first rows of each key by an order, or by time.

Rule of this module: it checks what the user wrote, describes the input, and leaves the rest to ``VerbRunner``. Nothing
is started.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.arguments import table_input
from millpond.adapters.spark.verbs.bounds import time_of
from millpond.adapters.spark.verbs.feeds import feed_in
from millpond.adapters.spark.verbs.inputs import check_names, check_undirected
from millpond.adapters.spark.verbs.kept_schemas import ColumnChanges
from millpond.adapters.spark.verbs.made import MadeVerbs
from millpond.errors import ConfigurationError
from millpond.processors.calls.account import GRACE, WITHIN, Allowance
from millpond.processors.calls.arguments import (
    INPUT,
    check_ttl,
    check_window,
    check_zones,
    column_names,
    emits_final,
    in_micros,
    named_in_errors,
    ttl_allowance,
    until_in_micros,
)
from millpond.processors.calls.known_names import did_you_mean
from millpond.processors.calls.waiting import deduplicate_account, extended, top_n_account
from millpond.processors.verbs.aggregate import WINDOW, Windows
from millpond.processors.verbs.deduplicate import deduplicate
from millpond.processors.verbs.projections import CHANGE_COLUMNS
from millpond.processors.verbs.top_n import INPUT_SERDE, RANK, OrderedRows, top_n
from millpond.processors.verbs.verb import INSTANT
from millpond.stores.encoding.times import Duration, Instant
from millpond.stores.typed.expiry import Expired

Order: TypeAlias = str | Column | Sequence[str | Column]
"""A column, an expression, or several of them, of which the first one decides first."""


class TopVerbs(MadeVerbs):
    """Verbs that keep the first rows of each key."""

    @named_in_errors
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
        """The first ``n`` rows of each key by an order, or of each key and window, with their ranks.

        It is what ``row_number()`` over a ``Window`` partitioned by the key gives in a batch, where it is at most
        ``n``. Rows that are equal in the order are ranked by all their other columns, always the same way, so the
        answer does not depend on files, micro-batches or tasks; equal rows each have a rank. In the order null comes
        before all values and NaN behind all numbers, and the other way round if it is descending; ``-0.0`` and ``0.0``
        are equal. To place nulls otherwise, order by ``F.col(...).isNull()`` first.

        The state keeps ``n`` rows of each key, or of each key and window, and forgets the others. So a row stays once
        it has come: a change feed, whose rows are replaced and deleted, is refused.

        Args:
            rows: the rows.
            n: how many rows of each key.
            by: the columns of the key; null is a key like any other.
            order: a column or an expression, or a list of them of which the first decides first.
            descending: whether the greatest comes first; for several in ``order`` also a list, one for each.
            time: the column (or expression) with the time of a row.
            window: as in ``aggregate``: windows, each with its grace, to which the bound is added that ``time`` has
                from another verb; later rows are dropped and counted. None for all rows of a key.
            until: windows that begin before some time, as in ``aggregate``.
            emit: ``"updates"`` for what has changed after every micro-batch, or ``"final"`` for the rows of a window
                once, when it has closed.
            ttl: without a window, how long the rows of a key live after the time of its last row, in the first ``n`` or
                not, beyond the bound that ``time`` has from another verb; then all of them are gone, and the next row
                of the key begins anew. A row that is older when it comes is dropped and counted. None keeps them for
                ever.
            expired: what comes out of rows whose ``ttl`` is over: ``"silent"`` for nothing, or ``"delete"`` for a row
                with ``op`` ``delete`` for each of their ranks, and the time at which it was over.
            name: of the verb; by default made of ``top_n`` and the columns.
            renamed, dropped: columns of the input that had another name, or were there, in an earlier run. ``n``,
                ``order`` and ``descending`` stay what they were.

        Returns:
            The key, ``window`` (start and end) if there are windows, ``rank`` from 1 on, and the other columns. Updates
            are a change feed of each key and rank, with ``op``, ``sequence`` and ``change_time`` as well. A micro-batch
            has one row for each rank at which another row stands than before it; a rank that is gone, because a session
            has become part of another or for ``expired``, is deleted before the others of its key are set.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns, or of another ``n`` or order.
            DurabilityError: the state could not be read or written.
        """
        keys = column_names(by, "by")
        label = name or f"top_n-{'-'.join(keys)}"
        where = f"by {', '.join(keys)},"
        check_window(window)
        check_ttl(ttl, expired, window)
        others = until_in_micros(window, until)
        final = emits_final(emit, window)
        _check_number(where, n)
        _check_rows_stay(where, rows, "n rows are kept and the others forgotten")
        decides, size = _order(where, rows, order)
        directions = _directions(where, descending, size)
        taken = [RANK, *([WINDOW] if window is not None else [])]
        source = table_input(INPUT, rows, keys, time, taken=CHANGE_COLUMNS, order=decides)
        check_zones([window, *others.values()], source.times == INSTANT, time, f"F.col({time!r}).cast('timestamp')")
        check_names([*keys, *taken, *source.values], changes=not final)
        run = self._runner.verb(label, (source,), ColumnChanges(renamed or {}, dropped))
        late = time_of(rows, time).bound
        lives = ttl_allowance(ttl, late)
        verb = top_n(
            run.name,
            OrderedRows.of(run.schemas.input(source), directions),
            n,
            extended(window, late),
            columns=source.values,
            final=final,
            until={moment: extended(one, late) for moment, one in others.items()},
            ttl=None if lives is None else lives.total,
            expired=Expired(expired),
        )
        account = top_n_account(run.name, n, window, late, final=final, until=others.values(), ttl=lives)
        return self._result(run, verb, account, value_serde=INPUT_SERDE)

    @named_in_errors
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
        """The first row of each key, once, without the duplicates that come within some time after it.

        The rows of a key count in the order of ``time``. The first one is kept, and then each one that is later than
        the last one kept by more than ``within``; those between are its duplicates, however many they are. With
        ``grace`` the answer is exact: that of all rows that are in time, whatever files, micro-batches and tasks they
        come in. Without it rows come out at once, and a row that comes in a later micro-batch than the one kept is its
        duplicate also where it is earlier.

        The state has a time for each key, and with ``grace`` the rows that wait.

        Args:
            rows: the rows. They stay once they have come: a change feed, whose rows are replaced and deleted, is
                refused.
            key: the columns that duplicates have in common; null is a value like any other.
            time: the column (or expression) with the time of a row.
            within: how much later than the row kept a duplicate is at most.
            grace: how late a row may be, beyond the bound that ``time`` has from another verb, and so how long each
                waits for earlier ones; later rows are dropped and counted. None takes rows at once; then ``within``,
                with that bound, also says how late a row may be.
            order: what decides among rows of one key and time, the least first: a column or an expression. Without it
                the other columns do, always in the same way.
            name: of the verb; by default made of ``deduplicate`` and the columns.
            renamed, dropped: columns of the input that had another name, or were there, in an earlier run.

        Returns:
            The rows that are kept: the key, and the other columns.

        Raises:
            ConfigurationError: an argument is missing or invalid, a column is absent or of a type that does not do, or
                the rows are a change feed.
            StateConflictError: the state is that of another verb, of other columns or another order, or there was a
                grace and is none now, or the other way round.
            DurabilityError: the state could not be read or written.
        """
        keys = column_names(key, "key")
        _check_rows_stay(f"by {', '.join(keys)},", rows, "the first row of a key comes out and stays")
        source = table_input(INPUT, rows, keys, time, taken=(), order=order)
        check_names(source.carried, changes=False)
        run = self._runner.verb(
            name or f"deduplicate-{'-'.join(keys)}", (source,), ColumnChanges(renamed or {}, dropped)
        )
        when = time_of(rows, time, rows.columns)
        reach = Allowance(WITHIN, in_micros(within, "within"), when.bound)
        wait = None if grace is None else Allowance(GRACE, in_micros(grace, "grace"), when.bound)
        verb = deduplicate(
            run.name,
            run.schemas.input(source),
            within=reach.own,
            late=(wait or reach).total,
            waits=wait is not None,
            columns=source.values,
        )
        return self._result(run, verb, deduplicate_account(run.name, reach, wait, when))


def _check_number(where: str, n: int) -> None:
    """Refuse a number of rows that is none.

    Raises:
        ConfigurationError: so it is.
    """
    if type(n) is not int or n < 1:
        raise ConfigurationError(f"{where} n is {n!r}; give a number from 1 on, such as n=3")


def _check_rows_stay(where: str, rows: DataFrame, what: str) -> None:
    """Refuse a change feed: what has come out, or been forgotten, for a row that goes then is not put right.

    Raises:
        ConfigurationError: it is one.
    """
    feed = feed_in(rows)
    if feed is not None and feed.op is not None:
        raise ConfigurationError(
            f"{where} {what}, but these are a change feed ({feed.op!r}), whose rows are replaced and deleted; to "
            "take each of its upserts as a row that stays, write "
            f".where(\"{feed.op} = 'upsert'\").drop({feed.op!r}), or take the rows of which the feed was made"
        )


def _order(where: str, rows: DataFrame, order: Order) -> tuple[str | Column, int]:
    """What decides, as one column or expression, and how many directions it may have.

    Raises:
        ConfigurationError: there is none, a column is missing, or one of them has no order.
    """
    given: Any = [order] if isinstance(order, str | Column) else order
    if not isinstance(given, Sequence) or not given or not all(isinstance(one, str | Column) for one in given):
        raise ConfigurationError(
            f"{where} order is {order!r}; give a column such as order='score', an expression, or a list of them"
        )
    fields = [_decisive(where, rows, one) for one in given]
    if len(given) > 1:
        return F.struct(*(named(one) if isinstance(one, str) else one for one in given)), len(given)
    only = fields[0].dataType
    return given[0], len(only.fields) if isinstance(only, T.StructType) else 1


def _decisive(where: str, rows: DataFrame, one: str | Column) -> T.StructField:
    """A column of the order.

    Raises:
        ConfigurationError: it is missing, or has no order.
    """
    if isinstance(one, str) and one not in rows.columns:
        raise ConfigurationError(
            f"{where} the order has {one!r}, which is no column of the rows, only {', '.join(rows.columns)}"
            f"{did_you_mean(one, rows.columns)}; give one of these, or an expression such as F.col('a') + F.col('b')"
        )
    check_undirected(
        "the order", one, ", and the direction as descending=True or False, or as a list of one for each column"
    )
    try:
        field: T.StructField = rows.select(named(one) if isinstance(one, str) else one).schema.fields[0]
    except AnalysisException as error:
        raise ConfigurationError(
            f"{where} the order has {one}, which is no expression of the rows: {error}; give a column of "
            f"{', '.join(rows.columns)}, or an expression of these"
        ) from error
    if _has_no_order(field.dataType):
        raise ConfigurationError(
            f"{where} the order has {one}, which is of type {field.dataType.simpleString()}, and maps and variants "
            "have no order; give a column that has, or a value of this one, such as order=F.col('a')['b']"
        )
    return field


def _has_no_order(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return any(_has_no_order(field.dataType) for field in type_.fields)
    if isinstance(type_, T.ArrayType):
        return _has_no_order(type_.elementType)
    return isinstance(type_, T.MapType | T.VariantType)


def _directions(where: str, descending: bool | Sequence[bool], size: int) -> tuple[bool, ...]:
    """Whether the greatest comes first, for each in the order, or for all of them at once.

    Raises:
        ConfigurationError: they are not as many, or no directions.
    """
    given = [descending] if isinstance(descending, bool) else descending
    several = isinstance(given, Sequence) and all(isinstance(one, bool) for one in given)
    if not several or len(given) not in (1, size) or not given:
        one_each = f", or a list of {size}, one for each" if size > 1 else ""
        raise ConfigurationError(f"{where} descending is {descending!r}; give True or False{one_each}")
    return tuple(given) if len(set(given)) > 1 else (given[0],)

"""``FrameRows``: a DataFrame as the rows that a verb is given, as ``millpond.processors.calls.readings`` asks.

Rule of this module: it says what is known of columns, and which of them Spark is to hand over; no verb is known here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond.adapters.spark.rows.column_types import check_leaf_types, compared_otherwise
from millpond.adapters.spark.rows.intervals import is_in_months
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.arguments import argument_of, column_argument
from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.inputs import (
    REMEDY,
    RowInput,
    check_column,
    check_undirected,
    expression_of,
    field_of,
)
from millpond.adapters.spark.verbs.frames.told_columns import feed_in, time_of
from millpond.errors import ColumnTypeError, InvalidArgumentError, InvalidExpressionError, UnknownColumnError
from millpond.processors.calls.account import InputTime
from millpond.processors.calls.arguments import INPUT, check_distinct, parameter_of
from millpond.processors.calls.feeds import Feed, Gone
from millpond.processors.calls.readings import ARGUMENT, hidden_arguments
from millpond.processors.options.known_names import did_you_mean, unused_name
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.aggregates.call import shared_columns
from millpond.processors.verbs.projections import CHANGE_TIME, SEQUENCE


@dataclass(frozen=True)
class FrameRows:
    """The rows of a DataFrame.

    Attributes:
        frame: the DataFrame.
        added: the columns that it has beyond those of the user, with what makes them; None if there are none.
        hidden: the columns that reach no result.
    """

    frame: DataFrame
    added: Mapping[str, Column] | None = None
    hidden: frozenset[str] = frozenset()

    @cached_property
    def feed(self) -> Feed | None:
        """The change feed that the rows are of; None if no verb has made them one."""
        return feed_in(self.frame)

    @property
    def told(self) -> Feed | None:
        """The change feed that the rows are, as noted by the verb that made it; None for other rows."""
        return self.feed

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self.frame.columns

    @property
    def remedy(self) -> str:
        """The line with which a user renames or drops columns."""
        return REMEDY

    def zoned(self, time: str | Column) -> str:
        """Return the line with which a user makes a column one of moments."""
        return f"F.col({time!r}).cast('timestamp')"

    def upserts(self, op: str | Column, added: Sequence[str | Column] = ()) -> str:
        """Return the line with which a user takes the upserts of a change feed as rows that stay."""
        return f".where(\"{op} = 'upsert'\").drop({', '.join(map(repr, [op, *added]))})"

    def as_rows(self, op: str | Column) -> str:
        """Return the line with which a user takes the changes of a feed as rows."""
        return f".drop({op!r})"

    def column(self, name: str) -> str | Column:
        """Return the column of that name, as a user would give it."""
        return name

    def is_column(self, given: str | Column, name: str) -> bool:
        """Return whether what a user gave is the column of that name."""
        return isinstance(given, str) and given == name

    def directions(self, where: str, order: str | Column | Sequence[str | Column]) -> int:
        """Return how many directions an order may have, of a column or of several."""
        given: Any = [order] if isinstance(order, str | Column) else order
        if not isinstance(given, Sequence) or not given or not all(isinstance(one, str | Column) for one in given):
            raise InvalidArgumentError(
                f"{where} order is {order!r}; give a column such as order='score', an expression, or a list of them"
            )
        types = [self._decisive(where, one).dataType for one in given]
        only = types[0]
        return len(only.fields) if len(types) == 1 and isinstance(only, T.StructType) else len(types)

    def rest(
        self,
        keys: Collection[str],
        taken: Collection[str],
        op: str | Column | None = None,
        order: str | Column | Sequence[str | Column] | None = None,
    ) -> list[str]:
        """Return the columns that reach a result besides the key, as ``VerbRows`` says."""
        of_feed = set() if self.feed is None else set(self.feed.changes)
        if isinstance(order, str) and order == SEQUENCE:
            of_feed.add(SEQUENCE)
        apart = {*keys, *self.hidden, *of_feed.intersection(taken), *([op] if isinstance(op, str) else [])}
        return [column for column in self.names if column not in apart]

    def time(self, time: str | Column, result: Collection[str] = ()) -> InputTime:
        """Return what is known of a column of times; ``result`` has the columns that the verb's result has."""
        known = time_of(self.frame, time, result)
        gone = None if self.feed is None else self.feed.gone(None, time)
        return known if gone is None else replace(known, bound=max(known.bound, time_of(self.frame, gone.time).bound))

    def operations(self, op: str | Column | None) -> str | Column | None:
        """Return the column that tells deletes: the given one, or else that of the change feed that the rows are."""
        return op if op is not None or self.feed is None else self.feed.op

    def read(
        self,
        role: str,
        keys: Sequence[str],
        values: Sequence[str],
        time: str | Column,
        *,
        op: str | Column | None = None,
        order: str | Column | Sequence[str | Column] | None = None,
        foreign: Sequence[str] = (),
        keyed: bool = False,
    ) -> RowInput:
        """Return the columns that a verb reads."""
        for key in keys:
            field_of(role, self.frame, key)
        given = [("time", time), *([] if op is None else [("op", op)]), *(("order", one) for one in _listed(order))]
        for what, one in given:
            self._check_of_rows(parameter_of(role, what), one)
        feed, decides = self.feed, _as_one(order)
        gone = None if feed is None else feed.gone(op, time)
        rows = RowInput(role, self.frame, keys, values, time, op, foreign, decides, feed, gone, added=self.added)
        return rows.without_null_keys() if keyed else rows

    def aggregated(
        self,
        keys: Sequence[str],
        time: str | Column,
        calls: Mapping[str, AggregateCall],
        order: str | Column | None,
        gap: str | None = None,
    ) -> RowInput:
        """Return key, time and the arguments of the calls, as Spark evaluates them, and gaps last."""
        rows = self.frame
        check_undirected("the order", order)
        found = {name: argument_of(rows, name, call) for name, call in calls.items()}
        arguments = {name: argument for name, argument in found.items() if argument is not None}
        taken = {name.casefold() for name in (*keys, *arguments)}
        moment, decides, place, apart = (unused_name(name, taken) for name in ("time", "order", SEQUENCE, "gap"))
        feed = self.feed
        columns = [
            *(column_argument(rows, key, "by") for key in keys),
            column_argument(rows, time, "time").alias(moment),
            *(argument.alias(name) for name, argument in arguments.items()),
            *([] if gap is None else [named(gap).alias(apart)]),
            *([] if order is None else [column_argument(rows, order, "order").alias(decides)]),
            *([] if feed is None or feed.sequence is None else [named(feed.sequence).alias(place)]),
        ]
        try:
            selected = rows.select(*columns)
        except AnalysisException:
            for what, one in (("time", time), *(("order", one) for one in _listed(order))):
                self._check_of_rows(what, one)
            _check_by_row(rows, column_argument(rows, time, "time"), arguments)
            raise
        if feed is not None and feed.sequence is not None:
            feed = replace(feed, sequence=place)
        for name in arguments:
            _check_argument(name, selected.schema[name], calls[name])
        kept = None if order is None else decides
        named_columns = {"time": time} | ({} if order is None else {"order": order})
        given = {name: Expression.of(rows, column) for name, column in named_columns.items()}
        values = [*arguments, *([] if gap is None else [apart])]
        shared = shared_columns(calls)
        return RowInput(INPUT, selected, keys, values, moment, order=kept, feed=feed, given=given, shared=shared)

    def regrouped(
        self,
        key: Sequence[str],
        by: Sequence[str],
        time: str | Column,
        calls: Mapping[str, AggregateCall],
        *,
        op: str | Column,
        order: str | Column | None,
    ) -> RowInput:
        """Return the input that an aggregate reads of a change feed, as Spark evaluates it."""
        rows = self.frame
        check_undirected("the order", order)
        found = {name: argument_of(rows, name, call) for name, call in calls.items()}
        arguments = {name: argument for name, argument in found.items() if argument is not None}
        groups, taken = set(by), {name.casefold() for name in (*by, *arguments)}
        keys = {
            name if name in groups or name.casefold() not in taken else unused_name(f"key {name}", taken): name
            for name in key
        }
        taken |= {name.casefold() for name in keys}
        moment, does, decides, went = (unused_name(name, taken) for name in ("time", "op", "order", CHANGE_TIME))
        gone = None if self.feed is None else self.feed.gone(op, time)
        when, what = column_argument(rows, time, "time"), column_argument(rows, op, "op")
        columns = [
            *(column_argument(rows, name, "by").alias(name) for name in by),
            *(column_argument(rows, name, "key").alias(alias) for alias, name in keys.items() if alias not in groups),
            *(argument.alias(name) for name, argument in arguments.items()),
            what.alias(does),
            *([] if order is None else [column_argument(rows, order, "order").alias(decides)]),
            *([] if gone is None else [named(gone.time).alias(went)]),
        ]
        try:
            selected = rows.select(*columns, when.alias(moment))
        except AnalysisException:
            for name, one in (("time", time), ("op", op), *(("order", one) for one in _listed(order))):
                self._check_of_rows(name, one)
            _check_by_row(rows, when, arguments)
            raise
        for name in arguments:
            _check_argument(name, selected.schema[name], calls[name])
        named_columns = {"time": time, "op": op} | ({} if order is None else {"order": order})
        given = {name: Expression.of(rows, column) for name, column in named_columns.items()}
        kept = None if order is None else decides
        apart = None if gone is None else Gone(does, went)
        return RowInput(INPUT, selected, list(keys), list(arguments), moment, does, by, kept, gone=apart, given=given)

    def beside(
        self,
        keys: Sequence[str],
        values: Sequence[str],
        time: str | Column,
        calls: Mapping[str, AggregateCall],
        order: str | Column | None,
    ) -> tuple[RowInput, Mapping[str, str]]:
        """Return the input of a verb that shows rows beside results of calls; Spark evaluates the calls' arguments."""
        columns = hidden_arguments(calls, values)
        found = {column: argument_of(self.frame, result, calls[result]) for result, column in columns.items()}
        made = {column: argument for column, argument in found.items() if argument is not None and column not in values}
        check_distinct([name.casefold() for name in (*values, *made)], changes=False, remedy=REMEDY)
        try:
            wide = self.frame.withColumns(made)
        except AnalysisException:
            _check_by_row(self.frame, column_argument(self.frame, time, "time"), made)
            raise
        for result, column in columns.items():
            _check_argument(result, wide.schema[column], calls[result])
        return FrameRows(wide).read(INPUT, keys, [*values, *made], time, order=order), columns

    def _check_of_rows(self, what: str, given: Any) -> None:
        """Refuse what is neither a name nor an expression of the rows.

        Raises:
            ConfigurationError: so it is.
        """
        check_column(what, given)
        if isinstance(given, Column):
            expression_of(what, self.frame, given)

    def _decisive(self, where: str, one: str | Column) -> T.StructField:
        """Return a column of an order.

        Raises:
            ConfigurationError: it is missing, or has no order.
        """
        rows = self.frame
        if isinstance(one, str) and one not in rows.columns:
            raise UnknownColumnError(
                f"{where} the order has {one!r}, which is no column of the rows, only {', '.join(rows.columns)}"
                f"{did_you_mean(one, rows.columns)}; give one of these, or an expression such as F.col('a') + "
                "F.col('b')"
            )
        check_undirected(
            "the order", one, ", and the direction as descending=True or False, or as a list of one for each column"
        )
        field = expression_of(f"{where} order", rows, one)
        if _has_no_order(field.dataType):
            raise ColumnTypeError(
                f"{where} the order has {one}, which is of type {field.dataType.simpleString()}, and maps and variants "
                "have no order; give a column that has, or a value of this one, such as order=F.col('a')['b']"
            )
        return field


def _as_one(order: str | Column | Sequence[str | Column] | None) -> str | Column | None:
    """Return an order as one column or expression: of several, a struct."""
    given = _listed(order)
    if len(given) < 2:
        return given[0] if given else None
    return F.struct(*(named(one) if isinstance(one, str) else one for one in given))


def _listed(order: str | Column | Sequence[str | Column] | None) -> Sequence[Any]:
    """Return the columns of an order: those of a list, or else what was given, right or wrong."""
    if isinstance(order, list | tuple) and order:
        return order
    return [] if order is None else [order]


def _has_no_order(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return any(_has_no_order(field.dataType) for field in type_.fields)
    if isinstance(type_, T.ArrayType):
        return _has_no_order(type_.elementType)
    return isinstance(type_, T.MapType | T.VariantType)


def _check_by_row(rows: DataFrame, time: Column, arguments: Mapping[str, Column]) -> None:
    """Refuse arguments that are not of one row, such as aggregates.

    Raises:
        ConfigurationError: there is one.
    """
    for name, argument in arguments.items():
        try:
            rows.select(time, argument)
        except AnalysisException as error:
            first_line = str(error).partition("\n")[0]
            raise InvalidExpressionError(
                f"the argument of {name.removeprefix(ARGUMENT)!r}, or its where, cannot be evaluated for each row "
                f"({first_line}); give a column, or an expression of columns of one row"
            ) from error


def _check_argument(result: str, column: T.StructField, call: AggregateCall) -> None:
    """Refuse an argument of a type that cannot be aggregated.

    Raises:
        ConfigurationError: it is.
    """
    type_: Any = column.dataType
    if is_in_months(type_[0].dataType if call.wraps else type_):
        raise ColumnTypeError(
            f"the argument of {result!r} is of type {type_.simpleString()}, which cannot be aggregated; give an int of "
            "months"
        )
    if call.compares:
        one = type_ if call.second is None else type_[0].dataType
        check_leaf_types(f"the argument of {result!r}", column.name, one, compared_otherwise)

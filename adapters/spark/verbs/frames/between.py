"""The way between the result of a verb and an input of the next one, as Spark's plan tells it.

Rule of this module: it reads plans, and remembers the results of the verbs of one ``Millpond``; whether verbs share an
operator is decided in ``sharing``.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.rows.arrow_expressions import Call, Cast, Choice, Expression, Literal, Struct
from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.verbs.frames.catalyst import NotInArrowError, analyzed, column_ids, plans_down, selected
from millpond.adapters.spark.verbs.frames.inputs import DAY, ORDER, RowInput, column_of
from millpond.adapters.spark.verbs.frames.sharing import Behind, Columns, Projection, Result, Shared, UnfitError
from millpond.processors.distribution.exchange import PLACE


class _Planned(NamedTuple):
    """The result of a verb, and the plan of its rows as Spark has analyzed it."""

    plan: Any
    result: Result


class Results:
    """The results of the verbs of one ``Millpond``, as far as others may share their operators."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], _Planned] = {}
        self._told: dict[str, str] = {}

    def told(self, name: str) -> str | None:
        """Return what is to be said of the operator of a verb; None for nothing."""
        return self._told.get(name)

    def tell(self, name: str, shared: Shared) -> None:
        """Keep what is to say of the operator of a verb."""
        if shared.told is not None:
            self._told[name] = shared.told

    def add(self, rows: DataFrame, result: Result) -> None:
        """Have others know the result of a verb, which has these rows."""
        plan = analyzed(rows)
        if plan is not None:
            self._known[column_ids(plan)] = _Planned(plan, result)

    def behind(self, inputs: Sequence[RowInput]) -> dict[str, Behind]:
        """Return, by topic, the inputs that are made of one of them on a single path."""
        found = {}
        for rows in inputs:
            planned = self._below(rows.frame)
            if planned is not None:
                found[rows.role] = Behind(rows.keys, planned.result, partial(columns_of, rows, planned.plan))
        return found

    def _below(self, frame: DataFrame) -> _Planned | None:
        """Return the result of which a DataFrame is made."""
        whole = analyzed(frame)
        for plan in [] if whole is None else plans_down(whole):
            known = self._known.get(column_ids(plan))
            if known is not None and plan.equals(known.plan):
                return known
        return None


def columns_of(rows: RowInput, source: Any) -> Columns:
    """Return the columns of an input, in those of a plan below it.

    Raises:
        UnfitError: something lies between that Arrow does not evaluate.
    """
    feed = rows.feed if rows.in_order else None
    sequence = None if feed is None else feed.sequence
    gone = None if rows.gone is None else [rows.gone.op, rows.went(rows.gone)]
    given = [rows.time, rows.op, rows.order, sequence]
    others = [column_of(one) for one in [*given, *(gone or ())] if one is not None]
    frame = rows.frame.select(*map(named, [*rows.keys, *rows.values]), *others)
    try:
        columns, conditions = selected(analyzed(frame), source)
    except NotInArrowError as error:
        raise UnfitError(str(error)) from error
    place = len(rows.keys) + len(rows.values)
    keys, values = columns[: len(rows.keys)], columns[len(rows.keys) : place]
    rest = iter(columns[place:])
    time = next(rest)
    made: dict[str, Expression] = {
        "key": _struct(rows.keys, keys),
        "value": _struct(rows.values, values),
        "timestamp": _micros(time, frame.schema.fields[place].dataType),
    }
    if rows.op is not None:
        made["op"] = next(rest)
    if rows.order is not None:
        made[ORDER] = Struct([ORDER], [next(rest)])
    if sequence is not None:
        made[PLACE] = next(rest)
    if gone is not None:
        made["timestamp"] = _with_gone(made["timestamp"], next(rest), next(rest))
    return Columns(keys, time, Projection(conditions, made))


def _micros(time: Expression, type_: T.DataType) -> Expression:
    """Return a time in microseconds since 1970; one without a time zone is taken as it is written."""
    if not isinstance(type_, T.DateType):
        return Cast(time, pa.int64())
    return Call("multiply", [Cast(Cast(time, pa.int32()), pa.int64()), Literal(DAY, pa.int64())])


def _with_gone(times: Expression, op: Expression, went: Expression) -> Expression:
    """Return times in microseconds; deletes without a time get that at which their rows went."""
    deleted = Call("and", [Call("is null", [times]), Call("equal", [op, Literal("delete", pa.string())])])
    return Choice([deleted], [Cast(went, pa.int64()), times])


def _struct(names: Sequence[str], columns: Sequence[Expression]) -> Struct:
    """Return columns as a struct; one without columns has something in their place."""
    return Struct(list(names), columns) if names else Struct(["present"], [Literal(True, pa.bool_())])

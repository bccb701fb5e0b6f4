"""Expressions of Arrow, such as ``pc.field("a") <= pc.field("b")``, on the columns of tables.

Rule of this module: the type of an expression is known before the first row. The evaluation is loaded when it
is needed, since it loads pandas where that is installed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ColumnTypeError, InvalidExpressionError
from millpond.processors.calls.arguments import check_distinct
from millpond.processors.options.known_names import unused_name
from millpond.processors.pond.sides import VerbSide
from millpond.processors.verbs.aggregate import GAP
from millpond.processors.verbs.aggregates import AggregateCall
from millpond.processors.verbs.joins.stream_join import BOUNDS
from millpond.stores.encoding.times import FARTHEST, to_micros

pc: Any = _compute

Expression: Any = _compute.Expression
"""The class of expressions."""

_COUNTING: Final = "such as where=pc.field('price') > 1, with pyarrow.compute as pc"

_MILLI = 1_000
"""Microseconds in a millisecond."""


def evaluated(expression: Any, table: pa.Table) -> Any:
    """Return the value of an expression for each row, an Arrow array."""
    acero: Any = import_module("pyarrow.acero")
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
    ]
    return acero.Declaration.from_sequence(plan).to_table(use_threads=False)["value"].combine_chunks()


def type_of(what: str, expression: Any, schema: pa.Schema) -> pa.DataType:
    """Return the type of the values of an expression; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is not one of these columns.
    """
    try:
        found: pa.DataType = evaluated(expression, schema.empty_table()).type
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise InvalidExpressionError(
            f"{what} is {expression}: {error}; give an expression of the columns {', '.join(schema.names)}"
        ) from error
    return found


@dataclass(frozen=True)
class Matching:
    """A condition on rows of both sides.

    Attributes:
        condition: the expression.
    """

    condition: Any

    def __call__(self, both: pa.Table) -> Any:
        return evaluated(self.condition, both)


def matching(left: pa.Schema, right: pa.Schema, where: Any, columns: Sequence[str]) -> Matching:
    """Return the condition of a match, on the columns of the left side and these of the right side.

    Raises:
        ConfigurationError: it is no condition.
    """
    example = "such as where=pc.field('price') <= pc.field('most'), with pyarrow.compute as pc"
    if not isinstance(where, Expression):
        raise InvalidExpressionError(
            f"where is {where!r}, which is no condition; give an expression of Arrow, {example}"
        )
    _check_condition("where", where, pa.schema([*left, *(right.field(name) for name in columns)]), example)
    return Matching(where)


def _check_condition(what: str, where: Any, schema: pa.Schema, example: str) -> None:
    """Refuse an expression of these columns that is neither true nor false; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is neither, or not an expression of these columns.
    """
    type_ = type_of(what, where, schema)
    if not pa.types.is_boolean(type_):
        raise InvalidExpressionError(f"{what} is {where}, which is of type {type_}; give a condition, {example}")


@dataclass(frozen=True, eq=False)
class _Counting:
    """A condition on rows that count for an aggregate: true where they do, otherwise null.

    Attributes:
        column: the column of bools; None if there is an expression.
        condition: the expression; None if there is a column.
    """

    column: str | None = None
    condition: Any = None

    @classmethod
    def of(cls, result: str, where: Any, schema: pa.Schema) -> Self:
        """Return the condition that a user gave for a result, on these columns.

        Raises:
            ConfigurationError: it is neither a column of bools nor an expression of bools.
        """
        what = f"where of {result!r}"
        if isinstance(where, Expression):
            _check_condition(what, where, schema, _COUNTING)
            return cls(condition=where)
        if not isinstance(where, str) or where not in schema.names or not pa.types.is_boolean(schema.field(where).type):
            raise InvalidExpressionError(
                f"{what} is {where!r}, which is no column of bools; add one to the rows, and give its name, or give an "
                f"expression of Arrow, {_COUNTING}"
            )
        return cls(column=where)

    def is_as(self, other: Self) -> bool:
        """Return whether the same rows count for another one; expressions have no truth, so ``==`` cannot tell."""
        return self.column == other.column and self.condition is other.condition

    def __call__(self, table: pa.Table) -> Any:
        true = evaluated(self.condition, table) if self.column is None else table[self.column]
        return pc.if_else(true, true, None)


def with_conditions(side: VerbSide, calls: Mapping[str, AggregateCall]) -> tuple[VerbSide, dict[str, AggregateCall]]:
    """Return the input with a column for each condition, null where it is not true, and calls that name the columns.

    Raises:
        ConfigurationError: a condition is neither a column of bools nor an expression of bools.
    """
    made: dict[str, _Counting] = {}
    given = dict(calls)
    for result, call in calls.items():
        if call.where is None:
            continue
        counting = _Counting.of(result, call.where, side.schema)
        name = next((one for one, known in made.items() if known.is_as(counting)), None)
        if name is None:
            name = unused_name(f"{call.where} is true", [*side.schema.names, *made])
            made[name] = counting
        given[result] = replace(call, where=name)
    whole = side.adding({name: (pa.bool_(), one) for name, one in made.items()})
    return replace(whole, rows=replace(whole.rows, hidden=whole.rows.hidden | {*made})), given


def with_own_bounds(left: VerbSide, given: Mapping[str, Any]) -> VerbSide:
    """Return the left rows of a join of streams with ``BOUNDS`` among their columns.

    Args:
        left: the rows.
        given: by parameter, what the user gave: a length of time, or an expression of each row's.

    Raises:
        ConfigurationError: an expression is no length of time, or there is a column of that name already.
    """
    check_distinct([*left.schema.names, *BOUNDS.values()], changes=False, remedy=left.rows.remedy)
    added: dict[str, Callable[[pa.Table], Any]] = {}
    for name, hidden in BOUNDS.items():
        bound = given[name]
        if not isinstance(bound, Expression):
            added[hidden] = partial(_same, to_micros(bound or 0, name))
            continue
        added[hidden] = _lengths_of(name, bound, left.schema)
    return left.adding({name: (pa.int64(), made) for name, made in added.items()})


def with_own_gap(rows: VerbSide, gap: Any) -> VerbSide:
    """Return the rows with ``GAP`` among their columns: the gaps of their sessions.

    Args:
        rows: the rows.
        gap: the expression that gives them.

    Raises:
        ConfigurationError: it is no length of time, or there is a column of that name already.
    """
    check_distinct([*rows.schema.names, GAP], changes=False, remedy=rows.rows.remedy)
    return rows.adding({GAP: (pa.int64(), _lengths_of("the gap of window", gap, rows.schema))})


def _lengths_of(what: str, expression: Any, schema: pa.Schema) -> Callable[[pa.Table], Any]:
    """Return a function from tables to lengths of time in microseconds; ``what`` names the expression in errors.

    Raises:
        ConfigurationError: it is no length of time.
    """
    type_ = type_of(what, expression, schema)
    if not (pa.types.is_duration(type_) or pa.types.is_integer(type_)):
        raise ColumnTypeError(
            f"{what} is of type {type_}; give a duration, or an integer of milliseconds, such as pc.field('most')"
        )
    return partial(_lengths, expression)


def _same(length: int, table: pa.Table) -> Any:
    return pa.repeat(pa.scalar(length, pa.int64()), table.num_rows)


def _lengths(expression: Any, table: pa.Table) -> Any:
    """Return lengths of time in microseconds, none further from 0 than ``FARTHEST``; null where they are null."""
    lengths = evaluated(expression, table)
    if pa.types.is_duration(lengths.type):
        return _cut(lengths.cast(pa.duration("us")).cast(pa.int64()), FARTHEST)
    return pc.multiply(_cut(lengths.cast(pa.int64()), FARTHEST // _MILLI), _MILLI)


def _cut(numbers: Any, most: int) -> Any:
    """Return the numbers, none further from 0 than ``most``."""
    return pc.max_element_wise(pc.min_element_wise(numbers, most, skip_nulls=False), -most, skip_nulls=False)

"""Expressions of Arrow, such as ``pc.field("a") <= pc.field("b")``, on the columns of tables.

Rule of this module: what an expression is of is found out before the first row. What evaluates it is loaded when one
is, as it loads pandas where that is installed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from millpond.errors import ConfigurationError
from millpond.processors.calls.arguments import check_distinct
from millpond.processors.pond.sides import VerbSide
from millpond.processors.verbs.aggregate import GAP
from millpond.processors.verbs.stream_join import BOUNDS
from millpond.stores.encoding.times import FARTHEST, to_micros

pc: Any = _compute

Expression: Any = _compute.Expression
"""The class of expressions."""

_MILLI = 1_000
"""Microseconds in a millisecond."""


def evaluated(expression: Any, table: pa.Table) -> Any:
    """The value of an expression for each row, an Arrow array."""
    acero: Any = import_module("pyarrow.acero")
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
    ]
    return acero.Declaration.from_sequence(plan).to_table(use_threads=False)["value"].combine_chunks()


def type_of(what: str, expression: Any, schema: pa.Schema) -> pa.DataType:
    """The type of the values of an expression; ``what`` names it in errors.

    Raises:
        ConfigurationError: it is none of these columns.
    """
    try:
        found: pa.DataType = evaluated(expression, schema.empty_table()).type
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{what} is {expression}: {error}; give an expression of the columns {', '.join(schema.names)}"
        ) from error
    return found


@dataclass(frozen=True)
class Matching:
    """Whether rows of both sides fulfill a condition.

    Attributes:
        condition: the expression.
    """

    condition: Any

    def __call__(self, both: pa.Table) -> Any:
        return evaluated(self.condition, both)


def matching(left: pa.Schema, right: pa.Schema, where: Any, columns: Sequence[str]) -> Matching:
    """The condition of a match, on the columns of the left side and these of the right side.

    Raises:
        ConfigurationError: it is none.
    """
    example = "such as where=pc.field('price') <= pc.field('most'), with pyarrow.compute as pc"
    if not isinstance(where, Expression):
        raise ConfigurationError(f"where is {where!r}, which is no condition; give an expression of Arrow, {example}")
    type_ = type_of("where", where, pa.schema([*left, *(right.field(name) for name in columns)]))
    if not pa.types.is_boolean(type_):
        raise ConfigurationError(f"where is {where}, which is of type {type_}; give a condition, {example}")
    return Matching(where)


def with_own_bounds(left: VerbSide, given: Mapping[str, Any]) -> VerbSide:
    """The left rows of a join of streams with ``BOUNDS`` among their columns.

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
    """The rows with ``GAP`` among their columns: the gaps of their sessions.

    Args:
        rows: the rows.
        gap: the expression that gives them.

    Raises:
        ConfigurationError: it is no length of time, or there is a column of that name already.
    """
    check_distinct([*rows.schema.names, GAP], changes=False, remedy=rows.rows.remedy)
    return rows.adding({GAP: (pa.int64(), _lengths_of("the gap of window", gap, rows.schema))})


def _lengths_of(what: str, expression: Any, schema: pa.Schema) -> Callable[[pa.Table], Any]:
    """What makes lengths of time in microseconds of tables; ``what`` names the expression in errors.

    Raises:
        ConfigurationError: it is no length of time.
    """
    type_ = type_of(what, expression, schema)
    if not (pa.types.is_duration(type_) or pa.types.is_integer(type_)):
        raise ConfigurationError(
            f"{what} is of type {type_}; give a duration, or an integer of milliseconds, such as pc.field('most')"
        )
    return partial(_lengths, expression)


def _same(length: int, table: pa.Table) -> Any:
    return pa.repeat(pa.scalar(length, pa.int64()), table.num_rows)


def _lengths(expression: Any, table: pa.Table) -> Any:
    """Lengths of time in microseconds, none further from 0 than ``FARTHEST``; null where they are."""
    lengths = evaluated(expression, table)
    if pa.types.is_duration(lengths.type):
        return _cut(lengths.cast(pa.duration("us")).cast(pa.int64()), FARTHEST)
    return pc.multiply(_cut(lengths.cast(pa.int64()), FARTHEST // _MILLI), _MILLI)


def _cut(numbers: Any, most: int) -> Any:
    """Numbers, or those of their sign that are ``most`` if they are greater."""
    return pc.max_element_wise(pc.min_element_wise(numbers, most, skip_nulls=False), -most, skip_nulls=False)

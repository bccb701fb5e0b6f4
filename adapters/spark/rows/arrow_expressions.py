"""Expressions on the columns of a table, evaluated by Arrow with the answers that Spark gives.

Rule of this module: it evaluates; which of Spark's expressions there are is up to ``catalyst``. An expression that
occurs in several others is one object, and is evaluated once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as _compute

pc: Any = _compute


class Expression(ABC):
    """An expression with a value for each row. Travels to the workers."""

    @abstractmethod
    def of(self, rows: "Rows") -> Any:
        """Return the values, an Arrow array, or a scalar that is the value for all rows."""


class Rows:
    """The rows that expressions are evaluated for."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._known: dict[int, Any] = {}

    def value(self, expression: Expression) -> Any:
        """Return the values of an expression, an Arrow array or a scalar."""
        if id(expression) not in self._known:
            self._known[id(expression)] = expression.of(self)
        return self._known[id(expression)]

    def column(self, expression: Expression) -> Any:
        """Return the values of an expression, one for each row."""
        value = self.value(expression)
        scalar: Any = value if isinstance(value, pa.Scalar) else None
        return value if scalar is None else pa.repeat(scalar, self.table.num_rows)


@dataclass(frozen=True)
class Condition:
    """The condition that an expression is true. Travels to the workers."""

    expression: Expression

    def __call__(self, table: pa.Table) -> Any:
        """Return whether they do, an Arrow array with a value or a null for each row of the table."""
        return Rows(table).column(self.expression)


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """A column of the table, by its place."""

    place: int

    def of(self, rows: Rows) -> Any:
        return rows.table.column(self.place).combine_chunks()


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """The same value for all rows."""

    value: Any
    type: pa.DataType

    def of(self, rows: Rows) -> Any:
        return pa.array([self.value], self.type)[0]


@dataclass(frozen=True, eq=False)
class Field(Expression):
    """A field of a struct, by its place; null where the struct is."""

    struct: Expression
    place: int

    def of(self, rows: Rows) -> Any:
        return pc.struct_field(rows.value(self.struct), [self.place])


@dataclass(frozen=True, eq=False)
class Struct(Expression):
    """A struct that is never null."""

    names: Sequence[str]
    values: Sequence[Expression]

    def of(self, rows: Rows) -> Any:
        return pa.StructArray.from_arrays([rows.column(value) for value in self.values], list(self.names))


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function of other expressions, by its name in ``FUNCTIONS``."""

    function: str
    arguments: Sequence[Expression]

    def of(self, rows: Rows) -> Any:
        return FUNCTIONS[self.function](*map(rows.value, self.arguments))


@dataclass(frozen=True, eq=False)
class Cast(Expression):
    """A cast that never fails: to a wider number, or of a time to what it counts."""

    value: Expression
    type: pa.DataType

    def of(self, rows: Rows) -> Any:
        return pc.cast(rows.value(self.value), self.type, safe=False)


@dataclass(frozen=True, eq=False)
class Choice(Expression):
    """The value behind the first condition that is true, or else the last value."""

    conditions: Sequence[Expression]
    values: Sequence[Expression]

    def of(self, rows: Rows) -> Any:
        *chosen, value = map(rows.value, self.values)
        for condition, one in zip(reversed(self.conditions), reversed(chosen), strict=True):
            value = pc.if_else(pc.fill_null(rows.value(condition), False), one, value)
        return value


def _greater(one: Any, other: Any) -> Any:
    """Return whether one value is greater; NaN is greater than all other numbers."""
    if not pa.types.is_floating(one.type):
        return pc.greater(one, other)
    return pc.or_(pc.greater(one, other), pc.and_(pc.is_nan(one), pc.invert(pc.is_nan(other))))


def _equal(one: Any, other: Any) -> Any:
    """Return whether values are equal; NaN is equal to itself."""
    if not pa.types.is_floating(one.type):
        return pc.equal(one, other)
    return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))


def _same(one: Any, other: Any) -> Any:
    """Return whether values are equal, null to itself and nothing else."""
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(_equal(one, other), False), both_null)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is null": pc.is_null,
    "is not null": pc.is_valid,
    "equal": _equal,
    "same": _same,
    "greater": _greater,
    "less": lambda one, other: _greater(other, one),
    "greater or equal": lambda one, other: pc.invert(_greater(other, one)),
    "less or equal": lambda one, other: pc.invert(_greater(one, other)),
    "coalesce": pc.coalesce,
    "add": pc.add_checked,
    "subtract": pc.subtract_checked,
    "multiply": pc.multiply_checked,
    "add wrapping": pc.add,
    "subtract wrapping": pc.subtract,
    "multiply wrapping": pc.multiply,
}
"""The functions of ``Call``, by name."""

"""Selected columns and conditions between two DataFrames, as far as Arrow can evaluate them.

Rule of this module: Spark has analyzed the plan, and only what it means is read; what is not listed here is refused,
and stays with Spark. Nothing is listed whose answer could differ from Spark's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from millpond.adapters.spark.rows.arrow_expressions import (
    Call,
    Cast,
    Choice,
    Column,
    Expression,
    Field,
    Literal,
    Struct,
)


class NotInArrowError(Exception):
    """Something lies between that Arrow does not evaluate; the message says what."""


class Selected(NamedTuple):
    """The rows of a DataFrame, by the columns of another one.

    Attributes:
        columns: what each of its columns is.
        conditions: what all its rows fulfill.
    """

    columns: Sequence[Expression]
    conditions: Sequence[Expression]


def analyzed(frame: DataFrame) -> Any:
    """Return the plan of a DataFrame as Spark has analyzed it, in the JVM; None in a session of Spark Connect."""
    return frame._jdf.queryExecution().analyzed() if hasattr(frame, "_jdf") else None


def column_ids(plan: Any) -> tuple[int, ...]:
    """Return the numbers by which Spark tells the columns that come out of a plan from all others."""
    return tuple(column.exprId().id() for column in _each(plan.output()))


def plans_down(plan: Any) -> Iterator[Any]:
    """Yield a plan, and those below it as long as there is a single one."""
    while True:
        yield plan
        children = _each(plan.children())
        if len(children) != 1:
            return
        (plan,) = children


def selected(plan: Any, source: Any) -> Selected:
    """Return what a plan selects from another one below it.

    Raises:
        NotInArrowError: there is something between the two that Arrow does not evaluate.
    """
    columns, conditions = _selected(plan, source)
    return Selected([columns[id_] for id_ in column_ids(plan)], conditions)


def evaluated(frame: DataFrame, condition: SparkColumn) -> Expression | None:
    """Return a condition on the rows of a DataFrame; None in a session of Spark Connect.

    Raises:
        NotInArrowError: there is something in it that Arrow does not evaluate.
    """
    source, plan = analyzed(frame), analyzed(frame.select(condition.alias("condition")))
    return None if plan is None else selected(plan, source).columns[0]


def _selected(plan: Any, source: Any) -> tuple[Mapping[int, Expression], Sequence[Expression]]:
    """Return the columns that come out of a plan, by their numbers, and the conditions."""
    if plan.equals(source):  # what only filters has the same columns
        return {id_: Column(place) for place, id_ in enumerate(column_ids(source))}, []
    kind, children = _kind(plan), _each(plan.children())
    if kind not in ("Project", "Filter", "SubqueryAlias") or len(children) != 1:
        raise NotInArrowError(f"{kind} lies between")
    columns, conditions = _selected(children[0], source)
    if kind == "Project":
        columns = {one.exprId().id(): _expression(one, columns) for one in _each(plan.projectList())}
    if kind == "Filter":
        conditions = [*conditions, *(_expression(one, columns) for one in _conjuncts(plan.condition()))]
    return columns, conditions


def _conjuncts(condition: Any) -> list[Any]:
    """Return the conditions all of which are to be true."""
    if _kind(condition) != "And":
        return [condition]
    return [one for child in _each(condition.children()) for one in _conjuncts(child)]


def _expression(expression: Any, columns: Mapping[int, Expression]) -> Expression:
    kind, children = _kind(expression), _each(expression.children())
    if kind == "AttributeReference":
        return columns[expression.exprId().id()]
    if _is_constant(expression):
        return _literal(expression)
    if kind in _COMPARISONS and any(_type(one) not in _TYPES for one in children):
        raise NotInArrowError(f"{expression.sql()} compares values of type {_type(children[0])}")
    if kind in _SPECIAL:
        return _SPECIAL[kind](expression, [_expression(child, columns) for child in children])
    if kind not in _FUNCTIONS:
        raise NotInArrowError(f"{expression.sql()} lies between")
    return Call(_FUNCTIONS[kind], [_expression(child, columns) for child in children])


def _alias(expression: Any, children: Sequence[Expression]) -> Expression:
    (child,) = children
    return child


def _field(expression: Any, children: Sequence[Expression]) -> Expression:
    return Field(children[0], expression.ordinal())


def _struct(expression: Any, children: Sequence[Expression]) -> Expression:
    names = [str(name.value()) for name in _each(expression.nameExprs())]
    return Struct(names, children[1::2])


def _counted(type_: pa.DataType) -> Callable[[Any, Sequence[Expression]], Expression]:
    return lambda expression, children: Cast(children[0], type_)


def _cast(expression: Any, children: Sequence[Expression]) -> Expression:
    before, after = _type(expression.child()), _type(expression)
    if before == after:
        return children[0]
    if after not in _WIDER.get(before, ()):
        raise NotInArrowError(f"{expression.sql()} casts a {before} to {after}")
    return Cast(children[0], _TYPES[after])


def _choice(expression: Any, children: Sequence[Expression]) -> Expression:
    if len(children) % 2 == 0:
        children = [*children, Literal(None, _arrow_type(expression))]
    *pairs, last = children
    return Choice(pairs[::2], [*pairs[1::2], last])


def _in(expression: Any, children: Sequence[Expression]) -> Expression:
    value, *others = children
    equal: Sequence[Expression] = [Call("equal", [value, other]) for other in others]
    return reduce(lambda one, other: Call("or", [one, other]), equal)


def _arithmetic(name: str) -> Callable[[Any, Sequence[Expression]], Expression]:
    def made(expression: Any, children: Sequence[Expression]) -> Expression:
        type_ = _type(expression)
        if type_ in ("float", "double"):
            return Call(f"{name} wrapping", children)
        mode = expression.evalMode().toString()
        if type_ not in _INTEGERS or mode == "TRY":
            raise NotInArrowError(f"{expression.sql()} lies between")
        return Call(name if mode == "ANSI" else f"{name} wrapping", children)

    return made


def _literal(expression: Any) -> Expression:
    """Return the value that is the same for all rows, evaluated now."""
    type_ = _arrow_type(expression)
    try:
        value = expression.eval(None)
    except Py4JJavaError as error:  # it fails
        raise NotInArrowError(f"{expression.sql()} lies between") from error
    if pa.types.is_string(type_) and value is not None:
        value = value.toString()
    if pa.types.is_boolean(type_) or pa.types.is_string(type_) or pa.types.is_floating(type_) or value is None:
        return Literal(value, type_)
    # Dates and times are what Spark counts: days and microseconds.
    return Literal(int(value), type_)


def _arrow_type(expression: Any) -> pa.DataType:
    type_ = _type(expression)
    if type_ not in _TYPES:
        raise NotInArrowError(f"{expression.sql()} is a {type_}")
    return _TYPES[type_]


def _is_constant(expression: Any) -> bool:
    """Return whether it is the same in all micro-batches, as far as is known: the time of today is not."""
    return _kind(expression) in _CONSTANT and all(map(_is_constant, _each(expression.children())))


def _type(expression: Any) -> str:
    return str(expression.dataType().sql()).lower()


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]


_CONSTANT: Final = ("Literal", "Cast", "UnaryMinus")

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that Arrow compares as Spark does, and of which there are literals. Collated strings have other names."""

_WIDER: Final[Mapping[str, Sequence[str]]] = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "bigint": ("double",),
    "float": ("double",),
}
"""The casts that never fail."""

_COMPARISONS: Final = (
    "In",
    "EqualTo",
    "EqualNullSafe",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
)

_FUNCTIONS: Final[Mapping[str, str]] = {
    "And": "and",
    "Or": "or",
    "Not": "not",
    "IsNull": "is null",
    "IsNotNull": "is not null",
    "EqualTo": "equal",
    "EqualNullSafe": "same",
    "GreaterThan": "greater",
    "LessThan": "less",
    "GreaterThanOrEqual": "greater or equal",
    "LessThanOrEqual": "less or equal",
    "Coalesce": "coalesce",
}

_SPECIAL: Final[Mapping[str, Callable[[Any, Sequence[Expression]], Expression]]] = {
    "Alias": _alias,
    "GetStructField": _field,
    "CreateNamedStruct": _struct,
    "UnixMicros": _counted(pa.int64()),
    "UnixDate": _counted(pa.int32()),
    "Cast": _cast,
    "In": _in,
    "CaseWhen": _choice,
    "If": _choice,
    "Add": _arithmetic("add"),
    "Subtract": _arithmetic("subtract"),
    "Multiply": _arithmetic("multiply"),
}

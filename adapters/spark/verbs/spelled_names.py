"""Names of columns as a DataFrame spells them, whatever a user has given a verb for them.

A session takes upper and lower case for the same unless ``spark.sql.caseSensitive`` is set, and so do verbs:
``key="ID"`` is the column ``id``. Where a verb takes names alone, as in ``by``, ``F.col("id")`` is one.

Rule of this module: what has no such column stays as it is, and the verb tells of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from millpond.adapters.spark.verbs.frames.expressions import Expression
from millpond.adapters.spark.verbs.frames.inputs import expression_of
from millpond.errors import InvalidExpressionError
from millpond.processors.verbs.aggregates import AggregateCall

CASE_CONF: Final = "spark.sql.caseSensitive"

_NAMES: Final = ("key", "by")
"""Parameters that take names alone."""
_COLUMNS: Final = ("time", "order", "op")
"""Parameters that take expressions as well."""


def spelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb, by parameter, with names of columns as its inputs have them.

    Raises:
        ConfigurationError: where names alone are taken, there is an expression that is no column of the rows.
    """
    found = dict(given)
    rows, left, right, tables = (given.get(name) for name in ("rows", "left", "right", "tables"))
    if isinstance(rows, DataFrame):
        _spell(found, rows, {name: name for name in (*_NAMES, *_COLUMNS)})
        if isinstance(given.get("calls"), Mapping):
            found["calls"] = {name: _call(rows, call) for name, call in given["calls"].items()}
    if isinstance(left, DataFrame) and isinstance(given.get("time"), str):
        found["time"] = spelled_name(left, given["time"])
    if isinstance(left, DataFrame):
        _spell(found, left, {f"left_{name}": name for name in ("key", *_COLUMNS)})
        found["on"] = _on(left, right, given.get("on"))
    if isinstance(right, DataFrame):
        _spell(found, right, {f"right_{name}": name for name in _COLUMNS})
    if isinstance(tables, Mapping) and all(isinstance(one, DataFrame) for one in tables.values()):
        for name in ("on", *_COLUMNS):
            if isinstance(given.get(name), Mapping):
                found[name] = {
                    table: _named(tables[table], name, one, names=name == "on") if table in tables else one
                    for table, one in given[name].items()
                }
    return found


def _spell(found: dict[str, Any], rows: DataFrame, parameters: Mapping[str, str]) -> None:
    """Spell parameters' names as the columns of some rows are spelled."""
    for parameter, kind in parameters.items():
        if found.get(parameter) is not None:
            found[parameter] = _named(rows, parameter, found[parameter], names=kind in _NAMES)


def _named(rows: DataFrame, parameter: str, given: Any, *, names: bool = True) -> Any:
    """Return what a user gave for a parameter, one column or several, with names as the rows spell them."""
    if isinstance(given, list | tuple):
        return [_named(rows, parameter, one, names=names) for one in given]
    if isinstance(given, str):
        return spelled_name(rows, given)
    if not (names and isinstance(given, Column)):
        return given
    expression_of(parameter, rows, given)
    column = Expression.of(rows, given)
    if column.release is None:
        return column.text
    raise InvalidExpressionError(
        f"{parameter} is {given}, an expression, and takes names of columns; make it a column, such as "
        f"rows.withColumn('made', F.expr({column.text!r})), and give {parameter}='made'"
    )


def spelled_name(rows: DataFrame, given: str) -> str:
    """Return the column that a session finds by a name; the name itself if it is exact, or finds none or several."""
    columns: Sequence[str] = rows.columns
    if given in columns:
        return given
    folded = [name for name in columns if name.casefold() == given.casefold()]
    sensitive = len(folded) == 1 and str(rows.sparkSession.conf.get(CASE_CONF, "false")).lower() == "true"
    return folded[0] if len(folded) == 1 and not sensitive else given


def _call(rows: DataFrame, call: Any) -> Any:
    """Return a call of an aggregate with the names of its columns."""
    if not isinstance(call, AggregateCall):
        return call
    column, second = (spelled_name(rows, one) if isinstance(one, str) else one for one in (call.column, call.second))
    return replace(call, column=column, second=second)


def _on(left: DataFrame, right: Any, given: Any) -> Any:
    """Return the columns that both sides of a join must have equal."""

    def of_right(name: Any) -> Any:
        if isinstance(right, DataFrame):
            return _named(right, "on", name)
        return _named(left, "on", name) if isinstance(name, Column) else name

    if isinstance(given, Mapping):
        return {_named(left, "on", mine): of_right(theirs) for mine, theirs in given.items()}
    names = given if isinstance(given, list | tuple) else [given]
    pairs = {_named(left, "on", one): of_right(one) for one in names if isinstance(one, str | Column)}
    if len(pairs) < len(names):
        return given
    return list(pairs) if all(mine == theirs for mine, theirs in pairs.items()) else pairs

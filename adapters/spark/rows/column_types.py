"""Checks of the types of an input's columns, where topologies and verbs ask for the same.

Rule of this module: it looks at types alone and knows no DataFrame; a message begins with what its caller calls the
place.
"""

from collections.abc import Callable, Iterator

from pyspark.sql import types as T

from millpond.errors import ColumnTypeError


def leaf_types(path: str, type_: T.DataType) -> Iterator[tuple[str, T.DataType]]:
    """Yield the simple types that a type is made of, each with its path, such as ``items.element.price``.

    Args:
        path: the column's name; empty if the type is that of a whole row, whose columns then go by their own names.
        type_: the column's type.
    """
    inner: list[tuple[str, T.DataType]]
    if isinstance(type_, T.ArrayType):
        inner = [("element", type_.elementType)]
    elif isinstance(type_, T.MapType):
        inner = [("key", type_.keyType), ("value", type_.valueType)]
    elif isinstance(type_, T.StructType):
        inner = [(field.name, field.dataType) for field in type_.fields]
    else:
        yield path, type_
        return
    for name, part in inner:
        yield from leaf_types(f"{path}.{name}" if path else name, part)


def check_leaf_types(
    where: str, path: str, type_: T.DataType, objection: Callable[[str, T.DataType], str | None]
) -> None:
    """Refuse a type for one of its parts, because a query would meet it only at its first value.

    Args:
        where: what the DataFrame is called, for the message.
        path: as for ``leaf_types``.
        type_: the column's type.
        objection: what is wrong with a part of that path and type, and what to do; None if nothing is.

    Raises:
        ConfigurationError: there is an objection.
    """
    for name, part in leaf_types(path, type_):
        reason = objection(name, part)
        if reason is not None:
            raise ColumnTypeError(f"{where}: column {name!r} is of type {part.simpleString()}, {reason}")


def compared_otherwise(_: str, type_: T.DataType) -> str | None:
    """Return the objection to a type whose values Spark may call equal where their bytes differ."""
    if not isinstance(type_, T.StringType) or type_.isUTF8BinaryCollation():
        return None
    return (
        "but values are compared by their bytes; give a column that is the same for equal values, such as "
        "F.lower(column), and cast it to string collate UTF8_BINARY"
    )


def check_operations(what: str, type_: T.DataType) -> None:
    """Refuse operations of a change feed that are no text.

    Args:
        what: what the operations are called, for the message.
        type_: their type.

    Raises:
        ConfigurationError: it is not text.
    """
    if not isinstance(type_, T.StringType):
        raise ColumnTypeError(
            f"{what} are of type {type_.simpleString()}; give a string column with operations such as 'upsert' and "
            "'delete', for example F.when(F.col('deleted'), 'delete').otherwise('upsert')"
        )

"""The history of the schemas of one place: numbered 1, 2, ..., each column with an id that survives renames.

Rule of this module: it holds a history. Which change is allowed is decided in ``millpond.stores.rows.evolution``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from millpond.errors import ConfigurationError
from millpond.stores.rows.nested import child_fields, with_children
from millpond.stores.rows.physical import normalized_schema


@dataclass(frozen=True)
class Column:
    """One column, or a field, element, key or value within one.

    Attributes:
        id: the same in all schemas of a history, whatever the column is called.
        field: name, type in its one form, nullability and metadata.
        children: what is within: see ``child_fields``.
    """

    id: int
    field: Any
    children: "tuple[Column, ...]"

    @classmethod
    def around(cls, id_: int, field: Any, children: "Sequence[Column]") -> "Column":
        """A column like ``field``, around other children."""
        type_ = with_children(field.type, [child.field for child in children])
        return cls(id_, pa.field(field.name, type_, field.nullable, field.metadata), tuple(children))


Columns = tuple[Column, ...]


def numbered(field: Any, ids: Iterator[int]) -> Column:
    """``field`` and all that is within it, with new ids."""
    id_ = next(ids)
    return Column(id_, field, tuple(numbered(child, ids) for child in child_fields(field.type)))


@dataclass(frozen=True)
class Schemas:
    """All schemas that rows of one place were ever written with. It never changes; ``evolved`` returns another.

    Attributes:
        versions: the columns of schema 1, 2, ...
    """

    versions: tuple[Columns, ...]

    @classmethod
    def first(cls, schema: pa.Schema) -> "Schemas":
        """The history that begins with ``schema``.

        Raises:
            ConfigurationError: a column cannot be packed, or two have the same name.
        """
        ids = count(1)
        return cls((tuple(numbered(field, ids) for field in normalized_schema(schema)),))

    @property
    def number(self) -> int:
        """The number of the current schema."""
        return len(self.versions)

    @property
    def current(self) -> pa.Schema:
        """The schema that rows are written with now, with all types in their one form."""
        return self.schema(self.number)

    def schema(self, number: int) -> pa.Schema:
        """The schema of a number.

        Raises:
            ConfigurationError: there is none of that number.
        """
        if not 1 <= number <= self.number:
            raise ConfigurationError(f"there is no schema {number}; the newest is {self.number}")
        return pa.schema([column.field for column in self.versions[number - 1]])

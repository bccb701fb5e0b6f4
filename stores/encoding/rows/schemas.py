"""The history of the schemas of one place: numbered 1, 2, ..., each column with an id that survives renames.

Rule of this module: it holds a history. The allowed changes are decided in ``millpond.stores.encoding.rows.evolution``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from millpond.stores.encoding.rows.evolution import Change, evolved_columns
from millpond.stores.encoding.rows.nested import Columns, all_ids, leaf_paths, numbered
from millpond.stores.encoding.rows.physical import normalized_schema
from millpond.stores.encoding.rows.schema_json import from_json, to_json

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True)
class Schemas:
    """All schemas that rows of one place were ever written with. A history never changes; ``evolved`` returns another.

    Attributes:
        versions: the columns of schema 1, 2, ...
    """

    versions: tuple[Columns, ...]

    @classmethod
    def first(cls, schema: pa.Schema) -> "Schemas":
        """Return the history that begins with ``schema``.

        Raises:
            ConfigurationError: a column cannot be packed, or two have the same name.
        """
        ids = count(1)
        return cls((tuple(numbered(field, ids) for field in normalized_schema(schema)),))

    @classmethod
    def from_json(cls, text: str) -> "Schemas":
        """Return the history whose ``to_json`` is the text.

        Raises:
            FormatError: it is in a format that this release does not know.
            SerdeError: it is damaged.
        """
        return cls(from_json(text))

    def to_json(self) -> str:
        """Return the history as text: see ``millpond.stores.encoding.rows.schema_json``.

        Raises:
            ConfigurationError: the metadata of a column is not text.
        """
        return to_json(self.versions)

    @property
    def number(self) -> int:
        """The number of the current schema."""
        return len(self.versions)

    @property
    def current(self) -> pa.Schema:
        """The schema that rows are written with now, with all types in their one form."""
        return pa.schema([column.field for column in self.versions[-1]])

    def evolved(
        self,
        schema: pa.Schema,
        renamed: Mapping[str, str] = _NOTHING,
        dropped: Collection[str] = (),
        *,
        where: str,
    ) -> "Schemas":
        """Return the history in which ``schema`` is the current one: this one, if it is that already.

        Columns may be added if they are nullable, dropped, renamed, reordered, widened to a type that holds all their
        values, and made nullable, at every level. Declarations of earlier runs may stay.

        Args:
            schema: the columns that rows have from now on.
            renamed: the new paths of columns, by their old ones: ``{"address.street": "address.road"}``.
                Within lists and maps, a path goes on with ``element``, ``key`` or ``value``.
            dropped: the paths of columns that are gone. Only columns that might seem to be renamed must be among them.
            where: the name for errors of the place that has these schemas.

        Raises:
            ConfigurationError: a column cannot be packed, or a declaration fits nothing.
            StateConflictError: rows cannot be read with the new schema, or it is not sure how; the message shows both.

        >>> first = Schemas.first(pa.schema([("id", pa.int32()), ("name", pa.string())]))
        >>> second = first.evolved(pa.schema([("id", pa.int64()), ("city", pa.string())]), {"name": "city"}, where="in")
        >>> second.number, second.current.names
        (2, ['id', 'city'])
        """
        fields = list(normalized_schema(schema))
        ids = count(1 + max(chain.from_iterable(map(all_ids, self.versions)), default=0))
        columns = evolved_columns(self.versions[-1], fields, Change(renamed, dropped, where), ids, self._paths)
        return self if columns == self.versions[-1] else Schemas((*self.versions, columns))

    def replaced(self, schema: pa.Schema) -> "Schemas":
        """Return the history for a place without rows so far, with ``schema`` as the current one.

        No column continues another, so any may have any type.

        Raises:
            ConfigurationError: a column cannot be packed, or two have the same name.
        """
        ids = count(1 + max(chain.from_iterable(map(all_ids, self.versions)), default=0))
        fields = list(normalized_schema(schema))
        if self.current.equals(pa.schema(fields), check_metadata=True):
            return self
        return Schemas((*self.versions, tuple(numbered(field, ids) for field in fields)))

    @property
    def _paths(self) -> set[str]:
        """The paths of all columns that there ever were."""
        return {path for columns in self.versions for path, _ in leaf_paths([column.field for column in columns])}

"""``DictColumns``: the rows that a user's processor makes, as columns."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.processors.rows.column_values import ColumnValues
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.verbs.verb import Projection


@dataclass(frozen=True)
class DictColumns(Projection):
    """The entries of dicts, such as a user's processor makes, as the columns that were announced.

    Attributes:
        values: makes columns of them.
        announced: the columns.
    """

    values: ColumnValues
    announced: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.announced

    def columns(self, batch: Batch, first: int) -> list[Any]:
        entries = {name: self.values.entries(name, name, batch.values) for name in self.announced.names}
        return [self.values.to_array(field.name, field.type, entries[field.name]) for field in self.announced]

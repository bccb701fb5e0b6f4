"""The rows of a verb's result, as the columns that its parts make of records.

Rule of this module: between the two nobody but Arrow touches a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.processors.rows.arrays import in_type
from millpond.processors.runtime.batches.columns import Records
from millpond.processors.verbs.verb import Projection


@dataclass(frozen=True)
class PartRows:
    """Rows that parts make of records. Travels to the workers.

    Attributes:
        parts: what the columns are made of.
        schema: the columns for Arrow.
    """

    parts: Sequence[Projection]
    schema: pa.Schema

    def to_table(self, records: Records, first: int = 0) -> pa.Table:
        """Return the rows of the records, of which the first has that ``sequence``."""
        made = [column for part in self.parts for column in part.of(records, first)]
        columns = [in_type(column, field.type) for column, field in zip(made, self.schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class RowColumns:
    """The rows of a verb's result, as a table of them. Travels to the workers.

    Attributes:
        topic: the verb's name.
        rows: the rows.
    """

    topic: str
    rows: PartRows

    def to_table(self, records: Records, first: int) -> pa.Table:
        """Return the rows of the records, of which the first has that ``sequence``."""
        return self.rows.to_table(records, first)

"""``ShownRows``: the rows that an aggregate keeps of a change feed, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.verbs.feeds.feed_rows import groups_and_row
from millpond.processors.verbs.feeds.group_aggregate import GroupAggregate
from millpond.processors.verbs.projections import in_micros
from millpond.processors.verbs.verb import Projection, nullable
from millpond.stores.encoding.rows.tuple_keys import KeyCodec


@dataclass(frozen=True)
class ShownRows(Projection):
    """The groups of rows, unless all are in one; their times; and their values for each call.

    Attributes:
        groups: reads the keys of groups.
        calls: reads rows.
        times: the type of their times.
    """

    groups: KeyCodec
    calls: GroupAggregate
    times: pa.DataType

    @property
    def schema(self) -> pa.Schema:
        groups = [pa.field("groups", self._groups)] if self.groups.schema.names else []
        values = pa.struct(list(nullable(self.calls.values)))
        return pa.schema([*groups, pa.field("time", self.times), pa.field("values", values)])

    @property
    def _groups(self) -> Any:
        return pa.list_(pa.struct(list(nullable(self.groups.schema))))

    def columns(self, batch: Batch, first: int) -> list[Any]:
        return self.of_values(batch.values)

    def of_values(self, values: Sequence[bytes]) -> list[Any]:
        """Return the columns of rows as they are kept.

        Raises:
            SerdeError: a value is no such row.
        """
        parted = list(map(groups_and_row, values))
        rows = self.calls.input_serde.deserialize_many([row for _, row in parted])
        made = self.calls.values_of(rows)
        shown = pa.StructArray.from_arrays(made, fields=list(nullable(self.calls.values)))
        columns = [in_micros(self.calls.times_of(rows), self.times), shown]
        return [self._groups_of([keys for keys, _ in parted]), *columns] if self.groups.schema.names else columns

    def _groups_of(self, keys: Sequence[Sequence[bytes]]) -> Any:
        """Return the keys of the groups of rows, a list for each."""
        unpacked = self.groups.unpack([key for some in keys for key in some]).combine_chunks()
        columns = [column.combine_chunks() for column in unpacked.columns]
        structs = pa.StructArray.from_arrays(columns, fields=list(self._groups.value_type))
        ends = [0]
        for some in keys:
            ends.append(ends[-1] + len(some))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)

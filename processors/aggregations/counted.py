"""``CountCombiner``: counts records before they travel to the tasks that count them by key."""

from typing import Any

import pyarrow as pa

from millpond.processors.runtime.batches.partials import Combiner
from millpond.stores.encoding.column_serdes import to_big_endian
from millpond.stores.encoding.serdes import INT64


class CountCombiner(Combiner):
    """The number of records of each key."""

    value_serde = INT64

    def keys(self, records: pa.Table) -> Any:
        type_ = records.schema.field("key").type
        # Of other types, such as floats, Arrow may take values for equal whose bytes differ.
        plain = pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_integer(type_)
        return records["key"].combine_chunks() if plain else None

    def combine(self, records: pa.Table) -> pa.Table:
        grouped = records.group_by("key", use_threads=False).aggregate([([], "count_all"), ("timestamp", "max")])
        counts: Any = grouped["count_all"].combine_chunks()
        return pa.table(
            [grouped["key"], to_big_endian(counts), grouped["timestamp_max"]], names=["key", "value", "timestamp"]
        )

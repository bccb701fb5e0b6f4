"""The updates of a table that change what it shows: not those that come too late to be their key's latest (KIP-914)."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Array, Columns
from millpond.processors.runtime.operator import Operator
from millpond.processors.runtime.promises import Promises
from millpond.stores.encoding.rows.row_columns import PhysicalRowType, RowColumnSerde

pc: Any = _compute


class LatestChanges(Operator):
    """Passes on the updates that are their key's latest and give it another value. It needs the values before them."""

    promises = Promises(by_key=True, keeps_records=True)

    def process(self, batch: Batch) -> None:
        assert batch.olds is not None
        changed = [
            batch.latest_at(i) and value != old
            for i, (value, old) in enumerate(zip(batch.values, batch.olds, strict=True))
        ]
        kept = batch.select(changed)
        self.context.forward(kept.with_values(kept.values))

    def process_columns(self, columns: Columns) -> None:
        values, olds = _comparable(columns.values), _comparable(columns.olds)
        if values is None or olds is None:
            self.process(columns.to_batch())
            return
        same = pc.if_else(olds.is_valid(), pc.equal(values, olds), values.is_null())
        changed = ~np.asarray(same.fill_null(False))
        kept = columns.select(changed if columns.latest is None else changed & columns.latest)
        self.context.forward_columns(kept.as_stream())


def _comparable(values: Array) -> Array | None:
    """Return values that Arrow compares as Python does, or the bytes of rows; None if there are none.

    Arrow does not compare columns without a type, such as a joiner makes of nothing but deletes.
    """
    kind = values.type
    if isinstance(kind, PhysicalRowType):
        return RowColumnSerde(kind.storage_type).write(values)
    alien = pa.types.is_null(kind) or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    return None if alien else values

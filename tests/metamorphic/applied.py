"""The results of ``apply``, as columns as Spark has them."""

import pyarrow as pa

from millpond.adapters.spark.rows.sink import type_named
from millpond.processors.rows.column_values import ColumnsOwner, ColumnValues, DictColumns


def results_of(schema: pa.Schema) -> DictColumns:
    """Return the columns of the results."""
    return DictColumns(ColumnValues(ColumnsOwner("out", verb=True), frozenset(), type_named), schema)

"""What ``apply`` returns, as columns as Spark has them."""

import pyarrow as pa

from millpond.adapters.spark.rows.column_values import ColumnValues
from millpond.adapters.spark.verbs.sink import DictColumns


def results_of(schema: pa.Schema) -> DictColumns:
    """The columns of the results."""
    return DictColumns(ColumnValues("out", frozenset()), schema)

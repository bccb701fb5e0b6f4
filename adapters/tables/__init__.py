"""Tables that others keep in files, read by version: for ``lookup_join``, in place of a copy in state.

``ParquetTable`` is a directory of Parquet files, ``DeltaTable`` a table of Delta Lake. Nothing is written.
"""

from millpond.adapters.tables.delta_table import DeltaTable
from millpond.adapters.tables.parquet_table import ParquetTable

__all__ = ["DeltaTable", "ParquetTable"]

"""The answers of DuckDB. All tests share one connection: to open one takes longer than to ask."""

from functools import cache
from typing import Any

import duckdb
import pyarrow as pa


def answered(query: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows that the query gives on tables of these names."""
    connection = _connection()
    for name, table in tables.items():
        connection.register(name, table)
    return connection.execute(query).fetchall()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()

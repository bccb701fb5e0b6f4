"""The Parquet files of tables that others keep.

Rule of this module: it reads columns by their names, and does not know to which version of a table a file belongs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.adapters.tables.spark_schema import UNREADABLE, arrow_schema
from millpond.errors import CorruptFileError, LookupTableError, MissingFileError, MissingTableFileError
from millpond.masking import quoted
from millpond.stores.durability.storage.storage import Storage

_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of Spark's note on a file's columns; Parquet need not tell which times are moments."""


def check_place(path: object) -> None:
    """Refuse what is no place of a table.

    Raises:
        ConfigurationError: so it is.
    """
    if not isinstance(path, str | Path) or not str(path):
        raise LookupTableError(
            f"the path of the table is {path!r}; give a directory, or a URI such as s3://bucket/quotes"
        )


def file_schema(storage: Storage, path: str) -> pa.Schema:
    """Return the columns of a file.

    Raises:
        MissingFileError: it is gone.
        CorruptFileError: it is none of Parquet, or its columns are not as Spark writes them.
    """
    with _opened(storage, path) as file:
        found: pa.Schema = file.schema_arrow
        noted = (file.metadata.metadata or {}).get(_OF_SPARK)
    try:
        return pa.schema(list(found)) if noted is None else arrow_schema(noted.decode())
    except UNREADABLE as error:
        raise CorruptFileError(
            f"{storage.describe(path)} has no columns under {_OF_SPARK.decode()} ({type(error).__name__}: "
            f"{quoted(error)})"
        ) from error


def read_columns(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    """Return the columns that a file has, of the given ones.

    Raises:
        MissingFileError: it is gone.
        CorruptFileError: it is damaged.
    """
    with _opened(storage, path) as file:
        found: pa.Table = file.read(columns=[name for name in columns if name in file.schema_arrow.names])
    return found


def row_count(storage: Storage, path: str) -> int:
    """Return how many rows a file has; raises as ``read_columns``."""
    with _opened(storage, path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _opened(storage: Storage, path: str) -> Iterator[Any]:
    try:
        with storage.reading(path) as stream:
            yield pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except MissingFileError as error:
        raise MissingTableFileError(
            f"{error}, which a version of the table has that is read; what deletes old files of tables, such as VACUUM "
            "or a compaction, has to leave them for as long as a query may repeat a micro-batch"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(f"{storage.describe(path)} cannot be read: {quoted(error)}") from error

"""Texts with names, in which Spark's tasks send the results of units of work to the driver.

Rule of this module: it moves texts, whatever they say.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

TEXTS_DDL: Final = "name string, text string"
_TEXTS: Final = pa.schema([pa.field("name", pa.string()), pa.field("text", pa.string())])


def to_rows(texts: Mapping[str, str]) -> pa.RecordBatch:
    """Return the texts as rows of ``TEXTS_DDL``."""
    columns: list[Any] = [pa.array(list(texts), pa.string()), pa.array(list(texts.values()), pa.string())]
    return pa.record_batch(columns, schema=_TEXTS)


def collected(rows: DataFrame) -> list[tuple[str, str]]:
    """Return the names and texts in rows of ``TEXTS_DDL``, once Spark has made them; several tasks may use one name."""
    return [(row.name, row.text) for row in rows.collect()]

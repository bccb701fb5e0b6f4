"""The files that a streaming query has committed.

Spark's file sink writes each file under a name of its own and then names it in its log; readers that know the log see
only committed files. A kill leaves files that no log names, and a reader that does not know the log sees their rows
twice. So a run ends by deleting them.
"""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def committed(spark: "SparkSession", directory: Path) -> pa.Table:
    """Return the rows of an output; delete files left by an interrupted batch. No query may be writing."""
    names = {Path(unquote(urlparse(uri).path)).name for uri in spark.read.parquet(str(directory)).inputFiles()}
    for path in directory.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
    for checksum in directory.glob(".*.parquet.crc"):
        if checksum.name[1:].removesuffix(".crc") not in names:
            checksum.unlink()
    return pa.concat_tables(pyarrow.parquet.read_table(directory / name) for name in sorted(names))

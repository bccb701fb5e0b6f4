"""``Backfill``: a run of verbs over inputs that have an end; the verbs on streams begin with its state.

Rule of this module: it knows what a user says of such a run, and what its results are in files, which hold columns of
Spark's types, and manifests beside them. When it runs, and what makes it count, is up to
``millpond.adapters.spark.job.backfill``.
"""

from dataclasses import dataclass
from posixpath import join

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.rows.column_types import check_leaf_types
from millpond.errors import StreamingOrStaticError


@dataclass(frozen=True)
class Backfill:
    """The settings of a backfill of verbs.

    Attributes:
        complete: a static DataFrame any row of which says that no row follows; None if streams go on in time.
        results: the directory for the results, as Spark reaches it; None for one in the state directory.

    Raises:
        ConfigurationError: ``complete`` is a stream.
    """

    complete: DataFrame | None
    results: str | None

    def __post_init__(self) -> None:
        if self.complete is not None and self.complete.isStreaming:
            raise StreamingOrStaticError(
                "a backfill takes inputs that have an end, and complete is a streaming DataFrame; give a static one, "
                "such as spark.range(1), or none"
            )

    def results_of(self, name: str) -> str | None:
        """Return the directory for the results of a verb; None for one in the state directory."""
        return None if self.results is None else join(self.results, name)


def check_storable(name: str, columns: T.StructType) -> None:
    """Refuse results that Parquet cannot hold.

    Args:
        name: of the verb.
        columns: of its results.

    Raises:
        ConfigurationError: a column is of no type.
    """

    def objection(_: str, type_: T.DataType) -> str | None:
        if isinstance(type_, T.NullType):
            return "which the files of a backfill's results cannot hold; cast it to what it is in the stream"
        return None

    for column in columns:
        check_leaf_types(f"the result of {name!r}", column.name, column.dataType, objection)

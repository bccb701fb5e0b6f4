"""Outputs for the rows of a sink: files, a format of Spark's, a table, a function.

Rule of this module: an output writes one micro-batch of one sink and knows nothing of the others. It may be told to
write the same micro-batch again, because whatever dies before Spark has committed one is repeated; what becomes of the
rows that are there already is said of each output.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from millpond.adapters.spark.outputs.delta import check_delta, is_delta, taken_once
from millpond.errors import InvalidOutputError
from millpond.processors.options.known_names import did_you_mean

BATCH_DIRECTORY: Final = "batch_id="
"""The beginning of the name of a micro-batch's directory; its number follows."""

_BATCH_COLUMN: Final = BATCH_DIRECTORY.rstrip("=")
_FILES: Final = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
_STREAMING_ONLY: Final = ("memory", "rate", "foreach")


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of one sink.

    Attributes:
        number: Spark's number of it.
        writer: names the sink of the query, the same at every start; no other sink has it.
    """

    number: int
    writer: str


class Output(Protocol):
    """The output that the rows of a sink go to."""

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        """Refuse, before anything starts, what cannot be written.

        Raises:
            ConfigurationError: an option is invalid, or does not go with the columns, or the session cannot write it.
        """

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        """Write all rows of a micro-batch, maybe not for the first time."""


OutputLike: TypeAlias = Output | Callable[[DataFrame, int], object]
"""An output, or a function of a DataFrame and the number of the micro-batch."""


@dataclass(frozen=True)
class FileOutput:
    """Files, each row exactly once: every micro-batch has a directory of its own, ``<path>/batch_id=<number>``.

    A micro-batch that is repeated replaces its directory. It is complete once its directory has the file ``_SUCCESS``,
    so while a query is interrupted, a reader may see a part of its last micro-batch, and nothing else that will not
    stay. Spark reads ``path`` with one more column, ``batch_id``.

    Args:
        path: a directory as Spark reaches it. It belongs to the sink of one query; another one is refused there.
        format: one of Spark's file formats: ``parquet``, ``orc``, ``json``, ``csv``, ``avro``, ``text`` or ``xml``.
        options: of the format, such as ``{"compression": "zstd"}``.
        partition_by: columns by which the files of a micro-batch are put into directories.
    """

    path: str
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        if self.format not in _FILES:
            raise InvalidOutputError(
                f"sink {sink!r}: files have one of the formats {list(_FILES)}, not {self.format!r}"
                f"{did_you_mean(self.format, _FILES)}; other formats take FormatOutput"
            )
        if _BATCH_COLUMN in columns.names:
            raise InvalidOutputError(
                f"sink {sink!r} has a column {_BATCH_COLUMN!r}, which is also the name of the directories of a "
                "FileOutput; give the column another name"
            )
        for name in self.partition_by:
            if name not in columns.names:
                raise InvalidOutputError(
                    f"sink {sink!r} has the columns {columns.names}, so files cannot be partitioned by {name!r}"
                    f"{did_you_mean(name, columns.names)}"
                )

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        # Dynamic overwriting, which a session may be set to, would leave partitions of an earlier attempt.
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "static").format(self.format)
        place = f"{self.path.rstrip('/')}/{BATCH_DIRECTORY}{batch.number}"
        writer.options(**self.options).partitionBy(*self.partition_by).save(place)


@dataclass(frozen=True)
class FormatOutput:
    """Any format that Spark writes in batches: Delta, Kafka, JDBC, the console.

    Rows of a micro-batch that is repeated are written again, so each row comes at least once. A Delta table leaves out
    a micro-batch that it has, so there each row comes exactly once.

    Args:
        format: the format's name.
        options: of the format, such as ``{"kafka.bootstrap.servers": ..., "topic": ...}`` or ``{"path": ...}``.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        if self.format in _STREAMING_ONLY:
            raise InvalidOutputError(
                f"sink {sink!r}: Spark writes the format {self.format!r} only as a query's own sink; give a function "
                "(DataFrame, batch_id), which may collect the rows"
            )
        if is_delta(session, self.format):
            check_delta(session, sink)

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        with _once_if_delta(rows.sparkSession, self.format, batch):
            _appending(rows, self.format, self.options).save()


@dataclass(frozen=True)
class TableOutput:
    """A table of the session's catalog, which is made if it does not exist; rows are appended.

    Each row comes at least once, and into a Delta table exactly once, as with ``FormatOutput``.

    Args:
        name: the table's name.
        format: its format; None for the session's default (``spark.sql.sources.default``).
        options: of the format.
    """

    name: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        if not self.name.strip():
            raise InvalidOutputError(f"sink {sink!r}: the table has no name")
        if is_delta(session, self.format):
            check_delta(session, sink)

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        with _once_if_delta(rows.sparkSession, self.format, batch):
            _appending(rows, self.format, self.options).saveAsTable(self.name)


@dataclass(frozen=True)
class FunctionOutput:
    """A function of the user's, which is called at least once for each micro-batch, also where the sink has no rows.

    Args:
        function: takes the DataFrame and the number of the micro-batch.
    """

    function: Callable[[DataFrame, int], object]

    def check(self, sink: str, columns: pa.Schema, session: SparkSession) -> None:
        """Check nothing: a function may take any columns."""

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        self.function(rows, batch.number)


def output_of(sink: str, given: OutputLike) -> Output:
    """Return the output for what a user gave as one.

    Raises:
        ConfigurationError: it is neither an output nor a function.
    """
    if hasattr(given, "write") and hasattr(given, "check"):
        return given
    if callable(given):
        return FunctionOutput(given)
    raise InvalidOutputError(
        f"sink {sink!r} goes to {given!r}; give a FileOutput, FormatOutput, TableOutput or MergeOutput, a function "
        "(DataFrame, batch_id), or None if it is not to be written"
    )


def _once_if_delta(session: SparkSession, format_: str | None, batch: MicroBatch) -> AbstractContextManager[None]:
    return taken_once(session, batch.writer, batch.number) if is_delta(session, format_) else nullcontext()


def _appending(rows: DataFrame, format_: str | None, options: Mapping[str, str]) -> DataFrameWriter:
    writer = rows.write.mode("append").options(**options)
    return writer if format_ is None else writer.format(format_)

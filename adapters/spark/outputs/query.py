"""One query that writes several sinks.

Rule of this module: the operators run once in a micro-batch, before the first sink is written. Their output, blobs of
all sinks, is kept by Spark until the last sink is written; the sinks are written one after the other, by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark.continuation.files import CheckpointFiles, HadoopFiles
from millpond.adapters.spark.outputs.output import FileOutput, MicroBatch, Output, OutputLike, output_of
from millpond.adapters.spark.outputs.owners import check_apart, claim_checkpoint, claim_directory
from millpond.adapters.spark.rows.sink import SinkColumns
from millpond.adapters.spark.rows.sink_blobs import rows_of
from millpond.errors import InvalidOutputError, UnknownNameError
from millpond.masking import SecretsInUse, masked_errors
from millpond.processors.distribution.plan import BETWEEN_SINKS


@dataclass(frozen=True)
class SinkOutput:
    """A sink and the output of its rows.

    Attributes:
        columns: the sink.
        output: where they go.
    """

    columns: SinkColumns
    output: Output


@dataclass(frozen=True)
class SeveralSinks:
    """The sinks of one query, checked.

    Attributes:
        sinks: the sinks that are written, sorted by name.
        files: the file system.
    """

    sinks: Sequence[SinkOutput]
    files: CheckpointFiles

    @classmethod
    def of(
        cls, session: SparkSession, columns: Sequence[SinkColumns], given: Mapping[str, OutputLike | None]
    ) -> "SeveralSinks":
        """Return the sinks with these columns, written to what was given.

        Raises:
            ConfigurationError: an output is invalid, or does not go with the columns of its sink or with the session,
                two sinks have one path, or the session is one of Spark Connect.
        """
        files, sinks = HadoopFiles.of(session), []
        for sink in columns:
            like = given[sink.topic]
            assert like is not None
            output = output_of(sink.topic, like)
            output.check(sink.topic, sink.schema, session)
            sinks.append(SinkOutput(sink, output))
        made = cls(sinks, files)
        check_apart(files, made._paths)
        return made

    @property
    def _paths(self) -> dict[str, str]:
        """The directories of those that are files, by sink."""
        return {one.columns.topic: one.output.path for one in self.sinks if isinstance(one.output, FileOutput)}

    def start(
        self,
        blobs: DataFrame,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None,
        query_name: str | None,
    ) -> StreamingQuery:
        """Start the query.

        Args:
            blobs: the rows of all sinks, as ``Dataflow.with_all_sinks`` makes them.
            checkpoint_location: its checkpoint.
            trigger: the arguments of ``DataStreamWriter.trigger``; None for micro-batches as soon as there is input.
            query_name: its name; None for none.

        Raises:
            StateConflictError: the checkpoint is that of a query of other sinks, or a path has another query's files.
            DurabilityError: the file system failed.
        """
        names = [sink.columns.topic for sink in self.sinks]
        query = claim_checkpoint(self.files, checkpoint_location, names)
        for sink, path in self._paths.items():
            claim_directory(self.files, path, query, sink)
        writer = blobs.writeStream.foreachBatch(_BatchWriter(self.sinks, query).write)
        writer = writer.option("checkpointLocation", checkpoint_location)
        writer = writer if trigger is None else writer.trigger(**trigger)
        return (writer if query_name is None else writer.queryName(query_name)).start()


@dataclass(frozen=True)
class _BatchWriter:
    """Writes micro-batches.

    Attributes:
        sinks: the sinks, in the order of their numbers.
        query: the query's id.
        secrets: those in use, for a driver that is another process, as that of Spark Connect is.
    """

    sinks: Sequence[SinkOutput]
    query: str
    secrets: SecretsInUse = field(default_factory=SecretsInUse)

    def write(self, blobs: DataFrame, number: int) -> None:
        """Write all sinks of a micro-batch."""
        with masked_errors():
            blobs.persist()
            try:
                # Runs the operators to their end. A sink alone might not take all rows, and then they would run again.
                blobs.count()
                for place, sink in enumerate(self.sinks):
                    rows = rows_of(blobs, place, sink.columns)
                    sink.output.write(rows, MicroBatch(number, f"{self.query}-{sink.columns.topic}"))
            finally:
                blobs.unpersist()


def chosen(sinks: Mapping[str, OutputLike | None], known: Sequence[str]) -> str:
    """Return the sinks that are to be written, as a plan takes them.

    Args:
        sinks: where each goes; None for nowhere.
        known: the sinks of the topology.

    Raises:
        TopologyError: a sink is missing or unknown, or none is to be written.
    """
    missing, strange = sorted(set(known) - set(sinks)), sorted(set(sinks) - set(known))
    if strange:
        raise UnknownNameError(f"the topology has the sinks {sorted(known)}, not {strange}")
    if missing:
        raise InvalidOutputError(
            f"nothing says where the sinks {missing} go; give an output for each, or None if it is not to be written"
        )
    found = sorted(sink for sink, output in sinks.items() if output is not None)
    if not found:
        raise InvalidOutputError(f"none of the sinks {sorted(known)} is to be written; give an output for one of them")
    odd = [sink for sink in found if BETWEEN_SINKS in sink]
    if odd and len(found) > 1:
        raise InvalidOutputError(
            f"sink {odd[0]!r} has {BETWEEN_SINKS!r} in its name, which stands between the names of sinks that are "
            "written together; give it another name"
        )
    return BETWEEN_SINKS.join(found)

"""``continue_checkpoint``: a query that has other operators or sources than before goes on at another checkpoint.

Rule of this module: it asks the session and the query's DataFrame; what the files of a checkpoint are is known to
``continuation``.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark.continuation.continuation import Continuation
from millpond.adapters.spark.continuation.files import HadoopFiles
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.adapters.spark.session.session import CHANGELOG_CONF, PARTITIONS_CONF
from millpond.errors import CannotContinueError, StreamingOrStaticError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmptyRun:
    """Runs a query's micro-batch of no rows.

    Attributes:
        rows: the query's DataFrame.
    """

    rows: DataFrame

    def __call__(self, location: str) -> Sequence[str]:
        """Run the micro-batch that the checkpoint at ``location`` has planned, and no other.

        Returns:
            What Spark calls each source.
        """
        conf = self.rows.sparkSession.conf
        before = conf.get(CHANGELOG_CONF, None)
        conf.set(CHANGELOG_CONF, "false")  # a snapshot stands for itself, whatever its number; a changelog does not
        try:
            query = (
                self.rows.writeStream.format("noop").option("checkpointLocation", location).trigger(once=True).start()
            )
        finally:
            if before is None:
                conf.unset(CHANGELOG_CONF)
            else:
                conf.set(CHANGELOG_CONF, before)
        query.awaitTermination()
        progress: Any = query.lastProgress
        return [str(source["description"]) for source in progress["sources"]]


def is_continued(session: SparkSession, old: str, new: str) -> bool:
    """Return whether the checkpoint at ``new`` is there and continues the one at ``old``.

    Raises:
        ConfigurationError: it is that of another query, or the session is one of Spark Connect.
        DurabilityError: the file system failed.
    """
    return Continuation.between(HadoopFiles.of(session), old, new).is_made()


def continue_checkpoint(
    rows: DataFrame,
    old: str,
    new: str,
    *,
    carried: Mapping[str, int | None],
    sources: Mapping[int, int | None] | None = None,
) -> str:
    """Have a query go on at a new checkpoint, after the last micro-batch that it has committed at the old one.

    The numbers of micro-batches go on, and so do the offsets of all sources that are still there; new ones start at
    their beginning. A micro-batch that was planned and not committed is run again. Spark's state is empty: the tasks
    begin with what the state of their application was carried over to. The old checkpoint is never changed. If the new
    one is there already, nothing is done.

    Args:
        rows: the DataFrame that is to be written.
        old, new: the ``checkpointLocation`` before and from now on.
        carried: the applications whose state was carried over from ``old`` for this, with the micro-batch after which
            it was; None for those which are gone.
        sources: for the number of each source in the plan that of the old source that it continues, or None for a new
            one; may be left out where the checkpoint tells by files and topics.

    Returns:
        The new checkpoint's location.

    Raises:
        ConfigurationError: there is nothing to continue, the new place is taken, sources have to be declared, the
            DataFrame is static, or the session is one of Spark Connect.
        StateConflictError: the old checkpoint has state that would be lost, or has gone on since it was carried over.
        DurabilityError: the file system failed.
    """
    session = rows.sparkSession
    files = HadoopFiles.of(session)
    continuation = Continuation.between(files, old, new)
    if continuation.is_made():
        return new
    if not rows.isStreaming:
        raise StreamingOrStaticError("a static DataFrame has no checkpoint; give what the streaming query is to write")
    if files.directories(f"{old}/state"):
        _check_nothing_is_lost(Checkpoint(session, old), new, carried)
    partitions = int(session.conf.get(PARTITIONS_CONF) or 200)
    after = {batch for batch in carried.values() if batch is not None}
    continuation.make(source_occurrences(rows), partitions, EmptyRun(rows), sources, after)
    _log.info("the query with the checkpoint %s goes on at %s", old, new)
    return new


def source_occurrences(rows: DataFrame) -> list[int]:
    """Return the number of each source of a plan, wherever the plan reads it: Spark counts equal ones once."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found: list[Any] = []
    numbers: list[int] = []
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if not leaf.isStreaming():
            continue
        known = [number for number, other in enumerate(found) if other.equals(leaf)]
        numbers.append(known[0] if known else len(found))
        if not known:
            found.append(leaf)
    return numbers


def _check_nothing_is_lost(old: Checkpoint, new: str, carried: Collection[str]) -> None:
    """Refuse to leave behind what is not kept elsewhere."""
    foreign = old.foreign_operators()
    if foreign:
        raise CannotContinueError(
            f"the checkpoint {old.location} has state of Spark's own operators ({', '.join(foreign)}), which cannot go "
            "on at another checkpoint; keep the query there, without into=..., or start it anew, with a new checkpoint "
            "and another application_id"
        )
    lost = sorted({one.application_id for one in old.newest()[1]} - set(carried))
    if lost:
        raise CannotContinueError(
            f"the state of {lost} in the checkpoint {old.location} was not carried over to go on elsewhere; build all "
            f"that the query has with evolution=Evolution({old.location!r}, into={new!r}), or say what is gone: "
            f"Evolution(..., dropped={lost})"
        )

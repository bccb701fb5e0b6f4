"""A session, as users have it or with Spark at its best, and the times of one contender's query in it.

Rule of this module: what is measured is Spark's own ``triggerExecution``, from the look for new files to the commit.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millpond.adapters.spark import configure
from millpond.adapters.spark.session.said_aside import stderr_to
from millpond.bench.flink.jobs import Streamed
from millpond.bench.measure import bytes_below
from millpond.bench.spark.inputs import Source
from millpond.bench.spark.shapes import Inputs, Scale
from millpond.bench.spark.workers import WorkerMemory, workers_of_its_own
from millpond.bench.spark.workloads import Contender, Workload
from millpond.errors import ConfigurationError, MillpondError

_STATE: Final = ("state", "checkpoint/state")
"""The directories of durable state in a contender's directory: Millpond's, and Spark's."""

_HEARD: Final = 4_000
"""The bytes of the output of Spark's processes that are enough to see what has become of them."""

_TUNED: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""The settings with which Spark's own state store and its exchange with Python are at their best."""


@dataclass(frozen=True)
class Ran:
    """The times and the room that a query took.

    Attributes:
        seconds: of each micro-batch that had rows, in order.
        memory: of its Python workers; zeros if it has none.
        processor: seconds that all its processes spent in ``seconds``, on all cores together; zero if it is not known.
        processor_of_workers: seconds of its Python workers, where its state is.
        disk: bytes of durable state when it has ended, with what is kept of earlier micro-batches; zero if it has none,
            or it is not known.
        stream: the figures of a job without micro-batches; ``seconds`` then has the mean.
    """

    seconds: list[float]
    memory: WorkerMemory
    processor: float = 0.0
    processor_of_workers: float = 0.0
    stream: Streamed | None = None
    disk: int = 0


@contextmanager
def session_when_needed(
    cores: int, *, tuned: bool = False, packages: str | None = None
) -> Iterator[Callable[[], SparkSession]]:
    """A function that gives the same session each time, which starts when it is asked for first."""
    with ExitStack() as held:
        yield cache(lambda: held.enter_context(session(cores, tuned=tuned, packages=packages)))


@contextmanager
def session(
    cores: int, partitions: int | None = None, *, tuned: bool = False, packages: str | None = None
) -> Iterator[SparkSession]:
    """A session with what ``configure`` sets, or one in which Spark is at its best.

    Args:
        cores: of Spark.
        partitions: of a shuffle, and so tasks of a query; by default as many as cores.
        tuned: whether Spark's own state store and its exchange with Python are at their best.
        packages: coordinates of what Spark gets from Maven; None for nothing.

    Raises:
        ConfigurationError: Spark does not get the packages.
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions or cores),
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",
        **(_TUNED if tuned else {}),
        **({"spark.jars.packages": packages} if packages else {}),
    }
    builder = configure(SparkSession.builder.master(f"local[{cores}]").appName("millpond-bench"))
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with _heard_if_it_fails():
        with stderr_to(_said()):
            made = _started(builder, packages)
        made.sparkContext.setLogLevel("OFF")
        try:
            yield made
        finally:
            made.stop()


def _started(builder: SparkSession.Builder, packages: str | None) -> SparkSession:
    """Start the session; Spark gets its packages before its JVM answers.

    Raises:
        ConfigurationError: it does not get them.
    """
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        lacking = re.search(r"^.*RuntimeException: (\[.*\])$", _heard(), re.MULTILINE)
        if packages is None or lacking is None:
            raise
        raise ConfigurationError(
            f"Spark does not get --packages {packages} from Maven: {lacking[1]}; give a release that Maven Central "
            "has, and see that it can be reached from here"
        ) from error


def session_name(tuned: bool) -> str:
    """Return the name of a session in reports."""
    return "tuned" if tuned else "default"


@cache
def _said() -> IO[bytes]:
    """Return the file that Spark's processes write their output to, in all sessions, which share one JVM."""
    return tempfile.TemporaryFile()


@contextmanager
def _heard_if_it_fails() -> Iterator[None]:
    """Print the end of what Spark's processes have said, if an error comes that is none of ours."""
    try:
        yield
    except MillpondError:
        raise
    except Exception:
        print(_heard(), file=sys.stderr)
        raise


def _heard() -> str:
    """Return the end of what Spark's processes have said."""
    said = _said().fileno()  # not read by the file, whose place is that at which the processes write
    size = os.fstat(said).st_size
    return os.pread(said, _HEARD, max(0, size - _HEARD)).decode(errors="replace")


def scratch(directory: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Return a directory for inputs and state, which is deleted at the end.

    What a worker still writes there then stays, since no figure is to be lost for that.

    Args:
        directory: where; None for the temporary directory.
    """
    return tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=directory, ignore_cleanup_errors=True)


def in_turn(names: Iterable[str], turns: int) -> Iterator[str]:
    """Yield names in the order in which they are to be measured: forward, then backward, and so on."""
    forward = list(names)
    for turn in range(turns):
        yield from reversed(forward) if turn % 2 else forward


def measure(
    spark: SparkSession,
    place: Path,
    workload: Workload[Source],
    contender: Contender,
    scale: Scale,
    *,
    skipped: int,
    counted: int,
) -> Ran:
    """Run micro-batches of the inputs in ``place``, and throw away what comes out.

    Args:
        spark: the session.
        place: where the inputs are; the contender gets a directory of its own there.
        workload: what is read.
        contender: whose query it is.
        scale: how much a micro-batch has.
        skipped: how many micro-batches at the start do not count.
        counted: how many others do.
    """
    own = Path(tempfile.mkdtemp(prefix="contender-", dir=place))
    with workers_of_its_own(spark) as watch:
        writer = writer_of(spark, place, workload, contender, scale, skipped + counted, own).format("noop")
        watch.start()
        try:
            query = writer.start()
            query.awaitTermination()
        finally:
            memory = watch.stop()
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    ran = [began_and_took(report) for report in reports if report["numInputRows"]][skipped:]
    of_all, of_workers = (
        (spent.between(ran[0][0], sum(ran[-1])) if ran else 0.0) for spent in (watch.spent, watch.spent_by_workers)
    )
    return Ran([seconds for _, seconds in ran], memory, of_all, of_workers, disk=state_bytes(own))


def answer_of(
    spark: SparkSession, place: Path, workload: Workload[Source], contender: Contender, scale: Scale, batches: int
) -> list[pa.Table]:
    """Return the output of a contender's query for each micro-batch."""
    own, found = Path(tempfile.mkdtemp(prefix="checked-", dir=place)), list[pa.Table]()
    writer = writer_of(spark, place, workload, contender, scale, batches, own)
    writer.foreachBatch(lambda rows, number: found.append(rows.toArrow())).start().awaitTermination()
    return found


def began_and_took(report: Mapping[str, Any]) -> tuple[float, float]:
    """Return the time at which a micro-batch began, in seconds since 1970, and the seconds that it took."""
    began = datetime.fromisoformat(report["timestamp"]).timestamp()
    return began, report["durationMs"]["triggerExecution"] / 1000


def writer_of(
    spark: SparkSession,
    place: Path,
    workload: Workload[Source],
    contender: Contender,
    scale: Scale,
    batches: int,
    own: Path,
) -> DataStreamWriter:
    """Return the contender's query on the first ``batches`` micro-batches in ``place``, but for its sink.

    Its files are in the directory ``own``.
    """
    inputs = workload.read(spark, place, workload.topics, scale, batches, contender.static)
    return writer_on(inputs, contender, scale, own).trigger(availableNow=True)


def writer_on(inputs: Inputs, contender: Contender, scale: Scale, own: Path) -> DataStreamWriter:
    """Return the contender's query on any inputs, but for its sink and its trigger; its files are in ``own``."""
    rows = contender.job(inputs, scale, str(own))
    writer = rows.writeStream.outputMode(contender.output_mode)
    return writer.option("checkpointLocation", f"{own}/checkpoint")


def state_bytes(own: Path) -> int:
    """Return the bytes of durable state of the query whose files are in ``own``."""
    return sum(bytes_below(own / kept) for kept in _STATE)

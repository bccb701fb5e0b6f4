"""A Spark that is sooner ready, for tests, which start it often and for short.

Three things cost a short-lived Spark most of its time: its JVM compiles at length what it runs twice; its JVM loads and
checks thousands of classes anew; and each of its Python processes compiles all of PySpark anew, since Spark hands it
PySpark as an archive, for which Python keeps no bytecode. So the JVM compiles in one stage only, maps the classes that
were loaded once from a file, and lives in a home without that archive, so that Python takes the installed PySpark.

Run as a program, ``python -m tests.quick_spark``, it writes that file. File and home are in the virtual environment,
which has the PySpark that they belong to. Without the file, or with that of another Java, a JVM loads its classes as
always.
"""

import os
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(sys.prefix) / "spark-home"
CLASSES: Final = Path(sys.prefix) / "spark-classes.jsa"

_COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def environment() -> dict[str, str]:
    """What the environment of a process needs, so that each Spark that it starts is sooner ready.

    What the user has set already stays as it is.
    """
    wanted = {"JDK_JAVA_OPTIONS": _COMPILER}
    if (home := _home()) is not None:
        wanted["SPARK_HOME"] = str(home)
    if CLASSES.exists():
        wanted["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={CLASSES} {_QUIET}"
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _home() -> Path | None:
    """A directory with all of the installed Spark but its Python; None if there is none or it cannot be made."""
    found = find_spec("pyspark")
    if found is None or found.origin is None or not (installed := Path(found.origin).parent / "jars").is_dir():
        return None
    try:
        HOME.mkdir(exist_ok=True)
        for part in installed.parent.iterdir():
            if part.name in ("bin", "jars", "sbin"):
                with suppress(FileExistsError):
                    (HOME / part.name).symlink_to(part)
    except OSError:
        return None
    return HOME


def _archive_classes() -> None:
    """Write ``CLASSES``: those that a small streaming join, Millpond's as well as Spark's own, has the JVM load."""
    CLASSES.unlink(missing_ok=True)
    os.environ.update(environment() | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={CLASSES} {_QUIET}"})
    from pyspark.sql import functions as F

    from millpond.adapters.spark import Millpond
    from tests.spark.own_session import own_session

    spark = own_session()
    spark.sparkContext.setLogLevel("OFF")
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as directory:
        rows = spark.range(20).selectExpr("id % 3 AS key", "timestamp_millis(id) AS time", "id AS value")
        rows.write.parquet(f"{directory}/rows")
        stream = spark.readStream.schema(rows.schema).parquet(f"{directory}/rows")
        pond = Millpond(application_id="classes", state_dir=f"{directory}/state")
        others = stream.withColumnsRenamed({"time": "since", "value": "other"})
        joined = pond.asof_join(stream, others, on="key", left_time="time", right_time="since", history="1 day")
        own = stream.withWatermark("time", "1 second").groupBy("key").agg(F.sum("value"))
        for name, frame, mode in (("joined", joined, "append"), ("own", own, "complete")):
            writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{directory}/{name}")
            if mode == "append":
                writer.format("parquet").start(f"{directory}/{name}-rows").awaitTermination()
            else:
                writer.format("memory").queryName(name).start().awaitTermination()
        spark.read.parquet(f"{directory}/joined-rows").collect()
    spark.stop()
    jvm = gateway.proc
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    _archive_classes()

"""A Spark that is sooner ready, for tests, which start it often and for short.

Seven things cost a short-lived Spark most of its time: its JVM compiles at length what it runs twice; its JVM loads and
checks thousands of classes anew; each of its Python processes compiles all of PySpark anew, since Spark hands it
PySpark as an archive, for which Python keeps no bytecode; each of its Python workers, and the Python that it starts
beside its driver for each operator, imports hundreds of modules; Hadoop starts a ``chmod`` for each local file that it
writes and a ``readlink`` for each that it renames, dozens in a micro-batch; PySpark tells the JVM the line of each call
that makes a column; and Py4J has a class looked up in all jars whenever it is named. So the JVM compiles in one stage
only, maps the classes that were loaded once from a file, lives in a home without that archive, so that Python takes the
installed PySpark, has all those Pythons forked from a process that has imported those modules (``quick_workers.py``),
has local files that start no processes (``QuickFiles.java``), is told no lines, and tells Python of a class once.

Run as a program, ``python -m tests.quick_spark``, it writes the file of classes, the jar of those files, the module of
that process and the line by which a Python beside a driver asks it for a fork. They and the home are in the virtual
environment, which has the PySpark that they belong to. Without them, or with those of another Java, all is done as
always.
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from tests.quick_workers import DRIVER

HOME: Final = Path(sys.prefix) / "spark-home"
CLASSES: Final = Path(sys.prefix) / "spark-classes.jsa"
FILES: Final = Path(sys.prefix) / "spark-files.jar"
WORKERS: Final = Path(sysconfig.get_path("purelib")) / "quick_spark_workers.py"
ASKING: Final = WORKERS.with_suffix(".pth")
"""The line that each Python of the environment runs before all else."""

_COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""With one stage only, a JVM keeps 48 MB of compiled code, and would throw away and compile anew the rest."""
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_FILES: Final = (
    "-Dspark.hadoop.fs.file.impl=millpond.tests.QuickFiles$Local "
    "-Dspark.hadoop.fs.AbstractFileSystem.file.impl=millpond.tests.QuickFiles$Checked"
)
_YOUNG: Final = "-Xmn384m"
"""Most of the memory that a query takes is garbage soon."""
_UNTRACED: Final = (
    "-Dspark.python.sql.dataFrameDebugging.enabled=false "
    "-Dspark.sql.dataFrameQueryContext.enabled=false "
    "-Dspark.ui.showConsoleProgress=false"
)


def environment() -> dict[str, str]:
    """Return the variables that a process needs in its environment, so that each Spark that it starts is sooner ready.

    What the user has set already stays as it is.
    """
    wanted = {"JDK_JAVA_OPTIONS": _COMPILER}
    if (home := _home()) is not None:
        wanted["SPARK_HOME"] = str(home)
    options = [_YOUNG, _UNTRACED]
    if CLASSES.exists():
        options.append(f"-XX:SharedArchiveFile={CLASSES} {_QUIET}")
    if FILES.exists() and "SPARK_DIST_CLASSPATH" not in os.environ:
        options.append(_FILES)
        wanted["SPARK_DIST_CLASSPATH"] = str(FILES)
    wanted["SPARK_SUBMIT_OPTS"] = " ".join(options)
    return {name: value for name, value in wanted.items() if name not in os.environ}


def configuration() -> dict[str, Any]:
    """Return the configuration of a session whose workers run in the virtual environment of this process."""
    return {"spark.python.daemon.module": WORKERS.stem} if WORKERS.exists() else {}


def remember_classes() -> None:
    """Have Python look up each class of a JVM once.

    Py4J asks the JVM again whenever a class is named, and PySpark names some without their packages: then the JVM looks
    through all jars for each package that it may be in.
    """
    from py4j.java_gateway import JavaClass, JVMView

    find = JVMView.__getattr__

    def found(view: JVMView, name: str) -> Any:
        known = find(view, name)
        if isinstance(known, JavaClass):
            view.__dict__[name] = known
        return known

    JVMView.__getattr__ = found


def _home() -> Path | None:
    """Return a directory with all of the installed Spark but its Python; None if there is none or it cannot be made."""
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


def _compile_files() -> None:
    """Write ``FILES``, by the compiler that Spark itself uses, as there may be no ``javac``."""
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(Path(__file__).with_name("QuickFiles.java").read_text())
    compiled = compiler.getBytecodes()
    with ZipFile(FILES, "w") as jar:
        for name in compiled:
            jar.writestr(f"{name.replace('.', '/')}.class", compiled[name])
    _end(gateway)


def _archive_classes() -> None:
    """Write ``CLASSES``: those that a small streaming join, Millpond's as well as Spark's own, has the JVM load."""
    wanted = environment()
    options = f"-XX:ArchiveClassesAtExit={CLASSES} {_QUIET} {wanted.get('SPARK_SUBMIT_OPTS', '')}"
    os.environ.update(wanted | {"SPARK_SUBMIT_OPTS": options})
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
    _end(gateway)


def _end(gateway: Any) -> None:
    """End the JVM and wait until it has."""
    jvm = gateway.proc
    gateway.shutdown()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    for made in (CLASSES, FILES, WORKERS, ASKING):
        made.unlink(missing_ok=True)
    shutil.copyfile(Path(__file__).with_name("quick_workers.py"), WORKERS)
    beside_driver = f"sys.orig_argv[1:3] == ['-m', '{DRIVER}']"
    ASKING.write_text(f"import sys; {beside_driver} and __import__('{WORKERS.stem}').hand_over()\n")
    _compile_files()
    _archive_classes()

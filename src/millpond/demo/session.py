"""A quiet Spark session for one machine, whose messages go to a log file."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MissingPackageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

_SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""The option to do without the JVM's second compiler, which took a quarter of the short demo's processor time."""

_LOGGING = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def start(name: str, directory: Path, partitions: int) -> "SparkSession":
    """Return a session on all cores that retries failed tasks, which a plain ``local[*]`` does not.

    Its log is ``directory/spark.log``, its standard error ``directory/spark.err``.

    Raises:
        ConfigurationError: PySpark or Java is missing or too old.
    """
    check_pyspark()
    check_java()
    from pyspark.sql import SparkSession

    from millpond.adapters.spark import configure
    from millpond.adapters.spark.session.said_aside import stderr_to

    directory.mkdir(parents=True, exist_ok=True)
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING.format(log=(directory / "spark.log").resolve()))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{_SHORT_LIVED} -Dlog4j2.configurationFile={logging.resolve().as_uri()}",
        "spark.sql.shuffle.partitions": str(partitions),
    }
    builder = configure(SparkSession.builder.master("local[*,4]").appName(name))
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with (directory / "spark.err").open("ab") as said, stderr_to(said):
        return builder.getOrCreate()


def check_pyspark() -> None:
    """Raise ``ConfigurationError`` if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise MissingPackageError("this needs Spark: pip install 'millpond[demo]' (or millpond[spark])")


def check_java() -> None:
    """Raise ``ConfigurationError`` if Spark would find no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    cure = "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless. If it is elsewhere, set JAVA_HOME."
    if shutil.which(java) is None:
        raise MissingPackageError(f"Spark needs Java {OLDEST_JAVA} or later, and {java} was not found. {cure}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    release = java_release(said)
    if release < OLDEST_JAVA:
        raise MissingPackageError(f"Spark needs Java {OLDEST_JAVA} or later, and {java} is release {release}. {cure}")


def java_release(said: str) -> int:
    """Return the major release in the output of ``java -version``; 0 if there is none; 1 for Java 8, which says 1.8."""
    _, _, rest = said.partition('version "')
    digits = rest.split(".")[0].split('"')[0].split("-")[0]
    return int(digits) if digits.isdigit() else 0

"""The Java side of these tests, made once into ``build/kafka``: jars that Maven resolves, classes that javac compiles.

What is made is named by a checksum of what it is made from, so a changed ``pom.xml`` or program is made anew.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"
MADE: Final = HERE.parents[1] / "build" / "kafka"
PROGRAMS: Final = sorted((HERE / "java").glob("*.java"))


def broker_jars() -> list[Path]:
    """Kafka itself, and Kafka Streams."""
    return _jars("broker")


def connector_jars() -> list[Path]:
    """What Spark lacks to read and write Kafka."""
    return _jars("connector")


def classpath() -> str:
    """Kafka, Kafka Streams and the programs of these tests."""
    jars = broker_jars()
    content = b"".join(path.read_bytes() for path in [POM, *PROGRAMS])

    def compile_into(directory: Path) -> None:
        separated = os.pathsep.join(map(str, jars))
        _run(_program("javac"), "-nowarn", "-d", str(directory), "-cp", separated, *map(str, PROGRAMS))

    classes = _made("classes", content, compile_into)
    return os.pathsep.join(map(str, [classes, *jars]))


def java() -> str:
    """The program that runs classes."""
    return _program("java")


def _jars(profile: str) -> list[Path]:
    def copy_into(directory: Path) -> None:
        options = ["-B", "-q", "-f", str(POM), "-P", profile, f"-DoutputDirectory={directory}"]
        _run(_program("mvn"), *options, "dependency:copy-dependencies")

    return sorted(_made(profile, POM.read_bytes(), copy_into).glob("*.jar"))


def _made(what: str, content: bytes, make: Callable[[Path], None]) -> Path:
    """A directory that is there once it is whole."""
    directory = MADE / f"{what}-{hashlib.sha256(content).hexdigest()[:12]}"
    if not directory.exists():
        unfinished = directory.with_suffix(f".{os.getpid()}")
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(directory)
    return directory


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    at_home = shutil.which(name, path=str(Path(home, "bin"))) if home else None
    found = at_home or shutil.which(name)
    if found is None:
        raise RuntimeError(
            f"the tests on Kafka need {name}, which was not found; "
            "on Debian or Ubuntu: apt-get install maven openjdk-17-jdk-headless"
        )
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

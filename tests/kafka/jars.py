"""The Java side of these tests, made into ``build/kafka``: jars that Maven resolves, classes that javac compiles."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.maven import jars, made, program, run

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"
PROGRAMS: Final = sorted((HERE / "java").glob("*.java"))
CASES: Final = sorted((HERE / "java" / "cases").glob("*.java"))

RELEASES: Final = ("broker", "newest")
"""The profiles of the ``pom.xml`` that have Kafka Streams, each of another release."""


def broker_jars() -> list[Path]:
    """Return the jars of Kafka itself, and Kafka Streams."""
    return jars("kafka", POM, "broker")


def connector_jars() -> list[Path]:
    """Return the jars that Spark lacks to read and write Kafka."""
    return jars("kafka", POM, "connector")


def classpath() -> str:
    """Return the class path of Kafka, Kafka Streams and the programs that run topologies by name."""
    return _classpath("classes", PROGRAMS, broker_jars())


def cases_classpath(release: str) -> str:
    """Return the class path of a release of Kafka Streams, and the program that runs described topologies."""
    return _classpath(f"cases-{release}", CASES, jars("kafka", POM, release))


def version(release: str) -> str:
    """Return the number of a release, such as ``3.9.2``."""
    name = "kafka-streams-"
    found = [jar.stem.removeprefix(name) for jar in jars("kafka", POM, release) if jar.name.startswith(name)]
    return next(number for number in found if number[0].isdigit())


def _classpath(what: str, programs: Sequence[Path], libraries: list[Path]) -> str:
    content = b"".join(path.read_bytes() for path in [POM, *programs])

    def compile_into(directory: Path) -> None:
        separated = os.pathsep.join(map(str, libraries))
        run(program("javac"), "-nowarn", "-d", str(directory), "-cp", separated, *map(str, programs))

    classes = made("kafka", what, content, compile_into)
    return os.pathsep.join(map(str, [classes, *libraries]))


def java() -> str:
    """Return the program that runs classes."""
    return program("java")

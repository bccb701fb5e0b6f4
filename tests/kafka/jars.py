"""The Java side of these tests, made into ``build/kafka``: jars that Maven resolves, classes that javac compiles."""

import os
from pathlib import Path
from typing import Final

from tests.maven import jars, made, program, run

HERE: Final = Path(__file__).parent
POM: Final = HERE / "pom.xml"
PROGRAMS: Final = sorted((HERE / "java").glob("*.java"))


def broker_jars() -> list[Path]:
    """Kafka itself, and Kafka Streams."""
    return jars("kafka", POM, "broker")


def connector_jars() -> list[Path]:
    """What Spark lacks to read and write Kafka."""
    return jars("kafka", POM, "connector")


def classpath() -> str:
    """Kafka, Kafka Streams and the programs of these tests."""
    libraries = broker_jars()
    content = b"".join(path.read_bytes() for path in [POM, *PROGRAMS])

    def compile_into(directory: Path) -> None:
        separated = os.pathsep.join(map(str, libraries))
        run(program("javac"), "-nowarn", "-d", str(directory), "-cp", separated, *map(str, PROGRAMS))

    classes = made("kafka", "classes", content, compile_into)
    return os.pathsep.join(map(str, [classes, *libraries]))


def java() -> str:
    """The program that runs classes."""
    return program("java")

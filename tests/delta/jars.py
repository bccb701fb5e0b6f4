"""Delta Lake, as Maven resolves it, once, into ``build/delta``."""

from pathlib import Path

from tests.maven import jars


def delta_jars() -> list[Path]:
    """Return the jars that Spark lacks to read and write Delta tables."""
    return jars("delta", Path(__file__).with_name("pom.xml"))

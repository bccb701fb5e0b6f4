"""The requisites of tests beside systems of the JVM: jars that Maven resolves, and the programs of a JDK.

What is made goes into ``build``, once: it is named by a checksum of what it is made from, so a changed ``pom.xml`` or
program is made anew.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

BUILD: Final = Path(__file__).parents[1] / "build"


def jars(system: str, pom: Path, profile: str | None = None) -> list[Path]:
    """Return the jars that a ``pom.xml`` asks for.

    Args:
        system: the directory below ``build``.
        pom: the ``pom.xml``.
        profile: one of its profiles; None if it has none.
    """

    def copy_into(directory: Path) -> None:
        options = ["-B", "-q", "-f", str(pom), f"-DoutputDirectory={directory}"]
        chosen = [] if profile is None else ["-P", profile]
        run(program("mvn"), *options, *chosen, "dependency:copy-dependencies")

    return sorted(made(system, profile or "jars", pom.read_bytes(), copy_into).glob("*.jar"))


def made(system: str, what: str, content: bytes, make: Callable[[Path], None]) -> Path:
    """Return a directory below ``build`` that is there once it is whole."""
    directory = BUILD / system / f"{what}-{hashlib.sha256(content).hexdigest()[:12]}"
    if not directory.exists():
        unfinished = directory.with_suffix(f".{os.getpid()}")
        unfinished.mkdir(parents=True)
        make(unfinished)
        unfinished.rename(directory)
    return directory


def program(name: str) -> str:
    """Return a program, in ``JAVA_HOME`` or on the ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    at_home = shutil.which(name, path=str(Path(home, "bin"))) if home else None
    found = at_home or shutil.which(name)
    if found is None:
        raise RuntimeError(
            f"these tests need {name}, which was not found; "
            "on Debian or Ubuntu: apt-get install maven openjdk-17-jdk-headless"
        )
    return found


def run(*command: str) -> None:
    """Run a command to its end; what it says is in the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

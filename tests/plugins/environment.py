"""Environments in which Millpond and its plugins are what their wheels bring, for ``make test-plugins``.

All other packages are those of the environment that runs this, on the path by a ``.pth`` file, to save the time and
the space of PySpark. A ``.pth`` file adds a folder without following the ``.pth`` files in it, so nothing that is
installed there in editable mode, as Millpond is, gets on the path. As a program, ``python -m tests.plugins.environment
DIRECTORY`` makes the wheels in ``build/plugin-wheels`` and an environment with all of them.
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.packaging.test_packages import clean_copy

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
WHEELS = ROOT / "build" / "plugin-wheels"
NAMES = ("millpond-sqlite", "millpond-redis", "millpond-slatedb", "template")


class Environment:
    """A virtual environment in ``directory``, made anew with ``wheels``."""

    def __init__(self, directory: Path, *wheels: Path) -> None:
        self.bin = directory / "bin"
        self.python = self.bin / "python"
        builder = venv.EnvBuilder(clear=True, symlinks=True, with_pip=True)
        builder.create(directory)
        development = sysconfig.get_path("purelib")
        (own,) = directory.glob("lib/python*/site-packages")
        (own / "development.pth").write_text(f"{development}\n")
        if wheels:
            self.pip("install", "--no-deps", *map(str, wheels))

    def pip(self, *arguments: str) -> None:
        """Call this environment's pip."""
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, *arguments], check=True)


def sources_of(plugin: str, place: Path) -> Path:
    """Return a copy of a plugin's folder without what builds and tests have left in it."""
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", ".*")
    return Path(shutil.copytree(PLUGINS / plugin, place / plugin, ignore=left))


def wheel_of(distribution: str) -> Path:
    """Return the wheel that was made of a distribution."""
    (wheel,) = WHEELS.glob(f"{distribution.replace('-', '_')}-*.whl")
    return wheel


def main(directory: Path) -> None:
    """Make all wheels, and an environment with them."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    sources = WHEELS.with_name("plugin-sources")
    shutil.rmtree(sources, ignore_errors=True)
    copies = [clean_copy(sources / "millpond"), *(sources_of(name, sources) for name in NAMES)]
    environment = Environment(directory)
    environment.pip("install", "setuptools>=77", "wheel")
    environment.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(WHEELS), *map(str, copies))
    environment.pip("install", "--no-deps", *map(str, sorted(WHEELS.glob("*.whl"))))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

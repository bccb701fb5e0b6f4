"""The oldest versions that pyproject.toml admits, as constraints for pip: ``make test-oldest`` installs them.

Run as a program, it prints them. A lower bound is a release that exists, so the pin is the bound itself.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
EXTRAS = ("metrics", "sketches", "spark", "testing")
"""The extras that run in a user's process, rather than on a developer's machine only."""

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<bound>[\d.]+)(?:,<[\d.]+)?")


def pins(pyproject: Path = PYPROJECT) -> Iterator[str]:
    """Yield one pin for each package that Millpond, with these extras, names.

    Raises:
        ValueError: a requirement has no lower bound.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])]:
        found = _REQUIREMENT.fullmatch(requirement)
        if found is None:
            raise ValueError(f"{requirement!r} in {pyproject.name} has no lower bound; write name>=oldest")
        yield f"{found['name']}=={found['bound']}"


if __name__ == "__main__":
    print(*pins(), sep="\n")

"""The source of the golden cases: a directory of JSON files, or the compressed copy beside this file.

Rule of this module: it finds and reads cases, and knows what is expected of them (ideal answers before recorded ones);
it does not run them.
"""

import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    """One golden file."""

    family: str
    name: str
    content: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.family}/{self.name}"

    @property
    def expected_output(self) -> list[dict[str, Any]]:
        """Of a topology case: the records that come out, without the bugs that Kafka has against its own contract."""
        output: list[dict[str, Any]] = self.content.get("output_if_fixed", self.content["output"])
        return output

    @property
    def expected_stores(self) -> dict[str, Any]:
        """Of a topology case: the content of its stores at the end, without those bugs."""
        stores: dict[str, Any] = self.content.get("stores_if_fixed", self.content["stores"])
        return stores

    @property
    def compare(self) -> str:
        """Of a topology case: how its output is compared."""
        how: str = self.content.get("compare", "exact")
        return how


@cache
def cases(directory: Path | None) -> tuple[Case, ...]:
    """Return every case below ``directory``, or of the project's own copy where it is None, sorted."""
    found = _from_archives(DATA) if directory is None else _from_files(directory)
    if not found:
        raise FileNotFoundError(f"no golden file below {directory or DATA}")
    return tuple(sorted(found, key=lambda case: case.id))


@cache
def attachment(directory: Path | None, family: str, name: str) -> bytes:
    """Return the bytes of a file that lies beside those of a family's cases."""
    if directory is not None:
        return next(path for path in directory.rglob(name) if path.parent.name == family).read_bytes()
    with tarfile.open(DATA / f"{family}.tar.xz") as archive:
        content = archive.extractfile(f"{family}/{name}")
        assert content is not None, name
        return content.read()


def _from_files(directory: Path) -> list[Case]:
    return [
        Case(path.parent.name, path.stem, json.loads(path.read_text("utf-8"))) for path in directory.rglob("*.json")
    ]


def _from_archives(directory: Path) -> list[Case]:
    found = []
    for path in directory.glob("*.tar.xz"):
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None and member.name.endswith(".json"):
                    name = Path(member.name)
                    found.append(Case(name.parent.name, name.stem, json.loads(content.read())))
    return found

"""The report of a benchmark beside its figures: the command, the machine, the versions; and how it is saved."""

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from millpond import masking

_PACKAGES = ("millpond", "lmdb", "rocksdict", "sortedcontainers", "pyarrow", "pyspark", "diskcache", "quixstreams")

_LIST_OF_NUMBERS = re.compile(r"\[\n([-+.\deE,\s]+)\]")  # no string has a line's end in it, so it is no text

STANDARD_OUTPUT: Final = Path("-")
"""The file name that stands for the standard output, which then gets the figures and nothing else."""


def machine() -> dict[str, Any]:
    """Return the machine and the versions that figures were measured with."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := installed(name)) is not None},
    }


def document(benchmark: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``results`` with this process's command, the day, the machine and versions beside them, and no secrets."""
    command, today = shlex.join(masked(["millpond", *sys.argv[1:]])), datetime.now(UTC).date().isoformat()
    return {"benchmark": benchmark, "command": command, "date": today, "machine": machine(), **masked(results)}


def as_json(found: Mapping[str, Any]) -> str:
    """Return JSON to read and to compare line by line: a list of numbers, such as a point, takes one line.

    >>> print(as_json({"points": [[1, 2.5], [2, 3.5]]}), end="")
    {
     "points": [
      [1, 2.5],
      [2, 3.5]
     ]
    }
    """
    text = json.dumps(found, indent=1)
    return _LIST_OF_NUMBERS.sub(lambda found: f"[{', '.join(found[1].replace(',', ' ').split())}]", text) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to a file, or to the standard output if the path is ``STANDARD_OUTPUT``."""
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def masked(found: Any) -> Any:
    """Return ``found`` with URLs masked as in messages: figures are for others to read, and a URL may hold a password.

    >>> masked({"backend": "redis://?password=hunter2", "rows": [1]})
    {'backend': 'redis://?password=***', 'rows': [1]}
    """
    if isinstance(found, str):
        return masking.masked(found) if "://" in found else found
    if isinstance(found, Mapping):
        return {name: masked(value) for name, value in found.items()}
    return list(map(masked, found)) if isinstance(found, list | tuple) else found


def resident_bytes() -> int:
    """Return how much of this process's memory is in RAM now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def installed(package: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

"""The command line as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

COMMAND = (sys.executable, "-m", "millpond")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what says how a terminal looks, and with what is given."""
    looks = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM", "LC_ALL", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    return {name: value for name, value in os.environ.items() if name not in looks} | dict(given)


def millpond(*arguments: object, stdout: Any = subprocess.PIPE, **given: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command; ``given`` are variables of its environment."""
    words = [*COMMAND, *map(str, arguments)]
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, env=environment(given), check=False)

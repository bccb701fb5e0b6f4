"""A run in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from millpond.stores.options import without_secrets


def run_in_a_process(worker: str, job: str, result: Path) -> dict[str, Any]:
    """Run a module by this interpreter, with this process's modules, and without those of the working directory.

    Args:
        worker: the module's full name.
        job: what it reads on its standard input.
        result: the file of JSON that it writes.

    Returns:
        What it has written; ``failure`` with the reason if its process ended otherwise.
    """
    path = os.pathsep.join(place for place in sys.path if place)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", worker],
        input=job,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if ended.returncode != 0:
        return {"failure": _death(ended)}
    came: dict[str, Any] = json.loads(result.read_text())
    return came


def _death(ended: "subprocess.CompletedProcess[str]") -> str:
    last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
    how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
    return without_secrets(f"its process ended with {how}: {last}")

"""The tutorial, walked as its reader would: its files are written, its commands run, and they print what it shows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.packaging.code_blocks import Block, blocks

PAGE = "docs/tutorial.md"
_FILE = re.compile(r"# (\w+\.py)\n")
_MOST_SECONDS = 600

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder; a job that was started in it is killed in the end."""
    yield tmp_path
    started = tmp_path / "job.pid"
    if started.exists():
        with suppress(ProcessLookupError):
            os.kill(int(started.read_text()), signal.SIGKILL)


def test_the_tutorial_is_what_happens(folder: Path) -> None:
    steps: list[Block] = sorted([*blocks(PAGE), *blocks(PAGE, "sh")], key=lambda block: block.line)
    known = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    known["PYSPARK_PYTHON"] = sys.executable
    for step in steps:
        if step.language == "python":
            (name,) = _FILE.findall(step.code)
            (folder / name).write_text(step.code)
            assert step.printed is None or _run(f"python {name}", folder, known) == step.printed
        elif not step.code.startswith("pip install"):
            told = _run(step.code, folder, known)
            assert step.printed in (None, told), told


def _run(code: str, folder: Path, known: dict[str, str]) -> str:
    """Return what commands print; a job that they leave behind has the standard output of its own file."""
    out = folder / "out"
    with out.open("w") as stdout:
        done = subprocess.run(["bash", "-ec", code], cwd=folder, env=known, stdout=stdout, stderr=subprocess.PIPE,
                              text=True, timeout=_MOST_SECONDS, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr + (folder / "job.log").read_text()[-3000:]
    return out.read_text()

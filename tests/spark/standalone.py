"""A standalone cluster of one master and one worker on this machine, for tests of ``spark-submit``."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_PATIENCE = 60
"""Seconds for a process to be there."""


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A cluster of two cores that works in a directory; gives the URL of its master."""
    logs = directory / "logs"
    logs.mkdir(parents=True)
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    package = "org.apache.spark.deploy"
    asked = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with _process([f"{package}.master.Master", *asked], logs / "master", local):
        url = _said(logs / "master", _STARTED)
        own = ["--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"), *asked]
        with _process([f"{package}.worker.Worker", *own, url], logs / "worker", local):
            _said(logs / "worker", re.compile(f"({_REGISTERED})"))
            yield url


def submit(directory: Path, url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``spark-submit``, called in a directory with nothing of this environment but Java."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    return subprocess.run(
        [str(HOME / "bin" / "spark-submit"), "--master", url, *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env={**kept, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(HOME), **environment},
        cwd=directory,
        check=False,
    )


@contextmanager
def _process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("w") as output:
        started = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, "SPARK_HOME": str(HOME)},
        )
        try:
            yield
        finally:
            started.terminate()
            started.wait(_PATIENCE)


def _said(log: Path, pattern: re.Pattern[str]) -> str:
    """Wait for a line of a log that matches, and return what it says."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = pattern.search(log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-3000:])

"""A Spark cluster of two hosts on this machine: loopback has as many addresses as one likes."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

HOSTS = ("127.0.0.2", "127.0.0.3")
_SECONDS = 120.0
"""How long the master may take to come up, under load."""


@contextmanager
def two_hosts(directory: Path) -> Iterator[str]:
    """The URL of the cluster's master; what the hosts call local is below ``directory``."""
    with ExitStack() as stack:
        port = _free_port()
        master = f"spark://127.0.0.1:{port}"
        stack.enter_context(_daemon("master.Master", directory / "master", "--host", "127.0.0.1", "--port", str(port)))
        _wait_for(port)
        for host in HOSTS:
            home = directory / host
            place = "--work-dir", str(home), "--host", host
            stack.enter_context(_daemon("worker.Worker", home, *place, "--cores", "2", "--memory", "1g", master))
        yield master


def this_host() -> str:
    """Return the host of a Python worker's executor; ``"localhost"`` if that is none of the two."""
    local = Path(os.environ.get("SPARK_LOCAL_DIRS", "")).parts
    return next((host for host in HOSTS if host in local), "localhost")


@contextmanager
def _daemon(kind: str, home: Path, *arguments: str) -> Iterator[None]:
    home.mkdir(parents=True)
    program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), f"org.apache.spark.deploy.{kind}", *arguments, "--webui-port", "0"],
            env=os.environ | {"SPARK_LOCAL_DIRS": str(home), "SPARK_HOME": pyspark.__path__[0]},
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the master did not come up"
            time.sleep(0.2)

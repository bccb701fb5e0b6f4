"""The process in which Flink runs, in an interpreter of its own.

Rule of this module: a job goes there, an answer comes back, each one JSON object on one line. Nothing of PyFlink is
imported here. One process runs one job after the other, so that all but the first find a warm JVM.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from millpond.bench.runs.processor_time import ProcessorTime, Spent, looked_at
from millpond.errors import ConfigurationError, MillpondError

PACKAGE: Final = "apache-flink==2.3.0"
"""The package that the interpreter must have."""

HEAP: Final = "-Xmx4g"
"""The heap of the JVM; Spark's has as much."""

_RUNNER: Final = Path(__file__).with_name("runner.py")
_SAID: Final = 4_000
"""The number of characters of Flink's output that are shown."""


class FlinkProcess:
    """Runs jobs in Flink.

    Attributes:
        versions: of Flink and Java.
        start_seconds: from the start of the process until it could take a job.
    """

    def __init__(self, process: "subprocess.Popen[str]", interpreter: Path, log: Path) -> None:
        self._process = process
        self._interpreter = interpreter
        self._log = log
        started = time.perf_counter()
        try:
            self.versions = self._answer()
        except MillpondError as error:
            raise ConfigurationError(f"{error}\nIt needs Java and {PACKAGE}: {_how_to_make(interpreter)}") from None
        self.start_seconds = time.perf_counter() - started

    def watched(self, job: Mapping[str, Any]) -> tuple[dict[str, Any], Spent]:
        """Run a job as ``ask`` does; gives the processor time of Flink's processes meanwhile, too."""
        spent = Spent(ProcessorTime.of_family(self._process.pid))
        with looked_at(spent):
            return self.ask(job), spent

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job; ``runner`` says what comes back.

        Raises:
            MillpondError: it failed, or the process is gone.
        """
        assert self._process.stdin is not None
        try:
            print(json.dumps(job), file=self._process.stdin, flush=True)
        except OSError:
            raise self._gone() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MillpondError(f"Flink, run by {self._interpreter}, says: {answer['error'][:_SAID]}")
        return answer

    def _gone(self) -> MillpondError:
        self._process.wait()
        code, said = self._process.returncode, self._log.read_text()[-_SAID:]
        return MillpondError(f"Flink, run by {self._interpreter}, ended with code {code} and said: {said}")


@contextmanager
def flink_process(interpreter: Path, directory: Path) -> Iterator[FlinkProcess]:
    """Start Flink; it ends with the context.

    Args:
        interpreter: a Python that has ``PACKAGE``.
        directory: gets the logs.

    Raises:
        ConfigurationError: there is no such interpreter, or it lacks Flink or Java.
    """
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        raise ConfigurationError(
            f"there is no Python at {interpreter}, where Flink is to run; make one: {_how_to_make(interpreter)}"
        )
    log = directory / "flink.log"
    environment = {**os.environ, "JVM_ARGS": HEAP, "FLINK_LOG_DIR": str(directory), "TZ": "UTC"}
    environment.pop("PYTHONPATH", None)  # Millpond's packages are not those of Flink
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [interpreter, _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            yield FlinkProcess(process, interpreter, log)
        except BaseException:
            process.kill()
            raise
        finally:
            assert process.stdin is not None
            with suppress(OSError):  # it may have died with a job half written
                process.stdin.close()


def _how_to_make(interpreter: Path) -> str:
    place = interpreter.parent.parent
    return f"python3.11 -m venv {place} && {place}/bin/python -m pip install {PACKAGE}"

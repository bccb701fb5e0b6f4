"""Runs jobs of Flink SQL: a program of its own, which an interpreter with PyFlink and without Millpond runs.

It answers each line of its input with a line of output; both are JSON objects. At first it says which versions it has.

- A job has ``settings`` by name; ``tables``, each made by a ``definition`` in SQL from a table ``source`` of the Arrow
  batches in ``file``, which has ``columns``; a ``query``; and perhaps a directory that gets all ``changes`` of the
  answer as Debezium's JSON. If there is none, they are thrown away.
- The answer is the ``columns`` with their types, the ``seconds`` of the job, from when to when it took its rows
  (``running``, in seconds since 1970; null if that was too short to be seen), and how many ``checkpoints`` it made.
- If anything fails, the answer is an ``error``.
"""

import json
import os
import socket
import sys
import time
from http.client import HTTPException
from threading import Event, Thread
from typing import Any, Final
from urllib.request import urlopen

LOOK_SECONDS: Final = 0.1
"""The seconds from a look at a job to the next."""

_FRESH: Final = ("web.refresh-interval", "metrics.fetcher.update-interval")
"""The settings for the age that Flink's news of a job may have."""


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed, by Java too, is no answer

    def answer(given: dict[str, Any]) -> None:
        print(json.dumps(given), file=answers, flush=True)

    try:
        answer(_versions())
    except Exception as error:  # PyFlink, what it needs, or Java is missing
        answer({"error": said_by(error)})
        return
    for line in sys.stdin:
        try:
            answer(_run(json.loads(line)))
        except Exception as error:  # of Flink, with all that it says of its causes
            answer({"error": said_by(error)})


def _versions() -> dict[str, Any]:
    """Return the versions of Flink and Java; starts the latter."""
    from pyflink.java_gateway import get_gateway
    from pyflink.version import __version__

    return {"flink": __version__, "java": get_gateway().jvm.System.getProperty("java.version")}


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job, and keep its changes or throw them away."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    port = _free_port()
    settings = Configuration()
    fresh = dict.fromkeys(_FRESH, f"{LOOK_SECONDS / 2 * 1000:.0f} ms")
    for name, value in {**job["settings"], **fresh, "rest.bind-port": str(port)}.items():
        settings.set_string(name, value)
    environment = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    for table in job["tables"]:
        _create_table(environment, table)
    query = environment.sql_query(job["query"])
    columns = query._j_table.getResolvedSchema().getColumns()
    with Watch(port) as watch:
        started = time.time()
        query.execute_insert(_sink(job.get("changes"))).wait()
        seconds = time.time() - started
    return {
        "columns": [
            [column.getName(), column.getDataType().getLogicalType().getTypeRoot().name()] for column in columns
        ],
        "seconds": seconds,
        "running": watch.running,
        "checkpoints": watch.checkpoints,
    }


def _sink(changes: str | None) -> Any:
    """Return the sink that writes changes into a directory, or throws them away."""
    from pyflink.table import TableDescriptor

    if changes is None:
        return TableDescriptor.for_connector("blackhole").build()
    files = TableDescriptor.for_connector("filesystem").option("path", changes).format("debezium-json")
    return files.option("debezium-json.timestamp-format.standard", "ISO-8601").build()


def _create_table(environment: Any, table: dict[str, Any]) -> None:
    """Make the table of a file of Arrow batches, and what is defined from it.

    The rows go along with the job, so that Flink decodes no file and waits for no disk. Of PyFlink, only
    ``from_pandas`` does that by itself, and its tables have no event time.
    """
    from pyflink.java_gateway import get_gateway
    from pyflink.table import DataTypes
    from pyflink.table.types import _to_java_data_type
    from pyflink.util.java_utils import load_java_class

    java: Any = get_gateway().jvm
    types: dict[str, Any] = {
        "STRING": DataTypes.STRING(),
        "BIGINT": DataTypes.BIGINT(),
        "DOUBLE": DataTypes.DOUBLE(),
        "TIMESTAMP(3)": DataTypes.TIMESTAMP(3),
    }
    columns = [DataTypes.FIELD(name, types[kind].not_null()) for name, kind in table["columns"]]
    rows = _to_java_data_type(DataTypes.ROW(columns)).notNull()
    rows = rows.bridgedTo(load_java_class("org.apache.flink.table.data.RowData"))
    descriptor = java.org.apache.flink.table.runtime.arrow.ArrowUtils.createArrowTableSourceDesc(rows, table["file"])
    environment._j_tenv.createTemporaryTable(table["source"], descriptor)
    environment.execute_sql(table["definition"])


class Watch:
    """Asks the job behind a port of Flink's for its state, every ``LOOK_SECONDS``.

    A job whose rows are through still waits for its next checkpoint. So the time of its rows ends with the last of them
    that a task has taken.

    Attributes:
        checkpoints: how often state was saved, as of the last look.
    """

    def __init__(self, port: int) -> None:
        self._jobs = f"http://localhost:{port}/jobs"
        self._done = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._began: float | None = None
        self._taken: tuple[float, int] | None = None
        self.checkpoints = 0

    @property
    def running(self) -> tuple[float, float] | None:
        """From when all tasks ran until they had taken all rows; None if it was over before that was seen."""
        if self._began is None or self._taken is None or self._taken[0] == self._began:
            return None
        return self._began, self._taken[0]

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            try:
                for job in self._asked("")["jobs"]:
                    self._look_at(job["id"])
            except (OSError, HTTPException):
                continue  # it is not up yet, or gone

    def _look_at(self, job: str) -> None:
        tasks = self._asked(f"/{job}")["vertices"]
        if self._began is None and tasks and all(task["status"] in ("RUNNING", "FINISHED") for task in tasks):
            self._began = time.time()
        taken = sum(task["metrics"]["read-records"] for task in tasks)
        if self._began is not None and (self._taken is None or taken > self._taken[1]):
            self._taken = (time.time() if self._taken else self._began, taken)
        self.checkpoints = self._asked(f"/{job}/checkpoints")["counts"]["completed"]

    def _asked(self, what: str) -> Any:
        with urlopen(self._jobs + what, timeout=5) as answer:
            return json.load(answer)


def said_by(error: Exception) -> str:
    """Return an error and its causes, without the places in Java's code."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return "\n".join(line for line in lines if not line.startswith(("\tat ", "\t... ")))


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("localhost", 0))
        port: int = made.getsockname()[1]
        return port


if __name__ == "__main__":
    main()

"""Drivers of the mortal jobs, which die at a step of their own or of one of their workers.

Steps are whatever can leave something behind: writes of durable files and local copies, and of the files of a
checkpoint. A step's label says who does it, in the driver or a Spark task, what, and how often it was done there
before. No process dies twice with the same label, so a driver that is started until it survives has died at each.

To start a JVM takes far longer than all that is to be seen. So drivers are forked from a nursery, a process that has
imported everything and used nothing, and attach to the JVM of the test; what a dead driver leaves running there ends
itself at its next step, and leaves nothing more behind. Run as a program, a driver starts a JVM of its own, and the
death is that of its whole process group.
"""

import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import SparkContext, cloudpickle
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

from millpond.adapters.spark.continuation.continuing import EmptyRun
from millpond.adapters.spark.continuation.files import HadoopFiles
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.stores.testing import Child, Fault, FaultPlan, Step
from millpond.stores.testing.child import report, wait_for_parent
from tests.crash.durable_task import WRITING
from tests.spark.mortal_jobs import JOBS, Place
from tests.spark.own_session import own_session

SECONDS: Final = 600
"""For one start; a driver that takes longer hangs."""

_FIRST: Final = (", 1", ", 2")
"""In a Spark task, deaths at the first steps of a kind stand for all of them."""


class Victim(StrEnum):
    """The process that dies."""

    NOBODY = "nobody"
    WORKER = "the worker whose step it is"
    DRIVER = "the driver, and the worker whose step it is"
    GROUP = "the driver, its JVM and all workers"


class Order(NamedTuple):
    """The work that a driver is to do.

    Attributes:
        job: the name of the job.
        phase: which of its phases.
        directory: of the job.
        backend: that of its local copies.
        victim: who dies.
        among: the labels of the steps at which somebody may die, as a pattern of file names.
    """

    job: str
    phase: int
    directory: str
    backend: str
    victim: Victim
    among: str = "*"

    def run(self, spark: SparkSession, number: int) -> None:
        """Run the driver, on a session."""
        place = Path(self.directory)
        deaths = Deaths(place, Victim(self.victim), self.phase, number, os.getpid(), self.among)
        for module in (__name__, "tests.crash.durable_task", "tests.spark.mortal_jobs"):
            cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]
        _mark_files_of_checkpoints(deaths)
        JOBS[self.job].phases[self.phase](Place(spark, place, self.backend, FaultPlan(deaths)))


@dataclass
class Deaths:
    """The deaths of a job by their steps. It travels to the workers, where steps are counted anew for each Spark task.

    Attributes:
        directory: of the job. In ``deaths`` it has an empty file for each label at which somebody has died, and for
            each driver that has.
        victim: who dies.
        phase: of the job.
        number: of the driver's start.
        driver: its process.
        among: as an order has it.
    """

    directory: Path
    victim: Victim
    phase: int
    number: int
    driver: int
    among: str
    _counted: Counter[str] = field(default_factory=Counter)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_counted": Counter()}

    def __call__(self, step: Step) -> Fault | None:
        if step in WRITING:
            self.at(step.value)
        return None

    def at(self, what: str) -> None:
        """Come to a step."""
        if self._dead.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        self._let_arrive()
        here = os.getpid() == self.driver
        if self.victim is Victim.NOBODY or (here and self.victim is Victim.WORKER):
            return
        label = self._label(what, here)
        if not fnmatchcase(label, self.among) or not (here or label.endswith(_FIRST)):
            return
        try:
            (self.directory / "deaths" / label).touch(exist_ok=False)
        except FileExistsError:
            return
        self._die()

    def _label(self, what: str, here: bool) -> str:
        context = TaskContext.get()
        unit = "batch" if context is None or Attempt.here().batch is not None else f"unit {context.partitionId()}"
        self._counted[what] += 1
        return f"{'driver' if here else unit} in phase {self.phase}: {what}, {self._counted[what]}"

    def _die(self) -> None:
        if self.victim is not Victim.WORKER:
            self._dead.touch()
        if self.victim is Victim.GROUP:
            os.killpg(self.driver, signal.SIGKILL)
        if self.victim is Victim.DRIVER:
            os.kill(self.driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    @property
    def _dead(self) -> Path:
        return self.directory / "deaths" / f"driver {self.number}"

    def _let_arrive(self) -> None:
        """Let what waits arrive while the driver is at work."""
        for path in (self.directory / "waiting").iterdir():
            with suppress(FileNotFoundError):
                os.replace(path, self.directory / "in" / path.name)


def _mark_files_of_checkpoints(deaths: Deaths) -> None:
    """Make each change of the files of a checkpoint a step."""

    def marked(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*arguments: Any) -> Any:
            deaths.at(what)
            return function(*arguments)

        return mortal

    for name in ("write", "copy", "rename", "delete"):
        setattr(HadoopFiles, name, marked(f"{name} in the checkpoint", getattr(HadoopFiles, name)))
    setattr(EmptyRun, "__call__", marked("run the empty micro-batch", EmptyRun.__call__))  # noqa: B010 (not for mypy)


class Nursery:
    """Forks drivers that attach to the JVM of a session."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._orders = directory / "order"
        gateway: Any = spark.sparkContext._gateway
        parameters = gateway.gateway_parameters
        self._child = Child(serve, str(directory), parameters.port, parameters.auth_token)
        self._numbers: Iterator[int] = count(1)

    def start(self, order: Order) -> int:
        """Fork a driver, and wait for its end and that of all it has left; how it ended."""
        self._orders.write_text(json.dumps([next(self._numbers), *order]))
        self._child.let_go_on()
        code = int(self._child.read())
        for query in self._spark.streams.active:
            query.stop()
        self._spark.sparkContext.cancelAllJobs()
        return code

    def close(self) -> None:
        self._child.__exit__(None, None, None)


def serve(directory: str, port: int, token: str) -> None:
    """Fork a driver for each order, in the nursery, and tell how it ended."""
    while True:
        wait_for_parent()
        number, *order = json.loads(Path(directory, "order").read_text())
        driver = os.fork()
        if driver == 0:
            _be_driver(Order(*order), number, port, token)
        _, status = os.waitpid(driver, 0)
        report(os.waitstatus_to_exitcode(status))


def _be_driver(order: Order, number: int, port: int, token: str) -> None:
    signal.alarm(SECONDS)
    log = os.open(Path(order.directory) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        order.run(attached(port, token), number)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def attached(port: int, token: str) -> SparkSession:
    """Return the session of another process's JVM."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), token
    os.environ["PYSPARK_PYTHON"] = sys.executable
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(running)
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=running.conf())))


def main(number: str, *order: str) -> None:
    """Run a driver with a JVM of its own."""
    spark = own_session()
    job, phase, directory, backend, victim, among = order
    Order(job, int(phase), directory, backend, Victim(victim), among).run(spark, int(number))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a benchmark on Spark is asked to measure, and the session and the files in which its contenders run.

Every contender on Spark reads the same files, some of each topic per micro-batch, in a query of its own, and writes to
Spark's ``noop`` sink; those in Flink read the same rows. Which of them runs when, and what its times say, is the
business of ``measure`` and ``growth``.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from millpond.bench.spark.flink.jobs import FlinkJobs
from millpond.bench.spark.flink.process import flink_process
from millpond.bench.spark.flink.queries import FlinkContender
from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.queries import Ran, measure, session
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import Contender, Workload, chosen_contenders, workload_named

_SAID: Final = 2_000
"""Characters of an error that are kept."""

WARM_UP: Final = 2
"""Micro-batches at the start of a query, in which processes start: they do not count."""

RunFirst = Callable[[str, int, int], Ran]
"""Runs a contender, given its name, how many micro-batches at the start do not count, and how many others do."""


class Runs:
    """Runs contenders; one that fails is out, and the others go on.

    Args:
        run_first: runs one.

    Attributes:
        failed: why, for each contender that has failed.
    """

    def __init__(self, run_first: RunFirst) -> None:
        self.failed: dict[str, str] = {}
        self._run_first = run_first

    def run(self, name: str, skipped: int, counted: int) -> Ran | None:
        """Run a contender as ``RunFirst`` does; None if it fails, or has failed before."""
        if name in self.failed:
            return None
        try:
            return self._run_first(name, skipped, counted)
        except Exception as error:  # whatever a contender is made of may fail in a way of its own
            said, _, _ = f"{type(error).__name__}: {error}".partition("\n=== ")  # Spark's plan comes behind it
            self.failed[name] = said.strip()[:_SAID]
            return None


@dataclass(frozen=True)
class Contest:
    """What is measured.

    Attributes:
        workload: one of ``WORKLOADS``.
        keys: distinct keys, int.
        batches: how many micro-batches count.
        rows: rows per micro-batch, int.
        backend: the one that is held against the peers.
        cores: Spark cores.
        files: of each topic in a micro-batch; None for as many as cores, so that all of them read.
        contenders: only these of the workload's contenders; None for those that are measured by default.
        directory: where input and state go, on the file system to measure.
        console: where to report what is being measured.
        flink: a Python that has PyFlink; None leaves out the contenders in Flink.

    Raises:
        ConfigurationError: by the properties and ``hold``: the workload or a contender is unknown, or micro-batches
            have too few rows for keys that grow.
    """

    workload: str
    keys: int
    batches: int
    rows: int = 1_000_000
    backend: str = "lmdb"
    cores: int = 2
    files: int | None = None
    contenders: Collection[str] | None = None
    directory: Path | None = None
    console: Console | None = None
    flink: Path | None = None

    @property
    def work(self) -> Workload:
        """The workload."""
        return workload_named(self.workload)

    @property
    def chosen(self) -> dict[str, Contender | FlinkContender]:
        """The contenders by name, the backend first."""
        return chosen_contenders(self.work, self.backend, self.contenders, with_flink=self.flink is not None)

    @contextmanager
    def hold(self, batches: int, *, growing: bool = False) -> Iterator[Runs]:
        """Write ``batches`` micro-batches, of keys that grow or not, and start Spark; gives what runs contenders.

        Flink starts, too, if one of the contenders needs it.
        """
        work, chosen = self.work, self.chosen
        scale = Scale(self.rows, self.keys, self.files or self.cores)
        with ExitStack() as held:
            place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=self.directory)))
            flink: FlinkJobs | None = None
            if self.flink is not None and not work.in_flink.keys().isdisjoint(chosen):
                process = held.enter_context(flink_process(self.flink, place))
                flink = FlinkJobs(process, place, work.topics, scale, self.cores)
            spark = held.enter_context(session(self.cores))
            write_inputs(place, work.topics, scale, batches, growing=growing)

            def run_first(name: str, skipped: int, counted: int) -> Ran:
                contender = chosen[name]
                if isinstance(contender, FlinkContender):
                    assert flink is not None, "chosen_contenders leaves them out without Flink"
                    return flink.measure(contender, skipped, counted)
                ran = measure(spark, place, work, contender, scale, skipped + counted)
                return replace(ran, seconds=ran.seconds[skipped:])

            yield Runs(run_first)

    def say(self, doing: str, name: str) -> None:
        """Report what is done with a contender."""
        if self.console is not None:
            self.console.print(f"{doing} {name} ...")

    def figures(
        self, seconds: Mapping[str, list[float]], memory: Mapping[str, WorkerMemory], failed: Mapping[str, str]
    ) -> dict[str, Any]:
        """What was measured and how, for the report.

        Args:
            seconds: of the micro-batches that count, by contender.
            memory: the most bytes that one of its Python workers had; left out where it has none.
            failed: why contenders have failed.
        """
        return {
            "workload": self.workload,
            "rows": self.rows,
            "keys": self.keys,
            "cores": self.cores,
            "files": self.files or self.cores,
            "backend": self.backend,
            "batch_seconds": seconds,
            "worker_bytes": {name: asdict(memory[name]) for name in seconds if memory[name].resident},
            **({"failed": dict(failed)} if failed else {}),
        }

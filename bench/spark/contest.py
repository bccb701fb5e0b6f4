"""What a benchmark on Spark is asked to measure, and the session and the files in which its contenders run.

Every contender reads the same files, some of each topic per micro-batch, in a query of its own, and writes to Spark's
``noop`` sink. Which of them runs when, and what its times say, is the business of ``measure`` and ``growth``.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from millpond.bench.spark.inputs import write_inputs
from millpond.bench.spark.queries import Ran, measure, session
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import Contender, Workload, chosen_contenders, workload_named

WARM_UP: Final = 2
"""Micro-batches at the start of a query, in which processes start: they do not count."""

RunFirst = Callable[[str, int], Ran]
"""Runs the first so many micro-batches of a contender, given its name."""


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

    @property
    def work(self) -> Workload:
        """The workload."""
        return workload_named(self.workload)

    @property
    def chosen(self) -> dict[str, Contender]:
        """The contenders by name, the backend first."""
        return chosen_contenders(self.work, self.backend, self.contenders)

    @contextmanager
    def hold(self, batches: int, *, growing: bool = False) -> Iterator[RunFirst]:
        """Write ``batches`` micro-batches, of keys that grow or not, and start Spark; gives what runs a contender."""
        work, chosen = self.work, self.chosen
        scale = Scale(self.rows, self.keys, self.files or self.cores)
        with (
            tempfile.TemporaryDirectory(prefix="millpond-bench-", dir=self.directory) as place,
            session(self.cores) as spark,
        ):
            write_inputs(Path(place), work.topics, scale, batches, growing=growing)
            yield lambda name, first: measure(spark, Path(place), work, chosen[name], scale, first)

    def say(self, doing: str, name: str) -> None:
        """Report what is done with a contender."""
        if self.console is not None:
            self.console.print(f"{doing} {name} ...")

    def figures(self, seconds: Mapping[str, list[float]], memory: Mapping[str, WorkerMemory]) -> dict[str, Any]:
        """What was measured and how, for the report.

        Args:
            seconds: of the micro-batches that count, by contender.
            memory: the most bytes that one of its Python workers had; left out where it has none.
        """
        return {
            "workload": self.workload,
            "rows": self.rows,
            "keys": self.keys,
            "cores": self.cores,
            "files": self.files or self.cores,
            "backend": self.backend,
            "batch_seconds": seconds,
            "worker_bytes": {name: asdict(most) for name, most in memory.items() if most.resident},
        }

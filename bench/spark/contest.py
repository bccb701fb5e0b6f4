"""The contest of a benchmark on Spark, and the session and the files in which its contenders run.

Every contender on Spark reads the same files, some of each topic per micro-batch, in a query of its own, and writes to
Spark's ``noop`` sink; those in Flink read the same rows. Which of them runs when, and what its times say, is the
business of ``measure`` and ``growth``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.bench.flink.jobs import FlinkJobs
from millpond.bench.flink.process import flink_process
from millpond.bench.spark.inputs import Source
from millpond.bench.spark.queries import Ran, answer_of, measure, scratch, session_name
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workers import WorkerMemory
from millpond.bench.spark.workloads import (
    BACKENDS,
    Contender,
    FlinkContender,
    Workload,
    chosen_contenders,
    named,
    workload_named,
)
from millpond.errors import ConfigurationError

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
            self.failed[name] = why(error)
            return None


def why(error: Exception) -> str:
    """Return why a contender has failed, for its reader."""
    said, _, _ = f"{type(error).__name__}: {error}".partition("\n=== ")  # Spark's plan comes behind it
    return said.strip()[:_SAID]


@dataclass(frozen=True)
class Contest:
    """The contest to be measured.

    Attributes:
        workload: one of ``WORKLOADS``.
        keys: distinct keys, int.
        batches: how many micro-batches count.
        rows: rows per micro-batch, int.
        backends: names or URLs; verbs are on the first one.
        cores: Spark cores.
        files: of each topic in a micro-batch; None for as many as cores, so that all of them read.
        contenders: only these of the workload's contenders; None for those that are measured by default.
        directory: where input and state go, on the file system to measure.
        seed: of all chance in the inputs.
        repeat: how often the query of each contender runs after the warm-up, in alternating order.
        flink: a Python that has PyFlink; None leaves out the contenders in Flink.
        tuned: whether the session is one in which Spark is at its best, instead of a user's.

    Raises:
        ConfigurationError: by the properties and ``hold``: the workload or a contender is unknown, or micro-batches
            have too few rows for keys that grow.
    """

    more: ClassVar[str] = "--rows"
    """The option by which a micro-batch gets more rows."""

    workload: str
    keys: int
    batches: int
    rows: int = 1_000_000
    backends: Sequence[str] = BACKENDS
    cores: int = 2
    files: int | None = None
    contenders: Collection[str] | None = None
    directory: Path | None = None
    seed: int = 1
    repeat: int = 2
    flink: Path | None = None
    tuned: bool = False

    @property
    def work(self) -> Workload[Source]:
        """The workload."""
        return workload_named(self.workload)

    @property
    def backend(self) -> str:
        """The name in reports of the backend that verbs are on."""
        return next(iter(named(self.backends)))

    @property
    def known(self) -> set[str]:
        """The names of all contenders that the workload has."""
        return {*self.work.contenders(self.backends), *self.work.in_flink}

    @property
    def chosen(self) -> dict[str, Contender | FlinkContender]:
        """The contenders by name, verbs first."""
        return chosen_contenders(self.work, self.backends, self.contenders, with_flink=self.flink is not None)

    @property
    def foremost(self) -> str | None:
        """The first of Millpond's contenders, which is held against the peers; None if no such one is measured."""
        return next((name for name in self.chosen if name in {*self.work.verbs, *named(self.backends)}), None)

    @contextmanager
    def hold(self, spark: Callable[[], SparkSession], batches: int, *, growing: bool = False) -> Iterator[Runs]:
        """Write ``batches`` micro-batches, of keys that grow or not; gives what runs contenders in Spark's session.

        Flink starts, too, if one of the contenders needs it.
        """
        work, chosen = self.work, self.chosen
        scale = Scale(self.rows, self.keys, self.files or self.cores)
        with ExitStack() as held:
            place = Path(held.enter_context(scratch(self.directory)))
            flink: FlinkJobs | None = None
            if self.flink is not None and not work.in_flink.keys().isdisjoint(chosen):
                process = held.enter_context(flink_process(self.flink, place))
                rows_of = partial(work.rows_of, place, scale)
                flink = FlinkJobs(process, place, rows_of, rows=self.rows, cores=self.cores, more=self.more)
            work.write(place, work.topics, scale, batches, growing=growing, seed=self.seed)
            running = spark()
            work = held.enter_context(self.on_spark(running))

            def run_first(name: str, skipped: int, counted: int) -> Ran:
                contender, batches = chosen[name], skipped + counted
                if isinstance(contender, FlinkContender):
                    assert flink is not None, "chosen_contenders leaves them out without Flink"
                    query, kind = contender.query(scale), contender.state_backend
                    if counted:
                        self.check(place, name, batches, lambda: [flink.answer(query, kind, batches)])
                    streamed = flink.measure(query, kind, skipped, counted)
                    seconds, processor = ([streamed.seconds], streamed.processor) if streamed else ([], 0.0)
                    return Ran(seconds, WorkerMemory(), processor, stream=streamed)
                if counted:
                    answer = partial(answer_of, running, place, work, contender, scale, batches)
                    self.check(place, name, batches, answer)
                return measure(running, place, work, contender, scale, skipped=skipped, counted=counted)

            yield Runs(run_first)

    @contextmanager
    def on_spark(self, spark: SparkSession) -> Iterator[Workload[Source]]:
        """The workload with what reads its inputs in a session, which may need that while contenders run."""
        yield self.work

    def check(self, place: Path, name: str, batches: int, answer: Callable[[], Sequence[pa.Table]]) -> None:
        """Refuse a contender that answers wrongly, if answers are checked where it is measured; here tests do.

        Args:
            place: where the inputs are.
            name: the name of the contender.
            batches: how many micro-batches there are of them.
            answer: lets the contender answer, in a run that does not count, and returns what came out with each
                micro-batch. Of Flink that is one table, with what is left in the end.

        Raises:
            MillpondError: the answer is wrong.
        """

    def figures(self, seconds: Mapping[str, list[float]], memory: Mapping[str, WorkerMemory]) -> dict[str, Any]:
        """Return the measurements of micro-batches for the report.

        Args:
            seconds: of the micro-batches that count, by contender.
            memory: the most bytes that one of its Python workers had; left out where it has none.
        """
        return {
            "batch_seconds": seconds,
            "worker_bytes": {name: asdict(memory[name]) for name in seconds if memory[name].resident},
        }

    def settings(self) -> dict[str, Any]:
        """Return how much there is, for the report."""
        return {"rows": self.rows, "keys": self.keys, **self.of_spark()}

    def of_spark(self) -> dict[str, Any]:
        """Return how Spark runs, for the report."""
        return {"cores": self.cores, "files": self.files or self.cores, "session": session_name(self.tuned)}


def contests(workloads: Sequence[str], *, contenders: Sequence[str] | None, **how: Any) -> list[Contest]:
    """Return a contest for each workload, and no workload twice.

    Args:
        workloads: their names.
        contenders: only these, where a workload has them; None for those that are measured by default.
        how: the other attributes of each.

    Raises:
        ConfigurationError: a workload is unknown, has none of the contenders, or one of these belongs to no workload.
    """
    shares = shared_out(workloads, contenders, lambda name: Contest(name, **how).known)
    found = [Contest(name, contenders=own, **how) for name, own in shares.items()]
    return [contest for contest in found if contest.chosen]  # which refuses what it does not know, before anything runs


def shared_out(
    workloads: Sequence[str], contenders: Sequence[str] | None, known: Callable[[str], Collection[str]]
) -> dict[str, Sequence[str] | None]:
    """Return for each workload, once, those of the contenders that it has; None if there is no choice.

    A contender that no workload has is left to each, which refuses it.

    Args:
        workloads: their names.
        contenders: the chosen ones.
        known: returns all that a workload has.

    Raises:
        ConfigurationError: a workload has none of the contenders.
    """
    names = list(dict.fromkeys(workloads))
    if contenders is None or len(names) == 1:
        return dict.fromkeys(names, contenders)
    whole = {name: known(name) for name in names}
    nobody = set(contenders).difference(*whole.values())
    shares = {name: [one for one in contenders if one in own or one in nobody] for name, own in whole.items()}
    for name, own in shares.items():
        if not own:
            raise ConfigurationError(f"the workload {name} has none of the contenders; leave it out")
    return dict(shares)

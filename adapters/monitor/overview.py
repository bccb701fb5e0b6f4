"""``Overview``: all facts on a query at one moment.

Rule of this module: it is plain data, the same for the table, the page and JSON. Times are milliseconds since 1970,
durations milliseconds, sizes bytes; None is what nobody has told.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from millpond.adapters.monitor.diagnosis.finding import Finding
from millpond.adapters.monitor.kept.history import Point
from millpond.adapters.monitor.kept.micro_batch import Limit
from millpond.adapters.monitor.kept.runs import Run

Role: TypeAlias = Literal["topic", "repartition", "processor", "store"]
"""The role of a box of a drawing."""


@dataclass(frozen=True)
class BatchSeen:
    """One micro-batch.

    Attributes:
        number: its number.
        begun: when it was begun.
        committed: when it was committed.
        took: how long it took; without progress, from its first to its last file in the checkpoint.
        rows: the rows that were read.
        per_second: how many rows there were a second since the micro-batch before was begun.
        processed_per_second: how many rows it processed a second.
        steps: Spark's steps.
        work: what tasks did, summed over them: ``open``, ``process``, ``flush``, ``commit`` and ``other``.
    """

    number: int
    begun: int | None
    committed: int | None
    took: int | None
    rows: int | None
    per_second: float | None
    processed_per_second: float | None
    steps: dict[str, int]
    work: dict[str, float]


@dataclass(frozen=True)
class SourceSeen:
    """One source in the last micro-batch: rows read, a second too, and the records that it is behind."""

    name: str
    rows: int
    per_second: float | None
    behind: int | None


@dataclass(frozen=True)
class OperatorSeen:
    """An input or an operator in the last micro-batch in which it had records.

    Attributes:
        application: the job's name.
        operator: its name.
        batch: the number of that micro-batch.
        tasks: how many tasks were run.
        records_in: what came in.
        records_out: what went out.
        lag: by how much the task that is furthest behind is behind the wall clock; of inputs nothing is known.
        stream_time: the earliest stream time of a task.
        dropped: records that were dropped.
        late: records that were late.
        waiting: records that wait.
        work: what tasks did, as in ``BatchSeen``.
        files: the most durable files that a task of it had after its last snapshot; None if unknown.
    """

    application: str
    operator: str
    batch: int
    tasks: int
    records_in: int
    records_out: int
    lag: int | None
    stream_time: int | None
    dropped: int
    late: int
    waiting: int
    work: dict[str, float]
    files: int | None = None


@dataclass(frozen=True)
class Reason:
    """The records that were dropped, were late or wait at a node for one reason; usual waiting is left out."""

    operator: str
    node: str
    reason: str
    records: int


@dataclass(frozen=True)
class StoreSeen:
    """One store: its kind, the number of tasks with rows of it, and the bytes of these in durable files."""

    application: str
    sink: str
    store: str
    kind: str
    subtopology: int
    tasks: int
    size: int


@dataclass(frozen=True)
class TaskSeen:
    """The state of a task: commits, durable files, rows (changed ones again in each delta), bytes, bytes by store."""

    application: str
    task: str
    commit: int
    files: int
    deltas: int
    rows: int
    size: int
    stores: dict[str, int]


@dataclass(frozen=True)
class TaskWork:
    """The work of one task of an operator in the last micro-batch in which it ran.

    Attributes:
        application: the job's name.
        operator: the operator's.
        task: ``<sub-topology>_<partition>``.
        batch: the number of that micro-batch.
        records_in: what came in.
        records_out: what went out.
        late: records that were late.
        dropped: records that were dropped.
        rows: the rows that it has changed.
        size: the bytes of its durable file.
        state: the bytes of its local copies; None if unknown.
        open, process, commit, took: how long these steps, and all of them, took.
    """

    application: str
    operator: str
    task: str
    batch: int
    records_in: int
    records_out: int
    late: int
    dropped: int
    rows: int
    size: int
    state: int | None
    open: float
    process: float
    commit: float
    took: float


@dataclass(frozen=True)
class HotKey:
    """A key that many records of an operator have in its last micro-batch: their approximate number, and share."""

    application: str
    operator: str
    task: str
    key: str
    records: int
    share: float


@dataclass(frozen=True)
class Series:
    """The work of a query over time, a point each minute, hour and day in which it ran: three hours, a week, a year."""

    minutes: tuple[Point, ...]
    hours: tuple[Point, ...]
    days: tuple[Point, ...]


@dataclass(frozen=True)
class Box:
    """A box.

    Attributes:
        id: tells it from the others.
        role: what it is.
        lines: its text; longer lines are cut.
        title: all of it.
        x, y: its upper left corner.
        width, height: its size.
    """

    id: str
    role: Role
    lines: tuple[str, ...]
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Arrow:
    """An arrow: the boxes, and the points that it passes; a store's has no head."""

    start: str
    stop: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Drawing:
    """All boxes and arrows.

    Attributes:
        complete: whether it is that of a topology; else only what is recorded is drawn.
        width, height: the size of all.
        boxes: the boxes.
        arrows: the arrows.
    """

    complete: bool
    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True)
class Overview:
    """A query at one moment.

    Attributes:
        checkpoint: where its checkpoint is.
        query: its id.
        name: its name.
        at: the moment.
        batch: the last micro-batch that was committed; None before the first one.
        committed: when that was.
        open_batch: the micro-batch that was begun after it: it is running, or the query has ended in it.
        open_since: when that was begun.
        commit_age: how long ago the last one was committed.
        run: the last run, with its start, its last sign of life, its end and its error, if any; None if unknown.
        restarts: how often the query was started again; likewise.
        findings: what is wrong with it, as far as that is known, the worst first.
        batches: the last micro-batches, the first one first.
        sources: the sources.
        operators: inputs and operators.
        reasons: dropped, late and waiting records.
        stores: the stores.
        tasks: the tasks.
        work: what each task of an operator did.
        hot_keys: the keys that most records have.
        limits: what may come to its end, where it is nearest to that.
        series: what the query did over time.
        drawing: the topology.
        notes: what cannot be shown, and why.
    """

    checkpoint: str
    query: str
    name: str | None
    at: int
    batch: int | None
    committed: int | None
    open_batch: int | None
    open_since: int | None
    commit_age: int | None
    run: Run | None
    restarts: int | None
    findings: tuple[Finding, ...]
    batches: tuple[BatchSeen, ...]
    sources: tuple[SourceSeen, ...]
    operators: tuple[OperatorSeen, ...]
    reasons: tuple[Reason, ...]
    stores: tuple[StoreSeen, ...]
    tasks: tuple[TaskSeen, ...]
    work: tuple[TaskWork, ...]
    hot_keys: tuple[HotKey, ...]
    limits: tuple[Limit, ...]
    series: Series
    drawing: Drawing
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        run = None if self.run is None else {**asdict(self.run), "code": self.run.code}
        return {**asdict(self), "run": run, "findings": [found.to_dict() for found in self.findings]}

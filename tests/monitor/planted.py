"""Progress in the form in which it is kept, of queries that are well and of queries that are not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from millpond.adapters.monitor.diagnosis.figures import Figures, OpenBatch, StandbyCopy
from millpond.adapters.monitor.kept.history import History
from millpond.adapters.monitor.kept.micro_batch import STATE, Limit, MicroBatch, Report, SourceRead, TaskReport
from millpond.adapters.monitor.kept.runs import Runs

QUERY = "3f"
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
BEGIN = 1_700_000_000_000
TASKS = 4
DISK = 100_000_000_000

Change = Callable[[MicroBatch], MicroBatch]


def task(number: int, records: int, state: int, keys: Mapping[str, int] | None = None) -> TaskReport:
    """Return the report of a task of a healthy query: a millisecond for each hundred records, and a fast file."""
    spent = 5_000 + records * 10
    figures = {
        "records.in": records,
        "records.out": records,
        "open.duration": 2_000,
        "process.duration": records * 10,
        "commit.duration": 4_000,
        "commit.rows": records,
        "file.duration": 3_000,
        "file.size": 2_000 + 20 * records,
        "task.duration": spent + 6_000,
        STATE: state,
    }
    return TaskReport(f"0_{number}", figures, keys=dict(keys or {}))


def micro_batch(
    batch: int,
    started: int,
    rows: int,
    *,
    run: str = "r0",
    lag: int = 5 * SECOND,
    took: int = SECOND,
    state: int = 1_000_000,
    used: float = 0.4,
) -> MicroBatch:
    """Return a micro-batch of a query of four tasks, whose keys are spread."""
    each = tuple(task(number, rows // TASKS, state // TASKS, {f"key {number}": rows // 40}) for number in range(TASKS))
    summed: dict[str, int] = {}
    for one in each:
        for name, amount in one.figures.items():
            summed[name] = summed.get(name, 0) + amount
    free = round(DISK * (1 - used))
    summed |= {"stream.lag": lag * 1_000, "stream.time": (started - lag) * 1_000, "disk.free": free}
    reports = (
        Report("app", "clicks", 2, {"records.in": rows, "records.out": rows}),
        Report("app", "operator.0", TASKS, summed, waiting={"join:waiting": rows // 10}, each=each),
    )
    durations = {"triggerExecution": took, "addBatch": took * 8 // 10, "walCommit": 20, "commitOffsets": 20}
    limits = (Limit("disk", "operator.0 0_1", DISK - free, DISK),)
    return MicroBatch(
        QUERY, run, "counts", batch, started, durations, (SourceRead("Kafka[clicks]", rows),), reports, limits
    )


@dataclass
class Story:
    """A query that is watched: what it told, micro-batch after micro-batch.

    Attributes:
        at: the moment.
        kept: how many micro-batches are looked at.
    """

    at: int = BEGIN
    kept: int = 200
    batches: list[MicroBatch] = field(default_factory=list)
    runs: Runs = field(default_factory=lambda: Runs(QUERY, "counts"))
    history: History = field(default_factory=lambda: History(QUERY))
    committed: dict[int, int] = field(default_factory=dict)
    open_batch: OpenBatch | None = None
    standby: list[StandbyCopy] = field(default_factory=list)
    run: int = 0
    run_started: int = BEGIN

    def tell(
        self, rows: int, *, lag: int = 5 * SECOND, took: int = SECOND, every: int = 10 * SECOND, **more: float
    ) -> None:
        """Begin one more micro-batch now; the next one begins after ``every`` or as soon as this one is done."""
        self.add(
            micro_batch(
                self.batches[-1].batch + 1 if self.batches else 0,
                self.at,
                rows,
                run=f"r{self.run}",
                lag=lag,
                took=took,
                state=int(more.get("state", 1_000_000)),
                used=more.get("used", 0.4),
            ),
            max(every, took),
        )

    def add(self, one: MicroBatch, every: int) -> None:
        """Add a micro-batch of one's own."""
        told = MicroBatch.from_json(one.to_json())
        self.batches = [*self.batches, told][-500:]
        self.history = self.history.with_batch(told)
        self.runs = self.runs.seen(one.run, self.run_started, one.started + one.took)
        self.committed[one.batch] = one.started + one.took
        self.committed.pop(one.batch - 100, None)
        self.at += every

    def changed(self, change: Change, count: int = 5) -> None:
        """Run so many more micro-batches, each with a change."""
        for _ in range(count):
            before = self.batches[-1]
            self.add(change(micro_batch(before.batch + 1, self.at, 8_000, run=f"r{self.run}")), 10 * SECOND)

    def restart(self, pause: int) -> None:
        """Stop the query and start it again."""
        self.runs = self.runs.ended(f"r{self.run}", self.run_started, self.at, None)
        self.at += pause
        self.run += 1
        self.run_started = self.at

    def die(self, failure: str) -> None:
        """End the query by an error."""
        self.runs = self.runs.ended(f"r{self.run}", self.run_started, self.at, failure)

    def figures(self) -> Figures:
        """Return what rules see, all of it as it is kept."""
        return Figures(
            self.at,
            self.batches[-self.kept :],
            Runs.from_json(self.runs.to_json()),
            History.from_json(self.history.to_json()),
            self.committed,
            self.open_batch,
            self.standby,
        )


def healthy(seed: int) -> Story:
    """Return the story of a healthy query: bursts, outages whose backlog is caught up, restarts, some late rows."""
    random, story = Random(seed), Story()
    every = random.choice([SECOND, 10 * SECOND, MINUTE])
    rate, capacity = random.randint(50, 5_000), random.uniform(2.0, 6.0)
    backlog, state = 0.0, 1_000_000
    burst = 0
    for step in range(random.randint(60, 700)):
        if random.random() < 0.01:
            burst = max(1, random.randint(1, 4 * MINUTE) // every)
        night = 0.1 if step % 200 > 150 else 1.0
        arrived = rate * every / SECOND * night * random.uniform(0.7, 1.3) * (capacity * 0.8 if burst else 1.0)
        burst = max(0, burst - 1)
        if random.random() < 0.01:
            pause = random.randint(MINUTE, 2 * HOUR)
            story.restart(pause)
            backlog += rate * pause / SECOND
        able = rate * capacity * max(every, SECOND) / SECOND
        rows = min(arrived + backlog, able * random.uniform(0.9, 1.1))
        backlog = max(0.0, arrived + backlog - rows)
        took = round(200 + every * min(1.2, rows / able) * random.uniform(0.6, 1.0))
        state = round(min(5_000_000, state + rows) * random.uniform(0.9, 1.1))
        lag = round(backlog / rate * SECOND) + random.randint(0, 3 * SECOND)
        story.tell(round(rows), lag=lag, took=took, every=every, state=state, used=0.4 + 0.1 * random.random())
        if random.random() < 0.1:
            story.batches[-1] = with_counts(story.batches[-1], "late", round(rows * 0.002 * random.random()))
    story.at += random.randint(0, MINUTE)
    if random.random() < 0.2:
        story.runs = story.runs.ended(f"r{story.run}", story.run_started, story.at, None)
        story.at += random.randint(0, 100 * HOUR)
    elif random.random() < 0.5:
        story.open_batch = OpenBatch(story.batches[-1].batch + 1, story.at - 100, 1, TASKS, story.at - 50)
    return story


def with_counts(one: MicroBatch, what: str, records: int, reason: str = "dropped-late") -> MicroBatch:
    """Return a micro-batch whose operator has counted so many records as dropped or late."""
    counted: Any = {what: {f"join:{reason}": records}}
    reports = tuple(replace(report, **counted) if report.each else report for report in one.reports)
    return replace(one, reports=reports)

"""A row of a local copy that is damaged while a job runs: it is named with what to do, which is done, and all is right.

Durable files are as they were written, so whatever damages a copy costs one attempt at most, and no answer. A row is
damaged beneath the store, where no engine's checksum tells: it becomes empty, gets a byte more, or
loses its end.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pytest

from millpond.adapters.spark.operator.task_run import TaskRun
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import CorruptStoreError, SerdeError, UnreadableRowError
from millpond.processors import (
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.apply import make_apply
from millpond.processors.calls.joins.asof_join import make_asof_join
from millpond.processors.calls.joins.table_join import make_table_join
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.over import make_over
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution.exchange import Blob, to_ipc
from millpond.processors.distribution.execution import Outputs
from millpond.processors.distribution.plan import make_plan
from millpond.processors.options.joins import JoinType
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.ordered.over_spec import Frame
from millpond.processors.verbs.verb import INSTANT as TIME
from millpond.stores.backend.contract import Backend
from millpond.stores.backend.memory import MemoryBackend, MemorySupplier
from millpond.stores.durability import Storage
from millpond.stores.encoding.keys import COMMIT_ROW, DATA, LATEST_END
from tests.metamorphic.applied import results_of
from tests.metamorphic.engine import Query, RunningVerb, Tables
from tests.metamorphic.histories import SECOND
from tests.metamorphic.keeping import POLICY, DurableKeeper
from tests.metamorphic.rules import RESULTS, Totals
from tests.metamorphic.test_stored_inputs import FOREIGN, TIMES, A, B, folded, near, table

Answers = Sequence[Any]
Damage = Callable[[bytes], bytes]
BATCHES: Sequence[dict[str, Sequence[tuple[str, int]]]] = (
    {"a": [("x", 10), ("y", 11), ("z", 12)], "b": [("x", 9), ("y", 11)]},
    {"a": [("x", 14), ("y", 15)], "b": [("x", 12), ("z", 13)]},
    {"a": [("x", 13), ("y", 18), ("z", 19)], "b": [("x", 17), ("y", 17), ("z", 13)]},
    {"a": [("x", 113), ("y", 118), ("z", 119)], "b": [("x", 117), ("y", 117), ("z", 113)]},
)
"""Keys and seconds; after half of them a row is damaged."""
METADATA_DAMAGES: Sequence[Damage] = (lambda data: b"", lambda data: data + b"\xff")
DAMAGES: Sequence[Damage] = (*METADATA_DAMAGES, lambda data: data[:9])


class Job(Protocol):
    """A job whose tasks are in this process."""

    def run(self, number: int) -> Answers:
        """Return the answers of a micro-batch."""


class VerbJob:
    def __init__(self, made: Made, keeper: DurableKeeper) -> None:
        self._made = made
        self._query = Query([made], [1], keeper, Random(1))

    def run(self, number: int) -> Answers:
        batch = BATCHES[number].items()
        inputs = {source: [self._rows(source, split) for split in (rows[:1], rows[1:])] for source, rows in batch}
        results = self._query.run(inputs, complete=number == len(BATCHES) - 1)
        return [row for some in results for row in some.to_pylist()]

    def _rows(self, source: str, rows: Sequence[tuple[str, int]]) -> pa.Table:
        if "v" not in self._made.selections[next(iter(self._made.selections))].rows.schema.names:
            return table(source, *rows)
        made = [{"k": key, "at": second * SECOND, "v": second} for key, second in rows]
        return pa.Table.from_pylist(made, NUMBERS.schema)


COLUMNS: list[tuple[str, Any]] = [("k", pa.string()), ("at", TIME), ("v", pa.int64())]
NUMBERS = Rows.of("a", pa.schema(COLUMNS))


class TopologyJob:
    """The only task of a topology, of texts and numbers."""

    def __init__(self, build: Callable[[StreamsBuilder], KStream | KTable], keeper: DurableKeeper) -> None:
        builder = StreamsBuilder(key_serde="string", value_serde="int64")
        build(builder).to("out")
        self._plan = make_plan(builder.build(), "out", 1)
        self._keeper = keeper

    def run(self, number: int) -> Answers:
        (part,) = self._plan.parts
        with self._keeper.task("topology/0_0", part, self._plan) as stores:
            task = Task(part, stores)
            for topic in sorted(part.sources):
                keys, times = map(list, zip(*BATCHES[number][topic], strict=True))
                task.process(topic, Batch(keys, times, times))
            task.settle()
            if number == len(BATCHES) - 1:
                task.complete()
            task.flush()
            found = [run.to_batch() for runs in task.take().values() for run in runs]
            task.close()
        self._keeper.commit()
        return [row for one in found for row in zip(one.keys, one.values, one.timestamps, strict=True)]


def _added(left: int | None, right: int | None) -> int:
    return 1_000 * (left or 0) + (right or 0)


def _windows(builder: StreamsBuilder) -> KTable:
    return builder.stream("a").group_by_key().windowed_by(TimeWindows(10, grace=5)).count()


def _final(builder: StreamsBuilder) -> KTable:
    windows = builder.stream("a").group_by_key().windowed_by(TimeWindows(10, grace=5))
    return windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()


def _sessions(builder: StreamsBuilder) -> KTable:
    windows = builder.stream("a").group_by_key().windowed_by(SessionWindows(5, grace=5))
    return windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()


def _unwindowed(made: Callable[[StreamsBuilder], KTable]) -> Callable[[StreamsBuilder], KStream]:
    return lambda builder: made(builder).to_stream().select_key(lambda key, _: f"{key.key} {key.start} {key.end}")


def _joined(builder: StreamsBuilder) -> KStream:
    return builder.stream("a").outer_join(builder.stream("b"), _added, windows=JoinWindows(5, 5, 3))


def _tables(builder: StreamsBuilder) -> KStream:
    return builder.table("a").outer_join(builder.table("b"), _added).to_stream()


def _reordered(builder: StreamsBuilder) -> KStream:
    history = Materialized.versioned(history_retention=20)
    return builder.table("a", materialized=history, reorder_within=4).to_stream()


VERBS: dict[str, Callable[[], Made]] = {
    "a table": lambda: make_latest("out", A, key="k", time="at", history=60 * SECOND, order="am"),
    "a table with a time to live": lambda: make_latest(
        "out", A, key="k", time="at", history=60 * SECOND, ttl=99 * SECOND
    ),
    "an as-of join": lambda: make_asof_join(
        "out", A, B, history=60 * SECOND, grace=5 * SECOND, right_order="bm", how=JoinType.LEFT, **TIMES
    ),
    "a join of streams": lambda: near(JoinType.OUTER, 5, 5),
    "a join of tables": lambda: make_table_join("out", A, B, how=JoinType.OUTER, **TIMES),
    "a join of versioned tables": lambda: make_table_join("out", A, B, history=60 * SECOND, **TIMES),
    "a join by foreign key": lambda: make_table_join("out", FOREIGN, B, left_key="id", **TIMES),
    "a processor": lambda: make_apply(
        "out", NUMBERS, Totals("v"), key="k", time="at", results=results_of(RESULTS), lateness=5 * SECOND
    ),
    "an aggregate": lambda: folded(None),
    "rows over those before": lambda: make_over(
        "out", A, {"n": aggregates.count(), "m": aggregates.lag("am")}, key="k", time="at", frame=Frame(), grace=SECOND
    ),
    "an aggregate by window": lambda: make_aggregate(
        "out",
        A,
        {"n": aggregates.count(), "m": aggregates.max("am")},
        by="k",
        time="at",
        window=TimeWindows("10 seconds", grace="5 seconds"),
        final=True,
    ),
}
TOPOLOGIES: dict[str, Callable[[StreamsBuilder], KStream | KTable]] = {
    "windows": _unwindowed(_windows),
    "windows that close": _unwindowed(_final),
    "windows that are held back": _unwindowed(
        lambda builder: _windows(builder).suppress(Suppressed.until_window_closes())
    ),
    "updates that are held back": lambda builder: (
        builder.table("a").suppress(Suppressed.until_time_limit(5)).to_stream()
    ),
    "sessions that close": _unwindowed(_sessions),
    "joined streams": _joined,
    "joined tables": _tables,
    "a table in order": _reordered,
}
JOBS: dict[str, Callable[[DurableKeeper], Job]] = {
    **{name: lambda keeper, make=make: VerbJob(make(), keeper) for name, make in VERBS.items()},  # type: ignore[misc]
    **{name: lambda keeper, made=made: TopologyJob(made, keeper) for name, made in TOPOLOGIES.items()},  # type: ignore[misc]
}


class Held(MemorySupplier):
    """Memory, of which the test keeps hold."""

    opened: ClassVar[dict[str, MemoryBackend]] = {}

    def open(self, directory: Path) -> MemoryBackend:
        backend = super().open(directory)
        self.opened["/".join(directory.parts[-4:])] = backend
        return backend


def _kinds(backend: Backend) -> dict[bytes, tuple[bytes, bytes]]:
    """Return a row of each kind that a store has."""
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for row, data in backend.scan():
        if row != COMMIT_ROW:
            found.setdefault(row if row < DATA else row[:1] + row[-2:].replace(LATEST_END, b"latest")[2:], (row, data))
    return found


EVERYWHERE = {"is too short for the time", "has the damaged terms", "holds the layout"}
"""Words that tell damage of what most stores keep beside their rows."""
LATEST = "is no latest version with its time"
HISTORY = "is neither a version nor a tombstone"
ROW = "this is not a packed row"
LEFT_ROW = "is no left row of a foreign-key join"
VALUE = "holds a value that cannot be read"
TIMESTAMP = "a value is too short for the timestamp"
LAYOUT = "has a damaged layout row"
SEQUENCE = "has the damaged sequence"
KEPT_TIME = "has the damaged time"
COUNTS = "has the damaged counts"
UPDATES = "has damaged updates"
BUFFER = "the buffer has a damaged row"
ENDS = "ends before its"
TOLD: dict[str, set[str]] = {
    "a table": {LATEST},
    "a table with a time to live": {LATEST},
    "an as-of join": {LATEST, HISTORY, ROW, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS, BUFFER},
    "a join of streams": {ROW, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS},
    "a join of tables": {ROW, TIMESTAMP},
    "a join of versioned tables": {LATEST, ROW},
    "a join by foreign key": {LEFT_ROW, VALUE, TIMESTAMP, LAYOUT, ENDS},
    "a processor": {ROW, VALUE, TIMESTAMP, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS, BUFFER},
    "an aggregate": {VALUE, TIMESTAMP},
    "rows over those before": {ROW, VALUE, TIMESTAMP, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS, BUFFER},
    "an aggregate by window": {VALUE, LAYOUT, KEPT_TIME, COUNTS},
    "windows": {VALUE, LAYOUT, KEPT_TIME},
    "windows that close": {VALUE, LAYOUT, KEPT_TIME, COUNTS},
    "windows that are held back": {VALUE, LAYOUT, KEPT_TIME, UPDATES},
    "updates that are held back": {VALUE, TIMESTAMP, LAYOUT, KEPT_TIME, UPDATES},
    "sessions that close": {VALUE, LAYOUT, KEPT_TIME, COUNTS},
    "joined streams": {VALUE, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS},
    "joined tables": {VALUE, TIMESTAMP},
    "a table in order": {LATEST, VALUE, LAYOUT, SEQUENCE, KEPT_TIME, COUNTS, BUFFER},
}
"""Which other words tell the damage of what a job has, be it found when the task is opened or where a row is read."""


def _begun(job: str, directory: Path) -> tuple[DurableKeeper, Job, dict[str, MemoryBackend]]:
    """Return a job after half of its micro-batches, and its local copies."""
    Held.opened.clear()
    keeper = DurableKeeper(directory, (Held(),), loses=False)
    running = JOBS[job](keeper)
    for number in (0, 1):
        running.run(number)
    return keeper, running, dict(Held.opened)


@pytest.mark.parametrize("job", JOBS)
def test_what_is_advised_for_a_damaged_row_is_taken_and_the_answers_are_right(
    job: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper, running, copies = _begun(job, tmp_path / "right")
    cases = [(place, *case) for place, backend in copies.items() for case in _kinds(backend).values()]
    with closing(keeper):
        right = [running.run(number) for number in (2, 3)]
    told = []
    damaged = [(*case, damage) for case in cases for damage in (DAMAGES if case[1] >= DATA else METADATA_DAMAGES)]
    for number, (place, row, data, damage) in enumerate(damaged):
        directory = tmp_path / str(number)
        keeper, running, copies = _begun(job, directory)
        copies[place].write({row: damage(data)})
        answers: list[Answers] = []
        with closing(keeper):
            while len(answers) < len(right):
                try:
                    answers.append(running.run(2 + len(answers)))
                except CorruptStoreError as error:
                    told.append(str(error))
                    (advice,) = error.__notes__
                    assert f"{directory}/local/{'/'.join(place.split('/')[:2])} were thrown away" in advice
                    assert f"restores them from file://{directory}/state/; start the query again" in advice
                    assert len(told) <= number + 1, "the advice leads in a circle"
                    keeper.die()
        assert answers == right, (place, row, damage(data))
    told += [record.getMessage() for record in caplog.records if "local copies have failed" in record.getMessage()]
    found = {text: {words for words in TOLD[job] | EVERYWHERE if words in text} for text in told}
    assert [text for text, words in found.items() if not words] == []
    assert TOLD[job] <= set().union(*found.values())


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("an as-of join", {"is too short for the time", "does not end in its terminator"}),
        ("a table in order", {"is too short for the time", "does not end in its terminator", BUFFER}),
    ],
)
def test_a_row_under_a_damaged_key_is_lost_or_what_is_advised_is_taken(
    job: str, words: set[str], tmp_path: Path
) -> None:
    keeper, running, copies = _begun(job, tmp_path / "right")
    cases = [(place, *case) for place, backend in copies.items() for case in _kinds(backend).values()]
    with closing(keeper):
        right = [running.run(number) for number in (2, 3)]
    moved = [
        (place, row, data, under)
        for place, row, data in cases
        for under in (row[:4], row[:-1], row[:9] + b"\x00" + row[10:])
        if row >= DATA and under != row
    ]
    told = []
    for number, (place, row, data, under) in enumerate(moved):
        keeper, running, copies = _begun(job, tmp_path / str(number))
        copies[place].write({row: None, under: data})
        with closing(keeper):
            try:
                running.run(2)
            except CorruptStoreError as error:
                told.append(str(error))
                (advice,) = error.__notes__
                assert "start the query again" in advice
                keeper.die()
                assert [running.run(number) for number in (2, 3)] == right
    assert {one for one in words for text in told if one in text} == words


def _cut_off(records: bytes) -> bytes:
    return records[:-9]


def _of_other_columns(records: bytes) -> bytes:
    table = pa.ipc.open_stream(records).read_all()
    place = table.column_names.index("key")
    return to_ipc(table.set_column(place, "key", pa.array([1] * len(table))))


@pytest.mark.parametrize(
    ("damage", "words"), [(_cut_off, "are damaged"), (_of_other_columns, "have other columns than the rest")]
)
def test_records_that_are_damaged_on_their_way_are_sent_again(
    damage: Damage, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = RunningVerb._arriving

    def arriving(verb: RunningVerb, inputs: Tables) -> list[Blob]:
        first, *others = sent(verb, inputs)
        return [first._replace(records=damage(first.records)), *others]

    answers = []
    for damaged in (False, True):
        keeper, running, _ = _begun("a table", tmp_path / str(damaged))
        with closing(keeper):
            if damaged:
                monkeypatch.setattr(RunningVerb, "_arriving", arriving)
                with pytest.raises(SerdeError, match=f"(?s){words}.*; restart the query, which sends them again"):
                    running.run(2)
                monkeypatch.undo()
                keeper.die()
            answers.append([running.run(number) for number in (2, 3)])
    assert answers[0] == answers[1]


class _Stopping(TaskRun):
    """A task that puts out nothing."""

    def _outputs(self, blobs: Collection[Blob], stores: Mapping[str, Any]) -> Iterator[Outputs]:
        yield Outputs({}, Task(self.part, stores))


def test_a_damaged_row_of_which_no_table_can_be_made_fails_its_task_as_any_other(tmp_path: Path) -> None:
    def unreadable(outputs: Outputs) -> Iterator[pa.Table]:
        raise UnreadableRowError("row 0 of 1 is no packed row")

    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    _tables(builder).to("out")
    (part,) = make_plan(builder.build(), "out", 1).parts
    settings = StateSettings(
        application_id="app",
        sink="out",
        run="0" * 32,
        generation=None,
        storage=Storage.from_uri(tmp_path / "state"),
        local_dir=str(tmp_path / "local"),
        supplier=Held(),
        policy=POLICY,
        reset=None,
        checksums=False,
        upgrade=None,
        upgrade_from=None,
        memory_budget=None,
    )
    stage: Any = SimpleNamespace(settings=settings)
    with pytest.raises(UnreadableRowError) as found:
        list(_Stopping(stage, part, 0, 0, Attempt.here()).tables([], None, unreadable))
    assert "start the query again" in found.value.__notes__[0]

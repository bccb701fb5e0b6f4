"""The pace of preparing a new format: it follows the time that a micro-batch takes itself, by an injected clock."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from millpond.stores.backend.contract import Backend
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest
from millpond.stores.durability.copies.catchup_log import CatchupLog
from millpond.stores.durability.copies.position import encode_position
from millpond.stores.durability.copies.preparation import Preparation
from millpond.stores.durability.copies.throttle import MigrationThrottle
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.encoding.keys import COMMIT_ROW, DATA
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.location import StoreLocation
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import FaultPlan, FaultySupplier, Step

SPEC = StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
ROWS = 10_000
STEP = 500
SHARE = 0.2


class Clock:
    """A time that only goes on when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> MigrationThrottle:
    pace = MigrationThrottle(SHARE, clock)
    pace.begin()
    return pace


def step(pace: MigrationThrottle, clock: Clock, seconds: float, *, copying: bool = False) -> None:
    with pace.step(copying=copying):
        clock.pass_by(seconds)


def next_micro_batch(pace: MigrationThrottle) -> None:
    pace.end()
    pace.begin()


def test_steps_are_taken_until_the_share_of_the_own_time_is_spent(clock: Clock, pace: MigrationThrottle) -> None:
    assert not pace.allows_more, "nothing has been done yet"
    clock.pass_by(10)
    step(pace, clock, 1)
    assert pace.allows_more, "1 of 10 seconds"
    step(pace, clock, 1)
    assert not pace.allows_more
    next_micro_batch(pace)
    clock.pass_by(10)
    assert pace.allows_more, "each micro-batch has its own time"


def test_what_took_more_than_the_share_is_paid_off_before_anything_else_is_done(
    clock: Clock, pace: MigrationThrottle
) -> None:
    clock.pass_by(10)
    step(pace, clock, 5)
    next_micro_batch(pace)
    clock.pass_by(10)
    assert pace.in_debt
    assert not pace.allows_more, "3 - 2 are left"
    next_micro_batch(pace)
    clock.pass_by(10)
    assert not pace.in_debt
    step(pace, clock, 0.9)
    assert pace.allows_more, "1.9 of 2"
    step(pace, clock, 0.1)
    assert not pace.allows_more


def test_a_debt_is_no_greater_than_what_the_micro_batch_took_itself(clock: Clock, pace: MigrationThrottle) -> None:
    clock.pass_by(1)
    step(pace, clock, 1_000_000)
    next_micro_batch(pace)
    clock.pass_by(4.9)
    assert pace.in_debt
    clock.pass_by(0.2)
    assert not pace.in_debt


def test_what_is_spent_between_two_micro_batches_counts_in_the_second_and_not_as_its_own(
    clock: Clock, pace: MigrationThrottle
) -> None:
    pace.end()
    with pace.aside():
        clock.pass_by(2)
    clock.pass_by(100)
    pace.begin()
    clock.pass_by(10)
    assert not pace.allows_more, "2 of 10 seconds"
    clock.pass_by(1)
    assert pace.allows_more, "2 of 11 seconds"


def test_time_is_set_aside_for_closing(clock: Clock, pace: MigrationThrottle) -> None:
    clock.pass_by(100)
    with pace.closing():
        clock.pass_by(1)
    next_micro_batch(pace)
    clock.pass_by(10)
    step(pace, clock, 0.9)
    assert pace.allows_more
    step(pace, clock, 0.1)
    assert not pace.allows_more, "the second of two seconds is for closing"


def test_what_has_been_opened_is_worth_some_steps(clock: Clock, pace: MigrationThrottle) -> None:
    with pace.opening():
        clock.pass_by(4)
    step(pace, clock, 1.9)
    assert pace.allows_more
    step(pace, clock, 0.2)
    assert not pace.allows_more
    next_micro_batch(pace)
    assert not pace.allows_more


def test_copying_has_a_quarter_of_the_share_even_if_all_else_takes_more(clock: Clock, pace: MigrationThrottle) -> None:
    clock.pass_by(20)
    step(pace, clock, 19)
    assert not pace.allows_more
    step(pace, clock, 0.9, copying=True)
    assert pace.allows_copying
    step(pace, clock, 0.1, copying=True)
    assert not pace.allows_copying


class Job:
    """Micro-batches of a store with many rows that is prepared in a new format, where each write there takes a second.

    Attributes:
        plan: counts what is done to the new directory.
        kept: the rows that a restart in the new format is to find.
    """

    def __init__(self, directory: Path, clock: Clock, *, rows: int = ROWS, most: int = ROWS, waiting: int = 64) -> None:
        self._clock = clock
        self.plan = FaultPlan(self._passes)
        engine = FaultySupplier(supplier("lmdb"), self.plan)
        self.place = StoreLocation.of(SPEC, engine, local_dir=directory, application_id="app", task_id="0_0")
        self.pace = MigrationThrottle(SHARE, clock)
        policy = DurabilityPolicy(prepared_rows=most, prepared_commits=waiting)
        self.preparation = Preparation(self.place, policy, self.pace)
        self.manifest = Manifest.empty("app", "0_0", "").with_snapshot(file(FileKind.SNAPSHOT, 1), ())
        self.kept = {DATA + b"%05d" % number: b"value" for number in range(rows)}
        self.source = MemoryBackend()
        self.source.write({**self.kept, COMMIT_ROW: encode_position(self.manifest)})

    def _passes(self, step: Step) -> None:
        self._clock.pass_by({Step.BACKEND_WRITE: 1, Step.BACKEND_OPEN: 1e-6}.get(step, 0))

    def batch(self, own: float, changes: Mapping[bytes, bytes | None] | None = None) -> None:
        """Run a micro-batch that takes ``own`` seconds by itself. The old format holds only the beginning of values."""
        self.pace.begin()
        self.preparation.begin(self.source)
        self.preparation.bring(self.manifest, lambda backend: True)
        self._clock.pass_by(own)
        self.preparation.go_on(self.source)
        changed = dict(changes or {})
        self.kept = {row: value for row, value in (self.kept | changed).items() if value is not None}
        self.manifest = self.manifest.with_delta(file(FileKind.DELTA, self.manifest.sequence + 1))
        position = {COMMIT_ROW: encode_position(self.manifest)}
        self.source.write({row: value and value[:5] for row, value in changed.items()} | position)
        self.preparation.append(self.manifest, {**changed, **position})
        self.preparation.close()
        self.pace.end()

    @property
    def waiting(self) -> int:
        """Return how many commits wait."""
        backlog = CatchupLog(self.place.directory.with_name(f".{self.place.directory.name}.backlog"))
        backlog.look()
        return len(backlog.waiting)

    def writes(self) -> int:
        """Return how often the new directory was written."""
        return self.plan.steps[Step.BACKEND_WRITE]

    def taken_over(self) -> dict[bytes, bytes]:
        """Return the rows of the store after a restart in the new format."""
        self.preparation.take_over()
        with self.place.open() as backend:
            return rows_of(backend)


def file(kind: FileKind, sequence: int) -> DurableFile:
    return DurableFile(kind, sequence, new_commit_id(), 1, 1, 1)


def rows_of(backend: Backend) -> dict[bytes, bytes]:
    return {row: value for row, value in backend.scan() if row != COMMIT_ROW}


@pytest.mark.parametrize(
    ("own", "steps"),
    [(0, 1), (5, 1), (20, 3), (1000, 6)],
    ids=["one, because it is open", "a short one", "a longer one", "at most prepared_rows"],
)
def test_a_micro_batch_copies_as_many_rows_as_its_own_time_has_room_for(
    tmp_path: Path, clock: Clock, own: float, steps: int
) -> None:
    job = Job(tmp_path, clock, most=6 * STEP)
    job.batch(own)
    assert job.writes() == 1 + steps, "the first one begins"


def test_a_micro_batch_that_has_no_time_neither_opens_nor_writes_anything(tmp_path: Path, clock: Clock) -> None:
    job = Job(tmp_path, clock)
    job.batch(1)
    before = dict(job.plan.steps)
    job.batch(0.1, {DATA + b"00000": b"newer"})
    assert job.plan.steps == before
    assert job.waiting == 2
    job.batch(1000)
    assert job.waiting == 3, "few are left to be written together"
    assert job.taken_over() == job.kept


def test_what_waits_is_written_together_and_by_all_micro_batches_that_are_left(tmp_path: Path, clock: Clock) -> None:
    job = Job(tmp_path, clock, rows=STEP, waiting=8)
    job.batch(1000)
    assert job.preparation.complete
    written, waiting = [], []
    for number in range(16):
        before = job.writes()
        rows = range(number % 2, 8 * STEP, 2)  # each row is changed by every other commit
        job.batch(0, {DATA + b"%05d" % row: b"newer %d" % number for row in rows})
        written.append(job.writes() - before)
        waiting.append(job.waiting)
    assert waiting[:8] == [2, 3, 4, 5, 6, 7, 8, 5], "the first is that of the copy, and each has its own at the end"
    assert max(waiting) == 8
    assert written[:4] == [0, 0, 0, 0]
    assert all(1 <= steps <= 3 for steps in written[4:8]), "8 steps for the rows of four commits, in four micro-batches"
    assert job.taken_over() == job.kept


@pytest.mark.parametrize("own", [3, 30, 300])
@pytest.mark.parametrize("changed", [0, 10, 10 * STEP], ids=["nothing", "some rows", "half of all rows"])
def test_it_comes_to_an_end_and_no_more_commits_wait_than_may(
    tmp_path: Path, clock: Clock, own: float, changed: int
) -> None:
    job = Job(tmp_path, clock, waiting=5)
    count = 0
    while not job.preparation.complete:
        count += 1
        rows = [DATA + b"%05d" % (number * 7919 % (ROWS + STEP)) for number in range(count, count + changed)]
        job.batch(own, {row: None if number % 9 == 0 else b"newer %d" % count for number, row in enumerate(rows)})
        assert job.waiting <= 5 + 1, "one is that of the micro-batch"
        assert count < 1000
    for _ in range(9):
        job.batch(own, {DATA + b"00001": b"newest"})
    assert job.preparation.complete, "commits that wait since do not change that"
    assert job.taken_over() == job.kept


def test_copying_and_writing_take_turns(tmp_path: Path, clock: Clock) -> None:
    job = Job(tmp_path, clock, rows=10 * ROWS, most=10 * ROWS, waiting=8)
    for number in range(7):
        job.batch(0 if number < 6 else 60, {DATA + b"%05d" % row: b"newer %d" % number for row in range(3 * STEP)})
    assert not job.preparation.complete
    assert job.waiting <= 3


def test_what_can_wait_takes_no_more_than_the_share_and_one_step(tmp_path: Path, clock: Clock) -> None:
    job = Job(tmp_path, clock, rows=10 * ROWS, waiting=1000)
    job.batch(50)
    for number in range(40):
        before, begun = job.writes(), clock.now
        job.batch(20, {DATA + b"%05d" % (number * 10 + row): b"newer" for row in range(3 * STEP)})
        assert clock.now - begun == pytest.approx(20 + job.writes() - before, abs=0.01)
        assert job.writes() - before <= SHARE * 20 + 1
    assert not job.preparation.complete


def test_what_the_old_format_cannot_hold_is_not_copied_over(tmp_path: Path, clock: Clock) -> None:
    job = Job(tmp_path, clock)
    for number in range(0, ROWS, 1000):
        job.batch(10, {DATA + b"%05d" % row: b"newer than that" for row in range(number, number + 1000, 7)})
    while not job.preparation.complete:
        job.batch(100)
    assert job.taken_over() == job.kept

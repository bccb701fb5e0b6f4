"""How much of a new format a micro-batch prepares follows the time that it takes itself, as an injected clock tells."""

from pathlib import Path

import pytest

from millpond.stores.backend import Backend
from millpond.stores.durability import DurabilityPolicy
from millpond.stores.durability.copies.pace import Pace
from millpond.stores.durability.copies.preparation import NEXT_ROW, Preparation
from millpond.stores.keys import COMMIT_ROW, DATA
from millpond.stores.memory import MemoryBackend
from millpond.stores.place import StorePlace
from millpond.stores.registry import supplier
from millpond.stores.serdes import INT64, STRING
from millpond.stores.specs import StoreKind, StoreSpec
from millpond.stores.testing import FaultPlan, FaultySupplier, Step

SPEC = StoreSpec("counts", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
ROWS = 10_000
STEP = 500


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


def copy(pace: Pace, clock: Clock, seconds: float) -> None:
    with pace.copying():
        clock.pass_by(seconds)


def test_more_is_copied_until_a_quarter_of_the_own_time_is_spent(clock: Clock) -> None:
    pace = Pace(clock)
    pace.begin()
    assert not pace.allows_more, "nothing has been done yet"
    clock.pass_by(8)
    copy(pace, clock, 1)
    assert pace.allows_more
    copy(pace, clock, 1)
    assert not pace.allows_more
    pace.end()
    pace.begin()
    clock.pass_by(8)
    copy(pace, clock, 1)
    assert pace.allows_more, "each micro-batch has its own time"


def test_what_is_spent_between_two_micro_batches_counts_in_the_second_and_not_as_its_own(clock: Clock) -> None:
    pace = Pace(clock)
    pace.end()
    with pace.aside():
        clock.pass_by(2)
    clock.pass_by(100)
    pace.begin()
    clock.pass_by(8)
    copy(pace, clock, 1)
    assert not pace.allows_more, "3 of 8 seconds"
    clock.pass_by(5)
    assert pace.allows_more, "3 of 13 seconds"


def test_copying_gets_a_twentieth_even_if_all_else_takes_more_than_the_quarter(clock: Clock) -> None:
    pace = Pace(clock)
    pace.begin()
    clock.pass_by(20)
    with pace.aside():
        clock.pass_by(19)
    assert pace.allows_more
    with pace.copying():
        clock.pass_by(1)
    assert not pace.allows_more


def preparation(directory: Path, clock: Clock, *, seconds_per_step: float, most: int) -> tuple[Preparation, Backend]:
    """What prepares the new format of a backend with many rows, where each step takes so long."""

    def passes(step: Step) -> None:
        if step is Step.BACKEND_WRITE:
            clock.pass_by(seconds_per_step)

    engine = FaultySupplier(supplier("lmdb"), FaultPlan(passes))
    place = StorePlace.of(SPEC, engine, local_dir=directory, application_id="app", task_id="0_0")
    source = MemoryBackend()
    source.write({COMMIT_ROW: b"here"} | {DATA + b"%05d" % number: b"value" for number in range(ROWS)})
    preparing = Preparation(place, DurabilityPolicy(prepared_rows=most))
    preparing.begin(source)
    return preparing, source


def copied(preparing: Preparation) -> int:
    return sum(1 for row, _ in preparing.open().scan() if row not in (COMMIT_ROW, NEXT_ROW))


@pytest.mark.parametrize(
    ("own", "steps"),
    [(0, 1), (4, 1), (16, 4), (1000, 6)],
    ids=["at least one", "a short one", "a longer one", "at most prepared_rows"],
)
def test_a_micro_batch_copies_as_many_rows_as_its_own_time_has_room_for(
    tmp_path: Path, clock: Clock, own: float, steps: int
) -> None:
    preparing, source = preparation(tmp_path, clock, seconds_per_step=1, most=6 * STEP)
    pace = Pace(clock)
    pace.begin()
    clock.pass_by(own)
    preparing.copy_further(source, pace)
    assert copied(preparing) == steps * STEP
    preparing.close()


def test_copying_ends_however_short_the_micro_batches_are(tmp_path: Path, clock: Clock) -> None:
    preparing, source = preparation(tmp_path, clock, seconds_per_step=1, most=6 * STEP)
    pace = Pace(clock)
    count = 0
    while not preparing.complete:
        pace.begin()
        preparing.copy_further(source, pace)
        pace.end()
        count += 1
    assert count == ROWS // STEP
    assert [row for row in preparing.open().scan() if row[0] != COMMIT_ROW] == [
        row for row in source.scan() if row[0] != COMMIT_ROW
    ]
    preparing.close()


def test_what_has_been_written_meanwhile_is_not_copied_over(tmp_path: Path, clock: Clock) -> None:
    preparing, source = preparation(tmp_path, clock, seconds_per_step=1, most=ROWS)
    written = {DATA + b"%05d" % number: b"newer" for number in range(0, ROWS, 7)}
    preparing.write(written)
    pace = Pace(clock)
    pace.begin()
    clock.pass_by(1e6)
    preparing.copy_further(source, pace)
    assert preparing.complete
    expected = {**dict(source.scan()), **written}
    assert dict(preparing.open().scan()) == expected
    preparing.close()

"""Plans of faults: the same steps meet the same faults, and a failure says how to repeat it."""

import re
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from millpond.errors import ConfigurationError, DurabilityError, MillpondError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.durability import Manifest, Storage
from millpond.stores.durability.copies.lease import Lease
from millpond.stores.testing import (
    Fault,
    FaultPlan,
    FaultyBackend,
    FaultyClock,
    FaultyStorage,
    InjectedFault,
    Step,
)
from millpond.stores.testing.faults.plan import POSSIBLE, fault_seed
from tests.crash.durable_task import commit, content, expected, task


def met(seed: int | None) -> list[tuple[Step, Fault]]:
    plan = FaultPlan.seeded(seed, rate=0.3, faults=[Fault.ERROR, Fault.LIE, Fault.JUMP])
    for _ in range(20):
        for step in Step:
            plan.meet(step)
    return plan.met


def test_a_seed_gives_the_same_faults_again_and_another_seed_gives_others() -> None:
    assert met(1) == met(1) != met(2)
    assert all(fault in POSSIBLE[step] for step, fault in met(1))


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        with FaultPlan.seeded(42, rate=1, faults=[Fault.ERROR]) as plan:
            FaultyBackend(MemoryBackend(), plan).get(b"key")

    with pytest.raises(InjectedFault) as caught:
        fail()
    (printed,) = re.findall(r"MILLPOND_FAULT_SEED=(\d+)", caught.value.__notes__[0])
    monkeypatch.setenv("MILLPOND_FAULT_SEED", "no number")
    with pytest.raises(ConfigurationError, match=r"no number.*; give the number that .* has printed, or unset it \["):
        met(None)
    monkeypatch.setenv("MILLPOND_FAULT_SEED", printed)
    assert met(None) == met(42) != []
    monkeypatch.delenv("MILLPOND_FAULT_SEED")
    assert fault_seed() in range(1 << 32)


def _always(fault: Fault | None, _: Step) -> Fault | None:
    return fault


def test_a_fault_where_it_is_not_possible_is_refused() -> None:
    possible = ["death", "delay", "error", "lie"]
    told = f"'jump' is not possible where the step is 'read a file'; choose one of {possible}, or None"
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        FaultPlan(lambda _: Fault.JUMP).meet(Step.FILE_READ)
    for fault in (None, *map(Fault, possible[1:])):
        plan = FaultPlan(partial(_always, fault))
        assert plan.meet(Step.FILE_READ) is (None if fault is Fault.DELAY else fault)
        assert plan.met == ([] if fault is None else [(Step.FILE_READ, fault)])


def test_a_clock_jumps_forward_and_back() -> None:
    plan = FaultPlan.seeded(1, rate=0.5)
    clock = FaultyClock(plan, 1_000, jump=100)
    times = [clock() for _ in range(50)]
    assert times != sorted(times)
    assert abs(times[-1] - 1_000) < 50 + 101
    with plan.quiet():
        assert clock() + 1 == clock()


def test_a_lie_is_found_out_and_what_should_be_there_can_be_put_back(tmp_path: Path) -> None:
    plan = FaultPlan.at(1, Fault.LIE, Step.FILE_WRITE)
    plain = Storage.from_uri(tmp_path / "state")
    storage = FaultyStorage.over(plain, plan)
    with storage.writing("file") as stream:
        stream.write(b"written as far as half of it")
    assert plain.read("file") == plan.lies["file"][:14]
    assert plan.lies["file"] == b"written as far as half of it"


@pytest.mark.parametrize(("fault", "left"), [(Fault.ERROR, []), (Fault.APPLIED, ["file"])])
def test_a_file_that_fails_to_finish_is_there_only_if_the_answer_got_lost(
    tmp_path: Path, fault: Fault, left: list[str]
) -> None:
    storage = FaultyStorage.over(Storage.from_uri(tmp_path), FaultPlan.at(1, fault, Step.FILE_FINISH))

    def write() -> None:
        with storage.writing("file") as stream:
            stream.write(b"content")

    with pytest.raises(DurabilityError, match="on demand"):
        write()
    assert [file.path for file in storage.list("")] == left


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.APPLIED, Fault.DAMAGE, Fault.LIE, Fault.LAG])
@pytest.mark.parametrize("backend", ["memory", "lmdb"])
def test_a_fault_at_any_step_of_a_batch_ends_it_or_is_overcome(tmp_path: Path, backend: str, fault: Fault) -> None:
    with task(tmp_path, backend) as state:
        before = commit(state, None, 1)
    for number in count(1):
        plan = FaultPlan.at(number, fault)
        after = attempt(tmp_path, backend, plan, before)
        with plan, task(tmp_path, backend) as successor:
            assert content(successor, before) == expected(1)
            assert content(successor, commit(successor, before, 2)) == expected(2)
            if after is not None and not plan.lies:
                assert content(successor, after) == expected(2)
        if not plan.met:
            break
    assert number > 1


def attempt(directory: Path, backend: str, plan: FaultPlan, before: Manifest) -> Manifest | None:
    """Return the second batch under ``plan``; None if it failed."""
    state = task(directory, backend, plan)
    try:
        return commit(state, before, 2)
    except MillpondError as error:
        if not plan.met:
            raise
        state.rollback(error)
    finally:
        with plan.quiet():
            state.close()
    return None


def test_whatever_fails_to_close_the_task_is_let_go_of(tmp_path: Path) -> None:
    plan = FaultPlan(lambda step: Fault.APPLIED if step is Step.BACKEND_CLOSE else None)
    state = task(tmp_path, "lmdb", plan)
    for end in (state.rollback, state.close, state.commit):
        state.open(None)
        with pytest.raises(InjectedFault):
            end()
        successor = Lease(tmp_path / "local" / "app" / "0_0", timeout=0)
        successor.acquire()
        successor.release()

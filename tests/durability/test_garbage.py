"""The garbage collection removes what nobody can name, and nothing that a retained manifest needs."""

import os
from pathlib import Path
from typing import Any

from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, collect_garbage, read_store
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

SPEC = StoreSpec("words", StoreKind.KEY_VALUE, STRING, INT64)
POLICY = DurabilityPolicy(max_deltas=2, retained_commits=5, retained_age=0, retained_forks=0)
KEEP_ALL = DurabilityPolicy(max_deltas=2, retained_commits=5, retained_age=10**9)


def task(directory: Path, policy: DurabilityPolicy, local: str = "local") -> TaskState:
    return TaskState(
        [SPEC],
        supplier("memory"),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=Storage.from_uri(directory / "state"),
        policy=policy,
    )


def commit(state: TaskState, manifest: Manifest | None, number: int) -> Manifest:
    store: Any = state.open(manifest)["words"]
    store.put_all([("last", number), (f"k{number % 4}", number)])
    return state.commit()


def history(state: TaskState, manifest: Manifest | None, numbers: range) -> list[Manifest]:
    manifests = [] if manifest is None else [manifest]
    for number in numbers:
        manifests.append(commit(state, manifests[-1] if manifests else None, number))
    return manifests


def last(directory: Path, manifest: Manifest) -> int | None:
    store: Any = read_store(Storage.from_uri(directory / "state"), manifest, SPEC)
    value: int | None = store.get("last")
    return value


def files(directory: Path) -> set[str]:
    return {path.name for path in (directory / "state").rglob("*.parquet")}


def named(manifests: list[Manifest]) -> set[str]:
    return {file.name for manifest in manifests for file in manifest.files}


def test_every_retained_manifest_can_be_opened_after_every_commit(tmp_path: Path) -> None:
    manifests: list[Manifest] = []
    with task(tmp_path, POLICY) as state:
        for number in range(1, 40):
            manifests.append(commit(state, manifests[-1] if manifests else None, number))
            assert named(manifests[-6:]) <= files(tmp_path)
    for manifest in manifests[-6:]:
        assert last(tmp_path, manifest) == manifest.sequence


def test_garbage_does_not_pile_up(tmp_path: Path) -> None:
    with task(tmp_path, POLICY) as state:
        history(state, None, range(1, 60))
    assert len(files(tmp_path)) <= 5 + 2 * 3 + 2


def test_a_query_that_restarts_at_a_retained_batch_finds_its_files_and_goes_on(tmp_path: Path) -> None:
    with task(tmp_path, POLICY) as state:
        old = history(state, None, range(1, 21))
        back = old[-6]
        branch = history(state, back, range(100, 130))
    assert last(tmp_path, branch[-1]) == 129
    assert named(branch[-6:]) <= files(tmp_path)
    assert not named(old[-4:]) & files(tmp_path), "the abandoned branch is garbage once the new one has passed it"


def test_a_zombie_that_collects_garbage_takes_nothing_from_the_branch_that_won(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with task(tmp_path, KEEP_ALL) as state, task(tmp_path, POLICY, local="zombie") as zombie:
        won = history(state, None, range(1, 31))
        for place in range(-6, 0):
            lost = commit(zombie, won[place], 666)
            collect_garbage(storage, lost, POLICY)
    assert named(won[-5:]) <= files(tmp_path)
    for manifest in won[-5:]:
        assert last(tmp_path, manifest) == manifest.sequence


def test_a_zombie_of_before_a_restart_takes_nothing_from_the_new_branch(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with task(tmp_path, KEEP_ALL) as state, task(tmp_path, POLICY, local="zombie") as zombie:
        old = history(state, None, range(1, 21))
        branch = history(state, old[-5], range(100, 101))
        lost = commit(zombie, old[-1], 666)
        assert collect_garbage(storage, lost, POLICY) > 0
    assert last(tmp_path, old[-5]) == old[-5].sequence
    assert last(tmp_path, branch[-1]) == 100


def test_files_of_attempts_that_lost_are_garbage_in_the_end(tmp_path: Path) -> None:
    with task(tmp_path, POLICY) as state:
        first = commit(state, None, 1)
        lost = commit(state, first, 666)
        won = history(state, first, range(2, 20))
    assert not (named([lost]) - named([first])) & files(tmp_path)
    assert last(tmp_path, won[-1]) == 19


def test_a_young_file_is_never_deleted(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    young = DurabilityPolicy(max_deltas=2, retained_commits=5, retained_age=3_600_000, retained_forks=0)
    with task(tmp_path, KEEP_ALL) as state:
        manifests = history(state, None, range(1, 30))
    assert collect_garbage(storage, manifests[-1], young) == 0
    hour_ago = os.stat(tmp_path).st_mtime - 7200
    for path in (tmp_path / "state").rglob("*.parquet"):
        os.utime(path, (hour_ago, hour_ago))
    assert collect_garbage(storage, manifests[-1], young) > 0
    assert last(tmp_path, manifests[-1]) == 29


def test_only_durable_files_of_the_own_lineage_are_deleted(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with task(tmp_path, KEEP_ALL) as state, task(tmp_path, KEEP_ALL, local="other") as other:
        manifests = history(state, None, range(1, 30))
        others = history(other, None, range(1, 3))
    note = tmp_path / "state" / manifests[0].directory / "note.txt"
    note.write_text("mine")
    assert collect_garbage(storage, manifests[-1], POLICY) > 0
    assert note.exists()
    assert named(others) <= files(tmp_path)
    assert last(tmp_path, others[-1]) == 2


FORKS = DurabilityPolicy(max_deltas=2, retained_commits=5, retained_age=0, retained_forks="1 hour")


def test_a_fork_that_lives_keeps_its_files_however_far_the_other_run_is(tmp_path: Path) -> None:
    with task(tmp_path, FORKS) as original, task(tmp_path, FORKS, "copy") as fork:
        ahead = shared = history(original, None, range(8))[-1]
        forked = [shared]
        for number in range(8, 20):
            forked.append(commit(fork, forked[-1], number))
            ahead = history(original, ahead, range(100, 110))[-1]
            assert [last(tmp_path, manifest) for manifest in forked[-4:]] == [*range(7, number + 1)][-4:]
        assert last(tmp_path, ahead) == 109
    assert shared.files[0].name not in files(tmp_path), "nothing was collected, so nothing was at risk"


def test_a_run_that_gave_no_sign_of_life_holds_no_garbage_back(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    with task(tmp_path, FORKS, "dead") as dead:
        shared = history(dead, None, range(4))[-1]
        dead.open(shared)
    with task(tmp_path, FORKS) as alive:
        newest = history(alive, shared, range(4, 60))[-1]
    pins = [file for file in storage.list(newest.directory) if file.path.endswith(".pin")]
    assert shared.files[0].name in files(tmp_path)
    an_hour_later = max(pin.modified_ms for pin in pins) + 3_600_001
    assert collect_garbage(storage, newest, FORKS, now_ms=an_hour_later) > 20
    assert shared.files[0].name not in files(tmp_path)
    assert not [file for file in storage.list(newest.directory) if file.path.endswith(".pin")]

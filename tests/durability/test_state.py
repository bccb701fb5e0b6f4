"""The state of a task from commit to commit, on every built-in backend."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import BackendInUseError, ConfigurationError, FormatError, StateConflictError, StoreClosedError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows, read_store
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.keyvalue import KeyValueStore
from millpond.stores.typed.layouts import Layout

PLAIN = StoreSpec("words", StoreKind.KEY_VALUE, STRING, INT64)
OTHER = StoreSpec("more", StoreKind.KEY_VALUE, STRING, INT64)
SPECS = [PLAIN, OTHER]


def task(directory: Path, backend: str, local: str = "local", **options: Any) -> TaskState:
    arguments: dict[str, Any] = {"application_id": "app", "task_id": "0_1", "fingerprint": "one", **options}
    specs = arguments.pop("specs", SPECS)
    storage = Storage.from_uri(directory / "state")
    return TaskState(specs, supplier(backend), local_dir=directory / local, storage=storage, **arguments)


def put(state: TaskState, manifest: Manifest | None, **entries: int | None) -> Manifest:
    store = state.open(manifest)["words"]
    assert isinstance(store, KeyValueStore)
    store.put_all(entries.items())
    return state.commit()


def content(state: TaskState, manifest: Manifest | None, name: str = "words") -> dict[str, int]:
    store = state.open(manifest)[name]
    assert isinstance(store, KeyValueStore)
    found = dict(store.scan())
    state.rollback()
    return found


def files(directory: Path) -> set[str]:
    return {path.name for path in (directory / "state").rglob("*.parquet")}


@pytest.fixture(params=["memory", "lmdb", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_commit_is_seen_by_the_next_open(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        first = put(state, None, a=1, b=2)
        second = put(state, first, a=3, b=None)
        assert content(state, second) == {"a": 3}
        assert (first.sequence, second.sequence) == (1, 2)


def test_a_rollback_leaves_nothing(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        first = put(state, None, a=1)
        store: Any = state.open(first)["words"]
        store.put("a", 2)
        state.rollback()
        assert content(state, first) == {"a": 1}


def test_opening_again_rolls_back_what_was_not_committed(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        store: Any = state.open(None)["words"]
        store.put("a", 2)
        assert content(state, None) == {}


def test_a_commit_without_changes_keeps_the_manifest_and_writes_no_file(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        first = put(state, None, a=1)
        before = files(tmp_path)
        state.open(first)
        assert state.commit() == first
        assert files(tmp_path) == before


def test_another_machine_restores_from_the_durable_files(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        manifest = put(state, None, a=1, b=2)
        for number in range(5):
            manifest = put(state, manifest, b=None, **{f"k{number}": number})
    with task(tmp_path, backend, local="elsewhere") as state:
        assert content(state, manifest) == {"a": 1, "k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 4}


def test_a_copy_that_is_behind_replays_what_it_missed(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as here, task(tmp_path, backend, local="elsewhere") as there:
        first = put(here, None, a=1, b=1)
        second = put(there, first, a=2, b=None)
        third = put(there, second, c=3)
        (path,) = (tmp_path / "state").rglob(f"*{first.commit}*")
        path.unlink()
        assert content(here, third) == {"a": 2, "c": 3}


def test_going_back_to_an_earlier_manifest_shows_its_content(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        first = put(state, None, a=1)
        put(state, first, a=2, b=2)
        assert content(state, first) == {"a": 1}
        branch = put(state, first, c=3)
        assert content(state, branch) == {"a": 1, "c": 3}
        assert content(state, None) == {}


def test_a_zombie_that_committed_last_does_not_change_what_its_successor_sees(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as zombie, task(tmp_path, backend) as successor:
        first = put(zombie, None, a=1)
        winner = put(successor, first, a=2)
        put(zombie, first, a=666, b=666)
        assert content(successor, winner) == {"a": 2}
        assert content(zombie, winner) == {"a": 2}


def test_changing_the_backend_is_a_restart(tmp_path: Path) -> None:
    manifest, expected = None, dict[str, int]()
    for number, name in enumerate(["memory", "lmdb", "rocksdb", "lmdb", "memory", "rocksdb"]):
        with task(tmp_path, name) as state:
            assert content(state, manifest) == expected
            manifest = put(state, manifest, **{f"k{number}": number, "last": number})
            expected |= {f"k{number}": number, "last": number}


def test_a_new_store_is_empty_and_the_others_keep_their_content(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend, specs=[PLAIN]) as state:
        manifest = put(state, None, a=1)
    with task(tmp_path, backend) as state:
        assert content(state, manifest, "more") == {}
        assert content(state, manifest) == {"a": 1}


def test_every_store_of_a_task_has_its_own_rows(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as state:
        stores: Any = state.open(None)
        stores["words"].put("a", 1)
        stores["more"].put("a", 2)
        manifest = state.commit()
    with task(tmp_path, backend, local="elsewhere") as state:
        assert content(state, manifest) == {"a": 1}
        assert content(state, manifest, "more") == {"a": 2}


def test_state_is_read_without_a_task(tmp_path: Path) -> None:
    with task(tmp_path, "memory") as state:
        first = put(state, None, a=1, b=2)
        second = put(state, first, a=None)
    storage = Storage.from_uri(tmp_path / "state")
    old: Any = read_store(storage, first, PLAIN)
    new: Any = read_store(storage, second, PLAIN)
    assert (dict(old.scan()), dict(new.scan())) == ({"a": 1, "b": 2}, {"b": 2})


def test_another_topology_on_the_same_state_directory_is_refused(tmp_path: Path) -> None:
    with task(tmp_path, "memory") as state:
        manifest = put(state, None, a=1)
    with (
        task(tmp_path, "memory", fingerprint="two") as state,
        pytest.raises(
            StateConflictError,
            match=r"another topology .* or of a release with other layouts; run the old topology and release there, or "
            r"give the new one another application id \(or state directory\) and a new checkpoint \[",
        ),
    ):
        state.open(None)
    with task(tmp_path, "memory") as state:
        assert content(state, manifest) == {"a": 1}
    (tmp_path / "other").mkdir()
    for directory, application_id in ((tmp_path, "new"), (tmp_path / "other", "app")):
        with task(directory, "memory", fingerprint="two", application_id=application_id) as state:
            assert content(state, put(state, None, b=2)) == {"b": 2}


def test_a_manifest_of_another_topology_or_task_is_refused(tmp_path: Path) -> None:
    with task(tmp_path, "memory") as state:
        manifest = put(state, None, a=1)
    (tmp_path / "other").mkdir()
    with task(tmp_path / "other", "memory", fingerprint="two") as state, pytest.raises(StateConflictError):
        state.open(manifest)
    with task(tmp_path, "memory", task_id="0_2") as state, pytest.raises(StateConflictError, match="task '0_1'"):
        state.open(manifest)
    told = "start the query whose checkpoint this is, with application_id='app', or this one with a checkpoint of its"
    with task(tmp_path, "memory", application_id="new") as state:
        with pytest.raises(StateConflictError, match=told):
            state.open(manifest)
        assert content(state, put(state, None, b=2)) == {"b": 2}
    with task(tmp_path, "memory", application_id="app") as state:
        assert content(state, manifest) == {"a": 1}


def test_a_task_that_is_open_elsewhere_is_refused_after_the_timeout(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend) as one, task(tmp_path, backend, lease_timeout=0.05) as two:
        one.open(None)
        with pytest.raises(BackendInUseError, match="in use by process"):
            two.open(None)
        one.rollback()
        two.open(None)


def test_opening_takes_no_longer_where_many_files_are_kept(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with task(tmp_path, backend) as state:
        manifest = put(state, put(state, None, one=1), two=2)
        monkeypatch.delattr(Storage, "list")
        assert content(state, manifest) == {"one": 1, "two": 2}


def test_an_exclusive_task_keeps_its_lease_between_batches(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend, exclusive=True) as one, task(tmp_path, backend, lease_timeout=0.05) as two:
        first = put(one, None, a=1)
        with pytest.raises(BackendInUseError):
            two.open(first)
        assert content(one, put(one, first, b=2)) == {"a": 1, "b": 2}
        one.close()
        assert content(two, first) == {"a": 1}


def test_a_commit_without_an_open_batch_is_refused(tmp_path: Path) -> None:
    with task(tmp_path, "memory") as state, pytest.raises(StoreClosedError, match="no batch open"):
        state.commit()


def test_two_stores_of_one_name_are_refused_until_one_is_renamed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"task '0_1' has two stores with the name 'words'; rename one \["):
        task(tmp_path, "memory", specs=[PLAIN, PLAIN])
    with task(tmp_path, "memory", specs=[PLAIN, replace(PLAIN, name="more")]) as state:
        manifest = put(state, None, a=1)
        assert (content(state, manifest), content(state, manifest, "more")) == ({"a": 1}, {})


def test_a_snapshot_follows_a_chain_of_deltas_that_got_too_long(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend, policy=DurabilityPolicy(max_deltas=3)) as state:
        manifest, lengths = None, []
        for number in range(9):
            manifest = put(state, manifest, a=number, **{f"k{number}": number})
            lengths.append(len(manifest.deltas))
        assert lengths == [0, 1, 2, 3, 0, 1, 2, 3, 0]
        expected = {"a": 8, **{f"k{number}": number for number in range(9)}}
        assert content(state, manifest) == expected
    with task(tmp_path, backend, local="elsewhere") as state:
        assert content(state, manifest) == expected


def scattered(number: int) -> int:
    """Return a number that does not compress with its neighbors."""
    return number * 0x9E3779B97F4A7C15 % 2**63


def test_much_state_is_not_rewritten_for_few_changes(tmp_path: Path, backend: str) -> None:
    policy = DurabilityPolicy(usual_deltas=3, max_deltas=8, min_delta_bytes=1 << 30)
    with task(tmp_path, backend, policy=policy) as state:
        manifest = put(state, None, **{f"k{key}": scattered(key) for key in range(20_000)})
        assert manifest.snapshot is not None
        assert manifest.snapshot.size > 150_000
        lengths = []
        for number in range(10):
            manifest = put(state, manifest, a=number)
            lengths.append(len(manifest.deltas))
        assert lengths == [1, 2, 3, 4, 5, 6, 7, 8, 0, 1]
        lengths = []
        for number in range(4):
            manifest = put(state, manifest, **{f"k{key}": scattered(key + 1) for key in range(number, 20_000, 4)})
            lengths.append(len(manifest.deltas))
        assert lengths == [2, 3, 0, 1]
        expected = content(state, manifest)
    with task(tmp_path, backend, local="elsewhere") as state:
        assert content(state, manifest) == expected


def test_a_plain_store_becomes_timestamped_and_plain_again(tmp_path: Path, backend: str) -> None:
    timestamped = StoreSpec("words", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
    with task(tmp_path, backend, specs=[PLAIN]) as state:
        manifest = put(state, None, a=1, b=2)
    with task(tmp_path, backend, specs=[timestamped]) as state:
        store: Any = state.open(manifest)["words"]
        assert dict(store.scan()) == {"a": (1, -1), "b": (2, -1)}
        store.put("b", 3, 1000)
        store.put("c", 4, 2000)
        manifest = state.commit()
        store = state.open(manifest)["words"]
        assert dict(store.scan()) == {"a": (1, -1), "b": (3, 1000), "c": (4, 2000)}
    with task(tmp_path, backend, local="elsewhere", specs=[PLAIN]) as state:
        assert content(state, manifest) == {"a": 1, "b": 3, "c": 4}
    if backend != "memory":
        with task(tmp_path, backend, specs=[PLAIN]) as state, pytest.raises(FormatError, match="delete the directory"):
            state.open(manifest)


def test_rows_of_a_later_layout_are_refused_by_number_and_left_alone(tmp_path: Path, backend: str) -> None:
    earlier, later = (replace(PLAIN, layout=Layout("pebbles", version)) for version in (1, 2))
    with task(tmp_path, backend, specs=[later]) as state:
        manifest = put(state, None, a=1)
    for local in ("local", "elsewhere"):
        with (
            task(tmp_path, backend, local, specs=[earlier]) as state,
            pytest.raises(FormatError, match=r"'words' holds .* version 2, .* in version 1; run .* delete nothing"),
        ):
            state.open(manifest)
    storage = Storage.from_uri(tmp_path / "state")
    with pytest.raises(FormatError, match="version 2"):
        read_store(storage, manifest, earlier)
    with pytest.raises(FormatError, match="version 2"):
        list(read_rows(storage, manifest, earlier))
    with task(tmp_path, backend, specs=[later]) as state:
        assert content(state, manifest) == {"a": 1}


def test_after_a_refused_layout_another_process_can_have_the_task(tmp_path: Path, backend: str) -> None:
    laid_out = replace(PLAIN, layout=Layout("pebbles", 1))
    with task(tmp_path, backend) as state:
        manifest = put(state, None, a=1)
    refused = task(tmp_path, backend, specs=[laid_out], exclusive=True)
    with pytest.raises(FormatError, match="without a layout's number"):
        refused.open(manifest)
    with task(tmp_path, backend, specs=[PLAIN], lease_timeout=0) as state:
        assert content(state, manifest) == {"a": 1}

"""A large snapshot is written in steps: no commit writes much of it, and every version is whole at any of them."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from millpond.errors import CorruptFileError, FormatError
from millpond.releases import Release
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import (
    DurabilityPolicy,
    Manifest,
    Severity,
    Storage,
    TaskState,
    read_rows,
    read_store,
    verify,
)
from millpond.stores.durability.manifests.parts import Unfinished
from millpond.stores.durability.manifests.policy import garbage_base
from millpond.stores.durability.parquet import steps
from millpond.stores.durability.storage.checked_text import checked_text
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

PLAIN = StoreSpec("words", StoreKind.KEY_VALUE, STRING, INT64)
STAMPED = StoreSpec("words", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
TIMES = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
VERSIONS = StoreSpec("prices", StoreKind.VERSIONED, STRING, INT64, history_retention=10**9)
SPECS = [PLAIN, TIMES, VERSIONS]
POLICY = DurabilityPolicy(usual_deltas=4, max_deltas=9, retained_commits=30, retained_age=0, step_rows=1)

Content = dict[str, dict[Any, Any]]


def storage_of(directory: Path) -> Storage:
    return Storage.from_uri(f"file://{directory}/state?sync=false")


def task(
    directory: Path,
    policy: DurabilityPolicy = POLICY,
    *,
    backend: str = "memory",
    local: str = "local",
    specs: list[StoreSpec] = SPECS,
    upgrade_from: Release | None = None,
) -> TaskState:
    return TaskState(
        specs,
        supplier(backend),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=storage_of(directory),
        fingerprint="one",
        policy=policy,
        upgrade_from=upgrade_from,
    )


def put(state: TaskState, manifest: Manifest | None, **content: int | None) -> Manifest:
    store: Any = state.open(manifest)["words"]
    store.put_all(list(content.items()))
    return Manifest.from_json(state.commit().to_json())


def filled(state: TaskState, rows: int) -> Manifest:
    return put(state, None, **{f"k{key:06d}": key for key in range(rows)})


def content(directory: Path, manifest: Manifest) -> dict[str, int]:
    store: Any = read_store(storage_of(directory), manifest, PLAIN)
    return dict(store.scan())


def files(directory: Path) -> set[str]:
    return {path.name for path in (directory / "state").rglob("*.parquet")}


class History:
    """Random micro-batches of a task with stores of three kinds, and what they come to."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.storage = storage_of(directory)
        self.kept: list[tuple[Manifest | None, Content]] = [(None, {spec.name: {} for spec in SPECS})]
        self.time = 0

    def go_on(self, state: TaskState, *, keeps: bool = True) -> None:
        manifest, before = self.kept[-1]
        stores: Any = state.open(manifest)
        after = {name: dict(rows) for name, rows in before.items()}
        self.time += 1
        for _ in range(self.random.randrange(1, 12)):
            name, key = self.random.choice(SPECS).name, f"k{self.random.randrange(40):02d}"
            value = self.random.choice([None, self.random.randrange(100), self.random.randrange(100)])
            if name == "words":
                stores[name].put(key, value)
            else:
                stores[name].put(key, value, self.time)
            if name == "prices" and value is not None:
                after[name][key, self.time] = value
            elif name == "prices":
                after[name].pop((key, self.time), None)
            elif value is None:
                after[name].pop(key, None)
            else:
                after[name][key] = value
        written = Manifest.from_json(state.commit().to_json())
        if keeps:
            self.kept.append((written, after))

    def check(self, manifest: Manifest, content: Content) -> None:
        for spec in SPECS:
            rows = read_rows(self.storage, manifest, spec)
            versioned = spec.name == "prices"
            assert {(key, time) if versioned else key: value for key, value, time in rows} == content[spec.name]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 0)) for seed in range(9)])
def test_every_retained_version_is_whole_at_every_step(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    policy = replace(POLICY, step_rows=(1, 17, 5)[seed % 3])
    tasks = [task(tmp_path, policy, backend=one, local=one) for one in ("memory", "lmdb", "rocksdb")]
    gathering = merging = finished = 0
    for number in range(45 if seed == 0 else 150):
        history.go_on(history.random.choice(tasks), keeps=history.random.random() < 0.8)
        if history.random.random() < 0.1:
            del history.kept[max(1, len(history.kept) - history.random.randrange(5)) :]
        newest, _ = history.kept[-1]
        if newest is None or newest.unfinished is None:
            finished += newest is not None and newest.parts is not None
        else:
            gathering += not newest.unfinished.parts
            merging += bool(newest.unfinished.parts)
        if number % 9 == 0:
            for manifest, rows in history.random.sample(history.kept[1:][-30:], 3 if number > 9 else 0):
                assert manifest is not None
                history.check(manifest, rows)
    assert all([gathering, merging, finished]), (gathering, merging, finished)
    for state in tasks:
        state.close()


def test_no_commit_writes_more_of_a_snapshot_than_its_step(tmp_path: Path) -> None:
    rows, policy = 5_000, replace(POLICY, step_rows=100)
    with task(tmp_path, policy) as state:
        manifest, chain = filled(state, rows), []
        before = files(tmp_path)
        for number in range(80):
            manifest = put(state, manifest, **{f"k{number * 7:06d}": -number})
            (file,) = manifest.deltas[-1:]
            assert file.part_rows <= 2 * rows // 16 + 2
            chain.append(len(manifest.deltas))
        assert manifest.parts is not None
        assert max(chain) <= 2 * 17
    assert not [name for name in files(tmp_path) - before if FileKind.SNAPSHOT in name]
    assert content(tmp_path, manifest) == {
        **{f"k{key:06d}": key for key in range(rows)},
        **{f"k{number * 7:06d}": -number for number in range(80)},
    }


def test_what_is_read_of_a_snapshot_are_durable_files(tmp_path: Path) -> None:
    """A step takes no local copy's word: whatever that has lost, the parts have."""
    with task(tmp_path, specs=[PLAIN], backend="lmdb") as state:
        manifest = filled(state, 300)
        while manifest.parts is None:
            store: Any = state.open(manifest)["words"]
            transaction = state._transactions["words"]
            transaction.backend.write({row: None for row, _ in list(transaction.scan())[5:200]})
            store.put("other", manifest.sequence)
            manifest = state.commit()
    found = content(tmp_path, manifest)
    assert found == {**{f"k{key:06d}": key for key in range(300)}, "other": manifest.sequence - 1}


def in_steps(directory: Path, rows: int = 300, *, until: str) -> Manifest:
    """Return a manifest whose next snapshot is as far as that: gathering, merging, or whole."""
    with task(directory, specs=[PLAIN]) as state:
        manifest = filled(state, rows)
        for number in range(60):
            unfinished = manifest.unfinished
            if until == "whole":
                there = manifest.parts is not None
            else:
                there = unfinished is not None and bool(unfinished.parts) is (until == "merging")
            if there:
                return manifest
            manifest = put(state, manifest, **{f"k{number:06d}": None, f"n{number}": number})
    raise AssertionError(f"it never is {until}")


@pytest.mark.parametrize("until", ["gathering", "merging", "whole"])
def test_version_4_says_what_version_2_cannot(tmp_path: Path, until: str) -> None:
    manifest = in_steps(tmp_path, until=until)
    text = manifest.to_json()
    written = json.loads(text)
    assert (written["millpond"], written["oldest_reader"]) == (4, "1.0.0")
    assert (("unfinished" in written), ("parts" in written)) == (until != "whole", until == "whole")
    assert Manifest.from_json(text) == manifest
    assert len(text) < 5_000
    assert {file.name for file in manifest.base} <= {
        file.name for file in (manifest.snapshot, *manifest.deltas) if file
    }
    del written["crc32"]
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(checked_text(written | {"millpond": 3}))


DAMAGE = {
    "a part of no delta": lambda content: content["parts"][1].append(99),
    "parts that are not in order": lambda content: content["parts"][1].reverse(),
    "a part twice": lambda content: content["parts"][1].append(content["parts"][1][-1]),
    "parts after the last step": lambda content: content["parts"].__setitem__(0, 1),
    "parts that are no list": lambda content: content.__setitem__("parts", 3),
    "more rows of a part than of its file": lambda content: content["deltas"][0].__setitem__(5, 10**6),
    "half of a part": lambda content: content["deltas"][0].pop(),
    "a snapshot of no commit": lambda content: content.__setitem__("unfinished", ["f" * 32, 0, 0, [], []]),
    "more deltas than there are": lambda content: content.__setitem__(
        "unfinished", [content["deltas"][0][1], 2, 0, [], []]
    ),
    "a run that is nowhere": lambda content: content.__setitem__(
        "unfinished", [content["deltas"][0][1], 0, 0, [[10**6, 0]], []]
    ),
    "a part from before it was begun": lambda content: content.__setitem__(
        "unfinished", [content["deltas"][-1][1], 0, 0, [], [content["deltas"][0][0]]]
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return in_steps(tmp_path_factory.mktemp("whole"), until="whole").to_json()


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_steps_that_no_commit_takes_are_refused(whole: str, change: Callable[[dict[str, Any]], None]) -> None:
    written = json.loads(whole)
    del written["crc32"]
    assert Manifest.from_json(checked_text(written)).parts is not None
    change(written)
    with pytest.raises(FormatError, match="damaged"):
        Manifest.from_json(checked_text(written))


@pytest.mark.parametrize("until", ["gathering", "merging", "whole"])
def test_a_damaged_part_is_found(tmp_path: Path, until: str) -> None:
    manifest = in_steps(tmp_path, until=until)
    storage = storage_of(tmp_path)
    specs = {"app": {"words": PLAIN}}
    assert verify(storage, lambda: [manifest], specs=specs).findings == ()
    file = next(delta for delta in reversed(manifest.deltas) if delta.part_rows)
    path = tmp_path / "state" / manifest.path(file)
    data = bytearray(path.read_bytes())
    end = pq.read_metadata(path)
    data[file.size - 8 - end.serialized_size - 3] ^= 1
    path.write_bytes(data)
    (finding,) = verify(storage, lambda: [manifest], specs=specs).findings
    assert (finding.severity, finding.where) == (Severity.BROKEN, storage.describe(manifest.path(file)))
    with task(tmp_path, specs=[PLAIN], local="elsewhere") as other:
        if until == "whole":
            with pytest.raises(CorruptFileError, match="is damaged"):
                other.open(manifest)
        else:
            other.open(manifest)


def test_a_release_that_knows_no_steps_gets_a_snapshot_at_once(tmp_path: Path) -> None:
    for until in ("gathering", "merging", "whole"):
        manifest = in_steps(tmp_path / until, until=until)
        expected = content(tmp_path / until, manifest)
        with task(tmp_path / until, specs=[PLAIN], upgrade_from=Release(0, 2)) as state:
            manifest = put(state, manifest, last=1)
            assert (manifest.oldest_reader, manifest.deltas) == (Release(0, 2), ())
            for _ in range(20):
                manifest = put(state, manifest, last=manifest.sequence)
                assert json.loads(manifest.to_json())["millpond"] == 2
        assert content(tmp_path / until, manifest) == {**expected, "last": manifest.sequence - 1}


def test_a_snapshot_of_another_topology_begins_anew(tmp_path: Path) -> None:
    manifest = replace(in_steps(tmp_path, until="merging"), fingerprint="")
    with task(tmp_path, specs=[PLAIN]) as state:
        unfinished = put(state, manifest, last=1).unfinished
    assert unfinished is None or unfinished.commit == manifest.commit


@given(st.lists(st.sampled_from(["delta", "snapshot", "begin", "step", "finish"]), max_size=120), st.integers(1, 20))
def test_garbage_is_older_than_all_that_retained_manifests_name(events: list[str], retained: int) -> None:
    policy = DurabilityPolicy(retained_commits=retained)
    manifest, history = Manifest.empty("app", "0_1", ""), []
    for sequence, event in enumerate(["snapshot", *events], start=1):
        before = manifest
        file = DurableFile(FileKind.DELTA, sequence, new_commit_id(), 3, 100, 0)
        going = before.unfinished
        if event == "snapshot":
            manifest = before.with_snapshot(file._replace(kind=FileKind.SNAPSHOT), policy.bases_after(before))
        elif event == "begin" and going is None and before.deltas:
            manifest = before.with_step(file, Unfinished(before.commit))
        elif going is not None and event != "delta":
            part = file._replace(part_rows=2, part_size=50)
            manifest = before.with_step(part, going.with_part(part, [0] * (1 + len(going.runs))))
            if event == "finish":
                manifest = manifest.with_finished(policy.bases_after(before))
        else:
            manifest = before.with_delta(file)
        manifest = Manifest.from_json(manifest.to_json())
        history.append(manifest)
        base = garbage_base(manifest, policy) or 0
        assert all(file.sequence >= base for kept in history[-retained - 1 :] for file in kept.files)
        assert len(manifest.bases) <= 18 + retained % 16


def test_garbage_of_steps_does_not_pile_up(tmp_path: Path) -> None:
    policy = replace(POLICY, retained_commits=6, retained_forks=0)
    with task(tmp_path, policy, specs=[PLAIN]) as state:
        manifest, most = filled(state, 100), 0
        for number in range(60):
            manifest = put(state, manifest, **{f"k{number % 9}": number})
            most = max(most, len(files(tmp_path)))
    assert most <= 6 + 3 * 17 + 2
    assert manifest.parts is not None
    assert manifest.bases


def test_a_step_takes_one_list_and_writes_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        original = getattr(Storage, name)

        def call(self: Storage, *args: Any, **named: Any) -> Any:
            calls[name] += 1
            return original(self, *args, **named)

        monkeypatch.setattr(Storage, name, call)

    for name in ("writing", "sizes", "list", "put", "put_once", "delete"):
        counted(name)
    with task(tmp_path, replace(POLICY, retained_commits=1000), specs=[PLAIN]) as state:
        manifest = put(state, filled(state, 300), first=1)
        stages = set()
        for number in range(60):
            calls.clear()
            before, there = manifest, files(tmp_path)
            manifest = put(state, manifest, **{f"k{number:06d}": number})
            stages.add((before.unfinished is not None, manifest.unfinished is not None))
            assert calls == {"writing": 1, "sizes": 1}
            assert len(files(tmp_path) - there) == 1
    assert len(stages) == 4


def test_a_step_takes_many_rows_at_once_of_runs_with_the_same_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    pieces_of = steps._pieces

    def counted(runs: Any, rows: int) -> Any:
        pieces = pieces_of(runs, rows)
        taken.append((len(pieces), sum(piece.num_rows for piece in pieces)))
        return pieces

    monkeypatch.setattr(steps, "_pieces", counted)
    monkeypatch.setattr(steps, "ROWS_PER_TABLE", 100)
    with task(tmp_path, replace(POLICY, step_rows=400), specs=[PLAIN]) as state:
        manifest = filled(state, 1000)
        for number in range(25):
            manifest = put(state, manifest, **{f"k{key:06d}": number for key in range(1000)})
    assert content(tmp_path, manifest) == {f"k{key:06d}": 24 for key in range(1000)}
    assert max(runs for runs, _ in taken) > 3
    assert max(rows for _, rows in taken) <= 100
    assert sum(rows for _, rows in taken) > 50 * len(taken)


@pytest.mark.parametrize("kinds", [(PLAIN, STAMPED), (STAMPED, PLAIN)], ids=["stamped", "plain again"])
def test_parts_are_written_in_the_format_that_the_store_has_now(tmp_path: Path, kinds: tuple[StoreSpec, ...]) -> None:
    """Rows that were written without timestamps get the unknown one, as in a snapshot at once, and the other way."""
    before, after = kinds
    policy = replace(POLICY, step_rows=50)

    def go_on(spec: StoreSpec, manifest: Manifest | None, numbers: range) -> Manifest:
        with task(tmp_path, policy, specs=[spec], local=spec.kind.value) as state:
            for number in numbers:
                store: Any = state.open(manifest)["words"]
                for key in range(300) if number == 0 else [number]:
                    store.put(f"k{key:06d}", number, *([17] if spec is STAMPED else []))
                manifest = state.commit()
        assert manifest is not None
        return manifest

    manifest = go_on(after, go_on(before, None, range(8)), range(8, 40))
    assert manifest.parts is not None
    storage = storage_of(tmp_path)
    assert verify(storage, lambda: [manifest], specs={"app": {"words": after}}).findings == ()
    found = {key: (value, time) for key, value, time in read_rows(storage, manifest, after)}
    unstamped = -1 if after is STAMPED else None
    stamped = 17 if after is STAMPED else None
    old = {f"k{key:06d}": (key if 0 < key < 8 else 0, unstamped) for key in range(300)}
    assert found == old | {f"k{key:06d}": (key, stamped) for key in range(8, 40)}

"""Going back to release 0.1.0: it reads what a job writes for it, whatever was written before, and nothing else."""

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet as pq

from millpond.releases import Release
from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing.store_calls import KINDS, RETENTION, WINDOW, KindUnderTest, Seeded
from tests.formats import first_release
from tests.formats.first_release import METADATA, RefusedError, Shown

FIRST = Release(0, 1)
BACKENDS = ("memory", "lmdb", "rocksdb")
ROUNDS = 2
COMMITS = 14
CALLS = 12


def shown(spec: StoreSpec, state_dir: Path, manifest: str) -> list[Any]:
    """Return what a store of release 0.1.0 shows."""
    store = Shown(first_release.read_rows(state_dir, manifest, spec.name), RETENTION)
    stamped = spec.kind.stamped and spec.kind is not StoreKind.VERSIONED
    if spec.kind is StoreKind.VERSIONED:
        return store.versions()
    if spec.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
        return store.windows(WINDOW, stamped=stamped, duplicates=spec.retain_duplicates)
    if spec.kind in (StoreKind.SESSION, StoreKind.TIMESTAMPED_SESSION):
        return store.sessions(stamped=stamped)
    return store.key_value(stamped=stamped)


def expected(kind: KindUnderTest, oracle: Any) -> list[Any]:
    """Return what the oracle of the kind holds."""
    if not kind.spec.kind.in_segments:
        return list(oracle.scan())
    return list(oracle.fetch_keys(None, None, *((None, None) if "fetch_all" in kind.reads else ())))


@dataclass
class Job:
    """A task with one store, whose process may restart after each commit."""

    directory: Path
    spec: StoreSpec
    backend: str
    manifest: str | None = None

    @property
    def state_dir(self) -> Path:
        return self.directory / "state"

    @property
    def copies(self) -> Path:
        return self.directory / "local" / "app" / "0_0" / self.backend

    def started(self, release: Release | None) -> TaskState:
        return TaskState(
            [self.spec],
            supplier(self.backend),
            application_id="app",
            task_id="0_0",
            local_dir=self.directory / "local",
            storage=Storage.from_uri(f"file://{self.state_dir}?sync=false"),
            fingerprint="topology/1",
            policy=DurabilityPolicy(max_deltas=3),
            upgrade_from=release,
        )

    def open(self, state: TaskState) -> Any:
        stores = state.open(None if self.manifest is None else Manifest.from_json(self.manifest))
        return stores[self.spec.name]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_release_0_1_reads_what_is_written_for_it_and_refuses_the_rest(kind: KindUnderTest, backend: str) -> None:
    seen = Counter[str]()
    for seed in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            live(Job(Path(directory), kind.spec, backend), kind, Seeded(seed), seen)
    assert min(seen[what] for what in ("delta", "snapshot", "refused", "went on")) >= ROUNDS, seen


def live(job: Job, kind: KindUnderTest, choices: Seeded, seen: Counter[str]) -> None:
    """Run a history of commits, some of them written for release 0.1.0, which sometimes goes on itself."""
    oracle = kind.oracle()
    for number in range(COMMITS):
        release, before = choices.pick((None, FIRST, FIRST)), job.manifest
        with job.started(release) as state:
            store = job.open(state)
            for _ in range(choices.integer(1, CALLS)):
                choices.pass_time()
                call = kind.draw(choices)
                assert kind.comparable(call(store)) == kind.comparable(call(oracle)), (number, call)
            job.manifest = state.commit().to_json()
        if release is None:
            if job.manifest != before:
                with pytest.raises(RefusedError, match="a manifest has version 2, and only version 1 is known"):
                    shown(job.spec, job.state_dir, job.manifest)
                seen["refused"] += 1
            continue
        found = shown(job.spec, job.state_dir, job.manifest)
        assert kind.comparable(found) == kind.comparable(expected(kind, oracle)), number
        for file in Manifest.from_json(job.manifest).files:
            seen[file.kind] += 1
        if choices.pick((False, True)):
            go_on_as_first_release(job)
            seen["went on"] += 1
    with job.started(None) as state:
        store = job.open(state)
        store.check()


def go_on_as_first_release(job: Job) -> None:
    """Restore the store in memory, finding no metadata that is not its own, and write a snapshot of it."""
    assert job.manifest is not None
    rows = first_release.read_rows(job.state_dir, job.manifest, job.spec.name)
    assert {row[1:] for row in rows if row.startswith(b"\x00")} <= METADATA
    if rows:
        job.manifest = first_release.write_snapshot(job.state_dir, job.manifest, job.spec.name, rows)


def test_it_refuses_the_files_of_this_release_too_whatever_the_manifest_says(tmp_path: Path) -> None:
    job = Job(tmp_path, KINDS[0].spec, "memory")
    with job.started(None) as state:
        fill(KINDS[0], job.open(state))
        newer = state.commit()
    unmarked = replace(newer, oldest_reader=FIRST).to_json()
    with pytest.raises(RefusedError, match="has format b'2', and only format 1 is known"):
        shown(job.spec, job.state_dir, unmarked)


def fill(kind: KindUnderTest, store: Any) -> None:
    """Put something."""
    choices = Seeded(1)
    for _ in range(CALLS):
        key, _, *times = kind.writes["put"](choices)
        store.put(key, "x", *times)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_every_page_that_is_written_for_it_has_its_checksum(kind: KindUnderTest, tmp_path: Path) -> None:
    job = Job(tmp_path, kind.spec, "memory")
    with job.started(FIRST) as state:
        fill(kind, job.open(state))
        manifest = state.commit()
    (path,) = job.state_dir.rglob("*.parquet")
    whole = path.read_bytes()
    assert shown(job.spec, job.state_dir, manifest.to_json())
    row_group = pq.ParquetFile(path).metadata.row_group(0)
    for column in (1, 2, 3):
        chunk = row_group.column(column)
        end = chunk.data_page_offset + chunk.total_compressed_size - 1
        path.write_bytes(whole[:end] + bytes([whole[end] ^ 1]) + whole[end + 1 :])
        with pytest.raises(RefusedError, match="is damaged"):
            shown(job.spec, job.state_dir, manifest.to_json())


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("checksums", [False, True], ids=["plain rows", "rows with checksums"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_it_refuses_copies_in_formats_that_it_does_not_know_and_restores_all_others(
    kind: KindUnderTest, checksums: bool, backend: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, replace(kind.spec, checksums=checksums), backend)
    with job.started(FIRST) as state:
        fill(kind, job.open(state))
        state.commit()
    if checksums or kind.spec.kind is StoreKind.VERSIONED:
        with pytest.raises(RefusedError, match=r"tested-v[3-6] is in a format that is not known"):
            first_release.check_directories(job.copies, job.spec.name)
        return
    first_release.check_directories(job.copies, job.spec.name)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with open_backend(backend, job.copies / job.spec.directory_name) as copy:
        assert not first_release.trusts(copy.get(b"\x00commit"), boot)
    assert first_release.trusts(f"{'0' * 32} {boot}".encode(), boot)

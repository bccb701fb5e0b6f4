"""Verification: every kind of damage is found and named, nothing is said of what is sound, and nothing is changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

from millpond.stores.backend.registry import open_backend, supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Report, Severity, Storage, Subject, TaskState, verify
from millpond.stores.durability.checking.repair import repairs_of_copies, repairs_of_garbage
from millpond.stores.durability.checking.verification import newest_sound
from millpond.stores.durability.copies.clean_shutdown import CleanShutdownMarker
from millpond.stores.durability.parquet.files import write_file
from millpond.stores.durability.parquet.rows import SCHEMA
from millpond.stores.durability.storage.durable_file import FileKind, new_commit_id
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.durability.keeping_schemas import evolve_schemas

COUNTS = StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64)
TIMES = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, STRING)
SPECS = {"app": {"counts": COUNTS, "times": TIMES}}
PERSISTENT = ["lmdb", "rocksdb"]
EVERY = ["memory", *PERSISTENT]


def task(directory: Path, backend: str = "memory", **options: Any) -> TaskState:
    given = {"local_dir": directory / "local", "storage": Storage.from_uri(directory / "state"), **options}
    return TaskState([COUNTS, TIMES], supplier(backend), application_id="app", task_id="0_0", **given)


def commit(state: TaskState, manifest: Manifest | None, number: int, rows: int = 30) -> Manifest:
    stores: Any = state.open(manifest)
    for key in range(rows):
        stores["counts"].put(f"key {key:04d}", key + number)
        stores["times"].put(f"key {key + number}", "text", number)
    return state.commit()


def committed(directory: Path, backend: str = "memory", commits: int = 3) -> list[Manifest]:
    manifests: list[Manifest] = []
    with task(directory, backend) as state:
        for number in range(commits):
            manifests.append(commit(state, manifests[-1] if manifests else None, number))
    return manifests


def verified(directory: Path, *manifests: Manifest, **options: Any) -> Report:
    given = {"specs": SPECS, "local_dirs": [directory / "local"], "workers": 2, **options}
    return verify(Storage.from_uri(directory / "state"), lambda: manifests, **given)


def path_of(directory: Path, manifest: Manifest, place: int = -1) -> Path:
    return directory / "state" / manifest.path(manifest.files[place])


def copy_of(directory: Path, store: str = "counts") -> Path:
    (found,) = (directory / "local" / "app" / "0_0").glob(f"*/{store}")
    return found


def everything(directory: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


@pytest.mark.parametrize("backend", EVERY)
def test_nothing_is_found_in_sound_state_and_nothing_is_changed(tmp_path: Path, backend: str) -> None:
    manifests = committed(tmp_path, backend)
    lease = tmp_path / "local" / "app" / "0_0" / "lease"
    lease.parent.mkdir(parents=True, exist_ok=True)
    lease.touch()
    before = everything(tmp_path)
    report = verified(tmp_path, manifests[-1])
    assert report.findings == ()
    assert report.sound
    assert (report.tasks, report.read.files, report.copies) == (1, 3, 0 if backend == "memory" else 2)
    assert report.read.size == sum(file.size for file in manifests[-1].files)
    assert everything(tmp_path) == before


def _gone(path: Path) -> None:
    path.unlink()


def _shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("damage", "said"), [(_gone, "is gone"), (_shorter, "bytes instead of"), (_flipped, "fail")])
def test_a_durable_file_that_is_not_what_was_written_is_named(
    tmp_path: Path, damage: Callable[[Path], None], said: str, place: int
) -> None:
    manifest = committed(tmp_path)[-1]
    path = path_of(tmp_path, manifest, place)
    damage(path)
    (finding,) = verified(tmp_path, manifest).findings
    assert (finding.severity, finding.subject, finding.task_id) == (Severity.BROKEN, Subject.FILE, "0_0")
    assert finding.where == str(path)
    assert said in finding.what
    assert "restart at an earlier micro-batch" in finding.cure


def test_the_newest_version_without_damage_is_found(tmp_path: Path) -> None:
    manifests = committed(tmp_path, commits=4)
    storage = Storage.from_uri(tmp_path / "state")
    versions = [(number, [manifest]) for number, manifest in reversed(list(enumerate(manifests)))]
    assert newest_sound(storage, versions) == 3
    _flipped(path_of(tmp_path, manifests[-1], 2))
    assert newest_sound(storage, versions) == 1
    _gone(path_of(tmp_path, manifests[-1], 0))
    assert newest_sound(storage, versions) is None


def test_a_manifest_whose_chain_lacks_a_commit_is_refused(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    without = Manifest("app", "0_0", "", manifest.lineage, None, manifest.deltas, ())
    (finding,) = verified(tmp_path, without, specs=None).findings
    assert (finding.severity, finding.subject) == (Severity.BROKEN, Subject.CHAIN)
    assert "commits [2, 3], which do not follow each other from 1 on" in finding.what
    versions = [(2, [without, manifest]), (1, [manifest])]
    assert newest_sound(Storage.from_uri(tmp_path / "state"), versions) == 1


def delta(directory: Path, manifest: Manifest, store: str, *rows: tuple[bytes, int | None, bytes | None]) -> Manifest:
    """Return the next version, with rows that nobody has checked."""
    columns = [[store] * len(rows), *map(list, zip(*rows, strict=True))]
    arrays: Any = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    table = pa.table(arrays, schema=SCHEMA)
    storage, sequence = Storage.from_uri(directory / "state"), manifest.sequence + 1
    return manifest.with_delta(
        write_file(storage, manifest.directory, FileKind.DELTA, sequence, new_commit_id(), [table])
    )


ROWS: list[tuple[str, list[tuple[bytes, int | None, bytes | None]], str]] = [
    ("counts", [(COMMIT_ROW, None, b"{}")], "00636f6d6d6974 is the position of a local copy"),
    ("counts", [(b"\x07x", None, b"{}")], "0778 is neither metadata nor data nor index"),
    ("times", [(b"\x00x", 7, b"{}")], "0078 has a timestamp although"),
    ("times", [(b"\x01x", 7, b"a"), (b"\x01y", None, b"b")], "some values have a timestamp, and others have none"),
]


@pytest.mark.parametrize(("store", "rows", "said"), ROWS)
def test_rows_that_no_store_writes_are_found_without_serdes(
    tmp_path: Path, store: str, rows: list[tuple[bytes, int | None, bytes | None]], said: str
) -> None:
    manifest = delta(tmp_path, committed(tmp_path)[-1], store, *rows)
    (finding,) = verified(tmp_path, manifest, specs=None).findings
    assert (finding.severity, finding.subject) == (Severity.BROKEN, Subject.ROWS)
    assert finding.where == str(path_of(tmp_path, manifest))
    assert f"store {store!r}" in finding.what
    assert said in finding.what


def test_rows_that_a_serde_cannot_read_are_named_with_key_and_file(tmp_path: Path) -> None:
    manifest = delta(
        tmp_path, committed(tmp_path)[-1], "counts", (b"\x01key 0003", None, b"abc"), (b"\x01z", None, b"")
    )
    later = delta(tmp_path, manifest, "counts", (b"\x01a", None, INT64.serialize(1)))
    assert verified(tmp_path, later, specs=None).sound
    (finding,) = verified(tmp_path, later).findings
    assert (finding.severity, finding.subject) == (Severity.BROKEN, Subject.ROWS)
    assert finding.where == str(path_of(tmp_path, manifest))
    first = b"\x01key 0003".hex()
    assert f"2 rows of store 'counts' cannot be read; the first is {first}: " in finding.what


def test_a_row_that_the_oldest_file_alone_has_is_named_with_that(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    (finding,) = verified(tmp_path, manifest, specs={"app": {"times": replace(TIMES, value_serde=INT64)}}).findings
    first = b"\x01key 0".hex()
    assert f"the first is {first}: " in finding.what
    assert finding.where == str(path_of(tmp_path, manifest, 0))


def test_what_the_manifests_do_not_name_is_counted(tmp_path: Path) -> None:
    manifests = committed(tmp_path)
    delta(tmp_path, manifests[-1], "counts", (b"\x01a", None, b"attempt that lost"))
    with task(tmp_path) as state:
        other = commit(state, None, 0)
    (tmp_path / "state" / "app" / "dead-letters").mkdir()
    report = verified(tmp_path, manifests[0])
    assert report.findings == ()
    assert report.unnamed.files == 3
    assert report.garbage.files == 0
    assert report.other_lineages == (1, other.files[0].size)
    assert verified(tmp_path, *manifests).unnamed.files == 1


def test_garbage_that_is_collected_meanwhile_is_no_finding(tmp_path: Path) -> None:
    policy = DurabilityPolicy(max_deltas=2, retained_commits=3, retained_age=0)
    manifests: list[Manifest] = []
    state = task(tmp_path, policy=policy)
    manifests.append(commit(state, None, 0))

    def given() -> list[Manifest]:
        found = manifests[-1:]
        if len(manifests) == 1:  # the job goes on between the reading of the manifest and that of the files
            for number in range(1, 12):
                manifests.append(commit(state, manifests[-1], number))
        return found

    storage = Storage.from_uri(tmp_path / "state")
    first = manifests[0]
    report = verify(storage, given, specs=SPECS, policy=policy)
    assert not path_of(tmp_path, first).exists()
    assert report.findings == ()
    assert [finding.subject for finding in verify(storage, lambda: [first], policy=policy).findings] == [Subject.FILE]
    state.close()


def test_copies_that_a_job_moves_on_meanwhile_are_compared_where_they_stand(tmp_path: Path) -> None:
    manifests = committed(tmp_path, "lmdb")

    def given() -> list[Manifest]:
        found = manifests[-1:]
        if len(manifests) == 3:
            with task(tmp_path, "lmdb") as state:
                for number in range(3, 7):
                    manifests.append(commit(state, manifests[-1], number))
        return found

    report = verify(Storage.from_uri(tmp_path / "state"), given, specs=SPECS, local_dirs=[tmp_path / "local"])
    assert (report.findings, report.copies, len(manifests)) == ((), 2, 7)


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_copy_that_differs_under_a_right_seal_is_found(tmp_path: Path, backend: str) -> None:
    manifest = committed(tmp_path, backend)[-1]
    directory = copy_of(tmp_path)
    longest = b"\x01key 0005".ljust(32, b"5")
    with open_backend(backend, directory) as copy:
        copy.write({b"\x01key 0002": INT64.serialize(77), b"\x01key 0005": None, longest: b"more"})
    CleanShutdownMarker(directory, checked_by_engine=supplier(backend).checksums, limit=1 << 30).closed()
    (finding,) = verified(tmp_path, manifest).findings
    assert (finding.severity, finding.subject, finding.where) == (Severity.HEALABLE, Subject.COPY, str(directory))
    wrong, missing, more = (f"row {row.hex()}" for row in (b"\x01key 0002", b"\x01key 0005", longest))
    assert "3 rows are not those of the durable files at commit 3" in finding.what
    assert f"{wrong} is {INT64.serialize(77).hex()} instead of {INT64.serialize(4).hex()}" in finding.what
    assert f"{missing} is missing; {more} should not be there" in finding.what


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_copy_behind_the_manifest_or_one_commit_beside_it_is_compared_where_it_stands(
    tmp_path: Path, backend: str
) -> None:
    manifests = committed(tmp_path, backend, commits=4)
    later = delta(tmp_path, manifests[-1], "counts", (b"\x01a", None, INT64.serialize(1)))
    for manifest in (later, manifests[-2]):
        report = verified(tmp_path, manifest)
        assert (report.findings, report.copies) == ((), 2)
    for finding in verified(tmp_path, manifests[0]).findings:
        assert (finding.severity, finding.subject) == (Severity.HARMLESS, Subject.UNTRUSTED_COPY)
        assert "at no commit of the manifest" in finding.what


def test_a_copy_whose_engine_cannot_be_reached_is_not_checked_and_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    away = FaultySupplier(supplier("lmdb"), FaultPlan(lambda step: Fault.AWAY if step is Step.BACKEND_OPEN else None))
    monkeypatch.setattr("millpond.stores.durability.checking.copy_verification.supplier", lambda _: away)
    findings = verified(tmp_path, manifest).findings
    assert {(finding.severity, finding.subject) for finding in findings} == {
        (Severity.HARMLESS, Subject.UNCHECKED_COPY)
    }
    assert len(findings) == 2


def test_a_copy_whose_files_have_changed_is_found_and_one_without_a_seal_is_not_used(tmp_path: Path) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    with (copy_of(tmp_path) / "data.mdb").open("ab") as file:
        file.write(b"more")
    (copy_of(tmp_path, "times-v2").parent / ".times-v2.seal").unlink()
    changed, unsealed = verified(tmp_path, manifest).findings
    assert (changed.severity, changed.subject) == (Severity.HEALABLE, Subject.COPY)
    assert "data.mdb has" in changed.what
    assert (unsealed.severity, unsealed.subject) == (Severity.HARMLESS, Subject.UNTRUSTED_COPY)
    assert verified(tmp_path, manifest).findings == (changed, unsealed)


def test_a_copy_whose_engine_finds_damage_is_found(tmp_path: Path) -> None:
    manifest = committed(tmp_path, "rocksdb")[-1]
    (copy_of(tmp_path) / "CURRENT").write_bytes(b"rubbish")
    (finding,) = verified(tmp_path, manifest).findings
    assert (finding.severity, finding.subject) == (Severity.HEALABLE, Subject.COPY)


def test_a_copy_in_use_is_left_alone(tmp_path: Path) -> None:
    manifest = committed(tmp_path, "rocksdb")[-1]
    with task(tmp_path, "rocksdb") as state:
        state.open(manifest)
        report = verified(tmp_path, manifest)
        assert {finding.subject for finding in report.findings} == {Subject.UNCHECKED_COPY}
        assert report.sound
        assert "in use by process" in report.findings[0].what
        commit(state, manifest, 9)


def test_of_a_copy_beside_damaged_files_it_is_said_that_it_may_stand_in(tmp_path: Path) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    _flipped(path_of(tmp_path, manifest, 0))
    broken, *copies = verified(tmp_path, manifest).findings
    assert broken.subject is Subject.FILE
    assert "start the job there: proven ones stand in, and it writes a fresh snapshot" in broken.cure
    assert {copy.subject for copy in copies} == {Subject.UNCHECKED_COPY}
    assert all("its files are as they were sealed" in copy.what for copy in copies)


def test_a_copy_of_a_backend_that_is_not_installed_cannot_be_checked(tmp_path: Path) -> None:
    manifest = committed(tmp_path, "lmdb")[-1]
    copy_of(tmp_path).parent.rename(tmp_path / "local" / "app" / "0_0" / "elsewhere")
    report = verified(tmp_path, manifest)
    assert {finding.subject for finding in report.findings} == {Subject.UNCHECKED_COPY}
    assert "there is no backend 'elsewhere'" in report.findings[0].what


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_copy_that_must_not_be_used_is_deleted_and_restored(tmp_path: Path, backend: str) -> None:
    manifest = committed(tmp_path, backend)[-1]
    wrong, right = copy_of(tmp_path), copy_of(tmp_path, "times-v2")
    (wrong / {"lmdb": "data.mdb", "rocksdb": "CURRENT"}[backend]).write_bytes(b"rubbish")
    (repair,) = repairs_of_copies(verified(tmp_path, manifest))
    assert repair.what == f"delete the local copy {wrong}; the next start restores it"
    repair.do()
    assert (wrong.exists(), right.exists()) == (False, True)
    with task(tmp_path, backend) as state:
        counts: Any = state.open(manifest)["counts"]
        assert dict(counts.scan()) == {f"key {key:04d}": key + 2 for key in range(30)}
    assert verified(tmp_path, manifest).findings == ()


def test_garbage_is_told_and_deleted_and_nothing_else(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path / "state")
    manifests: list[Manifest] = []
    with task(tmp_path, policy=DurabilityPolicy(max_deltas=2, retained_commits=4)) as state:
        for number in range(12):
            manifests.append(commit(state, manifests[-1] if manifests else None, number, rows=2))
    assert list(repairs_of_garbage(storage, manifests[-1:], DurabilityPolicy())) == []
    policy = DurabilityPolicy(retained_commits=4, retained_age=0, retained_forks=0)
    before = verified(tmp_path, manifests[-1], policy=policy)
    assert 0 < before.garbage.files < before.unnamed.files
    (repair,) = repairs_of_garbage(storage, manifests[-1:], policy)
    assert "beyond the retention" in repair.what
    assert verified(tmp_path, manifests[-1], policy=policy) == before
    repair.do()
    after = verified(tmp_path, *manifests[-5:], policy=policy)
    assert (after.findings, after.garbage.files) == ((), 0)
    left = verified(tmp_path, manifests[-1], policy=policy).unnamed.files
    assert left == before.unnamed.files - before.garbage.files


def test_histories_of_schemas_are_checked(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    storage = Storage.from_uri(tmp_path / "state")
    columns: list[Any] = [("id", pa.int64()), ("name", pa.string()), ("city", pa.string())]
    for count in (1, 2, 3):
        evolve_schemas(storage, "app", "in", pa.schema(columns[:count]))
    assert verified(tmp_path, manifest).findings == ()
    first, newest = (tmp_path / "state" / "app" / f"in-schema-{number}.json" for number in (1, 3))
    first.write_bytes(newest.read_bytes())
    _flipped(newest)
    broken, harmless = verified(tmp_path, manifest).findings
    assert (broken.severity, broken.subject, broken.where) == (Severity.BROKEN, Subject.SCHEMAS, str(newest))
    assert (harmless.severity, harmless.where) == (Severity.HARMLESS, str(first))


def test_a_report_is_data(tmp_path: Path) -> None:
    manifest = committed(tmp_path)[-1]
    rmtree(tmp_path / "state" / manifest.directory)
    report = verified(tmp_path, manifest)
    written = json.loads(json.dumps(report.to_dict()))
    assert not written["sound"]
    assert [finding["subject"] for finding in written["findings"]] == ["durable file"] * 3
    assert written["findings"][0]["cure"] == report.findings[0].cure
    first, *_, numbers, _, verdict = report.lines()
    assert first.startswith(f"broken: durable file of task '0_0' of 'app': the file {report.findings[0].where} is gone")
    assert numbers == "1 tasks: 0 files (0 bytes) read to the end, 0 local copies compared"
    assert verdict == "NOT SOUND: 3 broken, 0 healable, 0 harmless findings"

"""The backlog of a new format: in order, whole or not at all, and never more than what counts."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.errors import CorruptStoreError, StoreError
from millpond.stores.backend.column_changes import ColumnChanges
from millpond.stores.backend.contract import Changes
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.durability import Manifest
from millpond.stores.durability.copies.catchup_log import CatchupLog, Commit
from millpond.stores.durability.copies.position import Position, encode_position
from millpond.stores.durability.copies.sweep import AHEAD_ROW, NEXT_ROW, PART_ROW, Sweep
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.encoding.keys import COMMIT_ROW, DATA


def versions(count: int) -> list[Manifest]:
    """Return a manifest, and those that follow."""
    found = [Manifest.empty("app", "0_0", "").with_snapshot(file(FileKind.SNAPSHOT, 1), ())]
    while len(found) < count:
        found.append(found[-1].with_delta(file(FileKind.DELTA, len(found) + 1)))
    return found


def file(kind: FileKind, sequence: int) -> DurableFile:
    return DurableFile(kind, sequence, new_commit_id(), 1, 1, 1)


def commit_of(manifest: Manifest) -> Commit:
    commit = Commit.of(Position.of(manifest))
    assert commit is not None
    return commit


def changes_of(manifest: Manifest, rows: int = 3) -> Changes:
    number = manifest.sequence
    put = {DATA + b"%03d" % row: b"%d" % number for row in reversed(range(rows))}
    return {**put, DATA + b"deleted": None, COMMIT_ROW: encode_position(manifest)}


@pytest.fixture
def chain() -> list[Manifest]:
    return versions(5)


@pytest.fixture
def backlog(tmp_path: Path, chain: list[Manifest]) -> CatchupLog:
    """One that begins at the first version, with the others waiting."""
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    for manifest in chain[1:]:
        backlog.append(commit_of(manifest), changes_of(manifest))
    return backlog


def seen(backlog: CatchupLog, directory: Path) -> CatchupLog:
    """Return the log as another process sees it."""
    other = CatchupLog(directory / "backlog")
    other.look()
    assert (other.reached, other.waiting) == (backlog.reached, backlog.waiting)
    return other


def test_what_waits_is_there_in_order_until_it_is_reached(
    tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]
) -> None:
    other = seen(backlog, tmp_path)
    assert (other.reached, other.waiting) == (commit_of(chain[0]), list(map(commit_of, chain[1:])))
    for manifest in chain[1:]:
        keys, values = other.changes(commit_of(manifest))
        assert keys.to_pylist() == sorted(changes_of(manifest))
        assert dict(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == changes_of(manifest)
    other.reach(commit_of(chain[2]))
    assert (other.reached, other.waiting) == (commit_of(chain[2]), list(map(commit_of, chain[3:])))
    assert len(list((tmp_path / "backlog").iterdir())) == 3
    seen(other, tmp_path)


def test_changes_that_are_columns_wait_as_they_are(tmp_path: Path, chain: list[Manifest]) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    keys, values = pa.array([b"a", b"b"], pa.binary()), pa.array([b"1", None], pa.binary())
    backlog.append(commit_of(chain[1]), ColumnChanges(keys, values))
    assert backlog.changes(commit_of(chain[1])) == (keys, values)


def test_there_may_be_none(tmp_path: Path) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.look()
    assert (backlog.exists, backlog.reached, backlog.waiting, backlog.end) == (False, None, [], None)
    backlog.delete()


def test_what_comes_after_the_last_commit_that_counts_is_cut_off(
    tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]
) -> None:
    assert not backlog.cut(chain[-1])
    assert backlog.cut(chain[2])
    assert backlog.end == commit_of(chain[2])
    seen(backlog, tmp_path)
    other_branch = chain[2].with_delta(file(FileKind.DELTA, 4))
    assert not backlog.cut(other_branch)
    snapshot = chain[2].with_snapshot(file(FileKind.SNAPSHOT, 4), ())
    backlog.append(commit_of(snapshot), changes_of(snapshot))
    assert not backlog.cut(snapshot), "what led to a snapshot counts although it is not named any more"
    assert backlog.waiting == [*map(commit_of, chain[1:3]), commit_of(snapshot)]


def test_what_follows_a_gap_does_not_count(tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]) -> None:
    (tmp_path / "backlog" / f"{commit_of(chain[2])}.changes").unlink()
    other = CatchupLog(tmp_path / "backlog")
    other.look()
    assert other.end == commit_of(chain[1])
    assert len(list((tmp_path / "backlog").iterdir())) == 2


def test_what_a_kill_has_left_is_deleted(tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]) -> None:
    names = {path.name for path in (tmp_path / "backlog").iterdir()}
    for left in (f"{commit_of(chain[-1])}.new", f"{Commit(0, 'a' * 32)}.reached", f"{Commit(1, 'a' * 32)}.changes"):
        (tmp_path / "backlog" / left).write_bytes(b"torn")
    seen(backlog, tmp_path)
    assert {path.name for path in (tmp_path / "backlog").iterdir()} == names


def test_a_backlog_begins_anew_without_what_waited(tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]) -> None:
    backlog.begin(commit_of(chain[-1]))
    assert (backlog.end, backlog.waiting) == (commit_of(chain[-1]), [])
    assert len(list((tmp_path / "backlog").iterdir())) == 1
    seen(backlog, tmp_path)
    backlog.delete()
    assert not backlog.exists


def test_damage_is_told_and_never_read(tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]) -> None:
    commit = commit_of(chain[1])
    path = tmp_path / "backlog" / f"{commit}.changes"
    content = path.read_bytes()
    harmed = [content[:length] for length in (0, 7, 8, len(content) // 2, len(content) - 1)]
    for place in range(0, len(content), 13):
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        harmed.append(bytes(flipped))
    for bad in harmed:
        path.write_bytes(bad)
        with pytest.raises(CorruptStoreError, match=r"\.changes"):
            backlog.changes(commit)
    path.unlink()
    with pytest.raises(CorruptStoreError, match=r"\.changes"):
        backlog.changes(commit)


def test_what_cannot_be_written_does_not_wait(tmp_path: Path, backlog: CatchupLog, chain: list[Manifest]) -> None:
    following = chain[-1].with_delta(file(FileKind.DELTA, 6))
    shutil.rmtree(tmp_path / "backlog")
    with pytest.raises(StoreError, match=r"cannot be used: .*; check room and access"):
        backlog.append(commit_of(following), changes_of(following))
    assert backlog.end == commit_of(chain[-1])
    (tmp_path / "backlog").mkdir()
    backlog.append(commit_of(following), changes_of(following))
    assert backlog.end == commit_of(following)


def test_a_commit_is_named_by_its_bytes() -> None:
    commit = Commit(42, "c" * 32)
    assert Commit.parse(bytes(commit)) == commit
    with pytest.raises(ValueError, match="is no commit"):
        Commit.parse(b"nonsense")


@pytest.fixture
def target(chain: list[Manifest]) -> MemoryBackend:
    """A directory that was begun at the first version."""
    backend = MemoryBackend()
    backend.write({NEXT_ROW: b"", COMMIT_ROW: encode_position(chain[0])})
    return backend


def source_at(manifest: Manifest, rows: int) -> MemoryBackend:
    backend = MemoryBackend()
    backend.write({DATA + b"%04d" % row: b"held" for row in range(rows)} | {COMMIT_ROW: encode_position(manifest)})
    return backend


def test_a_sweep_writes_a_large_commit_in_steps_and_stands_at_it_after_the_last(
    tmp_path: Path, chain: list[Manifest], target: MemoryBackend
) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    large = {DATA + b"%04d" % row: b"put" for row in range(1200)} | {COMMIT_ROW: encode_position(chain[1])}
    backlog.append(commit_of(chain[1]), large)
    in_order = sorted(large)
    for left in (1201 - 500, 1201 - 1000):
        sweep = Sweep(target, seen(backlog, tmp_path))  # as after a restart
        sweep.check(chain[1])
        assert sweep.write_further() == 500
        assert (sweep.at, sweep.left) == (commit_of(chain[0]), left)
        assert target.get(PART_ROW) == bytes(commit_of(chain[1])) + b" " + in_order[1200 - left]
        assert target.get(AHEAD_ROW) == bytes(commit_of(chain[1]))
    sweep = Sweep(target, backlog)
    assert sweep.write_further() == 201
    assert (sweep.at, backlog.end, backlog.waiting) == (commit_of(chain[1]), commit_of(chain[1]), [])
    assert dict(target.scan()) == {**large, NEXT_ROW: b""}


def test_commits_that_wait_are_written_together_but_for_the_last(
    tmp_path: Path, chain: list[Manifest], target: MemoryBackend
) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    kept: dict[bytes, bytes | None] = {}
    for number, manifest in enumerate(chain[1:], start=1):
        rows = {DATA + b"%04d" % row: b"%d" % number for row in range(0, 3000, number)}
        changed: Changes = {**rows, DATA + b"%04d" % (7 * number): None, COMMIT_ROW: encode_position(manifest)}
        backlog.append(commit_of(manifest), changed)
        kept |= changed
        if manifest is chain[-2]:
            together = {row: value for row, value in kept.items() if value is not None}
    counts = []
    while len(backlog.waiting) > 1:
        sweep = Sweep(target, backlog)  # as after a restart
        sweep.check(chain[-1])
        counts.append(sweep.write_further())
    seen(backlog, tmp_path)
    assert 6 <= len(counts) <= 9, "3000 rows, whichever of three commits have changed them"
    assert sum(counts) == 3000 + 1500 + 1000 + 3
    assert dict(target.scan()) == {**together, NEXT_ROW: b""}
    while backlog.waiting:
        Sweep(target, backlog).write_further()
    assert dict(target.scan()) == {row: value for row, value in kept.items() if value is not None} | {NEXT_ROW: b""}


def test_a_pass_has_no_more_commits_than_fit_into_memory(
    tmp_path: Path, chain: list[Manifest], target: MemoryBackend
) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    for manifest in chain[1:]:
        large = bytes(20 << 20)
        backlog.append(commit_of(manifest), {DATA + b"row": large, COMMIT_ROW: encode_position(manifest)})
    sweep = Sweep(target, backlog)
    assert sweep.left == 2, "20 MiB, and not 40: a row and the position"
    while len(backlog.waiting) == 4:
        sweep.write_further()
    assert backlog.waiting == list(map(commit_of, chain[2:]))


def test_a_step_is_bounded_by_bytes(tmp_path: Path, chain: list[Manifest], target: MemoryBackend) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    large = {DATA + b"%d" % row: bytes(1 << 20) for row in range(5)}
    backlog.append(commit_of(chain[1]), {**large, COMMIT_ROW: encode_position(chain[1])})
    sweep = Sweep(target, backlog)
    assert [sweep.write_further() for _ in range(6)] == [1] * 6, "the position is a row, too"
    assert not backlog.waiting


def test_copied_rows_are_those_of_the_last_commit_once_nothing_waits(
    backlog: CatchupLog, chain: list[Manifest], target: MemoryBackend
) -> None:
    sweep, source = Sweep(target, backlog), source_at(chain[-1], 800)
    sweep.copy(sweep.piece(source, 600))
    assert target.get(AHEAD_ROW) == bytes(commit_of(chain[-1])), "it does not stand there yet"
    assert not sweep.copied_all
    sweep.write_further()
    sweep.copy(sweep.piece(source, 600))
    assert sweep.copied_all
    while backlog.waiting:
        sweep.write_further()
    expected = dict(source.scan()) | changes_of(chain[-1])
    assert dict(target.scan()) == {row: value for row, value in expected.items() if value is not None}


def test_rows_of_a_commit_that_does_not_count_are_found(
    backlog: CatchupLog, chain: list[Manifest], target: MemoryBackend
) -> None:
    sweep = Sweep(target, backlog)
    sweep.copy(sweep.piece(source_at(chain[-1], 800), 600))
    Sweep(target, backlog).check(chain[-1])
    backlog.cut(chain[2])
    with pytest.raises(CorruptStoreError, match="a commit that does not count"):
        Sweep(target, backlog).check(chain[2])


def test_a_commit_that_was_written_before_a_kill_waits_no_longer(
    backlog: CatchupLog, chain: list[Manifest], target: MemoryBackend
) -> None:
    target.write(changes_of(chain[1]))
    Sweep(target, backlog).check(chain[-1])
    assert backlog.reached == commit_of(chain[1])


def test_a_backlog_of_something_else_is_refused(
    backlog: CatchupLog, chain: list[Manifest], target: MemoryBackend
) -> None:
    backlog.reach(commit_of(chain[2]))
    with pytest.raises(CorruptStoreError, match="does not lead on"):
        Sweep(target, backlog).check(chain[-1])


@pytest.mark.parametrize("row", [PART_ROW, AHEAD_ROW])
def test_rows_that_make_no_sense_are_refused(backlog: CatchupLog, target: MemoryBackend, row: bytes) -> None:
    target.write({row: b"\xff"})
    with pytest.raises(CorruptStoreError, match="does not tell what it has"):
        Sweep(target, backlog)


def test_a_directory_without_a_position_is_refused(backlog: CatchupLog) -> None:
    with pytest.raises(CorruptStoreError, match="no commit that can be trusted"):
        Sweep(MemoryBackend(), backlog)


def test_changes_that_do_not_tell_where_they_lead_are_refused(
    tmp_path: Path, chain: list[Manifest], target: MemoryBackend
) -> None:
    backlog = CatchupLog(tmp_path / "backlog")
    backlog.begin(commit_of(chain[0]))
    backlog.append(commit_of(chain[1]), {DATA + b"a": b"1"})
    with pytest.raises(CorruptStoreError, match="does not tell where it leads"):
        Sweep(target, backlog).write_further()

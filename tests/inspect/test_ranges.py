"""Ranges of durable rows: what is found equals a plain dict, and little of a large file is read for a little of it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.adapters.inspect import Selection
from millpond.errors import CorruptFileError
from millpond.stores import BYTES, INT64, StoreKind, StoreSpec
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.checking.inspection import DurableRows
from millpond.stores.durability.parquet import known_keys, reading, rows
from millpond.stores.durability.parquet.spans import Span
from millpond.stores.encoding.partitions import partition_of
from tests.inspect.checkpoints import PARTITIONS, Query

PLAIN = StoreSpec("plain", StoreKind.KEY_VALUE, BYTES, INT64)
VERSIONS = StoreSpec("versions", StoreKind.VERSIONED, BYTES, INT64, history_retention=10**6)
WINDOWS = StoreSpec("windows", StoreKind.WINDOW, BYTES, INT64, retention=10**6, window_size=2)

keys = st.binary(max_size=3).map(lambda key: key.translate(bytes([0, 1, 255] * 85 + [0]))) | st.binary(max_size=2)
puts = st.lists(st.tuples(keys, st.none() | st.integers(0, 9), st.integers(0, 5)), max_size=20)
bounds = st.none() | keys


class Files:
    """The files of a task, with row groups of a few rows."""

    def __init__(self, directory: Path, spec: StoreSpec) -> None:
        self.storage = Storage.from_uri(directory / "state")
        self.spec = spec
        policy = DurabilityPolicy(max_deltas=2)
        self._state = TaskState(
            [spec],
            supplier("memory"),
            application_id="app",
            task_id="0_0",
            local_dir=directory / "local",
            storage=self.storage,
            policy=policy,
        )
        self.manifest: Manifest | None = None

    def commit(self, changes: Any) -> None:
        """Commit a micro-batch that puts these into the store."""
        store = self._state.open(self.manifest)[self.spec.name]
        for change in changes:
            store.put(*change)  # type: ignore[attr-defined]
        self.manifest = self._state.commit()

    def rows(self) -> DurableRows:
        assert self.manifest is not None
        return DurableRows(self.storage, self.manifest, self.spec.name, self.spec.format_version)

    def close(self) -> None:
        self._state.close()


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_PER_TABLE", 3)


@pytest.fixture(params=["keys of small files are read", "all files are searched"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "all files are searched":
        monkeypatch.setattr(known_keys, "_SMALL", -1)


def test_a_span_has_no_more_of_a_table_than_what_lies_between_its_ends() -> None:
    table = pa.table({"key": pa.array([b"a", b"b", b"c", b"d", b"e"])})
    (found,) = Span(b"b", b"d").tables(1, lambda place: b"a", lambda place: table)
    assert found["key"].to_pylist() == [b"b", b"c"]


@pytest.mark.usefixtures("small_groups", "reads")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(puts, min_size=1, max_size=4), start=bounds, stop=bounds, wanted=keys)
@pytest.mark.parametrize("spec", [PLAIN, VERSIONS], ids=lambda spec: spec.name)
def test_any_range_of_rows_and_any_row_is_what_a_whole_read_has(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, batches: Any, start: Any, stop: Any, wanted: bytes
) -> None:
    files = Files(tmp_path_factory.mktemp("files"), spec)
    for changes in batches:
        files.commit((key, value, time) if spec.versioned else (key, value) for key, value, time in changes)
    found = files.rows()
    whole = dict(found.scan())
    for first in (start, *whole):
        for last in (stop, wanted, None):
            if last is None or (first or b"") <= last:
                inside = [row for row in whole.items() if (first or b"") <= row[0] and (last is None or row[0] < last)]
                assert list(found.scan(first, last)) == inside
                assert list(found.scan(first, last, reverse=True)) == inside[::-1]
    for row in (wanted, b"\x01" + wanted, *whole):
        assert found.get(row) == whole.get(row)
    files.close()


@settings(max_examples=8, deadline=None)
@given(batches=st.lists(puts, min_size=1, max_size=3), start=bounds, stop=bounds)
def test_gets_and_scans_of_a_view_are_those_of_a_dict(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, start: bytes | None, stop: bytes | None
) -> None:
    query = Query(tmp_path_factory.mktemp("query"), [PLAIN])
    model: dict[bytes, int] = {}
    for changes in batches:

        def change(stores: Any, mine: Any, changes: Any = changes) -> None:
            for key, value, _ in changes:
                if key and mine(key.hex()):
                    stores["plain"].put(key, value)

        query.run(change)
        model |= {key: value for key, value, _ in changes if key}
    present = {key: value for key, value in model.items() if value is not None}
    view = query.inspector().store("plain")
    found = [row for batch in view.rows(Selection(start, stop)) for row in batch.to_pylist()]
    wanted = {key: value for key, value in present.items() if (start or b"") <= key and (stop is None or key < stop)}
    assert sorted((row["key"], row["value"]) for row in found) == sorted(wanted.items())
    for key in model:
        row = view.get(key)
        assert (None if row is None else row["value"][0].as_py()) == present.get(key)


@pytest.mark.usefixtures("small_groups", "reads")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(puts, min_size=1, max_size=4), missing=keys)
@pytest.mark.parametrize("spec", [PLAIN, VERSIONS, WINDOWS], ids=lambda spec: spec.name)
def test_a_look_for_a_key_finds_what_a_scan_has_of_it(
    tmp_path_factory: pytest.TempPathFactory, spec: StoreSpec, batches: Any, missing: bytes
) -> None:
    query = Query(tmp_path_factory.mktemp("query"), [spec])
    for changes in batches:

        def change(stores: Any, mine: Any, changes: Any = changes) -> None:
            for key, value, time in changes:
                if key and mine(key.hex()):
                    stores[spec.name].put(*((key, value) if spec is PLAIN else (key, value, time)))

        query.run(change)
    view = query.inspector().store(spec.name)
    scanned = [row for batch in view.rows() for row in batch.to_pylist()]
    for key in {missing, *(key for changes in batches for key, _, _ in changes)} - {b""}:
        mine = [row for row in scanned if row["key"] == key]
        found = view.get(key)
        if spec is VERSIONS:
            assert view.history(key).to_pylist() == mine
            mine = [row for row in mine if row["valid_to"] is None]
        assert (found.to_pylist() if found is not None else []) == mine


def test_a_look_for_a_key_reads_each_file_of_its_task_once_and_rows_of_those_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, known = Query(tmp_path, [PLAIN]), [b"%04d" % number for number in range(400)]
    for batch in range(12):

        def change(stores: Any, mine: Any, batch: int = batch) -> None:
            for key in known if batch == 0 else known[batch::40]:
                if mine(key.decode()):
                    stores["plain"].put(key, batch)

        query.run(change)
    view = query.inspector().store("plain")
    read: list[str] = []
    decoded: list[int] = []
    whole, table = Storage.read, reading._OpenFile._table

    def counted(self: Storage, path: str) -> bytes:
        read.append(path)
        return whole(self, path)

    def counted_table(self: Any, group: int) -> Any:
        decoded.append(group)
        return table(self, group)

    monkeypatch.setattr(Storage, "read", counted)
    monkeypatch.setattr(reading._OpenFile, "_table", counted_table)
    files = {part.task_id: {part.manifest.path(file) for file in part.manifest.files} for part in view.parts}
    for key, value in ((known[0], 0), (known[5], 5), (known[45], 5)):
        owner = f"0_{partition_of(key, PARTITIONS)}"
        found = view.get(key)
        assert found is not None
        assert found["value"].to_pylist() == [value]
        assert len(read) == len(files[owner]) == 12
        assert set(read) == files[owner]
        assert len(decoded) == (1 if value == 0 else 2)
        read.clear()
        decoded.clear()
    assert view.get(b"nobody") is None
    assert sorted(read) == sorted(path for paths in files.values() for path in paths)
    assert decoded == []


@pytest.fixture
def large(tmp_path: Path, small_groups: None) -> Files:
    """A file of a thousand row groups and a small one."""
    files = Files(tmp_path, PLAIN)
    files.commit((b"%06d" % number, number) for number in range(3000))
    files.commit([(b"000003", 7)])
    files.close()
    return files


def test_few_row_groups_are_read_for_one_key_or_a_short_range(large: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_keys, "_SMALL", 10_000)
    read: list[int] = []
    probed: list[int] = []
    table, first_key = reading._OpenFile._table, reading._OpenFile.first_key

    def counted(self: Any, group: int) -> Any:
        read.append(group)
        return table(self, group)

    def counted_probe(self: Any, group: int) -> bytes:
        probed.append(group)
        return first_key(self, group)

    monkeypatch.setattr(reading._OpenFile, "_table", counted)
    monkeypatch.setattr(reading._OpenFile, "first_key", counted_probe)
    found = large.rows()
    assert found.get(b"\x01001234") == (1234).to_bytes(8)
    assert len(read) == 1
    assert len(probed) <= 10
    read.clear()
    assert len(list(found.scan(b"\x01001234", b"\x01001254"))) == 20
    assert len(read) <= 20 // 3 + 2
    read.clear()
    assert found.get(b"\x01nobody") is None
    assert len(read) == 1


def test_what_a_range_reads_is_proved_and_what_it_does_not_is_not_missed(large: Files) -> None:
    assert large.manifest is not None
    path = large.storage.uri + "/" + large.manifest.path(large.manifest.files[0])
    data = bytearray(Path(path).read_bytes())
    data[100] ^= 1
    Path(path).write_bytes(data)
    assert large.rows().get(b"\x01002999") == (2999).to_bytes(8)
    with pytest.raises(CorruptFileError, match="fail their checksum"):
        large.rows().get(b"\x01000001")

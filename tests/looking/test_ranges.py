"""Ranges of durable rows: what is found equals a plain dict, and little of a large file is read for a little of it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.adapters.looking import Selection
from millpond.errors import CorruptFileError
from millpond.stores import BYTES, INT64, StoreKind, StoreSpec
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.inspection import DurableRows
from millpond.stores.durability.parquet import reading, rows
from millpond.stores.registry import supplier
from tests.looking.checkpoints import Query

PLAIN = StoreSpec("plain", StoreKind.KEY_VALUE, BYTES, INT64)
VERSIONS = StoreSpec("versions", StoreKind.VERSIONED, BYTES, INT64, history_retention=10**6)

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
        """A micro-batch that puts these into the store."""
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


@pytest.mark.usefixtures("small_groups")
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
    view = query.looking().store("plain")
    found = [row for batch in view.rows(Selection(start, stop)) for row in batch.to_pylist()]
    wanted = {key: value for key, value in present.items() if (start or b"") <= key and (stop is None or key < stop)}
    assert sorted((row["key"], row["value"]) for row in found) == sorted(wanted.items())
    for key in model:
        row = view.get(key)
        assert (None if row is None else row["value"][0].as_py()) == present.get(key)


@pytest.fixture
def large(tmp_path: Path, small_groups: None) -> Files:
    """A file of a thousand row groups and a small one."""
    files = Files(tmp_path, PLAIN)
    files.commit((b"%06d" % number, number) for number in range(3000))
    files.commit([(b"000003", 7)])
    files.close()
    return files


def test_few_row_groups_are_read_for_one_key_or_a_short_range(large: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    table = reading._OpenFile._table

    def counted(self: Any, group: int) -> Any:
        read.append(group)
        return table(self, group)

    monkeypatch.setattr(reading._OpenFile, "_table", counted)
    found = large.rows()
    assert found.get(b"\x01001234") == (1234).to_bytes(8)
    assert len(read) < 20
    read.clear()
    assert len(list(found.scan(b"\x01001234", b"\x01001254"))) == 20
    assert len(read) < 30
    read.clear()
    assert found.get(b"\x01nobody") is None
    assert len(read) < 20


def test_what_a_range_reads_is_proved_and_what_it_does_not_is_not_missed(large: Files) -> None:
    assert large.manifest is not None
    path = large.storage.uri + "/" + large.manifest.path(large.manifest.files[0])
    data = bytearray(Path(path).read_bytes())
    data[100] ^= 1
    Path(path).write_bytes(data)
    assert large.rows().get(b"\x01002999") == (2999).to_bytes(8)
    with pytest.raises(CorruptFileError, match="fail their checksum"):
        large.rows().get(b"\x01000001")

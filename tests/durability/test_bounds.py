"""Numbers that cannot be are refused in every file that is read, whatever it is; manifests have a test of their own."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import FormatError, SerdeError
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.durability import Storage
from millpond.stores.durability.copies.catchup_log import CatchupLog, Commit
from millpond.stores.durability.copies.clean_shutdown import DIED, CleanShutdownMarker, seal_path
from millpond.stores.durability.copies.lease import LEASE_FILE, Lease, lease_mark
from millpond.stores.durability.copies.position import NOWHERE, Position, boot_id, position_of
from millpond.stores.durability.manifests.claim import claim
from millpond.stores.durability.manifests.schema_log import is_schema, schema_places
from millpond.stores.durability.storage.checked_text import read_count
from millpond.stores.durability.storage.durable_file import DurableFile, FileKind, new_commit_id
from millpond.stores.encoding.keys import COMMIT_ROW
from millpond.stores.encoding.rows.schema_json import from_json
from millpond.stores.evolution.history import History
from millpond.stores.evolution.shape import Shape
from millpond.stores.typed.terms import KeptTerms

IMPOSSIBLE: Any = [2**63, 2**80, 10**30, -1, True, 1.5, "1", None]


@pytest.mark.parametrize("size", IMPOSSIBLE[:-1])
def test_a_seal_with_a_size_that_cannot_be_is_none(tmp_path: Path, size: Any) -> None:
    copy = tmp_path / "counts"
    copy.mkdir()
    (copy / "data").write_bytes(b"x")
    seal = CleanShutdownMarker(copy, checked_by_engine=False, limit=10)
    seal.closed()
    assert seal.fault() is None
    seal_path(copy).write_text(json.dumps({"data": [size, None]}))
    assert seal.fault() == DIED


@pytest.mark.parametrize("value", [2**31, 2**80, -1])
def test_a_schema_with_a_number_that_cannot_be_is_refused(value: int) -> None:
    column = {"id": 1, "name": "rate", "type": "decimal(10,2)", "nullable": True}
    assert from_json(json.dumps({"format": 1, "schemas": [[column]]}))
    with pytest.raises(SerdeError):
        from_json(json.dumps({"format": 1, "schemas": [[{**column, "id": value}]]}))


def test_names_with_numbers_that_cannot_be_are_strangers_names(tmp_path: Path) -> None:
    storage = Storage.from_uri(tmp_path)
    storage.put(f"app/right-schema-{10**30}.json", b"")
    assert not is_schema(f"right-schema-{10**30}.json")
    assert schema_places(storage, "app") == []
    claim(storage, "app", f"{'9f' * 16}/{10**30}")
    assert History.of(storage, "app", "sink").partitions is None
    backlog = tmp_path / "backlog"
    backlog.mkdir()
    (backlog / f"{10**30}-ab.reached").touch()
    found = CatchupLog(backlog)
    found.look()
    assert found.reached is None
    assert list(backlog.iterdir()) == []


@pytest.mark.parametrize("text", [b"-5-ab", b"1_0-ab", b"%d-ab" % 10**30, b"000000000001-", b"000000000001", b""])
def test_a_commit_that_none_has_written_is_refused(text: bytes) -> None:
    assert Commit.parse(b"000000000001-ab") == Commit(1, "ab")
    with pytest.raises(ValueError, match="is no commit"):
        Commit.parse(text)


@pytest.mark.parametrize(
    "change", [{"file": [10**30, "0" * 32, 1, 1, 1]}, {"file": [1, "0" * 32, 1, 2**80, 1]}, {"parent": 2**80}]
)
def test_a_position_that_cannot_be_is_unknown(change: dict[str, Any]) -> None:
    row = Position(DurableFile(FileKind.DELTA, 2, new_commit_id(), 1, 1, 1), new_commit_id()).encoded()
    backend = MemoryBackend()
    backend.write({COMMIT_ROW: row})
    assert position_of(backend) not in (None, NOWHERE)
    backend.write({COMMIT_ROW: json.dumps({**json.loads(row), "boot": boot_id(), **change}).encode()})
    assert position_of(backend) is None


@pytest.mark.parametrize("partitions", [2**31, 2**80])
def test_a_shape_with_partitions_that_cannot_be_is_refused(partitions: int) -> None:
    whole = Shape(3, ()).content
    with pytest.raises(FormatError):
        Shape.from_content({**whole, "partitions": partitions})


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_terms_have_numbers_of_64_bits(value: int) -> None:
    for content in ({"fixed": {"window": value}, "noted": {}}, {"fixed": {}, "noted": {"time": value}}):
        with pytest.raises(ValueError, match="damaged"):
            KeptTerms.from_bytes(json.dumps(content).encode())
    assert KeptTerms.from_bytes(json.dumps({"fixed": {}, "noted": {"time": -(2**63)}}).encode()).noted["time"] < 0


@pytest.mark.parametrize("holder", ["0", "-1", str(10**30), "1_0"])
def test_a_lease_asks_for_no_process_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    task = tmp_path / "app" / "0_0"
    lease = Lease(task, 0.0)
    lease.acquire()
    lease.release()
    (task / LEASE_FILE).write_text(f"{holder:<31}\n")
    asked: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, _: asked.append(process))
    mark = lease_mark(task)
    assert mark is not None
    assert not mark.ended
    assert asked == []


@pytest.mark.parametrize("value", IMPOSSIBLE)
def test_a_count_is_a_number_of_63_bits(value: Any) -> None:
    with pytest.raises(TypeError, match="is no count from 0 to"):
        read_count(value)

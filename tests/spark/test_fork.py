"""The files that a fork copies while the original goes on, and what can no longer be forked. No Spark runs."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from millpond.adapters.backup.checkpoint_copy import NAMED_SOURCES, CheckpointCopy
from millpond.adapters.spark.continuation.fork import fork_state
from millpond.adapters.spark.continuation.logs import OffsetLog
from millpond.errors import ConfigurationError, DurabilityError
from millpond.stores.durability import Storage
from millpond.stores.evolution.history import History
from tests.inspect.test_state_inspector import filled
from tests.spark.test_continuation import MemoryFiles

STATE = "state/0/1"


@dataclass
class RunningFiles(MemoryFiles):
    """Files of a query that goes on: what it does before each copy."""

    meanwhile: dict[str, Callable[[dict[str, str]], object]] = field(default_factory=dict)

    def copy(self, source: str, target: str) -> None:
        step = self.meanwhile.pop(source, None)
        if step is not None:
            step(self.content)
        if source not in self.content:
            raise DurabilityError(f"{source} is gone")
        super().copy(source, target)


def checkpoint(last: int) -> dict[str, str]:
    """Return a checkpoint with snapshots of versions 2 and 5, and changelogs of all versions."""
    content = {"metadata": '{"id":"1837db81"}'}
    for batch in range(last + 1):
        content |= {f"offsets/{batch}": f"v1\n{{}}\n{batch}", f"commits/{batch}": "v1\n{}"}
        content[f"{STATE}/{batch + 1}.changelog"] = content[f"{STATE}/left/{batch + 1}_a.changelog"] = "changes"
        content[f"sources/0/{batch}"] = "v1\nfiles"
    for version in (2, 5):
        content |= {f"{STATE}/{version}.zip": "rows", f"{STATE}/{version}.zip.crc": "checksum"}
    for batch in (0, 4):
        path = "file:/old/state/0/_stateSchema/default/0_b"
        content[f"state/0/_metadata/v2/{batch}"] = f'v2\n{{"stateSchemaFilePaths":["{path}"]}}'
    content |= {"state/0/_stateSchema/default/0_b": "schema", f"{STATE}/SSTs/7.sst": "table"}
    return {f"/old/{path}": text for path, text in content.items()}


def copied(files: RunningFiles, batch: int) -> dict[str, str]:
    CheckpointCopy(files, "/old", "/new", batch).make()
    return {path.removeprefix("/new/"): text for path, text in files.content.items() if path.startswith("/new/")}


def test_a_copy_has_the_files_of_its_version_and_an_id_of_its_own() -> None:
    made = copied(RunningFiles(checkpoint(6)), 3)
    assert {path for path in made if path.startswith(f"{STATE}/")} == {
        *(f"{STATE}/{name}" for name in ("2.zip", "2.zip.crc", "2.changelog", "3.changelog", "4.changelog")),
        *(f"{STATE}/left/{version}_a.changelog" for version in range(1, 5)),
        f"{STATE}/SSTs/7.sst",
    }
    assert {path for path in made if path.startswith(("offsets", "commits"))} == {
        "offsets/2",
        "offsets/3",
        "commits/3",
    }
    assert made["state/0/_metadata/v2/0"] == ('v2\n{"stateSchemaFilePaths":["/new/state/0/_stateSchema/default/0_b"]}')
    assert "state/0/_metadata/v2/4" not in made
    assert json.loads(made["metadata"])["id"] != "1837db81"
    assert {path: text for path, text in made.items() if path.startswith("sources")} == {
        f"sources/0/{batch}": "v1\nfiles" for batch in range(7)
    }


def test_what_the_query_replaces_while_it_is_copied_is_found_at_another_look() -> None:
    def compact(content: dict[str, str]) -> None:
        content["/old/sources/0/9.compact"] = "v1\nall files"
        del content["/old/sources/0/1"], content["/old/sources/0/2"]

    made = copied(RunningFiles(checkpoint(6), meanwhile={"/old/sources/0/1": compact}), 3)
    assert made["sources/0/9.compact"] == "v1\nall files"
    assert not {"sources/0/1", "sources/0/2"} & set(made)


def test_a_file_that_cannot_be_copied_and_is_there_is_an_error() -> None:
    files = RunningFiles(checkpoint(6))

    def fail(_: dict[str, str]) -> None:
        raise DurabilityError("no room")

    files.meanwhile[f"/old/{STATE}/4.changelog"] = fail
    with pytest.raises(DurabilityError, match="no room"):
        copied(files, 3)


def test_micro_batches_that_cannot_be_run_again_are_refused_and_later_ones_are_run() -> None:
    content = checkpoint(6)
    del content["/old/offsets/2"]
    copy = CheckpointCopy(RunningFiles(content), "/old", "/new", 3)
    with pytest.raises(ConfigurationError, match=r"retains no offsets/2.*choose a later micro-batch"):
        copy.offsets(range(2, 5))
    assert copy.offsets(range(3, 5)) == {3: "v1\n{}\n3", 4: "v1\n{}\n4"}
    for named in ("v2\n{}", f'v1\n{{"conf":{{"{NAMED_SOURCES}":"true"}}}}\n4'):  # of PySpark 4.3, and of 4.2
        content["/old/offsets/4"] = named
        with pytest.raises(ConfigurationError, match=r"sources have names.*compare what it has written by verify"):
            copy.offsets(range(3, 5))
        with pytest.raises(ConfigurationError, match=r"/offsets/4 is of a query whose sources .* without into="):
            OffsetLog.parse(named, "/old/offsets/4")


def test_a_fork_has_the_state_and_records_of_its_micro_batch_and_whatever_is_gone_is_named(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    storage, batch = query.storage, 2
    job = query.manifests[0].application_id
    target = Storage.from_uri(tmp_path / "fork")
    fork_state(storage, target, job, query.manifests, batch)
    for one in query.manifests:
        for file in one.files:
            assert target.read(one.path(file)) == storage.read(one.path(file))
    sinks = storage.directories(f"{job}/evolution")
    assert sinks
    for sink in sinks:
        assert History.of(target, job, sink).records == History.of(storage, job, sink).records
        assert not History.of(target, job, sink).queries
    lost = query.manifests[0].path(query.manifests[0].files[0])
    storage.delete(lost)
    with pytest.raises(ConfigurationError, match=r"is gone, which the state after micro-batch 2 needs; choose a"):
        fork_state(storage, Storage.from_uri(tmp_path / "again"), job, query.manifests, batch)
    fork_state(storage, Storage.from_uri(tmp_path / "later"), job, query.manifests[1:], batch)


def test_a_query_with_state_of_two_jobs_is_refused_and_that_of_one_is_forked(tmp_path: Path) -> None:
    query = filled(tmp_path / "query")
    target = Storage.from_uri(tmp_path / "fork")
    with pytest.raises(ConfigurationError, match="with one Millpond"):
        fork_state(query.storage, target, "other", query.manifests, 2)
    assert not target.directories("")
    fork_state(query.storage, target, query.manifests[0].application_id, query.manifests, 2)

"""Going back to an older release: what is written while it is named, it reads, and nothing is lost either way."""

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from millpond.errors import ConfigurationError
from millpond.releases import (
    OLDEST_READERS,
    RELEASE,
    THIS_RELEASE,
    Numbered,
    Release,
    newest_number,
    older_release,
    oldest_reader,
)
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState, read_rows
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.layouts import Layout
from tests.drawing import tries

TIMES = StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
FIRST = Release(0, 1)


def task(directory: Path, backend: str, release: Release | None, **options: Any) -> TaskState:
    given: dict[str, Any] = {"fingerprint": "topology/1", "specs": [TIMES], **options}
    return TaskState(
        given.pop("specs"),
        supplier(backend),
        application_id="app",
        task_id="0_0",
        local_dir=directory / "local",
        storage=Storage.from_uri(directory / "state"),
        policy=DurabilityPolicy(max_deltas=3),
        upgrade_from=release,
        **given,
    )


def commit(state: TaskState, manifest: Manifest | None, puts: Mapping[str, int]) -> Manifest:
    store: Any = state.open(manifest)["times"]
    for key, value in puts.items():
        store.put(key, value, value)
    return Manifest.from_json(state.commit().to_json())


def content(directory: Path, manifest: Manifest, spec: StoreSpec = TIMES) -> dict[str, int]:
    """Return what the durable files say."""
    return {key: value for key, value, _ in read_rows(Storage.from_uri(directory / "state"), manifest, spec)}


def formats(directory: Path, manifest: Manifest) -> list[dict[bytes, bytes]]:
    """Return the metadata of a manifest's files."""
    storage = Storage.from_uri(directory / "state")
    return [
        {key: value for key, value in (pq.read_metadata(path).metadata or {}).items() if key.startswith(b"millpond")}
        for path in (storage.describe(manifest.path(file)) for file in manifest.files)
    ]


def version_of(manifest: Manifest) -> str:
    return manifest.to_json()[: len('{"millpond":1')]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_state_of_this_release_goes_back_and_comes_again(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with task(tmp_path, backend, None) as state:
        newer = commit(state, None, {"a": 1, "b": 2})
    with caplog.at_level(logging.INFO, "millpond"), task(tmp_path, backend, FIRST) as state:
        older = commit(state, newer, {})
        last = commit(state, older, {"b": 3})
        assert commit(state, last, {}) == last
    assert [line for line in caplog.messages if "as release 0.1.0 reads it" in line] == [
        "task '0_0' of application 'app' is written as release 0.1.0 reads it"
    ]
    assert [file.kind for file in last.files] == ["snapshot", "delta"]
    for manifest in (older, last):
        assert version_of(manifest) == '{"millpond":1'
        for metadata in formats(tmp_path, manifest):
            assert metadata.keys() >= {b"millpond.commit"}
            assert (metadata[b"millpond.format"], metadata[b"millpond.oldest_reader"]) == (b"1", b"0.1.0")
            assert metadata.keys().isdisjoint({b"millpond.ranges", b"millpond.stores"})
    assert content(tmp_path, last) == {"a": 1, "b": 3}
    with task(tmp_path, backend, None) as state:
        again = commit(state, last, {"c": 4})
    assert [file.kind for file in again.files] == ["snapshot", "delta", "delta"]
    assert (version_of(again), again.oldest_reader) == ('{"millpond":2', Release(0, 2))
    assert content(tmp_path, again) == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize("release", [None, FIRST, THIS_RELEASE])
def test_a_task_without_rows_is_written_for_the_same_reader(tmp_path: Path, release: Release | None) -> None:
    with task(tmp_path, "memory", release) as state:
        empty = commit(state, None, {})
        assert (empty.files, version_of(empty)) == ((), '{"millpond":1' if release == FIRST else '{"millpond":2')
    with task(tmp_path, "memory", None) as state:
        assert version_of(commit(state, empty, {})) == '{"millpond":2'


@settings(max_examples=tries(30), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, FIRST]), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=2)
        ),
        max_size=8,
    )
)
def test_a_manifest_never_names_a_file_that_its_oldest_reader_does_not_read(
    runs: list[tuple[Release | None, dict[str, int]]],
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory, manifest, known = Path(place), None, dict[str, int]()
        for release, puts in runs:
            with task(directory, "memory", release) as state:
                manifest = commit(state, manifest, puts)
            known |= puts
            readers = [metadata[b"millpond.oldest_reader"].decode() for metadata in formats(directory, manifest)]
            assert manifest.oldest_reader <= (release or THIS_RELEASE)
            assert all(Release.of(reader) <= manifest.oldest_reader for reader in readers)
            assert content(directory, manifest) == known


LEFT_OUT = r"leave out upgrade_from, or give release 0\.2\.0 or a newer one \["


def goes_on_without_that_release(directory: Path, spec: StoreSpec = TIMES, fingerprint: str = "topology/1") -> None:
    """Run a task without a release to go back to, and with one that knows its state."""
    manifest, known = None, dict[str, int]()
    for release in (None, Release(0, 2), THIS_RELEASE):
        with task(directory, "memory", release, specs=[spec], fingerprint=fingerprint) as state:
            manifest = commit(state, manifest, {str(release): 1})
        known[str(release)] = 1
        assert content(directory, manifest, spec) == known


def test_a_layout_that_the_release_does_not_know_is_refused(tmp_path: Path) -> None:
    spec = replace(TIMES, layout=Layout("unpaired-records", 1))
    with pytest.raises(ConfigurationError, match=rf"the layout 'unpaired-records' of store 'times', .*; {LEFT_OUT}"):
        task(tmp_path, "memory", FIRST, specs=[spec])
    goes_on_without_that_release(tmp_path, spec)


def test_state_that_was_carried_over_does_not_go_back_to_a_release_without_records(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"release 0\.1\.0 knows no state that was carried over .*; {LEFT_OUT}"
    ):
        task(tmp_path, "memory", FIRST, fingerprint="topology/2#1@out")
    goes_on_without_that_release(tmp_path, fingerprint="topology/2#1@out")


def test_a_release_before_the_first_reads_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"0\.0\.9 of Millpond reads no .*; give release 0\.1\.0 or a newer one \["
    ):
        task(tmp_path, "memory", Release(0, 0, 9))
    with task(tmp_path, "memory", Release(0, 1)) as state:
        manifest = commit(state, None, {"a": 1})
    assert (version_of(manifest), content(tmp_path, manifest)) == ('{"millpond":1', {"a": 1})


@pytest.mark.parametrize("text", ["0.1", "0.1.0", RELEASE])
def test_releases_that_there_are_can_be_named(text: str) -> None:
    assert older_release(text) == Release.of(text)


@pytest.mark.parametrize("text", ["", "1", "0.1.0.0", "v0.1", "99.0.0", "0.0.9", None, 1, "0.1.0\n"])
def test_others_cannot(text: object) -> None:
    with pytest.raises(ConfigurationError, match="upgrade_from is"):
        older_release(text)


def test_releases_compare_as_they_came_out() -> None:
    assert Release.of("0.9") < Release.of("0.10.0") < Release.of("0.10.1") < Release.of("1.0")


@pytest.mark.parametrize("what", Numbered, ids=str)
def test_a_higher_number_is_read_by_no_older_release(what: Numbered) -> None:
    readers = [OLDEST_READERS[what][number] for number in sorted(OLDEST_READERS[what])]
    assert readers == sorted(readers)
    assert all(reader <= THIS_RELEASE for reader in readers)
    assert newest_number(what, THIS_RELEASE) == max(OLDEST_READERS[what])
    assert oldest_reader(what, max(OLDEST_READERS[what])) == readers[-1]

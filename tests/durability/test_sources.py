"""The reading of files: each is read once for all stores, several at once from afar, and an error ends it all."""

import errno
import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import CorruptFileError, DurabilityError, MissingFileError, StorageError
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import DurabilityPolicy, Manifest, Storage, TaskState
from millpond.stores.durability.parquet.sources import Fetched
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec

SPECS = [
    StoreSpec("counts", StoreKind.KEY_VALUE, STRING, INT64),
    StoreSpec("times", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64),
    StoreSpec("prices", StoreKind.VERSIONED, STRING, INT64, history_retention=1_000),
]
KEYS = 40
DELTAS = 12


@dataclass(frozen=True)
class Watched(Storage):
    """Counts how often each file is opened, and how many reads were under way at once; a far one takes its time."""

    far: bool = False
    opened: Counter[str] = field(default_factory=Counter)
    under_way: list[int] = field(default_factory=lambda: [0, 0])
    lock: Any = field(default_factory=threading.Lock)

    @property
    def remote(self) -> bool:
        return self.far

    def reading(self, path: str) -> Any:
        with self.lock:
            self.opened[path] += 1
        return _WatchedFile(super().reading(path), self)

    @contextmanager
    def reads(self) -> Iterator[None]:
        with self.lock:
            self.under_way[0] += 1
            self.under_way[1] = max(self.under_way)
        if self.far:
            threading.Event().wait(0.01)
        yield
        with self.lock:
            self.under_way[0] -= 1


class _WatchedFile:
    def __init__(self, file: Any, storage: Watched) -> None:
        self._file = file
        self._storage = storage
        self.size = file.size
        self.close = file.close

    def read(self, *size: int) -> bytes:
        with self._storage.reads():
            return bytes(self._file.read(*size))

    def read_at(self, size: int, offset: int) -> bytes:
        with self._storage.reads():
            return bytes(self._file.read_at(size, offset))

    def __enter__(self) -> "_WatchedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def task(directory: Path, storage: Storage, backend: str = "memory", local: str = "local") -> TaskState:
    return TaskState(
        SPECS,
        supplier(backend),
        application_id="app",
        task_id="0_0",
        local_dir=directory / local,
        storage=storage,
        policy=DurabilityPolicy(max_deltas=DELTAS),
    )


def content(state: TaskState, manifest: Manifest) -> dict[str, Any]:
    stores: Any = state.open(manifest)
    found = {name: list(store.scan()) for name, store in stores.items()}
    state.rollback()
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, dict[str, Any]]:
    """A snapshot and as many deltas as there may be, and what the stores hold."""
    directory = tmp_path_factory.mktemp("written")
    manifest: Manifest | None = None
    with task(directory, Storage.from_uri(directory / "state")) as state:
        for number in range(2 * DELTAS + 1):
            stores: Any = state.open(manifest)
            for key in range(number % 5, KEYS, 5):
                stores["counts"].put(f"key {key}", number if key % 7 else None)
                stores["times"].put(f"key {key}", key, number)
                stores["prices"].put(f"key {key}", number, number * 10)
            manifest = state.commit()
        assert manifest is not None
        assert manifest.snapshot is not None
        assert len(manifest.deltas) > 8
        return directory, manifest, content(state, manifest)


@pytest.fixture
def as_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as large, so that they are read by row groups."""
    monkeypatch.setattr("millpond.stores.durability.parquet.reading.WHOLE", 0)
    monkeypatch.setattr("millpond.stores.durability.parquet.sources.WHOLE", 0)


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("far", [False, True])
def test_stores_are_restored_from_files_that_are_read_once(
    tmp_path: Path, written: tuple[Path, Manifest, dict[str, Any]], backend: str, far: bool
) -> None:
    directory, manifest, expected = written
    storage = Watched(str(directory / "state"), far=far)
    with task(tmp_path, storage, backend) as state:
        assert content(state, manifest) == expected
    assert storage.opened == {manifest.path(file): 1 for file in manifest.files}
    assert storage.under_way[1] > 1 if far else storage.under_way[1] == 1


@pytest.mark.usefixtures("as_large_files")
@pytest.mark.parametrize("far", [False, True])
def test_large_files_are_opened_once_and_read_by_row_groups(
    tmp_path: Path, written: tuple[Path, Manifest, dict[str, Any]], far: bool
) -> None:
    directory, manifest, expected = written
    storage = Watched(str(directory / "state"), far=far)
    with task(tmp_path, storage) as state:
        assert content(state, manifest) == expected
    assert storage.opened == {manifest.path(file): 1 for file in manifest.files}
    assert storage.under_way[1] == 1


def test_row_groups_of_a_far_file_are_fetched_at_once_and_come_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_large_files: None
) -> None:
    monkeypatch.setattr("millpond.stores.durability.parquet.rows.ROWS_PER_TABLE", 4)
    with task(tmp_path, Storage.from_uri(tmp_path / "state")) as state:
        stores: Any = state.open(None)
        stores["counts"].put_all((f"key {number:03d}", number) for number in range(KEYS))
        manifest = state.commit()
    storage = Watched(str(tmp_path / "state"), far=True)
    with task(tmp_path, storage, local="elsewhere") as state:
        assert content(state, manifest)["counts"] == [(f"key {number:03d}", number) for number in range(KEYS)]
    assert storage.under_way[1] == 4


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("whole", [True, False])
def test_an_error_ends_the_other_reads_and_surfaces_as_what_it_is(
    tmp_path: Path,
    written: tuple[Path, Manifest, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    whole: bool,
) -> None:
    directory, manifest, expected = written
    if not whole:
        monkeypatch.setattr("millpond.stores.durability.parquet.reading.WHOLE", 0)
    path = directory / "state" / manifest.path(manifest.deltas[4])
    original = path.read_bytes()
    storage = Watched(str(directory / "state"), far=True)
    with task(tmp_path, storage, backend) as state:
        path.write_bytes(original[:20] + bytes([original[20] ^ 1]) + original[21:])
        try:
            with pytest.raises(CorruptFileError, match=f"{path.name} .* fail their checksum"):
                state.open(manifest)
        finally:
            path.write_bytes(original)
        gc.collect()  # from Python 3.13 on, the error's traceback and its frames hold each other
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("millpond")]
        assert content(state, manifest) == expected


@pytest.mark.usefixtures("as_large_files")
def test_a_storage_that_fails_within_a_file_is_not_taken_for_damage(
    tmp_path: Path, written: tuple[Path, Manifest, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, manifest, expected = written

    def fail(self: Watched) -> Any:
        raise OSError(errno.ECONNRESET, "the connection was lost")

    with task(tmp_path, Watched(str(directory / "state"))) as state:
        with monkeypatch.context() as patch:
            patch.setattr(Watched, "reads", fail)
            with pytest.raises(StorageError, match=r"cannot read .* connection was lost"):
                state.open(manifest)
        assert content(state, manifest) == expected


def test_a_file_that_could_not_be_read_can_be_read_again(
    tmp_path: Path, written: tuple[Path, Manifest, dict[str, Any]]
) -> None:
    directory, manifest, _ = written
    first, second = (manifest.path(file) for file in manifest.files[:2])
    gone = directory / "state" / second
    storage = Storage.from_uri(directory / "state")
    with Fetched(storage, manifest) as source:
        content = gone.read_bytes()
        gone.unlink()
        try:
            assert source.read(first) == storage.read(first)
            with pytest.raises(MissingFileError):
                source.read(second)
        finally:
            gone.write_bytes(content)
        assert source.read(second) == content
        with pytest.raises(DurabilityError):
            source.read("no file of this version")


def test_no_more_than_so_many_bytes_are_remembered(
    written: tuple[Path, Manifest, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, manifest, _ = written
    monkeypatch.setattr(
        "millpond.stores.durability.parquet.sources._KEPT_BYTES", sum(file.size for file in manifest.files[:3])
    )
    storage = Watched(str(directory / "state"), far=True)
    with Fetched(storage, manifest) as source:
        for _ in range(2):
            for file in manifest.files:
                source.read(manifest.path(file))
    assert [storage.opened[manifest.path(file)] for file in manifest.files] == [1, 1, 1] + [2] * len(
        manifest.deltas[2:]
    )

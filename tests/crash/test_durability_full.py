"""A disk without room for the local copy: a clear error, and everything committed stays.

The child may write no file of more than a mebibyte. The values repeat at a distance that Zstandard sees and engines do
not, so that the durable file fits and the local copy does not.
"""

import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import StoreFullError
from millpond.stores.backend.registry import open_backend
from millpond.stores.durability import Manifest, TaskState
from millpond.stores.encoding.serdes import BYTES, INT64
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from tests.durability.one_store import task

LIMITED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.crash.test_durability_full import act
act(Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5])
"""
LIMITED_ROWS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.crash.test_durability_full import write_rows
write_rows(Path(sys.argv[2]))
"""
BIG = StoreSpec("big", StoreKind.KEY_VALUE, INT64, BYTES)
VALUE = random.Random(0).randbytes(100_000)


def fill(state: TaskState, manifest: Manifest | None) -> Manifest:
    store: Any = state.open(manifest)["big"]
    store.put_all([(number, VALUE) for number in range(40)])
    return state.commit()


def act(directory: Path, backend: str, what: str, manifest: str) -> None:
    """Restore or commit more than there is room for, in the child, and tell what came of it."""
    limit_files()
    state = task(directory, backend, BIG)
    opened = Manifest.from_json(manifest)
    try:
        if what == "restore":
            state.open(opened)
        else:
            fill(state, opened)
    except Exception as error:
        print(type(error).__name__, flush=True)
    state.close()


def limit_files() -> None:
    """Limit this process from now on to files of at most a mebibyte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def write_rows(directory: Path) -> None:
    """Write rows one by one, in the child, until there is no room for one, and tell how many were written before."""
    limit_files()
    with open_backend("lmdb", directory) as opened:
        for number in range(10_000):
            try:
                opened.write({b"%06d" % number: VALUE[: 1 + number % 5_000]})
            except StoreFullError:
                print(number, flush=True)
                return


def report(directory: Path, backend: str, what: str, manifest: Manifest) -> str:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", LIMITED, root, str(directory), backend, what, manifest.to_json()]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_no_room_for_a_restore(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, "memory", BIG) as state:
        manifest = fill(state, None)
    assert report(tmp_path, backend, "restore", manifest) == "StoreFullError"
    with task(tmp_path, backend, BIG) as state:
        store: Any = state.open(manifest)["big"]
        assert [key for key, value in store.scan() if value == VALUE] == list(range(40))


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_no_room_for_a_commit(tmp_path: Path, backend: str) -> None:
    with task(tmp_path, backend, BIG) as state:
        store: Any = state.open(None)["big"]
        store.put(7, b"committed")
        manifest = state.commit()
    assert report(tmp_path, backend, "commit", manifest) == "StoreFullError"
    with task(tmp_path, backend, BIG) as state:
        store = state.open(manifest)["big"]
        assert list(store.scan()) == [(7, b"committed")]
        fill(state, manifest)


def test_no_room_for_a_row_that_is_written_alone_is_an_error_and_all_rows_before_it_stay(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED_ROWS, str(Path(__file__).parents[2]), str(tmp_path)]
    written = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.strip()
    assert int(written) > 100
    with open_backend("lmdb", tmp_path) as backend:
        assert [key for key, _ in backend.scan()] == [b"%06d" % number for number in range(int(written))]
        backend.write({b"room": b"again"})
        assert backend.get(b"room") == b"again"

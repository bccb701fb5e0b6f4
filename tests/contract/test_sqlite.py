"""Features that only SQLite has, in the backend of docs/writing-a-backend.md."""

import random
import re
import shutil
import sqlite3
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import (
    BackendError,
    BackendInUseError,
    ConfigurationError,
    CorruptStoreError,
    StoreError,
    StoreFullError,
)
from millpond.stores.backend.registry import open_backend
from millpond.stores.testing import Child
from millpond.stores.testing.comparison import check_same
from millpond.stores.testing.lifecycle import open_below
from millpond.stores.testing.programs import content_after, write_for_ever
from tests.contract.test_example_backend import SUPPLIER

translate_errors = import_module("millpond_sqlite").translate_errors


@pytest.mark.parametrize("page_cache", [-1, 2**41, 10**30, 1.5, True, None, "64MiB", float("nan")])
def test_a_page_cache_that_sqlite_would_take_for_another_is_refused(page_cache: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'page_cache' of the backend 'sqlite' is .* a number of bytes"):
        SUPPLIER(page_cache=page_cache)


def test_a_page_cache_in_a_url_that_sqlite_would_take_for_none_is_refused() -> None:
    assert SUPPLIER.from_options({"page_cache": "64 MiB"}) == SUPPLIER(page_cache=2**26)
    with pytest.raises(ConfigurationError, match="below 2 TiB"):
        SUPPLIER.from_options({"page_cache": "2TiB"})


def test_a_flush_that_another_process_keeps_from_the_disk_does_not_succeed(tmp_path: Path) -> None:
    with SUPPLIER().open(tmp_path) as backend:
        backend._db.execute("PRAGMA busy_timeout = 10")
        backend.write({b"a": b"1"})
        backend.flush()
        other = sqlite3.connect(tmp_path / "entries.db", isolation_level=None)
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM entries").fetchall() == [(1,)]
        backend.write({b"b": b"2"})
        with pytest.raises(BackendInUseError, match="so it was not flushed"):
            backend.flush()
        other.execute("ROLLBACK")
        backend.flush()
        other.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_BUSY_SNAPSHOT", BackendInUseError),
        ("SQLITE_BUSY_RECOVERY", BackendInUseError),
        ("SQLITE_LOCKED_SHAREDCACHE", BackendInUseError),
        ("SQLITE_CORRUPT_INDEX", CorruptStoreError),
        ("SQLITE_IOERR_SHMSIZE", StoreFullError),
    ],
)
def test_what_sqlite_says_in_more_detail_is_the_same_error(name: str, kind: type[StoreError]) -> None:
    error = sqlite3.OperationalError("in detail")
    error.sqlite_errorname = name
    assert type(translate_errors(Path("store")).translated(error)) is kind


def test_a_commit_survives_a_kill_at_once_and_whole_wherever_the_directory_is_afterwards(tmp_path: Path) -> None:
    """Process after process is killed at a time of chance, and between them the directory is renamed or copied."""
    chance, place, written = random.Random(20), tmp_path / "0", 0
    for kill in range(1, 13):
        with Child(write_for_ever, SUPPLIER(), place, 500, 10) as child:
            reports = [child.read() for _ in range(chance.randrange(3))]
            time.sleep(chance.random() * 0.05)
            child.kill()
            reports += child.read_rest()
        written = max([written, *(int(report) for report in reports if report.isdigit())])
        moved = tmp_path / str(kill)
        if kill % 2:
            place.rename(moved)
        else:
            shutil.copytree(place, moved)
        place = moved
        with open_backend(SUPPLIER(), place) as backend:
            content = dict(backend.scan())
        count = sum(key.startswith(b"log") for key in content)
        assert count in (written, written + 1)
        check_same(content.items(), sorted(content_after(count, 500).items()))
        written = count
    assert written > 20


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(5000), None])
@pytest.mark.parametrize("file", ["entries.db", "entries.db-wal"])
def test_an_opening_that_fails_leaves_no_file_open(tmp_path: Path, file: str, content: bytes | None) -> None:
    """Something else, or a directory, is in the place of a file."""
    with SUPPLIER().open(tmp_path) as backend:
        backend.write({b"a": b"1"})
    place = tmp_path / file
    place.unlink(missing_ok=True)
    if content is None:
        place.mkdir()
    else:
        place.write_bytes(content)
    try:
        SUPPLIER().open(tmp_path).close()
        refused = None
    except BackendError as error:
        refused = error
    assert isinstance(refused, BackendError) == (content is None or (file == "entries.db" and content != b""))
    assert open_below(tmp_path) == []


def test_a_directory_in_the_place_of_the_database_says_what_to_look_for(tmp_path: Path) -> None:
    (tmp_path / "entries.db").mkdir()
    with pytest.raises(BackendError, match=f"{re.escape(str(tmp_path))} cannot be used .*entries.db is a file"):
        SUPPLIER().open(tmp_path)

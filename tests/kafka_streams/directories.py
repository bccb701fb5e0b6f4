"""State directories: the recorded ones, and such as tests make up, with RocksDB as the Java client uses it."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import rocksdict

from tests.golden.loader import Case, attachment, cases

TIMED = "keyValueWithTimestamp"


def recorded(name: str) -> Case:
    """Return a case of the family ``statedirs`` of the project's own copy."""
    return next(case for case in cases(None) if case.id == f"statedirs/{name}")


def unpacked(case: Case, into: Path, golden_dir: Path | None = None) -> Path:
    """Return the directory of the application of a case, below ``into``."""
    data = attachment(golden_dir, case.family, case.content["archive"])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(into, filter="data")
    return into / "app"


def write_database(directory: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> Path:
    """Return a RocksDB directory with these rows, written without a log and closed."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    directory.mkdir(parents=True)
    database = rocksdict.Rdict(str(directory), options)
    unlogged = rocksdict.WriteOptions()
    unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
    for family, rows in families.items():
        handle = database if family == "default" else database.create_column_family(family, options)
        for key, value in rows.items():
            handle.put(key, value, unlogged)
        handle.flush(True)
        if handle is not database:
            handle.close()
    database.close()
    return directory


def write_task(task: Path, offset: int = 7) -> Path:
    """Return the directory of a task with a ``.checkpoint``."""
    task.mkdir(parents=True, exist_ok=True)
    (task / ".checkpoint").write_text(f"0\n1\napp-store-changelog {task.name[-1]} {offset}\n")
    return task


def content_of(directory: Path) -> dict[str, bytes | None]:
    """Return every file below a directory with its bytes, and every folder."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }

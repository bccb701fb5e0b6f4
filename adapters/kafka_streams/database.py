"""One RocksDB directory of the Java client, opened for reading alone.

Rule of this module: nothing is written into the directory, not even a log. RocksDB opens a directory beside it, which
has links to the tables and copies of the small files. Whatever would make RocksDB go on with less than the application
has written is refused before: tables that the manifest does not name, a log with content, somebody who writes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, Final

import rocksdict

from millpond.adapters.kafka_streams.entries import Row, Rows
from millpond.adapters.rocksdb import lock_holder
from millpond.errors import BackendError, BackendInUseError, KafkaStreamsStateError, StoreError

DEFAULT: Final = "default"
WITH_TIMESTAMP: Final = "keyValueWithTimestamp"

_LINKED: Final = frozenset((".sst", ".blob"))
_COPIED: Final = ("CURRENT", "IDENTITY", "MANIFEST-")
_OTHER_TABLES: Final = (0x8242229663BF9564, 0x926789D0C5F17873)
"""The numbers at the end of RocksDB's plain and cuckoo tables."""


class Database:
    """An open RocksDB directory.

    Attributes:
        directory: of the Java client.
        store: what errors call the store.
        families: its column families.
    """

    def __init__(self, directory: Path, store: str, view: Path, engine: Any, families: list[str]) -> None:
        self.directory = directory
        self.store = store
        self.families = families
        self._view = view
        self._engine = engine
        self._tables: list[dict[str, Any]] = engine.live_files()

    def rows(self, family: str, prefix: bytes = b"") -> Rows:
        """Yield the rows of a column family whose keys begin with ``prefix``, in order; none without such a family.

        Raises:
            CorruptStoreError: a table is damaged.
            BackendInUseError: another process has opened the directory meanwhile.
        """
        if family not in self.families:
            return
        where = self._where(family)
        with _errors(self.directory, self.store, self._view):
            walk = self._engine.get_column_family(family).iter()
            walk.seek(prefix)
            while walk.valid():
                key: bytes = walk.key()
                if not key.startswith(prefix):
                    return
                yield Row(key, walk.value(), where)
                walk.next()
            # Without it, a damaged block would be the end of the rows.
            walk.status()
        refuse_locked(self.directory / "LOCK", self.store)

    def first(self, family: str, start: bytes) -> Row | None:
        """Return the first row of a column family from ``start`` on, or None.

        Raises:
            CorruptStoreError: a table is damaged.
        """
        with _errors(self.directory, self.store, self._view):
            walk = self._engine.get_column_family(family).iter()
            walk.seek(start)
            if walk.valid():
                return Row(walk.key(), walk.value(), self._where(family))
            walk.status()
        return None

    def check_whole(self) -> None:
        """Refuse a directory that has tables which its manifest does not name: some of its rows would be missing.

        Raises:
            CorruptStoreError: there are such tables.
        """
        named = {Path(table["name"]).name for table in self._tables}
        others = sorted({path.name for path in self.directory.glob("*.sst")} - named)
        if others:
            raise KafkaStreamsStateError(
                f"store {self.store!r}: {self.directory} has tables that its MANIFEST does not name: "
                f"{', '.join(others)}. If the application was not closed cleanly, start it once and stop it; if it "
                f"was, the MANIFEST is damaged; {restored(self.directory)}"
            )

    def _where(self, family: str) -> Callable[[bytes], str]:
        def where(key: bytes) -> str:
            names = sorted(Path(one["name"]).name for one in self._tables if one["start_key"] <= key <= one["end_key"])
            return f"store {self.store!r}, {self.directory}, column family {family}, in {' or '.join(names)}"

        return where


@contextmanager
def open_database(directory: Path, store: str) -> Iterator[Database]:
    """The RocksDB in ``directory``.

    Raises:
        BackendInUseError: another process has it open.
        CorruptStoreError: a file is damaged or missing, or was not finished.
        FormatError: it was written with options that are not known here.
        BackendError: the system does not let it be read.
    """
    refuse_locked(directory / "LOCK", store)
    for log in sorted(directory.glob("*.log")):
        if log.stat().st_size:
            raise KafkaStreamsStateError(
                f"store {store!r}: {log} is not empty, but Kafka Streams writes no log, so something else has written "
                "here; start the application once and stop it, which brings the log into the tables"
            )
    with TemporaryDirectory(prefix="millpond-") as place:
        view = Path(place) / directory.name
        with _errors(directory, store, view):
            _make_view(directory, view)
            engine, families = _opened(view)
        try:
            database = Database(directory, store, view, engine, families)
            database.check_whole()
            yield database
        finally:
            engine.close()


def refuse_locked(lock: Path, store: str) -> None:
    """Refuse to read what another process may change.

    Raises:
        BackendInUseError: a process holds the lock.
    """
    holder = lock_holder(lock) if lock.exists() else None
    if holder is not None:
        raise BackendInUseError(
            f"store {store!r}: {lock.parent} is in use by process {holder}, which holds {lock}; stop the application, "
            "or read a copy that was made while it was stopped"
        )


def restored(directory: Path) -> str:
    """Return the advice for a damaged RocksDB directory, which lies in its task's directory."""
    return (
        f"copy it again while the application is stopped, or delete {directory.parent.parent}, start the application, "
        "which restores it from its changelogs, and stop it"
    )


def is_database(directory: Path) -> bool:
    """Return whether a directory is one of RocksDB, even a damaged one."""
    return directory.is_dir() and any(
        path.name == "CURRENT" or path.suffix == ".sst" or path.name.startswith("MANIFEST-")
        for path in directory.iterdir()
    )


def _make_view(directory: Path, view: Path) -> None:
    view.mkdir()
    for path in directory.iterdir():
        if path.suffix in _LINKED:
            (view / path.name).symlink_to(path.absolute())
        elif path.name.startswith(_COPIED):
            copyfile(path, view / path.name)


def _opened(view: Path) -> tuple[Any, list[str]]:
    families = rocksdict.Rdict.list_cf(str(view))
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(False)
    # Given for each family: otherwise they would be taken from the OPTIONS file, which no checksum protects.
    each = dict.fromkeys(families, options)
    return rocksdict.Rdict(str(view), options, each, rocksdict.AccessType.read_only()), families


@contextmanager
def _errors(directory: Path, store: str, view: Path) -> Iterator[None]:
    """Within it, every exception of rocksdict or the system becomes one of Millpond's, with the Java client's files."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, OSError):
            raise
        text = str(error).replace(str(view), str(directory)).strip()
        raise _translated(f"store {store!r}: RocksDB in {directory}", text, directory, type(error)) from error


def _translated(where: str, text: str, directory: Path, kind: type[Exception]) -> StoreError:
    low = text.lower()
    if kind is Exception and (option := _option_in(low)) is not None:
        return KafkaStreamsStateError(
            f"{where} was written with {option} that is not known here ({text}); take that out of the application's "
            f"RocksDBConfigSetter, delete {directory.parent.parent}, start the application, which restores it from its "
            "changelogs, and stop it"
        )
    if "corruption" in low or "no such file" in low:
        return KafkaStreamsStateError(f"{where} is damaged or not complete ({text}); {restored(directory)}")
    return BackendError(f"{where} cannot be read ({text}); see that its files may be read, or {restored(directory)}")


def _option_in(text: str) -> str | None:
    """Return what a ``RocksDBConfigSetter`` has set, if RocksDB complains of that; else None."""
    if "comparator" in text:
        return "an order of keys"
    if "bad table magic number" in text and any(f"found {number} " in text for number in _OTHER_TABLES):
        return "a form of tables"
    return None if text.startswith("io error") or "corruption" in text else "an option"

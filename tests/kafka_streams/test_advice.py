"""Directories that are refused, and what their messages say to do: once it is done, all rows come out."""

import re
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_EX, lockf
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, TypeAlias

import pytest
import rocksdict

from millpond.adapters.kafka_streams import Entry, kinds, locations, open_store
from millpond.errors import (
    BackendError,
    BackendInUseError,
    CorruptStoreError,
    FormatError,
    StoreError,
    UnreadableRowError,
)
from millpond.stores import StoreKind
from tests.kafka_streams.directories import TIMED, write_database, write_task
from tests.kafka_streams.test_damage import with_other_comparator

PLAIN = {b"a": b"1", b"b": b"2"}
SEGMENT = {b"k" + struct.pack(">qi", 1000, 0): b"v"}


class Application:
    """The directory of an application, and a sound copy of it: what the application restores from its changelogs."""

    def __init__(self, place: Path, kind: StoreKind = StoreKind.KEY_VALUE) -> None:
        self.place, self.kind = place, kind
        self.app = place / "app"
        self.task = write_task(self.app / "0_0")
        if kind is StoreKind.WINDOW:
            self.store = write_database(self.task / "store" / "store.0", {"default": SEGMENT})
        else:
            self.store = write_database(self.task / "rocksdb" / "store", {"default": PLAIN})
        copytree(self.app, self.place / "sound")
        self.given, self.options = self.app, {}
        self.open_now = ExitStack()
        self.message = ""

    given: Path
    options: dict[str, Any]

    def read(self) -> list[Entry]:
        with open_store(self.given, "store", self.kind, **self.options) as source:
            return list(source.entries())

    def deletes(self, pattern: str = r"delete (\S+), start") -> None:
        """Delete what the message names."""
        found = re.search(pattern, self.message)
        assert found is not None, self.message
        rmtree(found[1]) if Path(found[1]).is_dir() else Path(found[1]).unlink()

    def starts(self) -> None:
        """Do to the files what a start and a stop do: RocksDB opens each directory, and what is gone is restored."""
        for part in (self.place / "sound").rglob("*"):
            there = self.app / part.relative_to(self.place / "sound")
            if not there.exists() and (not there.parent.exists() or part.name == ".checkpoint"):
                copytree(part.parent, there.parent, dirs_exist_ok=True)
        for current in self.app.rglob("CURRENT"):
            families = rocksdict.Rdict.list_cf(str(current.parent))
            options = rocksdict.Options(raw_mode=True)
            rocksdict.Rdict(str(current.parent), options, dict.fromkeys(families, options)).close()

    def restores(self) -> None:
        self.deletes()
        self.starts()

    def copies(self) -> None:
        """Read a copy that was made while the application was stopped."""
        self.given = self.place / "sound"

    def knows_it_complete(self) -> None:
        self.options = {"without_checkpoint": True}


def _truncated(app: Application) -> None:
    table = next(app.store.glob("*.sst"))
    table.write_bytes(table.read_bytes()[:-20])


def _orphaned(app: Application) -> None:
    (app.store / "009999.sst").write_bytes(b"half of a table")


def _manifest_without_its_end(app: Application) -> None:
    """Cut the manifest off: RocksDB does not notice, and takes the state before the last table for the newest."""
    options = rocksdict.Options(raw_mode=True)
    engine = rocksdict.Rdict(str(app.store), options, {"default": options})
    engine.put(b"a", b"1", _unlogged())
    engine.flush(True)
    engine.close()
    manifest = next(app.store.glob("MANIFEST-*"))
    content, at, last = manifest.read_bytes(), 0, 0
    while at < len(content):
        stop = at + 7 + int.from_bytes(content[at + 4 : at + 6], "little")
        # What checksum a table has as a file stands beside its name.
        last = at if b"Unknown" in content[at:stop] else last
        at = stop
    manifest.write_bytes(content[:last])


def _unlogged() -> Any:
    writing: Any = rocksdict.WriteOptions()
    writing.disable_wal = True
    return writing


def _logged(app: Application) -> None:
    """Open the directory with a log, and put a row that the store has already."""
    options = rocksdict.Options(raw_mode=True)
    other = copytree(app.store, app.place / "other")
    engine = rocksdict.Rdict(str(other), options)
    engine.put(b"a", b"1")
    engine.flush_wal(True)
    (log,) = (path for path in other.glob("*.log") if path.stat().st_size)
    (app.store / log.name).write_bytes(log.read_bytes())
    engine.close()


def _other_comparator(app: Application) -> None:
    manifest = next(app.store.glob("MANIFEST-*"))
    manifest.write_bytes(with_other_comparator(manifest.read_bytes()))


def _other_tables(app: Application) -> None:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_cuckoo_table_factory(rocksdict.CuckooTableOptions())
    options.set_allow_mmap_reads(True)
    rmtree(app.store)
    app.store.mkdir()
    engine = rocksdict.Rdict(str(app.store), options)
    engine.put(b"a", b"1", _unlogged())
    engine.flush(True)
    engine.close()


def _withheld(name: str) -> Callable[[Application], None]:
    def withhold(app: Application) -> None:
        (path,) = app.store.glob(name)
        path.rename(app.place / path.name)
        path.symlink_to(path)

    return withhold


def _given_back(app: Application) -> None:
    (path,) = (path for path in app.store.iterdir() if path.is_symlink())
    path.unlink()
    (app.place / path.name).rename(path)


def _opened_by_half(app: Application) -> None:
    write_task(app.app / "0_1")
    write_database(app.app / "0_1" / "rocksdb" / "store", {"default": {}, TIMED: {b"c": struct.pack(">q", 5) + b"3"}})
    app.kind = StoreKind.TIMESTAMPED_KEY_VALUE


def _opens_all(app: Application) -> None:
    """Do what the Java client does to a directory of a plain store that is timestamped by now."""
    options = rocksdict.Options(raw_mode=True)
    engine = rocksdict.Rdict(str(app.store), options, {"default": options})
    engine.create_column_family(TIMED, options).close()
    engine.close()


def _with_family(app: Application) -> None:
    rmtree(app.store)
    write_database(app.store, {"default": PLAIN, "headers": {}})


def _strayed(app: Application) -> None:
    (app.store.parent / "notes").mkdir()


def _named_by_date(app: Application) -> None:
    app.store.rename(app.store.with_name("store-197001010000"))


def _renames(app: Application) -> None:
    for old in app.app.rglob("store-*"):
        start = datetime.strptime(old.name.removeprefix("store-"), "%Y%m%d%H%M").replace(tzinfo=UTC).timestamp()
        old.rename(old.with_name(f"store.{int(start * 1000)}"))


def _checkpoint(content: bytes | None) -> Callable[[Application], None]:
    def change(app: Application) -> None:
        (app.task / ".checkpoint").unlink()
        if content is not None:
            (app.task / ".checkpoint").write_bytes(content)

    return change


def _changed_meanwhile(app: Application) -> None:
    write_database(write_task(app.app / "0_1") / "store" / "store.0", {"default": SEGMENT})


def _there_twice(app: Application) -> None:
    write_database(write_task(app.app / "0_1") / "rocksdb" / "store", {"default": PLAIN})


def _is_running(app: Application) -> None:
    lockf(app.open_now.enter_context((app.task / ".lock").open("w")), LOCK_EX)


def _task_alone(app: Application) -> None:
    app.given = app.task


def _with_a_row_too_short(app: Application) -> None:
    rmtree(app.store)
    write_database(app.store, {"default": {b"k": b"v"}})


def _windows_read_as_sessions(app: Application) -> None:
    app.kind = StoreKind.SESSION


def _as_windows(app: Application) -> None:
    app.kind = StoreKind.WINDOW


Way: TypeAlias = Sequence[Callable[[Application], None]]


@dataclass
class Damage:
    """A damage to a directory, the message about it, and the ways to do what it advises."""

    words: str
    error: type[StoreError]
    harm: Callable[[Application], None]
    ways: Sequence[Way]
    kind: StoreKind = StoreKind.KEY_VALUE
    rows: list[bytes] = field(default_factory=lambda: [b"1", b"2"])

    def __repr__(self) -> str:
        return self.words


RESTORED: Sequence[Way] = ([Application.copies], [Application.restores])
DAMAGES = [
    Damage("is damaged or not complete", CorruptStoreError, _truncated, RESTORED),
    Damage(
        "If the application was not closed cleanly, start it once", CorruptStoreError, _orphaned, [[Application.starts]]
    ),
    Damage("if it was, the MANIFEST is damaged; copy it", CorruptStoreError, _manifest_without_its_end, RESTORED),
    Damage("so something else has written here; start the", CorruptStoreError, _logged, [[Application.starts]]),
    *(
        Damage(f"{words} that is not known here", FormatError, harm, [[Application.restores]])
        for words, harm in (("an order of keys", _other_comparator), ("a form of tables", _other_tables))
    ),
    *(
        Damage("; see that its files may be read, or copy", BackendError, _withheld(name), [[_given_back], *RESTORED])
        for name in ("*.sst", "CURRENT")
    ),
    Damage(
        "until it has opened all of them, and stop it",
        CorruptStoreError,
        _opened_by_half,
        [[_opens_all]],
        rows=[b"1", b"2", b"3"],
    ),
    Damage(
        "is no segment: expected",
        FormatError,
        _strayed,
        [[lambda app: app.deletes(r"'store': (\S+) is no segment")]],
        StoreKind.WINDOW,
        [b"v"],
    ),
    Damage("which renames it, and stop it", FormatError, _named_by_date, [[_renames]], StoreKind.WINDOW, [b"v"]),
    Damage(
        "the application was not closed cleanly, or the store has no",
        CorruptStoreError,
        _checkpoint(None),
        [[Application.starts], [Application.knows_it_complete]],
    ),
    *(
        Damage(
            words,
            CorruptStoreError,
            _checkpoint(content),
            [
                [lambda app: app.deletes(r"'store': (\S+) (?:is|cannot)"), Application.starts],
                [Application.knows_it_complete],
            ],
        )
        for words, content in (
            ("cannot be read: ", b"\xff"),
            ("is damaged (it has 0 offsets, not 1)", b"0\n1\n"),
            ("is damaged (list index out of range)", b""),
        )
    ),
    Damage(
        "so the application was changed while these were there; give",
        CorruptStoreError,
        _changed_meanwhile,
        [[_task_alone]],
    ),
    Damage(
        "which hold a key each, read the directory of one of them", UnreadableRowError, _there_twice, [[_task_alone]]
    ),
    Damage(
        "Unless another --kind is right",
        UnreadableRowError,
        _windows_read_as_sessions,
        [[_as_windows]],
        StoreKind.WINDOW,
        [b"v"],
    ),
    Damage(
        "the directory is damaged; copy it again while",
        UnreadableRowError,
        _with_a_row_too_short,
        [[Application.copies], [lambda app: rmtree(app.task), Application.starts]],
        StoreKind.WINDOW,
        [b"v"],
    ),
    Damage(
        "stop the application, or read a copy",
        BackendInUseError,
        _is_running,
        [[lambda app: app.open_now.close()], [Application.copies]],
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=repr)
def test_what_is_refused_is_read_once_what_its_message_says_is_done(damage: Damage, tmp_path: Path) -> None:
    for number, way in enumerate(damage.ways):
        app = Application(tmp_path / str(number), damage.kind)
        with app.open_now:
            damage.harm(app)
            with pytest.raises(damage.error, match=re.escape(damage.words)) as refused:
                app.read()
            app.message = refused.value.sentence
            for step in way:
                step(app)
            assert [entry.value for entry in app.read()] == damage.rows


def test_what_a_later_release_has_written_is_read_by_one_that_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Application(tmp_path)
    _checkpoint(b"1\n0\n")(app)
    with pytest.raises(FormatError, match=r"is of version '1', and .* knows 0; read it with a newer one, or, if you"):
        app.read()
    app.options = {"without_checkpoint": True}
    assert len(app.read()) == 2
    app.options = {}
    monkeypatch.setattr(locations, "_VERSION", "1")
    assert len(app.read()) == 2
    _with_family(app)
    with pytest.raises(FormatError, match="knows default and keyValueWithTimestamp; read it with a newer one"):
        app.read()
    monkeypatch.setattr(kinds, "_KNOWN", (*kinds._KNOWN, "headers"))
    assert len(app.read()) == 2

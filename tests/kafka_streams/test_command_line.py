"""``millpond import kafka-streams``: what it writes, what it says, and what it refuses."""

import json
import struct
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime
from itertools import count
from pathlib import Path
from shutil import copytree
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from millpond.cli import app as command_line
from millpond.errors import ConfigurationError, MillpondError, UnreadableRowError
from millpond.stores import STRING, StoreKind, StoreSpec, Transaction
from millpond.stores.backend.registry import supplier
from millpond.stores.specs.migration import open_directory
from tests.kafka_streams.directories import TIMED, recorded, unpacked, write_database, write_task
from tests.kafka_streams.test_formats import latest
from tests.refusing import Refused


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command_line, ["import", "kafka-streams", *map(str, arguments)])


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """An application with a timestamped key-value store."""
    return unpacked(recorded("kv-timestamped"), tmp_path)


def plain(tmp_path: Path, rows: dict[bytes, bytes]) -> Path:
    write_database(write_task(tmp_path / "made" / "0_0") / "rocksdb" / "store", {"default": rows})
    return tmp_path / "made"


def windows(tmp_path: Path, rows: dict[bytes, bytes]) -> Path:
    write_database(write_task(tmp_path / "made" / "0_0") / "store" / "store.0", {"default": rows})
    return tmp_path / "made"


def test_a_store_becomes_a_parquet_file_and_a_report(app: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    serdes = ("--key-serde", "string", "--value-serde", "string")
    result = run(app, "--store", "kv-store", "--to", f"parquet:{out}", *serdes)
    assert result.exit_code == 0, result.output
    assert "975 rows read, 975 entries in them" in result.output
    assert "app-kv-store-changelog-0 at 1151" in result.output
    out.unlink()
    said = json.loads(run(app, "--store", "kv-store", "--to", f"parquet:{out}", *serdes, "--json").stdout)
    assert said == {
        "store": "kv-store",
        "kind": "timestamped-key-value",
        "tasks": {str(app / "0_0"): {"app-kv-store-changelog-0": 1151}},
        "target": str(out),
        "rows_read": 975,
        "entries_read": 975,
        "written": 975,
        "tombstones": 0,
        "expired": 0,
        "observed_stream_time": None,
    }
    assert {field.name: str(field.type) for field in pq.read_schema(out)} == {
        "key": "string",
        "value": "string",
        "timestamp": "timestamp[us, tz=UTC]",
    }


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb://?compression=none"])
def test_a_store_becomes_a_store(app: Path, backend: str, tmp_path: Path) -> None:
    out = tmp_path / "stores"
    serdes = ("--key-serde", "string", "--value-serde", "string")
    result = run(app, "--store", "kv-store", "--to", out, "--backend", backend, *serdes)
    assert result.exit_code == 0, result.output
    spec = StoreSpec("kv-store", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, STRING)
    with open_directory(supplier(backend), out / "kv-store-v2", spec) as opened:
        assert spec.open(Transaction(opened)).get("key0006").value == "updated-87"  # type: ignore[attr-defined]


def test_bytes_are_the_default(app: Path, tmp_path: Path) -> None:
    run(app, "--store", "kv-store", "--to", f"parquet:{tmp_path / 'rows'}")
    assert pq.read_table(tmp_path / "rows").slice(1, 1)["key"].to_pylist() == [b"key0000"]


def test_lengths_of_time_have_a_unit(tmp_path: Path) -> None:
    made = windows(tmp_path, {b"k" + struct.pack(">qi", 1000 * n, 0): b"v" for n in range(5)})
    common = (
        made,
        "--store",
        "store",
        "--kind",
        "window",
        "--window-size",
        "1 second",
        "--retention",
        "2000 milliseconds",
    )
    result = run(*common, "--to", f"parquet:{tmp_path / 'rows'}", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["entries_read"], said["written"], said["expired"], said["observed_stream_time"]) == (5, 2, 3, 4000)


def test_json_is_brought_along_as_text(tmp_path: Path) -> None:
    made = plain(tmp_path, {b"k": b'{"b": 1, "a": [null]}'})
    common = (made, "--store", "store", "--kind", "key-value", "--value-serde", "json")
    assert run(*common, "--to", f"parquet:{tmp_path / 'rows'}").exit_code == 0
    assert pq.read_table(tmp_path / "rows")["value"].to_pylist() == ['{"a":[null],"b":1}']


def test_what_is_put_twice_needs_to_be_told(tmp_path: Path) -> None:
    made = windows(tmp_path, {b"k" + struct.pack(">qi", 1000, n): b"%d" % n for n in (1, 2)})
    common = (made, "--store", "store", "--kind", "window", "--window-size", "1 second")
    result = run(*common, "--to", f"parquet:{tmp_path / 'rows'}")
    assert isinstance(result.exception, ConfigurationError)
    assert "0x6b and time 1000 has the sequence 1; say so with --retain-duplicates" in str(result.exception)
    target = ("--to", tmp_path / "stores", "--backend", "lmdb", "--retention", "5 seconds", "--retain-duplicates")
    assert run(*common, *target, "--key-serde", "string", "--value-serde", "string").exit_code == 0
    spec = StoreSpec(
        "store", StoreKind.WINDOW, STRING, STRING, retention=5000, window_size=1000, retain_duplicates=True
    )
    with open_directory(supplier("lmdb"), tmp_path / "stores" / "store", spec) as opened:
        store = spec.open_read_only(Transaction(opened))
        assert list(store.fetch_range("k")) == [(1000, "1"), (1000, "2")]  # type: ignore[attr-defined]


class Import:
    """The import of a store of one row, or of none."""

    def __init__(self, place: Path, rows: Mapping[bytes, bytes] = MappingProxyType({b"k": b"v"})) -> None:
        self.made = plain(place, dict(rows))
        self.place = place

    def empty(self) -> "Import":
        return Import(self.place / "empty", {})

    def at(self, *part: str) -> "Import":
        """Return the same of a part of its directory, or of one that is not there."""
        made = copy(self)
        made.made = self.made.joinpath(*part)
        return made

    def of_windows(self) -> "Import":
        """Return the same of windows, each of whose keys is there with the time 1000."""
        made = copy(self)
        made.made = windows(self.place / "windows", {b"k" + struct.pack(">qi", 1000, 0): b"v"})
        return made

    def of_versions(self) -> "Import":
        version = latest(b"k", 7, b"v")
        return Import(self.place / "versions", {version.key: version.value})

    def with_another(self, *directory: str, keys: Sequence[str] = ("other",)) -> "Import":
        """Return the same with one more store of that name."""
        write_database(self.made.joinpath(*directory), {"default": {key.encode(): b"w" for key in keys}})
        return self

    def of_two_tasks(self) -> "Import":
        """Return one of two tasks beside the one that is there."""
        for task in ("1_0", "1_1"):
            write_task(self.made / task)
            self.with_another(task, "rocksdb", "store", keys=[f"key of {task}"])
        return self

    def copied(self, *without: str) -> "Import":
        """Return a copy without some of its directories."""
        made = copy(self)
        made.made = copytree(self.made, self.place / "copy", ignore=lambda _, names: [*{*without} & {*names}])
        return made

    def into(self, to: str, *options: str) -> None:
        result = run(self.made, "--store", "store", "--to", to, *options)
        if isinstance(result.exception, MillpondError):
            raise result.exception
        assert result.exit_code == 0, result.output

    def gets(self, *keys: str, **columns: Any) -> None:
        """Check that the rows that were written have these keys, and of each column these values."""
        found = pq.read_table(self.place / "rows")
        assert found["key"].to_pylist() == [key.encode() for key in keys]
        assert {name: [millis(time) for time in found[name].to_pylist()] for name in columns} == columns

    def rows(self, *options: str) -> None:
        self.into(f"parquet:{self.place / 'rows'}", *options)

    def plain_rows(self, *options: str) -> None:
        self.rows("--kind", "key-value", *options)

    def store(self, *options: str) -> None:
        self.into(str(self.place / "out"), *options)


def millis(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


REFUSED = [
    Refused(
        "; give that of an application, a task or a store",
        lambda asked: asked.at("nowhere").plain_rows(),
        lambda asked: (asked.plain_rows(), asked.gets("k")),
        lambda asked: (asked.at("0_0").plain_rows(), asked.gets("k")),
        lambda asked: (asked.at("0_0", "rocksdb", "store").plain_rows(), asked.gets("k")),
    ),
    Refused(
        "there are several stores \n: one in ",
        lambda asked: asked.of_two_tasks().plain_rows(),
        lambda asked: (asked.of_two_tasks().at("0_0", "rocksdb", "store").plain_rows(), asked.gets("k")),
        lambda asked: (
            asked.of_two_tasks().copied("0_0").plain_rows(),
            asked.gets("key of 1_0", "key of 1_1"),
        ),
    ),
    Refused(
        "say it with --window-size",
        lambda asked: asked.of_windows().rows("--kind", "window"),
        lambda asked: (
            asked.of_windows().rows("--kind", "window", "--window-size", "1 hour"),
            asked.gets("k", window_start=[1000], window_end=[3_601_000]),
        ),
    ),
    Refused(
        "every row is one of a versioned store, so it is of no other kind; say --kind versioned",
        lambda asked: asked.of_versions().plain_rows(),
        lambda asked: (made := asked.of_versions(), made.rows("--kind", "versioned"), made.gets("k", timestamp=[7])),
    ),
    Refused(
        "its files do not tell; say it with --kind",
        lambda asked: asked.rows(),
        lambda asked: asked.plain_rows(),
        lambda asked: asked.empty().rows("--kind", "versioned"),
    ),
    Refused(
        "--kind is \n; the kinds are ",
        lambda asked: asked.rows("--kind", "table"),
        lambda asked: asked.rows("--kind", "key-value"),
    ),
    Refused(
        "; its column families tell",
        lambda asked: asked.rows("--kind", "window"),
        lambda asked: asked.rows("--kind", "key-value"),
    ),
    Refused(
        "needs its retention; say it with --retention",
        lambda asked: asked.store("--kind", "versioned"),
        lambda asked: asked.empty().store("--kind", "versioned", "--retention", "5 seconds"),
    ),
    *(
        Refused(
            "store \n of kind \n has no \n; leave it out",
            lambda asked, option=option: asked.plain_rows(*option),  # type: ignore[misc]
            lambda asked: asked.plain_rows(),
        )
        for option in (["--retention", "5 seconds"], ["--window-size", "5 seconds"], ["--retain-duplicates"])
    ),
    Refused(
        "which writes nothing that Kafka's serializers write; choose one of ",
        lambda asked: asked.plain_rows("--key-serde", "pickle"),
        lambda asked: asked.plain_rows("--key-serde", "string"),
    ),
    Refused(
        " keeps no files; choose one that does",
        lambda asked: asked.store("--kind", "key-value", "--backend", "memory"),
        lambda asked: asked.store("--kind", "key-value", "--backend", "lmdb"),
    ),
    Refused(
        ", which is only read; choose another place",
        lambda asked: asked.into(f"parquet:{asked.made / 'in'}", "--kind", "key-value"),
        lambda asked: asked.plain_rows(),
    ),
    Refused(
        " exists already, and is not touched; delete it, or choose another place",
        lambda asked: (asked.plain_rows(), asked.plain_rows()),
        lambda asked: (asked.plain_rows(), asked.into(f"parquet:{asked.place / 'other'}", "--kind", "key-value")),
        lambda asked: (asked.plain_rows(), (asked.place / "rows").unlink(), asked.plain_rows()),
    ),
]


def test_of_two_stores_in_one_task_that_is_brought_along_whose_directory_is_given(tmp_path: Path) -> None:
    asked = Import(tmp_path).with_another("0_0", "store")
    for whole in (asked, asked.at("0_0")):
        with pytest.raises(ConfigurationError, match=r"one in .*/0_0/rocksdb/store; one in .*/0_0/store; give the dir"):
            whole.plain_rows()
    asked.at("0_0", "store").plain_rows()
    asked.gets("other")
    (tmp_path / "rows").unlink()
    asked.at("0_0", "rocksdb", "store").plain_rows()
    asked.gets("k")


@pytest.mark.parametrize("refused", REFUSED, ids=repr)
def test_what_is_refused_is_brought_along_as_its_message_says(refused: Refused, tmp_path: Path) -> None:
    places = count()
    refused.check(lambda: Import(tmp_path / str(next(places))), ConfigurationError)


@pytest.mark.parametrize(
    ("retention", "message"), [("soon", "--retention"), ("2000", "give a unit: '2000 milliseconds', or '2000 seconds'")]
)
def test_a_retention_that_is_no_length_of_time_is_refused(retention: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Import(tmp_path).rows("--kind", "versioned", "--retention", retention)
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("key", "value", "options", "message"),
    [
        (b"\xff", b"v", ["--key-serde", "string"], "the key of the entry with the key 0xff"),
        (b"k", b"1234567", ["--value-serde", "int64"], "the value of the entry with the key 0x6b"),
        (b"k", b"null", ["--value-serde", "json"], "it is null"),
        (b'{"b": 1}', b"v", ["--key-serde", "json"], "it writes other bytes for this key"),
    ],
)
def test_what_the_serde_cannot_read_is_named_and_read_as_bytes(
    key: bytes, value: bytes, options: list[str], message: str, tmp_path: Path
) -> None:
    made, out = plain(tmp_path, {key: value}), tmp_path / "out"
    common = (made, "--store", "store", "--kind", "key-value", "--to")
    result = run(*common, out, *options)
    assert isinstance(result.exception, UnreadableRowError)
    assert message in str(result.exception)
    assert f"; choose another {options[0]}, such as bytes, which takes anything" in str(result.exception)
    assert list(out.iterdir()) == []
    assert run(*common, f"parquet:{tmp_path / 'rows'}", options[0], "bytes").exit_code == 0
    assert pq.read_table(tmp_path / "rows")["key"].to_pylist() == [key]


def test_a_time_that_no_column_holds_is_named_and_goes_into_a_store(tmp_path: Path) -> None:
    rows = {"default": {}, TIMED: {b"k": struct.pack(">q", 2**62)}}
    write_database(write_task(tmp_path / "made" / "0_0") / "rocksdb" / "store", rows)
    result = run(tmp_path / "made", "--store", "store", "--to", f"parquet:{tmp_path / 'rows'}")
    assert isinstance(result.exception, UnreadableRowError)
    assert f"0x6b has the time {2**62}" in str(result.exception)
    assert run(tmp_path / "made", "--store", "store", "--to", tmp_path / "out").exit_code == 0


def test_a_store_that_is_there_already_is_not_touched(app: Path, tmp_path: Path) -> None:
    common = (app, "--store", "kv-store", "--to", tmp_path / "out", "--backend", "lmdb")
    assert run(*common).exit_code == 0
    before = sorted((tmp_path / "out").rglob("*"))
    assert isinstance(run(*common).exception, ConfigurationError)
    assert sorted((tmp_path / "out").rglob("*")) == before

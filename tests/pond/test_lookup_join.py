"""``lookup_join`` gives what ``asof_join`` and DuckDB give for the version of the table that a micro-batch reads."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
import pytest

from millpond import Pond
from millpond.adapters.tables import DeltaTable, ParquetTable
from millpond.errors import (
    ConfigurationError,
    CorruptFileError,
    FormatError,
    MissingFileError,
    RecordError,
)
from millpond.processors import VersionedTable
from millpond.processors.tables.sorted_versions import SortedVersions, VersionRows
from tests.pond.delta_tables import WrittenDelta
from tests.processors.verbs.duck import answered
from tests.refusing import Refused

pc: Any = _compute

START = datetime(2026, 6, 1, tzinfo=UTC)
KEYS = ("a", "b", "c", "", "zz\0z", None)
_RIGHT: Any = {"k": pa.string(), "at": pa.timestamp("us", "UTC"), "v": pa.int64(), "o": pa.int32(), "op": pa.string()}
_LEFT: Any = {"k": pa.string(), "t": pa.timestamp("us", "UTC"), "id": pa.int64()}
RIGHT, LEFT = pa.schema(_RIGHT), pa.schema(_LEFT)
JOIN: dict[str, Any] = {"on": "k", "left_time": "t", "right_time": "at"}

Rows = list[dict[str, Any]]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def trades(chance: random.Random, count: int, first: int = 0) -> Rows:
    return [
        {"k": chance.choice(KEYS), "t": at(chance.randrange(30)), "id": number}
        for number in range(first, first + count)
    ]


def quotes(chance: random.Random, count: int) -> Rows:
    """Return versions, of which some have one key and time, and some delete."""
    ops = ["upsert", "upsert", "c", "delete", "update_preimage"]
    return [
        {"k": chance.choice(KEYS), "at": at(chance.randrange(30)), "v": chance.randrange(40), "o": chance.randrange(3),
         "op": chance.choice(ops)}
        for _ in range(count)
    ]  # fmt: skip


def written(directory: Path, rows: Rows, files: int = 1, name: str = "part") -> ParquetTable:
    """Return rows in as many Parquet files."""
    directory.mkdir(exist_ok=True)
    for number in range(files):
        table = pa.Table.from_pylist(rows[number::files], RIGHT)
        pq.write_table(table, directory / f"{name}-{number}.parquet", row_group_size=3)
    return ParquetTable(directory)


def in_any_order(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


OPTIONS: list[dict[str, Any]] = [
    {"direction": direction, "exact": exact, "how": how, **more}
    for direction, exact, how in product(("backward", "forward", "nearest"), (True, False), ("inner", "left"))
    for more in ({"tolerance": "8 seconds"}, {"tolerance": "1 day", "where": pc.field("v") <= pc.field("id")},
                 {"tolerance": "12 seconds", "where": pc.field("v") <= pc.field("id"), "otherwise": "next"})
]  # fmt: skip
OPTIONS += [
    {},
    {"how": "left", "default": {"v": -1}, "exact": False},
    {"how": "semi"},
    {"how": "anti"},
    {"how": "left", "null_safe": True},
    {"how": "anti", "where": pc.field("v") <= pc.field("id")},
]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
def test_it_is_the_join_with_the_same_rows_as_a_table_by_all_options(
    tmp_path: Path, ordered: bool, deletes: bool
) -> None:
    for seed, options in enumerate(OPTIONS):
        chance = random.Random(seed)
        left, right = trades(chance, 40), quotes(chance, chance.choice([0, 5, 60]))
        table = written(tmp_path / str(seed), right, chance.randint(1, 4))
        given = {**options, **({"right_order": "o"} if ordered else {}), **({"right_op": "op"} if deletes else {})}
        ours = Pond().lookup_join(pa.Table.from_pylist(left, LEFT), table, **JOIN, **given)
        waits: dict[str, Any] = (
            {} if options.get("direction", "backward") == "backward" else {"grace": 0, "history": "2 days"}
        )
        theirs = Pond().asof_join(
            pa.Table.from_pylist(left, LEFT), pa.Table.from_pylist(right, RIGHT), **JOIN, **given, **waits
        )
        assert ours.schema.names == theirs.schema.names
        assert in_any_order(ours) == in_any_order(theirs), given


def duck(left: Rows, right: Rows) -> list[str]:
    query = "SELECT l.id, r.v FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.t >= r.at"
    tables = {"l": pa.Table.from_pylist(left, LEFT), "r": pa.Table.from_pylist(right, RIGHT)}
    return sorted(map(repr, answered(query, **tables)))


def alone(rows: Rows) -> Rows:
    """Return the last of the rows of each key and time."""
    return list({(row["k"], row["at"]): row for row in rows}.values())


@pytest.mark.parametrize("seed", range(20))
def test_each_micro_batch_meets_the_version_that_there_is_when_it_begins(tmp_path: Path, seed: int) -> None:
    """Files come and go, as appends and compactions have them; DuckDB joins with what is there."""
    chance, files = random.Random(seed), dict[str, Rows]()
    table, number = written(tmp_path, []), 0
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, how="left", columns=["v"]) as joined:
        for step in range(8):
            for name in chance.sample(sorted(files), chance.randint(0, len(files) // 2)):
                del files[name]
                (tmp_path / f"{name}-0.parquet").unlink()
            taken = {(row["k"], row["at"]) for rows in files.values() for row in rows}
            for one in range(chance.randint(0, 3)):
                new = [row for row in alone(quotes(chance, 8)) if (row["k"], row["at"]) not in taken]
                taken |= {(row["k"], row["at"]) for row in new}
                files[f"f{step}-{one}"] = new
                written(tmp_path, new, name=f"f{step}-{one}")
            left, number = trades(chance, 10, number), number + 10
            found = joined.feed(left=left).select(["id", "v"]).to_pylist()
            whole = [row for rows in files.values() for row in rows]
            assert sorted(repr((row["id"], row["v"])) for row in found) == duck(left, whole)


def test_a_part_is_read_once_whatever_versions_it_is_in(tmp_path: Path) -> None:
    class Counted:
        """The table, whose reads are counted."""

        def __init__(self, table: ParquetTable) -> None:
            self.table = table
            self.read_parts: list[str] = []

        def schema(self) -> pa.Schema:
            return self.table.schema()

        def version(self) -> str:
            return self.table.version()

        def parts(self, version: str) -> Sequence[str]:
            return self.table.parts(version)

        def read(self, part: str, columns: Sequence[str]) -> pa.Table:
            self.read_parts.append(f"{part} {','.join(columns)}")
            return self.table.read(part, columns)

    chance = random.Random(1)
    counted = Counted(written(tmp_path, quotes(chance, 20), 2))
    assert isinstance(counted, VersionedTable)
    with Pond().in_batches.lookup_join(LEFT, counted, **JOIN, columns={"bid": "v"}) as joined:
        assert joined.schema.names == ["k", "t", "id", "bid"]
        joined.feed(left=trades(chance, 5))
        joined.feed(left=trades(chance, 5))
        written(tmp_path, quotes(chance, 20), name="new")
        joined.feed(left=trades(chance, 5))
    assert counted.read_parts == ["part-0.parquet k,v,at", "part-1.parquet k,v,at", "new-0.parquet k,v,at"]


def test_keys_of_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from millpond.processors.tables import sorted_versions

    exact = sorted_versions._hashes
    monkeypatch.setattr(
        sorted_versions, "_hashes", lambda keys, seed: exact(keys, seed) % 3 if seed < sorted_versions._SEED + 5 else
        exact(keys, seed) % 1000,
    )  # fmt: skip
    names = [str(number).encode() for number in range(12)]
    numbers = pa.array(range(12)).to_numpy()
    rows = VersionRows(pa.array(names), pa.array(names), numbers, None, numbers)
    others = [str(number).encode() for number in range(400)]
    values, _ = SortedVersions(rows).get_columns_as_of(pa.array(others), pa.array([99] * 400).to_numpy())
    assert values.to_pylist() == [*names, *[None] * 388]


def test_more_rows_than_fit_are_refused_with_the_number_and_fewer_columns_fit(tmp_path: Path) -> None:
    rows = [{"k": "a", "at": at(number), "v": 1, "o": 1, "op": "x" * 500} for number in range(100)]
    table, left = written(tmp_path, rows), trades(random.Random(1), 3)
    with pytest.raises(ConfigurationError, match=r"take [\d,]{6} bytes of memory, of at most 20,000; name fewer col"):
        Pond().lookup_join(left, table, **JOIN, max_bytes=20_000)
    Pond().lookup_join(left, table, **JOIN, columns=["v"], max_bytes=20_000)
    Pond().lookup_join(left, table, **JOIN, max_bytes=200_000)
    Pond().asof_join(left, pa.Table.from_pylist(rows, RIGHT), **JOIN)


def test_a_column_that_a_file_lacks_is_null_and_one_of_another_type_is_refused(tmp_path: Path) -> None:
    table, left = written(tmp_path, [{"k": "a", "at": at(1), "v": 5}]), [{"k": "a", "t": at(9), "id": 1}]
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"]) as joined:
        assert joined.feed(left=left)["v"].to_pylist() == [5]
        pq.write_table(pa.table({"k": ["a"], "at": [at(2)]}), tmp_path / "older.parquet")
        assert joined.feed(left=left)["v"].to_pylist() == [None]
        pq.write_table(
            pa.table({"k": ["a"], "at": [at(3)], "v": pa.array([7], pa.int16())}), tmp_path / "small.parquet"
        )
        assert joined.feed(left=left)["v"].to_pylist() == [7]
        pq.write_table(pa.table({"k": ["a"], "at": [at(4)], "v": ["x"]}), tmp_path / "text.parquet")
        with pytest.raises(ConfigurationError, match=r"'v' of text\.parquet is of type string, .* int64.* make"):
            joined.feed(left=left)
    assert Pond().lookup_join(left, table, **JOIN, columns=["v"])["v"].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("column", "wrong", "right"),
    [
        ("at", pa.array([START + timedelta(microseconds=1)], pa.timestamp("ns", "UTC")), None),
        ("v", pa.array([1 << 63], pa.uint64()), pa.decimal128(20, 0)),
        ("v", pa.array([1.5]), pa.float64()),
        ("v", pa.array(["x"]), pa.string()),
        ("v", pa.array([[1]]), None),
        ("v", pa.array([{"x": 1}]), None),
    ],
)
def test_values_that_do_not_fit_are_rounded_or_cast_and_the_verb_is_made_again(
    tmp_path: Path, column: str, wrong: Any, right: pa.DataType | None
) -> None:
    if column == "at":  # by one nanosecond more than microseconds hold
        wrong = pc.add(wrong.cast(pa.int64()), 1).cast(wrong.type)
    table, left = written(tmp_path, [{"k": "b", "at": at(1), "v": 5}]), [{"k": "a", "t": at(9), "id": 1}]
    row = {"k": ["a"], "at": pa.array([START], RIGHT.field("at").type), "v": pa.array([7])}
    with Pond().in_batches.lookup_join(LEFT, table, **JOIN, columns=["v"]) as joined:
        pq.write_table(pa.table({**row, column: wrong}), tmp_path / "new.parquet")
        with pytest.raises(ConfigurationError, match=f"{column!r} of new.parquet is .*, and what it has does not fit"):
            joined.feed(left=left)
        if right is None:  # as the other files have it
            pq.write_table(pa.table(row), tmp_path / "new.parquet")
            assert joined.feed(left=left)["v"].to_pylist() == [7]
            return
    for name in ("part-0.parquet", "new.parquet"):  # all files have the type that fits
        found = pq.read_table(tmp_path / name)
        place = found.column_names.index(column)
        pq.write_table(found.set_column(place, column, found[column].cast(right)), tmp_path / name)
    assert Pond().lookup_join(left, table, **JOIN, columns=["v"])["v"].to_pylist() == wrong.cast(right).to_pylist()


def test_rows_without_a_time_and_those_that_never_are_valid_are_left_out(tmp_path: Path) -> None:
    rows = [{"k": "a", "at": when, "v": number} for number, when in enumerate([at(1), None, datetime(9999, 12, 31)])]
    found = Pond().lookup_join([{"k": "a", "t": at(9), "id": 1}], written(tmp_path, rows), **JOIN, columns=["v"])
    assert found["v"].to_pylist() == [0]


def test_a_file_that_is_lost_or_damaged_is_told(tmp_path: Path) -> None:
    table = written(tmp_path, quotes(random.Random(1), 9), 2)
    version = table.version()
    (tmp_path / "part-1.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"part-1\.parquet does not exist, which a version .* VACUUM"):
        table.read("part-1.parquet", ["k"])
    assert table.parts(version) == ["part-0.parquet", "part-1.parquet"]
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(CorruptFileError, match=r"part-0\.parquet cannot be read"):
        table.read("part-0.parquet", ["k"])


@pytest.mark.parametrize("noted", [b"\xff", b"5", b"{}", b'{"fields": [{"name": "k", "type": 7}]}', b"[" * 99_999])
def test_columns_that_spark_has_not_noted_so_are_told(tmp_path: Path, noted: bytes) -> None:
    rows = of("a", 1, 1).replace_schema_metadata({b"org.apache.spark.sql.parquet.row.metadata": noted})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(CorruptFileError, match=r"rows\.parquet has no columns under org\.apache\.spark.*Error: "):
        ParquetTable(tmp_path).schema()


VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 34, "cardinality": 1}


def delta(path: Path, **given: Any) -> WrittenDelta:
    return WrittenDelta(path, RIGHT, **given)


def met(table: DeltaTable | ParquetTable) -> dict[str, int]:
    """Return what each key meets in the end."""
    left = [{"k": key, "t": at(60), "id": 1} for key in "abc"]
    found = Pond().lookup_join(left, table, **JOIN, columns=["v"], how="left").to_pylist()
    return {row["k"]: row["v"] for row in found}


def of(key: str, second: int, value: int) -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "at": at(second), "v": value}], RIGHT)


def test_a_delta_table_is_what_its_log_says_of_each_version(tmp_path: Path) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    assert met(table) == {"a": None, "b": None, "c": None}
    (first, _) = log.add(of("a", 1, 1), of("b", 1, 2))
    assert (table.version(), met(table)) == ("1", {"a": 1, "b": 2, "c": None})
    log.add(of("a", 1, 7), remove=[first])
    assert met(table) == {"a": 7, "b": 2, "c": None}
    pq.write_table(of("c", 1, 9), tmp_path / "t" / "no part of it.parquet")
    old = table.parts("1")
    log.checkpoint()
    log.add(of("c", 1, 3))
    assert (table.version(), met(table)) == ("3", {"a": 7, "b": 2, "c": 3})
    log.checkpoint(parts=3, clean=False)
    assert met(table) == {"a": 7, "b": 2, "c": 3}
    (tmp_path / "t" / "_delta_log" / f"{log.version:020d}.checkpoint.{1:010d}.{3:010d}.parquet").unlink()
    assert met(table) == {"a": 7, "b": 2, "c": 3}
    with pytest.raises(MissingFileError, match=r"0\.json does not exist, .*delta\.logRetentionDuration"):
        table.parts("1")
    assert [json.loads(part)["path"] for part in old] == ["part 1-0.parquet", "part 1-1.parquet"]
    assert table.schema() == RIGHT


def test_values_of_partitions_are_what_the_columns_are(tmp_path: Path) -> None:
    columns: Any = {"k": pa.string(), "day": pa.date32(), "v": pa.int64(), "n": pa.int32()}
    log = WrittenDelta(tmp_path / "t", pa.schema(columns), partitions=["day", "n"])
    for day, number in (("2026-05-01", "7"), ("2026-05-03", None)):
        log.add(pa.table({"k": ["a"], "v": [1]}), day=day, n=number)
    log.checkpoint(clean=False)
    left = [{"k": "a", "t": date(2026, 5, day), "id": day} for day in (2, 4)]
    for table in (DeltaTable(tmp_path / "t"), DeltaTable(f"file://{tmp_path}/t")):
        found = Pond().lookup_join(left, table, on="k", left_time="t", right_time="day")
        assert [(row["day"], row["n"]) for row in found.to_pylist()] == [
            (date(2026, 5, 1), 7),
            (date(2026, 5, 3), None),
        ]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.string(), "a b/c%20=é", "a b/c%20=é"),
        (pa.string(), "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        (pa.date32(), "2026-05-01", date(2026, 5, 1)),
        (pa.bool_(), "true", True),
        (pa.bool_(), "false", False),
        (pa.decimal128(7, 2), "-12.50", Decimal("-12.50")),
        (pa.decimal128(7, 2), "3", Decimal("3.00")),
        (pa.int8(), "-7", -7),
        (pa.int64(), str(-(1 << 63)), -(1 << 63)),
        (pa.float64(), "-1.0E10", -1e10),
        (pa.float64(), "Infinity", math.inf),
        (pa.binary(), "\x01x", b"\x01x"),
        *((one, text, None) for one in (pa.string(), pa.date32(), pa.bool_(), pa.decimal128(7, 2), pa.int64())
          for text in (None, "")),
    ],
)  # fmt: skip
def test_values_of_partitions_are_those_of_the_log_whatever_the_directories_are_called(
    tmp_path: Path, type_: pa.DataType, text: str | None, value: Any
) -> None:
    columns: Any = {"k": pa.string(), "at": pa.timestamp("us", "UTC"), "p": type_}
    log = WrittenDelta(tmp_path / "t", pa.schema(columns), ["p"])
    # Spark escapes values as Hive does in the names of directories, and these once more in the log.
    directory = "p=" + (quote(text, safe=" é") if text else "__HIVE_DEFAULT_PARTITION__")
    (tmp_path / "t" / directory).mkdir()
    pq.write_table(pa.table({"k": ["a"], "at": [at(1)]}), tmp_path / "t" / directory / "rows.parquet")
    log.act({"add": {"path": quote(f"{directory}/rows.parquet"), "partitionValues": {"p": text}}})
    for table in (DeltaTable(tmp_path / "t"), DeltaTable(f"file://{tmp_path}/t")):
        found = Pond().lookup_join([{"k": "a", "t": at(9), "id": 1}], table, **JOIN, columns=["p"])
        assert (found["p"].to_pylist(), found.schema.field("p").type) == ([value], type_)


def test_moments_of_partitions_are_of_utc_unless_they_have_a_zone(tmp_path: Path) -> None:
    columns: Any = {"k": pa.string(), "at": pa.timestamp("us", "UTC"), "wall": pa.timestamp("us")}
    log, table = WrittenDelta(tmp_path / "t", pa.schema(columns), ["at", "wall"]), DeltaTable(tmp_path / "t")
    moments = {
        "2026-06-01 00:00:01": timedelta(seconds=1),
        "2026-06-01 00:00:02.5": timedelta(seconds=2.5),
        "2026-06-01 00:00:03.000007": timedelta(seconds=3, microseconds=7),
        "2026-06-01T00:00:04.000000Z": timedelta(seconds=4),
        "2026-06-01T02:00:05+02:00": timedelta(seconds=5),
    }
    for text in moments:
        log.add(pa.table({"k": ["a"]}), at=text, wall="2026-06-01 00:00:09.25")
    log.add(pa.table({"k": ["a"]}), at="", wall=None)
    log.checkpoint(clean=False)
    left = [{"k": "a", "t": START + moment, "id": 1} for moment in moments.values()]
    found = Pond().lookup_join(left, table, **JOIN, columns=["at", "wall"]).to_pylist()
    assert [row["at"] for row in found] == [row["t"] for row in left]
    assert {row["wall"] for row in found} == {datetime(2026, 6, 1, 0, 0, 9, 250000)}


def test_what_a_reader_would_have_to_know_of_a_delta_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    refused: list[tuple[str, dict[str, Any], list[Mapping[str, Any]], str]] = [
        ("v2", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"]}}, [],
         "needs v2Checkpoint to be read, .*DROP FEATURE v2Checkpoint"),
        ("new", {"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}}, [], "needs the reader version 4"),
        ("mapped", {"configuration": {"delta.columnMapping.mode": "name"}}, [], "columnMapping.mode=name.*set it to"),
        ("clone", {}, [{"add": {"path": "s3://elsewhere/x.parquet", "partitionValues": {}}}], "make it a deep one"),
        ("near", {}, [{"add": {"path": "file:/elsewhere/x.parquet", "partitionValues": {}}}], "make it a deep one"),
        ("root", {}, [{"add": {"path": "/elsewhere/x.parquet", "partitionValues": {}}}], "make it a deep one"),
        ("vectors", {}, [{"add": {"path": "x.parquet", "partitionValues": {}}},
                         {"add": {"path": "x.parquet", "partitionValues": {}, "deletionVector": VECTOR}},
                         {"remove": {"path": "x.parquet"}}],
         r"by a deletion vector, .*APPLY \(PURGE\)"),
    ]  # fmt: skip
    for name, given, actions, words in refused:
        log, table = delta(tmp_path / name, **given), DeltaTable(tmp_path / name)
        log.act(*actions)
        with pytest.raises(FormatError, match=words):
            met(table)
    known = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors", "timestampNtz"]}
    delta(tmp_path / "known", protocol=known, configuration={"delta.columnMapping.mode": "none"}).add(of("a", 1, 4))
    assert met(DeltaTable(tmp_path / "known"))["a"] == 4


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_checkpoint_of_the_second_kind_is_told_where_it_is_needed(tmp_path: Path, ending: str) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    log.add(of("a", 1, 1))
    log.checkpoint(clean=False)
    log.add(of("a", 1, 2))
    place = tmp_path / "t" / "_delta_log"
    (place / f"{2:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.{ending}").write_bytes(b"")
    log.add(of("b", 1, 3))
    assert met(table) == {"a": 2, "b": 3, "c": None}
    (place / f"{2:020d}.json").unlink()
    with pytest.raises(FormatError, match=r"needs v2Checkpoint to be read, .*DROP FEATURE v2Checkpoint"):
        met(table)
    assert len(table.parts("1")) == 1


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    log.add(of("a", 1, 1))
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.json").write_text('{"add": ')
    with pytest.raises(CorruptFileError, match=r"2\.json cannot be read"):
        met(table)
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"no")
    with pytest.raises(CorruptFileError, match=r"checkpoint\.parquet cannot be read"):
        met(table)


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "null",
        '["add"]',
        '{"add": {}}',
        '{"add": 7}',
        '{"add": {"path": "x.parquet"}}',
        '{"add": {"path": 5, "partitionValues": {}}}',
        '{"add": {"path": "x.parquet", "partitionValues": {"k": 5}}}',
        '{"add": {"path": "x.parquet", "partitionValues": [1]}}',
        '{"add": {"path": "x.parquet", "partitionValues": {}, "deletionVector": "x"}}',
        '{"remove": {}}',
        '{"protocol": {}}',
        '{"protocol": {"minReaderVersion": "three"}}',
        '{"protocol": {"minReaderVersion": 3, "readerFeatures": [1, "x"]}}',
        '{"metaData": {"schemaString": "x", "partitionColumns": []}}',
        '{"metaData": {"schemaString": "5", "partitionColumns": []}}',
        '{"metaData": {"schemaString": "{}", "partitionColumns": []}}',
        '{"metaData": {"schemaString": "{\\"fields\\": [{\\"type\\": \\"decimal(99999999999999,0)\\"}]}"}}',
        '{"metaData": {"schemaString": null, "partitionColumns": []}}',
        '{"metaData": {"schemaString": "{\\"fields\\": [{\\"type\\": 5}]}", "partitionColumns": []}}',
        '{"metaData": {"schemaString": "{\\"fields\\": []}"}}',
        '{"metaData": {"schemaString": "{\\"fields\\": []}", "partitionColumns": [5]}}',
        '{"metaData": {"schemaString": "{\\"fields\\": []}", "partitionColumns": [], "configuration": 5}}',
    ],
)
def test_an_action_that_is_no_action_is_damage_of_the_log(tmp_path: Path, line: str) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    log.add(of("a", 1, 1))
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.json").write_text(f"{line}\n")
    for read in (table.schema, lambda: table.parts("2"), lambda: met(table)):
        with pytest.raises(CorruptFileError, match=r"2\.json has an action that is none of Delta Lake \(\w+Error: "):
            read()
    assert [json.loads(part)["path"] for part in table.parts("1")] == ["part 1-0.parquet"]


def test_statistics_of_a_checkpoint_may_be_what_python_has_not(tmp_path: Path) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    log.add(of("a", 1, 5))
    log.checkpoint()
    (name,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    written = pq.read_table(name)
    beyond: Any = pa.array([253_402_300_800_000_000] * len(written)).cast(pa.timestamp("us", "UTC"))
    pq.write_table(with_field(written, "stats_parsed", pa.StructArray.from_arrays([beyond], ["until"])), name)
    assert met(table)["a"] == 5
    vectors: Any = pa.array([VECTOR] * len(written))
    pq.write_table(with_field(written, "deletionVector", vectors), name)
    with pytest.raises(FormatError, match="by a deletion vector"):
        met(table)
    nothing: Any = pa.nulls(len(written), vectors.type)
    pq.write_table(with_field(written, "deletionVector", nothing), name)
    assert met(table)["a"] == 5


def with_field(actions: pa.Table, name: str, values: Any) -> pa.Table:
    """Return a checkpoint whose actions that add files have one more field."""
    added: Any = actions["add"].combine_chunks()
    fields = [*(added.field(place) for place in range(added.type.num_fields)), values]
    grown = pa.StructArray.from_arrays(fields, [*(one.name for one in added.type), name], mask=pc.is_null(added))
    return actions.set_column(actions.column_names.index("add"), "add", grown)


def looked(path: Path, table: Any = None, left: Any = None, **given: Any) -> pa.Table:
    rows = [{"k": "a", "at": at(1), "v": 1, "o": 1, "op": "upsert"}]
    return Pond().lookup_join(
        left or [{"k": "a", "t": at(9), "id": 1}], table or written(path / "t", rows), **{**JOIN, **given}
    )


def nested(path: Path) -> ParquetTable:
    (path / "nested" / "day=1").mkdir(parents=True)
    return written(path / "nested", [])


WALL = [{"k": "a", "t": datetime(2026, 6, 1)}]
SAME = [{"k": "a", "t": at(9), "v": 1}]

REFUSED = [
    Refused("right is of type \n; give a table that is read by version", lambda path: looked(path, [1]), looked),
    Refused(
        " has \n, which is no column of \n, only \n",
        lambda path: looked(path, columns=["w"]),
        lambda path: looked(path, columns=["v"]),
    ),
    Refused(
        "columns is \n; give a list of names, or, to rename them, a mapping such as columns={'quoted': 'at'}",
        lambda path: looked(path, columns="v"),
        lambda path: looked(path, columns=["v"]),
        lambda path: looked(path, columns={"quoted": "at"}),
    ),
    Refused(
        "right is the class \n; give a table of it, such as ",
        lambda path: looked(path, DeltaTable),
        lambda path: (delta(path / "delta"), looked(path, DeltaTable(path / "delta"))),
    ),
    Refused("right_time is \n, a column of type \n; give one", lambda path: looked(path, right_time="v"), looked),
    Refused(
        "right_op is \n, a column of type \n; give one of strings",
        lambda path: looked(path, right_op="v"),
        lambda path: looked(path, right_op="op"),
    ),
    Refused(
        "max_bytes is \n; give a number of bytes up to ",
        lambda path: looked(path, max_bytes=0),
        lambda path: looked(path, max_bytes=2_147_483_647),
    ),
    Refused("; cast the left one to the type of the right one, in ", lambda path: looked(path, left=WALL), looked),
    Refused(
        " has no files whose names end with \n; write one before",
        lambda path: looked(path, ParquetTable(path)),
        looked,
    ),
    Refused(
        ", and its files would be left out; give a directory of files",
        lambda path: looked(path, nested(path)),
        looked,
    ),
    Refused(
        "the path of the table is \n; give a directory, or a URI",
        lambda path: looked(path, ParquetTable("")),
        looked,
    ),
    Refused(
        "the path of the table is \n; give a directory, or a URI",
        lambda path: looked(path, DeltaTable(None)),  # type: ignore[arg-type]
        looked,
    ),
    Refused(
        " has no log of Delta Lake; give the table's directory",
        lambda path: looked(path, DeltaTable(path)),
        lambda path: (delta(path / "delta"), looked(path, DeltaTable(path / "delta"))),
    ),
]


@pytest.mark.parametrize("refused", REFUSED, ids=repr)
def test_what_is_refused_says_what_to_write_and_that_works(refused: Refused, tmp_path: Path) -> None:
    number = iter(range(9))

    def place() -> Path:
        path = tmp_path / str(next(number))
        path.mkdir()
        return path

    refused.check(place, ConfigurationError)


def test_columns_of_one_name_are_renamed_by_the_verb(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'v' twice; rename or drop them .* columns=\[\.\.\.\] of"):
        looked(tmp_path, left=SAME)
    assert looked(tmp_path, left=SAME, columns={"w": "v"})["w"].to_pylist() == [1]


@pytest.mark.parametrize("columns", [5, 1.5, b"v", [["v"]], [None], {"w": ["v"]}, {1: "v"}, {"w": None}])
def test_columns_that_are_no_names_are_refused(tmp_path: Path, columns: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^lookup_join: columns (is .*; give a list|has .*, which is no)"):
        looked(tmp_path, columns=columns)


@pytest.mark.parametrize("options", [{}, {"right_order": "millpond order", "right_op": "millpond op"}])
def test_columns_of_the_table_may_have_any_names(tmp_path: Path, options: dict[str, Any]) -> None:
    """The result has the table's columns, whatever the verb calls what it reads besides."""
    row = {"k": "a", "at": at(1), "k of the table": 1, "millpond time": 2, "millpond order": 3, "millpond time_": 4}
    kept = {name: row[name] for name in list(row)[2:]}
    table = pa.Table.from_pylist([{**row, "millpond op": "upsert"}])
    pq.write_table(table, tmp_path / "rows.parquet")
    left = [{"k": "a", "t": at(9), "id": 1}]
    found = Pond().lookup_join(left, ParquetTable(tmp_path), **JOIN, **options).to_pylist()
    assert [{name: one[name] for name in kept} for one in found] == [kept]
    renamed = {"key": "k", **{name: name for name in kept}}
    shown = Pond().lookup_join(left, ParquetTable(tmp_path), **JOIN, columns=renamed, **options).to_pylist()
    assert shown == [{**left[0], "key": "a", **kept}]
    other = {"k of the table": "at", "id of the table": "k of the table"}
    both = {"k": "k", "id": "k of the table"}
    pair = Pond().lookup_join(
        left, ParquetTable(tmp_path), on=both, left_time="t", right_time="at", columns=other, **options
    )
    assert pair.to_pylist() == [{**left[0], "k of the table": at(1), "id of the table": 1}]


def test_a_newer_match_needs_a_tolerance(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="direction is 'up'; give 'backward' or 'forward' or 'nearest'"):
        looked(tmp_path, direction="up")
    with pytest.raises(ConfigurationError, match="exact is 'no'; give exact=False"):
        looked(tmp_path, exact="no")
    with pytest.raises(ConfigurationError, match="newer than a left row its match may be; give tolerance='10 m"):
        looked(tmp_path, direction="nearest")
    looked(tmp_path, direction="nearest", tolerance="10 minutes")


def test_an_unknown_operation_is_refused_and_none_without_the_column(tmp_path: Path) -> None:
    table = written(tmp_path, [{"k": "a", "at": at(1), "op": "what"}])
    with pytest.raises(
        RecordError, match=r"operation 'what', which is none of upsert, .*; correct it, or leave out right_op"
    ):
        looked(tmp_path, table, right_op="op")
    looked(tmp_path, table)

"""``lookup_join`` gives what ``asof_join`` and DuckDB give for the version of the table that a micro-batch reads."""

import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

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
    """Versions, of which some have one key and time, and some delete."""
    ops = ["upsert", "upsert", "c", "delete", "update_preimage"]
    return [
        {"k": chance.choice(KEYS), "at": at(chance.randrange(30)), "v": chance.randrange(40), "o": chance.randrange(3),
         "op": chance.choice(ops)}
        for _ in range(count)
    ]  # fmt: skip


def written(directory: Path, rows: Rows, files: int = 1, name: str = "part") -> ParquetTable:
    """Rows in as many Parquet files."""
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
    """The last of the rows of each key and time."""
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
    values, _ = SortedVersions(rows).get_columns(pa.array(others), pa.array([99] * 400).to_numpy())
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
        with pytest.raises(ConfigurationError, match=r"'v' of text\.parquet is of type string, and was int64 .*make"):
            joined.feed(left=left)
    assert Pond().lookup_join(left, table, **JOIN, columns=["v"])["v"].to_pylist() == ["x"]


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


VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 34, "cardinality": 1}


def delta(path: Path, **given: Any) -> WrittenDelta:
    return WrittenDelta(path, RIGHT, **given)


def met(table: DeltaTable | ParquetTable) -> dict[str, int]:
    """What each key meets in the end."""
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


def test_what_a_reader_would_have_to_know_of_a_delta_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    refused: list[tuple[str, dict[str, Any], list[Mapping[str, Any]], str]] = [
        ("v2", {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"]}}, [],
         "needs v2Checkpoint to be read, .*DROP FEATURE v2Checkpoint"),
        ("new", {"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}}, [], "needs the reader version 4"),
        ("mapped", {"configuration": {"delta.columnMapping.mode": "name"}}, [], "columnMapping.mode=name.*set it to"),
        ("clone", {}, [{"add": {"path": "s3://elsewhere/x.parquet", "partitionValues": {}}}], "make it a deep one"),
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


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    log, table = delta(tmp_path / "t"), DeltaTable(tmp_path / "t")
    log.add(of("a", 1, 1))
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.json").write_text('{"add": ')
    with pytest.raises(CorruptFileError, match=r"2\.json cannot be read"):
        met(table)
    (tmp_path / "t" / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"no")
    with pytest.raises(CorruptFileError, match=r"checkpoint\.parquet cannot be read"):
        met(table)


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
    Refused("; make the left one what the other is, as ", lambda path: looked(path, left=WALL), looked),
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

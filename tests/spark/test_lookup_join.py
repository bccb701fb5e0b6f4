"""A micro-batch reads one version of a table elsewhere, and the same one again where it is repeated."""

import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millpond import Pond
from millpond.adapters.spark import Millpond
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.table_versions import RETAINED, TableVersions
from millpond.adapters.spark.worker.worker import THIS_WORKER
from millpond.adapters.tables import DeltaTable, ParquetTable
from millpond.errors import ConfigurationError
from millpond.processors.verbs import aggregates as agg
from millpond.stores.cleaning.durable import TABLE_VERSIONS
from millpond.stores.durability import Storage
from tests.pond.delta_tables import WrittenDelta
from tests.processors.verbs.duck import answered

pytestmark = pytest.mark.spark

START = datetime(2026, 6, 1, tzinfo=UTC)
_QUOTES: Any = {"symbol": pa.string(), "at": pa.timestamp("us", "UTC"), "bid": pa.int64()}
_TRADES: Any = {"symbol": pa.string(), "t": pa.timestamp("us", "UTC"), "id": pa.int64()}
QUOTES, ARROW_TRADES = pa.schema(_QUOTES), pa.schema(_TRADES)
TRADES = "symbol string, t timestamp, id bigint"
JOIN: dict[str, Any] = {"on": "symbol", "left_time": "t", "right_time": "at"}

Rows = list[dict[str, Any]]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def trades(chance: random.Random, first: int, count: int = 12) -> Rows:
    return [
        {"symbol": chance.choice("abc"), "t": at(chance.randrange(120)), "id": number}
        for number in range(first, first + count)
    ]


def quotes(chance: random.Random, times: list[int]) -> Rows:
    """Return quotes, no two of one time."""
    taken = [times.pop() for _ in range(6)]
    return [{"symbol": chance.choice("abc"), "at": at(second), "bid": chance.randrange(99)} for second in taken]


def duck(left: Rows, right: Rows) -> list[tuple[int, int | None]]:
    query = "SELECT l.id, r.bid FROM l ASOF LEFT JOIN r ON l.symbol = r.symbol AND l.t >= r.at ORDER BY l.id"
    tables = {"l": pa.Table.from_pylist(left, ARROW_TRADES), "r": pa.Table.from_pylist(right, QUOTES)}
    return answered(query, **tables)


class Job:
    """A query over files of trades, with what each micro-batch has put out, and a failure where one is due."""

    def __init__(self, spark: SparkSession, directory: Path, table: Any, **options: Any) -> None:
        self._spark = spark
        self._directory = directory
        self._table = table
        self._options = options
        self.out: dict[int, list[tuple[Any, ...]]] = {}
        self.fails = -1
        (directory / "in").mkdir()

    @property
    def pond(self) -> Millpond:
        return Millpond(application_id="job", state_dir=f"{self._directory}/state", backend="memory")

    def joined(self, pond: Millpond) -> DataFrame:
        left = self._spark.readStream.schema(TRADES).parquet(f"{self._directory}/in")
        return pond.lookup_join(left, self._table, **JOIN, how="left", **self._options)

    def arrive(self, rows: Rows, files: int = 3) -> None:
        for number in range(files):
            table = pa.Table.from_pylist(rows[number::files], ARROW_TRADES)
            pq.write_table(table, self._directory / "in" / f"{rows[0]['id']}-{number}.parquet")

    def run(self) -> None:
        def write(found: DataFrame, batch: int) -> None:
            rows = [(row["id"], row["bid"]) for row in found.select("id", "bid").collect()]
            self.out[batch] = sorted(rows)
            if batch == self.fails:
                raise RuntimeError("no more")

        started = self.joined(self.pond).writeStream.foreachBatch(write).trigger(availableNow=True)
        query = started.option("checkpointLocation", f"{self._directory}/checkpoint").start()
        query.awaitTermination()


def add(directory: Path, name: str, rows: Rows) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, QUOTES), directory / f"{name}.parquet")


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_the_table_grows_between_micro_batches_and_one_that_is_repeated_reads_what_it_had_read(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    chance, times = random.Random(7), random.Random(8).sample(range(120), 120)
    log = WrittenDelta(tmp_path / "quotes", QUOTES) if kind == "delta" else None

    def grow() -> Rows:
        new = [quotes(chance, times) for _ in range(2)]
        for number, rows in enumerate(new):
            if log is None:
                add(tmp_path / "quotes", f"{len(times)}-{number}", rows)
        if log is not None:
            log.add(*(pa.Table.from_pylist(rows, QUOTES) for rows in new))
        return [row for rows in new for row in rows]

    there = grow()
    table = ParquetTable(tmp_path / "quotes") if log is None else DeltaTable(tmp_path / "quotes")
    job, expected = Job(spark, tmp_path, table), {}
    for batch in range(4):
        left = trades(chance, 100 * batch)
        job.arrive(left)
        expected[batch] = duck(left, there)
        if batch == 2:
            job.fails = batch
            with pytest.raises(StreamingQueryException, match="no more"):
                job.run()
            assert job.out.pop(batch) == expected[batch]
            job.fails = -1
            there += grow()
            assert duck(left, there) != expected[batch]
        job.run()
        assert job.out == expected
        there += grow()


@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.long)])
def test_rows_are_explained_by_the_version_that_their_micro_batch_has_read(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    chance, times = random.Random(11), random.Random(12).sample(range(120), 120)
    log = WrittenDelta(tmp_path / "quotes", QUOTES) if kind == "delta" else None
    table = ParquetTable(tmp_path / "quotes") if log is None else DeltaTable(tmp_path / "quotes")
    came: dict[int, list[Row]] = {}
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", backend="memory")
    (tmp_path / "in").mkdir()
    place = f"{tmp_path}/checkpoint"

    def grow(name: str) -> None:
        new = quotes(chance, times)
        if log is None:
            add(tmp_path / "quotes", name, new)
        else:
            log.add(pa.Table.from_pylist(new, QUOTES))

    def keep(found: DataFrame, batch: int) -> None:
        came[batch] = found.collect()

    def run(pond: Millpond) -> DataFrame:
        left = spark.readStream.schema(TRADES).parquet(f"{tmp_path}/in")
        priced = pond.lookup_join(left, table, **JOIN, how="left", name="priced")
        query = priced.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", place).start().awaitTermination()
        return priced

    grow("0")
    for batch in range(3):
        rows = trades(chance, 100 * batch, 8)
        pq.write_table(pa.Table.from_pylist(rows, ARROW_TRADES), tmp_path / "in" / f"{batch}.parquet")
        run(pond := Millpond(application_id="job", state_dir=f"{tmp_path}/state", backend="memory"))
        grow(str(batch + 1))
    others = 0
    for batch, found in came.items():
        for row in found[::2]:
            told = pond.explain_match("priced", row, place, batch_id=batch)
            matches = [] if row["bid"] is None else [row["bid"]]
            assert [one.row["bid"] for one in told.winners if one.row is not None] == matches
            (note,) = told.notes
            assert note.endswith(f"of {table!r}, as micro-batch {batch} reads it")
            now = pond.explain_match("priced", row, place)
            assert now.notes[0].endswith("as micro-batch 2 reads it")
            winners = [one.row["bid"] for one in now.winners if one.row is not None]
            assert (now.notes[1:] == ()) is (winners == matches)
            others += winners != matches
    assert others
    with pytest.raises(ConfigurationError, match="has no micro-batch 7, only 0 to 2; look at one of these"):
        pond.explain_match("priced", came[0][0], place, batch_id=7)
    (first,) = (tmp_path / "state" / "job.priced" / TABLE_VERSIONS / "right").glob("*-0000000000")
    first.unlink()
    with pytest.raises(ConfigurationError, match=r"no version is known that 'priced' has read by micro-batch 0 of .*"):
        pond.explain_match("priced", came[0][0], place, batch_id=0)
    pond.explain_match("priced", came[0][0], place, batch_id=1)


class MortalTable:
    """A table that moves on once, where a file of it is due, and whose reader is killed then."""

    def __init__(self, table: ParquetTable, due: Path) -> None:
        self.table = table
        self.due = due

    def schema(self) -> pa.Schema:
        return self.table.schema()

    def version(self) -> str:
        return self.table.version()

    def parts(self, version: str) -> Sequence[str]:
        return self.table.parts(version)

    def read(self, part: str, columns: Sequence[str]) -> pa.Table:
        if self.due.exists():
            self.due.rename(Path(self.table.path) / self.due.name)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.table.read(part, columns)


def test_a_micro_batch_whose_worker_was_killed_reads_the_version_that_it_had_begun_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, times = random.Random(5), random.Random(6).sample(range(120), 120)
    there, later, left = quotes(chance, times), quotes(chance, times), trades(chance, 0)
    add(tmp_path / "quotes", "first", there)
    add(tmp_path / "due", "later", later)
    due = tmp_path / "due" / "later.parquet"
    job = Job(spark, tmp_path, MortalTable(ParquetTable(tmp_path / "quotes"), due))
    job.arrive(left)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        job.run()  # in which Spark tries the task again
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    assert not due.exists()
    assert job.out == {0: duck(left, there)}
    assert duck(left, there) != duck(left, there + later)


def attempt(batch: int, query: str = "q") -> Attempt:
    return Attempt(batch, query, 0, THIS_WORKER)


def test_whoever_comes_first_settles_the_version_for_all_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    versions = TableVersions(Storage.from_uri(tmp_path), "job.v", "right")
    found: set[str] = set()
    barrier = threading.Barrier(8)

    def task(number: int) -> None:
        barrier.wait()
        found.add(versions.of(attempt(0), lambda: str(number)))

    threads = [threading.Thread(target=task, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (settled,) = found
    assert versions.of(attempt(0), lambda: "another") == settled
    assert versions.of(attempt(0, "another query"), lambda: "its own") == "its own"
    assert versions.read_by("q", 0) == versions.read_by("q", 5) == (settled, 0)
    assert versions.read_by("another query", 7) == ("its own", 0)
    assert versions.read_by("a third", 7) is None
    for batch in range(1, RETAINED + 4):
        assert versions.of(attempt(batch), lambda: "v") == "v"
    kept = [path.name for path in (tmp_path / "job.v" / TABLE_VERSIONS / "right").iterdir()]
    assert versions.read_by("q", RETAINED) == ("v", RETAINED)
    assert versions.read_by("q", 2) is None
    assert sorted(kept) == sorted(
        [*(f"q-{batch:010d}" for batch in range(3, RETAINED + 4)), "another query-0000000000"]
    )


@pytest.mark.first
def test_static_rows_meet_the_version_of_then_and_get_what_they_get_without_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance, times = random.Random(3), random.Random(4).sample(range(120), 120)
    right, left = quotes(chance, times), trades(chance, 0, 40)
    spark.createDataFrame(pa.Table.from_pylist(right, QUOTES)).repartition(3).write.parquet(f"{tmp_path}/quotes")
    table, frame = ParquetTable(tmp_path / "quotes"), spark.createDataFrame(
        [tuple(row.values()) for row in left], TRADES
    ).repartition(3)  # fmt: skip
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", backend="memory")
    expected = Pond().lookup_join(pa.Table.from_pylist(left, ARROW_TRADES), table, **JOIN, columns=["bid"])
    whole = pond.lookup_join(frame, table, **JOIN, columns=["bid"], name="whole")
    add(tmp_path / "quotes", "later", [{"symbol": symbol, "at": at(0), "bid": -1} for symbol in "abc"])
    columns = ["symbol", "id", "bid"]
    assert sorted(map(tuple, whole.select(columns).collect())) == sorted(
        tuple(row[name] for name in columns) for row in expected.to_pylist()
    )
    near = pond.lookup_join(
        frame, ParquetTable(f"{tmp_path}/quotes"), **JOIN, columns={"price": "bid"}, where="price <= id",
        otherwise="next", direction="nearest", tolerance="20 seconds", how="left", default={"price": -5}, name="near",
    )  # fmt: skip
    import pyarrow.compute as pc

    same = Pond().lookup_join(
        pa.Table.from_pylist(left, ARROW_TRADES), table, **JOIN, columns={"price": "bid"}, how="left",
        where=pc.field("price") <= pc.field("id"), otherwise="next", direction="nearest", tolerance="20 seconds",
        default={"price": -5},
    )  # fmt: skip
    assert sorted(tuple(row) for row in near.select("id", "price").collect()) == sorted(
        (row["id"], row["price"]) for row in same.to_pylist()
    )
    for how in ("semi", "anti"):
        some = pond.lookup_join(frame, table, **JOIN, how=how, name=how, tolerance="9 seconds")
        assert some.columns == frame.columns
        theirs = Pond().lookup_join(
            pa.Table.from_pylist(left, ARROW_TRADES), table, **JOIN, how=how, tolerance="9 seconds"
        )
        assert sorted(row["id"] for row in some.collect()) == sorted(row["id"] for row in theirs.to_pylist())


def test_other_verbs_go_on_behind_it_and_rows_that_cannot_be_used_are_kept_as_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    add(tmp_path / "quotes", "all", [{"symbol": symbol, "at": at(0), "bid": 2} for symbol in "ab"])
    rows: Rows = [
        {"symbol": symbol, "t": None if number == 3 else at(number), "id": number}
        for number, symbol in enumerate("aabb")
    ]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, ARROW_TRADES), tmp_path / "in" / "1.parquet")
    pond = Millpond(
        application_id="job", state_dir=f"{tmp_path}/state", backend="memory", partitions=2, on_error="dead-letter"
    )
    left = spark.readStream.schema(TRADES).parquet(f"{tmp_path}/in")
    priced = pond.lookup_join(left, ParquetTable(tmp_path / "quotes"), **JOIN, columns=["bid"], name="priced")
    totals = pond.aggregate(priced, {"total": agg.sum("bid")}, by="symbol", time="t", name="totals")
    query = (
        totals.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True).start(f"{tmp_path}/out")
    )  # fmt: skip
    query.awaitTermination()
    found = spark.read.parquet(f"{tmp_path}/out").select("symbol", "total").collect()
    assert sorted(map(tuple, found)) == [("a", 4), ("b", 2)]
    (letter,) = pond.dead_letters("priced").collect()
    assert letter["reason"] == "dropped-bad-timestamp"
    plan = str(pond.plan(f"{tmp_path}/checkpoint"))
    assert "totals" in plan
    assert "priced" not in plan
    told = pond.explain_match("priced", Row(symbol="a", t=at(0), id=1), f"{tmp_path}/checkpoint")
    assert [one.row for one in told.winners] == [{"bid": 2}]


def test_the_wall_time_of_a_table_is_compared_with_that_of_rows_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "quotes").mkdir()
    plain = pa.table({"symbol": ["a"], "at": [datetime(2026, 6, 1)], "bid": [7]})
    pq.write_table(plain, tmp_path / "quotes" / "1.parquet")
    table, frame = ParquetTable(tmp_path / "quotes"), spark.createDataFrame([("a", at(60), 1)], TRADES)
    pond = Millpond(application_id="job", state_dir=f"{tmp_path}/state", backend="memory")
    with pytest.raises(ConfigurationError, match=r"cast the left one .*\.cast\('timestamp'\) or \.cast"):
        pond.lookup_join(frame, table, **JOIN)
    given = {**JOIN, "left_time": F.col("t").cast("timestamp_ntz")}
    assert [row["bid"] for row in pond.lookup_join(frame, table, **given).collect()] == [7]

"""``aggregate`` over change feeds on Spark: what comes out is the aggregate of the table, whatever files there are."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from millpond import Pond
from millpond.adapters.edit import StateEditor, erase
from millpond.adapters.inspect import StateInspector
from millpond.adapters.spark import Millpond, register_state_source
from millpond.adapters.spark.evolution.evolution import Evolution
from millpond.cli import app
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import TimeWindows, cube, rollup
from millpond.processors.verbs import aggregates as agg
from tests.spark.test_verbs import Job

pytestmark = pytest.mark.spark

ORDERS = "id int, customer string, status string, amount int, at timestamp, op string"
BY = ["customer", "status", "grouping_id"]
CALLS = {
    "n": agg.count(),
    "total": agg.sum("amount"),
    "most": agg.max("amount"),
    "mean": agg.avg("amount"),
    "paid": agg.count_if("status = 'paid'"),
    "different": agg.count_distinct("status"),
}
SQL = """
    SELECT customer, status, grouping_id() AS grouping_id, count(*) n, sum(amount) total, max(amount) most,
           avg(amount) mean, count_if(status = 'paid') paid, count(DISTINCT status) different
    FROM there GROUP BY CUBE (customer, status)
"""


def changes(seed: int, count: int = 90) -> list[tuple[Any, ...]]:
    """Return changes of a few orders, of which later ones have later times."""
    chance, start = Random(seed), datetime(2026, 6, 1)
    return [
        (
            chance.randrange(25), chance.choice(["ann", "bob", None]), chance.choice(["new", "paid"]),
            chance.choice([None, 1, 5, 8]), str(start + timedelta(minutes=number)),
            chance.choice(["upsert", "upsert", "upsert", "delete"]),
        )
        for number in range(count)
    ]  # fmt: skip


def there(job: Job, given: list[tuple[Any, ...]]) -> DataFrame:
    last = {row[0]: row for row in given}
    return job.rows(ORDERS, *(row for row in last.values() if row[-1] == "upsert"))


def left_by(job: Job, like: DataFrame) -> dict[Any, tuple[Any, ...]]:
    """Return the table that the changes leave which were written."""
    rows = job.spark.read.schema(like.schema).parquet(f"{job.directory}/out").collect()
    last = {tuple(row[name] for name in BY): row for row in sorted(rows, key=lambda row: row["sequence"])}
    return {key: tuple(row[name] for name in CALLS) for key, row in last.items() if row["op"] == "upsert"}


def by_sql(job: Job, given: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    there(job, given).createOrReplaceTempView("there")
    found = job.spark.sql(SQL)
    return {tuple(row[name] for name in BY): tuple(row[name] for name in CALLS) for row in found.collect()}


def grouped(pond: Millpond, orders: DataFrame) -> DataFrame:
    latest = pond.latest(orders, key="id", time="at", history="10 days", op="op", name="latest")
    return pond.aggregate(latest, CALLS, by=cube("customer", "status"), time="at", name="grouped")


def test_many_files_restarts_and_other_partitions_leave_what_sql_says(spark: SparkSession, tmp_path: Path) -> None:
    job, given, come = Job(spark, tmp_path), changes(1), 0
    for run, partitions in enumerate((2, 2, 3)):
        for _ in range(4):
            size = 30 // 4
            some = given[come : come + size]
            Random(run).shuffle(some)
            orders = job.arrive("orders", job.rows(ORDERS, *some))
            come += size
        orders = spark.readStream.schema(orders.schema).option("maxFilesPerTrigger", 3).parquet(f"{tmp_path}/orders")
        more = {} if run < 2 else {"evolution": Evolution(f"{tmp_path}/out-checkpoint")}
        found = grouped(job.pond(partitions=partitions, **more), orders)
        job.run(found)
        assert left_by(job, found) == by_sql(job, given[:come])


@pytest.mark.long
def test_changes_of_another_system_count_by_their_order_across_files_restarts_and_other_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, given = Job(spark, tmp_path), [(*change, place) for place, change in enumerate(changes(6))]
    come = [*given, *Random(6).choices(given, k=9)]
    Random(7).shuffle(come)
    for run, partitions in enumerate((2, 2, 3)):
        some = come[run * 33 : (run + 1) * 33]
        for place in range(0, len(some), 7):
            orders = job.arrive("orders", job.rows(f"{ORDERS}, lsn long", *some[place : place + 7]))
        more = {} if run < 2 else {"evolution": Evolution(f"{tmp_path}/out-checkpoint")}
        found = job.pond(partitions=partitions, **more).aggregate(
            orders, CALLS, by=cube("customer", "status"), time="at", key="id", op="op", order="lsn", name="grouped"
        )
        job.run(found)
        seen = sorted(come[: (run + 1) * 33], key=lambda change: change[-1])
        assert left_by(job, found) == by_sql(job, [change[:-1] for change in seen])


def test_a_feed_behind_files_is_known_by_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    job, given = Job(spark, tmp_path), changes(2)
    pond = job.pond()
    latest = pond.latest(
        job.arrive("orders", job.rows(ORDERS, *given)), key="id", time="at", history="10 days", op="op", name="latest"
    )
    job.run(latest, "latest")
    again = spark.readStream.schema(spark.read.parquet(f"{tmp_path}/latest").schema).parquet(f"{tmp_path}/latest")
    found = pond.aggregate(again, CALLS, by=cube("customer", "status"), time="at", name="grouped")
    job.run(found)
    assert left_by(job, found) == by_sql(job, given)


def test_static_frames_and_arrow_tables_answer_the_same(spark: SparkSession, tmp_path: Path) -> None:
    job, given = Job(spark, tmp_path), changes(3)
    calls = {name: call for name, call in CALLS.items() if name != "paid"}
    rows = job.rows(ORDERS, *given)
    named: dict[str, Any] = {"by": "customer", "time": "at", "key": "id", "op": "op"}
    on_spark = job.pond().aggregate(rows, calls, **named).toPandas()
    in_process = Pond().aggregate(rows.toArrow(), calls, **named).to_pandas()
    there(job, given).createOrReplaceTempView("there")
    wanted = spark.sql("SELECT customer, count(*) n, sum(amount) s FROM there GROUP BY customer").collect()
    for found in (on_spark, in_process):
        rows_found = [row for row in found.to_dict("records") if row["op"] == "upsert"]
        told = {
            (row["customer"], row["n"], None if row["total"] != row["total"] else row["total"]) for row in rows_found
        }
        assert told == {tuple(row) for row in wanted}


def test_a_state_that_counts_changes_never_becomes_one_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    job, given = Job(spark, tmp_path), changes(4, 20)

    def latest(pond: Millpond) -> DataFrame:
        orders = job.stream("orders", job.rows(ORDERS, *given))
        return pond.latest(orders, key="id", time="at", history="10 days", op="op", name="latest")

    def count(rows: DataFrame, pond: Millpond) -> DataFrame:
        return pond.aggregate(rows, {"n": agg.count()}, by="id", time="change_time", name="n")

    job.arrive("orders", job.rows(ORDERS, *given))
    pond = job.pond()
    job.run(count(latest(pond).drop("op"), pond))
    pond = job.pond()
    with pytest.raises(StateConflictError, match=r"counts each change as a row; .*dropped=\['n'\].*\.drop\('op'\)"):
        count(latest(pond), pond)
    job.arrive("orders", job.rows(ORDERS, *given))
    pond = job.pond()
    job.run(count(latest(pond).drop("op"), pond))
    job.arrive("orders", job.rows(ORDERS, *given))
    evolution = Evolution(f"{tmp_path}/out-checkpoint", into=f"{tmp_path}/new-checkpoint", dropped=["n"])
    pond = job.pond(evolution=evolution)
    found = pond.aggregate(latest(pond), {"n": agg.count()}, by="id", time="change_time", name="m")
    evolution.location(found)
    job.run(found, "new")


@pytest.mark.long
def test_results_over_a_feed_come_go_and_are_called_otherwise_at_restarts(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    like = job.rows(f"{ORDERS}, lsn int")

    def arrive(*given: tuple[int, int, str, int]) -> None:
        rows = [(id, "ann", "new", amount, "2026-06-01 12:00", op, lsn) for id, amount, op, lsn in given]
        job.arrive("orders", job.rows(f"{ORDERS}, lsn int", *rows))

    def grouped(calls: dict[str, Any], **options: Any) -> DataFrame:
        return job.pond().aggregate(
            job.stream("orders", like), calls, by="customer", time="at", key="id", op="op", order="lsn", name="one",
            **options,
        )  # fmt: skip

    def result(rows: DataFrame) -> dict[str, Any]:
        job.run(rows)
        found = spark.read.schema(rows.schema).option("mergeSchema", True).parquet(f"{tmp_path}/out")
        last: dict[str, Any] = max(found.collect(), key=lambda row: row["sequence"]).asDict()
        return {name: last[name] for name in rows.columns if name not in ("customer", "op", "sequence", "change_time")}

    first = {"n": agg.count(), "most": agg.max("amount")}
    arrive((1, 5, "u", 1), (2, 7, "u", 2))
    assert result(grouped(first)) == {"n": 2, "most": 7}
    arrive((3, 6, "u", 3))
    total = {"total": agg.sum("amount"), "top": agg.max("amount")}
    with pytest.raises(StateConflictError, match=r"added=\['total'\], renamed={'most': 'top'}, dropped=\['n'\]"):
        grouped(total)
    with pytest.raises(StateConflictError, match=r"'most' was max.*write it again"):
        grouped({"n": agg.count(), "most": agg.max("id")})
    with pytest.raises(ConfigurationError, match=r"from its next change on; write added=\['total'\]"):
        grouped(total, added={"total": "2026-12-01T00:00:00Z"}, renamed={"most": "top"}, dropped=["n"])
    with pytest.raises(ConfigurationError, match=r"from its next change on; write added=\['total'\]"):
        grouped(total, added={"total": like}, renamed={"most": "top"}, dropped=["n"])
    said: dict[str, Any] = {"added": ["total"], "renamed": {"most": "top"}, "dropped": ["n"]}
    assert result(grouped(total, **said)) == {"total": 6, "top": 7}
    arrive((2, 7, "d", 4))
    assert result(grouped(total, **said)) == {"total": 6, "top": 6}
    arrive((1, 5, "u", 1), (2, 7, "u", 2))
    assert result(grouped(dict(reversed(total.items())))) == {"top": 6, "total": 11}
    arrive((1, 5, "d", 5), (3, 6, "d", 6), (4, 1, "u", 7))
    assert result(grouped({**total, "n": agg.count()}, added=["n"])) == {"total": 1, "top": 1, "n": 1}


def test_a_feed_is_aggregated_as_one_at_every_restart(spark: SparkSession, tmp_path: Path) -> None:
    job, given = Job(spark, tmp_path), changes(4, 20)

    def counts(pond: Millpond, name: str, *without: str) -> DataFrame:
        orders = job.stream("orders", job.rows(ORDERS, *given))
        latest = pond.latest(orders, key="id", time="at", history="10 days", op="op", name="latest")
        return pond.aggregate(latest.drop(*without), {"n": agg.count()}, by="id", time="at", name=name)

    job.arrive("orders", job.rows(ORDERS, *given))
    job.run(counts(job.pond(), "one"))
    with pytest.raises(StateConflictError, match=r"op=None, but the rows in the state of .* were put with op='op'"):
        counts(job.pond(), "one", "op")


def test_what_is_kept_of_a_feed_is_shown_with_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    register_state_source(spark)
    like = job.rows(f"{ORDERS}, lsn int")
    places: dict[str, Any] = {"checkpoint": f"{tmp_path}/out-checkpoint", "state_dir": f"{tmp_path}/state"}

    def run(pond: Millpond, calls: dict[str, Any], *given: tuple[Any, ...], **options: Any) -> None:
        job.arrive("orders", job.rows(f"{ORDERS}, lsn int", *given))
        orders = job.stream("orders", like)
        by = rollup("customer", "status")
        job.run(pond.aggregate(orders, calls, by=by, time="at", key="id", op="op", order="lsn", name="one", **options))

    def stored(store: str) -> list[dict[str, Any]]:
        """Return the entries that all ways show."""
        view = StateInspector.at(**places).store(store)
        found = [row for batch in view.rows() for row in batch.to_pylist()]
        frame = spark.read.format("millpond").options(**places, store=store).load().select("key.*", "value.*")
        named = [{**row["key"], **row["value"]} for row in found]
        assert sorted(map(repr, (row.asDict(recursive=True) for row in frame.drop("time").collect()))) == sorted(
            repr({name: value for name, value in row.items() if name != "time"}) for row in named
        )
        return named

    first = {"n": agg.count(), "last": agg.last("amount", where="amount > 0")}
    run(
        job.pond(), first,
        (1, "ann", "new", 5, "2026-06-01 12:00", "u", 1), (2, None, "new", None, "2026-06-01 12:01", "u", 2),
        (3, "ann", "old", 7, "2026-06-01 12:02", "d", 3),
    )  # fmt: skip
    pond = job.pond()
    second = {**first, "total": agg.sum("amount")}
    run(pond, second, (4, "ann", "old", 1, "2026-06-01 12:03", "u", 4), added=["total"])

    whole, ann = (
        {"customer": None, "status": None, "grouping_id": 3},
        {"customer": "ann", "status": None, "grouping_id": 1},
    )
    new = {"customer": "ann", "status": "new", "grouping_id": 0}
    rows = {row["id"]: row for row in stored("rows")}
    assert rows.keys() == {1, 2, 4}
    assert rows[1]["groups"] == [new, ann, whole]
    assert [rows[id]["values"] for id in (1, 2, 4)] == [
        {"n": True, "last": {"value": 5}, "total": None},
        {"n": True, "last": None, "total": None},
        {"n": True, "last": {"value": 1}, "total": 1},
    ]
    assert rows[4]["time"] == datetime(2026, 6, 1, 12, 3, tzinfo=UTC)
    groups = stored("groups")
    assert len(groups) == 6
    assert {**whole, "n": 3, "last": 1, "total": 1} in groups
    assert {**new, "n": 1, "last": 5, "total": None} in groups
    for name, own in (("rows", rows.values()), ("groups", groups)):
        shown = pond.read_store("one", name, places["checkpoint"])
        assert {"id", "groups", "time", "values"} <= {*shown.columns} or name == "groups"
        assert shown.count() == len(own)

    def told(command: str, *given: str) -> list[Any]:
        said = ["state", command, places["checkpoint"], *given, "--state-dir", places["state_dir"], "--json"]
        result = CliRunner().invoke(app, said)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    (row,) = told("get", "rows", "4")
    assert row["value"]["values"] == {"n": True, "last": {"value": 1}, "total": 1}
    (group,) = told("get", "groups", '["ann", "new", 0]')
    assert group["value"] == {"n": 1, "last": 5, "total": None}
    changed = told("diff", "groups", "--from-batch", "0")
    assert {change["change"] for change in changed} == {"insert", "update"}
    assert {"value": {"n": 3, "last": 1, "total": 1}} in [
        {"value": change["after"]["value"]} for change in changed if change["key"]["grouping_id"] == 3
    ]
    with StateEditor(StateInspector.at(**places), "ann", "") as editor:
        for name, key in (("rows", [4]), ("groups", ["ann", "new", 0])):
            with pytest.raises(ConfigurationError, match=r"belong together; let a change of the row arrive"):
                editor.delete(name, key)
    assert erase(StateInspector.at(**places), [["ann", "new", 0], [2]], by="ann").rows == {"rows": 1, "input-order": 1}
    run(
        job.pond(),
        second,
        (4, "ann", "old", 1, "2026-06-01 12:03", "d", 5),
        (1, "ann", "new", 6, "2026-06-01 12:04", "u", 6),
    )
    assert {row["id"] for row in stored("rows")} == {1}
    assert {**new, "n": 1, "last": 6, "total": 6} in stored("groups")


def test_what_has_no_meaning_over_a_feed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    pond = job.pond()
    rows = job.rows(ORDERS, *changes(5, 9))
    latest = pond.latest(rows, key="id", time="at", history="10 days", op="op")
    given: dict[str, Any] = {"by": "customer", "time": "at"}
    with pytest.raises(ConfigurationError, match="group by it"):
        pond.aggregate(latest, {"n": agg.count()}, **given, window=TimeWindows("1 day"), name="windowed")
    days = latest.withColumn("day", F.date_trunc("day", "at"))
    by_day = pond.aggregate(days, {"n": agg.count()}, by=["customer", "day"], time="at", name="by day")
    assert by_day.count() > 0

"""Verbs on DataFrames: restarts, chains, change feeds, null keys, the end of the input, and what is refused early."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millpond.adapters.spark import Millpond, register_state_source
from millpond.errors import ConfigurationError, MillpondError, StateConflictError
from millpond.processors import SessionWindows, TimeWindows
from millpond.processors.verbs import aggregates

pytestmark = pytest.mark.spark

CHANGE = ("op", "sequence", "change_time")


class Job:
    """A job in its own directory: inputs as files, state, a checkpoint and an output."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self._directory = self.directory = directory

    def pond(self, **options: Any) -> Millpond:
        given: dict[str, Any] = {
            "application_id": "job",
            "partitions": 2,
            "backend": "lmdb",
            "state_dir": f"{self._directory}/state",
        }
        return Millpond(**(given | options))

    def rows(self, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
        """Return static rows; a column called at, since or ts is given as text."""
        names = [column.split()[0] for column in schema.split(", ")]
        text = ", ".join(
            f"{name} string" if name in ("at", "since", "ts") else column
            for name, column in zip(names, schema.split(", "), strict=True)
        )
        given = self.spark.createDataFrame(list(rows), text)
        return given.selectExpr(
            *(f"cast({name} as timestamp) as {name}" if name in ("at", "since", "ts") else name for name in names)
        )

    def arrive(self, name: str, rows: DataFrame) -> DataFrame:
        """Write one more file of an input, and return the stream of all of its files."""
        rows.coalesce(1).write.mode("append").parquet(f"{self._directory}/{name}")
        return self.stream(name, rows)

    def stream(self, name: str, like: DataFrame) -> DataFrame:
        reader = self.spark.readStream.schema(like.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(f"{self._directory}/{name}")

    def run(self, rows: DataFrame, out: str = "out") -> StreamingQuery:
        """Run the query until its inputs are used up."""
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{self._directory}/{out}-checkpoint")
        query = writer.trigger(availableNow=True).start(f"{self._directory}/{out}")
        query.awaitTermination()
        return query

    def written(self, like: DataFrame, out: str = "out") -> list[tuple[Any, ...]]:
        return in_order(self.spark.read.schema(like.schema).parquet(f"{self._directory}/{out}"))


def in_order(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows.collect()), key=repr)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


RATES = "currency string, since timestamp, rate int"


@pytest.mark.slow
def test_an_asof_join_goes_on_with_its_state_when_the_schema_evolves(job: Job) -> None:
    rates = job.rows(RATES, ("EUR", "2024-01-01 10:00", 7))
    orders = job.rows("id int, currency string, ts timestamp", (1, "EUR", "2024-01-01 10:30"))
    job.arrive("rates", rates)
    job.arrive("orders", orders.limit(0))
    runs: list[tuple[DataFrame, dict[str, Any], tuple[Any, ...]]] = [
        (rates, {}, (7,)),
        (rates.withColumn("note", F.lit(None).cast("string")), {}, (7, None)),
        (rates.selectExpr("currency", "since", "bigint(rate)", "string(null) as note"), {}, (7, None)),
        (
            rates.selectExpr("currency", "since", "bigint(rate) as price", "string(null) as note"),
            {"renamed": {"rate": "price"}},
            (7, None),
        ),
        (rates.selectExpr("currency", "since", "bigint(rate) as price"), {"renamed": {"rate": "price"}}, (7,)),
    ]
    for number, (right, declared, match) in enumerate(runs):
        if number:
            job.arrive("orders", orders.withColumn("id", F.lit(number)))
        arriving = job.stream("orders", orders), job.stream("rates", right)
        joined = job.pond().asof_join(
            *arriving, on="currency", left_time="ts", right_time="since", history="1 day", **declared
        )
        job.run(joined)
        if number:
            found = [row for row in job.written(joined) if row[0] == number]
            assert [row[4:] for row in found] == [match]


@pytest.mark.long
def test_left_columns_of_an_asof_join_may_become_any_others_unless_rows_wait_for_a_grace(job: Job) -> None:
    rates = job.arrive("rates", job.rows(RATES, ("EUR", "2024-01-01 10:00", 7)))
    orders = job.rows("id int, currency string, ts timestamp, note string", (1, "EUR", "2024-01-01 10:30", "a"))
    job.arrive("orders", orders)
    on: dict[str, Any] = {"currency": "currency"}

    def joined(change: Callable[[DataFrame], DataFrame] = lambda df: df, **given: Any) -> DataFrame:
        how: dict[str, Any] = {"on": on, "left_time": "ts", "right_time": "since", "history": "1 day", **given}
        return job.pond().asof_join(change(job.stream("orders", orders)), rates, **how)

    patient: dict[str, Any] = {"name": "patient", "grace": "1 hour"}
    job.run(joined().select("rate"), "plain")
    job.run(joined(**patient).select("rate"), "patient")
    changes: dict[str, Callable[[DataFrame], DataFrame]] = {
        "renamed": lambda df: df.withColumnRenamed("note", "remark"),
        "of another type": lambda df: df.withColumn("note", F.length("note")),
        "gone, and others there": lambda df: df.selectExpr("currency", "ts", "0 as a", "'' as b"),
    }
    for change in changes.values():
        joined(change)
    for what in ("renamed", "of another type"):
        with pytest.raises(StateConflictError, match="'note'"):
            joined(changes[what], **patient)
    job.arrive("orders", orders.withColumn("id", F.lit(2)))

    def other(df: DataFrame) -> DataFrame:
        return df.selectExpr("currency as sold", "id", "length(note) as note", "ts as sold_at")

    again = joined(other, on={"sold": "currency"}, left_time=F.col("sold_at"), name="asof_join-currency")
    found = again.select("rate", "note")
    job.run(found, "plain")
    assert (7, 1) in job.written(found, "plain")


def refused_restarts() -> list[Any]:
    return [
        pytest.param(lambda df: df.withColumnRenamed("rate", "price"), StateConflictError,
                     "'rate' is gone, and may have been renamed", id="renamed without a word"),
        pytest.param(lambda df: df.withColumn("rate", F.col("rate").cast("string")), StateConflictError,
                     "'rate' cannot become string", id="another type"),
        pytest.param(lambda df: df.withColumn("currency", F.lit(1)), MillpondError, "currency", id="another key"),
    ]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), refused_restarts())
def test_a_restart_with_a_schema_that_cannot_read_the_state_is_refused(
    job: Job, change: Callable[[DataFrame], DataFrame], error: type[Exception], message: str
) -> None:
    rates = job.rows(RATES, ("EUR", "2024-01-01 10:00", 7))
    arriving = job.arrive("rates", rates)
    job.run(job.pond().latest(arriving, key="currency", time="since", history=0))
    with pytest.raises(error, match=message) as refused:
        job.pond().latest(change(arriving), key="currency", time="since", history=0)
    assert "int32" in str(refused.value) or "string" in str(refused.value)


@pytest.mark.slow
def test_a_restart_by_other_columns_of_the_key_is_refused_and_renamed_ones_are_declared(job: Job) -> None:
    columns = "id int, at timestamp, a string, b string, v int"
    orders = job.rows(columns, (1, "2024-01-01 10:00", "x", "y", 5), (2, "2024-01-01 10:01", "y", "x", 6))
    names = job.rows("k string, since timestamp, name string", ("x", "2024-01-01 09:00", "Xu"))
    left, right = job.arrive("orders", orders), job.arrive("names", names)
    times: dict[str, Any] = {"left_time": "at", "right_time": "since"}

    def total(by: str) -> DataFrame:
        return job.pond().aggregate(left, {"n": aggregates.sum("v")}, by=by, time="at", name="totals")

    def newest(rows: DataFrame, key: str | list[str], **given: Any) -> DataFrame:
        return job.pond().latest(rows, key=key, time="at", history=0, name="newest", **given)

    def joined(**given: Any) -> DataFrame:
        return job.pond().table_join(left, right, how="left", name="joined", **times, **given)

    job.run(newest(left, "a").select("sequence").unionAll(total("a").select("sequence")).unionAll(
        joined(on={"a": "k"}, left_key="id").select("sequence")))  # fmt: skip
    told = r"the {} is \({}: string\), but the rows .* put by \({}: string\); write these columns again"
    with pytest.raises(StateConflictError, match=told.format("key of 'input'", "b", "a")):
        total("b")
    with pytest.raises(StateConflictError, match=told.format("key of 'input'", "b", "a")):
        newest(left, "b")
    with pytest.raises(StateConflictError, match=told.format("foreign key of 'left'", "b", "a")):
        joined(on={"b": "k"}, left_key="id")
    shorter = left.withColumn("a", F.length("a"))
    with pytest.raises(
        StateConflictError, match=r"; cast the columns: \.withColumn\('a', .*\('string'\)\), or give"
    ) as cast:
        newest(shorter, "a")
    assert "rekeyed" not in str(cast.value)
    newest(shorter.withColumn("a", F.col("a").cast("string")), "a")
    with pytest.raises(StateConflictError, match=r"; write the columns a again, or give the verb.* rekeyed="):
        newest(left, ["a", "b"])
    renamed = left.withColumnRenamed("a", "c")
    with pytest.raises(StateConflictError, match=r"renamed: \.withColumnRenamed\('c', 'a'\)\), or give the verb"):
        newest(renamed, "c")
    assert newest(renamed.withColumnRenamed("c", "a"), "a").columns[0] == "a"
    declared = newest(renamed, "c", renamed={"a": "c"})
    with pytest.raises(StateConflictError):
        newest(renamed, "c")
    job.run(declared.select("sequence"), "renamed")
    assert newest(renamed, "c").columns[0] == declared.columns[0] == "c"


@pytest.mark.slow
def test_a_restart_with_another_expression_is_refused_and_another_way_to_write_it_is_not(job: Job) -> None:
    columns = "k string, at timestamp, since timestamp, a int, b int, act string, gone string"
    rows = job.arrive(
        "rows", job.rows(columns, ("x", "2024-01-01 10:00", "2024-01-01 11:00", 1, 2, "upsert", "upsert"))
    )
    a, b = F.col("a"), F.col("b")

    def newest(frame: DataFrame = rows, **given: Any) -> DataFrame:
        how: dict[str, Any] = {"time": "at", "order": a, "op": "act", **given}
        return job.pond().latest(frame, key="k", history=0, name="newest", **how)

    def total(argument: Any, time: Any = "at") -> DataFrame:
        return job.pond().aggregate(rows, {"s": aggregates.sum(argument)}, by="k", time=time, name="total")

    job.run(newest().select("sequence").unionAll(total(a * 2, F.greatest("at", "since")).select("sequence")))
    told = r"the verb '{}' has {}, but the rows in the state of '\w+.{}' were put with {}; write {} again"
    for changed, before, now in (
        ({"time": F.col("since")}, "time='at'", "time='since'"),
        ({"order": b}, "order='a'", "order='b'"),
        ({"order": a + 1}, "order='a'", r"order=F.expr\('\(a \+ 1\)'\)"),
        ({"op": "gone"}, "op='act'", "op='gone'"),
        ({"op": None}, "op='act'", "op=None"),
        ({"op": F.lower("act")}, "op='act'", r"op=F.expr\('lower\(act\)'\)"),
    ):
        with pytest.raises(StateConflictError, match=told.format("newest", now, "newest", before, before)):
            newest(**changed)
    twice = r"'s' was sum\(F.expr\('\(a \* 2\)'\)\) and is sum\({}\), which cannot go on"
    for argument, now in ((a * 3, r"F.expr\('\(a \* 3\)'\)"), ("b", "'b'")):
        with pytest.raises(StateConflictError, match=twice.format(now)):
            total(argument, F.greatest("at", "since"))
    newest(rows.alias("q"), time=rows["at"].alias("t"), order="a", op=F.col("q.act"))
    total((F.expr("a * 2")).alias("double"), F.expr("GREATEST(at, since) as t"))
    renamed = rows.withColumnRenamed("at", "moment")
    with pytest.raises(StateConflictError, match=r"renamed: \.withColumnRenamed\('moment', 'at'\)\), or give the verb"):
        newest(renamed, time="moment")
    job.run(newest(renamed, time="moment", renamed={"at": "moment"}).select("sequence"), "renamed")
    newest(renamed, time=F.col("moment"))


@pytest.mark.first
@pytest.mark.slow
def test_a_restart_with_windows_of_another_size_is_refused_before_it_starts_and_the_advice_works(job: Job) -> None:
    clicks = job.rows("user string, at timestamp", *(("ann", f"2024-01-01 00:0{minute}:00") for minute in (0, 1, 2)))
    arriving = job.arrive("clicks", clicks)

    def counted(size: str, **named: Any) -> DataFrame:
        calls, window = {"n": aggregates.count()}, TimeWindows(size, grace="1 hour")
        given = {"name": "clicks", **named}
        return job.pond().aggregate(arriving, calls, by="user", time="at", window=window, emit="final", **given)

    job.run(counted("10 minutes"))
    told = (
        "the rows of the store 'aggregate' were made by the verb 'clicks' with size='10 minutes' and not '20 minutes', "
        "advance='10 minutes' and not '20 minutes', .*; write size='10 minutes', advance='10 minutes' again, or give "
        "the verb another name and a new checkpoint"
    )
    with pytest.raises(StateConflictError, match=told):
        counted("20 minutes")
    job.arrive(
        "clicks", job.rows("user string, at timestamp", ("ann", "2024-01-01 00:03"), ("ann", "2024-01-01 03:00"))
    )
    found = counted("10 minutes")
    job.run(found)
    assert [row[-1] for row in job.written(found)] == [4]
    others = counted("20 minutes", name="others")
    job.run(others, "others")
    assert [row[-1] for row in job.written(others, "others")] == [4]


def refusals() -> list[Any]:
    return [
        ("latest", {"key": "idd"}, "'input' has no column 'idd', only .*; did you mean 'id'"),
        ("latest", {"time": "tss"}, "'input' has no column 'tss', only .*; did you mean 'ts'"),
        ("latest", {"op": "nn"}, "'input' has no column 'nn', only .*; did you mean 'n'"),
        ("latest", {"time": "n"}, r"time is of type bigint; give a timestamp or a date, .*F\.timestamp_millis"),
        ("latest", {"op": "n"}, "operations of 'input' are of type bigint; give a string column"),
        ("latest", {"key": []}, r"key is \[\]; give the name of a column"),
        ("latest", {"history": "-5 minutes"}, "history is '-5 minutes'; it must not be negative"),
        ("latest", {"name": "a/b"}, "name 'a/b' must be a plain file name"),
        ("asof_join", {"on": "idd"}, "'left' has no column 'idd', only .*; did you mean 'id'"),
        (
            "latest",
            {"renamed": {"m": "nn"}},
            "renamed says that 'm' is 'nn' now, but no input has a 'nn'; did you mean 'n'",
        ),
        ("asof_join", {"name": "left"}, "name is 'left', which is also the name of its input"),
        ("asof_join", {"how": "outer"}, "how is 'outer'; give 'inner' or 'left' or 'semi' or 'anti'"),
        ("asof_join", {"how": "left", "default": {"vv": "-"}}, "no column of right in the result; did you mean 'v'"),
        ("asof_join", {"on": {"ts": "id"}}, r"joins \(ts: timestamp.* with \(id: int32\), whose types differ"),
        ("asof_join", {"grace": -1}, "grace is -1; it must not be negative"),
        ("asof_join", {"grace": "2 days"}, "grace is '2 days', but only a history of '1 day' is kept"),
        ("asof_join", {"tolerance": -1}, "tolerance is -1; it must not be negative"),
        ("asof_join", {"direction": "forward", "grace": 0}, "direction is 'forward', so each row waits .*; give toler"),
        (
            "asof_join",
            {"direction": "forward", "tolerance": "1 day", "grace": "1 hour"},
            "tolerance and grace together are '1 day' and '1 hour', but only a history of '1 day' is kept; make hist",
        ),
        ("stream_join", {"within": None}, "needs a window: within="),
        ("stream_join", {"how": "cross"}, "give 'inner' or 'left' or 'right' or 'outer' or 'semi' or 'anti'"),
        ("stream_join", {"before": 1}, r"give either within=\.\.\., or before="),
        ("stream_join", {"within": -1}, "within is -1; it must not be negative"),
        ("aggregate", {"by": "idd"}, "'input' has no column 'idd', only .*; did you mean 'id'"),
        ("aggregate", {"calls": {"total": aggregates.sum("nn")}}, "has no column 'nn', only .*; did you mean 'n'"),
        ("aggregate", {"calls": {"total": "n"}}, "the aggregate 'total' is 'n'; give a function of"),
        ("aggregate", {"calls": {"op": aggregates.count()}}, "columns 'op' twice .a change feed adds op, sequence"),
        ("aggregate", {"calls": {"id": aggregates.count()}}, "the columns 'id' twice; rename"),
        ("aggregate", {"emit": "final"}, "a result that has no window is never final; give a window"),
        ("aggregate", {"emit": "all"}, "emit is 'all'; give 'updates' or 'final'"),
        ("aggregate", {"window": "5 minutes"}, "window is '5 minutes'; give TimeWindows"),
        ("aggregate", {"time": "id"}, "time is of type int; give a timestamp"),
    ]


@pytest.mark.first
@pytest.mark.parametrize(("verb", "changed", "message"), refusals())
def test_a_mistake_is_refused_before_anything_runs(job: Job, verb: str, changed: dict[str, Any], message: str) -> None:
    left = job.spark.sql("select 1 as id, 2L as n, timestamp'2024-01-01' as ts")
    right = job.spark.sql("select 1 as id, 'x' as v, timestamp'2024-01-01' as since")
    both = {"left": left, "right": right, "on": "id", "left_time": "ts", "right_time": "since"}
    given: dict[str, dict[str, Any]] = {
        "latest": {"rows": left, "key": "id", "time": "ts", "history": 0},
        "asof_join": {**both, "history": "1 day"},
        "stream_join": {**both, "within": "1 minute"},
        "aggregate": {"rows": left, "calls": {"total": aggregates.sum("n")}, "by": "id", "time": "ts"},
    }
    name = changed.get("name", "mine")
    with pytest.raises(ConfigurationError, match=message) as refused:
        getattr(job.pond(), verb)(**{**given[verb], "name": name, **changed})
    assert repr(name) in str(refused.value)
    if "name" not in changed:
        with pytest.raises(ConfigurationError, match=f"^{verb}: |the verb '{verb}-"):
            getattr(job.pond(), verb)(**{**given[verb], **changed})


def test_streams_are_not_mixed_with_tables_and_names_are_not_used_twice(job: Job) -> None:
    rates = job.rows(RATES, ("EUR", "2024-01-01 10:00", 7))
    arriving = job.arrive("rates", rates)
    with pytest.raises(ConfigurationError, match="has a streaming and a static DataFrame"):
        job.pond().stream_join(
            arriving.drop("rate"), rates.withColumnRenamed("since", "at"), on="currency",
            left_time="since", right_time="at", within=1,
        )  # fmt: skip
    pond = job.pond()
    pond.latest(arriving, key="currency", time="since", history=0)
    with pytest.raises(ConfigurationError, match="has a verb called 'latest-currency' already"):
        pond.latest(arriving.where("rate > 1"), key="currency", time="since", history=0)


def test_the_words_of_change_feeds_are_understood_and_others_fail_or_are_counted(job: Job) -> None:
    words = ("insert", "update_preimage", "update_postimage", "c", "u", "d", "+I", "-U", "+U", "-D", "Delete")
    feed = job.rows("id int, at timestamp, n int, op string",
                    *((n % 3, f"2024-01-01 10:00:{n:02}", n, word) for n, word in enumerate(words)))  # fmt: skip
    result = job.pond().latest(feed, key="id", time=F.col("at") + F.expr("interval 1 second"), history=0, op="op")
    found = in_order(result.select("id", "n", "op", F.second("change_time")))
    deletes = {"d", "-D", "Delete"}
    before = {"update_preimage", "-U"}
    expected = [
        (n % 3, None if word in deletes else n, "delete" if word in deletes else "upsert", n + 1)
        for n, word in enumerate(words)
        if word not in before
    ]
    assert found == sorted(expected, key=repr)

    strange = feed.withColumn("op", F.when(F.col("n") == 4, "truncate").otherwise(F.col("op")))
    with pytest.raises(Exception, match=r"column 'op': the unknown operation 'truncate' in row 4 .* known are"):
        job.pond().latest(strange.coalesce(1), key="id", time="at", history=0, op="op").collect()
    future = strange.where("n = 0").withColumn("at", F.lit("2100-01-01").cast("timestamp"))
    arriving = job.arrive("feed", strange.union(future))
    skipping = job.pond(on_error="skip").latest(arriving, key="id", time="at", history=0, op="op")
    query = job.run(skipping)
    assert [row[0] for row in job.written(skipping.select("n"), "out")].count(4) == 0
    metrics = query.recentProgress[0].observedMetrics
    assert metrics["millpond.latest-id.input"].dropped_bad_value == 1
    assert metrics["millpond.latest-id.input"].dropped_future_timestamp == 1
    assert "millpond.latest-id.operator.0" in metrics


def test_keys_are_equal_where_spark_joins_them_and_tables_have_no_null(job: Job) -> None:
    keys = [None, 1.0, float("nan"), -0.0]
    left = job.rows("key double, at timestamp, a int", *((key, "2024-01-01 10:00", n) for n, key in enumerate(keys)))
    right = job.rows(
        "key double, since timestamp, b int", *((key, "2024-01-01 09:59", n) for n, key in enumerate(keys))
    )
    left, right = left.withColumnRenamed("key", "the.key"), right.selectExpr("key + 0.0 as `the.key`", "since", "b")
    same = right.withColumnRenamed("the.key", "same")
    ours: list[DataFrame] = []
    sparks: list[DataFrame] = []
    for how in ("inner", "left", "right", "outer", "semi", "anti"):
        given: dict[str, Any] = {"on": "the.key", "left_time": "at", "right_time": "since", "how": how}
        pairs = left.join(same, F.expr("`the.key` = same"), how)
        if "b" in pairs.columns:
            pairs = pairs.withColumn("the.key", F.expr("ifnull(`the.key`, same)"))
        joins = {"stream": job.pond().stream_join(left, right, within="1 hour", name=f"stream-{how}", **given)}
        if how not in ("right", "outer"):
            joins["asof"] = job.pond().asof_join(left, right, history="1 hour", name=f"asof-{how}", **given)
        for verb, joined in joins.items():
            for found, rows in ((ours, joined), (sparks, pairs)):
                shown = ["b"] if "b" in rows.columns else [F.lit(None).cast("int")]
                found.append(rows.select(F.lit(f"{verb} {how}"), "`the.key`", "a", *shown))
    assert repr(in_order(reduce(DataFrame.unionAll, ours))) == repr(in_order(reduce(DataFrame.unionAll, sparks)))


@pytest.mark.long
def test_null_keys_are_equal_where_spark_compares_them_null_safely(job: Job) -> None:
    left = job.rows("k int, j int, at timestamp, a int", *(
        (k, j, "2024-01-01 10:00", 10 * (k or 0) + (j or 0)) for k in (1, None) for j in (2, None)
    ))  # fmt: skip
    right = job.rows("k int, j int, since timestamp, b int", (1, None, "2024-01-01 09:59", 1),
                     (None, None, "2024-01-01 09:58", 2), (1, 3, "2024-01-01 09:57", 3))  # fmt: skip
    same = F.expr("l.k <=> r.k and l.j <=> r.j")
    ours: list[DataFrame] = []
    sparks: list[DataFrame] = []
    for how in ("inner", "left", "semi", "anti", "outer"):
        given: dict[str, Any] = {
            "on": ["k", "j"], "left_time": "at", "right_time": "since", "how": how, "null_safe": True,
        }  # fmt: skip
        pairs = left.alias("l").join(right.alias("r"), same, how)
        joins = {"stream": job.pond().stream_join(left, right, within="1 hour", name=f"stream-{how}", **given)}
        if how != "outer":
            joins["asof"] = job.pond().asof_join(left, right, history="1 hour", name=f"asof-{how}", **given)
        if how in ("inner", "left"):
            joins["table"] = job.pond().table_join(left, right, name=f"table-{how}", **given)
        for verb, joined in joins.items():
            for found, rows in ((ours, joined), (sparks, pairs)):
                shown = ["b"] if "b" in rows.columns else [F.lit(None).cast("int")]
                found.append(rows.select(F.lit(f"{verb} {how}"), "a", *shown))
    assert repr(in_order(reduce(DataFrame.unionAll, ours))) == repr(in_order(reduce(DataFrame.unionAll, sparks)))


@pytest.mark.long
def test_a_match_is_as_old_as_the_tolerance_whatever_the_history(job: Job) -> None:
    left = job.rows("k int, at timestamp", (1, "2024-01-01 10:00"), (2, "2024-01-01 10:00"))
    right = job.rows("k int, since timestamp", (1, "2023-01-01"), (2, "2024-01-01 09:00"), (3, "2024-01-01 10:00"))
    found: list[DataFrame] = []
    expected: list[tuple[Any, ...]] = []
    for tolerance, ages in ((None, {1: 365, 2: 0}), ("2 days", {2: 0}), ("366 days", {1: 365, 2: 0})):
        for how in ("inner", "left"):
            columns: list[tuple[Any, Any]] = [("at", "since"), (F.expr("at"), F.expr("since + interval 0 days"))]
            for times in columns if tolerance == "2 days" else columns[:1]:
                name = f"{tolerance}-{how}-{len(found)}"
                joined = job.pond().asof_join(
                    left, right, on="k", left_time=times[0], right_time=times[1], history="1 day",
                    tolerance=tolerance, how=how, name=name,
                )  # fmt: skip
                found.append(joined.select(F.lit(name), "k", F.datediff("at", "since")))
                expected += [(name, key, ages.get(key)) for key in (1, 2) if how == "left" or key in ages]
    assert in_order(reduce(DataFrame.unionAll, found)) == sorted(expected, key=repr)


def test_an_asof_join_fills_in_what_is_not_there_and_says_who_has_a_match_or_none(job: Job) -> None:
    left = job.rows("k int, at timestamp", (1, "2024-01-01 10:00"), (2, "2024-01-01 10:00"), (3, "2024-01-01 10:00"))
    seven = Decimal("7.00")
    right = job.rows(
        "k int, since timestamp, rate decimal(9,2), at timestamp",
        (1, "2024-01-01 10:00", None, None), (2, "2024-01-01 09:00", seven, None), (4, "2024-01-01 09:00", seven, None),
    )  # fmt: skip
    given: dict[str, Any] = {"on": "k", "left_time": "at", "right_time": "since", "history": "1 day"}
    ahead = {"direction": "forward", "tolerance": "1 hour", "grace": 0}
    kinds: list[dict[str, Any]] = [
        {"how": "semi"}, {"how": "anti"}, {"how": "semi", "exact": False}, {"how": "semi", **ahead},
        {"how": "anti", **ahead, "direction": "nearest"},
    ]  # fmt: skip
    rates, day = right.drop("at"), datetime(2000, 1, 1, tzinfo=UTC)
    filled = job.pond().asof_join(
        left, rates, how="left", default={"rate": Decimal("1.00"), "since": day}, name="filled", **given
    ).select("k", "rate", F.year("since"))  # fmt: skip
    found = [tuple(row) for row in filled.sort("k").collect()]
    assert found == [(1, None, 2024), (2, seven, 2024), (3, Decimal("1.00"), 2000)]
    who = [job.pond().asof_join(left, right, **how, name=f"who-{number}", **given) for number, how in enumerate(kinds)]
    assert [rows.columns for rows in who] == [["k", "at"]] * 5
    assert [sorted(row.k for row in rows.collect()) for rows in who] == [[1, 2], [3], [2], [1], [3]]


@pytest.mark.slow
def test_a_join_goes_on_whose_rows_have_the_times_that_earlier_releases_added_for_a_tolerance(job: Job) -> None:
    orders = job.arrive("orders", job.rows("id int, k string, at timestamp", (1, "x", "2024-01-01 10:00")))
    rates = job.arrive("rates", job.rows("k string, since timestamp, rate int", ("x", "2024-01-01 09:00", 7)))
    given: dict[str, Any] = {"on": "k", "history": "1 day", "grace": "5 minutes", "name": "rated"}

    def timed(frame: DataFrame, side: str, time: str) -> DataFrame:
        return frame.withColumn(f"millpond_{side}_time", F.coalesce(F.unix_micros(time), F.lit(-1)))

    sides = timed(orders, "left", "at"), timed(rates, "right", "since")
    job.run(job.pond().asof_join(*sides, left_time="at", right_time="since", **given).select("id", "rate"))
    job.arrive("orders", job.rows("id int, k string, at timestamp", *(
        (number, "x", at) for number, at in ((2, "2024-01-01 09:59"), (3, "2024-01-01 12:00"), (4, "2024-01-01 12:10"))
    )))  # fmt: skip
    sides = (
        orders.withColumn("more", F.when(F.col("id") > 1, "more")),
        rates.withColumn("still", F.lit(None).cast("int")),
    )
    joined = job.pond().asof_join(
        *sides, left_time="at", right_time="since", how="inner", tolerance="2 hours", **given
    ).select("id", "rate", "more")  # fmt: skip
    job.run(joined)
    assert {row[:2] for row in job.written(joined)} == {(1, 7), (2, 7)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "key", "join"),
    [
        pytest.param("left", ["id"], "left join", marks=pytest.mark.long),
        ("outer", ["id", "customer"], "full join"),
    ],
)
def test_the_changes_of_a_table_join_merge_into_the_batch_join(
    job: Job, tmp_path: Path, how: Any, key: list[str], join: str
) -> None:
    orders = job.rows("id int, customer string, at timestamp, op string",
                      (1, "p", "2024-01-01 10:00", "insert"), (2, "q", "2024-01-01 10:01", "insert"),
                      (3, "p", "2024-01-01 10:02", "insert"), (1, "q", "2024-01-01 10:03", "update"),
                      (2, "q", "2024-01-01 10:04", "delete"), (4, "r", "2024-01-01 10:05", "insert"))  # fmt: skip
    customers = job.rows("customer string, name string, since timestamp",
                         ("p", "Pia", "2024-01-01 09:00"), ("q", "Quin", "2024-01-01 09:00"),
                         ("n", "Nina", "2024-01-01 09:00"), (None, "Nobody", "2024-01-01 09:00"),
                         ("p", "Paula", "2024-01-01 10:06"))  # fmt: skip
    for part in (orders.where("id < 3"), orders.where("id >= 3")):
        job.arrive("orders", part)
    for part in (customers.where("name != 'Paula'"), customers.where("name = 'Paula'")):
        job.arrive("customers", part)
    changes = job.pond().table_join(
        job.stream("orders", orders), job.stream("customers", customers), on="customer", left_key="id",
        left_time="at", right_time="since", left_op="op", how=how, history="1 day",
    )  # fmt: skip
    table: dict[tuple[Any, ...], Row] = {}

    def merge(batch: DataFrame, _: int) -> None:
        newest: dict[tuple[Any, ...], Row] = {}
        for row in sorted(batch.collect(), key=lambda row: int(row.sequence)):
            newest[tuple(row[name] for name in key)] = row
        for place, row in newest.items():
            if row.op == "delete":
                table.pop(place, None)
            else:
                table[place] = row

    writer = changes.writeStream.foreachBatch(merge).option("checkpointLocation", f"{tmp_path}/merged")
    writer.trigger(availableNow=True).start().awaitTermination()
    orders.createOrReplaceTempView("orders")
    customers.createOrReplaceTempView("customers")
    batch = job.spark.sql(
        "with l as (select id, max_by(struct(customer, op), at) l from orders group by id), "
        "o as (select id, l.customer from l where l.op != 'delete'), "
        "c as (select customer, max_by(name, since) name from customers group by customer) "
        f"select id, coalesce(o.customer, c.customer), name from o {join} c on o.customer = c.customer"
    )
    assert Counter((row.id, row.customer, row.name) for row in table.values()) == Counter(map(tuple, batch.collect()))


def chained(pond: Millpond, orders: DataFrame, rates: DataFrame) -> DataFrame:
    """Return two verbs, with Spark's own operations between them."""
    priced = pond.asof_join(orders, rates, on="currency", left_time="ts", right_time="since", history="1 day")
    worth = priced.withColumn("worth", F.col("n") * F.col("rate")).where("worth > 0")
    totals = pond.aggregate(
        worth, {"total": aggregates.sum("worth"), "orders": aggregates.count()}, by="currency", time="ts",
        window=TimeWindows("10 minutes"), emit="final",
    )  # fmt: skip
    return totals.select("currency", "window.start", "total", "orders")


@pytest.mark.first
def test_sessions_are_those_of_session_window_also_exactly_at_the_gap(job: Job) -> None:
    rows = job.rows("k string, at timestamp", *(("a", f"2024-01-01 00:00:{at}") for at in ("00", "05", "10.000001")))
    calls = {"n": aggregates.count()}
    ours = job.pond().aggregate(rows, calls, by="k", time="at", window=SessionWindows("5 seconds"), emit="final")
    theirs = rows.groupBy("k", F.session_window("at", "5 seconds").alias("window")).agg(F.count("*").alias("n"))
    assert in_order(ours) == in_order(theirs)
    assert [count for *_, count in in_order(ours)] == [2, 1]


def test_sessions_of_a_largest_length_are_those_of_session_window_beside_a_date(job: Job, spark: SparkSession) -> None:
    """In order or not: a session of Spark has rows of one hour alone, if that is part of the key."""
    at = "timestamp_seconds(1717200000 + pmod(hash(id), 40000)) as at"
    rows = spark.sql(f"select cast(id % 3 as string) as k, {at}, id as v from range(3000)").repartition(3)
    calls = {"n": aggregates.count(), "total": aggregates.sum("v")}
    sessions = SessionWindows("20 seconds", max_length="1 hour", offset="30 minutes")
    ours = job.pond().aggregate(rows, calls, by="k", time="at", window=sessions, emit="final")
    hour = F.date_trunc("hour", F.col("at") + F.expr("interval 30 minutes")) - F.expr("interval 30 minutes")
    found = rows.groupBy("k", hour.alias("hour"), F.session_window("at", "20 seconds").alias("window"))
    end = F.least("window.end", F.col("hour") + F.expr("interval 1 hour")).alias("end")
    window = F.struct("window.start", end).alias("window")
    theirs = found.agg(F.count("*").alias("n"), F.sum("v").alias("total")).select("k", window, "n", "total")
    assert in_order(ours) == in_order(theirs)
    assert sum(row["window"]["end"].strftime("%M:%S") == "30:00" for row in ours.collect()) > 5


@pytest.mark.first
@pytest.mark.slow
def test_chained_verbs_go_on_after_a_restart_and_complete_brings_out_what_waits(
    job: Job, spark: SparkSession, tmp_path: Path
) -> None:
    rates = job.rows(RATES, ("EUR", "2024-01-01 10:00", 2), ("USD", "2024-01-01 10:00", 3),
                     ("EUR", "2024-01-01 10:10", 5))  # fmt: skip
    orders = job.rows("id int, currency string, ts timestamp, n int",
                      *((n, ("EUR", "USD")[n % 2], f"2024-01-01 10:{3 * n:02}", n) for n in range(12)))  # fmt: skip
    signal = job.rows("done int", (1,))
    expected = in_order(chained(job.pond(application_id="static"), orders.orderBy(F.desc("ts")), rates))
    job.arrive("rates", rates)
    stop = job.arrive("signal", signal.limit(0))
    for part in ("id < 6", "id >= 6"):
        job.arrive("orders", orders.where(part))
        if part == "id >= 6":
            job.arrive("signal", signal)
        result = chained(job.pond(complete=stop), job.stream("orders", orders), job.stream("rates", rates))
        query = job.run(result)
    names = set(query.recentProgress[0].observedMetrics)
    assert {"millpond.asof_join-currency.left", "millpond.aggregate-currency.operator.0"} <= names
    assert job.written(result) == expected
    assert sum(int(row[3]) for row in expected) == 11


TOGETHER = {"n": aggregates.count(), "total": aggregates.sum("v"), "newest": aggregates.last("v")}


def together(pond: Millpond, rows: DataFrame) -> DataFrame:
    """Return all rows aggregated, and then the updates of that."""
    updates = pond.aggregate(rows, TOGETHER, by=[], time="at")
    seen = {"updates": aggregates.count(), "most": aggregates.max("total")}
    return pond.aggregate(updates.drop("op"), seen, by=[], time="change_time", name="seen")


@pytest.mark.slow
def test_by_no_column_all_rows_are_aggregated_together(
    job: Job, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.sql("select id % 3 as k, id as v, timestamp_seconds(id) as at from range(20)").repartition(3)
    sums = {"n": aggregates.count(), "total": aggregates.sum("v")}
    windowed = job.pond().aggregate(
        rows, sums, by=[], time="at", window=TimeWindows("6 seconds"), emit="final", name="windows"
    )
    counted = [F.count("*").alias("n"), F.sum("v").alias("total")]
    theirs = rows.groupBy(F.window("at", "6 seconds").alias("window")).agg(*counted)
    assert in_order(windowed) == in_order(theirs)

    for part in ("v < 5", "v >= 5 and v < 12", "v >= 12"):
        pond, arriving = job.pond(), job.arrive("rows", rows.where(part))
        result = together(pond, arriving)
        job.run(result)
    (everything,) = rows.groupBy().agg(*counted).collect()
    assert [row[:2] for row in job.written(result)] == [(1, 10), (2, 66), (3, everything.total)]
    pond.explain()
    assert "operator   that of aggregate" in capsys.readouterr().out
    kept = pond.read_store("aggregate", "aggregate", f"{tmp_path}/out-checkpoint")
    assert [row[:3] for row in in_order(kept)] == [(*everything, 19)]
    register_state_source(spark)
    places = {"checkpoint": f"{tmp_path}/out-checkpoint", "state_dir": f"{tmp_path}/state"}
    shown = spark.read.format("millpond").options(**places, store="aggregate", sink="aggregate").load()
    assert [row.asDict() for row in shown.select("value.*").collect()] == [{**everything.asDict(), "newest": 19}]
    assert [row.key for row in shown.collect()] == [Row()]
    with pytest.raises(StateConflictError, match=r"is \(k: int64\), but .* of \(\); write by=\[\] again, or"):
        pond.aggregate(arriving, TOGETHER, by="k", time="at", name="aggregate")

"""Random streams over keys and values of all types that Spark has, restarted again and again, beside Spark SQL.

Each row is so wide that a few queries meet all types: a key is a column of each type, one of which is at an edge, and
there is a column for the values of each type. ``python -m tests.spark.random_verbs --seconds 3600`` goes on for an
hour.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, configure
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.aggregates import AggregateCall
from tests.spark.test_verb_types import WIDE, exact

_PAIRS: Final = ("0.0", "-0.0", "'NaN'", "null")
KEYS: Final[Mapping[str, Sequence[str]]] = {
    **{name: found for name, found in WIDE.items() if not any(word in name for word in ("<", "variant", "collate"))},
    "float": ("'NaN'", "-0.0f", "0.0f"),
    "double": ("'NaN'", "-0.0d", "0.0d", "'-Infinity'"),
    "struct<a:double,b:string>": [
        f"named_struct('a', cast({a} as double), 'b', {b})" for a in _PAIRS for b in ("null", "'x'")
    ],
    "array<float>": ["array()", *(f"array(cast({a} as float), null)" for a in _PAIRS)],
    "struct<a:array<struct<b:double,c:date>>,d:timestamp>": [
        f"named_struct('a', array(null, named_struct('b', cast({a} as double), 'c', date'0001-01-01')), "
        "'d', timestamp'9999-12-31 23:59:59.999999 UTC')"
        for a in _PAIRS
    ],
}
"""For each type of a key its values, besides null; without those that are refused."""

ZONES: Final = ("UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Apia")
NAMES: Final = [f"k{number}" for number in range(len(KEYS))]
PARTS: Final = 2
"""How often a query is started, unless one says otherwise."""
_ROWS: Final = 4
"""How many rows of a source are about each type of key."""
_START: Final = 1_700_000_000
_UNORDERED: Final = ("map", "variant", "collate")
_MONTHS: Final = "interval year", "interval month"
_COMPARING: Final = ("min", "max", "count_distinct")
_BY_TIME: Final = ("first", "last", "collect")
SPAN: Final = 3_600
"""All rows lie within so many seconds, which no grace or history is shorter than."""

Frames: TypeAlias = Mapping[str, DataFrame]
Verbs: TypeAlias = Callable[[Millpond, Frames], DataFrame]


@dataclass(frozen=True)
class Job:
    """A chain of verbs over the sources ``a`` and ``b``, and what Spark SQL says.

    Attributes:
        verbs: the chain.
        expected: the same by Spark SQL, of all rows.
        key: that of the change feed that comes out; none if rows stay.
    """

    verbs: Verbs
    expected: Callable[[Frames], DataFrame]
    key: Sequence[str] = ()


def values(source: str) -> dict[str, str]:
    """Return the columns of values of a source, and their types."""
    return {f"{source}{number}": type_ for number, type_ in enumerate(WIDE)}


def drawn(spark: SparkSession, source: str, parts: int, random: Random) -> DataFrame:
    """Return the rows of a source, each with the number of the run in which it comes."""
    plain = dict.fromkeys(NAMES, 0)
    numbers: list[dict[str, int | None]] = []
    seconds = random.sample(range(SPAN), _ROWS * len(KEYS))
    for key, found in zip(NAMES, KEYS.values(), strict=True):
        for _ in range(_ROWS):
            first = random.choice([None, *range(len(found))])
            of_key = {**plain, key: first}
            of_values = {
                name: random.choice([None, *range(len(WIDE[type_]))]) for name, type_ in values(source).items()
            }
            row = {f"{source}id": len(numbers), "second": seconds.pop(), "part": random.randrange(parts)}
            numbers.append({**row, **of_key, **of_values})
    random.shuffle(numbers)
    columns = list(numbers[0])
    table = spark.createDataFrame(
        [tuple(row[name] for name in columns) for row in numbers], ", ".join(f"{name} int" for name in columns)
    )
    typed = [_typed(name, type_, KEYS[type_]) for name, type_ in zip(NAMES, KEYS, strict=True)]
    typed += [_typed(name, type_, WIDE[type_]) for name, type_ in values(source).items()]
    return table.selectExpr("part", f"{source}id", f"timestamp_seconds({_START} + second) as {source}t", *typed)


def _typed(name: str, type_: str, found: Sequence[str]) -> str:
    listed = ", ".join(f"cast({value} as {type_})" for value in found)
    return f"cast(element_at(array({listed}), {name} + 1) as {type_}) as {name}"


def calls_of(
    source: str, functions: Sequence[str], random: Random
) -> tuple[dict[str, AggregateCall], dict[str, Column]]:
    """Return one of the functions for each column of values, and the same by Spark SQL, by the names of the results."""
    calls: dict[str, AggregateCall] = {}
    columns: dict[str, Column] = {}
    for name, type_ in values(source).items():
        if type_.startswith(_MONTHS):
            continue
        known = [one for one in functions if one not in _COMPARING or not any(word in type_ for word in _UNORDERED)]
        function, result = random.choice(known), f"of_{name}"
        calls[result] = getattr(aggregates, function)(name)
        columns[result] = _in_spark(function, F.col(name), F.col("at")).alias(result)
    return calls, columns


def _in_spark(function: str, value: Column, time: Column) -> Column:
    if function == "collect":
        pair = F.struct(F.unix_micros(time).alias("time"), value.alias("value"))
        pairs = F.collect_list(F.when(value.isNotNull(), pair))
        ordered = F.array_sort(pairs, lambda one, other: F.signum(one["time"] - other["time"]).cast("int"))
        return F.transform(ordered, lambda pair: pair["value"])
    if function in ("first", "last"):
        return (F.min_by if function == "first" else F.max_by)(F.struct(value.alias("value")), time)["value"]
    return {"count": F.count, "min": F.min, "max": F.max, "count_distinct": F.count_distinct}[function](value)


def newest(rows: DataFrame, source: str) -> DataFrame:
    """Return the last row of each key."""
    rest = [name for name in rows.columns if name not in NAMES]
    last = F.max_by(F.struct(*rest), f"{source}t").alias("last")
    return rows.groupBy(*NAMES).agg(last).select(*NAMES, "last.*")


def asof(frames: Frames) -> DataFrame:
    """Return each left row with the right row that was valid at its time."""
    a, b = frames["a"], frames["b"]
    rest = [name for name in b.columns if name not in NAMES]
    pairs = a.select("aid", "at", *NAMES).join(b, NAMES).where("bt <= at")
    last = pairs.groupBy("aid").agg(F.max_by(F.struct(*rest), "bt").alias("last"))
    return a.join(last, "aid", "left").select(*a.columns, "last.*")


def windows(random: Random) -> Job:
    calls, columns = calls_of("a", [*_BY_TIME, *_COMPARING, "count"], random)
    size = random.choice([300, 1_200, SPAN])

    def verbs(pond: Millpond, frames: Frames) -> DataFrame:
        window = TimeWindows(size * 1_000, grace=SPAN * 1_000)
        return pond.aggregate(frames["a"], calls, by=NAMES, time="at", window=window, name="windows")

    def expected(frames: Frames) -> DataFrame:
        cut = F.window("at", f"{size} seconds")
        return frames["a"].groupBy(*NAMES, F.struct(cut["start"], cut["end"]).alias("window")).agg(*columns.values())

    return Job(verbs, expected, key=[*NAMES, "window"])


def windows_of_versions(random: Random) -> Job:
    """Return a job that aggregates only rows with a version, or all. No two of a key have the same time."""
    calls, columns = calls_of("a", [*_BY_TIME, *_COMPARING], random)
    more, others = calls_of("b", [*_BY_TIME, *_COMPARING], random)
    only_found = random.random() < 0.5

    def verbs(pond: Millpond, frames: Frames) -> DataFrame:
        rows = pond.asof_join(
            frames["a"], frames["b"], on=NAMES, left_time="at", right_time="bt", history="1 hour", grace="1 hour",
            how="left", name="versions",
        )  # fmt: skip
        window = TimeWindows("10 minutes")
        rows = rows.where("bid is not null" if only_found else "true")
        return pond.aggregate(rows, {**calls, **more}, by=NAMES, time="at", window=window, emit="final", name="windows")

    def expected(frames: Frames) -> DataFrame:
        rows = asof(frames).where("bid is not null" if only_found else "true")
        cut = F.window("at", "10 minutes")
        groups = rows.groupBy(*NAMES, F.struct(cut["start"], cut["end"]).alias("window"))
        return groups.agg(*columns.values(), *others.values())

    return Job(verbs, expected)


def pairs(random: Random) -> Job:
    how: Any = random.choice(["left", "outer"])
    within = random.choice([300, 1_200])

    def verbs(pond: Millpond, frames: Frames) -> DataFrame:
        rows = pond.stream_join(
            frames["a"], frames["b"], on=NAMES, left_time="at", right_time="bt", within=within * 1_000,
            grace="1 hour", how=how, name="pairs",
        )  # fmt: skip
        return rows.withColumn("found", F.expr("aid is not null and bid is not null")).where("found or k1 is not null")

    def expected(frames: Frames) -> DataFrame:
        a, b = frames["a"].alias("a"), frames["b"].alias("b")
        near = F.expr(f"abs(unix_micros(at) - unix_micros(bt)) <= {within} * 1000000L")
        rows = a.join(b, [*(F.col(f"a.{name}") == F.col(f"b.{name}") for name in NAMES), near], how)
        keys = [F.when(F.col("aid").isNull(), F.col(f"b.{name}")).otherwise(F.col(f"a.{name}")) for name in NAMES]
        named = [key.alias(name) for key, name in zip(keys, NAMES, strict=True)]
        rest = [name for one in frames.values() for name in one.columns if name not in NAMES]
        shown = rows.select(*named, *rest).withColumn("found", F.expr("aid is not null and bid is not null"))
        return shown.where("found or k1 is not null")

    return Job(verbs, expected)


def tables_of_the_latest(random: Random) -> Job:
    how: Any = random.choice(["inner", "left", "outer"])

    def verbs(pond: Millpond, frames: Frames) -> DataFrame:
        one, other = (
            pond.latest(frames[source], key=NAMES, time=f"{source}t", history="1 hour", name=f"latest-{source}")
            for source in "ab"
        )
        return pond.table_join(
            one.withColumnRenamed("change_time", "changed"),
            other.withColumnRenamed("change_time", "since"),
            on=NAMES, left_time="changed", right_time="since", history="1 hour", how=how, name="tables",
        )  # fmt: skip

    def expected(frames: Frames) -> DataFrame:
        a, b = (newest(frames[source], source) for source in "ab")
        a, b = a.withColumn("changed", F.col("at")), b.withColumn("since", F.col("bt"))
        return a.join(b, NAMES, {"outer": "full"}.get(how, how))

    return Job(verbs, expected, key=NAMES)


def foreign_keys(random: Random) -> Job:
    how: Any = random.choice(["inner", "left", "right", "outer"])
    alone = how in ("right", "outer")
    key = ["id", *NAMES] if alone else ["id"]

    def verbs(pond: Millpond, frames: Frames) -> DataFrame:
        return pond.table_join(
            frames["a"].withColumnRenamed("aid", "id"), frames["b"], on=NAMES, left_key="id", left_time="at",
            right_time="bt", history="1 hour", how=how, name="foreign",
        )  # fmt: skip

    def expected(frames: Frames) -> DataFrame:
        a, b = frames["a"].withColumnRenamed("aid", "id"), newest(frames["b"], "b").alias("b")
        rows = a.alias("a").join(b, [F.col(f"a.{name}") == F.col(f"b.{name}") for name in NAMES], how)
        named = [F.coalesce(f"a.{name}", f"b.{name}").alias(name) if alone else F.col(f"a.{name}") for name in NAMES]
        rest = [f"{side}.{name}" for side, one in (("a", a), ("b", b)) for name in one.columns if name not in key]
        joined = rows.select("a.id", *named, *(one for one in rest if one.partition(".")[2] not in NAMES))
        # Keys come as they are grouped.
        return (
            joined.groupBy(*key)
            .agg(F.first(F.struct(*joined.columns)).alias("row"))
            .select(*key, *(f"row.{name}" for name in joined.columns if name not in key))
            if alone
            else joined
        )

    return Job(verbs, expected, key=key)


JOBS: Final[Mapping[str, Callable[[Random], Job]]] = {
    job.__name__: job for job in (windows, windows_of_versions, pairs, tables_of_the_latest, foreign_keys)
}


class Runs:
    """A query that is started again and again, each time with more files, on the same checkpoint.

    Args:
        spark: runs it.
        directory: where everything is.
        parts: how often it is started.
        random: draws rows, files, zones and partitions.
    """

    def __init__(self, spark: SparkSession, directory: Path, parts: int, random: Random) -> None:
        self._spark = spark
        self._directory = directory
        self._parts = parts
        self._random = random
        self._frames = {source: self._written(source) for source in "ab"}
        end = f"{directory}/made/end/part={parts - 1}"
        spark.range(1).write.parquet(end)

    def _written(self, source: str) -> DataFrame:
        place = f"{self._directory}/made/{source}"
        rows = drawn(self._spark, source, self._parts, self._random).coalesce(1)
        rows.write.option("maxRecordsPerFile", self._random.choice([10, 25])).partitionBy("part").parquet(place)
        return self._spark.read.schema(rows.schema).parquet(place).drop("part")

    def answer(self, job: Job) -> DataFrame:
        """Return what the query has put out, once it has seen everything."""
        partitions = self._random.randint(1, 3)
        for part in range(self._parts):
            self._spark.conf.set("spark.sql.session.timeZone", self._random.choice(ZONES))
            self._bring(part)
            pond = Millpond(
                application_id="random", state_dir=f"{self._directory}/state", partitions=partitions,
                backend=self._random.choice(["lmdb", "rocksdb", "memory"]), complete=self._stream("end", "id bigint"),
            )  # fmt: skip
            arriving = {source: self._stream(source, rows.schema) for source, rows in self._frames.items()}
            rows = job.verbs(pond, arriving)
            writer = rows.writeStream.option("checkpointLocation", f"{self._directory}/checkpoint")
            writer.trigger(availableNow=True).start(f"{self._directory}/out").awaitTermination()
        found = self._spark.read.schema(rows.schema).parquet(f"{self._directory}/out")
        return _current(found, job.key) if job.key else found

    def expected(self, job: Job) -> DataFrame:
        return job.expected(self._frames)

    def _stream(self, name: str, schema: Any) -> DataFrame:
        (self._directory / "in" / name).mkdir(parents=True, exist_ok=True)
        return self._spark.readStream.schema(schema).parquet(f"{self._directory}/in/{name}")

    def _bring(self, part: int) -> None:
        for name in (*self._frames, "end"):
            place = self._directory / "in" / name
            place.mkdir(parents=True, exist_ok=True)
            for number, file in enumerate(sorted(self._directory.glob(f"made/{name}/part={part}/*.parquet"))):
                shutil.copy(file, place / f"{part}-{number}.parquet")


def _current(feed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the table that a change feed leaves."""
    last = F.max_by(F.struct(*feed.columns), "sequence").alias("last")
    return feed.groupBy(*keys).agg(last).select("last.*").where("op = 'upsert'").drop("op", "sequence", "change_time")


def difference(spark: SparkSession, name: str, seed: int, parts: int = PARTS) -> str | None:
    """Return how the answer of a job, started so many times, differs from that of Spark SQL; None if it does not."""
    random, zone = Random(seed), spark.conf.get("spark.sql.session.timeZone")
    with tempfile.TemporaryDirectory(prefix="random-verbs-") as directory:
        try:
            spark.conf.set("spark.sql.timeType.enabled", "true")
            job = JOBS[name](random)
            runs = Runs(spark, Path(directory), parts, random)
            found, wanted = runs.answer(job), runs.expected(job)
            columns = sorted(wanted.columns)
            got, due = Counter(exact(found, columns)), Counter(exact(wanted, columns))
            assert due, "there is nothing to compare"
            return None if got == due else _told(columns, got, due)
        finally:
            spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
            spark.conf.unset("spark.sql.timeType.enabled")


def _told(columns: Sequence[str], got: Counter[bytes], due: Counter[bytes]) -> str:
    missing, more = list((due - got).elements()), list((got - due).elements())
    return f"{len(missing)} rows are missing, {len(more)} not expected, of {columns}\n{missing[:3]}\n{more[:3]}"


def main(arguments: Iterable[str] | None = None) -> int:
    """Compare, and tell what differs; 1 if anything does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each job")
    parser.add_argument("--seconds", type=float, default=600, help="end after so many seconds")
    parser.add_argument("--job", action="append", choices=list(JOBS), help="only this one; may be repeated")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    end, seed, done, differing = time.monotonic() + chosen.seconds, chosen.seed, 0, 0
    while time.monotonic() < end:
        for name in chosen.job or JOBS:
            found = difference(spark, name, seed, parts=2 + seed % 3)
            done += 1
            differing += found is not None
            if found is not None:
                print(f"{name}, seed {seed}: {found}", flush=True)
        seed += 1
    spark.stop()
    print(f"{done} streams, {differing} differences")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

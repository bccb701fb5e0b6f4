"""``multi_join`` on Spark: several tables in one operator, over files, restarts and other partitions, and at rest."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution, Millpond
from millpond.errors import ConfigurationError, StateConflictError
from tests.spark.test_verbs import Job, job

__all__ = ["job"]

pytestmark = pytest.mark.spark

NAMES = ("orders", "payments", "parcels")
CHANGES = "id int, at timestamp, {name} int, op string"
HOW = {"payments": "left", "parcels": "outer"}


def changes(seed: int, first: int, number: int) -> dict[str, list[tuple[Any, ...]]]:
    """Return changes of each table, in the order of time, from one second on."""
    chance = random.Random(seed)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in NAMES}
    for second in range(first, first + number):
        at = f"2024-01-01 10:{second // 60:02}:{second % 60:02}"
        op = chance.choice(["insert", "update", "delete"])
        found[chance.choice(NAMES)].append((chance.randint(1, 5), at, chance.randint(0, 9), op))
    return found


def arrive(job: Job, rows: dict[str, list[tuple[Any, ...]]], files: int = 1) -> dict[str, DataFrame]:
    """Return the tables as streams, once these rows have come, in so many files of one micro-batch."""
    streams = {}
    for name, some in rows.items():
        schema = CHANGES.format(name=name)
        for number in range(files):
            like = job.rows(schema, *some[number::files])
            job.arrive(name, like)
        reader = job.spark.readStream.schema(like.schema).option("maxFilesPerTrigger", 4)
        streams[name] = reader.parquet(f"{job.directory}/{name}")
    return streams


def joined(pond: Millpond, tables: dict[str, DataFrame], **given: Any) -> DataFrame:
    return pond.multi_join(
        {name: rows.withColumnRenamed("at", f"at_{name}") for name, rows in tables.items()},
        on="id", op="op", **{"time": {name: f"at_{name}" for name in tables}, "how": HOW, "name": "joined", **given},
    )  # fmt: skip


def merged(job: Job, rows: DataFrame, table: dict[int, Row], name: str = "out") -> None:
    """Merge what is new into a table; each key comes once in a micro-batch."""

    def merge(batch: DataFrame, _: int) -> None:
        found = batch.collect()
        assert max(Counter(row.id for row in found).values(), default=1) == 1
        for row in found:
            if row.op == "delete":
                del table[row.id]
            else:
                table[row.id] = row

    writer = rows.writeStream.foreachBatch(merge).option("checkpointLocation", f"{job.directory}/{name}-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def at_rest(job: Job, rows: dict[str, list[tuple[Any, ...]]], joins: Sequence[str] = ("left", "full")) -> Counter[Any]:
    """Return what Spark SQL joins of the latest rows."""
    for name, some in rows.items():
        job.rows(CHANGES.format(name=name), *some).createOrReplaceTempView(name)
    latest = ", ".join(
        f"l_{name} as (select id, last.{name} from (select id, max_by(struct({name}, op), at) last from {name} group "
        "by id) where last.op != 'delete')"
        for name in rows
    )
    found = job.spark.sql(
        f"with {latest} select id, orders, payments, parcels from l_orders {joins[0]} join l_payments using (id) "
        f"{joins[1]} join l_parcels using (id)"
    )
    return Counter(map(tuple, found.collect()))


def told(table: dict[int, Row]) -> Counter[Any]:
    return Counter((row.id, row.orders, row.payments, row.parcels) for row in table.values())


@pytest.mark.parametrize(
    "backend", [pytest.param("memory", marks=pytest.mark.long), "lmdb", pytest.param("rocksdb", marks=pytest.mark.long)]
)
def test_a_stream_of_many_files_that_is_restarted_with_other_partitions_leaves_the_join_at_rest(
    job: Job, backend: str
) -> None:
    parts = [changes(number, 40 * number, 40) for number in range(3)]
    table: dict[int, Row] = {}
    tables = arrive(job, parts[0], files=2)
    merged(job, joined(job.pond(backend=backend), tables), table)
    arrive(job, parts[1])
    merged(job, joined(job.pond(backend=backend), tables), table)
    sofar = {name: [*parts[0][name], *parts[1][name]] for name in NAMES}
    assert told(table) == at_rest(job, sofar)
    arrive(job, parts[2])
    evolution = Evolution(f"{job.directory}/out-checkpoint")
    pond = job.pond(backend=backend, partitions=3, evolution=evolution)
    merged(job, joined(pond, tables), table)
    every = {name: [*sofar[name], *parts[2][name]] for name in NAMES}
    assert told(table) == at_rest(job, every)
    place = f"{job.directory}/out-checkpoint"
    held = {row.id: row.payments for row in pond.read_store("joined", "payments", place).collect()}
    assert all(held[row.id] == row.payments for row in table.values() if row.payments is not None)
    for row in list(table.values())[::6]:
        explained = pond.explain_match("joined", row, place)
        assert explained.verdict.startswith("the join has a row for this key")
        assert {one.side for one in explained.winners} == {name for name in NAMES if row[name] is not None}


@pytest.mark.first
@pytest.mark.parametrize(
    ("how", "joins"),
    [
        pytest.param("inner", ["inner"] * 2, marks=pytest.mark.long),
        pytest.param("left", ["left"] * 2, marks=pytest.mark.long),
        ("outer", ["full"] * 2),
    ],
)
def test_static_tables_are_joined_as_spark_does(job: Job, how: str, joins: list[str]) -> None:
    rows = changes(7, 0, 60)
    tables = {name: job.rows(CHANGES.format(name=name), *some) for name, some in rows.items()}
    found = joined(job.pond(), tables, how=how).where("op = 'upsert'")
    assert Counter((row.id, row.orders, row.payments, row.parcels) for row in found.collect()) == at_rest(
        job, rows, joins
    )


def test_other_tables_and_other_joins_of_them_are_refused_with_what_to_write(job: Job) -> None:
    tables = arrive(job, changes(1, 0, 30))
    merged(job, joined(job.pond(), tables), {})
    more = {**tables, "returns": job.arrive("returns", job.rows(CHANGES.format(name="returns")))}
    fewer = {name: rows for name, rows in tables.items() if name != "parcels"}
    how: Any = {**HOW, "returns": "left"}
    shape = "(?s)the state of the verb 'joined' in another shape .*{}.*give it another name, and drop this one"
    for others, told in ((more, "store 'returns': none -> "), (fewer, "store 'parcels': .* -> none")):
        with pytest.raises(StateConflictError, match=shape.format(told)):
            joined(job.pond(), others, how="left")
    refused = r"were made by the verb 'joined' with {0} and not .*; write {0}.* again, or give the verb another name"
    with pytest.raises(StateConflictError, match=refused.format(r"tables=\['orders', 'payments', 'parcels'\]")):
        joined(job.pond(), {name: tables[name] for name in reversed(NAMES)}, how={"payments": "left", "orders": "left"})
    with pytest.raises(StateConflictError, match=refused.format(r"how=\{'payments': 'left', 'parcels': 'outer'\}")):
        joined(job.pond(), tables, how="left")
    # Under another name, from the beginning, it is another verb.
    table: dict[int, Row] = {}
    merged(job, joined(job.pond(), more, how=how, name="all"), table, "all")
    assert told_of(table)


def told_of(table: dict[int, Row]) -> bool:
    return all(row.returns is None for row in table.values()) and bool(table)


def test_a_time_of_a_table_that_is_another_is_refused_as_it_is_written(job: Job) -> None:
    tables = arrive(job, changes(1, 0, 10))
    merged(job, joined(job.pond(), tables), {})
    times: dict[str, Any] = {name: f"at_{name}" for name in NAMES}
    times["parcels"] = F.greatest("at_parcels", F.lit("2024-01-01").cast("timestamp"))
    with pytest.raises(StateConflictError, match=r"has time\['parcels'\]=F.expr\(.*; write time\['parcels'\]='at_parc"):
        joined(job.pond(), tables, time=times)
    with pytest.raises(
        ConfigurationError, match=r"^multi_join 'joined': time says nothing of the table 'parcels'; give time="
    ):
        joined(job.pond(), tables, time={name: f"at_{name}" for name in NAMES[:2]})

"""A rule of one's own, with a timer for each key: which orders are not paid within 30 minutes?

Rows may be up to ten minutes late: the payment of order 1 comes after a row of 10:25. It prints::

    2 2026-01-05 10:35:00
    4 2026-01-05 11:50:00
    equal to Spark SQL's batch answer: True
"""

import tempfile

from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond, configure
from millpond.processors.verbs import KeyContext, KeyedProcessor, Timer

EVENTS = "select id, event, timestamp('2026-01-05 ' || at) at from values {} t(id, event, at)"
FIRST = "(1, 'ordered', '10:00'), (2, 'ordered', '10:05'), (3, 'ordered', '10:25')"
LATE = "(1, 'paid', '10:20'), (3, 'paid', '10:30'), (2, 'paid', '10:35:00.000001')"
LAST = "(4, 'ordered', '11:20'), (null, 'day is over', '23:59')"
BATCH = """select id, at + interval '30 minutes' due from parquet.`{0}/events` o where event = 'ordered' and
    not exists (select * from parquet.`{0}/events` p where p.event = 'paid' and p.id = o.id and
    p.at between o.at and o.at + interval '30 minutes') order by id"""


class Unpaid(KeyedProcessor):
    def process(self, key: int, row: dict[str, object], context: KeyContext) -> None:
        if row["event"] == "ordered":
            context.set_timer("30 minutes")
        elif row["event"] == "paid":
            context.cancel_timer()

    def on_timer(self, key: int, timer: Timer, context: KeyContext) -> list[dict[str, object]]:
        return [{"id": key, "due": context.time}]


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        for rows in (FIRST, LATE, LAST):  # one in a micro-batch
            spark.sql(EVENTS.format(rows)).coalesce(1).write.mode("append").parquet(f"{place}/events")
        whole = spark.read.parquet(f"{place}/events")
        events = spark.readStream.schema(whole.schema).option("maxFilesPerTrigger", 1).parquet(f"{place}/events")
        over, events = events.where("id is null"), events.where("id is not null")
        pond = Millpond(application_id="shop", state_dir=f"{place}/state", backend="lmdb", complete=over)
        schema = "id int, due timestamp"
        unpaid = pond.apply(events, Unpaid(), key="id", time="at", lateness="10 minutes", schema=schema)
        unpaid.writeStream.format("memory").queryName("unpaid").trigger(availableNow=True).start().awaitTermination()
        answer = spark.table("unpaid").orderBy("id").collect()
        print(*(f"{row.id} {row.due}" for row in answer), sep="\n")
        print("equal to Spark SQL's batch answer:", answer == spark.sql(BATCH.format(place)).collect())
    spark.stop()


if __name__ == "__main__":
    main()

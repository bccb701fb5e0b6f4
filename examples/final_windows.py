"""Five-minute windows whose results come out once, when they are final. A row that is late within the grace counts.

The last row of the input says that the day is over: with it, everything that still waits comes out. It prints::

    2026-01-05 10:00:00 ann 3 12.50 4.166667 2.00 6.50 4.00
    2026-01-05 10:00:00 bob 1 1.00 1.000000 1.00 1.00 1.00
    2026-01-05 10:05:00 ann 2 16.00 8.000000 7.00 9.00 9.00
    equal to Spark SQL's batch answer: True
"""

import tempfile

from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond, configure
from millpond.processors import TimeWindows
from millpond.processors.verbs import aggregates as agg

SALES = """select customer, timestamp('2026-01-05 ' || at) at, cast(price as decimal(10, 2)) price
    from values {} t(customer, at, price)"""
FILES = (
    "('ann', '10:00', 2), ('ann', '10:02', 6.5), ('bob', '10:01', 1)",
    "('ann', '10:06', 7), ('ann', '10:04:59.999999', 4), ('ann', '10:09', 9)",
    "('day is over', '23:59', null)",
)
CALLS = {"n": agg.count(), "total": agg.sum("price"), "mean": agg.avg("price")}
CALLS |= {"least": agg.min("price"), "most": agg.max("price"), "newest": agg.last("price")}
BATCH = """select window.start, customer, count(*), sum(price), avg(price), min(price), max(price), max_by(price, at)
    from parquet.`{}/sales` where price is not null group by window(at, '5 minutes'), customer order by 1, 2"""


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        for rows in FILES:  # one in a micro-batch
            spark.sql(SALES.format(rows)).coalesce(1).write.mode("append").parquet(f"{place}/sales")
        schema = spark.read.parquet(f"{place}/sales").schema
        sales = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{place}/sales")
        over, sales = sales.where("price is null"), sales.where("price is not null")
        pond = Millpond(application_id="shop", state_dir=f"{place}/state", backend="lmdb", complete=over)
        windows = TimeWindows("5 minutes", grace="10 minutes")
        final = pond.aggregate(sales, CALLS, by="customer", time="at", window=windows, emit="final")
        flat = final.select("window.start", "*").drop("window")
        flat.writeStream.format("memory").queryName("final").trigger(availableNow=True).start().awaitTermination()
        answer = spark.table("final").orderBy("start", "customer").collect()
        for row in answer:
            print(*row)
        print("equal to Spark SQL's batch answer:", answer == spark.sql(BATCH.format(place)).collect())
    spark.stop()


if __name__ == "__main__":
    main()

"""Two as-of joins in one query: each order with its customer's tier and its currency's rate as of its own time.

Orders have a timestamp, a decimal and an array of structs. Each input comes in two files, one in a micro-batch. Order 3
comes in the second, late, and meets the tier and the rate of its own time. It prints::

    1 10:00:00.000001 gold 1.0800 108.00 [Row(sku='apple', pieces=2)]
    3 10:01:30.000000 gold 1.0800 54.00 [Row(sku='plum', pieces=3)]
    2 10:06:00.000000 basic 1.1000 22.00 []
    equal to Spark SQL's batch answer: True
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, configure

TIERS = "select 'ann' customer, timestamp('2026-01-05 ' || at) since, tier from values {} t(at, tier)"
RATES = "select 'EUR' currency, timestamp('2026-01-05 ' || at) quoted, rate from values {} t(at, rate)"
ORDERS = """select id, 'ann' customer, 'EUR' currency, timestamp('2026-01-05 ' || at) ordered, items,
    cast(price as decimal(10, 2)) price from values {} t(id, at, price, items)"""
FIRST = "(1, '10:00:00.000001', 100, array(struct('apple' as sku, 2 as pieces)))"
THEN = "(2, '10:06', 20, array()), (3, '10:01:30', 50, array(struct('plum' as sku, 3 as pieces)))"
BATCH = """select *,
    (select max_by(tier, since) from parquet.`{0}/tiers` t where t.customer = o.customer and since <= ordered) tier,
    (select max_by(rate, quoted) from parquet.`{0}/rates` r where r.currency = o.currency and quoted <= ordered) rate
    from parquet.`{0}/orders` o"""
SHOWN = "id", "date_format(ordered, 'HH:mm:ss.SSSSSS')", "tier", "rate", "cast(price * rate as decimal(10, 2))", "items"


def stream(spark: SparkSession, path: str, sql: str, *files: str) -> DataFrame:
    for rows in files:  # one in a micro-batch
        spark.sql(sql.format(rows)).coalesce(1).write.mode("append").parquet(path)
    return spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        tiers = stream(spark, f"{place}/tiers", TIERS, "('08:00', 'gold')", "('10:05', 'basic')")
        rates = stream(spark, f"{place}/rates", RATES, "('09:00', 1.0800)", "('10:02', 1.1000)")
        orders = stream(spark, f"{place}/orders", ORDERS, FIRST, THEN)
        pond = Millpond(application_id="shop", state_dir=f"{place}/state", backend="lmdb")
        tiered = pond.asof_join(orders, tiers, on="customer", left_time="ordered", right_time="since", history="1 day")
        rated = pond.asof_join(tiered, rates, on="currency", left_time="ordered", right_time="quoted", history="1 day")
        rated.writeStream.format("memory").queryName("rated").trigger(availableNow=True).start().awaitTermination()
        one, other = spark.table("rated"), spark.sql(BATCH.format(place))
        answer, batch = (rows.orderBy("ordered").selectExpr(*SHOWN).collect() for rows in (one, other))
        for row in answer:
            print(*row)
        print("equal to Spark SQL's batch answer:", answer == batch)
    spark.stop()


if __name__ == "__main__":
    main()

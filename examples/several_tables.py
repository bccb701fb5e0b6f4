"""Three tables joined by one key in one operator: each order comes out once in a micro-batch, as it is at its end.

In the second micro-batch an order is paid and sent, and another one is canceled. It prints::

    0 upsert 1 tea None None
    0 upsert 2 rye 4.50 None
    1 upsert 1 tea 3.00 by rail
    1 delete 2 None None None
    equal to Spark SQL's batch answer: True
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, configure

ROWS = "select id, {} {}, date_add('2026-01-01', day) day, op from values {} t(id, value, day, op)"
ORDERS = ["(1, 'tea', 1, 'c'), (2, 'rye', 1, 'c')", "(2, 'rye', 4, 'd')"]
PAYMENTS, PARCELS = ["(2, 4.5, 2, 'c')", "(1, 3.0, 5, 'c')"], ["(9, 'by air', 2, 'c')", "(1, 'by rail', 5, 'c')"]
LATEST = "(select id, max_by(struct(*), day) row from parquet.`{0}/{1}` group by id) {1}"
BATCH = f"""select id, orders.row.item, payments.row.price, parcels.row.way from {LATEST.format("{0}", "orders")}
    left join {LATEST.format("{0}", "payments")} using (id) left join {LATEST.format("{0}", "parcels")} using (id)
    where orders.row.op <> 'd'"""


def stream(spark: SparkSession, path: str, name: str, value: str, *files: str) -> DataFrame:
    for rows in files:  # one in a micro-batch
        spark.sql(ROWS.format(value, name, rows)).coalesce(1).write.mode("append").parquet(path)
    return spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        tables = {
            "orders": stream(spark, f"{place}/orders", "item", "value", *ORDERS),
            "payments": stream(spark, f"{place}/payments", "price", "cast(value as decimal(9, 2))", *PAYMENTS),
            "parcels": stream(spark, f"{place}/parcels", "way", "value", *PARCELS),
        }
        pond, table = Millpond(application_id="shop", state_dir=f"{place}/state", backend="lmdb"), {}
        changes = pond.multi_join(tables, on="id", time="day", op="op", how="left")

        def merge(batch: DataFrame, number: int) -> None:
            for row in batch.orderBy("id").collect():
                print(number, row.op, row.id, row.item, row.price, row.way)
                table[row.id] = None if row.op == "delete" else (row.id, row.item, row.price, row.way)

        changes.writeStream.foreachBatch(merge).trigger(availableNow=True).start().awaitTermination()
        answer = sorted(map(tuple, spark.sql(BATCH.format(place)).collect()))
        print("equal to Spark SQL's batch answer:", answer == sorted(filter(None, table.values())))
    spark.stop()


if __name__ == "__main__":
    main()

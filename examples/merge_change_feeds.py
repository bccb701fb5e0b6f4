"""Two change feeds joined by a foreign key, and the result's changes merged into a table by ``foreachBatch``.

``op`` tells deletes from upserts, and of several changes of a key the one with the greatest ``sequence`` is the latest.
A micro-batch may come twice: merging it again gives the same table. It prints::

    1 20.00 Anna
    3 5.00 Bob
    equal to Spark SQL's batch answer: True
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Millpond, configure

ORDERS = "select id, buyer, price * 1.00 price, date(at) at, op from values {} t(id, buyer, price, at, op)"
BUYERS = "select buyer, name, date(at) since, op from values {} t(buyer, name, at, op)"
BATCH = """select o.id, o.price, b.name from (select max_by(struct(*), at) o from parquet.`{0}/orders` group by id) join
    (select max_by(struct(*), since) b from parquet.`{0}/buyers` group by buyer) on o.buyer = b.buyer and o.op <> 'd'"""
FIRST = "(1, 'a', 20, '2026-01-01', 'c'), (2, 'a', 30, '2026-01-01', 'c'), (3, 'a', 5, '2026-01-02', 'c')"
THEN = "(2, null, null, '2026-01-04', 'd'), (3, 'b', 5, '2026-01-05', 'u')"
ANN, OTHERS = "('a', 'Ann', '2026-01-01', 'c')", "('b', 'Bob', '2026-01-02', 'c'), ('a', 'Anna', '2026-01-03', 'u')"


def stream(spark: SparkSession, path: str, sql: str, *files: str) -> DataFrame:
    for rows in files:  # one in a micro-batch
        spark.sql(sql.format(rows)).coalesce(1).write.mode("append").parquet(path)
    return spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        orders = stream(spark, f"{place}/orders", ORDERS, FIRST, THEN)
        buyers = stream(spark, f"{place}/buyers", BUYERS, ANN, OTHERS)
        changes = Millpond(application_id="shop", state_dir=f"{place}/state", backend="lmdb").table_join(
            orders, buyers, on="buyer", left_key="id", left_time="at", right_time="since", left_op="op", right_op="op"
        )

        def merge(batch: DataFrame, number: int) -> None:
            rows = batch if number == 0 else spark.read.parquet(f"{place}/{number - 1}").unionByName(batch)
            last = rows.groupBy("id").agg(F.max_by(F.struct(*rows.columns), "sequence").alias("row")).select("row.*")
            last.where("op = 'upsert'").write.parquet(f"{place}/{number}", "overwrite")

        changes.writeStream.foreachBatch(merge).trigger(availableNow=True).start().awaitTermination()
        answer = spark.read.parquet(f"{place}/1").select("id", "price", "name").orderBy("id").collect()
        print(*(f"{row.id} {row.price} {row.name}" for row in answer), sep="\n")
        print("equal to Spark SQL's batch answer:", answer == sorted(spark.sql(BATCH.format(place)).collect()))
    spark.stop()


if __name__ == "__main__":
    main()

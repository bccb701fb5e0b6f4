"""A left join of streams: ads with the clicks of the ten minutes after them, also if the click arrives late.

An ad without a click comes out once, when its window and the grace are over; an anti join has those ads alone. Here the
last row of the clicks says that no more will come, so that the batch answer is met to the last row. It prints::

    1 2026-01-05 10:00:00 2026-01-05 10:09:59
    2 2026-01-05 10:02:00 2026-01-05 10:03:00
    2 2026-01-05 10:02:00 2026-01-05 10:05:00
    3 2026-01-05 10:20:00 None
    equal to Spark SQL's batch answer: True
    without a click: [3]
"""

import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import Millpond, configure

ADS = "select ad, timestamp('2026-01-05 ' || at) seen from values {} t(ad, at)"
CLICKS = "select ad, timestamp('2026-01-05 ' || at) clicked from values {} t(ad, at)"
BATCH = """select a.ad, seen, clicked from parquet.`{0}/ads` a left join parquet.`{0}/clicks` c
    on a.ad = c.ad and clicked between seen and seen + interval '10 minutes' order by ad, clicked"""


def stream(spark: SparkSession, path: str, sql: str, *files: str) -> DataFrame:
    for rows in files:  # one in a micro-batch
        spark.sql(sql.format(rows)).coalesce(1).write.mode("append").parquet(path)
    return spark.readStream.schema(spark.read.parquet(path).schema).option("maxFilesPerTrigger", 1).parquet(path)


def main() -> None:
    spark = configure(SparkSession.builder.master("local[1]")).config("spark.sql.shuffle.partitions", 1).getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        ads = stream(spark, f"{place}/ads", ADS, "(1, '10:00'), (2, '10:02')", "(3, '10:20')")
        late = "(1, '10:09:59'), (2, '10:05')"
        clicks = stream(spark, f"{place}/clicks", CLICKS, "(2, '10:03')", late, "(-1, '23:59')")
        over, clicks = clicks.where("ad < 0"), clicks.where("ad > 0")
        pond = Millpond(application_id="ads", state_dir=f"{place}/state", backend="lmdb", complete=over)
        near: dict[str, Any] = {"left_time": "seen", "right_time": "clicked", "after": "10 minutes", "grace": "1 hour"}
        joined = pond.stream_join(ads, clicks, on="ad", **near, how="left")
        alone = pond.stream_join(ads, clicks, on="ad", **near, how="anti", name="alone")
        for name, rows in (("joined", joined), ("alone", alone)):
            rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
        answer = spark.table("joined").orderBy("ad", "clicked").collect()
        for row in answer:
            print(*row)
        print("equal to Spark SQL's batch answer:", answer == spark.sql(BATCH.format(place)).collect())
        print("without a click:", [row.ad for row in spark.table("alone").collect()])
    spark.stop()


if __name__ == "__main__":
    main()

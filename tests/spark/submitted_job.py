"""A job for ``spark-submit``: ``submitted_job.py DIRECTORY`` counts rows by a verb, and prints the counts as JSON.

The last line of what it prints also says where the Python of the driver, and that of a worker, have Millpond from.
"""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import millpond
from millpond.adapters.spark import Millpond, configure
from millpond.errors import MillpondError
from millpond.processors.verbs import aggregates


def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield which Python a worker runs, and where it has Millpond from."""
    import millpond

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "millpond": [millpond.__file__]})


def main(directory: str) -> None:
    spark = configure(SparkSession.builder).config("spark.sql.shuffle.partitions", 2).getOrCreate()
    words = "key string, at timestamp"
    rows = spark.createDataFrame([(key, None) for key in "aab"], words).selectExpr("key", "timestamp_seconds(1) at")
    rows.coalesce(1).write.parquet(f"{directory}/in")
    pond = Millpond(application_id="words", state_dir=f"{directory}/state", backend="lmdb")
    stream = spark.readStream.schema(words).parquet(f"{directory}/in")
    try:
        counted = pond.aggregate(stream, {"times": aggregates.count()}, by="key", time="at")
    except MillpondError as error:
        print(json.dumps({"refused": str(error)}))
        return
    query = counted.writeStream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    query.start(f"{directory}/out").awaitTermination()
    found = sorted(tuple(row) for row in spark.read.parquet(f"{directory}/out").select("key", "times").collect())
    (place,) = spark.range(1).coalesce(1).mapInArrow(places, "python string, millpond string").collect()
    print(json.dumps({"counts": found, "driver": millpond.__file__, "worker": list(place)}))


if __name__ == "__main__":
    main(sys.argv[1])

"""A whole job in a process of its own, for tests that kill it: ``killable_job.py DIRECTORY BACKEND``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams
from tests.spark.orders import rated_orders, read_files
from tests.spark.own_session import own_session


def main(directory: Path, backend: str) -> None:
    spark = own_session()
    streams = SparkStreams(
        rated_orders(),
        application_id="killed",
        state_dir=str(directory / "state"),
        local_dir=str(directory / "local"),
        backend=backend,
    )
    query = (
        streams.transform(read_files(spark, directory / "in"), sink="totals")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""A count from Kafka to Kafka, which dies where it is told to: ``killable_job.py BROKER BROKER_PROCESS DIRECTORY``.

Deaths that are due lie in ``DIRECTORY/due``: files named ``<value>.<victim>``. The first to meet a record of that value
takes the file away and kills the victim, in the middle of a micro-batch.
"""

import os
import signal
import sys
from pathlib import Path

from pyspark import cloudpickle

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams
from millpond.processors import Consumed, Produced, StreamsBuilder, Topology
from tests.kafka.on_spark import read_topic, session, write_topic

VICTIMS = ("worker", "driver", "broker")


def mortal_count(due: Path, driver: int, broker: int) -> Topology:
    """Return how often each key has come, and the sequence of that change."""

    def survive(value: str) -> str:
        for path in due.glob(f"{value}.*"):
            path.unlink(missing_ok=True)
            if path.suffix == ".driver":
                os.killpg(driver, signal.SIGKILL)
            os.kill(broker if path.suffix == ".broker" else os.getpid(), signal.SIGKILL)
        return value

    builder = StreamsBuilder(key_serde="string", value_serde="string")
    records = builder.stream("left", Consumed("string", "string"))
    counts = records.group_by_key().aggregate(
        lambda: "0", lambda _, value, count: str(int(count) + bool(survive(value)))
    )
    counts.to_stream().to("out", Produced(schema="key string, value string, sequence bigint"))
    return builder.build()


def main(broker: str, broker_process: int, directory: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    topology = mortal_count(directory / "due", os.getpid(), broker_process)
    spark = session()
    streams = SparkStreams(topology, application_id="mortal", state_dir=str(directory / "state"), backend="rocksdb")
    rows = read_topic(spark, broker, "mortal-in", maxOffsetsPerTrigger=50)
    counts = streams.transform({"left": rows}).selectExpr("key", "CONCAT(sequence, ':', value) AS value")
    write_topic(counts, broker, "mortal-out", directory / "checkpoint")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

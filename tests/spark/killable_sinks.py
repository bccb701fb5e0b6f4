"""A query of two sinks in a process of its own, for a test that kills it between them: ``killable_sinks.py DIRECTORY``.

Where DIRECTORY has a file ``stop-<number>``, the job takes it away between the two sinks of the micro-batch with that
number, makes ``stopped-<number>``, and waits.
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import FileOutput, SparkStreams
from millpond.adapters.spark.outputs.output import MicroBatch
from tests.spark.orders import rated_orders, read_files
from tests.spark.own_session import own_session


@dataclass(frozen=True)
class StoppedFirst(FileOutput):
    """Files before which the process stops where it is told to."""

    def write(self, rows: DataFrame, batch: MicroBatch) -> None:
        directory = Path(self.path).parent
        stop = directory / f"stop-{batch.number}"
        if stop.exists():
            stop.rename(directory / f"stopped-{batch.number}")
            signal.pause()
            os.abort()
        super().write(rows, batch)


def main(directory: Path) -> None:
    spark = own_session()
    streams = SparkStreams(
        rated_orders(), application_id="killed", state_dir=str(directory / "state"), local_dir=str(directory / "local")
    )
    query = streams.start(
        read_files(spark, directory / "in"),
        sinks={"rated": FileOutput(str(directory / "rated")), "totals": StoppedFirst(str(directory / "totals"))},
        checkpoint_location=str(directory / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

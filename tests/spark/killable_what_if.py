"""Changed code on a fork in a process of its own, which dies with its JVM and workers when it is told to.

``killable_what_if.py DIRECTORY BACKEND NUMBER``: it dies before it runs the micro-batch of that number, counted over
both forks.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import Millpond
from millpond.adapters.spark.continuation.fork import Fork
from millpond.processors.verbs import aggregates as agg
from tests.spark.own_session import own_session

SCHEMA: Final = "id int, k string, at timestamp, v int"


def pond(directory: Path, backend: str) -> Millpond:
    return Millpond(application_id="job", state_dir=f"{directory}/state", partitions=2, backend=backend)


def totals(some: Millpond, session: SparkSession, directory: Path, least: int = 0) -> DataFrame:
    """Return the sums of the values from ``least`` on."""
    rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{directory}/rows")
    kept = rows.where(F.col("v") >= least)
    return some.aggregate(kept, {"n": agg.sum("v")}, by="k", time="at", name="totals")


def main(directory: Path, backend: str, fatal: int) -> None:
    session, numbers, plan = own_session(), count(), Fork.plan

    def mortal(fork: Fork, batch: int) -> None:
        if next(numbers) == fatal:
            os.killpg(0, signal.SIGKILL)
        plan(fork, batch)

    def query(least: int) -> Any:
        return lambda some: totals(some, session, directory, least)

    with patch.object(Fork, "plan", mortal):
        pond(directory, backend).what_if(
            query(0), query(3), f"{directory}/out-checkpoint", f"{directory}/forks", after=0, key="k"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

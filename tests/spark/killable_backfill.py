"""A backfill in a process of its own, whose driver dies where it is told to: ``killable_backfill.py DIRECTORY MOMENT``.

The orders and rates are in ``DIRECTORY/history``.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn
from unittest.mock import patch

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.taskcontext import TaskContext

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import SparkStreams, configure
from millpond.adapters.spark.dataflow import Dataflow
from millpond.stores.evolution.backfilling import Attempt
from millpond.stores.evolution.history import History
from millpond.stores.registry import supplier
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.spark.orders import SCHEMAS, rated_orders

MOMENTS: Final = {
    "noted": (Dataflow, "with_operators"),
    "running": None,
    "results written": (Attempt, "keep"),
    "recorded": (History, "keep_out_older_releases"),
}
"""When the driver dies, and what it would do next."""


def streams(directory: Path, backend: Any = "lmdb") -> SparkStreams:
    return SparkStreams(
        rated_orders(),
        application_id="killed",
        state_dir=str(directory / "state"),
        local_dir=str(directory / "local"),
        partitions=2,
        backend=backend,
    )


def history(spark: SparkSession, directory: Path) -> dict[str, DataFrame]:
    return {topic: spark.read.schema(ddl).parquet(f"{directory}/history/{topic}") for topic, ddl in SCHEMAS.items()}


def killing(driver: int) -> Callable[[Step], Fault | None]:
    """Kills the driver once a task has written its durable file and a local copy."""

    def choose(step: Step) -> Fault | None:
        if step is Step.BACKEND_WRITTEN and TaskContext.get() is not None:
            os.kill(driver, signal.SIGKILL)
        return None

    return choose


def die(*_: object, **__: object) -> NoReturn:
    os._exit(9)


def main(directory: Path, moment: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = configure(builder.config("spark.sql.shuffle.partitions", "2")).getOrCreate()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    inputs = history(spark, directory)
    if moment == "running":
        backend = FaultySupplier(supplier("lmdb"), FaultPlan(killing(os.getpid())))
        streams(directory, backend).backfill(inputs, sink="totals")
    else:
        owner, method = MOMENTS[moment] or (None, "")
        with patch.object(owner, method, die):
            streams(directory).backfill(inputs, sink="totals")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

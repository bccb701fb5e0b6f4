"""A backfill in a process of its own, whose driver dies where it is told to.

``killable_backfill.py DIRECTORY MOMENT`` for a topology, and ``killable_backfill.py DIRECTORY MOMENT VERB`` for a chain
of verbs, one of which dies. The orders and rates are in ``DIRECTORY/history``.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn
from unittest.mock import patch

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.taskcontext import TaskContext

sys.path.insert(0, str(Path(__file__).parents[2]))

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.adapters.spark.operator.dataflow import Dataflow
from millpond.processors.verbs import aggregates
from millpond.stores.backend.registry import supplier
from millpond.stores.evolution.backfilling import Attempt
from millpond.stores.evolution.history import History
from millpond.stores.testing import Fault, FaultPlan, FaultySupplier, Step
from tests.spark.orders import SCHEMAS, rated_orders
from tests.spark.own_session import own_session

MOMENTS: Final = {
    "noted": (Dataflow, "with_operators"),
    "running": None,
    "results written": (Attempt, "keep"),
    "recorded": (History, "keep_out_older_releases"),
}
"""When the driver dies, and what it would do next."""

VERBS: Final = ("rated", "sums")
"""One after the other."""


def places(directory: Path) -> dict[str, Any]:
    return {"state_dir": str(directory / "state"), "local_dir": str(directory / "local"), "partitions": 2}


def streams(directory: Path, backend: Any = "lmdb") -> SparkStreams:
    return SparkStreams(rated_orders(), application_id="killed", backend=backend, **places(directory))


def pond(directory: Path, backend: Any = "lmdb") -> Millpond:
    return Millpond(application_id="killed", backend=backend, **places(directory))


def rated(some: Millpond, inputs: dict[str, DataFrame], **options: Any) -> DataFrame:
    """Return orders with the rate of their time, for which they wait."""
    orders = inputs["orders"].withColumn("at", F.timestamp_seconds("at"))
    rates = inputs["rates"].select("who", F.timestamp_seconds("at").alias("since"), "rate")
    return some.asof_join(
        orders, rates, on={"customer": "who"}, left_time="at", right_time="since", history="1 day", grace="5 minutes",
        how="left", name="rated", **options,
    )  # fmt: skip


def sums(some: Millpond, orders: DataFrame) -> DataFrame:
    """Return rated orders, counted and summed by item."""
    calls = {"orders": aggregates.count(), "amount": aggregates.sum("amount"), "rate": aggregates.max("rate")}
    return some.aggregate(orders, calls, by="item", time="at", name="sums")


def history(spark: SparkSession, directory: Path) -> dict[str, DataFrame]:
    return {topic: spark.read.schema(ddl).parquet(f"{directory}/history/{topic}") for topic, ddl in SCHEMAS.items()}


def killing(driver: int) -> Callable[[Step], Fault | None]:
    """Return a plan that kills the driver once a task has written its durable file and a local copy."""

    def choose(step: Step) -> Fault | None:
        if step is Step.BACKEND_WRITTEN and TaskContext.get() is not None:
            os.kill(driver, signal.SIGKILL)
        return None

    return choose


def die(*_: object, **__: object) -> NoReturn:
    os._exit(9)


def main(directory: Path, moment: str, verb: str | None = None) -> None:
    spark = own_session()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    inputs = history(spark, directory)
    before = rated(pond(directory).backfill(), inputs) if verb == "sums" else None
    place = MOMENTS[moment]
    chosen: Any = FaultySupplier(supplier("lmdb"), FaultPlan(killing(os.getpid()))) if place is None else "lmdb"
    with ExitStack() as stack:
        if place is not None:
            stack.enter_context(patch.object(place[0], place[1], die))
        if verb is None:
            streams(directory, chosen).backfill(inputs, sink="totals")
        elif before is None:
            rated(pond(directory, chosen).backfill(), inputs)
        else:
            sums(pond(directory, chosen).backfill(), before)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Ticks: a stream whose rows wake the tasks of a query, so that what is due by the wall clock fires without records.

Rule of this module: it looks at DataFrames, and reads no clock. What time a micro-batch has, Spark says.
"""

from pyspark.sql import DataFrame

from millpond.errors import ArgumentConflictError, StreamingOrStaticError
from millpond.processors.distribution.plan import Plan


def check_ticks(ticks: DataFrame | None, plan: Plan, *, streaming: bool) -> None:
    """Refuse ticks that cannot wake anybody.

    Args:
        ticks: the ticks; None for none.
        plan: what runs.
        streaming: whether its inputs are streaming DataFrames.

    Raises:
        ConfigurationError: they, or the inputs, are static, or the plan has no tasks.
    """
    if ticks is None:
        return
    if not ticks.isStreaming or not streaming:
        what = "the inputs are" if ticks.isStreaming else "ticks is"
        raise StreamingOrStaticError(
            f"{what} static, and time only passes for a stream; leave ticks out, or make all of them streaming "
            "DataFrames: spark.readStream.format('rate').load() has a row every second"
        )
    if not plan.stages:
        raise ArgumentConflictError(
            f"ticks has no task to wake: nothing that the sink {plan.sink!r} depends on keeps state; "
            "leave ticks out, or connect a store to the processor that schedules"
        )

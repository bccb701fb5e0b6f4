"""The DataFrames that a job is given: one for each topic that it reads, all streaming or all static, and ticks.

Ticks are a stream whose rows wake the tasks of a query, so that what is due by the wall clock fires without records.

Rule of this module: it asks what there is, and of which kind. What is in their columns is for ``rows.source``, and what
time a micro-batch has, Spark says.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from millpond.errors import ArgumentConflictError, MissingArgumentError, StreamingOrStaticError, UnknownNameError
from millpond.processors.distribution.plan import Plan


def session_of(inputs: Mapping[str, DataFrame]) -> SparkSession:
    """Return the session of the inputs.

    Raises:
        ConfigurationError: there are none.
    """
    if not inputs:
        raise MissingArgumentError(
            "there are no inputs; give a DataFrame for each source topic: transform({'topic': df})"
        )
    return next(iter(inputs.values())).sparkSession


def check_inputs(plan: Plan, inputs: Mapping[str, DataFrame], complete: DataFrame | None) -> None:
    """Refuse inputs that are not those of the plan.

    Args:
        plan: what reads them.
        inputs: by topic.
        complete: a DataFrame any row of which says that they are complete.

    Raises:
        ConfigurationError: an input is missing or unknown, or some are streaming and some are static.
    """
    known = set(plan.topology.sources)
    missing, strange = sorted(set(plan.topics) - set(inputs)), sorted(set(inputs) - known)
    if missing:
        raise MissingArgumentError(
            f"no DataFrame for the topics {missing}; transform needs one for each of {sorted(plan.topics)}"
        )
    if strange:
        raise UnknownNameError(f"the topology reads the topics {sorted(known)}, not {strange}")
    streaming = {inputs[topic].isStreaming for topic in plan.topics} | (
        {complete.isStreaming} if complete is not None else set()
    )
    if len(streaming) > 1:
        raise StreamingOrStaticError(
            "some inputs are streaming DataFrames and some are static; make all of them one or the other"
        )


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

"""The DataFrames that a topology's job is given: one for each topic that it reads, all streaming or all static.

Rule of this module: it asks what there is, and of which kind. What is in their columns is for ``rows.source``.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from millpond.errors import MissingArgumentError, StreamingOrStaticError, UnknownNameError
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

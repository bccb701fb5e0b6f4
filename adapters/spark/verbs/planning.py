"""The plan of a start: what becomes of a ``Millpond``'s verbs, read from the query's checkpoint without Spark.

Rule of this module: it reads, and starts nothing; ``verb_plan`` compares.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark.job.job import Job
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.evolution.verbs.declarations import HeldState, SaidOfVerbs
from millpond.stores.evolution.verbs.verb_plan import AskedVerb, EvolutionPlan, Planning

_WORKERS: Final = 4


def asked_verb(plan: Plan, keys: Sequence[str]) -> AskedVerb:
    """Return a verb that is asked for, by its plan and the columns of its key."""
    return AskedVerb(shape_of(plan), keys, 0 if plan.behind else len(plan.stages))


def planned(job: Job, checkpoint: str, asked: Mapping[str, AskedVerb]) -> EvolutionPlan:
    """Return what becomes of verbs at a start.

    Args:
        job: the job of the verbs, as a whole.
        checkpoint: the ``checkpointLocation`` of the query that runs them.
        asked: the verbs, by name.

    Raises:
        ConfigurationError: no file system is known for the checkpoint, or what is declared contradicts itself.
        FormatError: something is of a later release, or in a form that cannot be read without Spark.
        DurabilityError: the checkpoint or the state directory cannot be read.
    """
    evolution = job.options.evolution
    said = SaidOfVerbs() if evolution is None else evolution.of_verbs
    into = None if evolution is None or not isinstance(evolution.into, str) else evolution.into
    declared = [] if evolution is None else [name for name in asked if checkpoint in evolution.places(name)]
    return Planning(
        job.storage,
        job.application_id,
        _held(checkpoint),
        asked,
        said,
        checkpoint,
        declared,
        None if evolution is None else evolution.checkpoint,
        None if into == checkpoint else into,
    ).plan()


def _held(location: str) -> HeldState | None:
    """Return what a checkpoint holds; None before its first micro-batch."""
    if not SparkCheckpoint.exists(location):
        return None
    checkpoint = SparkCheckpoint.at(location, _WORKERS)
    batches = checkpoint.batches()
    return HeldState(location, batches[-1], checkpoint.held(batches[-1])) if batches else None

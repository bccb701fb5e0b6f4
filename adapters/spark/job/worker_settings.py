"""The settings that workers get of a job's state: its place, its generation, and its backend.

Rule of this module: it decides, from the job, the plan and the state that there is, before a query starts; what workers
then do is up to ``worker``.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from millpond.adapters.spark.copies.warm_query import WarmQuery
from millpond.adapters.spark.evolution.evolution import Evolution, generation_of
from millpond.adapters.spark.evolution.rekeyed import NewVerb
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.session.session import check_operator, start_coordinator
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import MissingArgumentError, StreamingOrStaticError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.runtime.tasks.stream_time_reset import StreamTimeReset
from millpond.stores.backend.contract import with_memory_budget
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.manifests.former_names import former_names
from millpond.stores.durability.manifests.older_reader import check_older_reader
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.matching import check_terms
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.verbs.declarations import EditedAs, edited_as
from millpond.stores.specs.directory import plain_name

NO_SCHEMAS: Final[Mapping[str, Schemas]] = MappingProxyType({})
"""The schemas of a topology, which keeps none."""


def worker_settings(
    job: Job,
    session: SparkSession,
    plan: Plan,
    unit: TimeUnit,
    *,
    streaming: bool,
    schemas: Mapping[str, Schemas] = NO_SCHEMAS,
    asked: Collection[str] = (),
    inputs: NewVerb | None = None,
) -> StateSettings:
    """Return the settings of the plan's state, and carry it over if need be; nothing else is written.

    Args:
        job: the job.
        session: the session.
        plan: the plan.
        unit: what the topology's times count.
        streaming: whether it goes on with the state that there is. That of a run over static DataFrames begins
            empty, whatever there is, and ends with its tasks: nothing is written, and nothing is read.
        schemas: of the rows that it keeps, by place.
        asked: the names of the verbs that were asked for so far.
        inputs: the inputs of a verb, if it may begin with rows of others.

    Raises:
        ConfigurationError: a backend is unknown or cannot do with the budget, the session cannot run the operator, the
            policy retains less than the session, the release to be upgraded from can read no such state, or a seed does
            not fit its store.
        StateConflictError: the state directory holds the state of another topology or number of partitions, and what is
            declared does not lead to this one, or rows that were made with other parameters.
        DurabilityError: the state could not be read or written.
    """
    evolution, seeds = job.options.evolution, job.options.seeds
    if seeds and not streaming:
        raise StreamingOrStaticError(
            "seeds are for streaming DataFrames, and static ones start from empty state; leave seeds out"
        )
    if not streaming:
        check_runnable(job, session, plan, evolved=False)
        part = job.part(f"static-{uuid4().hex}")
        return settings_in(replace(part, options=replace(part.options, local_dir=None)), session, plan, unit, None)
    history = job.history(plan.sink)
    check_runnable(job, session, plan, evolved=history.evolved or evolution is not None or bool(seeds))
    generation = generation_of(session, history, plan, evolution, seeds, job.verb, asked, inputs)
    check_terms(generation.shape, shape_of(plan))
    beginning = Beginning(job.storage, job.application_id, plain_name(plan.sink), generation, dict(schemas))
    edited = unsaid_edits(job, evolution, asked)
    return replace(settings_in(job, session, plan, unit, generation), beginning=beginning, edited=edited)


def unsaid_edits(job: Job, evolution: Evolution | None, asked: Collection[str]) -> tuple[EditedAs, ...]:
    """Return the edits of a verb under other names, which workers look for if nothing is said of where it stands.

    Raises:
        FormatError: a record is damaged, or of a later release.
        DurabilityError: the storage failed.
    """
    if job.verb is None or not job.reached or (evolution is not None and evolution.tells_of(job.verb.name)):
        return ()
    return edited_as(job.storage, job.verb, asked)


def check_runnable(job: Job, session: SparkSession, plan: Plan, *, evolved: bool) -> None:
    """Check all that has nothing to do with the state that there is.

    Args:
        job: the job.
        session: the session.
        plan: the plan.
        evolved: whether the state was, or may be, carried over to another shape, or begins with more than nothing.

    Raises:
        ConfigurationError: a backend is unknown or cannot do with the budget, the session cannot run the operator, the
            policy retains less than the session, or the release to be upgraded from can read no such state.
    """
    check_operator(session)
    start_coordinator(session)
    options = job.options
    options.retaining(session)
    chosen, specs = options.supplier(session), [spec for part in plan.parts for spec in part.stores.values()]
    budget = options.budget(session)
    for spec in specs:
        with_memory_budget(supplier(spec.backend or chosen), budget)
    if options.upgrade is not None:
        check_older_reader(options.upgrade.release, specs, evolved=evolved)


def settings_in(
    job: Job, session: SparkSession, plan: Plan, unit: TimeUnit, generation: EvolutionRecord | None
) -> StateSettings:
    """Return the settings of the plan's state in a generation of it; None for state that ends with its tasks.

    Raises:
        ConfigurationError: a backend is unknown, or the policy retains less than the session.
    """
    options = job.options
    upgrade, reset = options.upgrade, options.reset_stream_time
    return StateSettings(
        application_id=job.application_id,
        sink=plan.sink,
        run=uuid4().hex,
        generation=generation,
        storage=job.storage,
        local_dir=options.local_dir,
        supplier=options.supplier(session),
        policy=options.retaining(session),
        checksums=options.checksums,
        upgrade=None if upgrade is None else upgrade.mode,
        upgrade_from=None if upgrade is None else upgrade.release,
        memory_budget=options.budget(session),
        owner=None if job.verb is None else job.verb.owner,
        reset=None if reset is None else StreamTimeReset(reset // unit, unit),
        formerly=former_names(job.storage, job.application_id) if generation and job.reached else frozenset(),
    )


def warm_query(job: Job, session: SparkSession, plan: Plan) -> WarmQuery:
    """Return a query of the job, whose local copies are to be warmed.

    Raises:
        ConfigurationError: the job has no ``local_dir``, or a backend is unknown.
    """
    options = job.options
    if options.local_dir is None:
        raise MissingArgumentError(
            "there is no local_dir to warm copies in: Spark's own directories end with the application; give one, and "
            "restart the query with it"
        )
    return WarmQuery.of_plan(
        plan,
        job.application_id,
        job.storage,
        options.local_dir,
        options.supplier(session),
        checksums=options.checksums,
        policy=options.policy,
    )

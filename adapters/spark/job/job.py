"""``Job``: what a user settles once for all that a job runs, and where its state lives.

Rule of this module: it sees options and the session, never rows.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Self
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.inspect.kept_manifest import OF_ONE
from millpond.adapters.spark.copies.warm_query import WarmQuery
from millpond.adapters.spark.evolution.evolution import Evolution, generation_of
from millpond.adapters.spark.evolution.upgrade import Upgrade
from millpond.adapters.spark.rows.dead_letters import ErrorHandling, read_dead_letters
from millpond.adapters.spark.rows.late_rows import read_late_rows
from millpond.adapters.spark.session.session import (
    active_session,
    check_operator,
    default_partitions,
    start_coordinator,
)
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import ConfigurationError
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.stream_time_reset import StreamTimeReset
from millpond.processors.runtime.topology import Topology
from millpond.releases import Numbered, newest_number
from millpond.stores.backend.contract import BackendSupplier, with_memory_budget
from millpond.stores.backend.options import parse_size
from millpond.stores.backend.registry import supplier
from millpond.stores.durability.manifests.older_reader import check_older_reader
from millpond.stores.durability.manifests.policy import DurabilityPolicy
from millpond.stores.durability.storage.storage import Storage
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.times import Duration, Instant, TimeUnit, to_instant_micros, to_micros
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import check_terms
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.evolution.verbs import VerbOf, application_of, holds_state
from millpond.stores.specs.directory import check_plain_name, plain_name

DEFAULT_MAX_AHEAD: Final = "1 day"

BACKEND_CONF: Final = "spark.millpond.backend"
DEFAULT_BACKEND: Final = "rocksdb"

MEMORY_BUDGET_CONF: Final = "spark.millpond.memory_budget"

RETAINED_BATCHES_CONF: Final = "spark.sql.streaming.minBatchesToRetain"
DEFAULT_RETAINED_BATCHES: Final = 100
COMMITS_PER_BATCH: Final = 2
"""A micro-batch that is repeated commits again."""

NO_SCHEMAS: Final[Mapping[str, Schemas]] = MappingProxyType({})
"""Of a topology, which keeps none."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A job's options, checked.

    Attributes:
        application_id: the job's name.
        storage: where the durable state is.
        local_dir: where local copies are; None for a directory of Spark's own.
        partitions: how many tasks share the work; None for as many as the state has, or the session's default.
        backend: of stores that do not name one; None for the session's.
        on_error: what happens to a record that cannot be processed.
        max_ahead: how far a timestamp may be ahead of the wall clock, in microseconds; None for any distance.
        policy: when to write snapshots and what to retain; None for what the session calls for.
        reset_stream_time: the moment to which stream time is set back, in microseconds since 1970; None for none.
        evolution: what the user says of state that has another shape; None for nothing.
        checksums: whether the rows of stores have checksums, unless a store says otherwise.
        upgrade: from what local copies are being upgraded, and how; None if they are not.
        seeds: the entries with which new stores begin, by the store's name.
        memory_budget: bytes for all stores of a worker; None for the session's.
        shares_operators: whether verbs of a chain may share an operator.
        reached: whether the storage could be read when a query was built; see ``looking``.
        verb: which one it is a part for; None for the job as a whole, and that of a topology.
    """

    application_id: str
    storage: Storage
    local_dir: str | None
    partitions: int | None
    backend: str | BackendSupplier | None
    on_error: OnError
    max_ahead: int | None
    policy: DurabilityPolicy | None
    reset_stream_time: int | None
    evolution: Evolution | None
    checksums: bool
    upgrade: Upgrade | None
    seeds: Mapping[str, DataFrame]
    memory_budget: int | None
    shares_operators: bool = True
    reached: bool = True
    verb: VerbOf | None = None

    @classmethod
    def of(
        cls,
        application_id: str,
        state_dir: str,
        local_dir: str | None,
        partitions: int | None,
        backend: str | BackendSupplier | None,
        on_error: str | OnError,
        max_ahead: Duration | None,
        policy: DurabilityPolicy | None,
        reset_stream_time: Instant | str | None,
        evolution: Evolution | None,
        checksums: bool,
        upgrade_from: str | None,
        upgrade_mode: str | None,
        seeds: Mapping[str, DataFrame],
        memory_budget: str | int | None,
        shares_operators: bool = True,
    ) -> Self:
        """The job with these options.

        Raises:
            ConfigurationError: one of them is invalid.
        """
        check_plain_name("application id", application_id)
        if partitions is not None and partitions < 1:
            raise ConfigurationError(f"partitions must be 1 or more, not {partitions}")
        storage = Storage.from_uri(state_dir)
        reaction, distance, moment = OnError.of(on_error), _distance(max_ahead), _moment(reset_stream_time)
        upgrade = Upgrade.of(upgrade_from, upgrade_mode)
        return cls(
            application_id,
            storage,
            local_dir,
            partitions,
            backend,
            reaction,
            distance,
            policy,
            moment,
            evolution,
            checksums,
            upgrade,
            seeds,
            _size(memory_budget, "memory_budget"),
            shares_operators,
        )

    @property
    def apart(self) -> str | None:
        """Why no verb of a chain is to share an operator; None if they may."""
        if not self.shares_operators:
            return "share_operators is False"
        if not self.reached:
            return "the state could not be looked at"
        known = self.upgrade is None or newest_number(Numbered.STATE_VALUE, self.upgrade.release) != OF_ONE
        return None if self.upgrade is None or known else f"release {self.upgrade.release} knows no other"

    def part(self, name: str) -> Self:
        """A part of the job with state of its own, ``<application_id>.<name>``.

        Raises:
            ConfigurationError: no directory can have that name.
        """
        check_plain_name("name", name)
        return replace(self, application_id=f"{self.application_id}.{name}")

    def looking(self) -> Self:
        """This job, to build a query with: it knows whether its storage can be read now.

        If not, the query is built as if there were no state. What there is says more when the query runs: before the
        first row is put, each worker compares.
        """
        fault = self.storage.unreachable(self.application_id)
        if fault is not None:
            _log.warning("a query of %r is built without a look at its state: %s", self.application_id, fault)
        return replace(self, reached=fault is None)

    def of_verb(self, owner: str, name: str, *, goes_on: bool) -> Self:
        """This part of a job, as that of a verb.

        Args:
            owner: the application id of the whole job.
            name: the verb's.
            goes_on: whether it goes on with the state that there is, which it may have under a former name.

        Raises:
            ConfigurationError: what is declared of verbs contradicts itself, or says that this one is gone.
            DurabilityError: the storage failed.
        """
        former: list[str] = []
        if self.evolution is not None and self.evolution.tells_of(name):
            former = self.evolution.of_verbs.former_of_asked(name)
        if not (former and goes_on and self.reached) or self.history(name).evolved:
            return replace(self, verb=VerbOf(owner, name, name))
        names = (one for one in (name, *former) if holds_state(self.storage, application_of(owner, one)))
        return replace(self, verb=VerbOf(owner, name, next(names, name)))

    @property
    def begun_as(self) -> str:
        """The id of the application whose state it goes on with."""
        return self.application_id if self.verb is None else self.verb.application_id

    def history_so_far(self, sink: str) -> History:
        """The generations of the state that the query for a sink or verb goes on with.

        Raises as ``history``.
        """
        if self.verb is None or self.verb.before == self.verb.name:
            return self.history(sink)
        return replace(self, application_id=self.begun_as).history(self.verb.before)

    def handling(self, name: str, unit: TimeUnit) -> ErrorHandling:
        """What a query of the sink or verb ``name`` does about records that it cannot process.

        Args:
            name: of the sink or the verb.
            unit: what their timestamps count.
        """
        return ErrorHandling(self.on_error, self.storage, self.application_id, name, uuid4().hex, unit)

    def dead_letters(self, name: str | None) -> DataFrame:
        """The dead letters of the sink or verb ``name``, or of all.

        Raises:
            ConfigurationError: no session is active.
            DurabilityError: the storage failed.
        """
        session = active_session("reading dead letters")
        return read_dead_letters(session, self.storage, self.application_id, name)

    def late_rows(self, name: str | None) -> DataFrame:
        """The late rows of the sink or verb ``name``, or of all.

        Raises:
            ConfigurationError: no session is active.
            DurabilityError: the storage failed.
        """
        return read_late_rows(active_session("reading late rows"), self.storage, self.application_id, name)

    def plan(self, session: SparkSession, topology: Topology, sink: str | None) -> Plan:
        """The plan for one sink, with as many partitions as the user says, or its state has, or the session calls for.

        Raises:
            TopologyError: the topology has no such sink, or several and none was named, or one sink in several places.
        """
        plan = make_plan(topology, sink, self.partitions or 1)
        if not plan.stages:
            return plan
        default = default_partitions(session)
        return replace(plan, partitions=self.partitions or self.history_so_far(plan.sink).partitions or default)

    def supplier(self, session: SparkSession) -> BackendSupplier:
        """The backend of stores that do not name one.

        Raises:
            UnknownBackendError, BackendNotInstalledError: there is none of that name, or it cannot be had.
        """
        return supplier(self.backend or session.conf.get(BACKEND_CONF, None) or DEFAULT_BACKEND)

    def budget(self, session: SparkSession) -> int | None:
        """The bytes for all stores of a worker; None for no limit.

        Raises:
            ConfigurationError: the session's are no size.
        """
        return self.memory_budget or _size(session.conf.get(MEMORY_BUDGET_CONF, None), MEMORY_BUDGET_CONF)

    def warmed(self, session: SparkSession, plan: Plan) -> WarmQuery:
        """A query of this job, whose local copies are to be warmed.

        Raises:
            ConfigurationError: the job has no ``local_dir``, or a backend is unknown.
        """
        if self.local_dir is None:
            raise ConfigurationError(
                "there is no local_dir to warm copies in: Spark's own directories end with the application; give one, "
                "and restart the query with it"
            )
        return WarmQuery.of_plan(
            plan,
            self.application_id,
            self.storage,
            self.local_dir,
            self.supplier(session),
            checksums=self.checksums,
            policy=self.policy,
        )

    def history(self, sink: str) -> History:
        """The generations of the state of the query for a sink or verb; none if the storage could not be read.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        if not self.reached:
            return History(self.storage, self.application_id, plain_name(sink), None, ())
        return History.of(self.storage, self.application_id, plain_name(sink))

    def settings(
        self,
        session: SparkSession,
        plan: Plan,
        unit: TimeUnit,
        *,
        streaming: bool,
        schemas: Mapping[str, Schemas] = NO_SCHEMAS,
        asked: Collection[str] = (),
    ) -> StateSettings:
        """Where the state of the plan's tasks lives, once it is carried over if need be; nothing else is written.

        Args:
            session: the session.
            plan: the plan.
            unit: what the topology's times count.
            streaming: whether it goes on with the state that there is. That of a run over static DataFrames begins
                empty, whatever there is, and ends with its tasks: nothing is written, and nothing is read.
            schemas: of the rows that it keeps, by place.
            asked: the names of the verbs that were asked for so far.

        Raises:
            ConfigurationError: a backend is unknown or cannot do with the budget, the session cannot run the operator,
                the policy retains less than the session, the release to be upgraded from can read no such state, or a
                seed does not fit its store.
            StateConflictError: the state directory holds the state of another topology or number of partitions, and
                what is declared does not lead to this one, or rows that were made with other parameters.
            DurabilityError: the state could not be read or written.
        """
        if self.seeds and not streaming:
            raise ConfigurationError(
                "seeds are for streaming DataFrames, and static ones start from empty state; leave seeds out"
            )
        if not streaming:
            self.check(session, plan, evolved=False)
            passing = replace(self.part(f"static-{uuid4().hex}"), local_dir=None)
            return passing.settings_of(session, plan, unit, None)
        history = self.history(plan.sink)
        self.check(session, plan, evolved=history.evolved or self.evolution is not None or bool(self.seeds))
        generation = generation_of(session, history, plan, self.evolution, self.seeds, self.verb, asked)
        check_terms(generation.shape, shape_of(plan))
        beginning = Beginning(self.storage, self.application_id, plain_name(plan.sink), generation, dict(schemas))
        return replace(self.settings_of(session, plan, unit, generation), beginning=beginning)

    def check(self, session: SparkSession, plan: Plan, *, evolved: bool) -> None:
        """Check all that has nothing to do with the state that there is.

        Args:
            session: the session.
            plan: the plan.
            evolved: whether the state was, or may be, carried over to another shape, or begins with more than nothing.

        Raises:
            ConfigurationError: a backend is unknown or cannot do with the budget, the session cannot run the operator,
                the policy retains less than the session, or the release to be upgraded from can read no such state.
        """
        check_operator(session)
        start_coordinator(session)
        self._retaining(session)
        chosen, specs = self.supplier(session), [spec for part in plan.parts for spec in part.stores.values()]
        budget = self.budget(session)
        for spec in specs:
            with_memory_budget(supplier(spec.backend or chosen), budget)
        if self.upgrade is not None:
            check_older_reader(self.upgrade.release, specs, evolved=evolved)

    def settings_of(
        self, session: SparkSession, plan: Plan, unit: TimeUnit, generation: EvolutionRecord | None
    ) -> StateSettings:
        """Where the state of the plan's tasks lives, in a generation of it; None for state that ends with its tasks.

        Raises:
            ConfigurationError: a backend is unknown, or the policy retains less than the session.
        """
        return StateSettings(
            application_id=self.application_id,
            sink=plan.sink,
            run=uuid4().hex,
            generation=generation,
            storage=self.storage,
            local_dir=self.local_dir,
            supplier=self.supplier(session),
            policy=self._retaining(session),
            checksums=self.checksums,
            upgrade=None if self.upgrade is None else self.upgrade.mode,
            upgrade_from=None if self.upgrade is None else self.upgrade.release,
            memory_budget=self.budget(session),
            owner=None if self.verb is None else self.verb.owner,
            reset=None if self.reset_stream_time is None else StreamTimeReset(self.reset_stream_time // unit, unit),
        )

    def _retaining(self, session: SparkSession) -> DurabilityPolicy:
        """The policy, which retains all that Spark may go back to, or the default that does.

        Raises:
            ConfigurationError: it retains less.
        """
        policy, batches = self.policy, int(session.conf.get(RETAINED_BATCHES_CONF) or DEFAULT_RETAINED_BATCHES)
        needed = batches * COMMITS_PER_BATCH
        if policy is None:
            default = DurabilityPolicy()
            return replace(default, retained_commits=max(default.retained_commits, needed + batches // 2))
        if policy.retained_commits < needed:
            raise ConfigurationError(
                f"the policy retains {policy.retained_commits} commits, but {RETAINED_BATCHES_CONF} is {batches}: "
                f"Spark may go back by as many micro-batches of up to {COMMITS_PER_BATCH} commits; raise "
                f"retained_commits to {needed} or more, or lower that setting"
            )
        return policy


def _distance(max_ahead: Duration | None) -> int | None:
    """How far a timestamp may be ahead, in microseconds."""
    micros = None if max_ahead is None else to_micros(max_ahead, "max_ahead")
    if micros is not None and micros < 0:
        raise ConfigurationError(f"max_ahead is {max_ahead!r}; it must not be negative. None allows any distance")
    return micros


def _size(size: str | int | None, option: str) -> int | None:
    """The bytes that an option says."""
    try:
        found = parse_size(size) if isinstance(size, str) else size
    except ValueError as error:
        raise ConfigurationError(f"{option} is {size!r}, but must be {error}") from None
    if found is not None and (type(found) is not int or found < 1):
        raise ConfigurationError(f"{option} is {size!r}; give bytes, or text such as '512MiB', or leave it out")
    return found


def _moment(reset_stream_time: Instant | str | None) -> int | None:
    """The moment to which stream time is set back, in microseconds since 1970."""
    moment = reset_stream_time
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ConfigurationError(
                f"reset_stream_time is {moment!r}; give a datetime, or text such as '2026-06-01T12:00:00Z'"
            ) from None
    return None if moment is None else to_instant_micros(moment, "reset_stream_time")

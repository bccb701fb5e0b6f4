"""``VerbRun``: one verb, from its packed inputs to the columns of its result, its stores and its local copies.

Rule of this module: it knows what all verbs share, and no verb by name.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.inspect.store_form import VALID_TO
from millpond.adapters.spark.copies.warm_query import WarmQuery
from millpond.adapters.spark.evolution.rekeyed import NewVerb
from millpond.adapters.spark.job.backfill import backfilled
from millpond.adapters.spark.job.inputs import check_ticks
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.worker_settings import warm_query, worker_settings
from millpond.adapters.spark.operator.dataflow import Dataflow
from millpond.adapters.spark.operator.looking_up import LookUp
from millpond.adapters.spark.operator.on_workers import OnWorkers
from millpond.adapters.spark.operator.stage import MANIFEST_COLUMN
from millpond.adapters.spark.reading.inspection import CommittedStore
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.intervals import from_months, traveling
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.adapters.spark.verbs.frames.backfill import Backfill, check_storable
from millpond.adapters.spark.verbs.frames.between import Results
from millpond.adapters.spark.verbs.frames.inputs import RowInput
from millpond.adapters.spark.verbs.frames.kept_schemas import KeptSchemas
from millpond.adapters.spark.verbs.frames.marks import marked, together
from millpond.adapters.spark.verbs.frames.shared_flow import SharedFlow, SharedVerb
from millpond.adapters.spark.verbs.frames.sharing import Result, Shared, shared_by
from millpond.adapters.spark.verbs.frames.sink import RowSink, column_sink, row_sink
from millpond.adapters.spark.verbs.frames.told_columns import bound_marks
from millpond.adapters.spark.worker.counters import counting, observe_reports
from millpond.adapters.spark.worker.table_versions import TableVersions
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import ArgumentConflictError, DurabilityError, FormatError, UnknownNameError
from millpond.processors.calls.feeds import feed_marks
from millpond.processors.calls.made import MadeVerb
from millpond.processors.calls.readings import key_names
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.rows.event_times import EventTimes
from millpond.processors.rows.row_source import RowSource
from millpond.processors.rows.sink_rows import PartRows
from millpond.processors.rows.unusable import SKIP_REASONS
from millpond.processors.verbs.rekeying.rekeying import NewInput
from millpond.processors.verbs.verb import PackedRows, Verb, schema_of
from millpond.stores.durability.manifests.schema_log import keep_schemas, unkept_schemas
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.history import History
from millpond.stores.evolution.seeding import Filling
from millpond.stores.evolution.verbs.declarations import alike, declaration, verbs_beside, verbs_with_state, went_on

_log = logging.getLogger(__name__)


class Entries(NamedTuple):
    """The entries of a store.

    Attributes:
        rows: its entries.
        key: the columns that tell them from each other.
    """

    rows: DataFrame
    key: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class VerbRun:
    """One verb on its way to a DataFrame.

    Attributes:
        job: the part of the job that is the verb's.
        name: the verb's.
        session: runs it.
        inputs: of the verb.
        schemas: of what it keeps.
        handling: what happens to rows that cannot be processed.
        complete: a DataFrame any row of which says that all inputs are complete.
        streaming: whether it goes on with the state that there is.
        results: of the verbs whose operators it may share.
        asked: the plans of the verbs that were asked for before, by name.
        backfill: for which it runs; None for none.
    """

    job: Job
    name: str
    session: SparkSession
    inputs: Sequence[RowInput]
    schemas: KeptSchemas
    handling: ErrorHandling
    complete: DataFrame | None
    streaming: bool
    results: Results
    asked: dict[str, Plan]
    backfill: Backfill | None

    @property
    def named(self) -> bool:
        """True if its name is that of state that stays."""
        return self.streaming or self.backfill is not None

    @cached_property
    def began(self) -> History:
        """The generations of the state that it goes on with, which it may have under a former name.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        return self.job.history_so_far(self.name)

    def result(
        self,
        made: MadeVerb[RowInput],
        *,
        columns: T.StructType | None = None,
        ticks: DataFrame | None = None,
        filling: Callable[[Plan], Filling] | None = None,
    ) -> DataFrame:
        """Return the rows that come out.

        Args:
            made: the verb.
            columns: of the result, if the user has named them.
            ticks: a DataFrame any row of which wakes all tasks; None if only rows do.
            filling: what the state gets once it is carried over, for a plan; None for nothing.

        Raises:
            ConfigurationError: the session cannot run the operator, or ticks cannot wake any task.
            StateConflictError: the state directory holds the state of another verb or number of partitions, and what is
                declared does not lead to this one, or another job backfills the verb at the same time.
            DurabilityError: the state could not be read or written.
        """
        verb, account = made.verb, made.account
        plan = self.job.plan(self.session, verb.topology, verb.name)
        check_ticks(ticks, plan, streaming=self.streaming)
        announced, columns = columns is not None, columns or self._columns(verb.schema)
        if not plan.stages:
            return self._looking_up(made, plan, columns)
        shared = self._shared(plan, verb, ticks)
        if shared:
            plan = replace(plan, partitions=shared.partitions, behind=shared.names)
        frames = {rows.role: rows.selected() for rows in self.inputs}
        sources = {rows.role: self._source(rows, verb, made.value_serde) for rows in self.inputs}
        sink = row_sink(verb.name, traveling(columns), verb.parts)
        metrics = f"millpond.{self.name}"
        of_feed = {} if made.feed is None else feed_marks(self.name, made.feed, made.row)
        marks = together(bound_marks(account.marks), of_feed)
        runs = OnWorkers(plan, sources, self.handling, verb.follows_time, verb.inputs)
        flow = Dataflow(runs, frames, [sink], self.complete, metrics, ticks)
        if self.backfill is not None:
            return marked(self._backfilled(self.backfill, flow, sink, columns), marks)
        settings = worker_settings(
            self.job,
            self.session,
            plan,
            TimeUnit.MICROSECOND,
            streaming=self.streaming,
            schemas=self.schemas.by_place,
            asked=self.asked,
            inputs=self.as_new(verb, None if filling is None else filling(plan)),
        )
        if self.streaming:
            self._warn_of_another_name(plan)
            self.asked[self.name] = plan
        one = SharedVerb(self.name, flow, sink, settings, shared.inputs)
        verbs = [*shared.verbs, one]
        output = SharedFlow(verbs).rows() if shared else flow.with_operators(settings)
        rows = marked(from_months(sink.shown(output), columns), marks)
        if self.streaming and plan.alone and not announced and ticks is None:
            alone = all(rows.keyed for rows in self.inputs)
            self.results.add(rows, Result(verbs, key_names(self.inputs[0]), account, alone))
        return rows

    def _looking_up(self, made: MadeVerb[RowInput], plan: Plan, columns: T.StructType) -> DataFrame:
        """Return the rows that come out of a verb that keeps nothing, where its input is split."""
        verb, (rows,), (part,) = made.verb, self.inputs, plan.map_side
        sink = column_sink(verb.name, traveling(columns), verb.parts)
        source = self._source(rows, verb, made.value_serde)
        look_up = LookUp(part, source, sink, self.handling, verb.tables, self.table_versions(verb))
        found = rows.selected().in_workers(look_up, counting(sink.columns))
        observed = observe_reports(found, f"millpond.{self.name}.{rows.role}", self.job.application_id, SKIP_REASONS)
        return marked(from_months(sink.shown(observed), columns), bound_marks(made.account.marks))

    def table_versions(self, verb: Verb) -> dict[str, TableVersions]:
        """Return which versions are read of the tables that the verb looks up."""
        storage, application_id = self.job.storage, self.job.application_id
        return {
            name: TableVersions(storage, application_id, name, None if self.streaming else table.newest())
            for name, table in verb.tables.items()
        }

    def store(self, verb: Verb, name: str, checkpoint: str, batch_id: int | None) -> DataFrame:
        """Return the rows of one of the verb's stores, as committed.

        Raises:
            ConfigurationError: the verb has no such store to show, the checkpoint no such commit, or this run none.
            StateConflictError: the state has rows of other columns since the verb was made.
        """
        self.check_commits()
        if name not in verb.stores:
            raise UnknownNameError(f"the verb {self.name!r} shows the stores {sorted(verb.stores)}, not {name!r}")
        unkept_schemas(self.job.storage, self.job.application_id, self.schemas.by_place)
        plan = replace(self.job, reached=True).plan(self.session, verb.topology, verb.name)
        parts = verb.stores[name]
        shown = schema_of(parts)
        found = CommittedStore(plan, self.job.application_id, self.job.storage, name, checkpoint, batch_id)
        ends = _ends(shown) if found.spec.versioned else None
        columns = self._columns(shown if ends is None else shown.append(ends))
        packed, rows = traveling(columns), PartRows(parts, arrow_schema(traveling(self._columns(shown))))
        return from_months(found.frame(self.session, rows, packed, ends=ends), columns)

    def entries(self, verb: Verb, name: str, checkpoint: str) -> Entries:
        """Return the last committed entries of a store of the verb; one not shown has bytes, and times in microseconds.

        Raises as ``store``.
        """
        spec = verb.topology.stores[name]
        if name in verb.stores:
            shown = schema_of(verb.stores[name])
            keys = verb.stores[name][0].schema.names
            return Entries(
                self.store(verb, name, checkpoint, None), [*keys, *shown.names[-1:]] if spec.versioned else keys
            )
        plan = self.job.plan(self.session, verb.topology, verb.name)
        found = CommittedStore(plan, self.job.application_id, self.job.storage, name, checkpoint, None)
        rows = found.raw(self.session)
        beside = {"value"} if spec.versioned else {"value", "timestamp"}
        return Entries(rows, [column for column in rows.columns if column not in beside])

    def check_commits(self) -> None:
        """Refuse to look for what is committed of a verb that commits nothing to a checkpoint.

        Raises:
            ConfigurationError: it was made for its backfill.
        """
        if self.backfill is not None:
            raise ArgumentConflictError(
                f"the verb {self.name!r} was made for its backfill, which commits nothing to a checkpoint; read the "
                "store with the Millpond itself, where the verb has streaming DataFrames"
            )

    def warmed(self, verb: Verb) -> WarmQuery:
        """Return the query of this verb, whose local copies are to be warmed.

        Raises:
            ConfigurationError: the job has no ``local_dir``, or a backend is unknown.
        """
        plan = replace(self.job, reached=True).plan(self.session, verb.topology, verb.name)
        return warm_query(self.job, self.session, plan)

    def as_new(self, verb: Verb, filling: Filling | None = None) -> NewVerb:
        """Return what a verb that may begin with rows of others says of its inputs, and what its state gets."""
        inputs = {}
        for rows in self.inputs:
            packed = verb.inputs[rows.role]
            if isinstance(packed, PackedRows):
                given = {
                    name.removeprefix(f"{rows.role}_").partition("[")[0]: one.kept
                    for name, one in rows.expressions.items()
                }
                inputs[rows.role] = NewInput(packed, rows.keyed, given)
        return NewVerb(inputs, verb.follows_time, self.schemas.by_place, filling)

    @property
    def began_behind(self) -> list[str] | None:
        """The verbs, as they are called now, behind which it has begun in their operator; None if it has not begun."""
        newest = self.began.newest
        return None if newest is None else list(map(self._now, newest.shape.behind))

    def _now(self, name: str) -> str:
        """Return the present name of a verb: as declared, or as it has gone on since, which needs no declaration."""
        evolution, verb = self.job.options.evolution, self.job.verb
        name = name if evolution is None else evolution.of_verbs.now(name)
        if name in self.asked or verb is None:
            return name
        beside, seen = verbs_beside(self.job.storage, verb.owner), {name}
        gone = went_on(self.job.storage, verb.owner, beside, empty=True)
        while (new := gone.get(name)) is not None and name not in self.asked and new not in seen:
            seen.add(new)
            name = new
        return name

    def _shared(self, plan: Plan, verb: Verb, ticks: DataFrame | None) -> Shared:
        """Return the operator that the verb shares with those before it.

        Raises:
            StateConflictError: it has begun in one that it cannot share any more.
        """
        if not self.streaming:
            return Shared()
        began = None if self._begins_elsewhere() else self.began_behind
        apart = "it has ticks" if ticks is not None else self.job.apart
        shared = shared_by(plan, self.results.behind(self.inputs), verb, began, apart)
        self.results.tell(self.name, shared)
        return shared

    def _warn_of_another_name(self, plan: Plan) -> None:
        """Say so where it is new and may be a verb that has state: without an evolution nobody knows the checkpoint."""
        job, verb = self.job, self.job.verb
        known = job.options.evolution is not None or not job.reached or self.began.newest is not None
        if verb is None or known:
            return
        owner = verb.owner
        likeliest: list[str] = []
        with suppress(DurabilityError, FormatError):  # of verbs that may have no part in the query
            held = verbs_with_state(job.storage, owner)
            gone = went_on(job.storage, owner, held)
            others = [one for one in held if one not in (*self.asked, self.name, *gone)]
            likeliest = alike(job.storage, owner, self.name, shape_of(plan), others)
        if likeliest:
            _log.warning(
                "the verb %r of application %r has no state, and begins empty; if it is %r under another name, write "
                "%s; print(pond.plan(checkpoint)) tells what becomes of all verbs",
                self.name,
                owner,
                likeliest[0],
                declaration(None, {likeliest[0]: self.name}),
            )

    def _begins_elsewhere(self) -> bool:
        """Return whether its query is to go on at another checkpoint, where operators may be others."""
        evolution = self.job.options.evolution
        place = None if evolution is None else evolution.standpoint(self.session, self.name)
        return place is not None and place.into is not None

    def _backfilled(self, backfill: Backfill, flow: Dataflow, sink: RowSink, columns: T.StructType) -> DataFrame:
        """Return the rows that come out of the verb's backfill, or have come out of it before."""

        def rows(settings: StateSettings) -> DataFrame:
            output = flow.with_operators(settings, backfill=True)
            return from_months(sink.shown(output, manifests=True), columns, MANIFEST_COLUMN)

        if self.schemas.kept:
            check_storable(self.name, columns)
            keep_schemas(self.job.storage, self.job.application_id, self.schemas.by_place)
        results = backfill.results_of(self.name)
        return backfilled(self.session, self.job, flow.runs.plan, rows, TimeUnit.MICROSECOND, results)

    def _source(self, rows: RowInput, verb: Verb, value_serde: Serde[Any] | None) -> RowSource:
        key, given = ", ".join(rows.keys), rows.given or {}
        time, op = (
            given[what].text if what in given else _shown(one) for what, one in (("time", rows.time), ("op", rows.op))
        )
        storage = self.job.storage if self.schemas.kept else None
        event_times = EventTimes(TimeUnit.MICROSECOND, self.job.options.max_ahead, storage)
        return RowSource(
            self.name, verb.inputs[rows.role], key, time, op, event_times, value_serde, self.job.options.on_error
        )

    def _columns(self, schema: pa.Schema) -> T.StructType:
        """Return the columns of the result as Spark has them: typed as they are in an input, or arrays of that.

        Arrow knows less of types than Spark: collations, or which fields an interval has.
        """
        columns = []
        for made, plain in zip(schema, from_arrow_schema(schema, prefer_timestamp_ntz=True), strict=True):
            owner = next((rows for rows in self.inputs if made.name in rows.carried), None)
            type_ = plain.dataType
            if owner is not None:
                packed, own = owner.schema([made.name]).field(0).type, owner.field(made.name).dataType
                if packed == made.type:
                    type_ = own
                elif pa.types.is_list(made.type) and made.type.value_type == packed:
                    type_ = T.ArrayType(own)
            columns.append(T.StructField(made.name, type_))
        return T.StructType(columns)


def _ends(shown: pa.Schema) -> "pa.Field[Any] | None":
    """Return the column for the ends of versions, typed like the last of these, their times; None if it is there."""
    return None if VALID_TO in shown.names else pa.field(VALID_TO, shown.types[-1])


def _shown(column: str | Column | None) -> str:
    return column if isinstance(column, str) else str(column)

"""``VerbRunner``: runs verbs as parts of one job: schemas, state, inputs and the columns of the result.

Rule of this module: it knows what all verbs share, and no verb by name.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.spark.copies.warm_query import WarmQuery
from millpond.adapters.spark.job.backfill import backfilled
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.worker_settings import warm_query, worker_settings
from millpond.adapters.spark.operator.dataflow import Dataflow
from millpond.adapters.spark.reading.inspection import CommittedStore
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.event_times import EventTimes
from millpond.adapters.spark.rows.names import did_you_mean
from millpond.adapters.spark.rows.sink import arrow_schema
from millpond.adapters.spark.rows.sink_blobs import to_columns
from millpond.adapters.spark.session.session import check_workers
from millpond.adapters.spark.session.ticks import check_ticks
from millpond.adapters.spark.verbs.account import Account
from millpond.adapters.spark.verbs.backfill import Backfill, check_storable, to_results
from millpond.adapters.spark.verbs.bounds import bound_marks
from millpond.adapters.spark.verbs.expressions import Expression, kept_as, kept_in, name_of
from millpond.adapters.spark.verbs.feeds import feed_marks
from millpond.adapters.spark.verbs.inputs import RowInput, check_equal_keys, check_equal_times, key_kinds, listed_key
from millpond.adapters.spark.verbs.intervals import from_months, traveling
from millpond.adapters.spark.verbs.marks import marked, together
from millpond.adapters.spark.verbs.shared_flow import SharedVerb, shared_rows
from millpond.adapters.spark.verbs.sharing import Shared, Sharing
from millpond.adapters.spark.verbs.sink import PartRows, row_sink
from millpond.adapters.spark.verbs.source import RowSource
from millpond.adapters.spark.worker.worker import StateSettings
from millpond.errors import ConfigurationError, DurabilityError, FormatError, StateConflictError
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.verbs.null_keys import NullKeys
from millpond.processors.verbs.projections import ChangeColumns
from millpond.processors.verbs.verb import PackedRows, Verb, schema_of
from millpond.stores.durability.manifests.schema_log import (
    Beside,
    keep_schemas,
    kept_schemas,
    next_schemas,
    unkept_schemas,
)
from millpond.stores.encoding.rows.packing import RowCodec
from millpond.stores.encoding.rows.schemas import Schemas
from millpond.stores.encoding.rows.tuple_keys import KeyCodec
from millpond.stores.encoding.serdes import Serde
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.backfilling import check_ended, check_may_begin
from millpond.stores.evolution.history import History
from millpond.stores.evolution.verbs import alike, declaration, verbs_with_state

_log = logging.getLogger(__name__)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_SHOWN: Final = {Beside.FOREIGN: "foreign key"}
"""What errors call fixed columns, where that is not their place."""


@dataclass(frozen=True)
class ColumnChanges:
    """What a user declares about columns that were different in an earlier run.

    Attributes:
        renamed: the new name of each old one.
        dropped: the old names of columns that are gone.
    """

    renamed: Mapping[str, str]
    dropped: Collection[str]


@dataclass(frozen=True)
class VerbRunner:
    """Runs the verbs of a job.

    Attributes:
        job: the job.
        complete: a DataFrame any row of which says that all inputs are complete.
        backfill: of the verbs, if they run for one; None if they do not.
        sharing: the verbs whose operators others may share.
        asked: the plans of the verbs that were asked for so far, by name.
    """

    job: Job
    complete: DataFrame | None
    backfill: Backfill | None = None
    sharing: Sharing = field(default_factory=Sharing)
    asked: dict[str, Plan] = field(default_factory=dict)

    def verb(self, name: str, inputs: Sequence[RowInput], changes: ColumnChanges) -> "VerbRun":
        """A verb of that name on these inputs.

        Raises:
            ConfigurationError: the inputs are not all streaming or all static, or streaming in a backfill, keys that
                are to be equal have other types, times are of two kinds, the name is that of an input, or the session
                cannot run a verb.
            StateConflictError: the verb has begun without this backfill, or waits for one to come to its end, or its
                state has rows that were put with other expressions.
        """
        if name in (one.role for one in inputs):
            raise ConfigurationError(f"the verb's name is {name!r}, which is what its input is called; give another")
        _check_renamed(changes.renamed, inputs)
        check_equal_keys(name, inputs)
        check_equal_times(name, inputs)
        streaming = inputs[0].frame.isStreaming
        if any(one.frame.isStreaming is not streaming for one in inputs):
            raise ConfigurationError(
                f"the verb {name!r} has a streaming and a static DataFrame; make both one or the other"
            )
        if streaming and self.backfill is not None:
            raise ConfigurationError(
                f"a backfill is of inputs that have an end, and those of the verb {name!r} are streaming DataFrames; "
                "give static ones here, and the streaming ones to the Millpond itself"
            )
        session = inputs[0].frame.sparkSession
        check_workers(session)
        job, handling = self.job.part(name), self.job.handling(name, TimeUnit.MICROSECOND)
        if self.backfill is None:
            job = job.looking()
        job = job.of_verb(self.job.application_id, name, goes_on=streaming)
        kept = self._keeps_state(job, name, streaming=streaming)
        complete = self.complete if streaming else session.range(1)
        if self.backfill is not None:
            complete = self.backfill.complete
        run = VerbRun(
            job,
            name,
            session,
            list(inputs),
            changes,
            handling,
            complete,
            streaming,
            kept,
            self.sharing,
            self.asked,
            self.backfill,
        )
        if kept:
            run.note_expressions()
        return run

    def _keeps_state(self, job: Job, name: str, *, streaming: bool) -> bool:
        """Whether a run leaves state, for which the state that there is has to be such that it can begin.

        Raises:
            StateConflictError: it is not.
        """
        if not streaming and self.backfill is None:
            return False
        history = job.history(name)
        if streaming:
            check_ended(history)
        elif history.backfill is None:
            check_may_begin(history)
        return streaming or history.backfill is None


@dataclass(frozen=True)
class VerbRun:
    """One verb on its way to a DataFrame.

    Attributes:
        job: the part of the job that is the verb's.
        name: the verb's.
        session: runs it.
        inputs: of the verb.
        changes: what the user declares of their columns.
        handling: what happens to rows that cannot be processed.
        complete: a DataFrame any row of which says that all inputs are complete.
        streaming: whether it goes on with the state that there is.
        kept: whether it leaves state; a backfill does if it is the first.
        sharing: the verbs whose operators it may share.
        asked: the plans of the verbs that were asked for before, by name.
        backfill: for which it runs; None for none.
        schemas: of the rows that it keeps, by place; each input that is described adds its own.
    """

    job: Job
    name: str
    session: SparkSession
    inputs: Sequence[RowInput]
    changes: ColumnChanges
    handling: ErrorHandling
    complete: DataFrame | None
    streaming: bool
    kept: bool
    sharing: Sharing
    asked: dict[str, Plan]
    backfill: Backfill | None = None
    schemas: dict[str, Schemas] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Whether its name is that of state that stays."""
        return self.streaming or self.backfill is not None

    @cached_property
    def began(self) -> History:
        """The generations of the state that it goes on with, which it may have under a former name.

        Raises:
            FormatError: a record is damaged, or of a later release.
            DurabilityError: the storage failed.
        """
        return self.job.history_so_far(self.name)

    def _stores(self, rows: RowInput) -> bool:
        """Whether rows of that input stay in state, so that a later run has to read them."""
        return self.kept and rows.stored

    def note_expressions(self) -> None:
        """Note what the rows of the state are put with: times, operations, orders and arguments of calls.

        Raises:
            StateConflictError: the state has rows that were put with others.
        """
        for rows in (one for one in self.inputs if one.stored):
            place = Beside.EXPRESSIONS.place(rows.role)
            kept = self._before(place)
            before = {} if kept is None else kept_in(kept.current.names)
            now = rows.expressions
            self._check_expressions(before, now)
            pairs = {name_of(name, one): name_of(name, now[name]) for name, one in before.items() if name in now}
            renamed = {old: new for old, new in pairs.items() if old != new}
            self._note(place, kept_as({**before, **now}), renamed)

    def _check_expressions(self, before: Mapping[str, Expression], now: Mapping[str, Expression]) -> None:
        """Refuse an expression that is another than before. What was all upserts may get operations."""
        for name, old in before.items():
            new = now.get(name)
            if new is None and not name.endswith("op"):
                continue  # The state has another shape then, or other calls.
            if new is None or not new.follows(old, self.changes.renamed):
                columns = new is not None and new.release is None and old.release is None
                back = f" (if the column has been renamed: .withColumnRenamed({new}, {old}))" if columns else ""
                raise StateConflictError(
                    f"the verb {self.name!r} has {name}={new}, but the rows in the state of "
                    f"{self.job.application_id!r} were put with {name}={old}; write {name}={old} again{back}, or "
                    f"{self._begin_anew}"
                )

    def keys(self, rows: RowInput) -> KeyCodec:
        """How the keys of one of the inputs are packed; their names and types are kept with the state.

        Raises:
            StateConflictError: the state has keys of other columns, or of other types.
        """
        return self._fixed(rows, Beside.KEY, rows.key_schema(rows.keys))

    def order(self, rows: RowInput) -> KeyCodec | None:
        """How what decides among rows of one key and time is packed, if there is such a column.

        Raises:
            StateConflictError: the state has orders of another type.
        """
        return None if rows.order is None else self._fixed(rows, Beside.ORDER, rows.order_schema())

    def times(self, rows: RowInput) -> pa.DataType:
        """The type of the times of one of the inputs; it is kept with the state.

        Raises:
            StateConflictError: the state has times of the other type.
        """
        self._fixed(rows, Beside.TIME, pa.schema([("time", rows.times)]))
        return rows.times

    def _fixed(self, rows: RowInput, what: Beside, columns: pa.Schema) -> KeyCodec:
        """The codec of columns that stay what they are as long as the state, but for names that are declared."""
        if not self._stores(rows):
            return KeyCodec(columns)
        place, shown = what.place(rows.role), _SHOWN.get(what, what.value)
        before = self._before(place)
        if before is None:
            self._note(place, columns)
        elif key_kinds(before.current) != key_kinds(columns):
            raise StateConflictError(
                f"the {shown} of {rows.role!r} is ({listed_key(columns)}), but the state of "
                f"{self.job.application_id!r} has {shown}s of ({listed_key(before.current)}); cast the columns, or "
                f"{self._begin_anew}"
            )
        elif before.current.names != columns.names:
            self._rename(rows.role, what, before.current, columns)
        else:
            self.schemas[place] = before
        return KeyCodec(columns)

    def beside(
        self,
        rows: RowInput,
        what: Beside,
        first: Callable[[], pa.Schema],
        evolved: Callable[[Schemas], Schemas],
    ) -> Schemas | None:
        """The history of what lies beside the rows of one of the inputs; None where these do not stay in state.

        Args:
            rows: the input.
            what: of which the history is.
            first: its columns, where it begins.
            evolved: the history that goes on.
        """
        if not self._stores(rows):
            return None
        place = what.place(rows.role)
        before = self._before(place)
        if before is None:
            return self._note(place, first())
        self.schemas[place] = evolved(before)
        return self.schemas[place]

    def _rename(self, role: str, what: Beside, before: pa.Schema, columns: pa.Schema) -> None:
        """Note the new names of columns that are fixed, if the user has declared them.

        Raises:
            StateConflictError: they are not the same columns.
        """
        pairs = {old: new for old, new in zip(before.names, columns.names, strict=True) if old != new}
        if any(self.changes.renamed.get(old) != new for old, new in pairs.items()):
            shown = _SHOWN.get(what, what.value)
            back = "".join(f".withColumnRenamed({new!r}, {old!r})" for old, new in pairs.items())
            raise StateConflictError(
                f"the {shown} of {role!r} is ({listed_key(columns)}), but the rows in the state of "
                f"{self.job.application_id!r} were put by ({listed_key(before)}); write these columns again (if they "
                f"have been renamed: {back}), or {self._begin_anew}"
            )
        fields = zip(before, columns.names, strict=True)
        renamed = pa.schema([column.with_name(name) for column, name in fields])
        self._note(what.place(role), renamed, pairs)

    @property
    def _begin_anew(self) -> str:
        """What to write for a verb that is to go on without its state."""
        return f"give the verb another name, and drop the old one: {declaration(None, dropped=[self.name])}"

    def _before(self, place: str) -> Schemas | None:
        """The history of a place's schemas; None if no rows are of them, as far as can be told now."""
        return kept_schemas(self.job.storage, self.job.begun_as, place) if self.job.reached else None

    def _note(
        self, place: str, schema: pa.Schema, renamed: Mapping[str, str] = _NOTHING, dropped: Collection[str] = ()
    ) -> Schemas:
        """The history of a place's schemas with ``schema`` as the newest, to be kept with the first row.

        Raises:
            StateConflictError: rows of the schemas so far cannot be read as rows of this one.
        """
        storage, application_id = self.job.storage, self.job.begun_as
        known = self.job.reached
        self.schemas[place] = (
            next_schemas(storage, application_id, place, schema, renamed, dropped) if known else Schemas.first(schema)
        )
        return self.schemas[place]

    def input(
        self,
        rows: RowInput,
        null_keys: NullKeys = NullKeys.EQUAL,
        *,
        untimed: bool = False,
        versions: bool = False,
    ) -> PackedRows:
        """How the rows of one of the inputs are packed; their schema is kept with the state.

        Args:
            rows: the input.
            null_keys: what happens to rows with a null in their key.
            untimed: whether rows without a time are kept.
            versions: whether its times say from when on its rows are valid.

        Raises:
            StateConflictError: the state has rows that cannot be read with these columns.
        """
        keys, schema = self.keys(rows), rows.schema(rows.values)
        schemas = self._evolved(rows.role, schema) if self._stores(rows) else Schemas.first(schema)
        foreign = self._fixed(rows, Beside.FOREIGN, rows.key_schema(rows.foreign)) if rows.foreign else None
        order, in_order = self.order(rows), rows.in_order
        return PackedRows(
            rows.role,
            keys,
            null_keys,
            RowCodec(schemas),
            foreign,
            order=order,
            in_order=in_order,
            untimed=untimed,
            times=self.times(rows),
            versions=versions,
        )

    def _evolved(self, role: str, schema: pa.Schema) -> Schemas:
        """The history of the schemas of an input's rows in the state, with ``schema`` as the newest."""
        before = self._before(role)
        known = {*schema.names, *(() if before is None else before.current.names)}
        renamed = {old: new for old, new in self.changes.renamed.items() if known & {_top(old), _top(new)}}
        dropped = [old for old in self.changes.dropped if _top(old) in known]
        return self._note(role, schema, renamed, dropped)

    def result(
        self,
        verb: Verb,
        account: Account,
        *,
        value_serde: Serde[Any] | None = None,
        columns: T.StructType | None = None,
        ticks: DataFrame | None = None,
    ) -> DataFrame:
        """The rows that come out.

        Args:
            verb: the verb.
            account: what there is to say of its times.
            value_serde: reads packed values; None if processors take them as bytes.
            columns: of the result, if the user has named them.
            ticks: a DataFrame any row of which wakes all tasks; None if only rows do.

        Raises:
            ConfigurationError: the session cannot run the operator, or ticks cannot wake anybody.
            StateConflictError: the state directory holds the state of another verb or number of partitions, and what is
                declared does not lead to this one, or another job backfills the verb at the same time.
            DurabilityError: the state could not be read or written.
        """
        plan = self.job.plan(self.session, verb.topology, verb.name)
        check_ticks(ticks, plan, streaming=self.streaming)
        shared = self._shared(plan, verb, ticks)
        if shared:
            plan = replace(plan, partitions=shared.partitions, behind=shared.names)
        announced, columns = columns is not None, columns or self._columns(verb.schema)
        sources = {rows.role: (rows.selected(), self._source(rows, verb, value_serde)) for rows in self.inputs}
        sink = row_sink(verb.name, traveling(columns), verb.parts)
        metrics = f"millpond.{self.name}"
        feeds = any(isinstance(part, ChangeColumns) for part in verb.parts)
        marks = together(bound_marks(account.marks), feed_marks(self.name, self.inputs[0].keys) if feeds else {})
        flow = Dataflow(
            plan, sources, [sink], self.handling, self.complete, metrics, ticks, verb.follows_time, verb.inputs
        )
        if self.backfill is not None:
            return marked(self._backfilled(self.backfill, flow, columns), marks)
        settings = worker_settings(
            self.job,
            self.session,
            plan,
            TimeUnit.MICROSECOND,
            streaming=self.streaming,
            schemas=self.schemas,
            asked=self.asked,
        )
        if self.streaming:
            self._warn_of_another_name(plan)
            self.asked[self.name] = plan
        one = SharedVerb(self.name, flow, sink, settings, shared.inputs)
        blobs = shared_rows([*shared.verbs, one]) if shared else flow.with_operators(settings)
        rows = marked(from_months(to_columns(blobs, traveling(columns)), columns), marks)
        if self.streaming and plan.alone and not announced and ticks is None:
            self.sharing.add(rows, one, self.inputs, account)
        return rows

    def _shared(self, plan: Plan, verb: Verb, ticks: DataFrame | None) -> Shared:
        """The operator that the verb shares with those before it.

        Raises:
            StateConflictError: it has begun in one that it cannot share any more.
        """
        if not self.streaming:
            return Shared()
        newest, evolution = self.began.newest, self.job.options.evolution
        began = None
        if newest is not None and not self._begins_elsewhere():
            began = newest.shape.behind
            if evolution is not None:
                began = tuple(evolution.of_verbs.now(name) for name in began)
        apart = "it has ticks" if ticks is not None else self.job.apart
        return self.sharing.shared(plan, self.inputs, verb, began, apart)

    def _warn_of_another_name(self, plan: Plan) -> None:
        """Say so where it is new and may be a verb that has state: without an evolution nobody knows the checkpoint."""
        job, verb = self.job, self.job.verb
        known = job.options.evolution is not None or not job.reached or self.began.newest is not None
        if verb is None or known:
            return
        owner = verb.owner
        likeliest: list[str] = []
        with suppress(DurabilityError, FormatError):  # of verbs that may have no part in the query
            others = [one for one in verbs_with_state(job.storage, owner) if one not in (*self.asked, self.name)]
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
        """Whether its query is to go on at another checkpoint, where operators may be others."""
        evolution = self.job.options.evolution
        place = None if evolution is None else evolution.standpoint(self.session, self.name)
        return place is not None and place.into is not None

    def _backfilled(self, backfill: Backfill, flow: Dataflow, columns: T.StructType) -> DataFrame:
        """The rows that come out of the verb's backfill, or have come out of it before."""

        def rows(settings: StateSettings) -> DataFrame:
            return to_results(flow.with_operators(settings, backfill=True), columns)

        if self.kept:
            check_storable(self.name, columns)
            keep_schemas(self.job.storage, self.job.application_id, self.schemas)
        results = backfill.results_of(self.name)
        return backfilled(self.session, self.job, flow.plan, rows, TimeUnit.MICROSECOND, results)

    def store(self, verb: Verb, name: str, checkpoint: str, batch_id: int | None) -> DataFrame:
        """The rows of one of the verb's stores, as committed.

        Raises:
            ConfigurationError: the verb has no such store to show, the checkpoint no such commit, or this run none.
            StateConflictError: the state has rows of other columns since the verb was made.
        """
        if self.backfill is not None:
            raise ConfigurationError(
                f"the verb {self.name!r} was made for its backfill, which commits nothing to a checkpoint; read the "
                "store with the Millpond itself, where the verb has streaming DataFrames"
            )
        if name not in verb.stores:
            raise ConfigurationError(f"the verb {self.name!r} shows the stores {sorted(verb.stores)}, not {name!r}")
        unkept_schemas(self.job.storage, self.job.application_id, self.schemas)
        plan = replace(self.job, reached=True).plan(self.session, verb.topology, verb.name)
        parts = verb.stores[name]
        columns = self._columns(schema_of(parts))
        found = CommittedStore(plan, self.job.application_id, self.job.storage, name, checkpoint, batch_id)
        packed = traveling(columns)
        return from_months(found.frame(self.session, PartRows(parts, arrow_schema(packed)), packed), columns)

    def warmed(self, verb: Verb) -> WarmQuery:
        """The query of this verb, whose local copies are to be warmed.

        Raises:
            ConfigurationError: the job has no ``local_dir``, or a backend is unknown.
        """
        plan = replace(self.job, reached=True).plan(self.session, verb.topology, verb.name)
        return warm_query(self.job, self.session, plan)

    def _source(self, rows: RowInput, verb: Verb, value_serde: Serde[Any] | None) -> RowSource:
        key, time, op = ", ".join(rows.keys), _shown(rows.time), _shown(rows.op)
        storage = self.job.storage if self.kept else None
        event_times = EventTimes(TimeUnit.MICROSECOND, self.job.options.max_ahead, storage)
        return RowSource(verb.inputs[rows.role], key, time, op, event_times, value_serde, self.job.options.on_error)

    def _columns(self, schema: pa.Schema) -> T.StructType:
        """The columns of the result as Spark has them: of the type that they have in an input, or arrays of that.

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


def _check_renamed(renamed: Mapping[str, str], inputs: Sequence[RowInput]) -> None:
    """Refuse a declaration whose new name no input has."""
    columns = {name for rows in inputs for name in rows.carried}
    for old, new in renamed.items():
        if _top(new) not in columns:
            hint = did_you_mean(new, columns)
            raise ConfigurationError(f"renamed says that {old!r} is {new!r} now, but no input has a {new!r}{hint}")


def _top(path: str) -> str:
    """The column of a path such as ``address.street``."""
    return path.partition(".")[0]


def _shown(column: str | Column | None) -> str:
    return column if isinstance(column, str) else str(column)

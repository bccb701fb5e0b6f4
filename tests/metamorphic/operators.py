"""A query of verbs in the operators that run on Spark, without Spark: what it does between them is done here.

The map side gets the splits of each input, and its blobs come to groups in any order. A group has the value that the
last committed micro-batch has left. Who dies in a micro-batch does so behind anything that an operator has put out,
which may be between the commits of two tasks of a group; then another process runs the micro-batch again.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.adapters.spark.operator.dataflow import Dataflow
from millpond.adapters.spark.operator.groups import Group, TablesOfGroups
from millpond.adapters.spark.operator.map_side import MapSide
from millpond.adapters.spark.operator.on_workers import OnWorkers
from millpond.adapters.spark.operator.operator import Operator
from millpond.adapters.spark.rows.arrow_expressions import (
    Call,
    Cast,
    Choice,
    Column,
    Expression,
    Field,
    Literal,
    Struct,
)
from millpond.adapters.spark.rows.dead_letters import ErrorHandling
from millpond.adapters.spark.rows.late_rows import LATE_ROWS
from millpond.adapters.spark.verbs.frames.shared_flow import SharedFlow, SharedVerb
from millpond.adapters.spark.verbs.frames.sharing import (
    Behind,
    Columns,
    Projection,
    Result,
    Shared,
    UnfitError,
    shared_by,
)
from millpond.adapters.spark.verbs.frames.sink import LeafSink, RowSink, row_sink
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.worker import StateSettings, Worker
from millpond.processors.calls.made import Made
from millpond.processors.calls.readings import key_names
from millpond.processors.calls.tables import Selection
from millpond.processors.distribution.exchange import COMPLETE, EXCHANGE_SCHEMA, Blob
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.pond.verb_tasks import EVENT_TIMES
from millpond.processors.rows.row_source import RowSource
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.history import History
from millpond.stores.specs.directory import plain_name
from tests.metamorphic.engine import ON_ERROR, DeathError, Deaths, Tables, shipping
from tests.metamorphic.keeping import POLICY

OWNER = "app"
pc: Any = _compute

Values: TypeAlias = dict[tuple[int, int], tuple[int, str]]
"""What Spark's state holds, by the number of the operator and by group."""


@dataclass
class Value:
    """The value of a group in what stands in for Spark's state."""

    values: Values
    place: tuple[int, int]

    def get(self) -> Any:
        return self.values.get(self.place)

    def update(self, newValue: Any) -> None:
        self.values[self.place] = newValue


def blobs_of(send: MapSide, splits: Sequence[pa.Table], attempt: Callable[[int], Attempt]) -> Iterator[Blob]:
    """Yield the blobs that the map side makes of the splits of an input, without its reports."""
    for number, split in enumerate(splits):
        for batch in send.made(iter(split.to_batches()), attempt(number)):
            yield from blobs_in(pa.table(batch))


def blobs_in(rows: pa.Table) -> Iterator[Blob]:
    """Yield the blobs among rows that workers have sent back, one of which may be a report."""
    for row in zip(*(rows[name].to_pylist() for name in EXCHANGE_SCHEMA.names), strict=True):
        if row[0] is not None:
            yield Blob(*row)


def operated(
    operator: TablesOfGroups,
    blobs: Sequence[Blob],
    value_of: Callable[[int], Value],
    attempt: Attempt,
    deaths: Deaths,
    random: Random,
) -> list[list[pa.Table]]:
    """Return what comes out of each group of an operator, groups in any order."""
    blobs = random.sample(blobs, len(blobs))
    groups = defaultdict[int, list[Blob]](list)
    for blob in blobs:
        groups[blob.task].append(blob)
    found: list[list[pa.Table]] = []
    for number, arrived in groups.items():
        deaths.step()
        found.append([])
        made: Any = operator.tables(Group(number, arrived, 0, value_of(number), attempt))
        with closing(made) as tables:
            for table in tables:
                deaths.step()
                found[-1].append(table)
    return found


def shown(sink: RowSink, tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Return the rows of a verb's result, of the leaves or blobs in which they leave the operator."""
    tables = list(tables)
    assert all(table.schema.names == [*sink.schema.names, "millpond_counters"] for table in tables)
    if isinstance(sink, LeafSink):
        rows = (table.filter(table["millpond_counters"].is_null()).combine_chunks() for table in tables)
        return [put_together(sink.rows.schema, table) for table in rows if table.num_rows]
    blobs = [blob for table in tables for blob in table["rows"] if blob.is_valid]
    return [pa.ipc.open_stream(blob.as_buffer()).read_all() for blob in blobs]


def put_together(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the columns of leaves, as Spark puts them together."""
    leaves: Iterator[Any] = (column.combine_chunks() for column in rows.columns)

    def whole(type_: Any) -> Any:
        leaf = next(leaves)
        if not pa.types.is_struct(type_):
            return leaf
        fields = [whole(field.type) for field in type_]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=pc.invert(leaf))

    return pa.Table.from_arrays([whole(type_) for type_ in schema.types], schema=schema)


def columns_of(read: Selection, schema: pa.Schema) -> Columns:
    """Return the columns by which an input is read, as ``between`` finds them in Spark's plan.

    Raises:
        UnfitError: a call has a condition, and wraps its argument, which Arrow does not do.
    """
    known: dict[tuple[str, ...], Expression] = {}

    def of_path(path: tuple[str, ...]) -> Expression:
        if path not in known:
            known[path] = Column(schema.names.index(path[0])) if len(path) == 1 else _field(of_path(path[:-1]), path)
        return known[path]

    def _field(struct: Expression, path: tuple[str, ...]) -> Field:
        type_: Any = schema.field(path[0]).type
        for name in path[1:-1]:
            type_ = type_.field(name).type
        return Field(struct, type_.get_field_index(path[-1]))

    columns = {name: of_path(path) for name, path in read.rows.paths.items()}
    for name, (condition, wrapped) in read.where.items():
        if wrapped:
            raise UnfitError("a struct lies between")
        none = Literal(None, read.rows.schema.field(name).type)
        columns[name] = Choice([Call("is null", [columns[condition]])], [none, columns[name]])
    conditions = [Call("is not null", [of_path(path)]) for path in read.rows.present]
    conditions += [Call("is not null", [columns[name]]) for name in read.keys if read.keyed]
    keys, values = ([columns[name] for name in names] for names in (read.keys, read.values))
    made: dict[str, Expression] = {
        "key": Struct(read.keys, keys),
        "value": Struct(read.values, values) if values else Struct(["present"], [Literal(True, pa.bool_())]),
        "timestamp": Cast(columns[read.time], pa.int64()),
    }
    if read.op is not None:
        made["op"] = columns[read.op]
    if isinstance(read.order, str):
        made["order"] = Struct(["order"], [columns[read.order]])
    return Columns(keys, columns[read.time], Projection(conditions, made))


def behind_of(made: Made, results: Mapping[str, Result]) -> dict[str, Behind]:
    """Return the inputs of a verb that are results of others."""
    found = {}
    for topic, read in made.selections.items():
        result = results.get(read.rows.source)
        if result is not None:
            found[topic] = Behind(read.keys, result, partial(columns_of, read, result.schema))
    return found


def flow_of(made: Made, plan: Plan, handling: ErrorHandling) -> Dataflow:
    """Return the dataflow that runs of a verb."""
    verb = made.verb
    sources = {
        topic: RowSource(verb.name, verb.inputs[topic], "key", "time", "op", EVENT_TIMES, made.value_serde, ON_ERROR)
        for topic in made.selections
    }
    return Dataflow(OnWorkers(plan, sources, handling, verb.follows_time, verb.inputs), {}, [sink_of(made)])


def sink_of(made: Made) -> RowSink:
    """Return the sink of its rows."""
    columns = from_arrow_schema(made.verb.schema, prefer_timestamp_ntz=True)
    return row_sink(made.verb.name, columns, made.verb.parts)


def result_of(made: Made, verbs: Sequence[SharedVerb]) -> Result | None:
    """Return the result of the last verb of an operator that others may share; None if they may not."""
    if not verbs[-1].flow.runs.plan.alone or made.account.kind.startswith("apply"):
        return None
    reads = list(made.selections.values())
    return Result(verbs, key_names(reads[0]), made.account, all(read.keyed for read in reads))


@dataclass(frozen=True)
class RunningOperator:
    """An operator, or the chain of operators of one verb.

    Attributes:
        verbs: that run in it.
        mades: verbs by name, as they read their rows.
    """

    verbs: Sequence[SharedVerb]
    mades: Mapping[str, Made]

    @property
    def name(self) -> str:
        """Return the name of the last verb, which puts out the rows."""
        return self.verbs[-1].name

    @cached_property
    def operators(self) -> list[TablesOfGroups]:
        if len(self.verbs) > 1:
            return [SharedFlow(self.verbs).operator]
        (verb,) = self.verbs
        return [Operator(stage) for stage in verb.flow.runs.stages(verb.settings, verb.sink, {})]

    @property
    def senders(self) -> Iterator[tuple[SharedVerb, str, MapSide]]:
        """Return the senders, which make blobs of each input that comes from outside."""
        return SharedFlow(self.verbs).senders()

    def run(
        self,
        inputs: Mapping[str, Sequence[pa.Table]],
        values: Values,
        attempt: Callable[[int], Attempt],
        deaths: Deaths,
        random: Random,
        *,
        first: int = 0,
        complete: bool = False,
    ) -> list[pa.Table]:
        """Run one micro-batch; return what comes out of each group.

        Args:
            inputs: by source, the splits of rows.
            values: of groups, which change.
            attempt: of a split.
            deaths: which end the process.
            random: in which order blobs come.
            first: its number among the operators of the query.
            complete: whether inputs are complete.
        """
        arriving: dict[int, list[Blob]] = defaultdict(list)
        for verb, topic, send in self.senders:
            read, plan = self.mades[verb.name].selections[topic], verb.flow.runs.plan
            splits = [read.of(split) for split in inputs.get(read.rows.source, ())]
            level = min(map(plan.entry_level, plan.all_readers(topic)))
            arriving[level] += blobs_of(send, splits, attempt)
        if complete:
            rows = pa.RecordBatch.from_pydict({"id": [1]})
            for batch in self.verbs[0].flow.runs.signal(COMPLETE)(iter([rows])):
                arriving[0] += blobs_in(pa.table(batch))
        found: list[list[pa.Table]] = []
        blobs: list[Blob] = []
        for level, operator in enumerate(self.operators):

            def value_of(group: int, place: int = first + level) -> Value:
                return Value(values, (place, group))

            found = operated(operator, blobs + arriving[level], value_of, attempt(0), deaths, random)
            if level < len(self.operators) - 1:
                blobs = [blob for tables in found for table in tables for blob in blobs_in(table)]
        return [pa.concat_tables(made) for tables in found if (made := shown(self.verbs[-1].sink, tables))]


@dataclass
class Place:
    """The place where a query keeps its state, from process to process.

    Attributes:
        directory: of its files.
        backends: of its stores, in turn: each process has the next one.
        loses: whether a process that dies loses its local copies.
        values: what Spark's state holds after the last micro-batch.
        batch: the number of the next one.
        query: the id of the query.
    """

    directory: Path
    backends: Sequence[str]
    loses: bool = False
    values: Values = field(default_factory=dict)
    batch: int = 0
    query: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        self.storage = Storage.from_uri(f"file://{self.directory}/state?sync=false")
        self.local = self.directory / "local"
        self._turns = cycle(self.backends)

    def close(self) -> None:
        """Close nothing: nothing is open between micro-batches."""

    def next_backend(self) -> str:
        return next(self._turns)

    def late(self, name: str, batch: int) -> list[tuple[Any, ...]]:
        """Key, value, time, reached and short of the late rows of a verb in a micro-batch."""
        found: list[tuple[Any, ...]] = []
        for file in self.storage.list(f"{OWNER}.{name}/{LATE_ROWS.directory}/{name}"):
            if f"-{batch:010d}-" in file.path:
                rows = pq.read_table(pa.BufferReader(self.storage.read(file.path)))
                times: list[Any] = [rows[column].cast(pa.int64()) for column in ("time", "clock")]
                columns = [rows["key_bytes"], rows["value_bytes"], *times, rows["short_by"]]
                found += zip(*(column.to_pylist() for column in columns), strict=True)
        return found


class OperatedQuery:
    """Verbs in operators, each verb after those whose rows it reads.

    Args:
        chain: the verbs.
        partitions: of each that has an operator of its own.
        place: where it keeps what it keeps.
        random: in which order blobs come.
        shared: whether verbs share operators where they may.

    Attributes:
        operators: the operators.
    """

    def __init__(
        self, chain: Sequence[Made], partitions: Sequence[int], place: Place, random: Random, *, shared: bool
    ) -> None:
        self._chain, self._partitions, self._shared = chain, partitions, shared
        self._place, self._random = place, random
        self._start()

    def _start(self) -> None:
        """Do what the driver does."""
        self._worker, self._backend = Worker(), self._place.next_backend()
        results: dict[str, Result] = {}
        found: dict[str, RunningOperator] = {}
        for made, partitions in zip(self._chain, self._partitions, strict=True):
            shared, verb = self._verb(made, partitions, results)
            verbs = [*shared.verbs, verb]
            result = result_of(made, verbs)
            if result is not None:
                results[verb.name] = result
            found[verb.name] = RunningOperator(verbs, {one.verb.name: one for one in self._chain})
        inner = {one.name for operator in found.values() for one in operator.verbs[:-1]}
        self.operators = [operator for name, operator in found.items() if name not in inner]

    def _verb(self, made: Made, partitions: int, results: Mapping[str, Result]) -> tuple[Shared, SharedVerb]:
        verb = made.verb
        plan = make_plan(verb.topology, verb.name, partitions)
        apart = None if self._shared else "it is not to share one"
        shared = shared_by(plan, behind_of(made, results), verb, None, apart)
        if shared:
            plan = replace(plan, partitions=shared.partitions, behind=shared.names)
        application = f"{OWNER}.{verb.name}"
        handling = ErrorHandling(ON_ERROR, self._place.storage, application, verb.name, "run", TimeUnit.MICROSECOND)
        flow, settings = flow_of(made, plan, handling), self._settings(made, plan, application)
        return shared, SharedVerb(verb.name, flow, sink_of(made), settings, shared.inputs)

    def _settings(self, made: Made, plan: Plan, application: str) -> StateSettings:
        storage = self._place.storage
        history = History.of(storage, application, plain_name(plan.sink))
        generation = history.begun(plan.fingerprint, shape_of(plan), keep=False).newest
        assert generation is not None
        return StateSettings(
            application_id=application, sink=plan.sink, run=uuid4().hex, generation=generation, storage=storage,
            local_dir=str(self._place.local), supplier=supplier(self._backend), policy=POLICY, reset=None,
            checksums=False, upgrade=None, upgrade_from=None, memory_budget=None,
            beginning=Beginning(storage, application, plain_name(plan.sink), generation), owner=OWNER,
        )  # fmt: skip

    @property
    def told(self) -> dict[str, list[list[Any]]]:
        """By verb, the late records of each micro-batch, as key, value, time, reached and short."""
        place = self._place
        return {made.verb.name: [place.late(made.verb.name, n) for n in range(place.batch)] for made in self._chain}

    def restarted(self) -> "OperatedQuery":
        """Return the query that goes on with what this one keeps, with verbs as they come to another process."""
        chain = shipping.loads(shipping.dumps(self._chain))
        return OperatedQuery(chain, self._partitions, self._place, self._random, shared=self._shared)

    def run(self, inputs: Tables, *, complete: bool = False, deaths: Sequence[int] = ()) -> list[pa.Table]:
        """Run one micro-batch, which dies after so many steps each time, and then lives; return the last rows."""
        for death in [*deaths, None]:
            values = dict(self._place.values)
            try:
                results = self._run(inputs, values, Deaths(death), complete=complete)
                break
            except DeathError:
                self._die()
        self._place.values = values
        self._place.batch += 1
        return results

    def _run(self, inputs: Tables, values: Values, deaths: Deaths, *, complete: bool) -> list[pa.Table]:
        known: dict[str, Sequence[pa.Table]] = dict(inputs)
        results: list[pa.Table] = []
        first = 0
        for operator in self.operators:
            results = operator.run(known, values, self._attempt, deaths, self._random, first=first, complete=complete)
            known[operator.name] = results
            first += len(operator.operators)
        return results

    def _attempt(self, split: int) -> Attempt:
        return Attempt(self._place.batch, self._place.query, split, self._worker)

    def _die(self) -> None:
        if self._place.loses:
            shutil.rmtree(self._place.local, ignore_errors=True)
        self._start()

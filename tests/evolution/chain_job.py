"""A chain of verbs in one operator, without Spark: what its driver does, and its workers, in the code of the library.

The first verb keeps totals of rows; each of the others keeps the latest rows of the change feed of the one before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa

from millpond.adapters.inspect.checkpoint.kept_manifest import kept_manifests
from millpond.adapters.spark.evolution.evolution import Evolution, Standpoint, Whereabouts, generation_at
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.operator.held_manifests import by_application
from millpond.adapters.spark.session.session import PARTITIONS_CONF
from millpond.adapters.spark.verbs.frames.kept_schemas import ColumnChanges, KeptSchemas
from millpond.adapters.spark.verbs.frames.shared_flow import SharedVerb
from millpond.adapters.spark.verbs.frames.sharing import Result, shared_by
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.worker import StateSettings, Worker
from millpond.processors.calls.aggregate import make_aggregate
from millpond.processors.calls.latest import make_latest
from millpond.processors.calls.made import Made
from millpond.processors.calls.tables import Rows
from millpond.processors.distribution.plan import Plan
from millpond.processors.verbs import aggregates
from millpond.processors.verbs.verb import INSTANT as TIME
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest
from millpond.stores.encoding.times import TimeUnit
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.specs.directory import plain_name
from tests.evolution.process import POLICY, DeathError, HeldCheckpoint, Process, in_process
from tests.evolution.verb_drafts import LONG, Kept, KeptRows
from tests.evolution.verb_job import OWNER, job_options
from tests.metamorphic import engine
from tests.metamorphic.engine import Deaths
from tests.metamorphic.operators import RunningOperator, Values, behind_of, flow_of, result_of, sink_of

_COLUMNS: Any = [("k", pa.string()), ("t", TIME), ("v", pa.int64())]
SCHEMA = pa.schema(_COLUMNS)
CALLS = {"n": aggregates.count(), "v": aggregates.sum("v")}


@dataclass(frozen=True)
class HeldValues(HeldCheckpoint):
    """The content of the chain's checkpoint: several manifests a place."""

    values: Values = field(default_factory=dict)

    def held(self) -> tuple[int | None, dict[int, list[Manifest]]]:
        return self.batch, {} if self.batch is None else {0: self.manifests()}

    def manifests(self, _: int | None = None) -> list[Manifest]:
        return [one for value in self.values.values() for one in kept_manifests(*value)]


class ChainJob(Process):
    """A chain of verbs, its durable files, its local copies and its checkpoint.

    Attributes:
        operator: in which they run.
        values: what Spark's state holds after the last micro-batch.
        moved: whether it has gone on at another checkpoint than its first.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.operator: RunningOperator | None = None
        self.values: Values = {}
        self.moved = False
        self.worker = Worker()
        self.query = uuid4().hex

    @property
    def held(self) -> HeldCheckpoint:
        return HeldValues(str(self.directory / "checkpoint"), self.batch, {}, 1, self.values)

    def stop(self) -> None:
        """Stop, and lose what the process has in memory."""
        super().stop()
        self.worker = Worker()

    def start(
        self,
        names: Sequence[str],
        partitions: int,
        backend: str,
        evolution: Evolution | None,
        *,
        into: bool = False,
        death: int | None = None,
    ) -> None:
        """Do what the driver does before the query starts."""
        self.stop()
        self.runs += 1
        verbs, mades, results = list[SharedVerb](), dict[str, Made](), dict[str, Result]()
        asked = dict[str, Plan]()
        rows = Rows.of("rows", SCHEMA)
        with self.dying_at(death):
            for name in names:
                run = self._run(name, partitions, evolution, asked)
                made = _made(name, rows, run, first=not verbs)
                verbs = self._verbs(run, made, partitions, backend, results, into=into)
                mades[name], asked[name] = made, verbs[-1].flow.runs.plan
                rows = made.rows.select("k", "n", "v", "op", t="change_time")
                result = result_of(made, verbs)
                assert result is not None
                results[name] = result
        self.operator = RunningOperator(verbs, mades)
        if into and self.batch is not None:
            self.values, self.moved = {}, True

    def _run(self, name: str, partitions: int, evolution: Evolution | None, asked: dict[str, Plan]) -> VerbRun:
        job = Job(OWNER, self.faulty_storage, job_options(partitions, evolution)).part(name).looking()
        job, nothing = job.of_verb(OWNER, name, goes_on=True), _nothing()
        schemas = KeptSchemas(job, name, ColumnChanges({}, ()), True)
        return VerbRun(
            job=job, name=name, session=nothing, inputs=[], schemas=schemas, complete=None, streaming=True,
            handling=job.handling(name, TimeUnit.MICROSECOND), results=nothing, asked=asked, backfill=None,
        )  # fmt: skip

    def _verbs(
        self,
        run: VerbRun,
        made: Made,
        partitions: int,
        backend: str,
        results: Mapping[str, Result],
        *,
        into: bool,
    ) -> list[SharedVerb]:
        """Return a verb behind those whose operator it shares."""
        job, verb, evolution = run.job, made.verb, run.job.options.evolution
        session: Any = SimpleNamespace(conf={PARTITIONS_CONF: "1"})
        plan = job.plan(session, verb.topology, run.name)
        shared = shared_by(plan, behind_of(made, results), verb, None if into else run.began_behind, None)
        plan = replace(plan, partitions=partitions, behind=shared.names)
        place = Standpoint(self.held.location, "elsewhere" if into else None, self.moved)
        stands = Whereabouts(None if evolution is None else place, self.held, in_process)
        new = run.as_new(verb)
        generation = generation_at(stands, job.history(plan.sink), plan, evolution, None, job.verb, run.asked, new)
        beginning = Beginning(job.storage, job.application_id, plain_name(plan.sink), generation, run.schemas.by_place)
        settings = StateSettings(
            application_id=job.application_id, sink=plan.sink, run=uuid4().hex, generation=generation,
            storage=job.storage, local_dir=str(self.local), supplier=supplier(backend), policy=POLICY, reset=None,
            checksums=False, upgrade=None, upgrade_from=None, memory_budget=None, beginning=beginning, owner=OWNER,
        )  # fmt: skip
        one = SharedVerb(run.name, flow_of(made, plan, run.handling), sink_of(made), settings, shared.inputs)
        return [*shared.verbs, one]

    def run(self, splits: Sequence[pa.Table], random: Random, *, death: int | None = None) -> list[pa.Table]:
        """Run one micro-batch, which may die behind so many steps; return what the last verb puts out."""
        assert self.operator is not None
        batch, values = 0 if self.batch is None else self.batch + 1, dict(self.values)
        attempt = partial(self._attempt, batch)
        try:
            told = self.operator.run({"rows": splits}, values, attempt, Deaths(death), random)
        except engine.DeathError as error:
            self.stop()
            raise DeathError from error
        self.batch, self.values = batch, values
        return told

    def _attempt(self, batch: int, split: int) -> Attempt:
        return Attempt(batch, self.query, split, self.worker)

    def stored(self, verb: SharedVerb, store: str) -> list[tuple[Any, ...]]:
        """Key, value and time of all that the tasks of a verb find in a store, as the next micro-batch begins."""
        runs, found = verb.flow.runs, list[tuple[Any, ...]]()
        ((part,),) = runs.plan.stages
        following = 0 if self.batch is None else self.batch + 1
        for partition in range(runs.plan.partitions):
            value = self.values.get((0, runs.numbers[part.index, partition]))
            held = by_application([] if value is None else kept_manifests(*value), self._settings)
            mine = held.get(verb.settings.application_id)
            assert verb.settings.generation is not None
            before = verb.settings.generation.start_of(f"{part.index}_{partition}", mine, following)
            with self.worker.task_state(verb.settings, part, partition) as state:
                opened: Any = state.open(before)[store]
                if part.stores[store].kind.versioned:
                    latest = {key: opened.get(key) for key, _ in opened.scan()}
                    found += [(key, one.value, one.timestamp) for key, one in latest.items() if one is not None]
                else:
                    found += [(key, one.value, one.timestamp) for key, one in opened.scan()]
        return found

    @property
    def _settings(self) -> list[StateSettings]:
        assert self.operator is not None
        return [verb.settings for verb in self.operator.verbs]


def _nothing() -> Any:
    """Stand in the place of what only Spark has."""


def _made(name: str, rows: Rows, run: VerbRun, *, first: bool) -> Made:
    if first:
        return make_aggregate(name, rows, CALLS, by="k", time="t")
    return make_latest(name, KeptRows(**vars(rows)), key="k", time="t", op="op", history=LONG, begin=Kept(run))

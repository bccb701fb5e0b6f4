"""A query of verbs on Spark without Spark: what its driver and its workers do, in the code of the library.

Each verb has operators of its own, one after the other. An operator's place in the checkpoint has one manifest, also
where another verb has run there before.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa

from millpond.adapters.spark.evolution.evolution import Evolution, Standpoint, Whereabouts, generation_at
from millpond.adapters.spark.job.job import Job
from millpond.adapters.spark.job.options import JobOptions
from millpond.adapters.spark.job.worker_settings import unsaid_edits
from millpond.adapters.spark.operator.held_manifests import by_application
from millpond.adapters.spark.session.session import PARTITIONS_CONF
from millpond.adapters.spark.verbs.frames.kept_schemas import KeptSchemas
from millpond.adapters.spark.verbs.frames.verb_run import VerbRun
from millpond.adapters.spark.worker.attempt import Attempt
from millpond.adapters.spark.worker.worker import StateSettings, specs_of
from millpond.processors.calls.made import Made
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.subtopology import Subtopology
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, TaskState
from millpond.stores.evolution.beginning import Beginning
from millpond.stores.evolution.matching import check_terms
from millpond.stores.specs.directory import plain_name
from millpond.stores.testing import FaultySupplier
from tests.evolution.process import POLICY, Checkpoint, HeldCheckpoint, Process, in_process
from tests.evolution.verb_drafts import Draft, DraftChanges, made_of
from tests.metamorphic.engine import Deaths, RunningVerb, Tables
from tests.metamorphic.keeping import Keeper

OWNER = "app"


@dataclass(frozen=True)
class RunningDraft:
    """A verb as it was started.

    Attributes:
        draft: what it is.
        settings: what workers are told of its state.
        running: what runs.
        operator: the number of its first operator.
    """

    draft: Draft
    settings: StateSettings
    running: RunningVerb
    operator: int

    @property
    def made(self) -> Made:
        return self.running.made

    @property
    def tasks(self) -> Iterator[tuple[Subtopology, int]]:
        """All that have stores."""
        plan = self.running.plan
        return ((part, one) for part in plan.parts if part.stores for one in range(plan.partitions))


@dataclass(frozen=True)
class Said:
    """The declarations at a start.

    Attributes:
        evolution: of verbs, and where the query stands; None for nothing.
        into: whether it goes on at another checkpoint.
        changes: of columns and calls, by the number of the verb.
    """

    evolution: Evolution | None
    into: bool
    changes: Mapping[int, DraftChanges]


class VerbJob(Process):
    """A query of verbs, its durable files, its local copies and its checkpoint.

    Attributes:
        verbs: those that run, in the order of their operators.
        operators: how many the checkpoint has.
        moved: whether it has gone on at another checkpoint than its first.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.verbs: list[RunningDraft] = []
        self.backend = "memory"
        self.moved = False
        self.operators = 0

    @property
    def held(self) -> HeldCheckpoint:
        return replace(super().held, operators=self.operators)

    def start(
        self, drafts: Sequence[Draft], partitions: int, backend: str, said: Said, *, death: int | None = None
    ) -> None:
        """Do what the driver does before the query starts."""
        self.stop()
        self.runs += 1
        verbs: list[RunningDraft] = []
        with self.dying_at(death):
            for draft in drafts:
                operator = sum(len(one.running.plan.stages) for one in verbs)
                verbs.append(self._started(draft, partitions, said, operator, [one.draft.name for one in verbs]))
        self.verbs, self.backend = verbs, backend
        if said.into and self.batch is not None:
            self.checkpoint, self.moved, self.operators = {}, True, 0

    def _started(self, draft: Draft, partitions: int, said: Said, operator: int, asked: Sequence[str]) -> RunningDraft:
        job = Job(OWNER, self.faulty_storage, job_options(partitions, said.evolution)).part(draft.name).looking()
        job = job.of_verb(OWNER, draft.name, goes_on=True)
        changes = said.changes.get(draft.number, DraftChanges())
        schemas, nothing = KeptSchemas(job, draft.name, changes.columns, True), self._nothing
        run = VerbRun(
            job=job, name=draft.name, session=nothing, inputs=[], schemas=schemas, handling=nothing, complete=None,
            streaming=True, results=nothing, asked={}, backfill=None,
        )  # fmt: skip
        running = RunningVerb(made_of(draft, run, changes.calls), partitions)
        new = run.as_new(running.made.verb)
        session: Any = SimpleNamespace(conf={PARTITIONS_CONF: "1"})
        plan = job.plan(session, running.made.verb.topology, draft.name)
        assert plan.fingerprint == running.plan.fingerprint
        place = Standpoint(self.held.location, "elsewhere" if said.into else None, self.moved)
        stands = Whereabouts(None if said.evolution is None else place, self.held, in_process)
        generation = generation_at(stands, job.history(plan.sink), plan, said.evolution, None, job.verb, asked, new)
        check_terms(generation.shape, shape_of(plan))
        beginning = Beginning(job.storage, job.application_id, plain_name(plan.sink), generation, schemas.by_place)
        settings = StateSettings(
            application_id=job.application_id, sink=plan.sink, run=uuid4().hex, generation=generation,
            storage=job.storage, local_dir=str(self.local), supplier=supplier("memory"), policy=POLICY, reset=None,
            checksums=False, upgrade=None, upgrade_from=None, memory_budget=None, beginning=beginning, owner=OWNER,
            edited=unsaid_edits(job, said.evolution, asked),
        )  # fmt: skip
        return RunningDraft(draft, settings, running, operator)

    @property
    def _nothing(self) -> Any:
        """In the place of what only Spark has."""
        return None

    def run(self, inputs: Mapping[int, Tables], random: Random, *, death: int | None = None) -> dict[int, pa.Table]:
        """Run one micro-batch; return what each verb puts out, by its number."""
        batch = 0 if self.batch is None else self.batch + 1
        with self.dying_at(death):
            after, told = dict(self.checkpoint), {}
            for verb in self.verbs:
                keeper = _Keeper(self, verb, after, batch)
                sent = inputs[verb.draft.number]
                own = {topic: sent[source] for topic, source in verb.made.sources.items()}
                tables = verb.running.run(batch, own, False, keeper, Deaths(), random)
                told[verb.draft.number] = pa.concat_tables(tables) if tables else verb.made.verb.schema.empty_table()
        self.batch, self.checkpoint = batch, after
        self.operators = sum(len(verb.running.plan.stages) for verb in self.verbs)
        return told

    @contextmanager
    def looking(self, verb: RunningDraft, part: Subtopology, partition: int) -> Iterator[Mapping[str, Any]]:
        """The stores of a task, as the next micro-batch finds them."""
        state = self.state(verb, part, partition)
        following = 0 if self.batch is None else self.batch + 1
        try:
            yield state.open(self.start_of(verb, part, partition, self.checkpoint, following))
        finally:
            state.rollback()

    def start_of(
        self, verb: RunningDraft, part: Subtopology, partition: int, checkpoint: Checkpoint, batch: int
    ) -> Manifest | None:
        found = checkpoint.get(self.place(verb, part, partition))
        mine = by_application([] if found is None else [found], [verb.settings]).get(verb.settings.application_id)
        return verb.settings.start_of(f"{part.index}_{partition}", mine, batch)

    @staticmethod
    def place(verb: RunningDraft, part: Subtopology, partition: int) -> tuple[int, int]:
        level = next(level for level, stage in enumerate(verb.running.plan.stages) if part in stage)
        return verb.operator + level, verb.running.numbers[part.index, partition]

    def state(self, verb: RunningDraft, part: Subtopology, partition: int) -> TaskState:
        """Return the task's state in this process."""
        settings, task_id = verb.settings, f"{part.index}_{partition}"
        assert settings.generation is not None
        if (settings.sink, task_id) not in self.states:
            self.states[settings.sink, task_id] = TaskState(
                specs_of(part, settings.checksums),
                FaultySupplier(supplier(self.backend), self.plan_of_faults),
                application_id=settings.application_id,
                task_id=task_id,
                local_dir=self.local,
                storage=settings.storage,
                fingerprint=settings.generation.fingerprint,
                policy=POLICY,
                run=self.run_id,
                lease_timeout=0.01,
            )
        return self.states[settings.sink, task_id]


@dataclass
class _Keeper(Keeper):
    """Keeps the stores of one verb in a micro-batch, as workers do."""

    job: VerbJob
    verb: RunningDraft
    after: Checkpoint
    batch: int

    @contextmanager
    def task(self, place: str, part: Subtopology, plan: Plan) -> Iterator[Mapping[str, Any]]:
        if not part.stores:
            yield {}
            return
        partition = int(place.rpartition("_")[2])
        found = self.after.get(self.job.place(self.verb, part, partition))
        Attempt.here().begin(self.verb.settings, lambda: found)
        before = self.job.start_of(self.verb, part, partition, self.after, self.batch)
        state = self.job.state(self.verb, part, partition)
        try:
            yield state.open(before)
            manifest = Manifest.from_json(state.commit().to_json())
        except BaseException as error:
            state.rollback(error)
            raise
        self.after[self.job.place(self.verb, part, partition)] = manifest

    def commit(self) -> None:
        raise NotImplementedError

    die = restart = close = commit


def job_options(partitions: int, evolution: Evolution | None) -> JobOptions:
    return JobOptions(
        local_dir=None, partitions=partitions, backend=None, on_error=OnError.FAIL, max_ahead=None, policy=POLICY,
        reset_stream_time=None, evolution=evolution, checksums=False, upgrade=None, memory_budget=None,
        shares_operators=False,
    )  # fmt: skip

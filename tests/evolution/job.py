"""A query on Spark without Spark: real tasks on real files, in what Spark keeps of them from batch to batch.

A checkpoint has the manifests of all tasks as a micro-batch left them, by operator and group key; it takes all of a
batch or nothing. A process that dies leaves the local directory and the durable files as they are at that step.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.adapters.inspect import StateInspector
from millpond.processors.distribution.exchange import Blob, BlobWriter
from millpond.processors.distribution.execution import Decoder, Outputs, run_blobs, run_split
from millpond.processors.distribution.plan import Plan
from millpond.processors.distribution.router import Route, Router
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.subtopology import Subtopology
from millpond.processors.runtime.tasks.task import Task
from millpond.processors.verbs.rekeying.carriages import CARRIAGES
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Manifest, TaskState
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode
from millpond.stores.durability.copies.warming import warm
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.evolution.backfilling import begin, directory_of
from millpond.stores.evolution.evolving import Committed, Target, evolve
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared, same_state
from millpond.stores.evolution.record import BEGINNING, EvolutionRecord
from millpond.stores.evolution.seeding import Entry
from millpond.stores.specs.store_spec import StoreSpec
from millpond.stores.testing import FaultySupplier
from tests.evolution.oracle import Record, Told
from tests.evolution.process import POLICY, Checkpoint, Place, Process, in_process
from tests.evolution.seeds import seeds_of
from tests.evolution.topologies import SINK, TOPIC, Variant

APPLICATION = "app"


@dataclass(frozen=True)
class Running:
    """The way a job was started.

    Attributes:
        variant: its topology.
        backend: that of its local copies.
        upgrade_mode: how it was started with ``upgrade_from``; None if it was not.
        exclusive: whether a process keeps the tasks that it serves.
    """

    variant: Variant
    backend: str
    upgrade_mode: UpgradeMode | None = None
    exclusive: bool = True


@dataclass
class Job(Process):
    """A query, its durable files, its local copies and its checkpoint."""

    running: Running | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.record: EvolutionRecord | None = None
        self.plan: Plan | None = None

    def warm(self, local: Path) -> None:
        """Do what another process does beside the job: warm the local copies with which it is to be restarted."""
        assert self.running is not None
        manifests, chosen = self.manifests(), supplier(self.running.backend)
        for part, partition in self.tasks:
            manifest = manifests.get(f"{part.index}_{partition}")
            if manifest is not None:
                warm(self.specs(part), chosen, manifest, local_dir=local, storage=self.storage, policy=POLICY)

    def move_to(self, local: Path) -> None:
        """Go on with the local copies in another directory, without those in this one."""
        self.lose_local_copies()
        self.local = self.deaths.local = local

    @property
    def stages(self) -> int:
        """Return how many operators the checkpoint's plan has."""
        return 0 if self.plan is None else len(self.plan.stages)

    def start(
        self,
        running: Running,
        declared: Declared | None = None,
        seeds: Mapping[str, Sequence[Entry]] | None = None,
        *,
        death: int | None = None,
    ) -> None:
        """Do what the driver does before the query starts; carry the state over, and sow it, if that is declared."""
        self.stop()
        self.runs += 1
        plan = running.variant.plan()
        shape = shape_of(plan)
        checkpoint = self.checkpoint
        with self.dying_at(death):
            history = History.of(self.faulty_storage, APPLICATION, SINK).begun(plan.fingerprint, shape)
            newest = history.newest
            anew = self.batch is not None and self.stages not in (0, len(plan.stages))
            fits = newest is not None and same_state(newest.shape, shape) and not anew
            if newest is not None and fits and (declared is None or newest.generation == BEGINNING):
                record = newest
            else:
                committed = Committed(self.batch, list(self.checkpoint.values()))
                target = Target(plan.fingerprint, shape, declared or Declared())
                sown = seeds_of(plan, seeds or {})
                record = evolve(history, committed, target, CARRIAGES, in_process, anew=anew, seeds=sown)
                checkpoint = {} if anew else self.checkpoint
        self.record, self.plan, self.running, self.checkpoint = record, plan, running, checkpoint

    def edit(self, edit: Callable[[StateInspector], None], *, death: int | None = None) -> None:
        """Edit the state while the query does not run, which is started again then."""
        super().edit(edit, death=death)
        self.record = History.of(self.storage, APPLICATION, SINK).newest

    def backfill(self, running: Running, records: Sequence[Record], *, death: int | None = None) -> list[Told]:
        """Return what a run before the first micro-batch puts out, in a place where it stays; it is done once."""
        self.stop()
        self.runs += 1
        plan = running.variant.plan()
        with self.dying_at(death):
            history = History.of(self.faulty_storage, APPLICATION, SINK)
            if history.backfill is None:
                attempt = begin(history, plan.fingerprint, shape_of(plan))
                self.record, self.plan, self.running = attempt.generation, plan, running
                manifests, told = self._run(records, None)
                self.faulty_storage.put(f"{directory_of(history)}/{attempt.id}/told", json.dumps(told).encode())
                history = attempt.keep(manifests.values())
            history.keep_out_older_releases()
            results = self.faulty_storage.read(f"{directory_of(history)}/{history.backfill}/told")
        return [Told(*row) for row in json.loads(results)]

    def manifests(self) -> dict[str, Manifest]:
        """Return the manifest with which each task goes on."""
        history = History.of(self.storage, APPLICATION, SINK)
        return history.standing(list(self.checkpoint.values()), self.batch).manifests

    def run(self, records: Sequence[Record], *, death: int | None = None) -> list[Told]:
        """Run one micro-batch; return what it puts out."""
        batch = 0 if self.batch is None else self.batch + 1
        with self.dying_at(death):
            after, told = self._run(records, batch)
        self.batch, self.checkpoint = batch, after
        return told

    def _run(self, records: Sequence[Record], batch: int | None) -> tuple[Checkpoint, list[Told]]:
        plan, checkpoint, told = self._planned, dict(self.checkpoint), list[Told]()
        blobs = self._sent(records)
        for level, stage in enumerate(plan.stages):
            arrived = defaultdict[int, list[Blob]](list)
            for blob in blobs:
                arrived[blob.task].append(blob)
            blobs = []
            for part in stage:
                for partition in range(plan.partitions):
                    number = _numbers(plan)[part.index, partition]
                    if number not in arrived:
                        continue
                    for outputs in self._run_task(part, partition, arrived[number], (level, number), checkpoint, batch):
                        blobs += Router(plan, part, _numbers(plan)).send(outputs, BlobWriter(partition))
                        told += _told(outputs)
        return checkpoint, told

    def _sent(self, records: Sequence[Record]) -> list[Blob]:
        """Return the records, as they come to the first operator."""
        plan, numbers, writer = self._planned, _numbers(self._planned), BlobWriter(0)
        part = plan.readers[TOPIC]
        if not records:
            return []
        keys, values, times = map(list, zip(*records, strict=True))
        if plan.is_map_side(part):
            router = Router(plan, part, numbers)
            runs = run_split(Task(part, {}, 0), TOPIC, [Batch(keys, values, times)])
            return [blob for outputs in runs for blob in router.send(outputs, writer)]
        raw: Any = pa.array([key.encode() for key in keys])
        written = [None if value is None else INT64.serialize(value) for value in values]
        table = pa.table({"key": raw, "value": pa.array(written, pa.binary()), "timestamp": times})
        return list(Route(plan, TOPIC, numbers).send(table, raw, writer))

    def _run_task(
        self,
        part: Subtopology,
        partition: int,
        blobs: Iterable[Blob],
        place: Place,
        checkpoint: Checkpoint,
        batch: int | None,
    ) -> list[Outputs]:
        plan = self._planned
        decoders = {topic: Decoder(topic, STRING, INT64) for topic in plan.topics}
        decoders |= {topic: Decoder.of_repartition_topic(topic, used) for topic, used in plan.internal_topics.items()}
        if not part.stores:
            return list(run_blobs(Task(part, {}, partition), blobs, decoders, 0))
        assert self.record is not None
        before = self.record.start_of(f"{part.index}_{partition}", checkpoint.get(place), batch)
        state = self.state(part, partition)
        try:
            outputs = list(run_blobs(Task(part, state.open(before), partition), blobs, decoders, 0))
            checkpoint[place] = Manifest.from_json(state.commit().to_json())
        except BaseException as error:
            state.rollback(error)
            raise
        return outputs

    def state(self, part: Subtopology, partition: int) -> TaskState:
        """Return the task's state in this process."""
        task_id, running = f"{part.index}_{partition}", self.running
        assert running is not None
        assert self.record is not None
        if task_id not in self.states:
            self.states[task_id] = TaskState(
                self.specs(part),
                FaultySupplier(supplier(running.backend), self.plan_of_faults),
                application_id=APPLICATION,
                task_id=task_id,
                local_dir=self.local,
                storage=self.faulty_storage,
                fingerprint=self.record.fingerprint,
                policy=POLICY,
                run=self.run_id,
                exclusive=running.exclusive,
                upgrade_mode=running.upgrade_mode,
                lease_timeout=0.01,
            )
        return self.states[task_id]

    def specs(self, part: Subtopology) -> list[StoreSpec]:
        assert self.running is not None
        return [replace(spec, checksums=self.running.variant.checksums) for spec in part.stores.values()]

    @property
    def _planned(self) -> Plan:
        assert self.plan is not None
        return self.plan

    @property
    def tasks(self) -> Iterator[tuple[Subtopology, int]]:
        """All tasks that have stores."""
        plan = self._planned
        return ((part, number) for part in plan.parts if part.stores for number in range(plan.partitions))


def _numbers(plan: Plan) -> dict[Place, int]:
    tasks = [(part.index, partition) for stage in plan.stages for part in stage for partition in range(plan.partitions)]
    return {task: number for number, task in enumerate(tasks)}


def _told(outputs: Outputs) -> Iterator[Told]:
    for run in outputs.parts(SINK):
        batch = run.to_batch()
        yield from map(Told, batch.keys, batch.values, batch.timestamps)

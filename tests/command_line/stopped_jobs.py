"""Jobs of topologies that do not run, with what Spark keeps of them, written without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copytree
from types import MappingProxyType
from typing import Any, cast

from pyspark.sql import SparkSession

from millpond.adapters.inspect.checkpoint.spark_checkpoint import SparkCheckpoint
from millpond.adapters.spark import Evolution
from millpond.adapters.spark.copies.copy_formats import CopyFormats
from millpond.adapters.spark.copies.standby import Round, Standby
from millpond.adapters.spark.copies.upkeep import QueryState
from millpond.adapters.spark.copies.warming import Warmth
from millpond.adapters.spark.evolution.evolution import Standpoint, Whereabouts, generation_at, in_threads
from millpond.adapters.spark.evolution.reshaping import Reshaped, Reshaping
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.processors import Consumed, Materialized, StreamsBuilder, Topology
from millpond.processors.distribution.plan import Plan, make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage, read_rows
from millpond.stores.evolution.history import History
from millpond.stores.evolution.matching import Declared
from millpond.stores.evolution.record import EvolutionRecord
from millpond.stores.specs.directory import plain_name
from millpond.stores.specs.store_spec import StoreSpec
from tests.inspect.checkpoints import PARTITIONS, Query

NONE: Mapping[str, str] = MappingProxyType({})
KEYS = [f"key {number}" for number in range(8)]


def counts(store: str = "counts", sinks: Sequence[str] = ("out",)) -> Topology:
    """Return a topology that counts words in a store for the first sink, and in others for the others."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    for number, sink in enumerate(sinks):
        words.count(Materialized(f"{store}-{number}" if number else store)).to_stream().to(sink)
    return builder.build()


def plan_of(topology: Topology, sink: str = "out") -> Plan:
    return make_plan(topology, sink, PARTITIONS)


def specs_of(plan: Plan) -> Mapping[str, StoreSpec]:
    return next(iter(plan.parts)).stores


class Stopped:
    """A job that has counted each key once, and stands after its first micro-batch.

    Spark's reader finds no checkpoint whose path has a space, so this one is read without it.
    """

    def __init__(self, place: Path, application_id: str = "job", sinks: Sequence[str] = ("out",)) -> None:
        self.directory, self.topology = place / f"of {application_id}", counts(sinks=sinks)
        self.application_id, self.sink = application_id, sinks[0]
        self.storage = Storage.from_uri(self.directory / "state")
        for sink in sinks:
            self.note(sink)
        specs = specs_of(plan_of(self.topology, self.sink)).values()
        self.query = Query(self.directory, list(specs), application_id=application_id)
        self.run()

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(cast(SparkSession, None), str(self.query.checkpoint))

    @property
    def history(self) -> History:
        return self._history_of(self.sink)

    def _history_of(self, sink: str) -> History:
        return History.of(self.storage, self.application_id, plain_name(sink))

    def note(self, sink: str = "out") -> None:
        """Note what the state looks like, as a job does that is started with this release."""
        plan = plan_of(self.topology, sink)
        self._history_of(sink).begun(plan.fingerprint, shape_of(plan))

    def forget(self) -> None:
        """Have the state be as an early release has left it, which noted nothing."""
        for record in self.storage.list(f"{self.application_id}/evolution/{self.history.sink}"):
            self.storage.delete(record.path)
        assert self.history.newest is None

    def run(self) -> None:
        """Run a micro-batch, which counts each key once more."""

        def change(stores: Any, mine: Any) -> None:
            for key in filter(mine, KEYS):
                count, _ = stores["counts"].get(key) or (0, 0)
                stores["counts"].put(key, count + 1, 0)

        self.query.run(change, self.history.newest)

    def share_with(self, other: "Stopped") -> None:
        """Have the checkpoint hold what another job has committed in its own, as a query does that both run in."""
        copytree(other.query.checkpoint / "state/0", self.query.checkpoint / "state/1")
        copytree(other.directory / f"state/{other.application_id}", self.directory / f"state/{other.application_id}")

    def state(self, local_dir: Path) -> QueryState:
        """Return the state that ``millpond state`` looks after."""
        return QueryState(self.checkpoint, self.storage, local_dir, 2)

    def warmed(self, topology: Topology | None = None, *, backend: str = "lmdb", sink: str | None = None) -> Warmth:
        """Run ``millpond state warm``."""
        state = self.state(self.directory / "warm")
        return state.warming(topology, sink, supplier(backend), checksums=False).advance()

    def standby(self, topology: Topology | None = None, *, checkpoint: Path | None = None) -> Round:
        """Return a round of ``millpond state warm --standby``."""
        formats, place = CopyFormats(topology, None, supplier("lmdb"), False), str(checkpoint or self.query.checkpoint)
        return Standby(
            SparkCheckpoint.at(place, 2),
            lambda found: formats.queries(place, self.storage, str(self.directory / "standby"), found),
        ).advance()

    def repartitioned(self, partitions: int = 3, *, sink: str | None = None) -> list[Reshaped]:
        """Run ``millpond state repartition``."""
        return list(Reshaping(self.checkpoint, self.storage, sink, 2).repartition(partitions))

    def evolved(self, topology: Topology, partitions: int | None = None, renamed: Mapping[str, str] = NONE) -> Reshaped:
        """Run ``millpond state evolve``."""
        done = Reshaping(self.checkpoint, self.storage, None, 2).evolve(topology, partitions, Declared(renamed))
        assert isinstance(done, Reshaped)
        return done

    def started(self, application_id: str, topology: Topology, renamed: Mapping[str, str]) -> EvolutionRecord:
        """Return the generation with which the job goes on that is started with an evolution."""
        location = self.checkpoint.location
        history, evolution = History.of(self.storage, application_id, "out"), Evolution(location, renamed)
        place = Whereabouts(Standpoint(location), self.checkpoint, in_threads(2))
        return generation_at(place, history, plan_of(topology), evolution)

    def counted(self, record: EvolutionRecord | None = None) -> dict[str, int]:
        """Return the counts that a generation begins with; the newest one by default."""
        record = record or self.history.newest
        assert record is not None
        store = record.shape.stores[0]
        return dict(self._counted(record, specs_of(plan_of(counts(store.name)))[store.name]))

    def _counted(self, record: EvolutionRecord, spec: StoreSpec) -> Iterator[tuple[str, int]]:
        for manifest in record.bases.values():
            for key, value, *_ in read_rows(self.storage, manifest, spec):
                yield key, value

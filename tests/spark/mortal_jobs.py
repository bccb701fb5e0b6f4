"""Jobs whose state is carried over at a restart, in each way that there is, and what they should put out.

Each is a list of phases; in every phase it is started in a way of its own, as often as it takes. All of them read
words, file by file. A word is in a file once or not at all, so what comes out does not depend on the micro-batches.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.adapters.spark import Evolution, Millpond, SparkStreams
from millpond.processors import Batch, Consumed, Grouped, Materialized, Processor, Produced, StreamsBuilder, Topology
from millpond.processors.verbs.aggregates import count
from millpond.releases import RELEASE
from millpond.stores.backend.registry import supplier
from millpond.stores.durability import Storage
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.testing import FaultPlan, FaultyStorage, FaultySupplier
from millpond.stores.typed.keyvalue import KeyValueStore

DDL: Final = "key string, value string, timestamp long"
SEED: Final = 100
"""With what seeded counts begin."""
WORDS: Final = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen")

Row: TypeAlias = tuple[str, str]
File: TypeAlias = tuple[int, Sequence[str]]
"""Its number, and its words."""


@dataclass(frozen=True)
class Place:
    """The place where a job runs, and what happens to it there.

    Attributes:
        spark: the session.
        directory: all that the job has.
        backend: that of its local copies.
        plan: what happens at which step.
    """

    spark: SparkSession
    directory: Path
    backend: str
    plan: FaultPlan

    def path(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def words(self) -> DataFrame:
        return self.spark.readStream.schema(DDL).parquet(self.path("in"))

    @property
    def _options(self) -> dict[str, Any]:
        backend = FaultySupplier(supplier(self.backend), self.plan)
        return {"application_id": "job", "state_dir": self.path("state"), "backend": backend}

    @property
    def _storage(self) -> Storage:
        return FaultyStorage.over(Storage.from_uri(self.directory / "state"), self.plan)

    def streams(self, topology: Topology, *, local: str = "local", partitions: int = 2, **options: Any) -> SparkStreams:
        made = SparkStreams(topology, local_dir=self.path(local), partitions=partitions, **(self._options | options))
        made._job = replace(made._job, storage=self._storage)
        return made

    def pond(self, **options: Any) -> Millpond:
        made = Millpond(local_dir=self.path("local"), **(self._options | options))
        made._runner = replace(made._runner, job=replace(made._runner.job, storage=self._storage))
        return made

    def run(self, topology: Topology, **options: Any) -> None:
        """Start the job, and let it process what has arrived."""
        self.write(self.streams(topology, **options).transform({"words": self.words}), "checkpoint")

    def write(self, rows: DataFrame, checkpoint: str) -> None:
        writer = rows.select("key", "value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.path(checkpoint))
        writer.trigger(availableNow=True).start(self.path("out")).awaitTermination()


Phase: TypeAlias = Callable[[Place], None]


def tallies(stores: Mapping[str, str]) -> Topology:
    """Return words counted in several stores, each behind what its counts are called in the output."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string")).group_by_key()
    told = [
        words.count(Materialized(store))
        .to_stream()
        .map_values(lambda number, what=what: f"{what} {number}", value_serde="string")
        for what, store in stores.items()
    ]
    reduce(lambda one, other: one.merge(other), told).to("out", Produced("string", "string"))
    return builder.build()


def told_once() -> Topology:
    """Return how often each count of each word was told: once."""
    builder = StreamsBuilder()
    counts = builder.stream("words", Consumed("string", "string")).group_by_key().count(Materialized("counts"))
    told = counts.to_stream().map(
        lambda word, number: (f"{word} {number}", ""), key_serde="string", value_serde="string"
    )
    times = told.group_by_key(Grouped("string", "string")).count(Materialized("told"))
    times.to_stream().map_values(lambda number: f"told {number}", value_serde="string").to(
        "out", Produced("string", "string")
    )
    return builder.build()


class Count(Processor):
    """Counts words in a store of any kind; each count is valid from the latest time of those that it counts."""

    def process(self, batch: Batch) -> None:
        store = self.context.store("own")
        plain = isinstance(store, KeyValueStore)
        counts = []
        for key, time in zip(batch.keys, batch.timestamps, strict=True):
            found = store.get(key)
            counts.append((0 if found is None else found if plain else found.value) + 1)
            latest = time if plain or found is None else max(time, found.timestamp)
            store.put(key, counts[-1], *([] if plain else [latest]))
        self.context.forward(batch.with_values([f"counts {number}" for number in counts]))


def own_count(kind: StoreKind) -> Topology:
    builder = StreamsBuilder()
    spec = StoreSpec("own", kind, STRING, INT64, history_retention=1_000_000 if kind is StoreKind.VERSIONED else None)
    words = builder.stream("words", Consumed("string", "string"))
    words.process(Count, stores=[spec]).to("out", Produced("string", "string"))
    return builder.build()


def _evolved(place: Place, **options: Any) -> None:
    evolution = Evolution(place.path("checkpoint"), {"counts": "tallies"}, ["gone"])
    place.run(tallies({"counts": "tallies", "more": "more"}), partitions=3, evolution=evolution, **options)


def _begun(place: Place) -> None:
    place.run(tallies({"counts": "counts", "gone": "gone"}))


def _only_counts(place: Place) -> None:
    place.run(tallies({"counts": "counts"}))


def _nothing(_: Place) -> None:
    """Do nothing: the job begins with the next phase."""


def _seeds(place: Place) -> DataFrame:
    return place.spark.createDataFrame([(word, SEED, 0) for word in WORDS], "key string, value long, timestamp long")


def _evolved_with_seeds(place: Place) -> None:
    _evolved(place, seeds={"more": _seeds(place)})


def _seeded(place: Place) -> None:
    place.run(tallies({"counts": "counts"}), seeds={"counts": _seeds(place)})


def _of_kind(kind: StoreKind, place: Place, **options: Any) -> None:
    place.run(own_count(kind), **options)


def _versioned(place: Place) -> None:
    evolution = Evolution(place.path("checkpoint"), converted={"own": "versioned"}, valid_from={"own": 0})
    place.run(own_count(StoreKind.VERSIONED), evolution=evolution)


def _elsewhere(place: Place) -> None:
    evolution = Evolution(place.path("checkpoint"), into=place.path("continued"))
    rows = place.streams(told_once(), evolution=evolution).transform({"words": place.words})
    place.write(rows, evolution.location(rows).rpartition("/")[2])


def _warmed(place: Place) -> None:
    place.streams(own_count(StoreKind.TIMESTAMPED_KEY_VALUE), local="warm").warm(place.path("checkpoint"))


def _counted(place: Place, **options: Any) -> None:
    time = F.timestamp_millis("timestamp")
    rows = place.pond(**options).aggregate(place.words, {"value": count()}, by="key", time=time, name="counted")
    place.write(rows.select("key", F.concat(F.lit("counts "), "value").alias("value")), "checkpoint")


def _counted_in_three(place: Place) -> None:
    _counted(place, partitions=3, evolution=Evolution({"counted": place.path("checkpoint")}))


Oracle: TypeAlias = Callable[[Sequence[File], Sequence[File]], list[Row]]
"""What a job puts out for its files before the change and after it."""


def _numbered(files: Sequence[File], what: str, first: int = 1) -> list[Row]:
    """Return each occurrence of each word, numbered."""
    seen: Counter[str] = Counter()
    rows = []
    for word in (word for _, words in files for word in words):
        rows.append((word, f"{what} {first + seen[word]}"))
        seen[word] += 1
    return rows


def _tallied(old: Sequence[File], new: Sequence[File], *, seed: int = 0) -> list[Row]:
    counts, gone, more = _numbered([*old, *new], "counts"), _numbered(old, "gone"), _numbered(new, "more", seed + 1)
    return counts + gone + more


def _counts(old: Sequence[File], new: Sequence[File], *, seed: int = 0) -> list[Row]:
    return _numbered([*old, *new], "counts", seed + 1)


def _told_once(old: Sequence[File], new: Sequence[File]) -> list[Row]:
    later = _numbered([*old, *new], "")[sum(len(words) for _, words in old) :]
    return [*_numbered(old, "counts"), *((word + number, "told 1") for word, number in later)]


@dataclass(frozen=True)
class MortalJob:
    """A job.

    Attributes:
        phases: how it is started, one way after the other; the first one is not disturbed.
        oracle: what it puts out, where the change comes after the first phase.
        all_told: whether it tells all that, and not only what is last of a word in each micro-batch.
    """

    phases: Sequence[Phase]
    oracle: Oracle
    all_told: bool = True

    def check(self, rows: Sequence[Row], old: Sequence[File], new: Sequence[File]) -> None:
        """Compare what the job has put out with what it should."""
        expected, found = Counter(self.oracle(old, new)), Counter(rows)
        if self.all_told:
            assert found == expected, f"too much: {found - expected}; missing: {expected - found}"
            return
        assert found <= expected, f"too much: {found - expected}"
        missing = dict(self.oracle(old, new)).items() - found.keys()
        assert not missing, f"missing: {missing}"


_PLAIN: Final = partial(_of_kind, StoreKind.KEY_VALUE)
_STAMPED: Final = partial(_of_kind, StoreKind.TIMESTAMPED_KEY_VALUE)
_IN_PLACE: Final = partial(_STAMPED, upgrade_from="0.1.0", upgrade_mode="in_place")
_BESIDE: Final = partial(_STAMPED, upgrade_from=RELEASE, upgrade_mode="roll_over")

JOBS: Final[Mapping[str, MortalJob]] = {
    "evolution": MortalJob([_begun, _evolved], _tallied),
    "evolution with seeds": MortalJob([_begun, _evolved_with_seeds], partial(_tallied, seed=SEED)),
    "seeds of a new job": MortalJob([_nothing, _seeded], partial(_counts, seed=SEED)),
    "plain to versioned": MortalJob([_PLAIN, _versioned], _counts),
    "timestamped to versioned": MortalJob([_STAMPED, _versioned], _counts),
    "another checkpoint": MortalJob([_only_counts, _elsewhere], _told_once),
    "offline upgrade": MortalJob([_PLAIN, partial(_STAMPED, checksums=True)], _counts),
    "upgrade in place": MortalJob([_PLAIN, _IN_PLACE, _STAMPED], _counts),
    "roll over": MortalJob([_PLAIN, _warmed, _BESIDE, _warmed, partial(_STAMPED, local="warm")], _counts),
    "verbs": MortalJob([partial(_counted, partitions=2), _counted_in_three], _counts, all_told=False),
}

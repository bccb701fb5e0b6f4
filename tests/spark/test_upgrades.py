"""The changes that a restart may make by docs/upgrading.md, and those that it may not."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.adapters.spark import Evolution, SparkStreams
from millpond.adapters.spark.session.checkpoint import Checkpoint
from millpond.errors import ConfigurationError, StateConflictError
from millpond.processors import Batch, Consumed, Processor, Produced, StreamsBuilder, Topology
from millpond.stores.encoding.serdes import INT64, JSON, STRING, Serde
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from tests.spark.conftest import RunStream

pytestmark = pytest.mark.spark


class Count(Processor):
    """Counts the records of each key in a plain or a timestamped store."""

    def process(self, batch: Batch) -> None:
        store = self.context.store("counts")
        timestamped = isinstance(store, TimestampedKeyValueStore)
        values = []
        for key, timestamp in zip(batch.keys, batch.timestamps, strict=True):
            found = store.get_value(key) if timestamped else store.get(key)
            values.append((found or 0) + 1)
            store.put(key, values[-1], *([timestamp] if timestamped else []))
        self.context.forward(batch.with_values(values))


def counts(kind: StoreKind, value_serde: Serde[Any] = INT64) -> Topology:
    """Count the words, in a store of that kind."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    spec = StoreSpec("counts", kind, key_serde=STRING, value_serde=value_serde)
    words.process(Count, stores=[spec]).to("counts", Produced(schema="key string, value long"))
    return builder.build()


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, run_stream: RunStream) -> Any:
    """Runs a topology over one more file of a word, on the state of the runs before."""
    schema = "key string, value string, timestamp long"

    def run(topology: Topology, **options: Any) -> list[tuple[Any, ...]]:
        spark.createDataFrame([("mill", "", 1), ("pond", "", 2)], schema).write.mode("append").parquet(f"{tmp_path}/in")
        given = {"state_dir": f"{tmp_path}/state", "local_dir": f"{tmp_path}/local", "backend": "lmdb"} | options
        streams = SparkStreams(topology, application_id="upgrade", **given)
        return run_stream(streams.transform({"words": spark.readStream.schema(schema).parquet(f"{tmp_path}/in")}))

    return run


@pytest.mark.parametrize("fresh_copy", [False, True], ids=["migrated in place", "restored"])
def test_a_plain_store_becomes_a_timestamped_one_by_a_restart(run: Any, tmp_path: Path, fresh_copy: bool) -> None:
    run(counts(StoreKind.KEY_VALUE))
    options = {"local_dir": f"{tmp_path}/elsewhere"} if fresh_copy else {}
    rows = run(counts(StoreKind.TIMESTAMPED_KEY_VALUE), **options)
    assert rows == [("mill", 1), ("mill", 2), ("pond", 1), ("pond", 2)]


def test_an_upgrade_in_place_keeps_the_old_format_until_the_next_restart(run: Any, tmp_path: Path) -> None:
    def directories() -> set[str]:
        return {path.name for path in tmp_path.glob("local/*/upgrade/*/lmdb/[!.]*")}

    run(counts(StoreKind.KEY_VALUE))
    (copies,) = (tmp_path / "local").iterdir()
    copies.rename(copies.with_name("counts"))  # where releases before 0.2 have them
    run(counts(StoreKind.TIMESTAMPED_KEY_VALUE), upgrade_from="0.1.0", upgrade_mode="in_place")
    assert directories() == {"counts"}
    rows = run(counts(StoreKind.TIMESTAMPED_KEY_VALUE))
    assert rows[-1] == ("pond", 3)
    assert directories() == {"counts-v2"}


def test_a_job_is_led_back_to_what_an_older_release_reads(run: Any, spark: SparkSession, tmp_path: Path) -> None:
    def readers() -> set[str]:
        return {str(one.oldest_reader) for one in Checkpoint(spark, f"{tmp_path}/checkpoint").manifests()}

    topology = counts(StoreKind.KEY_VALUE)
    run(topology)
    assert readers() == {"0.2.0"}
    run(topology, upgrade_from="0.1.0", upgrade_mode="in_place")
    assert readers() == {"0.1.0"}
    assert run(topology)[-1] == ("pond", 3)
    assert readers() == {"0.2.0"}
    evolution = Evolution(f"{tmp_path}/checkpoint")
    with pytest.raises(ConfigurationError, match=r"release 0\.1\.0 knows no state that was carried over"):
        run(topology, upgrade_from="0.1.0", upgrade_mode="in_place", evolution=evolution)


def test_another_serde_another_kind_or_another_number_of_partitions_is_refused(run: Any) -> None:
    run(counts(StoreKind.KEY_VALUE))
    with pytest.raises(StateConflictError, match="another topology"):
        run(counts(StoreKind.KEY_VALUE, value_serde=JSON))
    with pytest.raises(StateConflictError, match="another topology"):
        run(counts(StoreKind.KEY_VALUE), partitions=5)


@pytest.mark.first
def test_another_backend_is_a_restart_and_an_unknown_one_an_error(run: Any) -> None:
    run(counts(StoreKind.KEY_VALUE), backend="memory")
    with pytest.raises(ConfigurationError, match="rocksdb"):
        run(counts(StoreKind.KEY_VALUE), backend="rockdb")
    rows = run(counts(StoreKind.KEY_VALUE), backend="rocksdb")
    assert rows[-1] == ("pond", 3)

"""A look without Spark shows what Spark shows of the same checkpoint, for each kind of store and checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.adapters.inspect import StateInspector
from millpond.adapters.inspect.row_texts import objects
from millpond.adapters.inspect.store_view import StoreView
from millpond.adapters.spark import Checkpoint, Millpond, SparkStreams
from millpond.adapters.spark.reading.inspection import ReadStore, plain_rows
from millpond.processors import (
    Consumed,
    Materialized,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millpond.processors.verbs.aggregates import count, last, sum
from millpond.stores import StoreKind
from millpond.stores.durability.manifests.manifest import Manifest

pytestmark = pytest.mark.spark

DDL = "key string, value long, timestamp long"
STATE = "spark.sql.streaming.stateStore."
CHANGELOGS = f"{STATE}rocksdb.changelogCheckpointing.enabled"

Rows = list[dict[str, Any]]


def kinds() -> Topology:
    """Return a store of each kind, and of several serdes."""
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed("string", "int64"))
    grouped = numbers.group_by_key()
    table = numbers.to_table(Materialized.versioned("versions", history_retention=1_000))
    counted = grouped.count(Materialized("counts"))
    grouped.count(Materialized("plain", kind=StoreKind.KEY_VALUE))
    grouped.windowed_by(TimeWindows(10, grace=1)).count(Materialized("windows"))
    grouped.windowed_by(SessionWindows(5, grace=1)).count(Materialized("sessions"))
    for name, serde in (("packed", "msgpack"), ("texts", "json"), ("structs", "struct<sum:long>")):
        grouped.aggregate(lambda: {"sum": 0}, _added, Materialized(name, value_serde=serde))
    counted.join(table, lambda mine, theirs: mine + theirs).to_stream().to("out", Produced(schema="key string"))
    return builder.build()


def _added(key: str, number: int, total: dict[str, int]) -> dict[str, int]:
    return {"sum": total["sum"] + number}


class Query:
    """A query whose micro-batches may be kept in different ways."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.checkpoint, self.state = str(directory / "checkpoint"), str(directory / "state")

    def run(self, settings: Mapping[str, str], rows: list[tuple[Any, ...]], ddl: str, made: Any) -> None:
        """Run one micro-batch with these rows, of the DataFrame that ``made`` makes of them."""
        self._spark.createDataFrame(rows, ddl).coalesce(1).write.mode("append").parquet(str(self._directory / "in"))
        frame = self._spark.readStream.schema(ddl).parquet(str(self._directory / "in"))
        with self.set(settings):
            output = made(frame).writeStream.format("noop").option("checkpointLocation", self.checkpoint)
            output.trigger(availableNow=True).start().awaitTermination()

    @contextmanager
    def set(self, settings: Mapping[str, str]) -> Iterator[None]:
        before = {name: self._spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    self._spark.conf.unset(name)
                else:
                    self._spark.conf.set(name, old)

    def manifests(self, batch: int) -> list[Manifest]:
        """Return what Spark reads out of its state."""
        return sorted(Checkpoint(self._spark, self.checkpoint).manifests(batch), key=_task)

    def inspector(self, **options: Any) -> StateInspector:
        return StateInspector.at(self.checkpoint, self.state, **options)


def _task(manifest: Manifest) -> tuple[str, str]:
    return manifest.application_id, manifest.task_id


def _rows(batches: Iterator[pa.RecordBatch]) -> Rows:
    return sorted((row for batch in batches for row in objects(batch)), key=repr)


def _as_spark_shows_it(view: StoreView) -> Rows:
    """Return the rows with the columns that ``read_store`` has."""
    plain = [row if "timestamp" in row else {**row, "timestamp": row.get("valid_from")} for row in _rows(view.rows())]
    return [{name: value for name, value in row.items() if not name.startswith("valid")} for row in plain]


@pytest.mark.long
def test_every_kind_of_store_is_shown_as_spark_shows_it_whether_snapshots_or_changelogs_keep_its_manifests(
    spark: SparkSession, tmp_path: Path
) -> None:
    query, topology = Query(spark, tmp_path), kinds()
    streams = SparkStreams(topology, application_id="job", state_dir=query.state, partitions=2, backend="memory")
    changelogs, snapshots = {CHANGELOGS: "true"}, {CHANGELOGS: "false"}
    for number, settings in enumerate((changelogs, snapshots, snapshots, changelogs)):
        rows = [(f"key {key}", key, 7 * number + key) for key in range(number, 5 + number)]
        query.run(settings, rows, DDL, lambda frame: streams.transform({"numbers": frame}))
    part = Path(query.checkpoint, "state", "0", "0")
    assert {"1.changelog", "2.zip", "3.zip", "4.changelog"} <= {path.name for path in part.iterdir()}
    assert query.inspector().batches == list(range(4))
    for batch in range(4):
        manifests = query.manifests(batch)
        inspector = query.inspector(specs=topology.stores)
        assert sorted(inspector.checkpoint.manifests(batch), key=_task) == manifests
        texts: Any = pa.RecordBatch.from_pydict({"manifest": [one.to_json() for one in manifests]})
        views = {view.name: view for view in inspector.stores(batch)}
        assert sorted(views) == sorted(topology.stores)
        for name, spec in topology.stores.items():
            read = ReadStore(inspector.storage, spec, plain_rows(spec, None, ()))
            assert _as_spark_shows_it(views[name]) == _rows(read(iter([texts]))) != []
    alone = {view.name: view for view in query.inspector().stores()}
    for name in ("counts", "versions", "plain", "packed", "texts", "structs"):
        assert _rows(alone[name].rows()) == _rows(views[name].rows())
        assert alone[name].schema == views[name].schema
    for name in ("windows", "sessions"):
        shown = {repr({**row, "window_end": None} if name == "windows" else row) for row in _rows(views[name].rows())}
        assert shown < set(map(repr, _rows(alone[name].rows()))), "all that is still there is shown"


@pytest.mark.slow
def test_verbs_are_shown_with_their_columns_and_checkpoints_with_unique_ids_checksums_and_zstd_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path)
    pond: Millpond | None = None

    def made(frame: Any) -> Any:
        nonlocal pond
        pond = Millpond(application_id="pond", state_dir=query.state, partitions=2, backend="memory")
        latest = pond.latest(frame, key=["shop", "item"], time="time", history="1 day", name="prices")
        calls = {"n": count(), "total": sum("price"), "newest": last("price")}
        return pond.aggregate(latest.drop("op"), calls, by="shop", time="change_time", name="shops")

    ddl = "shop string, item int, price decimal(10,2), time timestamp"
    newest = {f"{STATE}checkpointFormatVersion": "2", f"{STATE}compression.codec": "zstd"}
    checked = {**newest, f"{STATE}rowChecksum.enabled": "true"}
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(2):
        rows = [
            (f"shop {shop}", item, Decimal(shop + number) + Decimal(item) / 4, start + timedelta(seconds=number))
            for shop, item in ((1, 2), (1, 3), (2, 2))
        ]
        query.run({**checked, CHANGELOGS: str(number > 0)}, rows, ddl, made)
    assert list(Path(query.checkpoint, "state", "0", "0").glob("2_*.changelog"))
    inspector = query.inspector()
    assert pond is not None
    with query.set(newest):  # Spark reads such a checkpoint only where the session is set to write it
        for batch in range(2):
            assert sorted(inspector.checkpoint.manifests(batch), key=_task) == query.manifests(batch)
        versions = pond.read_store("prices", "latest", query.checkpoint).collect()
        aggregates = pond.read_store("shops", "aggregate", query.checkpoint).collect()
    prices = inspector.store("latest")
    assert (prices.application_id, prices.kind) == ("pond.prices", "versioned")
    shown = sorted(map(tuple, versions))
    found = sorted((*row["key"].values(), *row["value"].values()) for row in _objects(prices))
    assert [row[:3] for row in found] == [row[:3] for row in shown] != []
    totals = inspector.store("aggregate")
    assert [field.name for field in totals.schema.field("value").type] == ["n", "total", "newest"]
    results = sorted(map(tuple, aggregates))
    found = sorted((row["key"]["shop"], *row["value"].values()) for row in _objects(totals))
    assert found == [row[:4] for row in results] != []
    row = totals.get({"shop": "shop 2"})
    assert row is not None
    assert row["value"][0].as_py()["n"] == 2
    assert totals.get(["shop 3"]) is None


def _objects(view: StoreView) -> Rows:
    return [row for batch in view.rows() for row in batch.to_pylist()]

"""Nexmark's events from topics: micro-batches are those of the files, every contender is right, and no topic stays."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from kafka.admin import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from millpond.bench.nexmark.answers import in_millis
from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.files import SOURCES, events_of, write_events
from millpond.bench.nexmark.suite import QUERIES, nexmark_contests
from millpond.bench.nexmark.topics import connector, even_rows, topics_on
from millpond.bench.spark.queries import answer_of
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import VERBS
from millpond.errors import ConfigurationError
from tests.bench.listening import listening
from tests.kafka.broker import Broker
from tests.kafka.jars import connector_jars

BATCHES = 6
SITE = Site(rate=20, out_of_order=70, seed=5)


def topics_left(broker: Broker) -> list[str]:
    """Return the topics of benchmarks that are on the broker."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    names = admin.list_topics()
    admin.close()
    return [name for name in names if "persons" in name or "auctions" in name or "bids" in name]


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_micro_batch_of_the_topics_has_the_events_of_its_files(
    partitions: int, broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    scale = Scale(even_rows(300, SITE, partitions), 0, partitions)
    write_events(SITE, tmp_path, SOURCES, scale, 4)
    with topics_on(spark, broker.address) as there:
        for batches in (4, 2):
            streams = there.read(spark, tmp_path, SOURCES, scale, batches)
            for source in SOURCES:
                found = micro_batches(streams[source.name], tmp_path / f"{source.name}-{batches}")
                made = [events_of(SITE, scale.rows * number, scale.rows)[source.name] for number in range(batches)]
                assert [as_text(rows, partitions) for rows in found] == [as_text(rows, partitions) for rows in made]
        assert sorted(topics_left(broker)) == sorted(there.names)
    assert topics_left(broker) == []


def micro_batches(stream: DataFrame, checkpoint: Path) -> list[pa.Table]:
    """Return the rows of each micro-batch up to the end of the stream."""
    found: list[pa.Table] = []

    def keep(rows: DataFrame, number: int) -> None:
        found.append(rows.toArrow())

    writer = stream.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep)
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


def as_text(rows: pa.Table, partitions: int) -> list[str]:
    """Return each row as text, in its order if that is the order of one partition."""
    texts = [str(row) for row in in_millis(rows).to_pylist()]
    return texts if partitions == 1 else sorted(texts)


@pytest.mark.parametrize(("name", "partitions"), [("q5", 3), ("q8", 2), ("q11", 1), ("q18", 2), ("q20", 3)])
def test_every_contender_is_right_from_topics(
    name: str, partitions: int, broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    scale = Scale(even_rows(600, SITE, partitions), 0, partitions)
    how = {"batches": BATCHES, "rows": scale.rows, "backends": ["lmdb"], "site": SITE, "kafka": broker.address}
    (contest,) = nexmark_contests([name], contenders=None, **how)
    contest.work.write(tmp_path, contest.work.topics, scale, BATCHES)
    with contest.on_spark(spark) as work:
        for contender, one in work.contenders(["lmdb"]).items():
            answer = partial(answer_of, spark, tmp_path, work, one, scale, BATCHES)
            contest.check(tmp_path, contender, BATCHES, answer)
    assert contest.checked.keys() == {VERBS, *QUERIES[name].peers}
    assert len(set(contest.checked.values())) == 1
    assert min(contest.checked.values()) > 1


def test_what_accepts_connections_and_is_no_broker_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "millpond.bench.nexmark.topics._CLIENT", {"request.timeout.ms": "500", "default.api.timeout.ms": "1000"}
    )
    with (
        listening() as address,
        pytest.raises(ConfigurationError, match=f"no broker of Kafka answers at {address}"),
        topics_on(spark, address),
    ):
        pass


def test_the_command_says_how_to_get_the_connector_and_then_measures_from_topics(
    broker: Broker, tmp_path: Path
) -> None:
    written = tmp_path / "figures.json"
    asked = ["--query", "q8", "--events", "20000", "--batches", "2", "--repeat", "1", "--partitions", "4"]
    asked += ["--rate", "1000", "--json", str(written), "--directory", str(tmp_path), "--kafka", broker.address]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", "bench", "nexmark", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"write --kafka {broker.address} --packages {connector(pyspark.__version__)}" in done.stderr
    nowhere = subprocess.run([*command, "--packages=org.example:none:1"], capture_output=True, text=True, check=False)
    assert nowhere.returncode == 2
    assert "Spark does not get --packages org.example:none:1 from Maven: [unresolved dependency" in nowhere.stderr
    jars = f"--jars {','.join(map(str, connector_jars()))} pyspark-shell"  # in place of --packages
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": jars}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    assert figures["settings"] | {"source": "kafka", "partitions": 4, "rows": 10_000} == figures["settings"]
    assert {row["contender"]: row["operations"] for row in figures["results"]} == {VERBS: 20_000, "spark_jvm": 20_000}
    checked = figures["queries"]["q8"]["checked_rows"]
    assert checked[VERBS] == checked["spark_jvm"] > 100
    assert topics_left(broker) == []
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

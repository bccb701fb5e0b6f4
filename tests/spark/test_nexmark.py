"""``millpond bench nexmark``: on Spark, every contender of every query answers what DuckDB does."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from millpond.bench.nexmark.events import Site
from millpond.bench.nexmark.suite import QUERIES, NexmarkContest, nexmark_contests
from millpond.bench.nexmark.topics import connector, topics_on
from millpond.bench.spark.inputs import Source
from millpond.bench.spark.queries import answer_of
from millpond.bench.spark.shapes import Scale
from millpond.bench.spark.workloads import VERBS, Peer, Workload
from millpond.errors import ConfigurationError, MillpondError

pytestmark = pytest.mark.spark

BATCHES = 6
SCALE = Scale(600, 0, 2)
"""Of two files of each kind."""

SITE = Site(rate=20, out_of_order=70, seed=5)


def contest(name: str, **how: Any) -> NexmarkContest:
    backends = {"backends": ["lmdb"], **how}
    (made,) = nexmark_contests([name], contenders=None, batches=BATCHES, rows=SCALE.rows, site=SITE, **backends)
    return made


def check_all(spark: SparkSession, place: Path, found: NexmarkContest) -> None:
    found.work.write(place, found.work.topics, SCALE, BATCHES)
    for contender, how in found.work.contenders(found.backends).items():
        if contender in found.chosen:
            found.check(place, contender, BATCHES, partial(answer_of, spark, place, found.work, how, SCALE, BATCHES))


@pytest.mark.long
@pytest.mark.parametrize("name", QUERIES)
def test_every_contender_of_every_query_is_right_on_spark(name: str, spark: SparkSession, tmp_path: Path) -> None:
    found = contest(name)
    check_all(spark, tmp_path, found)
    assert found.checked.keys() == found.chosen.keys() == {VERBS, *QUERIES[name].peers}
    assert len(set(found.checked.values())) == 1
    assert min(found.checked.values()) > 1


class Wrong(NexmarkContest):
    """Its peer leaves bids out."""

    @property
    def work(self) -> Workload[Source]:
        right = super().work
        (name,) = right.peers
        job = right.peers[name].job
        wrong = Peer(lambda inputs, scale: job({"bids": inputs["bids"].where("bidder <> 1001")}, scale))
        return replace(right, peers={name: wrong})


@pytest.mark.slow
def test_a_contender_that_answers_wrongly_and_one_of_which_nothing_is_over_are_not_measured(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = Wrong("q12", keys=0, batches=BATCHES, rows=SCALE.rows, site=SITE, contenders=["spark_jvm"])
    with pytest.raises(MillpondError, match=r"the answer to q12 is wrong: [1-9][0-9]* rows are missing"):
        check_all(spark, tmp_path, found)
    right = contest("q12")
    how = right.work.contenders(right.backends)["spark_jvm"]
    with pytest.raises(ConfigurationError, match=r"no window of q12 is over.*give more --events, or a lower --rate"):
        right.check(tmp_path, "spark_jvm", 2, partial(answer_of, spark, tmp_path, right.work, how, SCALE, 2))
    assert found.checked == right.checked == {}


def test_a_session_without_the_connector_for_kafka_is_told_what_to_write(spark: SparkSession) -> None:
    advice = f"no connector for Kafka; write --kafka localhost:1 --packages {connector(spark.version)}, and it is"
    with pytest.raises(ConfigurationError, match=advice), topics_on(spark, "localhost:1"):
        pass


def test_the_command_checks_and_measures_a_query_and_writes_figures(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    arguments = ["bench", "nexmark", "--query", "q18", "--contender", "verbs", "--events", "2000"]
    arguments += ["--batches", "1", "--repeat", "1", "--json", str(written), "--directory", str(tmp_path)]
    command = [sys.executable, "-c", "from millpond.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(written.read_text())
    assert figures["benchmark"] == "nexmark"
    assert figures["queries"]["q18"]["checked_rows"]["verbs"] > 1_000
    (row,) = figures["results"]
    assert row["operations"] == 2_000
    assert row["disk_bytes"] > 0
    assert [path.name for path in tmp_path.iterdir()] == [written.name]

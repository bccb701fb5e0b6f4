"""Declarative Pipelines, as the real ``spark-pipelines`` runs them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Declarative Pipelines need pyspark[pipelines]")
pytest.importorskip("yaml", reason="Declarative Pipelines need pyspark[pipelines]")

import pyarrow.parquet as pq
import pyspark

from millpond.adapters.spark.session import pipelines
from millpond.errors import ConfigurationError
from tests.packaging.code_blocks import blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

OLD = find_spec("pyspark.pipelines.block_connect_access") is not None
asking = pytest.mark.skipif(OLD, reason="this PySpark lets no query function ask Spark about columns")

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
HOME = Path(pyspark.__file__).parent


def ran(directory: Path, command: str = "run") -> subprocess.CompletedProcess[str]:
    """Run ``spark-pipelines`` on the pipeline in a directory, where its tables and their catalog are."""
    # Under test, PySpark's server takes a free port instead of a fixed one.
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1", "SPARK_HOME": str(HOME)}
    return subprocess.run(
        [
            str(HOME / "bin" / "spark-pipelines"),
            *(command, "--spec", str(directory / "spark-pipeline.yml")),
            *("--conf", "spark.sql.catalogImplementation=hive"),
            *("--conf", "spark.python.authenticate.socketTimeout=120s"),  # on a machine that is busy with other tests
        ],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, **environment},
        cwd=directory,
        check=False,
    )


def what_failed(done: subprocess.CompletedProcess[str]) -> str:
    """Return the lines of what a program has said that tell of errors."""
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return "\n".join(line for line in lines if re.search("Exception:|Error|FAILED", line))


def put(directory: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add a file of rows to an input."""
    place = directory / "input" / name
    place.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (place / f"{len(list(place.iterdir()))}.json").write_text(lines)


def table(directory: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows of a table."""
    files = (directory / "spark-warehouse" / name).glob("*.parquet")
    return sorted(tuple(row[column] for column in columns) for file in files for row in pq.read_table(file).to_pylist())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after two runs, between which each input has got one more file."""
    directory = tmp_path_factory.mktemp("pipelines") / "shop"
    shutil.copytree(EXAMPLE, directory)
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/shop", str(directory)))
    put(directory, "rates", [{"currency": "EUR", "rate": 1.5, "quoted": "2026-01-05T09:00:00Z"}])
    first = {"id": 1, "currency": "EUR", "amount": 10, "ordered": "2026-01-05T10:00:00Z"}
    put(directory, "orders", [first, first])
    done = ran(directory)
    assert done.returncode == 0, what_failed(done)
    assert table(directory, "totals", "currency", "total") == [("EUR", 15.0)]
    put(directory, "rates", [{"currency": "EUR", "rate": 2.0, "quoted": "2026-01-05T10:05:00Z"}])
    put(directory, "orders", [first, {**first, "id": 2, "amount": 20, "ordered": "2026-01-05T10:06:00Z"}])
    done = ran(directory)
    assert done.returncode == 0, what_failed(done)
    return directory


@asking
def test_each_table_has_what_its_verb_makes_of_the_one_before_within_one_run(shop: Path) -> None:
    assert table(shop, "orders", "id") == [(1,), (2,)]
    assert table(shop, "priced", "id", "price") == [(1, 15.0), (2, 40.0)]


@asking
def test_verbs_go_on_with_their_state_in_the_next_run(shop: Path) -> None:
    assert table(shop, "totals", "currency", "total") == [("EUR", 15.0), ("EUR", 55.0)]


@pytest.mark.skipif(not OLD, reason="this PySpark lets query functions ask Spark about columns")
def test_an_older_pyspark_is_told_which_one_runs_pipelines_with_verbs(tmp_path: Path) -> None:
    told = refusals(tmp_path)
    assert told["configure"] == (
        f"PySpark {pyspark.__version__} lets no query function of a pipeline ask Spark about columns, which verbs have "
        "to know; run the pipeline with PySpark 4.3 or later"
    )
    assert told["verb"] == f"latest: {told['configure']}"


def test_a_pyspark_that_lets_verbs_ask_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "find_spec", lambda _: object())
    with pytest.raises(ConfigurationError, match=r"lets no query function .*; run the pipeline with PySpark 4\.3 or l"):
        pipelines.check_asking()
    monkeypatch.setattr(pipelines, "find_spec", lambda _: None)
    pipelines.check_asking()


@asking
def test_a_spec_that_lacks_settings_is_told_which(tmp_path: Path) -> None:
    told = refusals(tmp_path, lacking="spark.sql.shuffle.partitions")
    lines = 'only the spec of a pipeline sets its session; .* per core: spark.sql.shuffle.partitions: "2"'
    assert re.fullmatch(rf"{lines} \[MILLPOND-SPARK-SESSION\]", told["configure"])
    assert told["verb"] == f"latest: {told['configure']}"


@asking
def test_what_is_wrong_with_columns_is_said_when_a_pipeline_is_defined(tmp_path: Path) -> None:
    told = refusals(tmp_path)
    assert told["configure"] == "nothing"
    assert told["verb"].startswith("latest: the table nobody is not there yet, so its columns are unknown; if the pipe")
    assert told["schema"].startswith("the schema is 'no ddl at all', which is no Spark DDL; write such as 'id long, ")
    assert told["column"].startswith("with_schema says that the rows have value int, but they have timestamp timestamp")


WRONG = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from millpond.adapters.spark import Millpond, configure, with_schema
from millpond.errors import ConfigurationError

spark = SparkSession.active()
pond = Millpond(application_id="wrong", state_dir=str(spark.conf.get("spark.shop.state")))


def told(what, call):
    try:
        call()
        print(f"told {what}: nothing")
    except ConfigurationError as error:
        print(f"told {what}: {error}")


@dp.table
def wrong():
    rows = spark.readStream.format("rate").load()
    nobody = spark.readStream.table("nobody")
    told("verb", lambda: pond.latest(nobody, key="value", time="timestamp", history="1 hour"))
    told("schema", lambda: with_schema(rows, "no ddl at all"))
    told("column", lambda: with_schema(rows, "value int"))
    return rows


told("configure", lambda: configure(spark))
"""


def refusals(directory: Path, lacking: str | None = None) -> dict[str, str]:
    """Return what wrong calls in a pipeline are told, beside the right ones, or by a spec that lacks a line."""
    lines = (EXAMPLE / "spark-pipeline.yml").read_text().replace("/tmp/shop", str(directory)).splitlines()
    kept = [line for line in lines if lacking is None or lacking not in line]
    (directory / "spark-pipeline.yml").write_text("\n".join(kept))
    (directory / "transformations").mkdir()
    (directory / "transformations" / "wrong.py").write_text(WRONG)
    if lacking is None and not OLD:
        (block,) = blocks("docs/pipelines.md")
        code = block.code.replace("s3://bucket", str(directory))
        (directory / "transformations" / "page.py").write_text(code)
    done = ran(directory, "dry-run")
    assert done.returncode == 0, what_failed(done)
    told = [line.removeprefix("told ") for line in done.stdout.splitlines() if line.startswith("told ")]
    return dict(line.split(": ", 1) for line in told)

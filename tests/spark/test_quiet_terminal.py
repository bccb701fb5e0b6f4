"""A small job that works says little on the terminal, from an environment that was not activated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

JOB = """\
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from millpond.adapters.spark import Millpond, configure
from millpond.processors.verbs import aggregates

place = Path(sys.argv[1])
spark = configure(SparkSession.builder.master("local[2]")).getOrCreate()
rows = spark.readStream.schema("k string, t timestamp, n long").json(str(place / "in"))
pond = Millpond(application_id="small", state_dir=str(place / "state"))
totals = pond.aggregate(rows, {"n": aggregates.sum("n")}, by="k", time="t", name="totals")
writer = totals.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
writer.trigger(availableNow=True).start(str(place / "out")).awaitTermination()
print(spark.read.parquet(str(place / "out")).count())
"""

MOST_LINES = 25
"""What Spark says as it starts and as its first Python worker does; nothing of ours keeps it from that."""


def test_a_small_job_that_works_says_little(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"k": "a", "t": "2026-06-01T12:00:00Z", "n": 1}\n')
    (tmp_path / "job.py").write_text(JOB)
    left_out = ("PYSPARK_PYTHON", "VIRTUAL_ENV", "JDK_JAVA_OPTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment["PATH"] = os.pathsep.join(
        one for one in environment["PATH"].split(os.pathsep) if Path(one) != Path(sys.executable).parent
    )
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment,
    )
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr[-2000:]
    assert len(ran.stderr.splitlines()) <= MOST_LINES, ran.stderr
    for noise in ("[Stage", "TransformWithStateInPySparkStateServer", "ResolveWriteToStream", "BrokenPipe", "ERROR"):
        assert noise not in ran.stderr

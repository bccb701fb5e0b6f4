"""A query whose state is on an object store goes on from there on a machine that has nothing."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from millpond.adapters.spark import SparkStreams
from tests.durability.object_store import serving
from tests.spark.orders import expected_totals, random_events, rated_orders, read_files, totals, write_file, write_files

pytestmark = [pytest.mark.spark, pytest.mark.long]

RunStream = Callable[..., list[tuple[Any, ...]]]


def test_a_query_restarts_from_an_object_store_with_an_empty_local_directory(
    spark: SparkSession, tmp_path: Path, run_stream: RunStream
) -> None:
    events = random_events(11, 500)
    with serving() as store:

        def rows(machine: str) -> DataFrame:
            streams = SparkStreams(
                rated_orders(),
                application_id="orders",
                state_dir=store.uri("state", request_timeout=10, max_attempts=4),
                local_dir=str(tmp_path / machine),
                backend="lmdb",
            )
            return streams.transform(read_files(spark, tmp_path / "in"), sink="totals")

        write_files(tmp_path / "in", events[:250], 2)
        assert totals(run_stream(rows("one"))) == expected_totals(events[:250])
        assert store.taken()["PUT"] > 4
        for number in (2, 3):
            write_file(tmp_path / "in", number, events[number * 125 : (number + 1) * 125])
        assert totals(run_stream(rows("another"))) == expected_totals(events)
        assert store.taken() > Counter(GET=4, HEAD=4, PUT=4)

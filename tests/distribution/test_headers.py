"""Headers that travel between tasks: as in one process, and nothing travels where there are none."""

from typing import Any

import pyarrow as pa
import pytest

from millpond.processors import Consumed, Grouped, Materialized, StreamsBuilder, Topology, TopologyDriver
from millpond.processors.distribution.exchange import BlobWriter, gather
from millpond.processors.distribution.execution import run_split
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.router import Router
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.tasks.task import Task
from tests.distribution.test_execution import numbered, open_stores, run_stages

KEYS = ["a", "b", "c", "d"]


def counts() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed("string", "string"))
    grouped = lines.group_by(lambda key, value: value, Grouped("string", "string"))
    grouped.count(Materialized("counts", caching=True)).to("out")
    return builder.build()


def lines(size: int, *, every: int) -> Batch:
    """Return so many lines, of which one in so many has headers."""
    headers: Any = [(("n", str(i).encode()), ("n", None)) if i % every == 0 else () for i in range(size)]
    return Batch(
        ["k"] * size, [KEYS[i % 4] for i in range(size)], list(range(size)), headers=headers if any(headers) else None
    )


def blobs_of(batch: Batch) -> Any:
    plan = make_plan(counts(), "out", 2)
    numbers = numbered(plan)
    (part,) = plan.map_side
    writer = BlobWriter(0)
    router = Router(plan, part, numbers)
    sent = [blob for outputs in run_split(Task(part, {}), "lines", [batch]) for blob in router.send(outputs, writer)]
    return plan, numbers, sent


@pytest.mark.parametrize(("size", "every"), [(2_000, 1), (2_000, 7), (20, 3)])
def test_headers_travel_with_the_records_and_stop_their_being_combined(size: int, every: int) -> None:
    batch = lines(size, every=every)
    plan, numbers, sent = blobs_of(batch)
    assert all(blob.input >= 0 for blob in sent)
    found = {
        (key, value, headers)
        for outputs in run_stages(plan, numbers, sent, open_stores(plan))
        for part in outputs.parts("out")
        for key, value, headers in zip(*_columns(part.to_batch()), strict=True)
    }
    with TopologyDriver(counts()) as driver:
        driver.pipe_batch("lines", batch)
        assert found == {(record.key, record.value, record.headers) for record in driver.read("out")}


def _columns(batch: Batch) -> tuple[Any, ...]:
    return batch.keys, batch.values, batch.headers or [()] * len(batch)


def test_without_headers_nothing_of_them_travels_and_runs_are_columns() -> None:
    _, _, sent = blobs_of(_plain(20))
    for blob in sent:
        assert pa.ipc.open_stream(pa.py_buffer(blob.records)).read_all().column_names == ["key", "value", "timestamp"]
        assert all(isinstance(run.records, Columns) for run in gather([blob]))


def _plain(size: int) -> Batch:
    batch = lines(size, every=1)
    return Batch(batch.keys, batch.values, batch.timestamps)


def test_one_blob_with_headers_and_one_without_are_one_input() -> None:
    _, _, plain = blobs_of(_plain(8))
    _, _, headed = blobs_of(lines(8, every=1))
    task = plain[0].task
    together = [blob for blob in (plain[0], *(one._replace(split=1) for one in headed)) if blob.task == task]
    batches = [run.records.to_batch() for run in gather(together)]
    found = [headers for batch in batches for headers in batch.headers_of_each]
    assert any(found)
    assert not all(found)

"""``LastChanges``: which change of a key counts, in whatever micro-batches they come, and beside rows from before.

The verb that it is in: ``tests/pond/test_feed_aggregates.py``.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond.processors import Materialized, StreamsBuilder, Topology
from millpond.processors.distribution.plan import make_plan
from millpond.processors.distribution.shape_of import shape_of
from millpond.processors.runtime.batches.batch import Batch
from millpond.processors.runtime.counters import CounterName
from millpond.processors.runtime.tasks.driver import TopologyDriver
from millpond.processors.verbs.encoding.ordered_rows import with_order
from millpond.processors.verbs.feeds.last_changes import KeptOrders, LastChanges
from millpond.stores.encoding.serdes import BYTES
from millpond.stores.evolution.matching import Declared, origins_of
from millpond.stores.specs.store_spec import StoreKind, StoreSpec


def topology(*, late: bool) -> Topology:
    """Return a table of rows, with or without the orders of their changes."""
    builder = StreamsBuilder(key_serde=BYTES, value_serde=BYTES)
    made = partial(LastChanges, KeptOrders("in-order", "rows") if late else None)
    changes = builder.stream("in").process(made, name="last", keeps_key=True, value_serde=BYTES)
    table = changes.to_table(Materialized("rows"))
    if late:
        table.handle.graph.use("last", [StoreSpec("in-order", StoreKind.KEY_VALUE, BYTES, BYTES), "rows"])
    table.to_stream().to("out")
    return builder.build()


def told(driver: TopologyDriver, *changes: tuple[bytes, bytes | None]) -> list[Any]:
    """Return what a micro-batch of changes of one key, each an order and a row, makes of it."""
    orders, rows = zip(*changes, strict=True)
    driver.pipe_inputs({"in": Batch([b"key"] * len(changes), with_order(orders, rows), [1] * len(changes))})
    return [record.value for record in driver.read("out")]


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
def test_older_changes_are_dropped_and_counted_and_equal_ones_are_one(backend: str) -> None:
    with TopologyDriver(topology(late=True), backend=backend) as driver:
        assert told(driver, (b"3", b"c"), (b"2", b"b"), (b"3", b"a")) == [b"c"]
        assert told(driver, (b"2", b"d"), (b"1", None)) == []
        assert driver.counters[f"last:{CounterName.DROPPED_OUT_OF_ORDER}"] == 1
        assert told(driver, (b"3", b"c")) == []
        assert told(driver, (b"3", b"b")) == told(driver, (b"3", None)) == []
        assert driver.counters[f"last:{CounterName.DROPPED_OUT_OF_ORDER}"] == 1
        assert told(driver, (b"3", b"d")) == [b"d"]
        assert told(driver, (b"4", None)) == [None]
        assert told(driver, (b"3", b"z")) == []
        assert told(driver, (b"4", b"a")) == [b"a"]


def test_rows_of_which_no_order_is_known_are_replaced_by_what_comes_first(tmp_path: Path) -> None:
    before, after = (shape_of(make_plan(topology(late=late), None, 2)) for late in (False, True))
    assert origins_of(before, after, Declared()).keys() == {"rows"}
    with TopologyDriver(topology(late=False), backend="lmdb", local_dir=tmp_path) as driver:
        assert told(driver, (b"5", b"e")) == [b"e"]
        assert told(driver, (b"2", b"b")) == [b"b"]
    with TopologyDriver(topology(late=True), backend="lmdb", local_dir=tmp_path) as driver:
        assert told(driver, (b"1", b"a")) == [b"a"]
        assert told(driver, (b"0", b"z")) == []

"""Stream-table joins of whole columns have the results, counts and stores that they have record by record."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import TopologyError, UserFunctionError
from millpond.processors import (
    Consumed,
    Joined,
    Materialized,
    StreamsBuilder,
    Task,
    Topology,
)
from millpond.processors.distribution import exchange, execution
from millpond.processors.distribution.exchange import BlobWriter, Run, gather
from millpond.processors.distribution.execution import Decoder, run_blobs
from millpond.processors.options.on_error import OnError
from millpond.processors.options.order import Order
from millpond.processors.runtime.batches.columns import Columns
from millpond.processors.runtime.failures import FailurePolicy
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from tests.drawing import tries

Record = tuple[Any, Any, int]
MicroBatch = tuple[list[Record], list[Record]]
"""Records of the table, and of the stream."""

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", "a", "b\0", None]),
    "bytes": (pa.binary(), [b"", b"\0a", b"\xff", None]),
    "int64": (pa.int32(), [-1, 0, 7, None]),
}
TOPICS = ("table", "in")


def sides(left: Any, right: Any) -> Any:
    return {"left": left, "right": right}


def columns_of_sides(left: Any, right: Any) -> Any:
    return pa.StructArray.from_arrays([left, right], ["left", "right"])


def join(
    key_serde: str, how: str, history: int | None, grace: int | None, order: Order, *, vectorized: bool, **given: Any
) -> Topology:
    consumed = Consumed(key_serde, "int64")
    kept = Materialized("kept") if history is None else Materialized.versioned("kept", history_retention=history)
    builder = StreamsBuilder(order=order)
    table = builder.table("table", consumed, kept)
    stream = builder.stream("in", consumed)
    method = stream.left_join if how == "left" else stream.join
    joiner = columns_of_sides if vectorized else sides
    method(table, joiner, Joined(key_serde, "int64", grace=grace, **given), vectorized=vectorized).to("out")
    return builder.build()


def fits(value: Any, other: Any) -> Any:
    """Return whether a record's value is a match for the table's, as objects or as columns."""
    if isinstance(value, pa.Array):
        return pc.greater_equal(pc.bit_wise_and(value, 3), pc.bit_wise_and(other, 3))
    return value & 3 >= other & 3


def run(
    topology: Topology, backend: str, batches: list[MicroBatch], key_type: pa.DataType, *, whole: bool
) -> list[Any]:
    """Return what comes out of each micro-batch, is counted, and is stored; ``whole``: as columns, in waves."""
    (part,) = topology.subtopologies
    decoders = {topic: Decoder(topic, None, None) for topic in TOPICS}
    seen: list[Any] = []
    with TemporaryDirectory() as directory, ExitStack() as opened:
        engines = {name: opened.enter_context(supplier(backend).open(Path(directory) / name)) for name in part.stores}
        for batch in batches:
            changes = {name: Transaction(engine) for name, engine in engines.items()}
            stores = {name: part.stores[name].open(changes[name]) for name in part.stores}
            task = Task(part, stores)
            blobs = list(blobs_of(part, batch, key_type))
            with nullcontext() if whole else mock.patch.object(execution, "gather", one_by_one):
                runs = [out.records["out"] for out in run_blobs(task, blobs, decoders, 0) if out.records]
            made = [found.to_batch() for found in runs]
            seen.append([row for one in made for row in zip(one.keys, one.values, one.timestamps, strict=True)])
            seen.append(sorted(task.counters.items()))
            for name in part.stores:
                stores[name].flush()
                changes[name].commit()
                seen.append(list(engines[name].scan()))
    return seen


def one_by_one(blobs: list[exchange.Blob], keep_order: Any, regroup: Any, *options: Any) -> Iterator[Run]:
    """Yield what ``gather`` gives where no runs are made longer, record by record."""
    for found in gather(blobs, keep_order, None, *options):
        for row in found.records.to_batch().rows():
            yield Run(found.input, row, settled=True)


def blobs_of(part: Any, batch: MicroBatch, key_type: pa.DataType) -> list[exchange.Blob]:
    places = list(part.sources)
    blobs = list[exchange.Blob]()
    for topic, records in zip(TOPICS, batch, strict=True):
        if records:
            keys, values, times = zip(*records, strict=True)
            columns = [pa.array(keys, key_type), pa.array(values, pa.int64()), pa.array(times, pa.int64())]
            table = pa.table(columns, names=["key", "value", "timestamp"])
            blobs.extend(BlobWriter(0).cut(table, 0, places.index(topic)))
    return blobs


@pytest.fixture
def always_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "COLUMNS_FROM", 1)


CASES: list[tuple[str, str, str, int | None, int | None]] = [
    ("string", "memory", "left", 1000, None),
    ("bytes", "lmdb", "inner", 1000, None),
    ("int64", "memory", "left", 4, None),
    ("string", "memory", "inner", None, None),
    ("int64", "memory", "left", None, None),
    ("string", "memory", "left", 1000, 3),
]
"""Serde of the keys, backend, kind of the join, history of the table, grace of the join."""


def micro_batches(key_serde: str) -> st.SearchStrategy[list[MicroBatch]]:
    record = st.tuples(st.sampled_from(KEYS[key_serde][1]), st.sampled_from([1, 2, None]), st.integers(0, 12))
    records = st.lists(record, max_size=8)
    return st.lists(st.tuples(records, records), min_size=1, max_size=3)


CONDITIONS: list[dict[str, Any]] = [
    {},
    {"where": fits},
    {"where": fits, "tolerance": 3},
    {"where": fits, "otherwise": "next", "tolerance": 3},
]


@settings(deadline=None, max_examples=tries(60))
@given(st.sampled_from(CASES), st.sampled_from(CONDITIONS), st.sampled_from(Order), st.booleans(), st.data())
def test_a_join_of_columns_is_the_join_of_their_records(
    case: tuple[str, str, str, int | None, int | None], given_: dict[str, Any], order: Order, vectorized: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    key_serde, backend, how, history, grace = case
    if history is None and "otherwise" in given_:
        given_ = {"where": fits}
    batches, key_type = data.draw(micro_batches(key_serde)), KEYS[key_serde][0]
    by_record = join(key_serde, how, history, grace, order, vectorized=False, **given_)
    expected = run(by_record, backend, batches, key_type, whole=False)
    topology = join(key_serde, how, history, grace, order, vectorized=vectorized, **given_)
    with mock.patch.object(exchange, "COLUMNS_FROM", 1):
        assert run(topology, backend, batches, key_type, whole=True) == expected


@pytest.mark.parametrize("history", [None, 2])
def test_values_are_passed_over_only_where_there_is_a_history_of_them(history: int | None) -> None:
    told = "nothing tells what was valid before" if history is None else "has a tolerance of 3 ms, but .* keeps only 2"
    with pytest.raises(TopologyError, match=told):
        join("string", "left", history, None, Order.TIME, vectorized=False, **CONDITIONS[-1])
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    with pytest.raises(TopologyError, match="cannot have otherwise='next': a global table has no history"):
        builder.stream("in").join(builder.global_table("all"), sides, Joined(**CONDITIONS[-1]))


def joined_with(joiner: Callable[..., Any], policy: OnError = OnError.FAIL) -> Task:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    stream, table = builder.stream("in"), builder.table("table", materialized=Materialized("kept"))
    stream.join(table, joiner, vectorized=True).to("out")
    (part,) = builder.build().subtopologies
    store = TimestampedKeyValueStore("kept", Transaction(supplier("memory").open(Path("unused"))), STRING, INT64)
    store.put_many(["a", "b"], [6, 0], [1, 1])
    return Task(part, {"kept": store}, policy=FailurePolicy(policy))


def columns_of(keys: str, values: list[int]) -> Columns:
    return Columns(pa.array(list(keys)), pa.array(values), np.arange(len(keys)))


def test_a_record_for_which_a_joiner_of_columns_fails_is_left_out_alone() -> None:
    task = joined_with(lambda keys, left, right: pc.divide(left, right), OnError.SKIP)
    task.process("in", columns_of("abac", [12, 1, 18, 1]))
    assert [value for run in task.take()["out"] for value in run.to_batch().values] == [2, 3]
    (counted,) = task.counters.items()
    assert counted[0].endswith(":dropped-user-error")
    assert counted[1] == 1


@pytest.mark.parametrize(
    ("joiner", "message"),
    [
        (lambda left, right: left[1:], "returned 0 values for 1 records"),
        (lambda left, right: 5, "returned a int, of which Arrow makes no array"),
    ],
)
def test_a_joiner_that_returns_something_else_than_a_value_for_each_record_is_refused(
    joiner: Callable[..., Any], message: str
) -> None:
    task = joined_with(joiner)
    with pytest.raises(UserFunctionError, match=f"operator 'KSTREAM-JOIN.*{message}.*key 'a', timestamp 0"):
        task.process("in", columns_of("aa", [1, 2]))

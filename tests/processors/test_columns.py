"""Records that come as Arrow columns have the results that they have as objects, to the record."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import CorruptStoreError, TopologyError, UserFunctionError
from millpond.processors import Batch, Consumed, Materialized, Produced, StreamsBuilder, Task, Topology, TopologyDriver
from millpond.processors.options.on_error import OnError
from millpond.processors.runtime.batches.columns import Columns, joined
from millpond.processors.runtime.failures import FailurePolicy
from millpond.stores.backend.registry import supplier
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.column_serdes import column_serde
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.typed.timestamped_columns import TimestampedColumns
from millpond.stores.typed.timestamped_keyvalue import TimestampedKeyValueStore
from tests.drawing import tries

Record = tuple[Any, Any, int]
Form = Callable[[list[Record]], Batch | Columns]

KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ä", "\0", None])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"a", b"\xff", None])),
    "int64": (pa.int32(), st.sampled_from([-(2**31), -1, 0, 7, None])),
    "msgpack": (pa.string(), st.sampled_from(["a", "b", None])),
}
SKIP = FailurePolicy(OnError.SKIP)
VALUES = st.sampled_from([1, 2, None])


def counting(key_serde: str, materialized: Materialized, *, olds: bool = False) -> Topology:
    builder = StreamsBuilder(key_serde=key_serde, value_serde="int64")
    counts = builder.stream("in", Consumed(key_serde, "int64")).group_by_key().count(materialized)
    if olds:
        counts = counts.filter(lambda key, count: count % 2 == 1)
    counts.to_stream().to("out", Produced(key_serde, "int64"))
    return builder.build()


def as_batch(records: list[Record]) -> Batch:
    return Batch(*map(list, zip(*records, strict=True)))


def as_columns(key_type: pa.DataType) -> Form:
    def made(records: list[Record]) -> Columns:
        keys, values, times = zip(*records, strict=True)
        return Columns(pa.array(keys, key_type), pa.array(values, pa.int64()), np.array(times))

    return made


def results(
    topology: Topology, backend: str, chunks: list[list[Record]], form: Form, policy: FailurePolicy | None = None
) -> Iterator[list[Any]]:
    """Yield what comes out of each micro-batch, and what is counted and stored at its end."""
    (part,) = topology.subtopologies
    with TemporaryDirectory() as directory, supplier(backend).open(Path(directory) / "store") as engine:
        for number in range(0, len(chunks), 2):
            transaction = Transaction(engine)
            stores = {name: spec.open(transaction) for name, spec in part.stores.items()}
            task = Task(part, stores, policy=policy)
            for chunk in chunks[number : number + 2]:
                task.process("in", form(chunk))
            task.flush()
            out = [run.to_batch() for run in task.take().get("out", [])]
            yield [record for run in out for record in zip(run.keys, run.values, run.timestamps, strict=True)]
            yield sorted(task.counters.items())
            for store in stores.values():
                store.flush()
            transaction.commit()
            yield list(engine.scan())


@pytest.mark.parametrize(
    ("key_serde", "backend"), [*((key_serde, "memory") for key_serde in KEYS), ("string", "lmdb"), ("int64", "rocksdb")]
)
@pytest.mark.parametrize(
    "topology",
    [
        lambda keys: counting(keys, Materialized("counts")),
        lambda keys: counting(keys, Materialized("counts").with_caching()),
        lambda keys: counting(keys, Materialized("counts"), olds=True),
        lambda keys: counting(keys, Materialized.versioned("counts", history_retention=9)),
    ],
    ids=["each update", "last update", "with old values", "versioned"],
)
def test_a_count_of_columns_is_the_count_of_their_records(
    topology: Callable[[str], Topology], key_serde: str, backend: str
) -> None:
    key_type, keys = KEYS[key_serde]
    record = st.tuples(keys, VALUES, st.integers(0, 20))

    @settings(deadline=None, max_examples=tries(20 if backend == "memory" else 10))
    @given(st.lists(st.lists(record, min_size=1, max_size=12), min_size=1, max_size=5))
    def check(chunks: list[list[Record]]) -> None:
        built = topology(key_serde)
        columns = list(results(built, backend, chunks, as_columns(key_type)))
        assert columns == list(results(built, backend, chunks, as_batch))

    check()


def reduced(value_serde: str, reducer: Any, *, caching: bool, vectorized: bool) -> Topology:
    builder = StreamsBuilder(key_serde="string", value_serde=value_serde)
    kept = Materialized("reduced", caching=caching)
    builder.stream("in").group_by_key().reduce(reducer, kept, vectorized=vectorized).to("out")
    return builder.build()


@settings(deadline=None, max_examples=tries(25))
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "!", None]), st.integers(0, 9)), min_size=2
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_a_reducer_of_columns_gives_what_one_of_single_records_gives(chunks: list[list[Record]], caching: bool) -> None:
    def put_behind(texts: Any, more: Any) -> Any:
        if "!" in more.to_pylist():
            raise ZeroDivisionError("an exclamation")
        return pc.binary_join_element_wise(texts, more, "")

    def form(records: list[Record]) -> Columns:
        keys, values, times = zip(*records, strict=True)
        return Columns(pa.array(keys), pa.array(values, pa.string()), np.array(times))

    def one_behind(text: str, more: str) -> str:
        return put_behind(pa.array([text]), pa.array([more]))[0].as_py()  # type: ignore[no-any-return]

    by_column = reduced("string", put_behind, caching=caching, vectorized=True)
    by_record = reduced("string", one_behind, caching=caching, vectorized=False)
    expected = list(results(by_record, "memory", chunks, as_batch, SKIP))
    assert list(results(by_column, "memory", chunks, form, SKIP)) == expected
    assert list(results(by_column, "memory", chunks, as_batch, SKIP)) == expected


def test_a_reducer_of_columns_needs_values_that_have_columns() -> None:
    with pytest.raises(TopologyError, match="the serde 'msgpack' have none; name the serde"):
        reduced("msgpack", pc.add, caching=True, vectorized=True)


@settings(deadline=None)
@given(st.lists(st.tuples(KEYS["string"][1], VALUES, st.integers(0, 20)), min_size=2, max_size=9), st.data())
def test_columns_and_objects_may_come_in_turn(records: list[Record], data: st.DataObject) -> None:
    chunks = [[record] for record in records]

    def either(chunk: list[Record]) -> Batch | Columns:
        return as_columns(pa.string())(chunk) if data.draw(st.booleans()) else as_batch(chunk)

    topology = counting("string", Materialized("counts").with_caching())
    assert list(results(topology, "memory", chunks, either)) == list(results(topology, "memory", chunks, as_batch))


def test_a_function_that_fails_for_a_record_of_columns_leaves_out_that_record_alone() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    builder.stream("in", Consumed("string", "int64")).map_values(lambda value: 6 // value).to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {}, policy=FailurePolicy(OnError.SKIP))
    task.process("in", as_columns(pa.string())([("a", 1, 1), ("b", 0, 2), ("c", 3, 3)]))
    assert [value for run in task.take()["out"] for value in run.to_batch().values] == [6, 2]
    assert task.counters == {"KSTREAM-MAPVALUES-0000000001:dropped-user-error": 1}


def test_runs_are_joined_as_columns_only_if_all_are_columns_of_one_type() -> None:
    text, numbers = as_columns(pa.string())([("a", 1, 1)]), as_columns(pa.int32())([(7, 2, 2)])
    assert isinstance(joined([text, text]), Columns)
    assert joined([text, text]).to_batch().keys == ["a", "a"]
    for other in (numbers, numbers.to_batch()):
        mixed = joined([text, other])
        assert isinstance(mixed, Batch)
        assert (mixed.keys, mixed.values, mixed.timestamps) == (["a", 7], [1, 2], [1, 2])


def test_a_damaged_row_is_named_although_it_was_read_with_others() -> None:
    transaction = Transaction(supplier("memory").open(Path("unused")))
    store = TimestampedKeyValueStore("counts", transaction, STRING, INT64)
    store.put("a", 1, 5)
    transaction.put(b"\x01b", bytes(11))
    keys, values = column_serde(STRING), column_serde(INT64)
    assert keys is not None
    assert values is not None
    columns = TimestampedColumns(store, keys, values)
    with pytest.raises(CorruptStoreError, match="store 'counts' holds a value that cannot be read"):
        columns.get(pa.array(["a", "b"]))
    transaction.rollback()


def vectorized(*, whole_columns: bool) -> Topology:
    """Filter and map records and give them other keys, by functions of columns or of single records."""
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    stream = builder.stream("in", Consumed("string", "int64"))
    if whole_columns:
        stream = stream.filter(lambda keys, values: pc.greater(values, pa.scalar(1)), vectorized=True)
        stream = stream.filter_not(lambda keys, values: pc.equal(keys, pa.scalar("b")), vectorized=True)
        stream = stream.map_values(lambda keys, values: pc.add(pc.binary_length(keys), values), vectorized=True)
        stream = stream.map_values(lambda values: values.to_numpy(zero_copy_only=False) * 2, vectorized=True)
        stream = stream.select_key(lambda keys, values: values.cast(pa.string()), vectorized=True)
    else:
        stream = stream.filter(lambda key, value: value is not None and value > 1)
        stream = stream.filter_not(lambda key, value: key == "b")
        stream = stream.map_values(lambda key, value: len(key.encode()) + value)
        stream = stream.map_values(lambda value: value * 2)
        stream = stream.select_key(lambda key, value: str(value))
    stream.to("out")
    return builder.build()


@settings(deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "ä", ""]), st.sampled_from([1, 2, 3, None]), st.integers(0, 9)),
            min_size=1,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_functions_of_columns_give_what_those_of_single_records_give(chunks: list[list[Record]]) -> None:
    expected = list(results(vectorized(whole_columns=False), "memory", chunks, as_batch))
    for topology, form in (
        (vectorized(whole_columns=True), as_columns(pa.string())),
        (vectorized(whole_columns=False), as_columns(pa.string())),
    ):
        assert list(results(topology, "memory", chunks, form)) == expected


def test_a_function_of_columns_that_returns_too_few_values_is_refused() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    builder.stream("in").map_values(lambda values: values[1:], vectorized=True).to("out")
    (part,) = builder.build().subtopologies
    with pytest.raises(UserFunctionError, match=r"MAPVALUES.*returned 0 values for 1 records; return one for each"):
        Task(part, {}).process("in", as_columns(pa.string())([("a", 1, 1), ("b", 2, 2)]))


def test_a_failing_record_among_columns_of_a_vectorized_function_is_left_out_alone() -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    builder.stream("in").map_values(lambda values: pc.divide(6, values), vectorized=True).to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {}, policy=FailurePolicy(OnError.SKIP))
    task.process("in", as_columns(pa.string())([("a", 1, 1), ("b", 0, 2), ("c", 3, 3)]))
    assert [value for run in task.take()["out"] for value in run.to_batch().values] == [6, 2]
    assert task.counters == {"KSTREAM-MAPVALUES-0000000001:dropped-user-error": 1}


@pytest.mark.parametrize("form", [as_batch, as_columns(pa.string())], ids=["objects", "columns"])
def test_a_table_of_the_updates_of_another_has_old_values_of_its_own(form: Form) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="int64")
    counts = builder.stream("in").group_by_key().count(Materialized("counts").with_caching())
    counts.to_stream(changes_only=True).to("counted")
    table = counts.to_stream().merge(builder.stream("others")).to_table(Materialized("table"))
    table.to_stream(changes_only=True).to("out")
    with TopologyDriver(builder.build()) as driver:
        for topic, value in (("in", 1), ("others", 2), ("in", 1), ("others", 7)):
            driver.pipe_batch(topic, form([("a", value, 0)]))
        assert [record.value for record in driver.read("out")] == [1, 2, 7]

"""The in-process driver: micro-batches, repartition topics, restarts, failures."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import CorruptStoreError, FormatError, UserFunctionError
from millpond.processors import (
    Batch,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Record,
    RecordProcessor,
    StreamsBuilder,
    Task,
    Topology,
    TopologyDriver,
)
from millpond.stores.backend.registry import supplier
from millpond.stores.encoding.keys import DATA, TERMS_ROW
from millpond.stores.encoding.serdes import INT64, STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

PERSISTENT = ["lmdb", "rocksdb"]
PLAIN = StoreSpec("sums", StoreKind.KEY_VALUE, STRING, INT64)
TIMESTAMPED = StoreSpec("sums", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)


def _count() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts")).to("out")
    return builder.build()


def _values(driver: TopologyDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in driver.read(topic)]


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_driver_on_the_same_directory_goes_on_from_the_state_of_the_last(backend: str, tmp_path: Path) -> None:
    for expected in ([1, 2], [3, 4], [5, 6]):
        with TopologyDriver(_count(), backend=backend, local_dir=tmp_path) as driver:
            driver.pipe("in", "a", "x", 1)
            driver.pipe("in", "a", "x", 1)
            assert _values(driver) == expected


class Adder(RecordProcessor):
    """Keeps the sum of each key's values."""

    def open(self) -> None:
        self.sums = self.context.store("sums")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.sums.put(key, (self.sums.get(key) or 0) + value)


class Latest(RecordProcessor):
    """Keeps each key's last value with its timestamp."""

    def open(self) -> None:
        self.latest = self.context.store("sums")

    def process_record(self, key: Any, value: Any, timestamp: int) -> None:
        self.latest.put(key, value, timestamp)


def _sums(spec: StoreSpec, backend: str, directory: Path, processor: type[RecordProcessor] = Adder) -> TopologyDriver:
    builder = StreamsBuilder()
    builder.stream("in").process(processor, stores=[spec])
    return TopologyDriver(builder.build(), backend=backend, local_dir=directory)


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_plain_store_made_timestamped_reads_its_old_values_with_the_unknown_timestamp(
    backend: str, tmp_path: Path
) -> None:
    with _sums(PLAIN, backend, tmp_path) as driver:
        driver.pipe_all("in", [("a", 1, 10), ("b", 2, 20), ("a", 3, 30)])
    for _ in range(2):
        with _sums(TIMESTAMPED, backend, tmp_path) as driver:
            assert driver.store("sums").get("a") == ValueAndTimestamp(4, -1)
            assert driver.store("sums").get("b") == ValueAndTimestamp(2, -1)


@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_timestamped_store_made_plain_is_refused_and_keeps_its_values(backend: str, tmp_path: Path) -> None:
    with _sums(PLAIN, backend, tmp_path) as driver:
        driver.pipe("in", "a", 1, 10)
    with _sums(TIMESTAMPED, backend, tmp_path, Latest) as driver:
        driver.pipe("in", "b", 2, 20)
    with pytest.raises(FormatError, match=r"sums-v2 cannot become sums: the row b'\\x01\S+' has a timestamp"):
        _sums(PLAIN, backend, tmp_path)
    with _sums(TIMESTAMPED, backend, tmp_path) as driver:
        assert driver.store("sums").get("a") == ValueAndTimestamp(1, -1)
        assert driver.store("sums").get("b") == ValueAndTimestamp(2, 20)


@pytest.mark.parametrize("spec", [PLAIN, TIMESTAMPED], ids=["plain", "timestamped"])
@pytest.mark.parametrize("backend", PERSISTENT)
def test_a_store_of_an_unknown_format_version_is_refused_by_number_and_left_alone(
    backend: str, spec: StoreSpec, tmp_path: Path
) -> None:
    with _sums(PLAIN, backend, tmp_path) as driver:
        driver.pipe("in", "a", 1, 10)
    (directory,) = tmp_path.rglob("sums")
    directory.rename(directory.with_name("sums-v9"))
    with pytest.raises(FormatError, match="sums-v9 is in a format version that this release does not know"):
        _sums(spec, backend, tmp_path)
    assert [path.name for path in directory.parent.iterdir()] == ["sums-v9"]


def test_without_a_directory_every_driver_begins_anew() -> None:
    for _ in range(2):
        with TopologyDriver(_count(), backend="lmdb") as driver:
            driver.pipe("in", "a", "x", 1)
            assert _values(driver) == [1]


@pytest.mark.parametrize("backend", ["memory", *PERSISTENT])
def test_a_micro_batch_that_fails_leaves_no_trace(backend: str) -> None:
    builder = StreamsBuilder()

    def fragile(value: Any) -> Any:
        if value == "bad":
            raise ZeroDivisionError
        return value

    counts = builder.stream("in").group_by_key().count(Materialized("counts"))
    counts.to("out")
    counts.to_stream().map_values(lambda count: fragile("bad" if count == 3 else count)).to("checked")
    with TopologyDriver(builder.build(), backend=backend) as driver:
        driver.pipe("in", "a", "x", 1)
        with pytest.raises(UserFunctionError):
            driver.pipe_all("in", [("a", "x", 2), ("a", "x", 3)])
        assert driver.store("counts").get("a").value == 1
        assert _values(driver) == [1]
        driver.pipe("in", "a", "x", 4)
        assert _values(driver) == [2]


def test_what_waits_for_a_repartition_topic_is_forgotten_with_its_micro_batch() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in").select_key(lambda key, value: value, key_serde="int64")
    numbers.group_by_key().count().to("out")
    with TopologyDriver(builder.build()) as driver:
        with pytest.raises(UserFunctionError, match=r"operator 'KSTREAM-SINK-.* of task 0_0"):
            driver.pipe_all("in", [("a", 1, 1), ("a", "no number", 2)])
        driver.pipe("in", "a", 1, 3)
        assert _values(driver) == [1]


def test_records_travel_through_their_serdes() -> None:
    builder = StreamsBuilder()
    pairs = builder.stream("in").map(lambda key, value: (value, (key, value)))
    grouped = pairs.group_by_key(Grouped("string", "json"))
    grouped.aggregate(list, lambda key, value, found: [*found, value], Materialized(value_serde="json")).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 1)
        assert _values(driver) == [[["a", "x"]]]


def test_an_input_of_several_topics_is_taken_in_the_order_of_time() -> None:
    builder = StreamsBuilder()
    table = builder.table("table")
    joined = builder.stream("stream").left_join(table, lambda left, right: [left, right])
    joined.to("out", Produced(value_serde="msgpack"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_inputs(
            {"stream": Batch(["a"] * 3, [1, 2, 3], [1, 5, 9]), "table": Batch(["a", "a"], ["x", "y"], [2, 6])}
        )
        assert _values(driver) == [[1, None], [2, "x"], [3, "y"]]


def test_records_may_come_back_to_the_tasks_that_wrote_them() -> None:
    """Both ends of the path use the same table."""
    builder = StreamsBuilder()
    users = builder.table("users")
    named = builder.stream("in").left_join(users, lambda value, name: value)
    rekeyed = named.select_key(lambda key, value: value)
    again = rekeyed.left_join(users, lambda value, name: [value, name])
    again.to("out", Produced(value_serde="msgpack"))
    topology = builder.build()
    assert len(topology.subtopologies) == 1
    assert topology.loops == topology.internal_topics
    with TopologyDriver(topology) as driver:
        driver.pipe("users", "ann", "Ann", 1)
        driver.pipe_all("in", [("x", "ann", 2), ("x", "ben", 3)])
        assert _values(driver) == [["ann", "Ann"], ["ben", None]]


def test_a_chain_of_repartition_topics_has_no_loops() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").select_key(lambda k, v: v).group_by_key().count()
    counts.to_stream().select_key(lambda k, v: str(v)).group_by_key().count().to("out")
    topology = builder.build()
    assert [part.index for part in topology.subtopologies] == [0, 1, 2]
    assert not topology.loops
    with TopologyDriver(topology) as driver:
        driver.pipe_all("in", [("x", "a", 1), ("x", "b", 2), ("x", "a", 3)])
        assert [(record.key, record.value) for record in driver.read("out")] == [("1", 1), ("1", 2), ("2", 1)]


def test_sub_topologies_that_share_nothing_are_apart() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("out-a")
    builder.stream("b", Consumed(value_serde="json")).to("out-b")
    assert [sorted(part.sources) for part in builder.build().subtopologies] == [["a"], ["b"]]


def test_with_caching_only_the_last_update_of_a_key_comes_out_of_a_micro_batch() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(Materialized("counts").with_caching()).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("a", "x", 1), ("b", "x", 2), ("a", "x", 3)])
        assert [tuple(record) for record in driver.read("out")] == [("a", 2, 3), ("b", 1, 2)]


def test_closing_twice_is_no_error() -> None:
    driver = TopologyDriver(_count(), backend="rocksdb")
    driver.pipe("in", "a", "x", 1)
    driver.close()
    driver.close()


@pytest.fixture
def task() -> Iterator[Task]:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: value > 0).to("out")
    (part,) = builder.build().subtopologies
    task = Task(part, {}, 7)
    yield task
    task.close()


def test_a_task_is_named_after_its_sub_topology_and_partition(task: Task) -> None:
    assert task.task_id == "0_7"


def test_what_a_task_gives_is_taken_once(task: Task) -> None:
    task.process("in", Batch(["a", "b"], [1, -1], [5, 6]))
    (taken,) = task.take()["out"]
    assert (taken.keys, taken.values, taken.timestamps) == (["a"], [1], [5])
    assert task.take() == {}


def test_an_empty_batch_is_nothing(task: Task) -> None:
    task.process("in", Batch([], [], []))
    assert task.take() == {}


@pytest.mark.parametrize("damaged", [DATA + b"tea", TERMS_ROW], ids=["an entry", "the terms"])
def test_what_is_advised_for_a_damaged_row_is_taken(tmp_path: Path, damaged: bytes) -> None:
    def counted(driver: TopologyDriver, times: int) -> list[Record]:
        for number in range(times):
            driver.pipe("in", "tea", "x", number)
        return driver.read("out")

    builder = StreamsBuilder(key_serde="string", value_serde="string")
    builder.stream("in").group_by_key().count().to("out")
    topology = builder.build()
    with TopologyDriver(topology, backend="lmdb", local_dir=tmp_path) as driver:
        right = counted(driver, 3)
    (directory,) = {path.parent for path in tmp_path.rglob("data.mdb")}
    with supplier("lmdb").open(directory) as backend:
        backend.write({damaged: b""})
    with pytest.raises(CorruptStoreError) as found, TopologyDriver(topology, backend="lmdb", local_dir=tmp_path) as old:
        counted(old, 1)
    (place,) = tmp_path.iterdir()
    assert found.value.__notes__ == [f"close the driver and delete {place}, and give all records to a new one"]
    shutil.rmtree(place)
    with TopologyDriver(topology, backend="lmdb", local_dir=tmp_path) as driver:
        assert counted(driver, 3) == right


@pytest.mark.parametrize(
    ("serde", "convert"), [("string", None), ("int64", None), ("string", str)], ids=["neither", "serde", "value"]
)
def test_what_is_advised_for_a_value_that_a_serde_cannot_write_is_taken(serde: str, convert: Any) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde=serde)
    numbers = builder.stream("in")
    texts = numbers if convert is None else numbers.map_values(convert)
    texts.group_by_key().reduce(max).to("out")
    with TopologyDriver(builder.build()) as driver:
        if (serde, convert) == ("string", None):
            with pytest.raises(UserFunctionError, match="choose another serde or convert the value first"):
                driver.pipe("in", "tea", 5, 1)
        else:
            driver.pipe("in", "tea", 5, 1)
            assert _values(driver) == [5 if convert is None else "5"]

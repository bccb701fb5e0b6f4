"""Aggregations of grouped streams, without windows."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Consumed,
    Grouped,
    KTable,
    Materialized,
    Record,
    StreamsBuilder,
    TopologyDriver,
)
from millpond.stores.specs.store_spec import StoreKind
from tests.processors.driving import Build, Input, drive, last_values, random_records


def rows(*given: tuple[Any, Any, int]) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in given]


def counted(**options: Any) -> Build:
    return lambda builder: builder.stream("in").group_by_key().count(Materialized(**options))


def listed(**options: Any) -> Build:
    """Return the values of each key, as a list that the aggregator changes in place."""

    def add(key: Any, value: Any, values: list[Any]) -> list[Any]:
        values.append(value)
        return values

    return lambda builder: (
        builder.stream("in").group_by_key().aggregate(list, add, Materialized(value_serde="json", **options))
    )


def test_a_count_counts_and_its_time_is_the_latest() -> None:
    output = drive(counted(), rows(("k", "x", 5), ("k", "x", 3), ("j", "x", 4), ("k", "x", 9)))
    assert output == [Record("k", 1, 5), Record("k", 2, 5), Record("j", 1, 4), Record("k", 3, 9)]


def test_reduce_takes_the_first_value_as_it_is() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return builder.stream("in").group_by_key().reduce(lambda total, value: total + value)

    assert [record.value for record in drive(build, rows(("k", "a", 1), ("k", "b", 2)))] == ["a", "ab"]


def test_records_without_key_or_value_are_dropped_and_counted() -> None:
    builder = StreamsBuilder()
    counted()(builder).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("k", "x", 1), ("k", None, 2), (None, "x", 3)])
        assert driver.read("out") == [Record("k", 1, 1)]
        assert sum(n for name, n in driver.counters.items() if name.endswith(":dropped-null")) == 2


@pytest.mark.parametrize("size", [1, 2, 4])
def test_an_aggregate_that_becomes_none_is_deleted_and_the_next_record_begins_anew(size: int) -> None:
    def add(key: Any, value: Any, total: str) -> str | None:
        return None if value == "clear" else total + value

    def build(builder: StreamsBuilder) -> KTable:
        return builder.stream("in").group_by_key().aggregate(str, add, Materialized(value_serde="string"))

    output = drive(build, rows(("k", "a", 9), ("k", "clear", 5), ("k", "b", 3)), size=size)
    assert output == [Record("k", "a", 9), Record("k", None, 9), Record("k", "b", 3)]


@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("seed", range(4))
def test_a_micro_batch_makes_the_same_updates_as_its_records_one_by_one(seed: int, make: Any) -> None:
    records = random_records(seed, 200)
    for options in ({}, {"key_serde": "string"}):
        assert drive(make(**options), records, size=17) == drive(make(**options), records)


@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("seed", range(4))
def test_with_caching_a_micro_batch_emits_each_key_s_last_update(seed: int, make: Any) -> None:
    records = random_records(seed, 200)
    updates = drive(make(), records)
    output = drive(make(caching=True), records, size=200)
    assert sorted(output) == sorted({record.key: record for record in updates}.values())


def test_keys_of_any_serde_are_told_apart_by_their_bytes() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        keyed = builder.stream("in").group_by(lambda key, value: [key, len(value)], Grouped("json"))
        return keyed.count()

    records = rows(("a", "x", 1), ("a", "yy", 2), ("a", "z", 3))
    for size in (1, 3):
        output = drive(build, records, size=size)
        assert [(record.key, record.value) for record in output] == [(["a", 1], 1), (["a", 2], 1), (["a", 1], 2)]


@pytest.mark.parametrize("seed", range(4))
def test_with_caching_an_aggregate_of_an_aggregate_has_each_row_once(seed: int) -> None:
    def build(builder: StreamsBuilder) -> KTable:
        counts = builder.stream("in").group_by_key().count(Materialized(caching=True))
        return counts.group_by(lambda key, count: (str(count % 3), count), Grouped("string", "int64")).count()

    records = random_records(seed, 100, keys="abcdefgh")
    counts = Counter(record.key for record in records)
    expected = Counter(str(count % 3) for count in counts.values())
    output = last_values(drive(build, records, size=9))
    assert {group: number for group, number in output.items() if number} == expected


def test_without_caching_the_value_before_a_first_update_is_the_initializer_s() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        counts = builder.stream("in").group_by_key().count()
        return counts.group_by(lambda key, count: (str(count), count), Grouped("string", "int64")).count()

    assert drive(build, rows(("k", "x", 5))) == [Record("0", None, 5), Record("1", 1, 5)]


def test_all_aggregations_of_a_grouped_stream_share_one_repartition_topic() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by(lambda key, value: value)
    grouped.count().to("counts")
    grouped.reduce(lambda total, value: total).to("values")
    topology = builder.build()
    assert len(topology.internal_topics) == 1
    with TopologyDriver(topology) as driver:
        driver.pipe_all("in", [("a", "x", 1), ("b", "x", 2)])
        assert driver.read("counts") == [Record("x", 1, 1), Record("x", 2, 2)]
        assert driver.read("values") == [Record("x", "x", 1), Record("x", "x", 2)]


def test_a_result_older_than_a_versioned_store_s_history_is_neither_kept_nor_forwarded() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return builder.stream("in").group_by_key().count(Materialized.versioned(history_retention=50))

    output = drive(build, rows(("a", "x", 10), ("b", "x", 100), ("a", "x", 20), ("a", "x", 60)))
    assert output == [Record("a", 1, 10), Record("b", 1, 100), Record("a", 2, 60)]


def test_a_store_that_keeps_no_timestamps_gives_results_the_times_of_their_last_records() -> None:
    output = drive(counted(kind=StoreKind.KEY_VALUE), rows(("a", "x", 10), ("a", "x", 5)))
    assert output == [Record("a", 1, 10), Record("a", 2, 5)]


def test_a_store_of_windows_cannot_hold_an_aggregation_by_key() -> None:
    with pytest.raises(TopologyError, match="timestamped-key-value or versioned or key-value"):
        counted(kind=StoreKind.SESSION, retention=10)(StreamsBuilder())


def test_a_result_whose_serde_is_not_known_is_refused() -> None:
    stream = StreamsBuilder(value_serde=None).stream("in", Consumed("string", "string")).group_by_key()
    with pytest.raises(TopologyError, match=r"no value serde.* or as StreamsBuilder\(value_serde"):
        stream.aggregate(list, lambda key, value, values: values)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_after_a_restart_it_goes_on_where_it_was(backend: str, tmp_path: Path) -> None:
    records = random_records(2, 100)
    output = drive(listed(), records, size=5, backend=backend, local_dir=tmp_path, restart_every=15)
    assert output == drive(listed(), records)

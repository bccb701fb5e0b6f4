"""The serdes, windowed keys and stores that a port from Kafka Streams meets (docs/coming-from-kafka-streams.md)."""

import pytest

from millpond.errors import UserFunctionError
from millpond.processors import (
    Consumed,
    Grouped,
    KTable,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.options.windowed_serdes import TimeWindowedSerde
from millpond.stores import Windowed
from millpond.stores.encoding.serdes import serde
from millpond.stores.typed.timestamped_keyvalue import ValueAndTimestamp

TEXT = Consumed("string", "string")


def hourly(builder: StreamsBuilder) -> KTable:
    return builder.stream("in", TEXT).group_by_key().windowed_by(TimeWindows(60)).count(Materialized("hourly"))


@pytest.mark.parametrize("named", [None, "int64"])
def test_map_values_keeps_the_serde_until_another_is_named(named: str | None) -> None:
    builder = StreamsBuilder()
    lengths = builder.stream("in", TEXT).map_values(len, value_serde=named)
    assert serde(lengths.value_serde or "bytes").name == (named or "string")
    lengths.group_by_key().reduce(max).to("out")
    with TopologyDriver(builder.build()) as driver:
        if named:
            driver.pipe("in", "a", "four", 1)
            assert driver.read("out") == [("a", 4, 1)]
        else:
            with pytest.raises(UserFunctionError, match="key 'a', timestamp 1, value 4"):
                driver.pipe("in", "a", "four", 1)


def test_the_keys_of_windows_have_a_serde_of_their_own_from_the_beginning() -> None:
    builder = StreamsBuilder()
    counts = hourly(builder)
    assert isinstance(counts.key_serde, TimeWindowedSerde)
    counts.to_stream().repartition()
    counts.to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 61)
        ((key, count, _),) = driver.read("out")
    assert (key, key.key, key.start, key.end, count) == (Windowed("a", 60, 120), "a", 60, 120, 1)


@pytest.mark.parametrize("named", [None, "string"])
def test_select_key_of_a_windowed_table_s_updates_has_to_say_how_the_new_keys_become_bytes(named: str | None) -> None:
    builder = StreamsBuilder()
    updates = hourly(builder).to_stream()
    by_user = updates.select_key(lambda window, count: window.key, key_serde=named)
    by_user.group_by_key(Grouped(value_serde="int64")).reduce(max).to("out", Produced("string", "int64"))
    with TopologyDriver(builder.build()) as driver:
        if named:
            driver.pipe_all("in", [("a", "x", 1), ("a", "y", 2), ("a", "z", 61)])
            assert [record.value for record in driver.read("out")] == [1, 2, 2]
        else:
            with pytest.raises(UserFunctionError, match=r"is no windowed key; .* select_key\(\.\.\., key_serde="):
                driver.pipe("in", "a", "x", 1)


def test_stores_of_tables_give_values_with_their_timestamps_and_get_value_the_value_alone() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(Materialized("counts")).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 7)
        counts = driver.store("counts")
        assert counts.get("a") == ValueAndTimestamp(1, 7)
        assert (counts.get("a").value, counts.get_value("a"), counts.get_value("b")) == (1, 1, None)
        assert list(counts.scan()) == [("a", ValueAndTimestamp(1, 7))]


def test_stores_of_windows_do_the_same() -> None:
    builder = StreamsBuilder()
    hourly(builder).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("in", "a", "x", 61)
        assert driver.store("hourly").fetch("a", 60) == ValueAndTimestamp(1, 61)

"""Cogrouped streams: one aggregate of several streams, each with its own aggregator (KIP-150)."""

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    CogroupedKStream,
    KTable,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
)
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import Build, Input, drive, last_values, random_records

TOPICS = ("clicks", "buys")


def taking(sign: str) -> Any:
    return lambda key, value, total: total + sign + value


def joining(key: Any, left: str, right: str) -> str:
    return f"{left}|{right}"


def cogrouped(builder: StreamsBuilder) -> CogroupedKStream:
    clicks, buys = (builder.stream(topic).group_by_key() for topic in TOPICS)
    return clicks.cogroup(taking("c")).cogroup(buys, taking("b"))


def text(**options: Any) -> Materialized:
    return Materialized(value_serde="string", **options)


def plain(builder: StreamsBuilder) -> KTable:
    return cogrouped(builder).aggregate(str, text())


def in_windows(windows: TimeWindows | SlidingWindows, **options: Any) -> Build:
    return lambda builder: cogrouped(builder).windowed_by(windows).aggregate(str, text(**options))


def in_sessions(builder: StreamsBuilder) -> KTable:
    return cogrouped(builder).windowed_by(SessionWindows(10, grace=100)).aggregate(str, joining, text())


def test_every_stream_s_values_go_through_its_own_aggregator() -> None:
    records = [Input("clicks", "k", "1", 5), Input("buys", "k", "2", 3), Input("clicks", "k", "3", 9)]
    assert drive(plain, records) == [Record("k", "c1", 5), Record("k", "c1b2", 5), Record("k", "c1b2c3", 9)]


@pytest.mark.parametrize("seed", range(8))
def test_the_aggregate_is_the_fold_of_all_records_in_the_order_in_which_they_came(seed: int) -> None:
    records = random_records(seed, 200, topics=TOPICS)
    totals: dict[Any, str] = {}
    for record in records:
        totals[record.key] = totals.get(record.key, "") + record.topic[0] + record.value
    assert last_values(drive(plain, records, size=7)) == totals


def test_windows_hold_the_values_of_all_streams() -> None:
    records = [Input("clicks", "k", "1", 5), Input("buys", "k", "2", 3), Input("clicks", "k", "3", 12)]
    expected = {Windowed("k", 0, 10): "c1b2", Windowed("k", 10, 20): "c3"}
    assert last_values(drive(in_windows(TimeWindows(10)), records)) == expected


def test_sliding_windows_hold_the_values_of_all_streams() -> None:
    records = [Input("clicks", "k", "1", 50), Input("buys", "k", "2", 53)]
    expected = {Windowed("k", 40, 50): "c1", Windowed("k", 43, 53): "c1b2", Windowed("k", 51, 61): "b2"}
    assert last_values(drive(in_windows(SlidingWindows(10)), records)) == expected


def test_sessions_of_all_streams_are_merged() -> None:
    records = [Input("clicks", "k", "1", 0), Input("buys", "k", "2", 15), Input("clicks", "k", "3", 8)]
    assert last_values(drive(in_sessions, records)) == {Windowed("k", 0, 15): "|c1|b2c3"}


def test_each_stream_has_its_own_time_so_the_other_being_ahead_makes_no_record_late() -> None:
    records = [Input("clicks", "k", "1", 10_000), Input("buys", "k", "2", 5)]
    output = drive(in_windows(TimeWindows(10)), records)
    assert output[-1] == Record(Windowed("k", 0, 10), "b2", 5)


@pytest.mark.parametrize("build", [plain, in_windows(TimeWindows(20, grace=10)), in_sessions])
@pytest.mark.parametrize("seed", range(4))
def test_a_micro_batch_makes_the_same_updates_as_its_records_one_by_one(seed: int, build: Build) -> None:
    records = random_records(seed, 150, topics=TOPICS)
    assert drive(build, records, size=11) == drive(build, records)


@pytest.mark.parametrize("seed", range(4))
def test_with_caching_a_micro_batch_emits_the_last_update_of_all_streams(seed: int) -> None:
    def cached(builder: StreamsBuilder) -> KTable:
        return cogrouped(builder).aggregate(str, text(caching=True))

    records = random_records(seed, 150, topics=TOPICS)
    ordered = sorted(records, key=lambda record: record.topic)
    output = drive(cached, ordered, size=len(records))
    assert last_values(output) == last_values(drive(plain, ordered))


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_after_a_restart_it_goes_on_where_it_was(backend: str, tmp_path: Path) -> None:
    records = random_records(7, 120, topics=TOPICS)
    build = in_windows(TimeWindows(20, grace=10))
    output = drive(build, records, size=5, backend=backend, local_dir=tmp_path, restart_every=15)
    assert output == drive(build, records)


def test_streams_of_another_builder_are_refused() -> None:
    ours, theirs = (StreamsBuilder().stream("in").group_by_key() for _ in range(2))
    with pytest.raises(TopologyError, match="different builders"):
        ours.cogroup(taking("a")).cogroup(theirs, taking("b"))


def test_streams_whose_keys_changed_travel_to_the_tasks_of_their_keys() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        clicks = builder.stream("clicks").group_by(lambda key, value: value[0])
        buys = builder.stream("buys").group_by(lambda key, value: value[0])
        return clicks.cogroup(taking("c")).cogroup(buys, taking("b")).aggregate(str, text())

    records = [Input("clicks", "k", "x1", 5), Input("buys", "j", "x2", 6)]
    assert last_values(drive(build, records)) == {"x": "cx1bx2"}

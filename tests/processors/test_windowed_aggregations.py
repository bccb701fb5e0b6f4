"""Tumbling, hopping and sliding windows against oracles that look at all records; final results; restarts."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from millpond.errors import SerdeError, TopologyError, UserFunctionError
from millpond.processors import (
    CumulativeWindows,
    EmitStrategy,
    Grouped,
    KTable,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindowedKStream,
    TimeWindows,
    TopologyDriver,
)
from millpond.processors.options.windowed_serdes import SessionWindowedSerde, TimeWindowedSerde
from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import Build, Input, drive, last_values, random_records

TUMBLING = TimeWindows(20, grace=15)
HOPPING = TimeWindows(20, advance=6, grace=15)
SLIDING = SlidingWindows(20, grace=15)
KINDS: dict[str, TimeWindows | SlidingWindows] = {"tumbling": TUMBLING, "hopping": HOPPING, "sliding": SLIDING}


def rows(*given: tuple[Any, Any, int]) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in given]


def windowed(
    builder: StreamsBuilder, windows: TimeWindows | SlidingWindows, final: bool = False
) -> TimeWindowedKStream:
    stream = builder.stream("in").group_by_key().windowed_by(windows)
    return stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if final else stream


def counted(windows: TimeWindows | SlidingWindows, *, final: bool = False, **options: Any) -> Build:
    return lambda builder: windowed(builder, windows, final).count(Materialized(**options))


def listed(windows: TimeWindows | SlidingWindows, *, final: bool = False, **options: Any) -> Build:
    """Return the values of each window, as a list that the aggregator changes in place."""

    def add(key: Any, value: Any, values: list[Any]) -> list[Any]:
        values.append(value)
        return values

    return lambda builder: windowed(builder, windows, final).aggregate(
        list, add, Materialized(value_serde="json", **options)
    )


def fixed_window_oracle(records: list[Input], windows: TimeWindows) -> tuple[list[Record], int]:
    """Return all updates, record after record, and how often a record was too late for a window."""
    values: dict[tuple[Any, int], list[Any]] = defaultdict(list)
    latest: dict[tuple[Any, int], int] = {}
    stream_time, late, output = 0, 0, []
    for _, key, value, timestamp in records:
        stream_time = max(stream_time, timestamp)
        for start in range(0, timestamp + 1, windows.advance):
            if not start <= timestamp < start + windows.size:
                continue
            if start + windows.size <= stream_time - windows.grace:
                late += 1
                continue
            values[key, start].append(value)
            latest[key, start] = max(latest.get((key, start), 0), timestamp)
            window = Windowed(key, start, start + windows.size)
            output.append(Record(window, list(values[key, start]), latest[key, start]))
    return output, late


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING, TimeWindows(7), TimeWindows(30, advance=1, grace=3)])
@pytest.mark.parametrize("seed", range(8))
def test_fixed_windows_do_what_the_oracle_does(seed: int, windows: TimeWindows) -> None:
    records = random_records(seed, 150)
    expected, _ = fixed_window_oracle(records, windows)
    assert drive(listed(windows), records) == expected


@pytest.mark.parametrize("seed", range(8))
def test_late_records_are_counted_once_for_each_window_that_they_miss(seed: int) -> None:
    records = random_records(seed, 150)
    builder = StreamsBuilder(order="arrival")
    counted(HOPPING)(builder).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [record[1:] for record in records])
        late = sum(amount for name, amount in driver.counters.items() if name.endswith(":dropped-late"))
    assert late == fixed_window_oracle(records, HOPPING)[1] > 0


def sliding_window_oracle(records: list[Input], difference: int) -> dict[Windowed[Any], int]:
    """Return how many records each sliding window holds: by definition, windows end at a record or start after one."""
    counts = {}
    for key in {record.key for record in records}:
        times = [record.timestamp for record in records if record.key == key]
        starts = {time - difference for time in times} | {time + 1 for time in times}
        for start in starts:
            inside = sum(start <= time <= start + difference for time in times)
            if inside:
                counts[Windowed(key, start, start + difference)] = inside
    return counts


@pytest.mark.parametrize("difference", [0, 1, 10, 25])
@pytest.mark.parametrize("seed", range(8))
def test_sliding_windows_hold_what_their_definition_says_however_late_the_records(seed: int, difference: int) -> None:
    records = random_records(seed, 120, step=4, disorder=100)
    output = drive(counted(SlidingWindows(difference, grace=10_000)), records)
    assert last_values(output) == sliding_window_oracle(records, difference)


@pytest.mark.parametrize("seed", range(8))
def test_a_sliding_window_takes_no_record_after_its_end_and_grace(seed: int) -> None:
    stream_time = 0
    for record in (records := random_records(seed, 150)):
        stream_time = max(stream_time, record.timestamp)
    after = max(record.timestamp for record in records)
    output = drive(counted(SLIDING), [*records, Input("in", records[0].key, "late", after - 60)])
    assert output == drive(counted(SLIDING), records)


def test_records_whose_left_sliding_window_would_begin_before_1970_share_one() -> None:
    output = drive(counted(SlidingWindows(10, grace=100)), rows(("k", "x", 3), ("k", "x", 1), ("k", "x", 12)))
    assert last_values(output) == {
        Windowed("k", 0, 10): 2,
        Windowed("k", 2, 12): 2,
        Windowed("k", 4, 14): 1,
    }


@pytest.mark.parametrize("size", [1, 2])
def test_windows_and_sessions_without_length_and_grace_hold_the_records_of_one_time(size: int) -> None:
    def sessions(builder: StreamsBuilder) -> KTable:
        return builder.stream("in").group_by_key().windowed_by(SessionWindows(0)).count()

    records = rows(("k", "x", 5), ("k", "x", 5), ("k", "x", 6))
    for build in (counted(SlidingWindows(0)), sessions):
        output = drive(build, records, size=size)
        assert last_values(output) == {Windowed("k", 5, 5): 2, Windowed("k", 6, 6): 1}


def test_records_before_1970_have_windows_too() -> None:
    records = rows(("k", "x", -25), ("k", "x", -21), ("k", "x", 5))
    assert last_values(drive(counted(TimeWindows(20, grace=100)), records)) == {
        Windowed("k", -40, -20): 2,
        Windowed("k", 0, 20): 1,
    }
    assert last_values(drive(counted(SlidingWindows(5, grace=100)), records)) == {
        Windowed("k", -30, -25): 1,
        Windowed("k", -26, -21): 2,
        Windowed("k", -24, -19): 1,
        Windowed("k", 0, 5): 1,
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_micro_batch_makes_the_same_updates_as_its_records_one_by_one(
    seed: int, final: bool, make: Callable[..., Build], kind: str
) -> None:
    records = random_records(seed, 200)
    build = make(KINDS[kind], final=final)
    assert drive(build, records, size=17) == drive(build, records, size=200) == drive(build, records)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_final_results_come_once_each_and_are_the_windows_last_updates(seed: int, kind: str) -> None:
    records = [*random_records(seed, 200), Input("in", "end", "x", 10**6)]
    output = drive(counted(KINDS[kind], final=True), records)
    assert len({record.key for record in output}) == len(output)
    updates = last_values(drive(counted(KINDS[kind]), records))
    assert {r.key: r.value for r in output} == {key: value for key, value in updates.items() if key.key != "end"}


def test_final_results_come_by_window_then_key_with_the_times_of_their_last_records() -> None:
    records = rows(("b", "x", 1), ("a", "x", 5), ("b", "x", 3), ("b", "x", 12), ("a", "x", 11), ("c", "x", 1000))
    assert drive(counted(TimeWindows(10), final=True), records) == [
        Record(Windowed("a", 0, 10), 1, 5),
        Record(Windowed("b", 0, 10), 2, 3),
        Record(Windowed("a", 10, 20), 1, 11),
        Record(Windowed("b", 10, 20), 1, 12),
    ]


def test_a_jump_of_stream_time_loses_no_final_result() -> None:
    records = rows(("k", "x", 1), ("k", "x", 15), ("k", "x", 10**9))
    output = drive(counted(TimeWindows(10, grace=10), final=True), records)
    assert [record.key.start for record in output] == [0, 10]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("seed", range(4))
def test_with_caching_a_micro_batch_emits_each_window_s_last_update_only(
    seed: int, make: Callable[..., Build], kind: str
) -> None:
    records = random_records(seed, 200)
    updates = drive(make(KINDS[kind]), records)
    for size in (17, 200):
        output = drive(make(KINDS[kind], caching=True), records, size=size)
        assert last_values(output) == last_values(updates)
        assert len(output) < len(updates)
    assert len(output) == len({record.key for record in output})


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_restart_windows_stream_time_and_final_results_go_on_where_they_were(
    kind: str, final: bool, backend: str, tmp_path: Path
) -> None:
    records = random_records(3, 120)
    build = listed(KINDS[kind], final=final)
    output = drive(build, records, size=5, backend=backend, local_dir=tmp_path, restart_every=15)
    assert output == drive(build, records)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_that_fails_moves_neither_windows_nor_stream_time(kind: str, final: bool) -> None:
    def add(key: Any, value: str, total: str) -> str:
        if value == "bad":
            raise RuntimeError(value)
        return total + value

    def build(builder: StreamsBuilder) -> KTable:
        table = windowed(builder, KINDS[kind], final).aggregate(str, add, Materialized(value_serde="string"))
        return table.suppress(Suppressed.until_time_limit(10))

    builder = StreamsBuilder(order="arrival")
    build(builder).to("out")
    records = random_records(4, 100)
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [record[1:] for record in records[:50]])
        with pytest.raises(UserFunctionError):
            driver.pipe_all("in", [("a", "x", 5_000), ("a", "x", 6_000), ("b", "bad", 9_000)])
        driver.pipe_all("in", [record[1:] for record in records[50:]])
        assert driver.read("out") == drive(build, records)


def test_records_without_key_or_value_are_dropped_and_do_not_move_the_time() -> None:
    records = rows(("k", "x", 1), ("k", None, 500), (None, "x", 500), ("k", "x", 2))
    for windows in KINDS.values():
        assert max(record.value for record in drive(counted(windows), records)) == 2


def test_reduce_begins_with_the_first_value_of_each_window() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return windowed(builder, TimeWindows(10)).reduce(lambda total, value: total + value)

    records = rows(("k", "a", 1), ("k", "b", 2), ("k", "c", 11))
    assert [record.value for record in drive(build, records)] == ["a", "ab", "c"]


@pytest.mark.parametrize("windows", [TUMBLING, TimeWindows(4, advance=3), SLIDING])
def test_an_aggregate_that_becomes_none_deletes_its_window_and_the_next_record_begins_anew(
    windows: TimeWindows | SlidingWindows,
) -> None:
    def add(key: Any, value: Any, total: str) -> str | None:
        return None if value == "clear" else total + value

    def build(builder: StreamsBuilder) -> KTable:
        return windowed(builder, windows).aggregate(str, add, Materialized(value_serde="string"))

    records = rows(("k", "a", 100), ("k", "clear", 100), ("k", "b", 100))
    assert [record.value for record in drive(build, records)] == ["a", None, "b"]
    assert [record.value for record in drive(build, records, size=3)] == ["a", None, "b"]


def test_keys_of_any_serde_are_told_apart_by_their_bytes() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        keyed = builder.stream("in").select_key(lambda key, value: [key, value], key_serde="json")
        return keyed.group_by_key().windowed_by(TUMBLING).count()

    records = rows(("a", "x", 1), ("a", "y", 2), ("a", "x", 3))
    output = drive(build, records, size=3)
    assert [(record.key.key, record.value) for record in output] == [
        (["a", "x"], 1),
        (["a", "y"], 1),
        (["a", "x"], 2),
    ]


def test_a_windowed_table_can_be_grouped_again() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        counts = windowed(builder, TimeWindows(10)).aggregate(
            lambda: 0, lambda key, value, total: total + 1, Materialized(value_serde="int64")
        )
        by_start = counts.group_by(lambda key, value: (str(key.start), value), Grouped("string"))
        return by_start.reduce(lambda total, value: total + value, lambda total, value: total - value)

    records = rows(("a", "x", 1), ("b", "x", 2), ("a", "x", 3), ("b", "x", 12))
    assert last_values(drive(build, records, size=2)) == {"0": 3, "10": 1}


def test_a_group_of_sliding_windows_adds_up_to_what_the_windows_hold() -> None:
    def summed(builder: StreamsBuilder) -> KTable:
        return windowed(builder, SlidingWindows(10)).aggregate(
            int, lambda key, value, total: total + int(value), Materialized(value_serde="int64")
        )

    def build(builder: StreamsBuilder) -> KTable:
        group = summed(builder).group_by(lambda window, total: (window.key, total), Grouped("string", "int64"))
        return group.reduce(lambda sum_, total: sum_ + total, lambda sum_, total: sum_ - total)

    records = rows(("a", "1", 100), ("a", "2", 105), ("a", "4", 103), ("a", "16", 98), ("a", "8", 130))
    windows = last_values(drive(summed, records))
    assert windows[Windowed("a", 95, 105)] == 1 + 2 + 4 + 16
    assert last_values(drive(build, records)) == {"a": sum(windows.values())}


def test_two_windowed_tables_join_by_key_and_window() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        grouped = builder.stream("in").group_by_key()
        counts = grouped.windowed_by(TimeWindows(10)).count()
        firsts = grouped.windowed_by(TimeWindows(10)).reduce(lambda first, value: first)
        return counts.join(firsts, lambda count, first: f"{count}{first}", Materialized(value_serde="string"))

    records = rows(("k", "a", 1), ("k", "b", 2), ("k", "c", 11))
    assert last_values(drive(build, records)) == {Windowed("k", 0, 10): "2a", Windowed("k", 10, 20): "1c"}


def test_a_retention_shorter_than_the_windows_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least 35 ms"):
        counted(TUMBLING, retention=34)(StreamsBuilder())


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(TopologyError, match="cannot hold this table"):
        counted(TUMBLING, kind=StoreKind.WINDOW)(StreamsBuilder())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: TimeWindows(0), "size is 0 ms"),
        (lambda: TimeWindows(10, advance=11), "leaves gaps"),
        (lambda: TimeWindows(10, advance=0), "advance is 0 ms"),
        (lambda: TimeWindows(10, grace=-1), "grace is -1 ms"),
        (lambda: SlidingWindows(-1), "difference is -1 ms"),
    ],
)
def test_windows_that_make_no_sense_are_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(TopologyError, match=reason):
        make()


def test_windowed_keys_have_the_bytes_of_kafka_streams_topics() -> None:
    window = TimeWindowedSerde(STRING, 10)
    assert window.serialize(Windowed("a", 256, 266)) == b"a" + bytes.fromhex("0000000000000100")
    session = SessionWindowedSerde(STRING)
    assert session.serialize(Windowed("a", 1, 256)) == b"a" + bytes.fromhex("00000000000001000000000000000001")


@pytest.mark.parametrize("serde", [TimeWindowedSerde(STRING, 10), SessionWindowedSerde(STRING)])
def test_windowed_keys_come_back(serde: TimeWindowedSerde[str] | SessionWindowedSerde[str]) -> None:
    for key in ("", "a", "a\x00b"):
        for start in (-5, 0, 1 << 40):
            window = Windowed(key, start, start + 10)
            assert serde.deserialize(serde.serialize(window)) == window
    with pytest.raises(SerdeError, match="too short"):
        serde.deserialize(b"short")


def test_keys_of_windows_that_start_together_are_told_apart_and_come_back() -> None:
    windows = CumulativeWindows(30, 10, offset=5)
    serde = TimeWindowedSerde(STRING, windows.size, windows.grid)
    keys = [Windowed("a", *bounds) for time in (-3, 12) for bounds in windows.bounds(time)]
    assert keys[:3] == [Windowed("a", -25, 5), Windowed("a", 5, 15), Windowed("a", 5, 25)]
    assert len({serde.serialize(key) for key in keys}) == len(keys)
    assert [serde.deserialize(serde.serialize(key)) for key in keys] == keys
    for wrong in (Windowed("a", 15, 25), Windowed("a", 5, 20)):
        with pytest.raises(SerdeError, match="is no window of"):
            serde.serialize(wrong)


@pytest.mark.parametrize("size", [1, 40])
def test_tables_of_windows_that_start_together_are_joined_window_by_window(size: int) -> None:
    """Each table looks the other one up by the window."""

    def build(builder: StreamsBuilder) -> KTable:
        counts = builder.stream("in").group_by_key().windowed_by(CumulativeWindows(30, 10, offset=5, grace=100)).count()
        joined = counts.filter(lambda key, count: count > 1).left_join(counts, lambda some, count: [some, count])
        return joined.suppress(Suppressed.until_time_limit(0)) if size > 1 else joined

    records = random_records(3, 40)
    found = last_values(drive(build, records, size=size))
    windows = CumulativeWindows(30, 10, offset=5)
    expected = Counter(Windowed(one.key, *bounds) for one in records for bounds in windows.bounds(one.timestamp))
    assert {key: values for key, values in found.items() if values is not None} == {
        key: [count, count] for key, count in expected.items() if count > 1
    }


@pytest.mark.parametrize("size", [10, 5])
def test_a_window_of_another_size_is_refused_and_one_of_the_table_s_size_is_taken(size: int) -> None:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10)).count().to_stream()
    same = counts.select_key(lambda window, _: window, key_serde=TimeWindowedSerde(STRING, size))
    same.group_by_key(Grouped(value_serde="int64")).reduce(max).to("out")
    with TopologyDriver(builder.build()) as driver:
        if size == 10:
            driver.pipe_all("in", [("a", "x", 1), ("a", "y", 2)])
            assert [record.value for record in driver.read("out")][-1] == 2
        else:
            with pytest.raises(UserFunctionError, match="no window of 5 ms; give the serde the size"):
                driver.pipe("in", "a", "x", 1)


def test_a_windowed_table_that_is_grouped_by_plain_keys_has_to_say_how_they_become_bytes() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return windowed(builder, TUMBLING).count().group_by(lambda key, value: (key.key, value)).count()

    with pytest.raises(UserFunctionError, match=r"Grouped\(key_serde"):
        drive(build, rows(("k", "x", 1)))


@pytest.mark.parametrize("backend", ["memory", "lmdb", "rocksdb"])
@pytest.mark.parametrize("final", [False, True])
def test_days_of_a_time_zone_hold_the_records_of_each_date_in_any_cut_and_after_restarts(
    final: bool, backend: str, tmp_path: Path
) -> None:
    """Of Berlin, one of which has 23 hours."""
    zone, hour = ZoneInfo("Europe/Berlin"), 3_600_000

    def moment(day: date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1_000

    def window(time: int) -> tuple[int, int]:
        day = datetime.fromtimestamp(time / 1_000, zone).date()
        return moment(day), moment(day + timedelta(days=1))

    begin, end = moment(date(2024, 3, 28)), moment(date(2024, 6, 1))
    shifted = random_records(1, 200, step=2 * hour, disorder=5 * hour)
    records = [one._replace(timestamp=one.timestamp + begin) for one in shifted] + rows(("end", "x", end))
    expected = Counter(Windowed(one.key, *window(one.timestamp)) for one in records if one.key != "end")
    assert {one.end - one.start for one in expected} == {23 * hour, 24 * hour}
    build = counted(TimeWindows("1 day", zone="Europe/Berlin", grace="6 hours"), final=final)
    for size in (1, 17, len(records)):
        local_dir = None if backend == "memory" else tmp_path / str(size)
        every = None if backend == "memory" else max(size, 30)
        output = drive(build, records, size=size, backend=backend, local_dir=local_dir, restart_every=every)
        found = {key: count for key, count in last_values(output).items() if key.key != "end"}
        assert found == expected
        assert len(output) == (len(expected) if final else len(records))

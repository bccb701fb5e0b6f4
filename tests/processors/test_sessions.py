"""Session windows: merging, grace, late records, final results, restarts."""

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    EmitStrategy,
    KTable,
    Materialized,
    Record,
    SessionWindowedKStream,
    SessionWindows,
    StreamsBuilder,
    TopologyDriver,
)
from millpond.stores.specs.store_spec import StoreKind
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import Build, Input, drive, last_values, random_records

SESSIONS = SessionWindows(10, grace=15)


def rows(*given: tuple[Any, Any, int]) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in given]


def sessions(builder: StreamsBuilder, windows: SessionWindows, final: bool = False) -> SessionWindowedKStream:
    stream = builder.stream("in").group_by_key().windowed_by(windows)
    return stream.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if final else stream


def counted(windows: SessionWindows, *, final: bool = False, **options: Any) -> Build:
    return lambda builder: sessions(builder, windows, final).count(Materialized(**options))


def listed(windows: SessionWindows, *, final: bool = False, **options: Any) -> Build:
    """Return the values of each session, as a list that aggregator and merger change in place."""

    def add(key: Any, value: Any, values: list[Any]) -> list[Any]:
        values.append(value)
        return values

    def merge(key: Any, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        return left

    return lambda builder: sessions(builder, windows, final).aggregate(
        list, add, merge, Materialized(value_serde="json", **options)
    )


def test_a_record_far_from_all_others_is_a_session_of_its_own() -> None:
    output = drive(counted(SESSIONS), rows(("k", "x", 0), ("k", "x", 11), ("j", "x", 11)))
    assert output == [
        Record(Windowed("k", 0, 0), 1, 0),
        Record(Windowed("k", 11, 11), 1, 11),
        Record(Windowed("j", 11, 11), 1, 11),
    ]


def test_a_record_within_the_gap_moves_the_session_s_end_and_deletes_the_session_that_was() -> None:
    output = drive(counted(SESSIONS), rows(("k", "x", 0), ("k", "x", 10)))
    assert output[1:] == [Record(Windowed("k", 0, 0), None, 0), Record(Windowed("k", 0, 10), 2, 10)]


def test_a_record_between_two_sessions_merges_them_by_end() -> None:
    output = drive(listed(SESSIONS), rows(("k", "a", 0), ("k", "b", 15), ("k", "c", 8)))
    assert output[2:] == [
        Record(Windowed("k", 0, 0), None, 0),
        Record(Windowed("k", 15, 15), None, 15),
        Record(Windowed("k", 0, 15), ["a", "b", "c"], 15),
    ]


def test_another_record_of_a_session_of_one_moment_updates_it_without_a_deletion() -> None:
    output = drive(counted(SESSIONS), rows(("k", "x", 5), ("k", "x", 5)))
    assert output == [Record(Windowed("k", 5, 5), 1, 5), Record(Windowed("k", 5, 5), 2, 5)]


def test_reduce_merges_sessions_with_the_reducer() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        return sessions(builder, SESSIONS).reduce(lambda left, right: left + right)

    assert drive(build, rows(("k", "a", 0), ("k", "b", 15), ("k", "c", 8)))[-1].value == "abc"


@pytest.mark.parametrize("size", [1, 3])
def test_an_aggregate_that_becomes_none_deletes_its_session_and_the_next_record_begins_anew(size: int) -> None:
    def add(key: Any, value: Any, total: str) -> str | None:
        return None if value == "clear" else total + value

    def build(builder: StreamsBuilder) -> KTable:
        materialized = Materialized(value_serde="string")
        return sessions(builder, SESSIONS).aggregate(str, add, lambda key, left, right: left + right, materialized)

    output = drive(build, rows(("k", "a", 5), ("k", "clear", 5), ("k", "b", 5)), size=size)
    assert [record.value for record in output] == ["a", None, "b"]


def test_a_session_that_ended_before_gap_and_grace_is_late_and_counted() -> None:
    builder = StreamsBuilder(order="arrival")
    counted(SESSIONS)(builder).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", [("k", "x", 100), ("k", "just in time", 75), ("k", "late", 74)])
        assert [record.key.end for record in driver.read("out")] == [100, 75]
        assert sum(n for name, n in driver.counters.items() if name.endswith(":dropped-late")) == 1


def test_a_late_record_within_the_gap_of_a_session_that_is_not_late_joins_it() -> None:
    output = drive(counted(SESSIONS), rows(("k", "x", 80), ("k", "x", 100), ("k", "x", 71)))
    assert output[-1] == Record(Windowed("k", 71, 80), 2, 80)


def test_a_session_that_the_store_has_forgotten_is_not_merged() -> None:
    output = drive(counted(SessionWindows(10)), rows(("k", "x", 0), ("k", "x", 20), ("k", "x", 10)))
    assert output[-1] == Record(Windowed("k", 10, 20), 2, 20)


def test_records_without_key_or_value_are_dropped() -> None:
    output = drive(counted(SESSIONS), rows(("k", "x", 0), ("k", None, 5), (None, "x", 500), ("k", "x", 10)))
    assert output[-1] == Record(Windowed("k", 0, 10), 2, 10)


def session_oracle(records: list[Input], gap: int) -> dict[Windowed[Any], int]:
    """Return the sessions of all records, in whatever order they came."""
    found: dict[Windowed[Any], int] = {}
    for key in {record.key for record in records}:
        times = sorted(record.timestamp for record in records if record.key == key)
        start, count = times[0], 0
        for time, following in zip(times, [*times[1:], None], strict=True):
            count += 1
            if following is None or following - time > gap:
                found[Windowed(key, start, time)] = count
                start, count = following or 0, 0
    return found


@pytest.mark.parametrize("gap", [0, 3, 10, 40])
@pytest.mark.parametrize("seed", range(10))
def test_with_grace_enough_the_sessions_are_those_of_the_sorted_records(seed: int, gap: int) -> None:
    records = random_records(seed, 150, disorder=100)
    for size in (1, 20):
        output = drive(counted(SessionWindows(gap, grace=10_000)), records, size=size)
        assert last_values(output) == session_oracle(records, gap)


@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_micro_batch_makes_the_same_updates_as_its_records_one_by_one(seed: int, final: bool, make: Any) -> None:
    records = random_records(seed, 200)
    build = make(SESSIONS, final=final)
    assert drive(build, records, size=17) == drive(build, records, size=200) == drive(build, records)


@pytest.mark.parametrize("make", [counted, listed])
@pytest.mark.parametrize("seed", range(8))
def test_with_caching_a_micro_batch_emits_no_session_that_came_and_went_within_it(seed: int, make: Any) -> None:
    records = random_records(seed, 200)
    updates = last_values(drive(make(SESSIONS), records))
    for size in (17, 200):
        output = drive(make(SESSIONS, caching=True), records, size=size)
        assert last_values(output) == updates
    assert all(record.value is not None for record in output)
    assert len(output) == len({record.key for record in output})


@pytest.mark.parametrize("seed", range(8))
def test_final_results_are_sessions_in_the_order_of_their_ends(seed: int) -> None:
    records = sorted(random_records(seed, 200, disorder=0), key=lambda record: record.timestamp)
    output = drive(counted(SESSIONS, final=True), [*records, Input("in", "end", "x", 10**9)], size=9)
    assert {record.key: record.value for record in output} == session_oracle(records, SESSIONS.gap)
    assert [record.key.end for record in output] == sorted(record.key.end for record in output)
    assert all(record.timestamp == record.key.end for record in output)


def test_a_jump_of_stream_time_loses_no_final_result() -> None:
    output = drive(
        counted(SESSIONS, final=True), rows(("k", "x", 1), ("k", "x", 75), ("k", "x", 100), ("k", "x", 10**9))
    )
    assert [record.key for record in output] == [Windowed("k", 1, 1), Windowed("k", 75, 75), Windowed("k", 100, 100)]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("final", [False, True])
def test_after_a_restart_sessions_stream_time_and_final_results_go_on_where_they_were(
    final: bool, backend: str, tmp_path: Path
) -> None:
    records = random_records(5, 120)
    build = listed(SESSIONS, final=final)
    output = drive(build, records, size=5, backend=backend, local_dir=tmp_path, restart_every=15)
    assert output == drive(build, records)


def test_a_retention_shorter_than_gap_and_grace_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least 25 ms"):
        counted(SESSIONS, retention=24)(StreamsBuilder())


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(TopologyError, match="leave the kind out, or choose session"):
        counted(SESSIONS, kind=StoreKind.TIMESTAMPED_SESSION)(StreamsBuilder())


def test_a_gap_is_not_negative() -> None:
    with pytest.raises(TopologyError, match="gap is -1 ms"):
        SessionWindows(-1)


def test_a_session_table_can_be_looked_up_by_a_join() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        grouped = builder.stream("in").group_by_key()
        counts = grouped.windowed_by(SESSIONS).count()
        texts = grouped.windowed_by(SESSIONS).reduce(lambda left, right: left + right)
        return counts.join(texts, lambda count, text: f"{count}{text}", Materialized(value_serde="string"))

    output = drive(build, rows(("k", "a", 1), ("k", "b", 5), ("k", "c", 50)))
    assert last_values(output) == {Windowed("k", 1, 5): "2ab", Windowed("k", 50, 50): "1c"}

"""KIP-328: updates held back until a time has passed, or until their windows are closed."""

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import StoreFullError, TopologyError
from millpond.processors import (
    Consumed,
    Grouped,
    KStream,
    KTable,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millpond.stores.typed.windows.windowed import Windowed
from tests.processors.driving import Build, Input, drive, last_values, random_records

Row = tuple[Any, Any, int]


def rows(*given: Row) -> list[Input]:
    return [Input("in", key, value, timestamp) for key, value, timestamp in given]


def waiting(wait: int, **options: Any) -> Build:
    return lambda builder: builder.table("in").suppress(Suppressed.until_time_limit(wait, **options))


def final_counts(windows: TimeWindows | SlidingWindows | SessionWindows, **options: Any) -> Build:
    def build(builder: StreamsBuilder) -> KTable:
        counts: KTable = builder.stream("in").group_by_key().windowed_by(windows).count()
        return counts.suppress(Suppressed.until_window_closes(**options))

    return build


def test_an_update_waits_for_stream_time_to_pass_the_limit() -> None:
    assert drive(waiting(10), rows(("k", "a", 100), ("j", "b", 109))) == []
    assert drive(waiting(10), rows(("k", "a", 100), ("j", "b", 110))) == [Record("k", "a", 100)]


def test_a_later_update_replaces_value_and_time_and_keeps_the_place_of_the_first() -> None:
    output = drive(waiting(10), rows(("k", "a", 100), ("k", "b", 50), ("j", "c", 110)))
    assert output == [Record("k", "b", 50)]


def test_updates_of_one_time_go_out_in_the_order_of_their_keys() -> None:
    output = drive(waiting(5), rows(("c", "x", 1), ("a", "x", 1), ("b", "x", 1), ("z", "x", 9)))
    assert [record.key for record in output] == ["a", "b", "c"]


def test_a_deletion_goes_out_after_a_time_limit() -> None:
    output = drive(waiting(5), rows(("k", "a", 1), ("k", None, 2), ("z", "x", 9)))
    assert output == [Record("k", None, 2)]


def test_without_a_wait_everything_goes_out_at_once_except_what_is_late() -> None:
    output = drive(waiting(0), rows(("k", "a", 5), ("j", "b", 3), ("k", "c", 6)))
    assert output == [Record("k", "a", 5), Record("j", "b", 3), Record("k", "c", 6)]


def oracle(records: list[Input], wait: int, max_records: int) -> list[Record]:
    """Return what comes out of a plain dict of held records, which is searched from the start after each record."""
    held: dict[Any, tuple[int, Any, int]] = {}
    stream_time, output = 0, []
    for _, key, value, timestamp in records:
        stream_time = max(stream_time, timestamp)
        held[key] = (held[key][0] if key in held else timestamp, value, timestamp)
        for other, (time, latest, at) in sorted(held.items(), key=lambda item: (item[1][0], item[0])):
            if time <= stream_time - wait or len(held) > max_records:
                output.append(Record(other, latest, at))
                del held[other]
    return output


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_it_holds_back_what_an_oracle_holds_back(seed: int, size: int) -> None:
    records = random_records(seed, 300, keys="abcdefghij")
    assert drive(waiting(20), records, size=size) == oracle(records, 20, 1000)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_a_full_buffer_emits_the_oldest_early(seed: int, size: int) -> None:
    records = random_records(seed, 300, keys="abcdefghij")
    assert drive(waiting(60, max_records=3), records, size=size) == oracle(records, 60, 3)


def test_a_full_strict_buffer_is_an_error_that_names_its_bounds() -> None:
    with pytest.raises(StoreFullError, match=r"holds back 3 records .* bounds are 2 records"):
        drive(waiting(1000, max_records=2, emit_early=False), rows(("a", "1", 1), ("b", "1", 2), ("c", "1", 3)))


def test_updates_of_held_keys_do_not_fill_a_buffer() -> None:
    assert drive(waiting(1000, max_records=1, emit_early=False), rows(("a", "1", 1), ("a", "2", 2))) == []


@pytest.mark.parametrize("size", [1, 4])
def test_a_buffer_is_bounded_in_bytes(size: int) -> None:
    records = rows(("a", "x" * 100, 1), ("b", "y" * 100, 2), ("c", "z", 3), ("b", "y", 4))
    assert drive(waiting(1000, max_bytes=230), records, size=size) == [Record("a", "x" * 100, 1)]


@pytest.mark.parametrize("size", [1, 4])
def test_the_bytes_of_a_buffer_are_those_that_kafka_streams_counts(size: int) -> None:
    def build(builder: StreamsBuilder) -> KTable:
        strict = Suppressed.until_time_limit(1000, max_bytes=99, emit_early=False)
        return builder.table("tbl", Consumed("string", "string")).suppress(strict)

    records = [Input("tbl", *row) for row in [("a", "1", 1), ("b", "1", 2), ("a", "2", 3), ("c", "1", 4)]]
    with pytest.raises(StoreFullError, match="holds back 3 records and 100 bytes"):
        drive(build, records, size=size)


def test_a_final_result_comes_once_when_its_window_closes() -> None:
    records = rows(("k", "x", 1), ("k", "x", 9), ("k", "x", 14), ("k", "late", 2), ("k", "x", 15), ("k", "too late", 3))
    output = drive(final_counts(TimeWindows(10, grace=5)), records)
    assert output == [Record(Windowed("k", 0, 10), 3, 9)]


def test_a_session_that_was_merged_away_leaves_no_trace() -> None:
    records = rows(("k", "x", 0), ("k", "x", 15), ("k", "x", 8), ("z", "x", 100))
    output = drive(final_counts(SessionWindows(10, grace=50)), records)
    assert output == [Record(Windowed("k", 0, 15), 3, 15)]


def test_a_sliding_window_is_final_only_when_no_record_can_reach_its_end_any_more() -> None:
    records = rows(("k", "a", 20), ("k", "b", 20), ("k", "c", 25), ("k", "d", 25), ("k", "e", 60))
    output = drive(final_counts(SlidingWindows(10)), records)
    assert [(record.key.end, record.value) for record in output] == [(20, 2), (25, 4), (31, 2)]


FINAL: dict[str, TimeWindows | SlidingWindows] = {
    "tumbling": TimeWindows(20, grace=15),
    "hopping": TimeWindows(20, advance=5, grace=15),
    "sliding": SlidingWindows(20, grace=15),
}


@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("seed", range(10))
def test_each_window_has_one_final_result_and_it_is_its_last_update(seed: int, kind: str) -> None:
    records = [*random_records(seed, 300), Input("in", "end", "x", 10**6)]
    windows = FINAL[kind]
    output = drive(final_counts(windows), records, size=13)
    updates = drive(lambda builder: builder.stream("in").group_by_key().windowed_by(windows).count(), records)
    assert len({record.key for record in output}) == len(output)
    assert {r.key: r.value for r in output} == {k: v for k, v in last_values(updates).items() if k.key != "end"}


def test_a_full_buffer_of_final_results_is_an_error() -> None:
    records = rows(("a", "x", 1), ("b", "x", 2), ("c", "x", 3))
    with pytest.raises(StoreFullError, match=r"raise them, or give the windows a shorter grace \["):
        drive(final_counts(TimeWindows(10), max_records=2), records)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("seed", range(3))
def test_after_a_restart_it_goes_on_where_it_was(seed: int, backend: str, tmp_path: Path) -> None:
    records = random_records(seed, 120, keys="abcdefghij")
    for name, build in {
        "limit": waiting(40),
        "bounded": waiting(100, max_records=4),
        "bytes": waiting(100, max_bytes=300),
        "final": final_counts(TimeWindows(20, grace=15)),
    }.items():
        local_dir = tmp_path / name
        restarted = drive(build, records, size=5, backend=backend, local_dir=local_dir, restart_every=20)
        assert restarted == drive(build, records)


def test_a_join_sees_the_table_without_what_is_held_back() -> None:
    def build(builder: StreamsBuilder) -> KStream:
        table = builder.table("in").suppress(Suppressed.until_time_limit(10))
        return builder.stream("asked").left_join(table, lambda asked, known: f"{asked} {known}")

    records = [
        Input("asked", "k", "before", 0),
        Input("in", "k", "a", 1),
        Input("asked", "k", "held", 2),
        Input("in", "z", "x", 11),
        Input("asked", "k", "out", 12),
        Input("in", "k", "b", 13),
        Input("asked", "k", "held again", 14),
    ]

    values = [record.value for record in drive(build, records)]
    assert values == ["before None", "held None", "out a", "held again a"]


def test_a_suppressed_table_that_meets_itself_has_the_row_that_it_just_lets_through() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        calm = builder.table("in").suppress(Suppressed.until_time_limit(10))
        return calm.join(calm, lambda one, other: f"{one}-{other}")

    output = drive(build, rows(("k", "a", 1), ("j", "b", 20)))
    # Twice, as from any table that is joined with itself: each side has changed.
    assert output == [Record("k", "a-a", 1)] * 2


def test_a_group_subtracts_the_value_before_the_last_held_update_though_it_never_saw_it() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        calm = builder.table("in").suppress(Suppressed.until_time_limit(10))
        by_value = calm.group_by(lambda key, value: (value, value), Grouped("string", "string"))
        return by_value.count()

    output = drive(build, rows(("k", "a", 1), ("k", "b", 2), ("z", "x", 11)))
    assert output == [Record("a", None, 2), Record("b", 1, 2)]


def test_a_versioned_table_cannot_be_suppressed() -> None:
    table = StreamsBuilder().table("in", None, Materialized.versioned(history_retention=100))
    with pytest.raises(TopologyError, match="is versioned and cannot be suppressed"):
        table.suppress(Suppressed.until_time_limit(10))


def test_waiting_for_windows_needs_windows() -> None:
    with pytest.raises(TopologyError, match="comes from no windowed aggregation"):
        StreamsBuilder().table("in").suppress(Suppressed.until_window_closes())


def test_windows_are_found_through_operators_in_between() -> None:
    def build(builder: StreamsBuilder) -> KTable:
        counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10, grace=5)).count()
        many = counts.filter(lambda key, value: value > 1)
        return many.suppress(Suppressed.until_window_closes())

    records = rows(("k", "x", 1), ("k", "x", 2), ("j", "x", 3), ("z", "x", 15), ("z", "x", 16))
    assert drive(build, records) == [Record(Windowed("k", 0, 10), 2, 2)]


@pytest.mark.parametrize("options", [{"max_records": -1}, {"max_bytes": -1}])
def test_bounds_are_not_negative(options: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match="not negative"):
        Suppressed.until_time_limit(1, **options)


def test_a_wait_is_not_negative() -> None:
    with pytest.raises(TopologyError, match="wait is -1"):
        Suppressed.until_time_limit(-1)

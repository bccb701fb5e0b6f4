"""The examples of KIP-914: what versioned tables change in each operator, rule by rule."""

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import TopologyError
from millpond.processors import (
    Consumed,
    Grouped,
    Joined,
    KTable,
    Materialized,
    Produced,
    StreamsBuilder,
    Suppressed,
    Topology,
    TopologyDriver,
)
from millpond.stores.specs.store_spec import StoreKind

TEXT = Produced(value_serde="string")
Results = list[tuple[Any, int]]


def _versioned(name: str | None = None, retention: int = 1000) -> Materialized:
    return Materialized.versioned(name, history_retention=retention, value_serde="string")


def _builder() -> StreamsBuilder:
    return StreamsBuilder(value_serde="string", order="arrival")


def _joiner(left: Any, right: Any) -> str:
    return f"({left}, {right})"


def _columns(keys: Any, left: Any, right: Any) -> Any:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([_joiner(*pair) for pair in pairs], pa.string())


def _run(topology: Topology, records: str) -> list[Results]:
    """Return what each record produces; a record is ``a0@0``: its topic is its first letter, ``a!@0`` deletes."""
    results = []
    with TopologyDriver(topology) as driver:
        for record in records.split():
            value, time = record.split("@")
            driver.pipe(value[0], "k", None if value[1:] == "!" else value, int(time))
            results.append([(row.value, row.timestamp) for row in driver.read("out")])
    return results


def _table_table(
    left: Materialized | None, right: Materialized | None, foreign_key: Callable[[str], str] | None = None
) -> Topology:
    builder = _builder()
    a, b = builder.table("a", materialized=left), builder.table("b", materialized=right)
    stored = Materialized("joined", value_serde="string")
    a.join(b, _joiner, stored, foreign_key=foreign_key).to("out", TEXT)
    return builder.build()


BACKGROUND = "a0@0 a4@4 b2@2 b1@1"
ATTEMPT_1 = "a0@0 b0@0 a4@4 b3@3 b2@2 a1@1"
ATTEMPT_2 = "a0@0 a5@5 b2@2 b3@3 b4@4 a1@1"
PROPOSAL = "a0@0 b2@2 a5@5 a1@1"


class TestStreamTableJoinsPerformTimestampedLookups:
    def _topology(self, join: str, retention: int) -> Topology:
        builder = _builder()
        table = builder.table("t", materialized=_versioned(retention=retention))
        stream = builder.stream("s")
        {"inner": stream.join, "left": stream.left_join}[join](table, _joiner).to("out", TEXT)
        return builder.build()

    def test_an_out_of_order_stream_record_meets_the_value_of_its_time(self) -> None:
        results = _run(self._topology("inner", 1000), "t1@10 t2@20 s1@15 s2@25 s3@20 s4@5")
        assert results[2:] == [[("(s1, t1)", 15)], [("(s2, t2)", 25)], [("(s3, t2)", 20)], []]

    @pytest.mark.parametrize("vectorized", [False, True])
    @pytest.mark.parametrize("grace", [None, 5])
    def test_what_is_valid_from_its_own_time_on_is_no_match_if_that_is_not_wanted(
        self, grace: int | None, vectorized: bool
    ) -> None:
        builder = _builder()
        table = builder.table("t", materialized=_versioned(retention=10))
        joiner = _columns if vectorized else _joiner
        joined = Joined(grace=grace, exact=False, within_history=grace is not None)
        builder.stream("s").left_join(table, joiner, joined, vectorized=vectorized).to("out", TEXT)
        results = _run(builder.build(), "t1@10 t2@20 s1@20 s2@21 s3@10 s4@11 s5@30")
        found = sorted((one for some in results for one in some), key=lambda one: one[1])
        assert found[-3 if grace is None else -2 :][0] == ("(s1, t1)", 20)
        assert found[:2] == [("(s3, None)", 10), ("(s4, t1)", 11)]

    def test_a_record_that_waits_for_what_was_valid_just_before_it_meets_it_before_the_table_forgets(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=_versioned(retention=10))
        joined = Joined(grace=10, exact=False, within_history=True)
        builder.stream("s").left_join(table, _joiner, joined).to("out", TEXT)
        with TopologyDriver(builder.build()) as driver:
            driver.pipe("t", "k", "before", 3)
            driver.pipe("s", "k", "one", 5)
            driver.pipe_all("t", [("k", "after", 5), ("other", "moves", 15), ("other", "moves", 16)])
            assert driver.read("out") == [("k", "(one, before)", 5)]

    def test_an_out_of_order_table_record_changes_the_past_only(self) -> None:
        results = _run(self._topology("inner", 1000), "t2@20 t1@10 s1@15 s2@25 t!@12 s3@15")
        assert results[2:] == [[("(s1, t1)", 15)], [("(s2, t2)", 25)], [], []]

    def test_beyond_the_history_retention_an_inner_join_finds_nothing(self) -> None:
        assert _run(self._topology("inner", 30), "t1@10 t2@20 t3@60 s1@15 s2@55")[3:] == [[], [("(s2, t2)", 55)]]

    def test_beyond_the_history_retention_a_left_join_finds_none(self) -> None:
        results = _run(self._topology("left", 30), "t1@10 t2@20 t3@60 s1@15 s2@55")
        assert results[3:] == [[("(s1, None)", 15)], [("(s2, t2)", 55)]]

    def test_lookups_beyond_the_history_retention_are_counted_and_warned_of_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with TopologyDriver(self._topology("left", 30)) as driver, caplog.at_level(logging.WARNING):
            driver.pipe_all("t", [("k", "t1", 10), ("k", "t2", 20), ("k", "t3", 60)])
            driver.pipe_all("s", [("k", "s1", 15), ("k", "s2", 5), ("k", "s3", 40)])
            driver.pipe("s", "other", "s4", 60)
            assert [n for what, n in driver.counters.items() if what.endswith("beyond-history-retention")] == [2]
            driver.pipe("s", "k", "s5", 12)
        assert len([record for record in caplog.records if "history retention" in record.message]) == 1

    def test_against_an_unversioned_table_the_latest_arrival_counts(self) -> None:
        builder = _builder()
        builder.stream("s").join(builder.table("t"), _joiner).to("out", TEXT)
        assert _run(builder.build(), "t2@20 t1@10 s1@5")[2] == [("(s1, t1)", 5)]


class TestTableTableJoinsMakeNoResultsOnOutOfOrderRecords:
    def test_background_the_last_result_of_unversioned_tables_may_be_wrong(self) -> None:
        results = _run(_table_table(None, None), BACKGROUND)
        assert results == [[], [], [("(a4, b2)", 4)], [("(a4, b1)", 4)]]

    def test_background_with_versioned_tables_the_out_of_order_record_makes_nothing(self) -> None:
        results = _run(_table_table(_versioned(), _versioned()), BACKGROUND)
        assert results == [[], [], [("(a4, b2)", 4)], []]

    def test_attempt_1(self) -> None:
        results = _run(_table_table(_versioned(), _versioned()), ATTEMPT_1)
        assert results == [[], [("(a0, b0)", 0)], [("(a4, b0)", 4)], [("(a4, b3)", 4)], [], []]

    def test_attempt_2(self) -> None:
        results = _run(_table_table(_versioned(), _versioned()), ATTEMPT_2)
        assert results == [[], [], [("(a5, b2)", 5)], [("(a5, b3)", 5)], [("(a5, b4)", 5)], []]

    def test_proposal(self) -> None:
        results = _run(_table_table(_versioned(), _versioned()), PROPOSAL)
        assert results == [[], [("(a0, b2)", 2)], [("(a5, b2)", 5)], []]

    def test_with_one_versioned_side_only_that_side_is_judged_by_time(self) -> None:
        assert _run(_table_table(_versioned(), None), "a4@4 b2@2 b1@1 a3@3") == [
            [],
            [("(a4, b2)", 4)],
            [("(a4, b1)", 4)],
            [],
        ]

    def test_a_record_within_another_keys_grace_period_only_is_not_taken(self) -> None:
        with TopologyDriver(_table_table(_versioned(retention=10), _versioned())) as driver:
            driver.pipe("b", "k", "b0", 0)
            driver.pipe("a", "other", "a100", 100)
            driver.pipe("a", "k", "a89", 89)
            assert driver.read("out") == []
            driver.pipe("a", "k", "a90", 90)
            assert driver.read("out") == [("k", "(a90, b0)", 90)]

    @pytest.mark.parametrize(
        ("left", "right", "expected"),
        [
            (None, None, [[], [("(a4, b2)", 4)], [("(a4, b1)", 4)], [("(a3, b1)", 3)]]),
            (_versioned(), None, [[], [("(a4, b2)", 4)], [("(a4, b1)", 4)], []]),
            (None, _versioned(), [[], [("(a4, b2)", 4)], [], [("(a3, b2)", 3)]]),
            (_versioned(), _versioned(), [[], [("(a4, b2)", 4)], [], []]),
        ],
        ids=["none", "left", "right", "both"],
    )
    def test_foreign_key_joins_do_the_same_side_by_side(
        self, left: Materialized | None, right: Materialized | None, expected: list[Results]
    ) -> None:
        assert _run(_table_table(left, right, lambda value: "k"), "a4@4 b2@2 b1@1 a3@3") == expected


class TestCompleteHistoryCorrectsEveryOlderResult:
    def _run(self, records: str) -> list[Results]:
        builder = _builder()
        a, b = (builder.table(topic, materialized=_versioned()) for topic in "ab")
        a.join(b, _joiner, history="complete").to("out", TEXT)
        return _run(builder.build(), records)

    def test_attempt_2_as_the_kip_writes_it(self) -> None:
        assert self._run(ATTEMPT_2) == [
            [],
            [],
            [("(a0, b2)", 2), ("(a5, b2)", 5)],
            [("(a0, b3)", 3), ("(a5, b3)", 5)],
            [("(a0, b4)", 4), ("(a5, b4)", 5)],
            [("(a1, b2)", 2), ("(a1, b3)", 3), ("(a1, b4)", 4)],
        ]

    def test_the_example_that_attempt_1_gets_wrong(self) -> None:
        assert self._run(ATTEMPT_1)[-1] == [("(a1, b0)", 1), ("(a1, b2)", 2), ("(a1, b3)", 3)]

    def test_the_older_result_of_the_proposal_is_corrected(self) -> None:
        assert self._run(PROPOSAL)[-1] == [("(a1, b2)", 2)]


class TestTableFiltersKeepDuplicateTombstones:
    RECORDS = "t1@1 tx@2 tx@4 t2@3"

    def _filtered(self, source: Materialized | None) -> Topology:
        builder = _builder()
        builder.table("t", materialized=source).filter(lambda key, value: value != "tx").to("out", TEXT)
        return builder.build()

    def test_of_a_versioned_table_every_tombstone_is_forwarded(self) -> None:
        results = _run(self._filtered(_versioned()), self.RECORDS)
        assert results == [[("t1", 1)], [(None, 2)], [(None, 4)], [("t2", 3)]]

    def test_of_an_unversioned_table_the_second_tombstone_is_dropped(self) -> None:
        results = _run(self._filtered(Materialized("t")), self.RECORDS)
        assert results == [[("t1", 1)], [(None, 2)], [], [("t2", 3)]]

    def test_so_the_downstream_versioned_table_has_the_right_latest_value(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=_versioned())
        table.filter(lambda key, value: value != "tx", _versioned("filtered"))
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("t", [("k", "t1", 1), ("k", "tx", 2), ("k", "tx", 4), ("k", "t2", 3)])
            assert driver.store("filtered").get("k") is None
            assert driver.store("filtered").get_value("k", as_of=3) == "t2"


class TestTableAggregationsIgnoreOutOfOrderRecords:
    def _aggregated(self, source: Materialized | None) -> Topology:
        builder = _builder()
        grouped = builder.table("v", materialized=source).group_by(
            lambda key, value: ("all", value), Grouped("string", "string")
        )
        stored = Materialized("log", value_serde="string")
        grouped.aggregate(
            str, lambda key, value, log: f"{log}+{value}", lambda key, value, log: f"{log}-{value}", stored
        ).to("out", TEXT)
        return builder.build()

    def test_a_versioned_table_is_aggregated_by_its_latest_values(self) -> None:
        results = _run(self._aggregated(_versioned()), "v1@1 v2@10 v3@5 v4@11")
        assert results == [[("+v1", 1)], [("+v1-v1+v2", 10)], [], [("+v1-v1+v2-v2+v4", 11)]]

    def test_an_unversioned_table_by_what_arrived_last(self) -> None:
        results = _run(self._aggregated(Materialized("v")), "v1@1 v2@10 v3@5")
        assert results == [[("+v1", 1)], [("+v1-v1+v2", 10)], [("+v1-v1+v2-v2+v3", 10)]]


class TestWhichTablesAreVersioned:
    def _versioned_table(self) -> tuple[StreamsBuilder, KTable]:
        builder = _builder()
        return builder, builder.table("t", materialized=_versioned("t"))

    def test_a_table_is_versioned_if_its_store_is(self) -> None:
        builder, table = self._versioned_table()
        assert table.versioned
        assert not builder.table("plain", materialized=Materialized("plain")).versioned
        assert not builder.table("neither").versioned

    def test_filters_and_mappers_hand_it_on_until_a_store_says_otherwise(self) -> None:
        _, table = self._versioned_table()
        derived = table.filter(lambda k, v: True).map_values(str).transform_values(lambda k, v: v)
        assert derived.versioned
        assert not derived.filter_not(lambda k, v: False, Materialized("unversioned")).versioned
        assert not derived.filter(lambda k, v: True, Materialized("again")).map_values(str).versioned

    def test_serdes_alone_are_no_store_and_change_nothing(self) -> None:
        _, table = self._versioned_table()
        assert table.filter(lambda k, v: True, Materialized.with_serdes("string", "string")).versioned

    def test_an_unversioned_table_becomes_versioned_by_a_versioned_store(self) -> None:
        builder = _builder()
        assert builder.table("t").map_values(str, _versioned("m")).versioned

    def test_joins_and_aggregations_are_versioned_only_by_their_own_store(self) -> None:
        builder, table = self._versioned_table()
        other = builder.table("o", materialized=_versioned("o"))
        assert not table.join(other, _joiner).versioned
        assert table.join(other, _joiner, _versioned("joined")).versioned
        plain = Materialized("fk", value_serde="string")
        assert not table.join(other, _joiner, plain, foreign_key=lambda value: value).versioned
        assert table.join(other, _joiner, _versioned("vfk"), foreign_key=lambda value: value).versioned
        grouped = table.group_by(lambda key, value: (value, value))
        assert not grouped.count().versioned
        assert grouped.count(Materialized.versioned("counts", history_retention=1000)).versioned

    def test_a_table_made_of_a_stream_is_versioned_only_by_its_own_store(self) -> None:
        _, table = self._versioned_table()
        assert not table.to_stream().to_table().versioned
        assert table.to_stream().to_table(_versioned("again")).versioned

    def test_a_table_made_of_a_tables_updates_has_old_values_of_its_own(self) -> None:
        builder = _builder()
        table = builder.table("v", materialized=_versioned())
        by_arrival = table.to_stream().to_table(Materialized("by-arrival"))
        for number, grouped in enumerate((table, by_arrival)):
            counted = grouped.group_by(lambda key, value: (value, value), Grouped("string", "string")).count()
            counted.to_stream().map_values(str).to("out" if number else "latest", TEXT)
        with TopologyDriver(builder.build()) as driver:
            driver.pipe_all("v", [("k", "v2", 2), ("k", "v1", 1), ("k", "v3", 3)])
            assert {row.key: row.value for row in driver.read("latest")} == {"v2": "0", "v3": "1"}
            assert {row.key: row.value for row in driver.read("out")} == {"v2": "0", "v1": "0", "v3": "1"}


class TestErrorsSayWhy:
    def test_suppress_on_a_versioned_table(self) -> None:
        table = _builder().table("t", materialized=_versioned())
        for versioned in (table, table.map_values(str), table.filter(lambda k, v: True)):
            with pytest.raises(TopologyError, match="versioned"):
                versioned.suppress(Suppressed.until_time_limit(10))

    def test_suppress_is_legal_once_the_table_is_unversioned_again(self) -> None:
        builder = _builder()
        table = builder.table("t", materialized=_versioned()).map_values(str, Materialized("m"))
        assert not table.suppress(Suppressed.until_time_limit(10)).versioned

    def test_a_global_table_cannot_be_versioned(self) -> None:
        with pytest.raises(TopologyError, match="global table of topic 'g' cannot be versioned"):
            _builder().global_table("g", materialized=_versioned())

    def test_a_versioned_table_cannot_be_cached(self) -> None:
        with pytest.raises(TopologyError, match="cannot be cached"):
            _builder().table("t", materialized=_versioned().with_caching())

    def test_a_complete_history_needs_two_versioned_tables_and_no_unversioned_store(self) -> None:
        builder = _builder()
        versioned, plain = builder.table("a", materialized=_versioned()), builder.table("b")
        with pytest.raises(TopologyError, match="not versioned"):
            versioned.join(plain, _joiner, history="complete")
        other = builder.table("c", materialized=_versioned())
        with pytest.raises(TopologyError, match="needs a versioned store"):
            versioned.join(other, _joiner, Materialized("j", value_serde="string"), history="complete")
        with pytest.raises(TopologyError, match="'latest' or 'complete'"):
            versioned.join(other, _joiner, history="all")  # type: ignore[arg-type]
        with pytest.raises(TopologyError, match="foreign-key join"):
            versioned.join(other, _joiner, foreign_key=str, history="complete")

    def test_operators_that_need_old_results_of_a_complete_history_ask_for_a_store(self) -> None:
        builder = _builder()
        a, b = (builder.table(topic, materialized=_versioned()) for topic in "ab")
        joined = a.join(b, _joiner, history="complete")
        with pytest.raises(TopologyError, match="pass Materialized"):
            joined.group_by(lambda key, value: (key, value), Grouped("string", "string")).count()

    def test_a_table_cannot_be_kept_in_a_store_of_another_kind(self) -> None:
        with pytest.raises(TopologyError, match="cannot hold this table"):
            _builder().table("t", Consumed("string", "string"), Materialized("t", StoreKind.SESSION, retention=10))

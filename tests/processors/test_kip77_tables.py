"""The tables of KIP-77 for joins with tables, read as they stand there: one row per record, one column per side.

A row is a time, the left or the right value that arrives then, and the result; ``delete`` is a tombstone. Everything
has the same key.
"""

from typing import Any

import pytest

from millpond.errors import TopologyError
from millpond.processors import KStream, KTable, Materialized, Produced, StreamsBuilder, TopologyDriver

STREAM_TABLE_INNER_JOIN = """
     1 | null |      |
     2 |      | null |
     3 | A    |      |
     4 |      | a    |
     5 | B    |      | B-a
     6 |      | b    |
     7 | null |      |
     8 |      | null |
     9 | C    |      |
    10 |      | c    |
    11 |      | null |
    12 | null |      |
    13 |      | null |
    14 |      | d    |
    15 | D    |      | D-d
"""

STREAM_TABLE_LEFT_JOIN = STREAM_TABLE_INNER_JOIN.replace("3 | A    |      |", "3 | A    |      | A-null").replace(
    "9 | C    |      |", "9 | C    |      | C-null"
)

TABLE_TABLE_INNER_JOIN = """
     1 | null |      |
     2 |      | null |
     3 | A    |      |
     4 |      | a    | A-a
     5 | B    |      | B-a
     6 |      | b    | B-b
     7 | null |      | delete
     8 |      | null |
     9 | C    |      |
    10 |      | c    | C-c
    11 |      | null | delete
    12 | null |      |
    13 |      | null |
    14 |      | d    |
    15 | D    |      | D-d
"""

TABLE_TABLE_LEFT_JOIN = """
     1 | null |      |
     2 |      | null |
     3 | A    |      | A-null
     4 |      | a    | A-a
     5 | B    |      | B-a
     6 |      | b    | B-b
     7 | null |      | delete
     8 |      | null |
     9 | C    |      | C-null
    10 |      | c    | C-c
    11 |      | null | C-null
    12 | null |      | delete
    13 |      | null |
    14 |      | d    |
    15 | D    |      | D-d
"""

TABLE_TABLE_OUTER_JOIN = """
     1 | null |      |
     2 |      | null |
     3 | A    |      | A-null
     4 |      | a    | A-a
     5 | B    |      | B-a
     6 |      | b    | B-b
     7 | null |      | null-b
     8 |      | null | delete
     9 | C    |      | C-null
    10 |      | c    | C-c
    11 |      | null | C-null
    12 | null |      | delete
    13 |      | null |
    14 |      | d    | null-d
    15 | D    |      | D-d
"""


def _joiner(left: Any, right: Any) -> str:
    return f"{left or 'null'}-{right or 'null'}"


def _check(builder: StreamsBuilder, table: str) -> None:
    with TopologyDriver(builder.build()) as driver:
        for line in table.strip().splitlines():
            time, left, right, result = (cell.strip() for cell in line.split("|"))
            value = left or right
            driver.pipe("left" if left else "right", "k", None if value == "null" else value, int(time))
            expected = [] if not result else [("k", None if result == "delete" else result, int(time))]
            assert driver.read("out") == expected, f"in row {time}"


@pytest.mark.parametrize(
    ("join", "table"),
    [(KStream.join, STREAM_TABLE_INNER_JOIN), (KStream.left_join, STREAM_TABLE_LEFT_JOIN)],
    ids=["inner", "left"],
)
def test_a_stream_table_join_follows_the_table_of_kip_77(join: Any, table: str) -> None:
    builder = StreamsBuilder(value_serde="string")
    left, right = builder.stream("left"), builder.table("right")
    join(left, right, _joiner).to("out", Produced(value_serde="string"))
    _check(builder, table)


@pytest.mark.parametrize("materialized", [None, Materialized("joined", value_serde="string")], ids=["read", "stored"])
@pytest.mark.parametrize(
    ("join", "table"),
    [
        (KTable.join, TABLE_TABLE_INNER_JOIN),
        (KTable.left_join, TABLE_TABLE_LEFT_JOIN),
        (KTable.outer_join, TABLE_TABLE_OUTER_JOIN),
    ],
    ids=["inner", "left", "outer"],
)
def test_a_table_table_join_follows_the_table_of_kip_77(
    join: Any, table: str, materialized: Materialized | None
) -> None:
    builder = StreamsBuilder(value_serde="string")
    left, right = builder.table("left"), builder.table("right")
    join(left, right, _joiner, materialized).to("out", Produced(value_serde="string"))
    _check(builder, table)


def test_a_joined_table_that_is_not_stored_can_be_looked_up() -> None:
    builder = StreamsBuilder(value_serde="string")
    joined = builder.table("left").outer_join(builder.table("right"), _joiner)
    builder.stream("asked").join(joined, lambda question, answer: answer).to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("left", "k", "A", 1)
        driver.pipe("asked", "k", "?", 2)
        driver.pipe("right", "k", "a", 3)
        driver.pipe("asked", "k", "?", 4)
        driver.pipe("asked", "unknown", "?", 5)
        assert driver.read("out") == [("k", "A-null", 2), ("k", "A-a", 4)]


def test_records_without_a_key_join_nothing_but_a_left_join_passes_them_on() -> None:
    builder = StreamsBuilder(value_serde="string")
    left, right = builder.stream("left"), builder.table("right")
    left.join(right, _joiner, None).to("inner", Produced(value_serde="string"))
    left.left_join(right, _joiner).to("outer", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("right", None, "a", 1)
        driver.pipe("left", None, "A", 2)
        assert driver.read("inner") == []
        assert driver.read("outer") == [(None, "A-null", 2)]
        assert sum(n for what, n in driver.counters.items() if "dropped-null" in what) == 2


def test_a_join_emits_only_the_last_update_of_a_key_per_batch_where_its_store_is_cached() -> None:
    builder = StreamsBuilder(value_serde="string")
    stored = Materialized("joined", value_serde="string").with_caching()
    builder.table("left").outer_join(builder.table("right"), _joiner, stored).to("out")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("left", [("k", "A", 1), ("j", "X", 2), ("k", "B", 3)])
        assert sorted(driver.read("out")) == [("j", "X-null", 2), ("k", "B-null", 3)]


def test_a_stream_finds_any_key_of_a_global_table() -> None:
    builder = StreamsBuilder(value_serde="string")
    countries = builder.global_table("countries")
    visits = builder.stream("visits")
    shown = visits.left_join(countries, _joiner, selector=lambda key, value: value[-2:] or None)
    shown.to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("countries", [("de", "Germany", 1), ("nl", "Netherlands", 2)])
        driver.pipe_all("countries", [("de", "Deutschland", 0)])
        driver.pipe_all("visits", [("ada", "1 de", 3), (None, "2 nl", 4), ("eva", "3 fr", 5), ("leo", "", 6)])
        results = [("ada", "1 de-Deutschland", 3), (None, "2 nl-Netherlands", 4), ("eva", "3 fr-null", 5)]
        # A record with a key of its own that names nothing to look up is dropped.
        assert driver.read("out") == results


def test_a_table_can_be_joined_with_a_table_only() -> None:
    builder = StreamsBuilder(value_serde="string")
    with pytest.raises(TopologyError, match="can be joined with a table"):
        builder.table("left").join(builder.stream("right"), _joiner)  # type: ignore[arg-type]


def test_a_table_of_another_builder_cannot_be_joined() -> None:
    with pytest.raises(TopologyError, match="two builders"):
        StreamsBuilder().table("left").join(StreamsBuilder().table("right"), _joiner)


def test_a_global_table_can_be_used_on_both_sides_of_a_repartition() -> None:
    builder = StreamsBuilder(value_serde="string")
    names = builder.global_table("names", materialized=Materialized("names"))
    first = builder.stream("in").join(names, _joiner, selector=lambda key, value: value)
    second = first.select_key(lambda key, value: value[0]).repartition()
    second.join(names, _joiner).to("out", Produced(value_serde="string"))
    topology = builder.build()
    assert len(topology.subtopologies) == 2
    assert not topology.loops
    with TopologyDriver(topology) as driver:
        driver.pipe_all("names", [("a", "Ada", 1), ("b", "Bob", 1)])
        driver.pipe("in", "x", "a", 2)
        assert driver.read("out") == [("a", "a-Ada-Ada", 2)]
        assert driver.store("names").get_value("b") == "Bob"


def test_a_global_table_that_nobody_uses_is_kept_current_all_the_same() -> None:
    builder = StreamsBuilder(value_serde="string")
    builder.global_table("names", materialized=Materialized("names"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("names", "a", "Ada", 1)
        assert driver.store("names").get_value("a") == "Ada"

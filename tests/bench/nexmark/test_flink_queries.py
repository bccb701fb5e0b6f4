"""The queries of Nexmark as text for Flink, without Flink; make test-flink has Flink and compares the answers."""

import re

import pytest

pytest.importorskip("pyspark")

from millpond.bench.flink.queries import FlinkQuery
from millpond.bench.nexmark.answers import ANSWERS
from millpond.bench.nexmark.suite import QUERIES


def query_of(name: str) -> FlinkQuery:
    return QUERIES[name].flink()


def definitions(name: str) -> str:
    return "\n".join(table.definition for table in query_of(name).tables)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_its_sources_and_no_column_that_it_has_no_use_for(name: str) -> None:
    query = query_of(name)
    assert {table.name for table in query.tables} == {source.name for source in QUERIES[name].reads}
    for table in query.tables:
        assert f"CREATE TEMPORARY TABLE {table.name}" in table.definition
        unused = [column for column, _ in table.columns if not re.search(rf"\b{column}\b", query.sql)]
        assert unused == []


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_rows_that_are_replaced_if_its_answer_has_a_key(name: str) -> None:
    changing = bool(ANSWERS[name].key) and name != "q3"  # a join keeps all of its rows
    assert query_of(name).is_table is changing


def test_event_time_is_there_where_windows_are_and_rows_may_be_as_late_as_in_the_suite() -> None:
    late = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0 00:00:04.000' DAY(3) TO SECOND(3)"
    timed = {name: definitions(name).count(late) for name in QUERIES}
    assert {name: count for name, count in timed.items() if count} == {"q5": 1, "q7": 1, "q8": 2, "q11": 1}
    assert "WATERMARK FOR arrived AS arrived - INTERVAL '0 00:00:00.001'" in definitions("q12")
    assert [name for name in QUERIES if "TABLE(" in query_of(name).sql] == ["q5", "q7", "q8", "q11", "q12"]


def test_flink_is_told_which_columns_are_keys() -> None:
    keyed = {name for name in QUERIES if "PRIMARY KEY (id) NOT ENFORCED" in definitions(name)}
    assert keyed == {"q3", "q4", "q8", "q9", "q20"}

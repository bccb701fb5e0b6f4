"""``with_caching``: whatever makes the table, a micro-batch emits each key's last update, and stores hold the same."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from millpond.processors import KTable, Materialized, Produced, StreamsBuilder, TopologyDriver

CACHED = Materialized("cached", value_serde="string").with_caching()


def _source(builder: StreamsBuilder, stored: Materialized) -> KTable:
    return builder.table("in", materialized=stored)


def _of_a_stream(builder: StreamsBuilder, stored: Materialized) -> KTable:
    return builder.stream("in").to_table(stored)


def _filter(builder: StreamsBuilder, stored: Materialized) -> KTable:
    return builder.table("in").filter(lambda key, value: value != "v3", stored)


def _map_values(builder: StreamsBuilder, stored: Materialized) -> KTable:
    return builder.table("in").map_values(str.upper, stored)


def _join(builder: StreamsBuilder, stored: Materialized) -> KTable:
    table = builder.table("in")
    return table.left_join(table, lambda left, right: f"{left}-{right}", stored)


def _foreign_key_join(builder: StreamsBuilder, stored: Materialized) -> KTable:
    other = builder.table("other")
    return builder.table("in").left_join(
        other, lambda left, right: f"{left}-{right}", stored, foreign_key=lambda value: value
    )


TABLES = [_source, _of_a_stream, _filter, _map_values, _join, _foreign_key_join]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__.strip("_"))
def test_a_micro_batch_emits_the_last_update_of_each_key(
    table: Callable[[StreamsBuilder, Materialized], KTable],
) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        batches = [
            [(rng.choice("abc"), rng.choice((None, "v1", "v2", "v3")), time) for time in range(rng.randrange(1, 9))]
            for _ in range(4)
        ]
        cached, cached_rows = _run(table, CACHED, batches)
        plain, plain_rows = _run(table, Materialized("cached", value_serde="string"), batches)
        assert cached_rows == plain_rows
        for few, many in zip(cached, plain, strict=True):
            assert {row.key: row for row in few} == {row.key: row for row in many}, seed
            assert len(few) == len({row.key for row in few}), seed


def _run(
    table: Callable[[StreamsBuilder, Materialized], KTable], stored: Materialized, batches: list[Any]
) -> tuple[list[Any], list[Any]]:
    builder = StreamsBuilder(value_serde="string")
    table(builder, stored).to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        output = []
        for batch in batches:
            driver.pipe_all("in", batch)
            output.append(driver.read("out"))
        return output, list(driver.store("cached").scan())

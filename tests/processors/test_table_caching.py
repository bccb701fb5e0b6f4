"""``with_caching``: whatever makes the table, a micro-batch emits each key's last update, and stores hold the same."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
import pytest

from millpond.processors import Batch, Columns, KTable, Materialized, Produced, StreamsBuilder, TopologyDriver

pc: Any = _compute

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


def _join_of_columns(builder: StreamsBuilder, stored: Materialized) -> KTable:
    def join(left: Any, right: Any) -> Any:
        return pc.binary_join_element_wise(left, pc.fill_null(right, "None"), "-")

    return builder.table("in").left_join(builder.table("other"), join, stored, vectorized=True)


def _foreign_key_join(builder: StreamsBuilder, stored: Materialized) -> KTable:
    other = builder.table("other")
    return builder.table("in").left_join(
        other, lambda left, right: f"{left}-{right}", stored, foreign_key=lambda value: value
    )


TABLES = [_source, _of_a_stream, _filter, _map_values, _join, _join_of_columns, _foreign_key_join]
Form = Callable[[list[Any]], Batch | Columns]


def as_batch(records: list[Any]) -> Batch:
    return Batch(*map(list, zip(*records, strict=True)))


def as_columns(records: list[Any]) -> Columns:
    keys, values, times = zip(*records, strict=True)
    return Columns(pa.array(keys), pa.array(values, pa.string()), np.array(times))


@pytest.mark.parametrize("form", [as_batch, as_columns], ids=["objects", "columns"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__.strip("_"))
def test_a_micro_batch_emits_the_last_update_of_each_key(
    table: Callable[[StreamsBuilder, Materialized], KTable], form: Form
) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        batches = [
            [(rng.choice("abc"), rng.choice((None, "v1", "v2", "v3")), time) for time in range(rng.randrange(1, 9))]
            for _ in range(4)
        ]
        cached, cached_rows = _run(table, CACHED, batches, form)
        plain, plain_rows = _run(table, Materialized("cached", value_serde="string"), batches, as_batch)
        assert cached_rows == plain_rows
        for few, many in zip(cached, plain, strict=True):
            assert {row.key: row for row in few} == {row.key: row for row in many}, seed
            assert len(few) == len({row.key for row in few}), seed


def _run(
    table: Callable[[StreamsBuilder, Materialized], KTable], stored: Materialized, batches: list[Any], form: Form
) -> tuple[list[Any], list[Any]]:
    builder = StreamsBuilder(key_serde="string", value_serde="string")
    table(builder, stored).to("out", Produced("string", "string"))
    with TopologyDriver(builder.build()) as driver:
        output = []
        for batch in batches:
            driver.pipe_batch("in", form(batch))
            output.append(driver.read("out"))
        return output, list(driver.store("cached").scan())

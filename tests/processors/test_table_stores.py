"""A table may be kept in any kind of key-value store, on its own backend; only what the kind does not keep differs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Grouped, Materialized, Produced, StreamsBuilder, TopologyDriver
from millpond.stores.specs.store_spec import StoreKind
from tests.drawing import tries

RECORDS = [("k", "a1", 10), ("j", "a2", 20), ("k", None, 30), ("k", "a3", 40), ("i", "a4", 50)]
KINDS = {
    "plain": {"kind": StoreKind.KEY_VALUE},
    "timestamped": {"kind": StoreKind.TIMESTAMPED_KEY_VALUE},
    "versioned": {"kind": StoreKind.VERSIONED, "history_retention": 1000},
}


def _materialized(name: str, kind: str, backend: str | None = None, value_serde: str = "string") -> Materialized:
    return Materialized(name, backend=backend, value_serde=value_serde, **KINDS[kind])  # type: ignore[arg-type]


def _run(kind: str, backend: str | None = None) -> dict[str, list[Any]]:
    builder = StreamsBuilder(value_serde="string")
    table = builder.table("in", materialized=_materialized("source", kind, backend))
    mapped = table.map_values(str.upper, _materialized("mapped", kind))
    kept = mapped.filter(lambda key, value: value != "A4", _materialized("kept", kind))
    joined = table.outer_join(kept, lambda a, b: f"{a}/{b}", _materialized("joined", kind))
    joined.to("out", Produced(value_serde="string"))
    grouped = table.group_by(lambda key, value: (value[:1], value), Grouped("string", "string"))
    grouped.count(_materialized("counted", kind, value_serde="int64")).to("counts")
    with TopologyDriver(builder.build()) as driver:
        driver.pipe_all("in", RECORDS)
        return {topic: driver.read(topic) for topic in ("out", "counts")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_is_the_same_in_every_kind_of_store(kind: str) -> None:
    timestamped = _run("timestamped")
    for topic, records in _run(kind).items():
        assert {r.key: r.value for r in records} == {r.key: r.value for r in timestamped[topic]}


def test_a_plain_store_forgets_the_time_of_a_value() -> None:
    builder = StreamsBuilder(value_serde="string")
    plain = builder.table("a", materialized=_materialized("a", "plain"))
    plain.join(builder.table("b"), lambda a, b: f"{a}{b}").to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build()) as driver:
        driver.pipe("a", "k", "a", 100)
        driver.pipe("b", "k", "b", 5)
        assert driver.store("a").get("k") == "a"
        assert driver.read("out") == [("k", "ab", 5)]


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_one_table_may_live_on_a_backend_of_its_own(backend: str) -> None:
    assert _run("timestamped", backend) == _run("timestamped")


def _piped(records: list[tuple[str, Any, int]], whole: bool, needs_olds: bool) -> tuple[Any, ...]:
    builder = StreamsBuilder(value_serde="string", order="arrival")
    options = Materialized.versioned("rates", history_retention=100, grace=50, value_serde="string")
    table = builder.table("in", materialized=options)
    if needs_olds:
        grouped = table.group_by(lambda key, value: (value, value), Grouped("string", "string"))
        grouped.count(Materialized("counted", value_serde="int64")).to("out", Produced("string", "int64"))
    else:
        table.to_stream().to("out", Produced(value_serde="string"))
    with TopologyDriver(builder.build(), on_error="dead-letter") as driver:
        for part in [records] if whole else [[record] for record in records]:
            driver.pipe_all("in", part)
        letters = [(letter.key, letter.value) for letter in driver.dead_letters]
        return driver.read("out"), dict(driver.counters), letters, list(driver.store("rates").scan())


values = st.one_of(st.none(), st.sampled_from(["x", "y"]))
arrivals = st.lists(st.tuples(st.sampled_from("ab"), values, st.integers(0, 40).map(lambda t: t * 10)), min_size=1)


@settings(max_examples=tries(60), deadline=None)
@given(arrivals, st.booleans(), st.booleans())
def test_a_batch_of_versions_gives_what_its_records_give(arrivals: list[Any], needs_olds: bool, bad: bool) -> None:
    records = [*arrivals[:2], ("a", 5, 100), *arrivals[2:]] if bad else arrivals
    assert _piped(records, True, needs_olds) == _piped(records, False, needs_olds)
